"""Functions of each element, and the arithmetic on shapes that models do with them."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

from opcost.core.graph import NO_ATTRS
from opcost.core.shapes import Shape, broadcast, known
from opcost.frontends.onnx.call import MICROSOFT, Call, Made, Meaning, Out, alias, fitting, handles, numel
from opcost.frontends.onnx.content import stretched
from opcost.frontends.onnx.model import DTYPES, Number

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


def _divide(a: Any, b: Any) -> Any:
    """As machines do: a quotient of whole numbers is cut towards zero."""
    if isinstance(a, int) and isinstance(b, int):
        return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    return a / b


_COMPUTED: dict[str, Callable[..., Any]] = {
    "Add": operator.add, "Sub": operator.sub, "Mul": operator.mul, "Div": _divide, "Mod": operator.mod, "Pow": operator.pow,
    "Min": min, "Max": max, "Neg": operator.neg, "Abs": abs,
    "Ceil": lambda x: float(math.ceil(x)), "Floor": lambda x: float(math.floor(x)),
    "Round": lambda x: float(round(x)), "Sqrt": math.sqrt, "Equal": operator.eq, "Greater": operator.gt, "Less": operator.lt,
    "GreaterOrEqual": operator.ge, "LessOrEqual": operator.le, "And": lambda a, b: bool(a and b), "Or": lambda a, b: bool(a or b),
    "Not": operator.not_, "Sum": lambda *all: sum(all), "Sign": lambda x: (x > 0) - (x < 0),
}  # fmt: skip


def _computed(name: str, ins: Sequence[Made], shape: Shape) -> list[Number] | None:
    """The elements of a small result, None where one is not known."""
    function = _COMPUTED.get(name)
    if function is None or shape is None or None in shape or numel(shape) > 1024:
        return None
    columns = [stretched(made.content, known(shape)).items for made in ins if made.content is not None]
    if len(columns) < len(ins):
        return None
    found: list[Number] = []
    for row in zip(*columns, strict=True):
        try:
            found.append(None if None in row else function(*row))
        except (ArithmeticError, ValueError, TypeError):
            return None
    return found


def common(ins: Sequence[Made]) -> Shape:
    """The shape to which all inputs are stretched."""
    shapes = [made.shape for made in ins]
    return None if None in shapes else broadcast([made.dims for made in ins])


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
    items = _clipped(call) if name == "Clip" else _computed(name, ins, shape)
    return Meaning("elementwise", {"fn": fn}, [Out(shape, dtype, fitting(shape, items))], ins)


def _clipped(call: Call) -> list[Number] | None:
    """Paddings that are computed are never negative, which exporters see to in this way."""
    ends = [call.attrs.get(name) for name in ("min", "max")]
    for place, made in ((0, call.at(1)), (1, call.at(2))):
        if made is not None:
            ends[place] = made.content.items[0] if made.content and made.content.items else math.nan
    lowest, highest = (math.inf * side if end is None else end for end, side in zip(ends, (-1, 1), strict=True))
    content = call[0].content
    if content is None or math.isnan(lowest) or math.isnan(highest):
        return None
    return [None if item is None else min(max(item, lowest), highest) for item in content.items]


_GELUS = {"Gelu": "gelu", "QuickGelu": "quick_gelu", "FastGelu": "gelu_tanh"}


def _added(call: Call, ins: Sequence[Made]) -> Made:
    shape = common(ins)
    return call.step("elementwise", {"fn": "add"}, ins, [Out(shape, ins[0].dtype)])[0]


@handles("BiasGelu", "BiasAdd", domains=(MICROSOFT,))
def _bias(call: Call) -> Meaning:
    ins = call.given
    if call.node.op == "BiasAdd":
        return Meaning("elementwise", {"fn": "add"}, [Out(common(ins), ins[0].dtype)])
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
def _rotary(call: Call) -> Meaning:
    """Each element is multiplied by a cosine, its partner by a sine, and both are added."""
    return Meaning("elementwise", {"fn": "mul_mul_add"}, [Out(call[0].shape, call[0].dtype)])


@handles(*_VARIADIC)
def _variadic(call: Call) -> Meaning:
    ins = call.given
    if len(ins) == 1:
        return alias(call, ins[0].shape, ins[0].content)
    shape = common(ins)
    fn, after = _VARIADIC[call.node.op]
    attrs: dict[str, Any] = {"fn": fn}
    if shape is not None and None not in shape:
        attrs["elements"] = numel(shape) * (len(ins) - 1 + after)
    content = fitting(shape, _computed(call.node.op, ins, shape))
    return Meaning("elementwise", attrs, [Out(shape, ins[0].dtype, content)])


@handles("Where")
def _where(call: Call) -> Meaning:
    shape = common(call.given)
    items = None
    if shape is not None and None not in shape and numel(shape) <= 1024:
        columns = [stretched(made.content, known(shape)).items for made in call.given if made.content is not None]
        if len(columns) == 3:
            rows = zip(*columns, strict=True)
            items = [None if chosen is None else (a if chosen else b) for chosen, a, b in rows]
    return Meaning("elementwise", {"fn": "where"}, [Out(shape, call[1].dtype, fitting(shape, items))])


@handles("Shrink")
def _shrink(call: Call) -> Meaning:
    fn = "softshrink" if call.attrs.get("bias") else "hardshrink"
    return Meaning("elementwise", {"fn": fn}, [Out(call[0].shape, call[0].dtype)])


@handles("Cast", "CastLike", "BitCast")
def _cast(call: Call) -> Meaning:
    dtype = call[1].dtype if call.node.op == "CastLike" else DTYPES.get(call.whole("to"), "float32")
    content = call[0].content
    if content is not None and dtype.startswith(("int", "uint")):
        content = content._replace(items=tuple(None if n is None or math.isnan(n) else int(n) for n in content.items))
    elif content is not None and dtype == "bool":
        content = content._replace(items=tuple(None if n is None else bool(n) for n in content.items))
    return Meaning("copy", NO_ATTRS, [Out(call[0].shape, dtype, content)], [call[0]])


@handles("Softmax", "LogSoftmax", "Hardmax")
@handles("QLinearSoftmax", domains=(MICROSOFT,))
def _softmax(call: Call) -> Meaning:
    fn = "log_softmax" if call.node.op == "LogSoftmax" else "softmax"
    return Meaning("softmax", {"fn": fn}, [Out(call[0].shape, call[0].dtype)])


_QLINEAR = {
    "QLinearAdd": ("add", 3), "QLinearMul": ("mul", 3), "QLinearSigmoid": ("sigmoid", None),
    "QLinearLeakyRelu": ("leaky_relu", None), "QLinearWhere": ("where", 4),
}  # fmt: skip
"""The function, and at which place the second operand stands."""


@handles(*_QLINEAR, domains=(MICROSOFT,))
def _quantized(call: Call) -> Meaning:
    """Computed on small whole numbers by way of their scales, of which only the function itself is counted."""
    fn, second = _QLINEAR[call.node.op]
    ins = [call[0]] if second is None else [call[0], call[second]]
    if call.node.op == "QLinearWhere":
        ins = [call[0], call[1], call[4]]
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
