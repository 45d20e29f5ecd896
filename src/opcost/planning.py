"""Which layout of many GPUs trains a model fastest, of those that fit: all sensible ones, of which few are recorded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from opcost.api import count, graph_of
from opcost.core.devices import device as find_device
from opcost.core.graph import Graph, nbytes
from opcost.core.option import filled, takes
from opcost.core.report import Report
from opcost.core.results import LayoutCost, LayoutPlan
from opcost.core.units import format_bytes
from opcost.core.workers import process_count, results
from opcost.distributed.clusters import Cluster
from opcost.distributed.layouts import CHECKPOINTS, Layout, Space, layouts
from opcost.distributed.mesh import ranks_by_axis
from opcost.errors import BudgetExceeded, InputError, OpcostError, UnknownName, counted, shortened
from opcost.frontends.inputs import parse_dtype, parse_precision
from opcost.frontends.varying import Varied
from opcost.options import Planning
from opcost.predicting import predict
from opcost.profiles import Prediction
from opcost.sizing import described, model_of

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from opcost.analysis.layouts.rank import Blocks, FewBlockGraphs

MEMORY = 2 << 30
"""About what one process takes: PyTorch, a model without weights, and graphs."""
OPTIMIZER = "adamw"
TRIES = 4
"""How many of the fastest layouts are counted themselves until one fits with the allocator too."""
DOUBLINGS = 4
"""Where nothing fits, how often the GPUs are doubled to see what would."""
OFF = 0.01
"""A layout whose time or memory is further off than this when it is counted is named."""
_PREDICTING = ("device", "calibration", "execution", "cluster", "async_tp", "power", "compile_only")
_OF_AXES = {"tp": ("tp_plan", "sequence_parallel", "loss_parallel"), "cp": ("ring",), "ep": ("experts",)}
"""Options that only a mesh with an axis takes."""
_OF_MESHES = ("reduce_dtype", *(name for names in _OF_AXES.values() for name in names))
_SEARCHING = ("gpus", "global_batch", "checkpoint", "fix", "scheduler", "workers", "progress", "batch")


@takes(Planning)
def plan(source: Any, inputs: Any = None, **options: Unpack[Planning]) -> LayoutPlan:
    """The fastest layout of many GPUs: `print(opcost.plan(model, gpus=64, cluster="dgx-h100", tokens=8192, global_batch=512))`.

    The model, its inputs and the other options are given as to `opcost.predict`. A step of `global_batch` samples is spread over
    the GPUs in every sensible way: copies, shards, tensor parallelism within a node, microbatches and passes that accumulate,
    checkpoints, and parameters that are gathered again for the backward pass or kept. Each layout has its memory, and its
    predicted time if it fits. Few layouts with few blocks are recorded, from which the others follow; the fastest of each tensor
    parallelism is counted itself. `batch` fixes the microbatch, and `fix="tp=8"` axes of the mesh.

    A model that a string names is counted in several processes, or on a Dask cluster by its `scheduler`. `progress` is called
    with the plan so far.
    """
    search = _PlanSearch(source, inputs, options)
    found = search.costs({search.space.gpus: search.layouts, **search.smaller}, reports=True)
    best = found.fastest(search.space.gpus)
    if best is None:
        raise search.nothing_fits(found)
    return search.plan(found)


# -- what is searched ------------------------------------------------------------------------------------------------------


class _PlanQuestion(NamedTuple):
    """A model and how it is trained, for processes that count it."""

    source: Any
    counting: Mapping[str, Any]
    """Options of a count, with the inputs."""
    predicting: Mapping[str, Any]
    """Options of a prediction besides."""
    limit: int
    samples: int


class _PlanJob(NamedTuple):
    """Layouts with one tensor parallelism, by the number of GPUs."""

    question: _PlanQuestion
    layouts: Mapping[int, Sequence[Layout]]
    gpus: int
    """Of how many the fastest layout is counted itself."""


class _PlanRefusal(NamedTuple):
    """Why layouts do not run, and what to do about it."""

    message: str
    hint: str = ""


class _PlanCosts(NamedTuple):
    """What was found of layouts, by the number of GPUs."""

    costs: dict[int, list[LayoutCost]]
    refused: Counter[_PlanRefusal]
    """How many layouts do not run."""
    notes: dict[str, None]
    source: str = ""
    item: str = ""

    def fastest(self, gpus: int) -> LayoutCost | None:
        """The layout that fits and takes the least time."""
        fitting = [cost for cost in self.costs.get(gpus, ()) if cost.fits and cost.latency_ns is not None]
        return min(fitting, key=lambda cost: cost.latency_ns or 0, default=None)

    def add(self, other: _PlanCosts) -> _PlanCosts:
        """Both together."""
        for gpus, costs in other.costs.items():
            self.costs.setdefault(gpus, []).extend(costs)
        self.refused.update(other.refused)
        self.notes.update(other.notes)
        return self._replace(source=other.source or self.source, item=other.item or self.item)


class _PlanSearch:
    """The layouts of one plan."""

    def __init__(self, source: Any, inputs: Any, options: Mapping[str, Any]) -> None:
        given = filled(Planning, options)
        for name, example in (("gpus", "64"), ("global_batch", "512"), ("cluster", "'dgx-h100'")):
            if getattr(given, name) is None:
                flag = name.replace("_", "-")
                raise InputError(
                    f"{name} is missing", hint=f"{name}={example} (on the command line --{flag} {example})"
                )
        self._given, self._options = given, options
        device = find_device(given.device)
        if device.usable is None:
            raise InputError(f"the memory of {device.name} is not in the table of devices", hint="name another device")
        self._device, self._cluster = device.name, Cluster.of(given.cluster)
        self.space = Space(
            gpus=_whole("gpus", given.gpus), cluster=self._cluster, samples=_whole("global_batch", given.global_batch),
            checkpoints=_checkpoints(given.checkpoint), batch=None if given.batch is None else _whole("batch", given.batch),
            fixed=_fixed(given.fix),
        )  # fmt: skip
        self.layouts, self._left_out = layouts(self.space)
        if not self.layouts:
            hint = "; ".join(self._left_out) or "fix other axes"
            raise InputError(f"there is no layout of {self.space.gpus:,} GPUs", hint=hint)
        self.smaller: dict[int, list[Layout]] = {}
        if (fewer := self.space.smaller) is not None:
            self.smaller = {fewer: layouts(self.space._replace(gpus=fewer))[0]}
        named = isinstance(source, (str, Path))
        if given.scheduler is not None and not named:
            raise InputError(
                "a cluster counts models that a string names", hint="path/to/file.py:Net, or hf:config.json"
            )
        self._workers = given.workers if named else 1
        counting = {name: value for name, value in options.items() if name not in (*_PREDICTING, *_SEARCHING)}
        counting |= {"inputs": inputs, "optimizer": given.optimizer or OPTIMIZER, "device": device.name}
        predicting = {name: getattr(given, name) for name in _PREDICTING} | {"cluster": self._cluster}
        self._question = _PlanQuestion(source, counting, predicting, device.usable, self.space.samples)

    def costs(self, every: Mapping[int, Sequence[Layout]], *, reports: bool = False) -> _PlanCosts:
        """What these layouts cost, by their numbers of GPUs; of the one of the plan the fastest are counted themselves."""
        jobs = self._jobs(every)
        total = sum(len(each) for job in jobs for each in job.layouts.values())
        found = _PlanCosts({}, Counter(), {})
        for each in results(
            work, jobs, memory=MEMORY, workers=self._workers, scheduler=self._given.scheduler
        ):  # fmt: skip
            found = found.add(each)
            if reports and self._given.progress is not None:
                done = sum(map(len, found.costs.values())) + found.refused.total()
                self._given.progress(self.plan(found), done, total)
        return found

    def _jobs(self, every: Mapping[int, Sequence[Layout]]) -> list[_PlanJob]:
        """One for each tensor parallelism; where there are more processes, also for each checkpoint."""
        tensor = {layout.mesh.tp for found in every.values() for layout in found}
        fine = self._given.scheduler is not None or process_count(len(tensor) + 1, MEMORY, self._workers) > len(tensor)
        by: dict[tuple[int, str], dict[int, list[Layout]]] = {}
        for gpus, found in every.items():
            for layout in found:
                key = layout.mesh.tp, layout.checkpoint if fine else ""
                by.setdefault(key, {}).setdefault(gpus, []).append(layout)
        return [_PlanJob(self._question, by[key], self.space.gpus) for key in sorted(by)]

    def plan(self, found: _PlanCosts) -> LayoutPlan:
        """The plan by what was found."""
        gpus = self.space.gpus
        costs = sorted(found.costs.get(gpus, ()), key=_order)
        fewer = next(iter(self.smaller), None)
        options = {name: value for name, value in self._question.counting.items() if name not in ("inputs", "device")}
        refused = (f"{counted(number, 'layout')} left out: {why.message}" for why, number in found.refused.items())
        return LayoutPlan(
            source=found.source or "the model", device=self._device, cluster=self._cluster.name, gpus=gpus,
            samples=self.space.samples, item=found.item, limit_bytes=self._question.limit, layouts=tuple(costs),
            smaller=None if fewer is None else (fewer, found.fastest(fewer)), options=described(options),
            notes=(*self._left_out, *refused, *found.notes, *_ABOUT),
        )  # fmt: skip

    def nothing_fits(self, found: _PlanCosts) -> OpcostError:
        """That no layout fits, how much the smallest needs, and with how many GPUs one would."""
        gpus = self.space.gpus
        costs = found.costs.get(gpus, [])
        if not costs:
            why = found.refused.most_common(1)[0][0]
            return InputError(f"no layout of {gpus:,} GPUs runs: {why.message}", hint=why.hint or "fix other axes")
        least = min(costs, key=lambda cost: cost.peak_bytes)
        limit = format_bytes(self._question.limit)
        fault = (
            f"{found.source} does not fit on {gpus:,} {self._device} ({limit} usable each): the smallest of "
            f"{counted(len(costs), 'layout')} needs {format_bytes(least.peak_bytes)} ({least})"
        )
        for doubling in range(1, DOUBLINGS + 1):
            space = self.space._replace(gpus=gpus << doubling)
            smallest = [layout for layout in layouts(space)[0] if layout.mesh.replicate == 1 and layout.reshard]
            few = min((layout.batch for layout in smallest), default=0)
            more = self.costs({space.gpus: [layout for layout in smallest if layout.batch == few]})
            if (best := more.fastest(space.gpus)) is not None:
                return BudgetExceeded(
                    fault, hint=f"{space.gpus:,} GPUs would do: {best}, {format_bytes(best.peak_bytes)}"
                )
        hint = "a smaller precision, optimizer=adamw8bit, or more checkpointing may help"
        return BudgetExceeded(fault, hint=hint)


_TOO_LARGE = _PlanRefusal(
    "without fsdp, parameters and gradients alone are larger than the memory", "fix other axes, or more GPUs"
)
_ABOUT = (
    "not searched: pipeline parallelism; cp and ep only where they are fixed (cp=2)",
    "memory is that of tensors on the first rank; layouts with reserved memory were counted themselves, with the allocator",
    "times of the others follow from recordings of few layouts and blocks",
)


def _order(cost: LayoutCost) -> tuple[bool, int]:
    """The fastest first, then those that do not fit, the smallest first."""
    return not cost.fits, (cost.latency_ns if cost.fits else None) or cost.peak_bytes


def _whole(name: str, number: Any) -> int:
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        raise InputError(f"{name} is {number!r}; it must be a whole number above zero")
    return number


def _fixed(given: str | Mapping[str, int] | None) -> Mapping[str, int]:
    fixed = {} if given is None else ranks_by_axis(given)
    if fixed.get("pp", 1) > 1:
        raise InputError("a plan has no pipelines yet", hint="fix other axes: tp=8")
    return fixed


def _checkpoints(given: str | Sequence[str]) -> tuple[str, ...]:
    names = [name.strip() for name in given.split(",")] if isinstance(given, str) else [*given]
    for name in names:
        if name not in (*CHECKPOINTS, "all"):
            raise UnknownName("checkpoint of a plan", str(name), [*CHECKPOINTS, "all"])
    return tuple(name for name in CHECKPOINTS if name in names or "all" in names)


# -- what a process does ----------------------------------------------------------------------------------------------------


def work(job: _PlanJob) -> _PlanCosts:
    """The costs of the layouts of a job."""
    with _model(job.question) as model:
        return model.found(job)


@contextmanager
def _model(question: _PlanQuestion) -> Iterator[_PlannedModel]:
    counting = dict(question.counting)
    with model_of(question.source, counting) as (model, label):
        yield _PlannedModel(question, model, counting, label)


@dataclass
class _PlannedModel:
    """A model while layouts of it are counted."""

    question: _PlanQuestion
    model: Any
    counting: dict[str, Any]
    label: str
    source: str = ""
    item: str = ""
    notes: dict[str, None] = field(default_factory=dict)
    copies: dict[int | None, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.of_meshes = {name: self.counting.pop(name) for name in _OF_MESHES if name in self.counting}
        self.varied = Varied(self.counting, ("batch",), lambda arguments: count(self.model, **arguments).inputs)
        self.blocks = self._few_blocks()

    def _few_blocks(self) -> Blocks:
        """The repeated blocks, and copies of the model with few of them."""
        from opcost.analysis.layouts.rank import Blocks
        from opcost.frontends.torch.models.unwrap import lists_of_blocks, unwrap
        from opcost.frontends.torch.sharding.one_rank import FEWEST, with_few_blocks

        self.copies[None] = self.model
        forward = {**self.varied.arguments((1,)), "optimizer": None, "backward": False}
        model = unwrap(self.model)
        lists = [path for path, _ in lists_of_blocks(model)]
        few = with_few_blocks(model, lambda each: graph_of(each, **forward))
        if few is None:
            return Blocks(lists)
        self.copies.update(zip(FEWEST, few.copies, strict=True))
        return Blocks(lists, few.blocks, FEWEST, few.total)

    def arguments(self, layout: Layout) -> dict[str, Any]:
        """The options of a count of a layout."""
        others = {name for axis, names in _OF_AXES.items() if getattr(layout.mesh, axis) == 1 for name in names}
        return {
            **self.varied.arguments((layout.batch,)), **self._checkpoint(layout), "mesh": layout.mesh,
            "accumulate": layout.passes, "reshard": layout.reshard,
            **{name: value for name, value in self.of_meshes.items() if name not in others},
        }  # fmt: skip

    def predicting(self, layout: Layout) -> dict[str, Any]:
        """The other options of a prediction of a layout."""
        found = dict(self.question.predicting)
        return found if layout.mesh.tp > 1 else {**found, "async_tp": False}

    def _checkpoint(self, layout: Layout) -> dict[str, Any]:
        if layout.checkpoint == "none":
            return {}
        if not self.blocks.lists:
            hint = "checkpoint='none' (on the command line --checkpoint none)"
            raise InputError("the model has no list of blocks to recompute", hint=hint)
        patterns = tuple(f".{path}.*" if path else ".*" for path in self.blocks.lists)
        return {"checkpoint": patterns} | ({"checkpoint_keep": "alternate"} if layout.checkpoint == "selective" else {})

    def least_bytes(self, layout: Layout) -> int:
        """What parameters and gradients take that are not sharded by FSDP."""
        precision = parse_precision(self.counting.get("precision"), None)
        named = precision.dtype or self.counting.get("dtype")
        size = None if named is None else nbytes(1, parse_dtype(named))
        parameters = [(p.numel(), size or p.itemsize, 1 + p.requires_grad) for p in self.model.parameters()]
        return sum(prod(each) for each in parameters) // layout.mesh.tp

    def record(self, blocks: int | None, layout: Layout) -> Graph:
        """The graph of a layout with a number of blocks."""
        return graph_of(self.copies[blocks], **self.arguments(layout))

    def found(self, job: _PlanJob) -> _PlanCosts:
        """The costs of the layouts of a job; the fastest of its GPUs is counted itself."""
        from opcost.analysis.layouts.rank import RankGraphs

        by: dict[tuple[str, int, int], list[tuple[int, Layout]]] = {}
        for gpus, every in job.layouts.items():
            for layout in every:
                by.setdefault((layout.checkpoint, layout.mesh.cp, layout.mesh.ep), []).append((gpus, layout))
        costs: dict[int, list[tuple[Layout, LayoutCost]]] = {gpus: [] for gpus in job.layouts}
        refused: Counter[_PlanRefusal] = Counter()
        for group in by.values():
            graphs = RankGraphs(self.record, self.blocks, group[0][1], sorted({layout.batch for _, layout in group}))
            for gpus, layout in group:
                if not layout.mesh.fsdp and self.least_bytes(layout) > self.question.limit:
                    refused[_TOO_LARGE] += gpus == job.gpus
                    continue
                try:
                    costs[gpus].append((layout, self._cost(layout, graphs.of(layout))))
                except OpcostError as exc:
                    refused[_PlanRefusal(shortened(exc.message), exc.hint)] += gpus == job.gpus
        if job.gpus in costs:
            costs[job.gpus] = self._with_counted(costs[job.gpus])
        plain = {gpus: [cost for _, cost in found] for gpus, found in costs.items()}
        return _PlanCosts(plain, +refused, self.notes, self.source, self.item)

    def _cost(self, layout: Layout, few: FewBlockGraphs) -> LayoutCost:
        """The memory of a layout, and the time if it fits."""
        from opcost.analysis.memory import curve_of

        graphs = (few.fewer, few.more)
        self.source = self.label or few.more.source
        compiles = self.question.predicting["execution"] == "compiled"
        reports = [self._report(graph, layout) for graph in graphs] if compiles else []
        curves = [*map(self._compiled_curve, graphs, reports)] if compiles else [*map(curve_of, graphs)]
        peak = few.highest(curves[0], curves[1])
        cost = _cost_of(layout, peak_bytes=peak, fits=peak <= self.question.limit)
        if not cost.fits:
            return cost
        reports = reports or [self._report(graph, layout) for graph in graphs]
        fewer, more = (predict(report, **self.predicting(layout)) for report in reports)
        found = [few.all_grown(a, b) for a, b in zip(_times(fewer), _times(more), strict=True)]
        item, items = reports[1].processed
        rate = None if more.step is None else more.step.tokens_per_second
        self.item = item or "sample" if rate is None else "token"
        if rate is not None:  # of one GPU
            return _timed(cost, found, rate * more.latency_ns / 1e9 * layout.mesh.size)
        per_sample = 1 if items is None else items / (layout.batch * layout.passes)
        return _timed(cost, found, self.question.samples * per_sample)

    def _report(self, graph: Graph, layout: Layout) -> Report:
        from opcost.analysis.costing import cost_graph
        from opcost.analysis.layouts.rank import with_passes
        from opcost.rules import default_rules

        return cost_graph(with_passes(graph, layout), default_rules().with_rules(self.counting.get("rules")))

    def _compiled_curve(self, graph: Graph, report: Report) -> Sequence[int]:
        from opcost.analysis.prediction.fusion import compiled, memory_of_kernels

        only = self.question.predicting["compile_only"]
        return memory_of_kernels(
            compiled(report, (only,) if isinstance(only, str) else only), graph, report, None
        ).curve

    def _with_counted(self, costs: list[tuple[Layout, LayoutCost]]) -> list[tuple[Layout, LayoutCost]]:
        """The same, of which the fastest that fits was counted itself."""
        order = sorted((cost.latency_ns or 0, place) for place, (_, cost) in enumerate(costs) if cost.fits)
        for _, place in order[:TRIES]:
            layout, cost = costs[place]
            costs[place] = layout, self._counted(layout, cost)
            if costs[place][1].fits:
                break
        return costs

    def _counted(self, layout: Layout, cost: LayoutCost) -> LayoutCost:
        """The layout counted itself, with the allocator of the device."""
        found = predict(self.model, **{**self.arguments(layout), **self.predicting(layout)})
        memory = found.memory
        assert memory is not None
        if abs(found.latency_ns - (cost.latency_ns or 0)) > OFF * found.latency_ns:
            self.notes[f"{cost}: {found.latency_ns / (cost.latency_ns or 1) - 1:+.1%} in time when counted itself"] = (
                None
            )
        reserved = memory.reserved_bytes
        if reserved is not None and found.fits:
            reserved = min(reserved, self.question.limit)  # cached memory is released first
        items = (cost.items_per_second or 0.0) * (cost.latency_ns or 0) / 1e9
        return replace(
            _timed(cost, _times(found), items), fits=found.fits is not False, peak_bytes=memory.peak_bytes,
            reserved_bytes=reserved, band_ns=found.band_ns, counted=True,
        )  # fmt: skip


def _times(found: Prediction) -> tuple[dict[str, int], dict[str, int], Mapping[str, int]]:
    """The latency and what useful products take of it at the peak; how much longer collectives of each axis make it; bounds."""
    step = found.step
    assert step is not None
    useful = {} if step.mfu is None else {"useful": round(step.mfu * found.latency_ns)}
    later = Counter(step.exposed_ns)
    later.update(step.slowing_ns)
    return {"latency": found.latency_ns, **useful}, dict(later), found.bounds


def _timed(cost: LayoutCost, times: Sequence[Mapping[str, int]], items: float) -> LayoutCost:
    """The cost with the times of a step, in which all ranks together process that number of items."""
    whole, later, bounds = times
    latency = max(1, whole["latency"])
    mfu = whole["useful"] / latency if "useful" in whole else None
    return replace(
        cost, latency_ns=latency, exposed_ns=later, bounds=bounds, items_per_second=items * 1e9 / latency, mfu=mfu
    )


def _cost_of(layout: Layout, *, peak_bytes: int, fits: bool) -> LayoutCost:
    return LayoutCost(
        mesh=str(layout.mesh), batch=layout.batch, passes=layout.passes, checkpoint=layout.checkpoint, reshard=layout.reshard,
        peak_bytes=peak_bytes, fits=fits,
    )  # fmt: skip
