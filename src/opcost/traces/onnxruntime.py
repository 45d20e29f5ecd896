"""Profiles of ONNX Runtime (`SessionOptions.enable_profiling`), with and without fence events."""

import re
from math import prod
from typing import Any

from opcost.core.graph import NO_ATTRS, Attrs, Note, TensorSpec
from opcost.core.parsing import parse
from opcost.core.profile import Kernel, Profile, ProfileRow
from opcost.traces.file import TraceFile, args_of, events_of, is_shape, microseconds, text
from opcost.traces.registry import Reader

FENCES = ("_fence_before", "_fence_after")

DTYPES = {
    "float": "float32", "double": "float64", "float8e4m3fn": "float8_e4m3fn", "float8e5m2": "float8_e5m2",
    "float8e4m3fnuz": "float8_e4m3fnuz", "float8e5m2fnuz": "float8_e5m2fnuz",
}  # fmt: skip
"""Element types that have other names here; the others are called as in NumPy."""

_CATEGORY = re.compile(rb'"cat"\s*:\s*"(Session|Node)"')


class OnnxRuntimeReader:
    """The JSON list of events that a session writes."""

    name = "onnxruntime"

    def sniff(self, head: bytes) -> bool:
        return head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"[" and _CATEGORY.search(head) is not None

    def read(self, file: TraceFile, *, partial: bool = False) -> Profile:
        events, notes = events_of(file, partial=partial)
        runs = [event for event in events if event.get("cat") == "Session" and event.get("name") == "model_run"]
        starts = [microseconds(event, "ts") for event in runs]
        spans = sorted((start, start + microseconds(event, "dur")) for start, event in zip(starts, runs, strict=True))
        rows: list[ProfileRow] = []
        kernels: dict[int, list[Kernel]] = {}
        orphans: list[Kernel] = []
        last_of: dict[str, int] = {}
        fences = 0
        for event in events:
            category, name, args = event.get("cat"), text(event, "name"), args_of(event)
            if category == "Node" and name.endswith(FENCES):
                fences += microseconds(event, "dur")
            elif category == "Node":
                row = _row(len(rows), event, name, spans)
                last_of[row.name] = last_of[name] = row.id
                rows.append(row)
            elif category == "Kernel":
                stream = str(args.get("stream", event.get("tid", "")))
                kernel = Kernel(name, "gpu:0", stream, microseconds(event, "ts"), microseconds(event, "dur"))
                owner = last_of.get(text(args, "parent_name"))
                (kernels.setdefault(owner, []) if owner is not None else orphans).append(kernel)
        for number, row in enumerate(rows) if kernels else ():
            own = tuple(kernels.get(row.id, ()))
            spent = sum(kernel.duration_ns for kernel in own)
            device = own[0].device if own else row.device
            rows[number] = row._replace(kernels=own, device=device, device_ns=spent, device_total_ns=spent)
        if fences:
            notes.append(Note("fences", f"waiting between operators took {fences} ns; it is in no row"))
        times = [end - start for start, end in spans]
        return Profile(
            meta={"source": file.name, "format": "onnxruntime", "runs": str(len(spans))},
            rows=tuple(rows), unattributed=tuple(orphans), wall_ns=sum(times) if times else None,
            notes=tuple(notes), extra={"run_ns": times},
        )  # fmt: skip


READER: Reader = OnnxRuntimeReader()


def _row(number: int, event: dict[str, Any], name: str, spans: list[tuple[int, int]]) -> ProfileRow:
    args = args_of(event)
    start, duration = microseconds(event, "ts"), microseconds(event, "dur")
    node, operator = name.removesuffix("_kernel_time"), str(args.get("op_name", ""))
    provider = str(args.get("provider", ""))
    ins, outs = _specs(args.get("input_type_shape")), _specs(args.get("output_type_shape"))
    kind, attrs = onnx_kind(operator, ins, outs)
    step = next((place for place, (begin, end) in enumerate(spans) if begin <= start <= end), None)
    return ProfileRow(
        id=number, name=node, type=operator, kind=kind, module=_module(node), provider=provider, step=step,
        device="cpu" if provider.startswith("CPU") else "", stream=str(event.get("tid", "")), host_start_ns=start,
        host_ns=duration, host_self_ns=duration, ins=ins, outs=outs, attrs=attrs,
    )  # fmt: skip


def _module(node: str) -> str:
    """The module in the name that PyTorch's exporter gives a node: `/layer1/layer1.0/conv1/Conv` is `layer1.0.conv1`.

    The exporter repeats a parent's name in a numbered child (`layer1.0` inside `layer1`), so that part is dropped once.
    """
    parts = node.split("/")
    if parts[0] or len(parts) < 3:
        return ""
    path = ""
    for part in parts[1:-1]:
        last = path.rpartition(".")[2]
        path = path.removesuffix(last) + part if path and part.startswith(f"{last}.") else f"{path}.{part}".lstrip(".")
    return path


def _specs(shapes: object) -> tuple[TensorSpec, ...]:
    """The tensors in `[{"float": [1, 3, 224, 224]}, ...]`; some versions write the list as text."""
    if isinstance(shapes, str):
        try:
            shapes = parse(shapes)
        except ValueError:
            return ()
    if not isinstance(shapes, list):
        return ()
    found = []
    for entry in shapes:
        if isinstance(entry, dict):
            for word, shape in entry.items():
                if is_shape(shape):
                    extents = tuple(extent if extent >= 0 else None for extent in shape)
                    found.append(TensorSpec(extents, DTYPES.get(str(word), str(word))))
    return tuple(found)


# -- the common operators of ONNX in our words, from shapes alone: a profile has no attributes

_ELEMENTWISE = {
    "Add": "add", "Sub": "sub", "Mul": "mul", "Div": "div", "Relu": "relu", "Gelu": "gelu", "FastGelu": "gelu_tanh",
    "QuickGelu": "quick_gelu", "Sigmoid": "sigmoid", "Tanh": "tanh", "Exp": "exp", "Log": "log", "Sqrt": "sqrt",
    "Erf": "erf", "Pow": "pow", "Neg": "neg", "Abs": "abs", "Reciprocal": "reciprocal", "Clip": "clamp", "Where": "where",
    "LeakyRelu": "leaky_relu", "Elu": "elu", "Softplus": "softplus", "Mish": "mish",
}  # fmt: skip
_NORMS = {
    "BatchNormalization": "batch", "LayerNormalization": "layer", "SkipLayerNormalization": "layer",
    "InstanceNormalization": "instance", "GroupNormalization": "group", "SimplifiedLayerNormalization": "rms",
}  # fmt: skip
_VIEWS = frozenset({"Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Shape"})
_COPIES = frozenset(
    {"Transpose", "Concat", "Cast", "Pad", "ReorderInput", "ReorderOutput", "Expand", "Slice", "Split", "Tile"}
)


def onnx_kind(operator: str, ins: tuple[TensorSpec, ...], outs: tuple[TensorSpec, ...]) -> tuple[str, Attrs]:
    """Kind and attributes of a node; no kind where its shapes do not determine the work."""
    if not ins or not outs or not all(spec.known for spec in (*ins, *outs)):
        return "", NO_ATTRS
    if operator in {"Conv", "FusedConv", "NhwcFusedConv"} and len(ins) > 1:
        return "conv", NO_ATTRS
    if operator in {"MatMul", "FusedMatMul"} and len(ins) > 1:
        # One of the two may be taken transposed: products of all pairs, divided among the outputs.
        a, b = ins[0].dims, ins[1].dims
        rows = outs[0].dims[-2] if len(outs[0].dims) > 1 and len(a) > 1 else 1
        matrix = prod(a[-2:])
        return ("matmul", {"depth": matrix // rows}) if rows and len(b) > 0 else ("", NO_ATTRS)
    if operator in {"Gemm", "FusedGemm"} and len(outs[0].dims) == 2 and outs[0].dims[0]:
        attrs: dict[str, int | bool] = {"depth": ins[0].numel // outs[0].dims[0]}
        if len(ins) > 2:
            attrs["bias"] = True
        return "matmul", attrs
    if operator in _ELEMENTWISE:
        return "elementwise", {"fn": _ELEMENTWISE[operator]}
    if operator in _NORMS:
        return "norm", {"fn": _NORMS[operator]}
    if operator in {"Softmax", "LogSoftmax"}:
        return "softmax", {"fn": "softmax" if operator == "Softmax" else "log_softmax"}
    if operator in _VIEWS:
        return "view", NO_ATTRS
    return ("copy", NO_ATTRS) if operator in _COPIES else ("", NO_ATTRS)
