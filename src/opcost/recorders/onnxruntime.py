"""ONNX Runtime: one session times the model, a second one with the runtime's own profiler records it."""

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from opcost.core.option import Sizes
from opcost.core.profile import Profile
from opcost.core.report import Report
from opcost.errors import ForwardError, InputError, MissingFramework, SourceError, UnknownName
from opcost.frontends.inputs import DIM, arrays_in, by_place, filled, parse_dims, requested_inputs
from opcost.recorders.measure import host_conditions, overhead, timed_runs, warmed_up
from opcost.recorders.registry import ProfileOptions, Recorder

_NUMPY_TYPES = {
    "tensor(float)": "float32", "tensor(double)": "float64", "tensor(float16)": "float16",
    "tensor(int64)": "int64", "tensor(int32)": "int32", "tensor(int16)": "int16", "tensor(int8)": "int8",
    "tensor(uint64)": "uint64", "tensor(uint32)": "uint32", "tensor(uint16)": "uint16", "tensor(uint8)": "uint8",
    "tensor(bool)": "bool",
}  # fmt: skip
"""The runtime's words for element types that inputs can be made of."""
_SETTINGS = (
    "enable_cpu_mem_arena", "enable_mem_pattern", "enable_mem_reuse", "execution_mode", "execution_order",
    "graph_optimization_level", "inter_op_num_threads", "intra_op_num_threads", "use_deterministic_compute",
)  # fmt: skip
"""What of a session's options decides how fast it runs."""


class OnnxRuntimeRecorder(Recorder):
    """ONNX files, and sessions of ONNX Runtime."""

    name = "onnxruntime"
    framework = "onnxruntime"
    suffixes = (".onnx",)
    options = (DIM,)
    understands = frozenset({"sizes"})

    def owns(self, obj: object) -> bool:
        return type(obj).__name__ == "InferenceSession" and type(obj).__module__.startswith("onnxruntime")

    def record(self, source: Any, options: ProfileOptions, report: Report | None) -> Profile:
        return record(source, options)


RECORDER: Recorder = OnnxRuntimeRecorder()


def record(source: Any, options: ProfileOptions) -> Profile:
    """The profile of an ONNX model, read from the file that the runtime's own profiler writes."""
    try:
        import onnxruntime
    except ImportError as exc:
        raise MissingFramework("profiling an ONNX model needs onnxruntime", hint="pip install onnxruntime") from exc
    impossible = {"backward": options.backward, "cold_l2": options.cold_l2, "mode='train'": options.mode == "train"}
    for name, requested in impossible.items():
        if requested:
            raise InputError(f"{name} is not possible with ONNX Runtime", hint="profile the PyTorch model")
    from opcost.traces.file import TraceFile
    from opcost.traces.onnxruntime import READER

    def no_wait(result: Any) -> None:
        """A run returns arrays on the host, so it has ended when it returns."""

    model, providers = _model(source)
    plain = _session(onnxruntime, source, model, providers)
    feed = _feed(plain, options)
    try:
        warmed_up(lambda: plain.run(None, feed), options.warmup)
        timed = timed_runs(lambda: plain.run(None, feed), no_wait, repeat=options.repeat, seconds=options.seconds)
    except Exception as exc:
        fault = f"ONNX Runtime {onnxruntime.__version__} cannot run the model on these inputs: {exc}"
        raise ForwardError(fault, hint="check the shapes and types of the inputs") from exc
    with tempfile.TemporaryDirectory(prefix="opcost-") as folder:
        session = _session(onnxruntime, source, model, providers, str(Path(folder) / "profile"))
        before = options.warmup + 1  # the first run under the profiler pays for its start
        warmed_up(lambda: session.run(None, feed), before)
        recorded = timed_runs(lambda: session.run(None, feed), no_wait, repeat=len(timed), seconds=None)
        found = READER.read(TraceFile(session.end_profiling()))
    rows = [row for row in found.rows if row.step is not None and row.step >= before]
    if options.host_only:
        rows = [row._replace(device_ns=None, device_total_ns=None, kernels=()) for row in rows]
    settings = session.get_session_options()
    return replace(
        found,
        meta={
            **found.meta,
            "source": Path(model).name if isinstance(model, (str, Path)) else "model",
            "format": "opcost", "framework": "onnxruntime", "host_only": str(options.host_only),
            "warmup": str(options.warmup), "steps": str(len(recorded)), "overhead": overhead(timed, recorded),
            **host_conditions(), "onnxruntime": onnxruntime.__version__,
            "threads": str(settings.intra_op_num_threads or "all"),
            "providers": ", ".join(session.get_providers()),
            "optimization": str(settings.graph_optimization_level).rpartition(".")[2],
        },
        rows=tuple(row._replace(id=index, step=(row.step or 0) - before) for index, row in enumerate(rows)),
        wall_ns=sum(recorded),
        timed_ns=timed,
        extra={"recorded_ns": list(recorded)},
    )  # fmt: skip


def _model(source: Any) -> tuple[Any, list[str] | None]:
    """What sessions are made of: the path or the bytes, and the providers of a session that was handed over."""
    if isinstance(source, (str, Path)):
        if not Path(source).is_file():
            raise SourceError(f"there is no file {source}")
        return str(source), None
    model = getattr(source, "_model_path", None) or getattr(source, "_model_bytes", None)
    if model is None:
        raise SourceError("this session does not name the model that it runs", hint="pass the .onnx file itself")
    return model, list(source.get_providers())


def _session(onnxruntime: Any, source: Any, model: Any, providers: list[str] | None, record_to: str = "") -> Any:
    """A session with the plain settings of one that was handed over; the user's own stay untouched."""
    settings = onnxruntime.SessionOptions()
    if not isinstance(source, (str, Path)):
        own = source.get_session_options()
        for name in _SETTINGS:
            setattr(settings, name, getattr(own, name))
    settings.log_severity_level = 3
    if record_to:
        settings.enable_profiling, settings.profile_file_prefix = True, record_to
    try:
        return onnxruntime.InferenceSession(
            model, settings, providers=providers or onnxruntime.get_available_providers()
        )
    except Exception as exc:
        what = model if isinstance(model, str) else "the model"
        raise SourceError(f"ONNX Runtime {onnxruntime.__version__} cannot run {what}: {exc}") from exc


def _feed(session: Any, options: ProfileOptions) -> dict[str, Any]:
    """The arrays of the user, or arrays of the wanted shapes: noise, zeros for integers, ones for masks."""
    import numpy as np

    wanted = {item.name: item for item in session.get_inputs()}
    ordered, named = arrays_in(options)
    given = {**by_place(ordered, list(wanted), "inputs"), **named}
    for name in given:
        if name not in wanted:
            raise UnknownName("input", name, wanted)
    shapes, types = requested_inputs(replace(options, inputs=None, kwargs={}, sizes=Sizes()), list(wanted))
    declared = {name: tuple(item.shape) for name, item in wanted.items()}
    dims = parse_dims(options.own.get("dim"), declared)
    declared = filled(declared, options.sizes, dims)
    noise = np.random.default_rng(0)
    feed: dict[str, Any] = {}
    for name, item in wanted.items():
        if name in given:
            feed[name] = np.asarray(given[name])
            continue
        left = [dims.get(extent, extent) if isinstance(extent, str) else extent for extent in declared[name]]
        shape: tuple[Any, ...] = shapes.get(name) or tuple(left)
        fault, hint = "", ""
        dtype = np.dtype(_NUMPY_TYPES.get(item.type, "float32"))
        if not all(isinstance(extent, int) for extent in shape):
            fault = f"has the shape {list(shape)}, and nothing was given for what is open in it"
            hint = f"pass shapes={{{name!r}: (1, 3, 224, 224)}} or, on the command line, --input {name}:1x3x224x224 or "
            hint += "--dim NAME=SIZE"
        elif item.type not in _NUMPY_TYPES:
            fault, hint = f"is a {item.type}, for which there are no default values", "pass it in inputs={...}"
        elif types.get(name, dtype.name) != dtype.name:
            fault = f"of the model is {dtype.name}, not {types[name]}"
            hint = "leave the type out; an ONNX model takes the one that it was exported with"
        if fault:
            raise InputError(f"the input {name} {fault}", hint=hint)
        if dtype.kind == "f":
            feed[name] = noise.standard_normal(shape).astype(dtype)
        else:
            feed[name] = np.ones(shape, dtype) if dtype.kind == "b" or "mask" in name else np.zeros(shape, dtype)
    return feed
