"""The public functions that count a model, run and measure one, scan a checkpoint, or read a saved report or a trace."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from opcost.core import schema
from opcost.core.devices import autocasts_like
from opcost.core.devices import device as find_device
from opcost.core.files import keep_pipes
from opcost.core.graph import Graph, Note
from opcost.core.interrupts import garbage_collector_paused
from opcost.core.option import Lora, Mode, Sizes, Step, Text, Tuning, changed, declared, filled, takes, usual_mode
from opcost.core.plugin import faults_attributed
from opcost.core.profile import Answer
from opcost.core.progress import sharing
from opcost.core.rendering import brief
from opcost.core.report import Report
from opcost.core.scan import Scan
from opcost.core.several import several_counts
from opcost.distributed.mesh import Mesh
from opcost.distributed.pipelining import Pipelining
from opcost.distributed.sharding import Sharding, plan_of
from opcost.errors import InputError, MissingFramework, OpcostError, UnknownName, UnknownSource
from opcost.frontends.inputs import check_not_a_shape, parse_dtype, parse_precision, spelled_out
from opcost.frontends.options import CountOptions, check_understood
from opcost.frontends.registry import load, owner
from opcost.frontends.source import ModelFile, PythonModel, SavedReport, Source, resolve
from opcost.options import Causal, Counting, OfRanks, Profiling, Reading, TraceQuerying
from opcost.profiles import Profile, askable
from opcost.recorders.registry import ProfileOptions, Recorder, recorder_of, recorder_of_file
from opcost.rules import default_rules
from opcost.rules.registry import Convention, Rule, Rules

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from opcost.analysis.memory import DeviceMemory
    from opcost.traces.ranks import Ranks


@takes(Counting)
def count(source: Any, inputs: Any = None, **options: Unpack[Counting]) -> Report:
    """What a model costs.

    `source` is a model or a function of tensors, or a string that names one: a file, `package.module:factory`, `timm:NAME`.
    `inputs`: a tuple holds the positional arguments, a mapping whose keys are the names of arguments the keyword arguments,
    anything else is the one argument; `kwargs` adds keyword arguments. `shapes` makes inputs instead: one shape, a list, or
    {name: shape}, with `dtypes` in the same form; a shape is (1, 3, 224, 224), "1x3x224x224" or "input_ids:1x128:int64". With
    neither, the model gets default inputs, which a note of the report describes; `batch`, `tokens` and `image` set their sizes.

    A language model of transformers is counted with `prefill=1024` on a prompt, with `decode=1, cache=4096` on the next token
    against a cache, which is an input and no work. `precision` casts the model and all inputs ("bfloat16"), or runs forward under
    autocast ("bf16-mixed"). `backward=True` adds the backward pass, `optimizer="adamw"` also the update; `checkpoint="blocks.*"`
    recomputes activations, `accumulate=4` counts four passes and one update; `freeze="model.*"` trains only the rest, and
    `lora="r=16,targets=q_proj,v_proj"` only adapters. No data is needed; a model whose control flow
    depends on float values is run on its own weights, and a note says why. `device="h200"` gives memory as the allocator and the
    kernels of that GPU need it. `mesh=opcost.Mesh(fsdp=128, tp=8)` counts one `rank` of many, none of which has to exist.
    `rules={"library::operator": rule}` adds cost rules. docs/options.md lists every option.
    """
    return count_graph(source, inputs, **options)[0]


def count_graph(source: Any, inputs: Any = None, **options: Any) -> tuple[Report, Graph | None]:
    """The same with the graph that was counted; a saved report has none."""
    from opcost.analysis.costing import cost_graph

    given = filled(Counting, options)
    if given.causal not in get_args(Causal):
        raise UnknownName("value of causal", given.causal, get_args(Causal))
    counted = _count_options(given, inputs)
    rules, convention = default_rules().with_rules(given.rules), Convention(causal=given.causal)
    if given.expandable_segments and given.device is None:
        raise InputError("expandable segments are those of a device's allocator", hint="device='h100'")
    on = None
    if given.device is not None:
        on = on_device(find_device(given.device).name, expandable=given.expandable_segments)
    graphs: list[Graph | None] = [None]

    def costed(graph: Graph) -> Report:
        graphs[0] = graph
        return cost_graph(graph, rules, convention, on)

    with keep_pipes(), garbage_collector_paused():
        found = resolve_source(source, given.set)
        check_saved(found, {**options, "inputs": inputs})
        report = _count(source if found is None else found, counted, costed)
        return report, graphs[0]


def graph_of(model: Any, inputs: Any = None, **options: Any) -> Graph:
    """What a live model does, without its cost."""
    with keep_pipes(), garbage_collector_paused():
        return load(owner(model), model, _count_options(filled(Counting, options), inputs))


def _count_options(given: Any, inputs: Any) -> CountOptions:
    precision = parse_precision(given.precision, autocasts_like(given.device))
    if precision.dtype is not None and given.dtype is not None:
        raise InputError("dtype and precision both name an element type", hint="give one of them")
    cache_dtype = None if given.cache_dtype is None else parse_dtype(given.cache_dtype)
    patterns, frozen = ((each,) if isinstance(each, str) else tuple(each) for each in (given.checkpoint, given.freeze))
    counted = CountOptions(
        **_of_model(given, inputs), precision=precision, optimizer=given.optimizer, real=given.real,
        text=Text(given.prefill, given.decode, given.cache, given.static, cache_dtype),
        step=Step(patterns, given.accumulate, given.zero_grad, checkpoint_keep=given.checkpoint_keep),
        tuning=Tuning(frozen, Lora.of(given.lora)),
        as_on_gpu=given.device is not None, channels_last=given.channels_last,
        quantize=given.quantize, sharding=_sharding(given),
    )  # fmt: skip
    return counted if precision.dtype is None else replace(counted, dtype=precision.dtype)


def _sharding(given: Any) -> Sharding | None:
    """The rank that is counted, where that is one of many."""
    if given.mesh is None:
        usual = {name: option.default for name, (_, option) in declared(OfRanks).items()}
        if given_alone := [name for name, default in usual.items() if getattr(given, name) != default]:
            raise InputError(
                f"{given_alone[0]} is about one rank of a mesh, and no mesh is given", hint='mesh="fsdp=128,tp=8"'
            )
        return None
    reduce_dtype = None if given.reduce_dtype is None else parse_dtype(given.reduce_dtype)
    mesh = Mesh.of(given.mesh)
    turns = Pipelining(schedule=given.schedule, microbatches=given.microbatches, stages_per_rank=given.stages_per_rank)
    return Sharding(
        mesh=mesh, rank=given.rank, reshard=mesh.pp == 1 if given.reshard is None else given.reshard,
        reduce_dtype=reduce_dtype, plan=plan_of(given.tp_plan), sequence=given.sequence_parallel, loss=given.loss_parallel,
        ring=given.ring, experts=(given.experts,) if isinstance(given.experts, str) else tuple(given.experts), pipelining=turns,
    )  # fmt: skip


def _of_model(given: Any, inputs: Any) -> dict[str, Any]:
    """What counting and profiling take in common: the inputs, their sizes and types, and the mode."""
    check_not_a_shape(inputs)
    shapes, dtypes = spelled_out(given.shapes, given.dtypes)
    return {
        "inputs": inputs, "kwargs": dict(given.kwargs or {}), "shapes": shapes, "dtypes": dtypes,
        "sizes": Sizes(given.batch, given.tokens, given.image), "backward": given.backward, "mode": given.mode,
        "dtype": None if given.dtype is None else parse_dtype(given.dtype), "own": dict(given.options or {}),
    }  # fmt: skip


def check_saved(source: Source | None, options: Mapping[str, Any]) -> None:
    """Raise for options about counting where the source is a report that was counted before."""
    if isinstance(source, SavedReport) and changed(Counting, options):
        hint = "count the model again with these options"
        raise InputError(f"{source.label} is a saved report; options about counting do not apply to it", hint=hint)


@cache
def on_device(name: str, *, expandable: bool = False) -> DeviceMemory:
    """The allocator and workspaces of a device; the latter are those of an H200."""
    from opcost.analysis.memory import DeviceMemory
    from opcost.analysis.prediction.workspaces import Workspaces
    from opcost.devices.calibration import shipped_workspaces

    return DeviceMemory(name, Workspaces(shipped_workspaces()).of, expandable)


def _count(source: Any, options: CountOptions, costed: Callable[[Graph], Report]) -> Report:
    named = resolve_source(source)
    if named is None:
        return costed(load(owner(source), source, options))
    if isinstance(named, SavedReport):
        return load_report(named.path)
    if options.mode is None:
        training = options.backward or options.optimizer is not None
        options = replace(options, mode=usual_mode(training=training))
    if isinstance(named, ModelFile):
        return costed(load(named.frontend, named.path, options))
    with named.guard():
        model = named.build(real=bool(options.real))
        if model is not named.target:
            options = replace(options, remake=lambda: named.build(real=True))
        report = costed(load(owner(model), model, options))
        report = replace(report, notes=(*report.notes, *named.notes)) if named.notes else report
        if named.from_collection:  # a class of a collection makes many models, and the name says which
            report = replace(report, meta={**report.meta, "source": named.label})
        if named.checkpoint is not None:
            from opcost.frontends.torch.models.weights import compare_with_checkpoint

            found = compare_with_checkpoint(model, named.checkpoint)
            report = replace(report, notes=(*report.notes, *found))
        return report


@contextmanager
def made_once(
    source: Any, settings: Mapping[str, object] | None = None, *, training: bool = False
) -> Iterator[tuple[Any, Mode | None]]:
    """A model for several counts, and the mode that it is then counted in, if it has none of its own.

    One that code makes is made without weights; a file is read anew by every count. Operators that several counts have in common
    are worked out once.
    """
    named = resolve_source(source, settings)
    if isinstance(named, SavedReport):
        hint = "name the model"
        raise InputError(f"{named.label} is a saved report, and only a model can be counted at other sizes", hint=hint)
    with several_counts():
        if not isinstance(named, PythonModel):
            yield source if named is None else named, None
            return
        with named.guard():
            yield named.build(), usual_mode(training=training)


def resolve_source(source: Any, settings: Mapping[str, object] | None = None) -> Source | None:
    """What a string means, if it is one; who has looked already passes what was found."""
    if isinstance(source, (str, Path)):
        return resolve(str(source), settings)
    if settings:
        raise InputError("only a model that a string names can be set", hint="make the model with these arguments")
    return source if isinstance(source, (SavedReport, ModelFile, PythonModel)) else None


class Recording:
    """What ran inside `with opcost.recording() as r:`; `r.report` is what it cost, inside the block what it cost so far."""

    def __init__(self, rules: Rules, convention: Convention) -> None:
        try:
            from opcost.frontends.torch.recording.run import RecordedBlock
        except ModuleNotFoundError as exc:
            raise MissingFramework("a recording needs PyTorch", hint="install torch") from exc
        self._rules = rules
        self._convention = convention
        self._block = RecordedBlock()

    def __repr__(self) -> str:
        return brief(self, [f"{len(self.report.rows):,} operators"])

    def __enter__(self) -> Recording:  # noqa: PYI034 - it is made by `recording` alone
        self._block.enter()
        return self

    def __exit__(self, *exception: object) -> None:
        self._block.leave()

    @property
    def report(self) -> Report:
        """The operators that ran, with their costs; modules that the block called are below it as `<Class>`."""
        from opcost.analysis.costing import cost_graph

        return cost_graph(self._block.graph(), self._rules, self._convention)


def recording(*, causal: Causal = "full", rules: Mapping[str, Rule] | None = None) -> Recording:
    """Count whatever PyTorch runs inside a block: `with opcost.recording() as r: loss(model(x)).backward()`, then `r.report`.

    The block runs for real and as it is written (nothing is compiled); its results, gradients and updates are the user's.
    `causal` and `rules` as for `count`.
    """
    if causal not in get_args(Causal):
        raise UnknownName("value of causal", causal, get_args(Causal))
    return Recording(default_rules().with_rules(rules), Convention(causal=causal))


def scan(*paths: str | PathLike[str]) -> Scan:
    """What a checkpoint holds, from its headers alone: `.totals.params` (logical), `.totals.bytes` (stored), `.tensors`.

    A path is a file (safetensors, GGUF, PyTorch, MXNet, numpy, Keras, ONNX, MegEngine), the index of a sharded checkpoint or a
    folder; several paths are files of one checkpoint. Quantized weights are counted as the model has them.
    """
    from opcost.frontends.checkpoint.scan import scan_files

    if not paths:
        raise InputError("no checkpoint is named", hint="opcost.scan(path)")
    with keep_pipes(), garbage_collector_paused():
        return scan_files([Path(path) for path in paths])


def load_report(path: str | PathLike[str]) -> Report:
    """Read a report that was saved as `.json`."""
    return schema.load(path)


@takes(Profiling)
def profile(source: Any, inputs: Any = None, **options: Unpack[Profiling]) -> Profile:
    """Where a model's time goes, operator by operator, on the host and on the device.

    `source` is a PyTorch model on the CPU or on CUDA, or an ONNX file or `onnxruntime.InferenceSession`; the inputs, their
    sizes and types, `set` and the mode are given as for `opcost.count`. A model that a string names is made on the CPU and
    moved to `device`. After `warmup` runs come `repeat` runs (or as many as fit into `seconds`) timed without a profiler, then
    as many with one. `host_only` leaves the device's records out; `cold_l2` flushes the device's L2 cache before every run.
    """
    given = filled(Profiling, options)
    runs = {name: getattr(given, name) for name in ("host_only", "warmup", "repeat", "seconds", "cold_l2")}
    chosen = ProfileOptions(**_of_model(given, inputs), **runs)
    settings, device = given.set, given.device
    recorder = recorder_of_file(source) if isinstance(source, (str, Path)) else None
    if recorder is not None and (settings or device is not None):
        hint = "leave that out"
        raise InputError(f"{source} is a file: it is neither made with settings nor moved to a device", hint=hint)
    named = None if recorder is not None else resolve_source(source, settings)
    if device is not None and named is None:
        hint = "move the model there yourself"
        raise InputError(f"device={device!r} is for models that Python code makes from a string", hint=hint)
    if recorder is not None or named is None:
        return _record(recorder or recorder_of(source), source, chosen)
    if not isinstance(named, PythonModel):
        hint = "profile an .onnx file, or code that makes a model: path/to/file.py:Net"
        raise UnknownSource(f"{named.path} cannot be run", hint=hint)
    if chosen.mode is None:
        chosen = replace(chosen, mode=usual_mode(training=chosen.backward))
    with named.guard():
        model: Any = named.build(real=True)
        try:
            model = model if device is None else model.to(device)
        except (RuntimeError, AssertionError) as exc:  # no such device, none at all, or too little memory on it
            raise InputError(f"the model cannot be moved to {device}: {exc}".rstrip(".")) from exc
        return _record(recorder_of(model), model, chosen)


def _record(recorder: Recorder, source: Any, options: ProfileOptions) -> Profile:
    from opcost.analysis.join import with_costs

    check_understood(recorder, "recorder", options)
    report: Report | None = None
    notes: tuple[Note, ...] = ()
    names = ("kwargs", "shapes", "dtypes", "dtype", "backward", "mode")
    counting = {name: getattr(options, name) for name in names} | options.sizes._asdict()
    if recorder.wants_report:
        try:
            report = count(source, options.inputs, **counting)
            notes = tuple(note for note in report.notes if note.code == "guessed-inputs")
        except OpcostError as exc:
            text = f"the rows have no cost, because the model could not be counted: {exc.message}"
            notes = (Note("not-counted", text),)
    with faults_attributed(recorder, "running the model"):
        found = recorder.record(source, options, report)
    if not recorder.wants_report:
        found = with_costs(found, default_rules())
    return askable(replace(found, notes=(*found.notes, *notes)) if notes else found)


@takes(Reading)
def read_profile(path: str | PathLike[str], **options: Unpack[Reading]) -> Profile:
    """Read where the time went from a trace or profile of any known tool, plain or gzipped, recognised by its content.

    `partial=True` reads a damaged file up to the damage; `reader` names the format where it is ambiguous, `capture` a trace of
    the capture of its CUDA graphs. Of large files, `memory=True` reads memory and `timeline=True` when things ran; of others,
    `executions=True` gives a row for each execution.
    """
    from opcost.traces.registry import read

    return askable(read(path, **vars(filled(Reading, options))))


@takes(TraceQuerying)
def analyze(*profiles: str | PathLike[str], **options: Unpack[TraceQuerying]) -> Answer:
    """Where the time of a profile or trace goes: `print(opcost.analyze("trace.json", aggregate_by="module", top=10))`.

    Several files, or a folder, are ranks of one run. Options are those of `opcost.query` and `opcost.read_profile`.
    """
    reading: Any = {name: value for name, value in options.items() if name in declared(Reading)}
    query: Any = {name: value for name, value in options.items() if name not in reading}
    if not profiles:
        raise InputError("no profile is named", hint="opcost.analyze(path), or opcost analyze PROFILE")
    if len(profiles) == 1 and not Path(profiles[0]).is_dir():
        return read_profile(profiles[0], **reading).analyze(**query)
    if beyond := reading.keys() - {"partial", "reader"}:
        raise InputError(f"{min(beyond)} is for one trace, and several are named", hint="analyze them one by one")
    return askable(read_ranks(profiles, **reading).profile()).analyze(**query)


def read_ranks(paths: Sequence[str | PathLike[str]], **options: Any) -> Ranks:
    """Many files as ranks of one run, each reduced on its own; also a single one."""
    from opcost.traces.ranks import reduce_ranks

    read = [(0, 0)]  # ranks, and of how many, at each step
    with sharing(lambda: read[-1]):
        return reduce_ranks([str(path) for path in paths], progress=lambda *done: read.append(done), **options)
