"""Reductions along axes, running sums, moments."""

from __future__ import annotations

from collections.abc import Sequence

from opcost.frontends.mxnet.attribute import Attributes
from opcost.frontends.mxnet.ops.elementwise import same_shapes
from opcost.frontends.mxnet.ops.table import (
    Call,
    Infer,
    Operator,
    Translation,
    always,
    always_type,
    output_type,
    register,
    same_types,
)
from opcost.frontends.mxnet.shape import Extent, Mismatch, Shape, axis_of, show

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


def _axes(text: tuple[int, ...] | None, rank: int, *, exclude: bool = False) -> tuple[int, ...]:
    """The axes that go away; none named means all of them."""
    if not text:
        return tuple(range(rank))
    named = {axis_of(axis, rank) for axis in text}
    return tuple(axis for axis in range(rank) if (axis in named) != exclude)


def reduced(x: Sequence[Extent], axes: tuple[int, ...], *, keepdims: bool, least: tuple[int, ...]) -> Shape:
    """What is left of a shape; `least` where nothing is."""
    if keepdims:
        return tuple(1 if axis in axes else extent for axis, extent in enumerate(x))
    return tuple(extent for axis, extent in enumerate(x) if axis not in axes) or least


def _legacy(call: Call) -> None:
    x = call.ins[0]
    if x is None:
        return
    axis = call.attrs.maybe_integers("axis")
    axes = _axes(axis, len(x), exclude=call.attrs.flag("exclude"))
    call.put_out(0, reduced(x, axes, keepdims=call.attrs.flag("keepdims"), least=(1,)))


def _numpy(call: Call) -> None:
    x = call.ins[0]
    if x is not None:
        axes = _axes(call.attrs.maybe_integers("axis"), len(x))
        for index in range(len(call.outs)):
            call.put_out(index, reduced(x, axes, keepdims=call.attrs.flag("keepdims"), least=()))


def _one_axis(least: tuple[int, ...]) -> Infer:
    """A reduction along one axis, or over all, which leaves a tensor of the shape `least`."""

    def infer(call: Call) -> None:
        x = call.ins[0]
        if x is not None:
            axis = call.attrs.maybe_integer("axis")
            axes = tuple(range(len(x))) if axis is None else (axis_of(axis, len(x)),)
            call.put_out(0, reduced(x, axes, keepdims=call.attrs.flag("keepdims"), least=least))

    return infer


def _argmax_channel(call: Call) -> None:
    x = call.ins[0]
    if x is not None:
        call.put_out(0, x[:-1] or (1,))


def _moments(call: Call) -> None:
    x = call.ins[0]
    if x is not None:
        shape = reduced(
            x, _axes(call.attrs.maybe_integers("axes"), len(x)), keepdims=call.attrs.flag("keepdims"), least=(1,)
        )
        call.put_out(0, shape)
        call.put_out(1, shape)


def _cumulative(call: Call) -> None:
    x = call.ins[0]
    if "axis" in call.attrs or (x is not None and len(x) == 1):
        same_shapes(call)
    elif x is not None and None not in x:
        elements = 1
        for extent in x:
            elements *= extent or 0
        call.put_out(0, (elements,))


def _average(call: Call) -> None:
    """The mean with weights, and where asked for their sum."""
    _numpy(call)
    x = call.ins[0]
    if len(call.ins) > 1 and x is not None and call.ins[1] is not None and len(call.ins[1]) > len(x):
        raise Mismatch(f"weights of {show(call.ins[1])} do not fit {show(x)}")


def _average_outputs(attrs: Attributes) -> int:
    return 2 if attrs.flag("returned") else 1


def _fn(fn: str) -> Translation:
    return Translation("reduce", {"fn": fn})


def _register() -> None:
    for name, fn in LEGACY.items():
        register((name,), Operator(_legacy, always(_fn(fn))))
    for name, fn in NUMPY.items():
        types: Infer = always_type("bool") if fn in ("all", "any") else output_type("dtype")
        register((f"_np_{name}", f"_npi_{name}"), Operator(_numpy, always(_fn(fn)), types))
    register(("norm", "_sparse_norm", "_npx_norm"), Operator(_legacy, always(_fn("norm")), output_type("out_dtype")))
    register(("_npi_norm",), Operator(_numpy, always(_fn("norm"))))
    for fn in ("argmax", "argmin"):
        register((fn,), Operator(_one_axis((1,)), always(_fn(fn))))
        register((f"_npi_{fn}",), Operator(_one_axis(()), always(_fn(fn)), always_type("int64")))
    register(("argmax_channel",), Operator(_argmax_channel, always(_fn("argmax"))))
    register(("moments",), Operator(_moments, always(_fn("var_mean")), same_types, 2))
    register(
        ("_np_cumsum", "cumsum", "_npi_cumsum"), Operator(_cumulative, always(_fn("cumsum")), output_type("dtype"))
    )
    register(
        ("_npi_average",), Operator(_average, always(_fn("mean")), outputs=_average_outputs, slots=("a", "weights"))
    )


_register()
