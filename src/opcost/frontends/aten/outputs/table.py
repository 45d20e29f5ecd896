"""The table of results, the words they are written in, and results of plain operators."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from opcost.core.parsing import packaged_table
from opcost.core.shapes import broadcast
from opcost.frontends.aten.call import (
    UNKNOWN_VALUE,
    AtenCall,
    AtenTable,
    AtenTensor,
    Described,
    NotKnown,
    complex_of,
    floating,
    is_integer,
    promoted,
    real_of,
    row_major,
    summed,
    type_name,
)

Results: TypeAlias = "AtenTensor | Iterable[AtenTensor]"
OUTPUTS: AtenTable[Results] = AtenTable()  # By the name of an operator of aten, as its handler is registered


def made_by(table: Mapping[str, Callable[[AtenCall], Results]], call: AtenCall) -> tuple[AtenTensor, ...] | None:
    """The results of a call; None where its operator is not in the table."""
    function = table.get(call.base)
    if function is None:
        return None
    found = function(call)
    return (found,) if isinstance(found, AtenTensor) else tuple(found)


def made(shape: Iterable[Any], dtype: str | AtenTensor) -> Described:
    """A new tensor, row by row, of a type or of that of another tensor."""
    extents = tuple(shape)
    if any(extent < 0 for extent in extents):
        raise ValueError(f"no tensor has the shape {extents}")
    return Described(extents, row_major(extents), dtype if isinstance(dtype, str) else type_name(dtype))


def like(x: AtenTensor, dtype: str = "") -> Described:
    """A new tensor of the shape of another, and of its type if none is given."""
    return made(x.shape, dtype or x)


def axis_of(x: AtenTensor, dim: int) -> int:
    """An axis counted from the front; a tensor without axes takes 0 and -1 all the same."""
    rank = max(x.dim(), 1)
    if not -rank <= dim < rank:
        raise ValueError(f"{dim} is not an axis of {x.dim()}")
    return dim % rank


def replaced(x: AtenTensor, dim: int, extent: int) -> tuple[int, ...]:
    """The shape with another extent along one axis."""
    axis = axis_of(x, dim)
    return tuple(extent if i == axis else n for i, n in enumerate(x.shape))


def only(values: Sequence[Any], mask: Sequence[Any]) -> tuple[Any, ...]:
    """The values that a mask requests."""
    return tuple(value for value, wanted in zip(values, mask, strict=True) if wanted)


# -- results like arguments: `results.json` names these for each list of operators, as `self self:int64`


def _like(words: str) -> Callable[[AtenCall], Results]:
    """Results like the arguments of these names, of their types or of those behind the colon."""
    wanted = [word.partition(":") for word in words.split()]
    return lambda call: [like(_first(call) if name == "(first)" else call[name], dtype) for name, _, dtype in wanted]


def _first(call: AtenCall) -> AtenTensor:
    """The first argument, which is a tensor."""
    value = call[next(iter(call.args))]
    if not isinstance(value, AtenTensor):
        raise NotKnown("a tensor")
    return value


for _words, _names in packaged_table(__package__, "results.json").items():
    OUTPUTS.on(*_names)(_like(_words))


# -- results of arithmetic element by element: the common shape, and a type that depends on the function

_TRUTHS = frozenset({"compare", "logical", "nan_check"})
_REAL = frozenset({"abs", "angle"})  # Of complex numbers they make real ones
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


def elementwise(call: AtenCall, fn: str = "") -> Described:
    """One result, as large as the operands together."""
    operands = [value for value in call.args.values() if isinstance(value, AtenTensor)]
    numbers = [call.args[name] for name in _NUMBERS if name in call.args]
    dtype = promoted(*operands, *(number for number in numbers if isinstance(number, (int, float, complex))))
    if fn in _TRUTHS:
        dtype = "bool"
    elif fn in _FLOATING:
        dtype = floating(dtype)
    elif is_integer(dtype) and any(number is UNKNOWN_VALUE for number in numbers):
        raise NotKnown("whether the number that an integer meets is a whole one")
    return together(*operands, dtype=real_of(dtype) if fn in _REAL else dtype)


def together(*operands: Any, dtype: str | AtenTensor) -> Described:
    """A result of the common shape of the tensors among these."""
    return made(broadcast([operand.shape for operand in operands if isinstance(operand, AtenTensor)]), dtype)


def _float_power(call: AtenCall) -> Described:
    y = elementwise(call)
    return like(y, "complex128" if type_name(y).startswith("complex") else "float64")


OUTPUTS.rows(
    {
        "add sub rsub subtract pow clamp clip gelu gelu_backward clamp_min clamp_max": lambda call: elementwise(call),
        "div divide": lambda call: elementwise(call, "div" if call.get("rounding_mode") is None else "floor_divide"),
        "float_power": _float_power,
        # the condition takes part in the shape alone
        "where": lambda condition, self, other: together(condition, self, other, dtype=promoted(self, other)),
        "lerp": lambda call, self: together(*call.args.values(), dtype=self),
        "glu": lambda self, dim: made(replaced(self, dim, self.shape[axis_of(self, dim)] // 2), self),
        # the second result is a buffer that only the CPU fills
        "log_sigmoid_forward": lambda self: (like(self), like(self)),
        "masked_fill": lambda self, mask: together(self, mask, dtype=self),
        "polar": lambda abs, angle: together(abs, angle, dtype=complex_of(type_name(abs))),
        "complex": lambda real, imag: together(real, imag, dtype=complex_of(type_name(real))),
    }
)


# -- results of reductions, running sums, sorting and selection


def left(call: AtenCall) -> tuple[int, ...]:
    """The shape that is left when axes are reduced: one, several, or with None or an empty list all of them."""
    x, dims = call["self"], call["dim"] if "dim" in call.args else None
    keep = "keepdim" in call.args and call["keepdim"]
    listed: Iterable[int] = (dims,) if isinstance(dims, int) else dims or range(x.dim())
    gone = {axis_of(x, dim) for dim in listed}
    return tuple(1 if axis in gone else n for axis, n in enumerate(x.shape) if keep or axis not in gone)


def _extreme(call: AtenCall) -> Results:
    """Of two tensors the larger elements; along an axis the largest and where it was; or the largest of all."""
    if "other" in call.args:
        return elementwise(call, "max")
    y = made(left(call), call["self"])
    return (y, like(y, "int64")) if "dim" in call.args else y


def _found(values: Any, dtype: str) -> Described:
    """One answer for each value that is searched; a number is a single one."""
    return like(values, dtype) if isinstance(values, AtenTensor) else made((), dtype)


OUTPUTS.rows(
    {
        "mean nanmean logsumexp": lambda call, self, dtype=None: made(left(call), dtype or floating(type_name(self))),
        "var std norm linalg_vector_norm frobenius_norm linalg__powsum":
            lambda call, self, dtype=None: made(left(call), real_of(dtype or floating(type_name(self)))),
        "amax amin": lambda call, self: made(left(call), self),
        "argmax argmin count_nonzero": lambda call: made(left(call), "int64"),
        "max min median nanmedian mode kthvalue": _extreme,
        "searchsorted bucketize": lambda self, out_int32: _found(self, "int32" if out_int32 else "int64"),
        "isin": lambda call: _found(call.get("elements", "element"), "bool"),
        "var_mean std_mean":
            lambda call, self: (made(left(call), real_of(type_name(self))), made(left(call), self)),
        # of bytes they make bytes, as in the time before there were truths
        "any all _is_any_true _is_all_true":
            lambda call, self: made(left(call), "uint8" if type_name(self) == "uint8" else "bool"),
        "aminmax _aminmax": lambda call, self: [made(left(call), self)] * 2,
        "topk": lambda self, dim, k: (made(replaced(self, dim, k), self), made(replaced(self, dim, k), "int64")),
        "sum nansum prod": lambda call, self, dtype=None: made(left(call), dtype or summed(type_name(self))),
        "trace": lambda self: made((), summed(type_name(self))),
        "dist": lambda self: made((), real_of(type_name(self))),
        "hash_tensor": lambda call: made(left(call), "uint64"),
        "histc": lambda self, bins: made((bins,), self),
        "cumsum cumprod": lambda self, dtype=None: like(self, dtype or summed(type_name(self))),
        "logcumsumexp _logcumsumexp": lambda self: like(self, floating(type_name(self))),
    }
)  # fmt: skip


# -- results of losses, distances and transforms


def _reduced(reduction: int, each: Described) -> Described:
    """Each value, or with a reduction one number."""
    return made((), each) if reduction else each


def _pairs(x1: AtenTensor, x2: AtenTensor, *last: int) -> Described:
    return made((*broadcast([x1.shape[:-2], x2.shape[:-2]]), *last), x1)


def _from_real(self: AtenTensor, dim: Sequence[int], onesided: Any) -> Described:
    """Of a real signal half of the spectrum says all."""
    shape = replaced(self, dim[-1], self.shape[dim[-1]] // 2 + 1) if onesided else self.shape
    return made(shape, complex_of(type_name(self)))


OUTPUTS.rows(
    {
        "mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy binary_cross_entropy_with_logits "
        "soft_margin_loss":
            lambda self, target, reduction: _reduced(reduction, together(self, target, dtype=promoted(self, target))),
        "multi_margin_loss": lambda self, target, reduction: _reduced(reduction, made(target.shape, self)),
        "multilabel_margin_loss_forward": lambda self, target, reduction: (
            _reduced(reduction, made(self.shape[:-1], self)), like(target, type_name(self)),
        ),
        # the loss, and the sum of the weights, by which a mean is divided
        "nll_loss_forward nll_loss2d_forward":
            lambda self, target, reduction: (_reduced(reduction, made(target.shape, self)), made((), self)),
        "cdist _cdist_forward _euclidean_dist": lambda x1, x2: _pairs(x1, x2, x1.shape[-2], x2.shape[-2]),
        "_cdist_backward": lambda x1, x2: _pairs(x1, x2, *x1.shape[-2:]),
        "pdist _pdist_forward": lambda self: made((self.shape[0] * (self.shape[0] - 1) // 2,), self),
        "_fft_r2c": _from_real,
        "_fft_c2r": lambda self, dim, last_dim_size: made(
            replaced(self, dim[-1], last_dim_size), real_of(type_name(self)),
        ),
    }
)  # fmt: skip
