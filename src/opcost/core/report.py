"""What a model costs: rows, a tree of modules, totals, coverage, and queries on them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from os import PathLike
from typing import IO, Any, ClassVar, NamedTuple

from opcost.core.collectives import CollectiveCost, CostedOp, collectives_of
from opcost.core.graph import Cost, Memory, ModuleCall, Note, Op, Phase, TensorSpec
from opcost.core.names import is_expert, short_source
from opcost.core.order import PieceOrder, StageCost
from opcost.core.overlap import overlapped, passes
from opcost.core.plugin import load_view
from opcost.core.rendering import Listed, Rendered, brief, brief_repr
from opcost.core.steps import Expanded
from opcost.core.units import format_count
from opcost.errors import OpcostError, UnknownName, counted, some

NO_MEMORY = "no-memory"  # the code of the note that says why the memory of a report is unknown
FEW_INPUTS = 5  # inputs that one line names
TOKENS = ("input_ids", "tokens")  # inputs of language models
LONGEST_COUNT = 7  # digits of a number of experts
FEW_SHAPES = 2  # shapes of inputs that the subject of a report names
CONFIGURATION = "config.json"  # a source of this name is called by its class
SHORT_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": ""}  # float32 is usual, and not named
CHANNELS = frozenset({1, 3, 4})  # of images: grey, coloured, or with a fourth, as latents have


class Row(NamedTuple):
    """One operator and its cost; `cost` is None where no rule knows the operator."""

    op: Op
    ins: tuple[TensorSpec, ...]
    outs: tuple[TensorSpec, ...]
    cost: Cost | None
    rule: str
    activations: int = 0
    """Elements of new memory that this operator wrote."""
    activation_bytes: int = 0

    def __repr__(self) -> str:
        costs = ["no cost"] if self.cost is None else cost_texts(self.cost.macs, self.cost.flops)
        shapes = " ".join(map(str, self.outs))
        return brief(self, [*costs, f"in {self.op.module}" if self.op.module else "", shapes], self.op.raw)


@brief_repr
class Stats(NamedTuple):
    """Additive quantities of one module, one group of rows, or the whole model. `+` adds them one by one."""

    params: int = 0
    trainable_params: int = 0
    unused_params: int = 0
    buffers: int = 0
    param_bytes: int = 0
    buffer_bytes: int = 0
    macs: int = 0
    flops: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    activations: int = 0
    activation_bytes: int = 0
    ops: int = 0
    uncounted: int = 0
    """Operators among `ops` without a cost."""

    def __add__(self, other: Stats) -> Stats:  # type: ignore[override]
        return Stats._make(map(int.__add__, self, other))

    @property
    def cost(self) -> Cost:
        return Cost(self.macs, self.flops, self.bytes_read, self.bytes_written)


STATS: tuple[str, ...] = Stats._fields


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleCost:
    """A module with what its own operators and parameters cost, and the same with everything below it."""

    path: str
    type: str
    depth: int
    calls: int
    own: Stats
    total: Stats
    """`own` plus the totals of all children; a shared parameter belongs to the first module that has it."""
    extra: str = ""
    inputs: tuple[TensorSpec, ...] = ()
    outputs: tuple[TensorSpec, ...] = ()
    same_as: str | None = None
    """The first path of the same object, where one module has several names."""
    parameters: tuple[str, ...] = ()
    """Full names of the parameters of this module, shared ones included."""

    @property
    def name(self) -> str:
        return self.path.rpartition(".")[2]

    @property
    def parent(self) -> str | None:
        return self.path.rpartition(".")[0] if self.path else None

    def __repr__(self) -> str:
        return brief(self, [self.type, *stats_texts(self.total)], self.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One parameter or buffer storage, with every name it goes by."""

    names: tuple[str, ...]
    spec: TensorSpec
    trainable: bool
    used: bool
    """Some executed operator read it."""
    buffer: bool = False
    values: tuple[int, ...] = ()
    """What operators call it when they read it: identities of tensors, as in `Op.inputs`."""

    @property
    def name(self) -> str:
        return self.names[0]

    def __repr__(self) -> str:
        shared = f"shared by {len(self.names)} names" if len(self.names) > 1 else ""
        return brief(self, [f"{self.spec} {self.spec.dtype}", shared, "" if self.used else "unused"], self.name)


NO_RULE = "no rule"  # the reason of `Uncounted` that a rule of the user's own removes
DATA = "its shape depends on data"


@dataclass(frozen=True, slots=True)
class Uncounted:
    """An operator without a cost: how often it ran, where, and why it has none."""

    raw: str
    count: int
    modules: tuple[str, ...]
    reason: str = NO_RULE


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much of the model is counted: `counted + sum of uncounted == all rows`."""

    counted: int
    uncounted: tuple[Uncounted, ...] = ()
    exact: bool = True
    """False where values that decide what runs were assumed, or operators ran unseen: see the notes."""

    @property
    def complete(self) -> bool:
        return not self.uncounted and self.exact

    def __repr__(self) -> str:
        missed = sum(entry.count for entry in self.uncounted)
        not_counted = f"{missed:,} not" if missed else ""
        return brief(self, [f"{self.counted:,} operators counted", not_counted, "" if self.exact else "not exact"])


@dataclass(frozen=True, slots=True)
class Group:
    """Rows with one key in common."""

    key: str
    stats: Stats
    count: int

    def __repr__(self) -> str:
        return brief(self, [f"{self.count:,} times", *stats_texts(self.stats)], self.key)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report(Rendered):
    """The cost of one model. Print it, save it, or query it."""

    kind: ClassVar[str] = "report"

    meta: Mapping[str, str]
    """Where it came from and under which conventions: source, framework, version, device, mode, causal, ..."""
    rows: Sequence[Row]
    modules: tuple[ModuleCost, ...]
    """In definition order, the root first; `parent` paths make the tree."""
    parameters: tuple[Parameter, ...]
    totals: Stats
    phases: Mapping[Phase, Cost]
    """The cost of each phase; more than one only with backward or update."""
    memory: Memory | None
    """Memory over the execution, and the peak; None where a note says why it is unknown."""
    coverage: Coverage
    inputs: tuple[tuple[str, TensorSpec], ...] = ()
    outputs: tuple[TensorSpec, ...] = ()
    input_values: tuple[int, ...] = ()
    """The identities of the inputs, as in `Op.inputs`."""
    output_values: tuple[int, ...] = ()
    calls: tuple[ModuleCall, ...] = ()
    """Every call of every module in the order of entry."""
    stages: tuple[StageCost, ...] = ()
    """Of a pipeline what each of its ranks has and does, this one among them."""
    parts: tuple[tuple[int, int], ...] = ()
    """Of a pipeline the rows of each part of its step, as the first one and the one after the last one."""
    order: PieceOrder | None = field(default=None, repr=False, compare=False)
    """Of a pipeline, and not saved: in which order this rank runs its pieces, which are listed once among the rows."""
    pipeline: tuple[Report, ...] = field(default=(), repr=False, compare=False)
    """Of a pipeline, and not saved: the reports of all its ranks, some with the names of modules that another one has."""
    notes: tuple[Note, ...] = ()
    _index: dict[str, ModuleCost] = field(default_factory=dict, init=False, repr=False, compare=False)
    _collectives: list[tuple[CollectiveCost, ...]] = field(default_factory=list, init=False, repr=False, compare=False)

    def __repr__(self) -> str:
        missed = self.totals.uncounted
        uncounted = f"{missed:,} operators not counted" if missed else ""
        return brief(self, [*stats_texts(self.totals), uncounted], self.meta.get("source", "") or self.modules[0].type)

    # -- queries -----------------------------------------------------------------------------------------------

    def module(self, path: str) -> ModuleCost:
        """The module with this path."""
        if not self._index:
            self._index.update((module.path, module) for module in self.modules)
        try:
            return self._index[path]
        except KeyError:
            raise UnknownName("module", path, self._index) from None

    def children(self, path: str = "") -> tuple[ModuleCost, ...]:
        """The modules directly under this one."""
        return tuple(module for module in self.modules if module.parent == path)

    def by_module(self, depth: int | None = None) -> tuple[ModuleCost, ...]:
        """The tree down to a depth; a cut module has, in `own`, all that is below it."""
        if depth is None:
            return self.modules
        return tuple(
            replace(module, own=module.total) if module.depth == depth else module
            for module in self.modules
            if module.depth <= depth
        )

    def by_kind(self) -> tuple[Group, ...]:
        """Cost per operator kind, the costliest first."""
        return self.group(lambda row: row.op.kind)

    def by_operator(self) -> tuple[Group, ...]:
        """Cost per operator in the framework's own words, the costliest first."""
        return self.group(lambda row: row.op.raw)

    @property
    def collectives(self) -> tuple[CollectiveCost, ...]:
        """What this rank sends to others, by axis of the mesh, type, phase and element type, the most first."""
        if not self._collectives:
            self._collectives.append(collectives_of(self.distinct_rows, self._overlapped))
        return self._collectives[0]

    def _overlapped(self) -> Iterator[tuple[CostedOp, int]]:
        """Every collective with the FLOPs beside it; of a pipeline those in the same pass of a microbatch."""
        for rows, given in passes(self.rows, self.input_values, self.parts or ((0, len(self.rows)),)):
            yield from overlapped(rows, given)

    @property
    def wire_bytes(self) -> int:
        """The bytes that this rank sends to others in the pass or step, by the ring algorithms."""
        return sum(line.wire_bytes for line in self.collectives)

    def by_type(self) -> tuple[Group, ...]:
        """Cost and parameters per module class: what each module's own operators cost, the costliest first."""
        found: dict[str, list[Stats]] = {}
        for module in self.modules:
            if module.own != Stats() or module.same_as is None:
                found.setdefault(module.type, []).append(module.own)
        return _ranked([Group(name, sum(own, Stats()), len(own)) for name, own in found.items()])

    @property
    def distinct_rows(self) -> Iterable[Row]:
        """The rows; of a long run equal ones once, with how often they ran as `repeat`."""
        return self.rows.distinct() if isinstance(self.rows, Expanded) else self.rows

    def group(self, key: Callable[[Row], str]) -> tuple[Group, ...]:
        """Rows added up by any key, the costliest first."""
        found: dict[str, list[Row]] = {}
        for row in self.rows:
            found.setdefault(key(row), []).append(row)
        return _ranked([Group(name, stats_of(rows), len(rows)) for name, rows in found.items()])

    @property
    def run_on(self) -> str:
        """The inputs, their number of tokens, other types of parameters, and of training the loss, in words."""
        shown = []
        for (name, spec), run in groupby(self.inputs, lambda each: (re.sub(r"\.\d+$", "", each[0]), each[1])):
            found = [own for own, _ in run]
            shown.append(
                f"{len(found)} × {name} {spec} {spec.dtype}" if found[1:] else f"{found[0]} {spec} {spec.dtype}"
            )
        words = ", ".join(some(shown, FEW_INPUTS)) or "no inputs"
        item, items = self.processed
        if item == "token" and items is not None:
            words += f" ({counted(items, item)})"
        known = {spec.dtype for _, spec in self.inputs}
        others = dict.fromkeys(parameter.spec.dtype for parameter in self.parameters if not parameter.buffer)
        if dtypes := [dtype for dtype in others if dtype not in known]:
            words += f"; {', '.join(dtypes)} parameters"
        if "backward" in self.phases:
            words += f"; loss: {self.meta.get('loss', 'none, gradients begin at every output')}"
        return words

    @property
    def subject(self) -> str:
        """The model, its inputs and what was counted, in a few words: `resnet50, 1x3x224x224, forward`."""
        source = short_source(self.meta.get("source", ""))
        name = source if source not in ("", CONFIGURATION) else self.modules[0].type or "model"
        item, items = self.processed
        passes = self.meta.get("accumulate")
        if "text" in self.meta:  # one pass of a language model, or several
            given = f"batch {self.meta['batch']}" if "batch" in self.meta else ""
        elif item == "image" and "backward" in self.phases:
            given = f"batch {items}"
        else:
            given = self._shapes + (" tokens" if item == "token" else "")
        if passes is not None and "text" not in self.meta:
            given += f" in {passes} passes"
        phases = "training step" if "update" in self.phases else "forward and backward"
        trains = "backward" in self.phases
        what = (self.meta.get("text") or (phases if trains else "forward")) + self._unusual_mode(trains=trains)
        if trains:
            adapters = f"LoRA {self.meta['lora'].partition(',')[0]}" if "lora" in self.meta else ""
            words = [name, what, given, adapters, self.meta.get("optimizer", ""), self._precision]
        else:
            words = [name, given, self._precision, what]
        return ", ".join(filter(None, words))

    def _unusual_mode(self, *, trains: bool) -> str:
        """That a forward pass is that of training, as of a model that was just made, or a training step that of inference."""
        mode = self.meta.get("mode")
        return f" in {mode} mode" if mode is not None and (mode == "train") != trains else ""

    @property
    def _shapes(self) -> str:
        """The shape of the tokens or of the first inputs."""
        texts = [str(spec) for name, spec in self.inputs if name in TOKENS and spec.known]
        shapes = texts[:1] or [str(spec) for _, spec in self.inputs]
        more = len(shapes) - FEW_SHAPES
        return " and ".join(shapes) if more <= 0 else f"{shapes[0]} and {more + 1} more inputs"

    @property
    def _precision(self) -> str:
        """The type of most parameters, or that to which products are cast; empty is float32."""
        if cast := self.meta.get("autocast"):
            return f"{SHORT_DTYPES.get(cast, cast)} autocast"
        sizes: dict[str, int] = {}
        for parameter in self.parameters:
            if not parameter.buffer and parameter.spec.known:
                sizes[parameter.spec.dtype] = sizes.get(parameter.spec.dtype, 0) + parameter.spec.numel
        most = max(sizes, key=sizes.__getitem__, default="")
        return SHORT_DTYPES.get(most, most)

    @property
    def active_params(self) -> int | None:
        """Of a mixture of experts the parameters that a token uses: all but those of other experts; None of other models."""
        numbers = [self.meta.get(name, "") for name in ("experts", "experts_per_token")]
        if not all(text.isdecimal() and len(text) < LONGEST_COUNT for text in numbers):
            return None
        count, used = map(int, numbers)
        weights = [p for p in self.parameters if not p.buffer and p.spec.known]
        experts = sum(p.spec.numel for p in weights if is_expert(p.name, p.spec.dims, count))
        return self.totals.params - experts + experts * used // count if experts and count else None

    @property
    def processed(self) -> tuple[str, int | None]:
        """What is processed, and how many: tokens of a text, else images; an empty word and None where inputs do not say."""
        passes = int(self.meta.get("accumulate", 1))
        text = next((spec for name, spec in self.inputs if name in TOKENS and spec.known), None)
        if text is not None:
            return "token", passes * text.numel
        first = self.inputs[0][1].shape if self.inputs and self.inputs[0][1].known else None
        if first is not None and len(first) == len("NCHW") and CHANNELS.intersection((first[1], first[3])):
            return "image", passes * self.inputs[0][1].dims[0]
        return "", None

    @property
    def device(self) -> str:
        """The device whose memory is simulated, else that on which it was counted."""
        chosen = "" if self.memory is None else self.memory.device
        return chosen or self.meta.get("device", "")

    @property
    def peak_bytes(self) -> int | None:
        """The highest sum of memory in use at once; None where memory is unknown."""
        return None if self.memory is None else self.memory.peak_bytes

    def known_memory(self) -> Memory:
        """The memory; where it is unknown, an error that says why."""
        if self.memory is None:
            raise OpcostError(next((note.text for note in self.notes if note.code == NO_MEMORY), "memory is unknown"))
        return self.memory

    @property
    def unused(self) -> tuple[Parameter, ...]:
        """Parameters that no executed operator read."""
        return tuple(p for p in self.parameters if not p.used and not p.buffer)

    @property
    def shared(self) -> tuple[Parameter, ...]:
        """Parameters that go by more than one name."""
        return tuple(p for p in self.parameters if len(p.names) > 1 and not p.buffer)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    # -- views: each is a plug-in, found by name or suffix ------------------------------------------------------

    def arch(self, **options: Any) -> str:
        """The module tree as its author wrote it, with params, FLOPs and activations beside each module."""
        return self.render("arch", **options)

    def write(self, out: IO[str], view: str = "table", **options: Any) -> None:
        """Write a named view to an open text file."""
        out.write(self.render(view, **options))

    def to_tensorboard(self, log_dir: str | PathLike[str], **options: Any) -> str:
        """Write the graph and the report for TensorBoard into a folder; returns the path of the new file."""
        return str(load_view("tensorboard", self.kind).save(self, log_dir, **options))


def stats_of(rows: Iterable[Row]) -> Stats:
    """The sum of some rows, repetitions included."""
    macs = flops = read = written = activations = activation_bytes = ops = uncounted = 0
    for row in rows:
        ops += 1
        times = row.op.repeat
        activations += row.activations * times
        activation_bytes += row.activation_bytes * times
        if row.cost is None:
            uncounted += 1
            continue
        cost = row.cost if times == 1 else row.cost * times
        macs += cost.macs
        flops += cost.flops
        read += cost.bytes_read
        written += cost.bytes_written
    return Stats(0, 0, 0, 0, 0, 0, macs, flops, read, written, activations, activation_bytes, ops, uncounted)


def stats_texts(stats: Stats) -> list[str]:
    """The sums that a reader looks for first."""
    params = f"{format_count(stats.params)} params" if stats.params else ""
    return [params, *cost_texts(stats.macs, stats.flops, bound=">=" if stats.uncounted else "")]


def cost_texts(macs: int, flops: int, bound: str = "") -> list[str]:
    """Multiply-accumulates and operations with their units."""
    number = format_count(flops)
    space = "" if number[-1].isalpha() else " "  # `8.21 GFLOPs`, but `12 FLOPs`
    return [f"{bound}{format_count(macs)} MACs", f"{bound}{number}{space}FLOPs"]


def _ranked(groups: Iterable[Group]) -> tuple[Group, ...]:
    return Listed(sorted(groups, key=lambda g: (-g.stats.macs, -g.stats.flops, -g.stats.bytes_read, g.key)))
