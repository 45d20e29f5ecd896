"""Functions of each element, and the arithmetic on shapes that models do with them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from opcost.core.graph import NO_ATTRS
from opcost.core.shapes import complete
from opcost.frontends.nodes.call import Call, Made, Meaning, Out, alias, fitting, numel
from opcost.frontends.nodes.meanings import common, computed, converted, pointwise
from opcost.frontends.nodes.model import Number
from opcost.frontends.onnx.model import DTYPES
from opcost.frontends.onnx.table import MICROSOFT, handles

_UNARY = {
    **{name: name.lower() for name in (
        "Abs Acos Acosh Asin Asinh Atan Atanh Ceil Celu Cos Cosh Elu Erf Exp Floor Log Mish Neg Reciprocal Relu Round Selu "
        "Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Tan Tanh HardSigmoid HardSwish"
    ).split()},
    "LeakyRelu": "leaky_relu", "ThresholdedRelu": "threshold", "Clip": "clamp", "Swish": "silu", "BitwiseNot": "bitwise",
    "ScaledTanh": "tanh", "ParametricSoftplus": "softplus",
}  # fmt: skip
_TRUTHS = {
    "Not": "logical", "IsNaN": "nan_check", "IsInf": "nan_check", "And": "logical", "Or": "logical", "Xor": "logical",
    "Equal": "compare", "Greater": "compare", "Less": "compare", "GreaterOrEqual": "compare", "LessOrEqual": "compare",
}  # fmt: skip
_BINARY = {
    "Add": "add", "Sub": "sub", "Mul": "mul", "Div": "div", "Pow": "pow", "PRelu": "prelu", "Mod": "remainder",
    "BitShift": "shift", "BitwiseAnd": "bitwise", "BitwiseOr": "bitwise", "BitwiseXor": "bitwise",
}  # fmt: skip
_VARIADIC = {"Max": ("max", 0), "Min": ("min", 0), "Sum": ("add", 0), "Mean": ("add", 1)}
"""The function of two of many inputs, and operations for each element after it."""


@handles(*_UNARY, *_TRUTHS, *_BINARY, "Gelu")
@handles("Gelu", "QuickGelu", "FastGelu", domains=(MICROSOFT,))
def _pointwise(call: Call) -> Meaning:
    name = call.node.op
    ins = call.given[:1] if name == "Clip" else call.given
    if name == "FastGelu" and len(ins) > 1:
        ins = [_added(call, ins)]
    shape = common(ins)
    fn = _UNARY.get(name) or _BINARY.get(name) or _TRUTHS.get(name) or _GELUS[name]
    if name == "Gelu" and call.text("approximate") == "tanh":
        fn = "gelu_tanh"
    dtype = "bool" if name in _TRUTHS else ins[0].dtype
    items = _clipped(call) if name == "Clip" else computed(name.lower(), ins, shape)
    return Meaning("elementwise", {"fn": fn}, [Out(shape, dtype, fitting(shape, items))], ins)


def _clipped(call: Call) -> list[Number] | None:
    """Paddings that are computed are never negative, which exporters see to in this way."""
    ends = [call.attrs.get(name) for name in ("min", "max")]
    for place, made in ((0, call.at(1)), (1, call.at(2))):
        if made is not None:
            ends[place] = made.content.items[0] if made.content and made.content.items else math.nan
    lowest, highest = (far if end is None else end for end, far in zip(ends, (-math.inf, math.inf), strict=True))
    content = call[0].content
    if content is None or math.isnan(lowest) or math.isnan(highest):
        return None
    return [None if item is None else min(max(item, lowest), highest) for item in content.items]


_GELUS = {"Gelu": "gelu", "QuickGelu": "quick_gelu", "FastGelu": "gelu_tanh"}


def _added(call: Call, ins: Sequence[Made]) -> Made:
    return call.step("elementwise", {"fn": "add"}, ins, pointwise("add", ins).outs)[0]


@handles("BiasGelu", "BiasAdd", domains=(MICROSOFT,))
def _bias(call: Call) -> Meaning:
    ins = call.given
    if call.node.op == "BiasAdd":
        return pointwise("add", ins)
    added = _added(call, ins)
    return Meaning("elementwise", {"fn": "gelu"}, [Out(added.shape, added.dtype)], [added])


@handles("BiasSplitGelu", domains=(MICROSOFT,))
def _bias_split_gelu(call: Call) -> Meaning:
    added = _added(call, call.given)
    *rest, width = added.dims
    shape = (*rest, None if width is None else width // 2)
    gate = call.step("elementwise", {"fn": "gelu"}, [added], [Out(shape, added.dtype)])[0]
    return Meaning("elementwise", {"fn": "mul"}, [Out(shape, added.dtype)], [added, gate])


@handles("RotaryEmbedding", domains=("", MICROSOFT))
@handles("MRotaryEmbedding", domains=(MICROSOFT,))
def _rotary(call: Call) -> Meaning:
    """Each element is multiplied by a cosine, its partner by a sine, and both are added."""
    return Meaning("elementwise", {"fn": "mul_mul_add"}, [Out(call[0].shape, call[0].dtype)])


@handles(*_VARIADIC)
def _variadic(call: Call) -> Meaning:
    ins = call.given
    if len(ins) == 1:
        return alias(call, ins[0].shape, ins[0].content)
    fn, after = _VARIADIC[call.node.op]
    found = pointwise(fn, ins, call.node.op.lower())
    shape = found.outs[0].shape
    if not complete(shape):
        return found
    return found._replace(attrs={"fn": fn, "elements": numel(shape) * (len(ins) - 1 + after)})


@handles("Where")
def _where(call: Call) -> Meaning:
    return pointwise("where", call.given, "where", call[1].dtype)


@handles("Shrink")
def _shrink(call: Call) -> Meaning:
    fn = "softshrink" if call.attrs.get("bias") else "hardshrink"
    return Meaning("elementwise", {"fn": fn}, [Out(call[0].shape, call[0].dtype)])


@handles("Cast", "CastLike", "BitCast")
def _cast(call: Call) -> Meaning:
    dtype = call[1].dtype if call.node.op == "CastLike" else DTYPES.get(call.whole("to"), "float32")
    return converted(call[0], dtype)


@handles("SwiGLU")
def _swiglu(call: Call) -> Meaning:
    """The first half through swish, times the second; a factor inside the sigmoid is one product more."""
    gate = call[0]
    fn = "silu" if float(call.attrs.get("alpha", 1.0)) == 1.0 else "quick_gelu"
    opened = call.step("elementwise", {"fn": fn}, [gate], [Out(gate.shape, gate.dtype)])[0]
    return pointwise("mul", [opened, call[1]])


@handles("Softmax", "LogSoftmax", "Hardmax")
@handles("QLinearSoftmax", domains=(MICROSOFT,))
def _softmax(call: Call) -> Meaning:
    fn = "log_softmax" if call.node.op == "LogSoftmax" else "softmax"
    return Meaning("softmax", {"fn": fn}, [Out(call[0].shape, call[0].dtype)])


_QLINEAR = {
    "QLinearAdd": ("add", (0, 3)), "QLinearMul": ("mul", (0, 3)), "QLinearSigmoid": ("sigmoid", (0,)),
    "QLinearLeakyRelu": ("leaky_relu", (0,)), "QLinearWhere": ("where", (0, 1, 4)),
}  # fmt: skip
"""The function, and the places of its operands."""


@handles(*_QLINEAR, domains=(MICROSOFT,))
def _quantized(call: Call) -> Meaning:
    """Computed on small whole numbers by way of their scales, of which only the function itself is counted."""
    fn, places = _QLINEAR[call.node.op]
    ins = [call[place] for place in places]
    return Meaning("elementwise", {"fn": fn}, [Out(common(ins), ins[-1].dtype)], call.given)


@handles("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", domains=("", MICROSOFT))
def _quantize(call: Call) -> Meaning:
    x = call[0]
    match call.node.op:
        case "DequantizeLinear":
            return Meaning("quantize", NO_ATTRS, [Out(x.shape, call[1].dtype)])
        case "DynamicQuantizeLinear":
            return Meaning("quantize", NO_ATTRS, [Out(x.shape, "uint8"), Out((), "float32"), Out((), "uint8")])
    zero = call.at(2)
    dtype = DTYPES.get(call.whole("output_dtype"), "") if call.whole("output_dtype") else ""
    return Meaning("quantize", NO_ATTRS, [Out(x.shape, dtype or (zero.dtype if zero is not None else "uint8"))])
