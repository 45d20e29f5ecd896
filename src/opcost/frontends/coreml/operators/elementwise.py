"""Functions of each element."""

from __future__ import annotations

from opcost.core.graph import NO_ATTRS
from opcost.frontends.coreml.table import arg, handles, need, word
from opcost.frontends.nodes.call import Call, Meaning, Out
from opcost.frontends.nodes.meanings import converted, pointwise

_UNARY = {
    **{name: name for name in (
        "abs acos asin atan ceil cos cosh elu erf exp exp2 floor leaky_relu log relu relu6 round rsqrt sigmoid sign silu "
        "sin sinh softplus softsign sqrt square tan tanh threshold atanh asinh acosh"
    ).split()},
    "inverse": "reciprocal", "logical_not": "logical", "clip": "clamp", "clamped_relu": "clamp", "sigmoid_hard": "hardsigmoid",
    "scaled_tanh": "tanh", "linear_activation": "fma", "thresholded_relu": "threshold", "softplus_parametric": "softplus",
    "neg": "neg",
}  # fmt: skip
_BINARY = {
    "add": "add", "sub": "sub", "mul": "mul", "real_div": "div", "floor_div": "floor_divide", "mod": "remainder", "pow": "pow",
    "maximum": "max", "minimum": "min", "logical_and": "logical", "logical_or": "logical", "logical_xor": "logical",
    **dict.fromkeys("equal not_equal greater greater_equal less less_equal".split(), "compare"),
}  # fmt: skip
_COMPUTED = {
    "real_div": "div", "floor_div": "floordiv", "maximum": "max", "minimum": "min", "not_equal": "notequal",
    "greater_equal": "greaterorequal", "less_equal": "lessorequal", "logical_and": "and", "logical_or": "or",
    "logical_not": "not",
}  # fmt: skip
"""How contents are computed, where the operator's own name does not say it."""


@handles(*_UNARY)
def _unary(call: Call) -> Meaning:
    name = call.node.op
    return pointwise(_UNARY[name], [need(call, "x")], _COMPUTED.get(name, name))


@handles(*_BINARY)
def _binary(call: Call) -> Meaning:
    name = call.node.op
    return pointwise(_BINARY[name], [need(call, "x"), need(call, "y")], _COMPUTED.get(name, name), call.out_dtype)


@handles("gelu")
def _gelu(call: Call) -> Meaning:
    fn = {"EXACT": "gelu", "TANH_APPROXIMATION": "gelu_tanh"}.get(word(call, "mode", "EXACT"), "quick_gelu")
    return pointwise(fn, [need(call, "x")])


@handles("prelu")
def _prelu(call: Call) -> Meaning:
    x = need(call, "x")
    return Meaning("elementwise", {"fn": "prelu"}, [Out(x.shape, x.dtype)], [x, need(call, "alpha")])


@handles("select")
def _select(call: Call) -> Meaning:
    return pointwise("where", [need(call, "cond"), need(call, "a"), need(call, "b")], "where", call.out_dtype)


@handles("cast")
def _cast(call: Call) -> Meaning:
    return converted(need(call, "x"), call.out_dtype)


@handles("softmax", "log_softmax")
def _softmax(call: Call) -> Meaning:
    x = need(call, "x")
    return Meaning("softmax", {"fn": call.node.op}, [Out(x.shape, x.dtype)], [x])


@handles("quantize", "dequantize")
def _quantize(call: Call) -> Meaning:
    x = need(call, "input")
    reads = [x, arg(call, "scale"), arg(call, "zero_point")]
    return Meaning("quantize", NO_ATTRS, [Out(x.shape, call.out_dtype)], reads)
