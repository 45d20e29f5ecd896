"""The doors: count a model, read a saved report."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opcost.core.graph import Graph
    from opcost.core.profile import Profile as Measured
    from opcost.core.report import Report
    from opcost.frontends.options import CountOptions
    from opcost.frontends.registry import FrontEnd
    from opcost.frontends.source import PythonModel
    from opcost.profiles import Profile
    from opcost.recorders.options import ProfileOptions
    from opcost.rules.registry import Convention, Rule, Rules


def count(
    source: Any,
    inputs: Any = None,
    *,
    kwargs: Mapping[str, Any] | None = None,
    shapes: Any = None,
    dtypes: Any = None,
    backward: bool = False,
    optimizer: Any = None,
    real: bool = False,
    mode: str | None = None,
    causal: str = "full",
    rules: Mapping[str, Rule] | None = None,
    params: str | Path | None = None,
    epoch: int | None = None,
) -> Report:
    """What a model costs.

    `source` is a model or a function of tensors, or a string that names one: a file, `package.module:factory`, `timm:NAME`.
    `inputs`: a tuple holds the positional arguments, a mapping whose keys are the names of arguments the keyword
    arguments, anything else is the one argument; `kwargs` further keyword arguments.
    `shapes` makes inputs instead: one shape, a list, or {name: shape}, with `dtypes` in the same form. With neither, the
    model is asked what it takes.

    `backward=True` adds the backward pass, `optimizer=True` (or a name of `torch.optim`) also the update. `real=True` runs
    the model on its own weights, for models whose control flow depends on float values. `mode` counts it as in "train" or
    "eval". `causal="half"` counts only the unmasked half of causal attention. `rules` prices operators that opcost
    does not know: {"library::operator": rule}. `params` or `epoch` names the file of weights of an MXNet symbol; without
    them it is found beside the symbol.
    """
    from opcost.core.collector import without_collector
    from opcost.core.reading import pipes_kept
    from opcost.errors import UnknownName
    from opcost.frontends.options import CountOptions
    from opcost.rules import default_rules
    from opcost.rules.registry import Convention

    if causal not in ("full", "half"):
        raise UnknownName("value of causal", causal, ("full", "half"))
    options = CountOptions(
        inputs=inputs,
        kwargs=dict(kwargs or {}),
        shapes=shapes,
        dtypes=dtypes,
        backward=backward,
        optimizer=optimizer,
        real=real,
        mode=mode,
        params=params,
        epoch=epoch,
    )
    with pipes_kept(), without_collector():
        return _count(source, options, default_rules().with_rules(rules), Convention(causal=causal))


def _count(source: Any, options: CountOptions, rules: Rules, convention: Convention) -> Report:
    from opcost.analysis.price import price
    from opcost.frontends.registry import owner
    from opcost.frontends.source import ModelFile, PythonModel, SavedReport, resolve

    if isinstance(source, (str, Path)):
        source = resolve(str(source))
    if isinstance(source, SavedReport):
        return load_report(source.path)
    if isinstance(source, ModelFile):
        graph = _load(source.frontend, source.path, options)
    elif isinstance(source, PythonModel):
        with source.guard():
            model = source.build(real=options.real)
            graph = _load(owner(model), model, options)
    else:
        graph = _load(owner(source), source, options)
    return price(graph, rules, convention)


def _load(frontend: FrontEnd, source: Any, options: CountOptions) -> Graph:
    from opcost.core.plugin import answering_for
    from opcost.errors import InputError

    given = options.params is not None or options.epoch is not None
    if given and not (isinstance(source, Path) and getattr(frontend, "takes_parameter_files", False)):
        raise InputError(
            f"a parameter file belongs to an MXNet symbol, and this source is read by the {frontend.name} front end",
            hint="leave --params and --epoch away",
        )
    with answering_for(frontend, "reading the model"):
        return frontend.load(source, options)


def load_report(path: str | Path) -> Report:
    """Read a report that was saved as `.json`."""
    from opcost.core.schema import load

    return load(path)


def profile(
    source: Any,
    inputs: Any = None,
    *,
    kwargs: Mapping[str, Any] | None = None,
    shapes: Any = None,
    dtypes: Any = None,
    backward: bool = False,
    mode: str | None = None,
    host_only: bool = False,
    warmup: int = 3,
    repeat: int = 10,
    seconds: float | None = None,
    cold_l2: bool = False,
) -> Profile:
    """Where a model's time goes, operator by operator, on the host and on the device.

    `source` is a PyTorch model on the CPU or on CUDA, or an ONNX file or `onnxruntime.InferenceSession`; the inputs are given
    as for `opcost.count`. After `warmup` runs come `repeat` runs (or as many as fit into `seconds`) timed without a profiler,
    then as many with one. `host_only` leaves the device's records out; `cold_l2` empties the device's last cache before
    every run.
    """
    from opcost.profiles import askable
    from opcost.recorders.options import ProfileOptions

    options = ProfileOptions(
        inputs=inputs,
        kwargs=dict(kwargs or {}),
        shapes=shapes,
        dtypes=dtypes,
        backward=backward,
        mode=mode,
        host_only=host_only,
        warmup=warmup,
        repeat=repeat,
        seconds=seconds,
        cold_l2=cold_l2,
    )
    return askable(_measured(source, options))


def _measured(source: Any, options: ProfileOptions) -> Measured:
    from opcost.recorders.onnxruntime import is_onnx
    from opcost.recorders.onnxruntime import record as record_onnx

    if is_onnx(source):
        from opcost.analysis.join import with_costs
        from opcost.rules import default_rules

        return with_costs(record_onnx(source, options), default_rules())
    if isinstance(source, (str, Path)):
        named = _python_model(str(source))
        with named.guard():
            return _measured_torch(named.build(real=True), options)
    return _measured_torch(source, options)


def _python_model(source: str) -> PythonModel:
    """The model that a string names; it is to run, so a file that holds none of its code will not do."""
    from opcost.errors import UnknownSource
    from opcost.frontends.source import PythonModel, resolve

    resolved = resolve(source)
    if not isinstance(resolved, PythonModel):
        raise UnknownSource(
            f"{source} cannot be run", hint="profile an .onnx file, or code that makes a model: path/to/file.py:Net"
        )
    return resolved


def _measured_torch(model: Any, options: ProfileOptions) -> Measured:
    from opcost.errors import DataDependent, OpcostError, UnknownSource
    from opcost.frontends.registry import owner

    if (frontend := owner(model)).framework != "torch":
        raise UnknownSource(f"opcost does not run models of {frontend.name}", hint="profile a PyTorch or an ONNX model")
    from dataclasses import replace

    from opcost.core.graph import Note
    from opcost.recorders.torch.record import record

    report: Report | None = None
    notes: tuple[Note, ...] = ()
    asked: dict[str, Any] = {
        "kwargs": options.kwargs,
        "shapes": options.shapes,
        "dtypes": options.dtypes,
        "backward": options.backward,
        "mode": options.mode,
    }
    try:
        try:
            report = count(model, options.inputs, **asked)
        except DataDependent:
            report = count(model, options.inputs, **asked, real=True)
    except OpcostError as exc:
        notes = (Note("not-counted", f"the rows have no cost, because the model could not be counted: {exc.message}"),)
    found = record(model, options, report)
    return replace(found, notes=(*found.notes, *notes)) if notes else found


def read_profile(path: str | Path, *, partial: bool = False) -> Profile:
    """Read where the time went from a trace or profile of any known tool, plain or gzipped, recognised by its content.

    A damaged file is an error; `partial=True` reads what stands before the damage, and a note says so.
    """
    from opcost.core.reading import pipes_kept
    from opcost.profiles import askable
    from opcost.traces.registry import read

    with pipes_kept():
        return askable(read(path, partial=partial))
