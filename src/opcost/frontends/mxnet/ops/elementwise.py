"""Arithmetic element by element: functions of one tensor, of two, of a tensor and a number."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from opcost.core.shapes import broadcast, merge, product
from opcost.frontends.mxnet.attribute import AttributeFault, Attributes
from opcost.frontends.mxnet.ops.table import (
    VIEW,
    Call,
    Infer,
    Operator,
    Translation,
    always_type,
    define,
    elementwise,
    register,
    same_types,
    types_of,
)


def same_shapes(call: Call) -> None:
    """All tensors around the node have one shape."""
    shape = None
    for held in (*call.ins, *call.outs):
        shape = merge(shape, held)
    if shape is not None:
        call.ins[:] = [merge(held, shape) for held in call.ins]
        call.outs[:] = [merge(held, shape) for held in call.outs]


def broadcasting(call: Call) -> None:
    """The inputs stretch to the output's shape."""
    first, *others = call.every()
    call.put_out(0, broadcast([first, *others]))


def like_first(call: Call) -> None:
    """The first input and all outputs have one shape."""
    call.put_all(call.ins[0])
    for shape in call.outs:
        call.put_in(0, shape)


UNARY: dict[str, str] = {
    "relu": "relu", "sigmoid": "sigmoid", "hard_sigmoid": "hardsigmoid", "softsign": "softsign", "tanh": "tanh",
    "log_sigmoid": "logsigmoid", "mish": "mish", "softplus": "softplus", "silu": "silu", "gelu": "gelu",
    "exp": "exp", "expm1": "expm1", "log": "log", "log10": "log10", "log2": "log2", "log1p": "log1p",
    "sqrt": "sqrt", "rsqrt": "rsqrt", "cbrt": "cbrt", "rcbrt": "rsqrt", "square": "square", "abs": "abs", "absolute": "abs",
    "sign": "sign", "round": "round", "rint": "round", "ceil": "ceil", "floor": "floor", "trunc": "trunc", "fix": "trunc",
    "around": "round", "negative": "neg", "reciprocal": "reciprocal",
    "sin": "sin", "cos": "cos", "tan": "tan", "arcsin": "asin", "arccos": "acos", "arctan": "atan",
    "sinh": "sinh", "cosh": "cosh", "arcsinh": "asinh", "arccosh": "acosh", "arctanh": "atanh",
    "degrees": "rad2deg", "radians": "deg2rad", "rad2deg": "rad2deg", "deg2rad": "deg2rad",
    "erf": "erf", "erfinv": "erfinv", "gammaln": "lgamma", "digamma": "digamma",
    "logical_not": "logical", "bitwise_not": "bitwise", "invert": "bitwise", "nan_to_num": "nan_to_num",
    "smooth_l1": "smooth_l1",
}  # fmt: skip
"""Functions of one tensor by their name without prefix, in the words of our rules."""

TESTS: dict[str, str] = dict.fromkeys(("isnan", "isinf", "isfinite", "isposinf", "isneginf"), "nan_check")
"""Functions that answer true or false, in NumPy's dialect."""

BINARY: dict[str, str] = {
    "add": "add", "plus": "add", "sub": "sub", "minus": "sub", "subtract": "sub", "mul": "mul", "multiply": "mul",
    "div": "div", "true_divide": "div", "floor_divide": "floor_divide", "mod": "remainder", "fmod": "remainder",
    "power": "pow", "maximum": "max", "minimum": "min", "fmax": "max", "fmin": "min", "hypot": "hypot", "arctan2": "atan2",
    "copysign": "copysign", "ldexp": "ldexp", "lcm": "gcd", "gcd": "gcd", "logaddexp": "logaddexp",
    "bitwise_and": "bitwise", "bitwise_or": "bitwise", "bitwise_xor": "bitwise",
    "bitwise_left_shift": "shift", "bitwise_right_shift": "shift",
}  # fmt: skip
"""Functions of two tensors, or of a tensor and a number, by their name without prefix."""

COMPARE: dict[str, str] = {
    "equal": "compare", "not_equal": "compare", "greater": "compare", "greater_equal": "compare", "lesser": "compare",
    "lesser_equal": "compare", "less": "compare", "less_equal": "compare",
    "logical_and": "logical", "logical_or": "logical", "logical_xor": "logical",
}  # fmt: skip
"""The same with an answer of true or false: a float in MXNet's own operators, a truth value in NumPy's."""


def _fresh(names: Iterable[str], operator: Operator, taken: set[str]) -> None:
    """Register the names that are not registered yet: some functions go by the same name in several dialects."""
    new = [name for name in dict.fromkeys(names) if name not in taken]
    taken.update(new)
    register(new, operator)


def _register_unary(taken: set[str]) -> None:
    for name, fn in {**UNARY, **TESTS}.items():
        types: Infer = always_type("bool") if name in TESTS or fn == "logical" else same_types
        operator = Operator(same_shapes, elementwise(fn), types)
        plain = Operator(same_shapes, elementwise(fn))
        _fresh((name, f"_sparse_{name}"), plain, taken)
        _fresh((f"_npi_{name}", f"_np_{name}", f"_npx_{name}"), operator, taken)


def _register_binary(taken: set[str]) -> None:
    for name, fn in {**BINARY, **COMPARE}.items():
        translate = elementwise(fn)
        same = Operator(same_shapes, translate, slots=("lhs", "rhs"))
        stretched = Operator(broadcasting, translate, slots=("lhs", "rhs"))
        numpy_types = always_type("bool") if name in COMPARE else same_types
        numpy = Operator(broadcasting, translate, numpy_types, slots=("lhs", "rhs"))
        single = Operator(same_shapes, translate)
        numpy_single = Operator(same_shapes, translate, numpy_types)
        _fresh((f"elemwise_{name}", f"_sparse_elemwise_{name}", f"_{name}"), same, taken)
        _fresh((f"broadcast_{name}", f"_sparse_broadcast_{name}"), stretched, taken)
        _fresh((f"_npi_{name}",), numpy, taken)
        for reverse in ("", "r"):
            _fresh((f"_{reverse}{name}_scalar",), single, taken)
            _fresh((f"_npi_{reverse}{name}_scalar",), numpy_single, taken)


_ACTIVATIONS = {
    "relu": "relu", "sigmoid": "sigmoid", "softrelu": "softplus", "softsign": "softsign", "tanh": "tanh",
    "log_sigmoid": "logsigmoid", "mish": "mish", "silu": "silu",
}  # fmt: skip
_LEAKY = {
    "leaky": "leaky_relu", "elu": "elu", "selu": "selu", "gelu": "gelu", "gelu_erf": "gelu", "gelu_tanh": "gelu_tanh",
    "prelu": "prelu", "rrelu": "rrelu",
}  # fmt: skip


def activation(name: str) -> str:
    """The function of an `act_type`, in the words of our rules."""
    if name not in _ACTIVATIONS:
        raise AttributeFault(f"the act_type {name!r} is not known")
    return _ACTIVATIONS[name]


def _leaky(call: Call) -> None:
    like_first(call)
    x = call.ins[0]
    if call.attrs.text("act_type", "leaky") == "prelu" and x is not None and len(call.ins) > 1 and call.ins[1] is None:
        # The weight is one for each channel unless its variable says otherwise.
        call.put_in(1, (x[1] if len(x) > 1 else 1,))


def _leaked(call: Call) -> Translation:
    act = call.attrs.text("act_type", "leaky")
    if act not in _LEAKY:
        raise AttributeFault(f"the act_type {act!r} is not known")
    return elementwise(_LEAKY[act])


def _leaky_outputs(attrs: Attributes) -> int:
    return 2 if attrs.text("act_type", "leaky") == "rrelu" else 1


def _dropout(call: Call) -> Translation:
    """In use, dropout hands its input on."""
    drawn = call.training or call.attrs.text("mode", "training") == "always"
    return Translation("random", {"fn": "dropout"}) if drawn and call.attrs.number("p", 0.5) > 0 else VIEW


def _sum_of_all(call: Call) -> Translation:
    elements = (len(call.ins) - 1) * (product(call.y()) or 0)
    return elementwise("add", elements=elements)


def _where(call: Call) -> None:
    """A condition may be a vector that picks rows."""
    shape = merge(merge(call.ins[1], call.ins[2]), call.outs[0])
    for index in (1, 2):
        call.put_in(index, shape)
    call.put_out(0, shape)
    condition = call.ins[0]
    if shape is not None and (condition is None or len(condition) == len(shape)):
        call.put_in(0, shape)


_TAKEN: set[str] = set()
_register_unary(_TAKEN)
_register_binary(_TAKEN)

define("Activation _npx_activation", same_shapes, lambda c: elementwise(activation(c.attrs.text("act_type"))))
define("LeakyReLU _npx_leaky_relu", _leaky, _leaked, outputs=_leaky_outputs, slots="data gamma")
define("clip _npi_clip _sparse_clip", same_shapes, elementwise("clamp"))
define("_contrib_div_sqrt_dim _npx_div_sqrt_dim", same_shapes, elementwise("div"))
define("Dropout _npx_dropout", like_first, _dropout)
define("add_n ElementWiseSum _sparse_ElementWiseSum _sparse_add_n _npx_add_n", same_shapes, _sum_of_all)
define("_grad_add _scatter_elemwise_div", same_shapes, elementwise("add"))
define("_scatter_plus_scalar _scatter_minus_scalar", same_shapes, elementwise("add"))
define("where _sparse_where", _where, elementwise("where"), types_of(1, 2), slots="condition x y")
define("_npi_where", broadcasting, elementwise("where"), types_of(1, 2), slots="condition x y")
define("_npi_where_lscalar _npi_where_rscalar", broadcasting, elementwise("where"), types_of(1), slots="condition x")
define("_npi_where_scalar2", same_shapes, elementwise("where"), always_type("float32"))
define("_contrib_round_ste _sparse__contrib_round_ste _npx_round_ste", same_shapes, elementwise("round"))
define("_contrib_sign_ste _sparse__contrib_sign_ste _npx_sign_ste", same_shapes, elementwise("sign"))
define("gamma _sparse_gamma _npx_gamma", same_shapes, elementwise("lgamma"))
define("_contrib_quadratic _npx_quadratic", same_shapes, lambda c: elementwise("fma", elements=2 * prod(c.y())))
