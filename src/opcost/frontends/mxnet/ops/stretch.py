"""Elements repeated along axes."""

from __future__ import annotations

from opcost.frontends.mxnet.ops.table import COPY, Call, Operator, Translation, always, register, types_of
from opcost.frontends.mxnet.shape import Mismatch, axis_of, broadcast, product, replaced, show

_FIRST_ONLY = Translation("copy", {}, (0,))
"""The other input lends only its shape."""


def _tile(call: Call) -> None:
    x = call.ins[0]
    if x is None:
        return
    reps = call.attrs.integers("reps")
    rank = max(len(x), len(reps))
    source, times = (*(1,) * (rank - len(x)), *x), (*(1,) * (rank - len(reps)), *reps)
    call.put_out(0, tuple(None if n is None else n * r for n, r in zip(source, times, strict=True)))


def _repeat(call: Call) -> None:
    x = call.ins[0]
    if x is None:
        return
    times = call.attrs.integer("repeats")
    axis = call.attrs.maybe_integer("axis")
    if axis is None:
        elements = product(x)
        call.put_out(0, (None if elements is None else elements * times,))
    else:
        along = axis_of(axis, len(x))
        extent = x[along]
        call.put_out(0, replaced(x, along, None if extent is None else extent * times))


def _broadcast_to(call: Call) -> None:
    """0 in the target keeps an extent, but in NumPy's dialect, which aligns the last axes."""
    x = call.ins[0]
    if x is None:
        return
    target = call.attrs.integers("shape", ())
    if len(target) == len(x):
        shape = tuple(mine if to == 0 else to for mine, to in zip(x, target, strict=True))
        call.put_out(0, broadcast([x, shape]))
    elif len(target) > len(x):
        call.put_out(0, broadcast([x, target]))
    else:
        raise Mismatch(f"{show(x)} cannot be stretched to {show(target)}")


def _broadcast_axis(call: Call) -> None:
    x = call.ins[0]
    if x is None:
        return
    y = list(x)
    for axis, size in zip(call.attrs.integers("axis", ()), call.attrs.integers("size", ()), strict=True):
        along = axis_of(axis, len(x))
        if y[along] not in (1, None):
            raise Mismatch(f"axis {axis} of {show(x)} is not of extent 1")
        y[along] = size
    call.put_out(0, tuple(y))


def _broadcast_like(call: Call) -> None:
    x, like = call.ins
    if x is None or like is None:
        return
    mine, other = call.attrs.maybe_integers("lhs_axes"), call.attrs.maybe_integers("rhs_axes")
    if mine is None or other is None:
        call.put_out(0, like)
        return
    y = list(x)
    for axis, source in zip(mine, other, strict=True):
        y[axis_of(axis, len(x))] = like[axis_of(source, len(like))]
    call.put_out(0, tuple(y))


register(("tile", "_npi_tile"), Operator(_tile, always(COPY)))
register(("repeat", "_np_repeat", "_npi_repeat", "_npi_repeats"), Operator(_repeat, always(COPY)))
register(("broadcast_to", "_npi_broadcast_to"), Operator(_broadcast_to, always(COPY)))
register(("broadcast_axis", "broadcast_axes"), Operator(_broadcast_axis, always(COPY)))
register(
    ("broadcast_like", "_npx_broadcast_like"),
    Operator(_broadcast_like, always(_FIRST_ONLY), types_of(0), slots=("lhs", "like")),
)
