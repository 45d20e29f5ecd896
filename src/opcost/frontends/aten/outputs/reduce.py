"""Results of reductions, running sums, sorting and selection."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from opcost.frontends.aten.call import Call
from opcost.frontends.aten.outputs.table import Outputs, axis_of, default_type, like, made, on, on_each, replaced
from opcost.frontends.aten.promotion import floating, real_of, summed
from opcost.frontends.aten.tensor import Described, Tensor, type_name


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


@on("var_mean", "std_mean")
def _with_mean(call: Call) -> tuple[Described, ...]:
    x, shape = type_name(call["self"]), _shape(call)
    return made(shape, real_of(x)), made(shape, x)


on("amax", "amin")(_to(""))
on("argmax", "argmin", "count_nonzero")(_to("int64"))


@on("any", "all", "_is_any_true", "_is_all_true")
def _truth(call: Call) -> tuple[Described, ...]:
    """Of bytes they make bytes, as in the time before there were truths."""
    return (made(_shape(call), "uint8" if type_name(call["self"]) == "uint8" else "bool"),)


@on("max", "min", "median", "nanmedian", "mode", "kthvalue")
def _extreme(call: Call) -> tuple[Described, ...]:
    """Of two tensors the larger elements; along an axis the largest and where it was; or the largest of all."""
    from opcost.frontends.aten.outputs.elementwise import elementwise

    if "other" in call.args:
        return elementwise(call, "max")  # type: ignore[return-value]
    y = made(_shape(call), type_name(call["self"]))
    return (y, like(y, "int64")) if "dim" in call.args else (y,)


@on("aminmax", "_aminmax")
def _both_extremes(call: Call) -> tuple[Described, ...]:
    y = made(_shape(call), type_name(call["self"]))
    return y, like(y)


@on("topk")
def _topk(call: Call) -> tuple[Described, ...]:
    y = made(replaced(call["self"], call["dim"], call["k"]), type_name(call["self"]))
    return y, like(y, "int64")


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
        "sum nansum prod": lambda call: (made(_shape(call), default_type(call, summed(type_name(call["self"])))),),
        "trace": lambda call: (made((), summed(type_name(call["self"]))),),
        "dist": lambda call: (made((), real_of(type_name(call["self"]))),),
        "hash_tensor": lambda call: (made(_shape(call), "uint64"),),
        "histc": lambda call: (made((call["bins"],), type_name(call["self"])),),
        "cumsum cumprod": lambda call: (like(call["self"], default_type(call, summed(type_name(call["self"])))),),
        "logcumsumexp _logcumsumexp": lambda call: (like(call["self"], floating(type_name(call["self"]))),),
    }
)
