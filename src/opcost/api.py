"""The doors: count a model, run and measure one, scan a checkpoint, read a saved report or a trace."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, get_args

from opcost.core.wishes import Causal

if TYPE_CHECKING:
    from opcost.analysis.memory import OnDevice
    from opcost.core.graph import Graph
    from opcost.core.report import Report
    from opcost.core.scan import Scan
    from opcost.frontends.options import CountOptions, Mode, Precision, ZeroGrad
    from opcost.frontends.source import Source
    from opcost.profiles import Profile
    from opcost.recorders.options import ProfileOptions
    from opcost.recorders.registry import Recorder
    from opcost.rules.registry import Convention, Rule, Rules

Shape: TypeAlias = "str | Sequence[int]"
Shapes: TypeAlias = "Shape | Sequence[Shape | Shapes] | Mapping[str, Shape | Shapes]"
"""One shape, a list of them, or shapes by the names of arguments; an argument may itself be a list or a mapping."""
Dtype: TypeAlias = "str | object"
"""The name of an element type, or a framework's own object for one."""
Dtypes: TypeAlias = "Dtype | Sequence[Dtype | None] | Mapping[str, Dtype]"


def count(
    source: Any,
    inputs: Any = None,
    *,
    kwargs: Mapping[str, Any] | None = None,
    shapes: Shapes | None = None,
    dtypes: Dtypes | None = None,
    batch: int | None = None,
    tokens: int | None = None,
    image: int | None = None,
    prefill: int | None = None,
    decode: int | None = None,
    cache: int | None = None,
    static: int | None = None,
    cache_dtype: Dtype | None = None,
    dtype: Dtype | None = None,
    precision: str | Precision | None = None,
    set: Mapping[str, object] | None = None,  # noqa: A002 - as the flag is called
    backward: bool = False,
    optimizer: bool | str | Callable[[Any], Any] | None = None,
    checkpoint: str | Sequence[str] = (),
    accumulate: int = 1,
    zero_grad: ZeroGrad = "none",
    real: bool | None = None,
    mode: Mode | None = None,
    causal: Causal = "full",
    device: str | None = None,
    rules: Mapping[str, Rule] | None = None,
    options: Mapping[str, Any] | None = None,
) -> Report:
    """What a model costs.

    `source` is a model or a function of tensors, or a string that names one: a file, `package.module:factory`, `timm:NAME`.
    `inputs`: a tuple holds the positional arguments, a mapping whose keys are the names of arguments the keyword
    arguments, anything else is the one argument; `kwargs` further keyword arguments.
    `shapes` makes inputs instead: one shape, a list, or {name: shape}, with `dtypes` in the same form; a shape is
    (1, 3, 224, 224) or what the command line takes, "1x3x224x224" or "input_ids:1x128:int64". With neither, the model is
    asked what it takes, and a note of the report says what that is; `batch`, `tokens` and `image` change its sizes.
    A language model of transformers is counted with `prefill=1024` on the first tokens of a text, with `decode=1, cache=4096` on
    the next one against a cache, which is an input and no work; `static` is the length of a static cache, `cache_dtype` the
    type that it is kept in, where that is not the model's: the report's `meta` tells what it takes. `dtype`
    counts the model, and inputs made for it, in another floating type. `precision` does the same and casts inputs that were given
    too ("float32", "bfloat16", "float16"), or runs forward under autocast: "bf16-mixed", "fp16-mixed". `set` holds arguments of
    what makes the model that a string names.

    `backward=True` adds the backward pass, `optimizer=True` (or a name of `torch.optim`, or "adamw8bit") also the update.
    `checkpoint="blocks.*"` keeps no activations of the modules whose path ends so, and computes them again. `accumulate=4`
    counts a step of four passes forward and backward and one update, and tells memory of its later passes, which find
    gradients there; `zero_grad="zero"` keeps gradients as zeros from step to step. A count needs no data; a model whose
    control flow depends on float values is run on its own weights, and a note says why. `real=True` does that in any case,
    `real=False` never. `mode` counts the model as in "train" or "eval"; without it a model is counted as it is, and one
    that a string names as in inference, or as in training where the backward pass is counted. `causal="half"` counts only
    the unmasked half of causal attention. `device` tells memory as a GPU of the table of devices would hold it: in blocks
    of its allocator, with what kernels take for themselves, its attention and updates of parameters. `rules` prices
    operators that opcost does not know: {"library::operator": rule}. `options` are those that only the front end of this
    source has, by name; `opcost count --help` lists them.
    """
    from opcost.analysis.price import price
    from opcost.core.collector import without_collector
    from opcost.core.devices import autocasts_like
    from opcost.core.reading import pipes_kept
    from opcost.errors import InputError, UnknownName
    from opcost.frontends.inputs import check_not_a_shape, parse_dtype, parse_precision, spelled_out
    from opcost.frontends.options import CountOptions, Sizes, Step, Text
    from opcost.rules import default_rules
    from opcost.rules.registry import Convention

    if causal not in get_args(Causal):
        raise UnknownName("value of causal", causal, get_args(Causal))
    check_not_a_shape(inputs)
    numbers = parse_precision(precision, autocasts_like(device))
    if numbers.dtype is not None and dtype is not None:
        raise InputError("dtype and precision both name an element type", hint="give one of them")
    shapes, dtypes = spelled_out(shapes, dtypes)
    told = CountOptions(
        inputs=inputs,
        kwargs=dict(kwargs or {}),
        shapes=shapes,
        dtypes=dtypes,
        sizes=Sizes(batch, tokens, image),
        text=Text(prefill, decode, cache, static, None if cache_dtype is None else parse_dtype(cache_dtype)),
        dtype=numbers.dtype if dtype is None else parse_dtype(dtype),
        precision=numbers,
        backward=backward,
        optimizer=optimizer,
        step=Step((checkpoint,) if isinstance(checkpoint, str) else tuple(checkpoint), accumulate, zero_grad),
        real=real,
        mode=mode,
        as_on_gpu=device is not None,
        own=dict(options or {}),
    )
    priced = partial(
        price,
        rules=default_rules().with_rules(rules),
        convention=Convention(causal=causal),
        on=None if device is None else _on_device(device),
    )
    with pipes_kept(), without_collector():
        found = _named(source, set)
        return _count(source if found is None else found, told, priced)


_on: dict[str, OnDevice] = {}


def _on_device(name: str) -> OnDevice:
    """How a device holds memory; what kernels of one that nobody calibrated take is as on one that somebody did."""
    from opcost.analysis.memory import OnDevice
    from opcost.analysis.prediction.workspaces import Workspaces
    from opcost.core.devices import device as find_device
    from opcost.devices.calibration import SHIPPED, shipped
    from opcost.rules import default_rules

    known = find_device(name).name
    if known not in _on:
        calibration = shipped(known if known in SHIPPED else SHIPPED[0])
        _on[known] = OnDevice(known, Workspaces(calibration, default_rules()).of)
    return _on[known]


def _count(source: Any, options: CountOptions, priced: Callable[[Graph], Report]) -> Report:
    from opcost.frontends.loading import load
    from opcost.frontends.options import usual_mode
    from opcost.frontends.registry import owner
    from opcost.frontends.source import ModelFile, SavedReport

    named = _named(source)
    if named is None:
        return priced(load(owner(source), source, options))
    if isinstance(named, SavedReport):
        return load_report(named.path)
    if options.mode is None:
        training = options.backward or options.optimizer is not None
        options = replace(options, mode=usual_mode(training=training))
    if isinstance(named, ModelFile):
        return priced(load(named.frontend, named.path, options))
    with named.guard():
        model = named.build(real=bool(options.real))
        if model is not named.target:
            options = replace(options, remake=lambda: named.build(real=True))
        report = priced(load(owner(model), model, options))
        report = replace(report, notes=(*report.notes, *named.notes)) if named.notes else report
        if named.from_collection:  # a class of a collection makes many models, and the name tells which
            report = replace(report, meta={**report.meta, "source": named.label})
        return report if named.checkpoint is None else _held_against(report, model, named.checkpoint)


@contextmanager
def made_once(
    source: Any, settings: Mapping[str, object] | None = None, *, training: bool = False
) -> Iterator[tuple[Any, Mode | None]]:
    """A model for several counts, and the mode that it is then counted in, if it has none of its own.

    One that code makes is made without weights; a file is read anew by every count.
    """
    from opcost.errors import InputError
    from opcost.frontends.options import usual_mode
    from opcost.frontends.source import PythonModel, SavedReport

    named = _named(source, settings)
    if isinstance(named, SavedReport):
        raise InputError(
            f"{named.label} is a saved report, and only a model can be counted at other sizes", hint="name the model"
        )
    if not isinstance(named, PythonModel):
        yield source if named is None else named, None
        return
    with named.guard():
        yield named.build(), usual_mode(training=training)


def _held_against(report: Report, model: Any, checkpoint: Path) -> Report:
    from opcost.frontends.torch.models.expected import held_against

    return replace(report, notes=(*report.notes, *held_against(model, checkpoint)))


def _named(source: Any, settings: Mapping[str, object] | None = None) -> Source | None:
    """What a string means, if it is one; who has looked already passes what was found."""
    from opcost.errors import InputError
    from opcost.frontends.source import ModelFile, PythonModel, SavedReport, resolve

    if isinstance(source, (str, Path)):
        return resolve(str(source), settings)
    if settings:
        raise InputError("only a model that a string names can be set", hint="make the model with these arguments")
    return source if isinstance(source, (SavedReport, ModelFile, PythonModel)) else None


class Recording:
    """What ran inside `with opcost.recording() as r:`; `r.report` is what it cost, inside the block what it cost so far."""

    def __init__(self, rules: Rules, convention: Convention) -> None:
        from opcost.errors import MissingFramework

        try:
            from opcost.frontends.torch.recording.block import Block
        except ModuleNotFoundError as exc:
            raise MissingFramework("a recording needs PyTorch", hint="install torch") from exc
        self._rules = rules
        self._convention = convention
        self._block = Block()

    def __repr__(self) -> str:
        from opcost.core.brief import brief

        return brief(self, [f"{len(self.report.rows):,} operators"])

    def __enter__(self) -> Recording:  # noqa: PYI034 - it is made by `recording` alone
        self._block.enter()
        return self

    def __exit__(self, *exception: object) -> None:
        self._block.leave()

    @property
    def report(self) -> Report:
        """The operators that ran, priced; modules that the block called stand below it as `<Class>`."""
        from opcost.analysis.price import price

        return price(self._block.graph(), self._rules, self._convention)


def recording(*, causal: Causal = "full", rules: Mapping[str, Rule] | None = None) -> Recording:
    """Count whatever PyTorch runs inside a block: `with opcost.recording() as r: loss(model(x)).backward()`, then `r.report`.

    The block runs for real and as it is written (nothing is compiled); its results, gradients and updates are the user's.
    `causal` and `rules` as for `count`.
    """
    from opcost.errors import UnknownName
    from opcost.rules import default_rules
    from opcost.rules.registry import Convention

    if causal not in get_args(Causal):
        raise UnknownName("value of causal", causal, get_args(Causal))
    return Recording(default_rules().with_rules(rules), Convention(causal=causal))


def scan(*paths: str | PathLike[str]) -> Scan:
    """What a checkpoint holds, from its headers alone: `.totals.params` (logical), `.totals.bytes` (stored), `.tensors`.

    A path is a file (safetensors, GGUF, PyTorch, MXNet, numpy, Keras, ONNX, MegEngine), the index of a sharded checkpoint or a
    folder; several paths are files of one checkpoint. Quantized weights are counted as the model has them.
    """
    from opcost.core.collector import without_collector
    from opcost.core.reading import pipes_kept
    from opcost.errors import InputError
    from opcost.frontends.checkpoint.scan import scan_files

    if not paths:
        raise InputError("no checkpoint is named", hint="opcost.scan(path)")
    with pipes_kept(), without_collector():
        return scan_files([Path(path) for path in paths])


def load_report(path: str | PathLike[str]) -> Report:
    """Read a report that was saved as `.json`."""
    from opcost.core.schema import load

    return load(path)


def profile(
    source: Any,
    inputs: Any = None,
    *,
    kwargs: Mapping[str, Any] | None = None,
    shapes: Shapes | None = None,
    dtypes: Dtypes | None = None,
    batch: int | None = None,
    tokens: int | None = None,
    image: int | None = None,
    dtype: Dtype | None = None,
    set: Mapping[str, object] | None = None,  # noqa: A002 - as the flag is called
    backward: bool = False,
    mode: Mode | None = None,
    device: str | None = None,
    host_only: bool = False,
    warmup: int = 3,
    repeat: int = 10,
    seconds: float | None = None,
    cold_l2: bool = False,
    options: Mapping[str, Any] | None = None,
) -> Profile:
    """Where a model's time goes, operator by operator, on the host and on the device.

    `source` is a PyTorch model on the CPU or on CUDA, or an ONNX file or `onnxruntime.InferenceSession`; the inputs, their
    sizes and types, `set` and the mode are given as for `opcost.count`. A model that a string names is made on the CPU and
    moved to `device`. After `warmup` runs come `repeat` runs (or as many as fit into `seconds`) timed without a profiler, then
    as many with one. `host_only` leaves the device's records out; `cold_l2` empties the device's last cache before every run.
    `options` are those that only the recorder of this source has, by name; `opcost profile --help` lists them.
    """
    from opcost.errors import InputError, UnknownSource
    from opcost.frontends.inputs import check_not_a_shape, parse_dtype, spelled_out
    from opcost.frontends.options import Sizes, usual_mode
    from opcost.frontends.source import PythonModel
    from opcost.recorders.options import ProfileOptions
    from opcost.recorders.registry import recorder_of, recorder_of_file

    check_not_a_shape(inputs)
    shapes, dtypes = spelled_out(shapes, dtypes)
    told = ProfileOptions(
        inputs=inputs,
        kwargs=dict(kwargs or {}),
        shapes=shapes,
        dtypes=dtypes,
        sizes=Sizes(batch, tokens, image),
        dtype=None if dtype is None else parse_dtype(dtype),
        backward=backward,
        mode=mode,
        host_only=host_only,
        warmup=warmup,
        repeat=repeat,
        seconds=seconds,
        cold_l2=cold_l2,
        own=dict(options or {}),
    )
    is_text = isinstance(source, (str, Path))
    recorder = recorder_of_file(source) if is_text else None
    if recorder is not None and (set or device is not None):
        raise InputError(
            f"{source} is a file: it is neither made with settings nor moved to a device", hint="leave that out"
        )
    named = None if recorder is not None else _named(source, set)
    if device is not None and named is None:
        raise InputError(
            f"device={device!r} is for models that Python code makes from a string",
            hint="move the model there yourself",
        )
    if recorder is not None or named is None:
        return _record(recorder or recorder_of(source), source, told)
    if not isinstance(named, PythonModel):
        raise UnknownSource(
            f"{named.path} cannot be run", hint="profile an .onnx file, or code that makes a model: path/to/file.py:Net"
        )
    if mode is None:
        told = replace(told, mode=usual_mode(training=backward))
    with named.guard():
        model = named.build(real=True)
        return _record(recorder_of(model), model if device is None else _moved(model, device), told)


def _moved(model: Any, device: str) -> Any:
    """The model on the wanted device."""
    from opcost.errors import InputError

    try:
        return model.to(device)
    except (RuntimeError, AssertionError) as exc:  # no such device, none at all, or too little memory on it
        raise InputError(f"the model cannot be moved to {device}: {exc}".rstrip(".")) from exc


def _record(recorder: Recorder, source: Any, options: ProfileOptions) -> Profile:
    from opcost.analysis.join import with_costs
    from opcost.core.graph import Note
    from opcost.core.plugin import answering_for
    from opcost.errors import OpcostError
    from opcost.frontends.options import check_understood
    from opcost.profiles import askable
    from opcost.rules import default_rules

    check_understood(recorder, "recorder", options)
    report: Report | None = None
    notes: tuple[Note, ...] = ()
    asked: dict[str, Any] = {
        "kwargs": options.kwargs,
        "shapes": options.shapes,
        "dtypes": options.dtypes,
        **options.sizes._asdict(),
        "dtype": options.dtype,
        "backward": options.backward,
        "mode": options.mode,
    }
    if recorder.wants_report:
        try:
            report = count(source, options.inputs, **asked)
            notes = tuple(note for note in report.notes if note.code == "guessed-inputs")
        except OpcostError as exc:
            said = f"the rows have no cost, because the model could not be counted: {exc.message}"
            notes = (Note("not-counted", said),)
    with answering_for(recorder, "running the model"):
        found = recorder.record(source, options, report)
    if not recorder.wants_report:
        found = with_costs(found, default_rules())
    return askable(replace(found, notes=(*found.notes, *notes)) if notes else found)


def read_profile(
    path: str | PathLike[str],
    *,
    partial: bool = False,
    reader: str | None = None,
    memory: bool | None = None,
    timeline: bool = False,
    executions: bool = False,
    capture: str | PathLike[str] | None = None,
) -> Profile:
    """Read where the time went from a trace or profile of any known tool, plain or gzipped, recognised by its content.

    `partial=True` reads a damaged file up to the damage; `reader` names the format in doubt, `capture` a trace of its graphs'
    capture. Large files: `memory=True` reads memory, `timeline=True` when things ran; others: `executions=True` a row for each.
    """
    from opcost.profiles import askable
    from opcost.traces.registry import read

    more = {"memory": memory, "timeline": timeline, "executions": executions, "capture": capture}
    return askable(read(path, partial=partial, reader=reader, **more))  # type: ignore[arg-type]  # each is of its own type
