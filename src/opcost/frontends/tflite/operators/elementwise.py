"""Functions of each element, in TensorFlow Lite's words and in StableHLO's."""

from __future__ import annotations

from opcost.core.graph import NO_ATTRS, Attr
from opcost.frontends.nodes.call import Call, Meaning, Out, numel
from opcost.frontends.nodes.meanings import common, converted, copied, pointwise
from opcost.frontends.tflite.table import activated, handles

_FUNCTIONS = {
    **{name: name.lower() for name in (
        "ABS CEIL COS ELU EXP FLOOR LEAKY_RELU LOG NEG RELU RELU6 ROUND RSQRT SIGN SIN SQRT SQUARE TANH PRELU ATAN2 ADD SUB MUL "
        "DIV POW"
    ).split()},
    "RELU_N1_TO_1": "hardtanh", "RELU_0_TO_1": "clamp", "HARD_SWISH": "hardswish", "LOGISTIC": "sigmoid",
    "FAKE_QUANT": "fake_quantize",
    "FLOOR_DIV": "floor_divide", "FLOOR_MOD": "remainder", "MAXIMUM": "max", "MINIMUM": "min", "BITWISE_XOR": "bitwise",
    "RIGHT_SHIFT": "shift", "COMPLEX_ABS": "hypot", "LOGICAL_NOT": "logical", "LOGICAL_AND": "logical", "LOGICAL_OR": "logical",
    "SELECT": "where", "SELECT_V2": "where",
    **dict.fromkeys("EQUAL NOT_EQUAL GREATER GREATER_EQUAL LESS LESS_EQUAL".split(), "compare"),
    "STABLEHLO_LOGISTIC": "sigmoid", "STABLEHLO_ADD": "add", "STABLEHLO_DIVIDE": "div", "STABLEHLO_MULTIPLY": "mul",
    "STABLEHLO_MAXIMUM": "max", "STABLEHLO_MINIMUM": "min", "STABLEHLO_ABS": "abs", "STABLEHLO_AND": "logical",
    "STABLEHLO_OR": "logical", "STABLEHLO_COSINE": "cos", "STABLEHLO_EXPONENTIAL": "exp", "STABLEHLO_FLOOR": "floor",
    "STABLEHLO_LOG": "log", "STABLEHLO_NEGATE": "neg", "STABLEHLO_POWER": "pow", "STABLEHLO_REMAINDER": "remainder",
    "STABLEHLO_RSQRT": "rsqrt", "STABLEHLO_SELECT": "where", "STABLEHLO_SUBTRACT": "sub", "STABLEHLO_TANH": "tanh",
    "STABLEHLO_COMPARE": "compare", "STABLEHLO_SHIFT_LEFT": "shift", "STABLEHLO_CBRT": "cbrt",
}  # fmt: skip
_COMPUTED = {
    "MAXIMUM": "max", "MINIMUM": "min", "FLOOR_DIV": "floordiv", "FLOOR_MOD": "mod", "NOT_EQUAL": "notequal",
    "GREATER_EQUAL": "greaterorequal", "LESS_EQUAL": "lessorequal", "LOGICAL_AND": "and", "LOGICAL_OR": "or",
    "LOGICAL_NOT": "not", "SELECT": "where", "SELECT_V2": "where",
}  # fmt: skip
"""How contents are computed, where the operator's own name does not say it."""


@handles(*_FUNCTIONS)
def _pointwise(call: Call) -> Meaning:
    name = call.node.op
    return activated(call, pointwise(_FUNCTIONS[name], call.given, _COMPUTED.get(name, name.lower())))


@handles("GELU")
def _gelu(call: Call) -> Meaning:
    return pointwise("gelu_tanh" if call.flag("approximate") else "gelu", call.given)


@handles("SQUARED_DIFFERENCE", "ADD_N")
def _several(call: Call) -> Meaning:
    """A difference and a square, or sums of several tensors."""
    shape = common(call.given)
    fn, times = ("sub", 2) if call.node.op == "SQUARED_DIFFERENCE" else ("add", len(call.given) - 1)
    attrs: dict[str, Attr] = {"fn": fn}
    if shape is not None and None not in shape:
        attrs["elements"] = numel(shape) * times
    return Meaning("elementwise", attrs, [Out(shape, call[0].dtype)])


@handles("STABLEHLO_CLAMP")
def _clamp(call: Call) -> Meaning:
    x = call[1]
    return Meaning("elementwise", {"fn": "clamp"}, [Out(x.shape, x.dtype)])


@handles("CAST", "STABLEHLO_CONVERT")
def _cast(call: Call) -> Meaning:
    return converted(call[0], call.out_dtype)


@handles("REAL", "IMAG", "BITCAST")
def _part(call: Call) -> Meaning:
    if call.node.op == "BITCAST":
        return Meaning("view", NO_ATTRS, [Out(None, call.out_dtype, home=call[0])], [call[0]])
    return copied(call[0], call[0].shape)


@handles("QUANTIZE", "DEQUANTIZE")
def _quantize(call: Call) -> Meaning:
    """Half the bits of a real number are widened without arithmetic."""
    x = call[0]
    kind = "copy" if x.dtype in ("float16", "bfloat16") else "quantize"
    return Meaning(kind, NO_ATTRS, [Out(x.shape, call.out_dtype)], [x])


@handles("SOFTMAX", "LOG_SOFTMAX")
def _softmax(call: Call) -> Meaning:
    return Meaning("softmax", {"fn": call.node.op.lower()}, [Out(call[0].shape, call[0].dtype)])
