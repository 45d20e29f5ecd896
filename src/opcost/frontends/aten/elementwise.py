"""Arithmetic element by element: each operator's name in the table of FLOPs per element."""

from __future__ import annotations

from opcost.frontends.aten.call import Call, Translation, on


def elementwise(fn: str) -> Translation:
    """One function of the table, for each output element."""
    return Translation("elementwise", {"fn": fn})


@on("add", "sub", "rsub", "subtract")
def _add(call: Call) -> Translation:
    """With a factor on the second operand it is a multiplication and an addition."""
    if call.get("alpha") not in (None, 1):
        return elementwise("fma")
    return elementwise("add" if call.base == "add" else "sub")


@on("div", "divide")
def _div(call: Call) -> Translation:
    return elementwise("div" if call.get("rounding_mode") is None else "floor_divide")


@on("pow")
def _pow(call: Call) -> Translation:
    exponent = call["exponent"]
    if isinstance(exponent, (int, float)):
        return elementwise({2: "square", 0.5: "sqrt", -0.5: "rsqrt", -1: "reciprocal"}.get(exponent, "pow"))
    return elementwise("pow")


@on("clamp", "clip", "quantized::clamp")
def _clamp(call: Call) -> Translation:
    if call["min"] is None:
        return elementwise("min")
    return elementwise("max" if call["max"] is None else "clamp")


@on("gelu")
def _gelu(call: Call) -> Translation:
    return elementwise("gelu_tanh" if call["approximate"] == "tanh" else "gelu")


@on("gelu_backward")
def _gelu_backward(call: Call) -> Translation:
    return elementwise("gelu_tanh_grad" if call["approximate"] == "tanh" else "gelu_grad")


@on("log_sigmoid_forward")
def _log_sigmoid_forward(call: Call) -> Translation:
    """The second output is a buffer for the gradient, empty on most devices."""
    return Translation("elementwise", {"fn": "logsigmoid", "elements": call.outs[0].numel()})


@on("cosine_similarity", "pairwise_distance")
def _pairs(call: Call) -> Translation:
    return Translation("reduce", {"fn": "dot" if call.base == "cosine_similarity" else "norm"})
