"""Reductions along axes, running sums, moments."""

from __future__ import annotations

from opcost.core.shapes import Dims, Mismatch, axes_of, product, reduced, text
from opcost.frontends.mxnet.attribute import Attributes
from opcost.frontends.mxnet.ops.elementwise import same_shapes
from opcost.frontends.mxnet.ops.table import (
    Call,
    Infer,
    Translation,
    always_type,
    define,
    output_type,
    same_types,
)

LEGACY: dict[str, str] = {
    "sum": "sum", "sum_axis": "sum", "_sparse_sum": "sum", "mean": "mean", "_sparse_mean": "mean", "prod": "prod",
    "nansum": "nansum", "nanprod": "nansum", "max": "max", "max_axis": "max", "min": "min", "min_axis": "min",
    "_square_sum": "dot",
}  # fmt: skip
"""MXNet's own reductions over any axes; all of them together leave a tensor of one element."""

NUMPY: dict[str, str] = {
    "sum": "sum", "mean": "mean", "prod": "prod", "product": "prod", "max": "max", "amax": "max", "min": "min",
    "amin": "min", "all": "all", "any": "any", "sometrue": "any", "std": "std", "var": "var",
}  # fmt: skip


def _left(call: Call, name: str = "axis") -> Dims:
    """What is left of the first input; no axis named means all of them, and those named may be the ones that stay."""
    x = call.dims(0)
    axes = call.attrs.maybe_integers(name) or None
    if axes and call.attrs.flag("exclude"):
        kept = axes_of(axes, len(x))
        axes = tuple(axis for axis in range(len(x)) if axis not in kept)
    return reduced(x, axes, keepdims=call.attrs.flag("keepdims"))


def _legacy(call: Call) -> None:
    call.put_out(0, _left(call) or (1,))


def _numpy(call: Call) -> None:
    call.put_all(_left(call))


def _argmax_channel(call: Call) -> None:
    call.put_out(0, call.dims(0)[:-1] or (1,))


def _moments(call: Call) -> None:
    call.put_all(_left(call, "axes") or (1,))


def _cumulative(call: Call) -> None:
    x = call.ins[0]
    if "axis" in call.attrs or (x is not None and len(x) == 1):
        same_shapes(call)
    else:
        call.put_out(0, (product(call.dims(0)),))


def _average(call: Call) -> None:
    """The mean with weights, and where asked for their sum."""
    _numpy(call)
    x = call.ins[0]
    if len(call.ins) > 1 and x is not None and call.ins[1] is not None and len(call.ins[1]) > len(x):
        raise Mismatch(f"weights of {text(call.ins[1])} do not fit {text(x)}")


def _average_outputs(attrs: Attributes) -> int:
    return 2 if attrs.flag("returned") else 1


def _fn(fn: str) -> Translation:
    return Translation("reduce", {"fn": fn})


def _register() -> None:
    for name, fn in LEGACY.items():
        define((name,), _legacy, _fn(fn))
    for name, fn in NUMPY.items():
        types: Infer = always_type("bool") if fn in ("all", "any") else output_type("dtype")
        define((f"_np_{name}", f"_npi_{name}"), _numpy, _fn(fn), types)
    define("norm _sparse_norm _npx_norm", _legacy, _fn("norm"), output_type("out_dtype"))
    define("_npi_norm", _numpy, _fn("norm"))
    for fn in ("argmax", "argmin"):
        define((fn,), _legacy, _fn(fn))
        define((f"_npi_{fn}",), _numpy, _fn(fn), always_type("int64"))
    define("argmax_channel", _argmax_channel, _fn("argmax"))
    define("moments", _moments, _fn("var_mean"), same_types, 2)
    define("_np_cumsum cumsum _npi_cumsum", _cumulative, _fn("cumsum"), output_type("dtype"))
    define("_npi_average", _average, _fn("mean"), outputs=_average_outputs, slots="a weights")


_register()
