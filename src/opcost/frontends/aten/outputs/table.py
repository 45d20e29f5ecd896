"""The table of result functions, the words they are written in, and results of plain operators."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import signature
from typing import Any, TypeAlias

from opcost.core.parsing import packaged_table
from opcost.core.shapes import broadcast
from opcost.frontends.aten.call import (
    UNKNOWN_VALUE,
    Call,
    Described,
    NotKnown,
    Tensor,
    complex_of,
    floating,
    is_integer,
    promoted,
    real_of,
    row_major,
    summed,
    type_name,
)

Outputs: TypeAlias = Callable[[Call], Iterable[Tensor]]
OUTPUTS: dict[str, Outputs] = {}  # By the name of an operator of aten, as its handler is registered


def on(*names: str) -> Callable[[Outputs], Outputs]:
    """Register what these operators of aten make."""

    def register(infer: Outputs) -> Outputs:
        for name in names:
            if name in OUTPUTS:
                raise ValueError(f"the results of {name} are given twice")
            OUTPUTS[name] = infer
        return infer

    return register


def on_each(table: Mapping[str, Callable[..., Any]]) -> None:
    """Register what operators make by a table; the names of several stand in one text.

    A row is a function of the arguments that it names, or of the whole `call`, and returns one tensor or several.
    """
    for names, formula in table.items():
        on(*names.split())(_by_name(formula))


def _by_name(formula: Callable[..., Any]) -> Outputs:
    needed = [*signature(formula).parameters]

    def infer(call: Call) -> Iterable[Tensor]:
        found = formula(*[call if name == "call" else call[name] for name in needed])
        return (found,) if isinstance(found, Tensor) else found

    return infer


def made(shape: Iterable[int], dtype: str) -> Described:
    """A new tensor, row by row."""
    extents = tuple(shape)
    if any(extent < 0 for extent in extents):
        raise ValueError(f"no tensor has the shape {extents}")
    return Described(extents, row_major(extents), dtype)


def like(x: Tensor, dtype: str = "") -> Described:
    """A new tensor of the shape of another, and of its type if none is given."""
    return made(x.shape, dtype or type_name(x))


def with_last(x: Tensor, *extents: int) -> Described:
    """A new tensor of the shape of another, but for the last axis."""
    return made((*x.shape[:-1], *extents), type_name(x))


def axis_of(x: Tensor, dim: int) -> int:
    """An axis counted from the front; a tensor without axes takes 0 and -1 all the same."""
    rank = max(x.dim(), 1)
    if not -rank <= dim < rank:
        raise ValueError(f"{dim} is not an axis of {x.dim()}")
    return dim % rank


def replaced(x: Tensor, dim: int, extent: int) -> tuple[int, ...]:
    """The shape with another extent along one axis."""
    axis = axis_of(x, dim)
    return tuple(extent if i == axis else n for i, n in enumerate(x.shape))


def only(values: Sequence[Any], mask: Sequence[Any]) -> tuple[Any, ...]:
    """The values that a mask asks for."""
    return tuple(value for value, wanted in zip(values, mask, strict=True) if wanted)


def default_type(call: Call, otherwise: str = "float32") -> str:
    """The requested type, or the default one."""
    return call.get("dtype") or otherwise


def first(call: Call) -> Tensor:
    """The first argument, which is a tensor."""
    value = call[next(iter(call.args))]
    if not isinstance(value, Tensor):
        raise NotKnown("a tensor")
    return value


# -- results like arguments: `results.json` names these for each list of operators, as `self self:int64`

_FIRST = "(first)"  # The first argument, whatever it is called


def _like(words: str) -> Outputs:
    """Results like the arguments of these names, of their types or of those behind the colon."""
    wanted = [word.partition(":") for word in words.split()]
    return lambda call: [like(first(call) if name == _FIRST else call[name], dtype) for name, _, dtype in wanted]


for _words, _names in packaged_table(__package__, "results.json").items():
    on(*_names)(_like(_words))


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


def elementwise(call: Call, fn: str) -> tuple[Tensor, ...]:
    """One result, as large as the operands together."""
    operands = [value for value in call.args.values() if isinstance(value, Tensor)]
    numbers = [call.args[name] for name in _NUMBERS if name in call.args]
    dtype = promoted(*operands, *(number for number in numbers if isinstance(number, (int, float, complex))))
    if fn in _TRUTHS:
        dtype = "bool"
    elif fn in _FLOATING:
        dtype = floating(dtype)
    elif UNKNOWN_VALUE in numbers and is_integer(dtype):
        raise NotKnown("whether the number that an integer meets is a whole one")
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


# -- results of reductions, running sums, sorting and selection


def left(x: Tensor, dims: Any, *, keep: bool) -> tuple[int, ...]:
    """The shape that is left when axes are reduced: one, several, or with None or an empty list all of them."""
    listed: Iterable[int] = (dims,) if isinstance(dims, int) else dims or range(x.dim())
    gone = {axis_of(x, dim) for dim in listed}
    return tuple(1 if axis in gone else n for axis, n in enumerate(x.shape) if keep or axis not in gone)


def _shape(call: Call) -> tuple[int, ...]:
    dims = call["dim"] if "dim" in call.args else None
    return left(call["self"], dims, keep=bool("keepdim" in call.args and call["keepdim"]))


def _to(dtype: str) -> Outputs:
    return lambda call: (made(_shape(call), dtype or type_name(call["self"])),)


@on("mean", "nanmean", "logsumexp")
def _mean(call: Call) -> tuple[Described, ...]:
    dtype = call.get("dtype") if "dtype" in call.args else None
    return (made(_shape(call), dtype or floating(type_name(call["self"]))),)


@on("var", "std", "norm", "linalg_vector_norm", "frobenius_norm", "linalg__powsum")
def _spread(call: Call) -> tuple[Described, ...]:
    dtype = call.get("dtype") if "dtype" in call.args else None
    return (made(_shape(call), real_of(dtype or floating(type_name(call["self"])))),)


on("amax", "amin")(_to(""))
on("argmax", "argmin", "count_nonzero")(_to("int64"))


@on("max", "min", "median", "nanmedian", "mode", "kthvalue")
def _extreme(call: Call) -> tuple[Described, ...]:
    """Of two tensors the larger elements; along an axis the largest and where it was; or the largest of all."""
    if "other" in call.args:
        return elementwise(call, "max")  # type: ignore[return-value]
    y = made(_shape(call), type_name(call["self"]))
    return (y, like(y, "int64")) if "dim" in call.args else (y,)


@on("searchsorted", "bucketize")
def _searched(call: Call) -> tuple[Described, ...]:
    dtype = "int32" if call["out_int32"] else "int64"
    values = call["self"]
    return (like(values, dtype) if isinstance(values, Tensor) else made((), dtype),)


@on("isin")
def _isin(call: Call) -> tuple[Described, ...]:
    elements = call.get("elements", "element")
    return (like(elements, "bool") if isinstance(elements, Tensor) else made((), "bool"),)


on_each(
    {
        "var_mean std_mean": lambda call, self: (
            made(_shape(call), real_of(type_name(self))),
            made(_shape(call), type_name(self)),
        ),
        # Of bytes they make bytes, as in the time before there were truths.
        "any all _is_any_true _is_all_true": lambda call, self: made(
            _shape(call), "uint8" if type_name(self) == "uint8" else "bool"
        ),
        "aminmax _aminmax": lambda call, self: [made(_shape(call), type_name(self))] * 2,
        "topk": lambda self, dim, k: (
            made(replaced(self, dim, k), type_name(self)),
            made(replaced(self, dim, k), "int64"),
        ),
        "sum nansum prod": lambda call: (made(_shape(call), default_type(call, summed(type_name(call["self"])))),),
        "trace": lambda call: (made((), summed(type_name(call["self"]))),),
        "dist": lambda call: (made((), real_of(type_name(call["self"]))),),
        "hash_tensor": lambda call: (made(_shape(call), "uint64"),),
        "histc": lambda call: (made((call["bins"],), type_name(call["self"])),),
        "cumsum cumprod": lambda call: (like(call["self"], default_type(call, summed(type_name(call["self"])))),),
        "logcumsumexp _logcumsumexp": lambda call: (like(call["self"], floating(type_name(call["self"]))),),
    }
)


# -- results of losses, distances and transforms


def _reduced(call: Call, each: Described) -> tuple[Described, ...]:
    """Each value, or with a reduction one number."""
    return (made((), type_name(each)) if call["reduction"] else each,)


@on(
    "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits",
    "soft_margin_loss",
)  # fmt: skip
def _pointwise(call: Call) -> tuple[Described, ...]:
    x, target = call["self"], call["target"]
    return _reduced(call, made(broadcast([x.shape, target.shape]), promoted(x, target)))


@on("multilabel_margin_loss_forward")
def _by_row(call: Call) -> tuple[Described, ...]:
    x = call["self"]
    return *_reduced(call, made(x.shape[:-1], type_name(x))), like(call["target"], type_name(x))


@on("nll_loss_forward", "nll_loss2d_forward")
def _nll(call: Call) -> tuple[Described, ...]:
    """The loss, and the sum of the weights, by which a mean is divided."""
    dtype = type_name(call["self"])
    return *_reduced(call, made(call["target"].shape, dtype)), made((), dtype)


@on("_fft_r2c")
def _from_real(call: Call) -> tuple[Described, ...]:
    """Of a real signal half of the spectrum says all."""
    x, last = call["self"], call["dim"][-1]
    shape = replaced(x, last, x.shape[last] // 2 + 1) if call["onesided"] else tuple(x.shape)
    return (made(shape, complex_of(type_name(x))),)


on_each(
    {
        "multi_margin_loss": lambda call: _reduced(call, made(call["target"].shape, type_name(call["self"]))),
        "cdist _cdist_forward _euclidean_dist": lambda x1, x2: made(
            (*broadcast([x1.shape[:-2], x2.shape[:-2]]), x1.shape[-2], x2.shape[-2]), type_name(x1)
        ),
        "_cdist_backward": lambda x1, x2: made(
            (*broadcast([x1.shape[:-2], x2.shape[:-2]]), *x1.shape[-2:]), type_name(x1)
        ),
        "pdist _pdist_forward": lambda self: made((self.shape[0] * (self.shape[0] - 1) // 2,), type_name(self)),
        "_fft_c2r": lambda self, dim, last_dim_size: made(
            replaced(self, dim[-1], last_dim_size), real_of(type_name(self))
        ),
    }
)
