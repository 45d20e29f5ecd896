"""The common operators of ONNX in our words, from shapes alone: a profile has no attributes."""

from __future__ import annotations

from math import prod

from opcost.core.graph import NO_ATTRS, Attrs, TensorSpec

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
    """Kind and attributes of a node; no kind where its shapes do not tell the work."""
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
