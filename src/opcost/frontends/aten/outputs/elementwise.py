"""Results of arithmetic element by element: the common shape, and a type that depends on the function."""

from __future__ import annotations

from opcost.core.shapes import broadcast
from opcost.frontends.aten.call import Call
from opcost.frontends.aten.outputs.table import axis_of, like, made, on, on_each
from opcost.frontends.aten.promotion import complex_of, floating, is_integer, promoted, real_of
from opcost.frontends.aten.tensor import Described, Tensor, type_name
from opcost.frontends.aten.told import UNTOLD, NotTold

_TRUTHS = frozenset({"compare", "logical", "nan_check"})
_REAL = frozenset({"abs", "angle"})
"""Of complex numbers they make real ones."""
_FLOATING = frozenset(
    """
    div sqrt rsqrt exp exp2 expm1 log log2 log10 log1p reciprocal sin cos tan asin acos atan atan2 sinh cosh asinh acosh
    atanh sinc deg2rad rad2deg angle erf erfc erfcx erfinv lgamma digamma polygamma gammainc gammaincc zeta ndtri log_ndtr
    bessel polynomial xlogy entropy logit sigmoid tanh copysign ldexp hypot
    """.split()
)
"""Of integers they make real numbers."""
_NUMBERS = ("self", "other", "exponent", "x", "n", "end", "min", "max", "value")
"""The numbers that take part in the arithmetic; other plain arguments only say how it is done."""


def elementwise(call: Call, fn: str) -> tuple[Tensor, ...]:
    """One result, as large as the operands together."""
    operands = [value for value in call.args.values() if isinstance(value, Tensor)]
    numbers = [call.args[name] for name in _NUMBERS if name in call.args]
    dtype = promoted(*operands, *(number for number in numbers if isinstance(number, (int, float, complex))))
    if fn in _TRUTHS:
        dtype = "bool"
    elif fn in _FLOATING:
        dtype = floating(dtype)
    elif UNTOLD in numbers and is_integer(dtype):
        raise NotTold("whether the number that an integer meets is a whole one")
    return (made(common_shape(operands), real_of(dtype) if fn in _REAL else dtype),)


def common_shape(operands: list[Tensor]) -> tuple[int, ...]:
    """The shape of all together."""
    return broadcast([operand.shape for operand in operands])


@on("float_power")
def _float_power(call: Call) -> tuple[Tensor, ...]:
    (y,) = elementwise(call, "")
    return (like(y, "complex128" if type_name(y).startswith("complex") else "float64"),)


@on("where")
def _where(call: Call) -> tuple[Tensor, ...]:
    """The condition takes part in the shape alone."""
    operands = [call["condition"], call["self"], call["other"]]
    shape = common_shape([operand for operand in operands if isinstance(operand, Tensor)])
    return (made(shape, promoted(*operands[1:])),)


@on("lerp")
def _lerp(call: Call) -> tuple[Tensor, ...]:
    operands = [value for value in call.args.values() if isinstance(value, Tensor)]
    return (made(common_shape(operands), type_name(call["self"])),)


@on("glu")
def _glu(call: Call) -> tuple[Described, ...]:
    x = call["self"]
    axis = axis_of(x, call["dim"])
    return (made((n // 2 if i == axis else n for i, n in enumerate(x.shape)), type_name(x)),)


@on("log_sigmoid_forward")
def _log_sigmoid(call: Call) -> tuple[Tensor, ...]:
    """The second result is a buffer that only the CPU fills."""
    return like(call["self"]), like(call["self"])


on_each(
    {
        "add sub rsub subtract pow clamp clip gelu gelu_backward clamp_min clamp_max": lambda call: elementwise(
            call, ""
        ),
        "div divide": lambda call: elementwise(call, "div" if call.get("rounding_mode") is None else "floor_divide"),
        "masked_fill": lambda call: (made(common_shape([call["self"], call["mask"]]), type_name(call["self"])),),
        "polar": lambda call: (made(common_shape([call["abs"], call["angle"]]), complex_of(type_name(call["abs"]))),),
        "complex": lambda call: (
            made(common_shape([call["real"], call["imag"]]), complex_of(type_name(call["real"]))),
        ),
    }
)
