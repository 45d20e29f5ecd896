"""Elements repeated along axes."""

from __future__ import annotations

from opcost.core.shapes import Dims, Mismatch, axis_of, expanded, repeated, text, tiled
from opcost.frontends.mxnet.ops.table import COPY, Call, Translation, define, types_of

_FIRST_ONLY = Translation("copy", {}, (0,))
"""The other input lends only its shape."""


def _tile(call: Call) -> None:
    call.put_out(0, tiled(call.dims(0), call.attrs.integers("reps")))


def _repeat(call: Call) -> None:
    call.put_out(0, repeated(call.dims(0), call.attrs.integer("repeats"), call.attrs.maybe_integer("axis")))


def _broadcast_to(call: Call) -> None:
    """0 in the target keeps an extent, but in NumPy's dialect, which aligns the last axes."""
    x = call.dims(0)
    target: Dims = call.attrs.integers("shape", ())
    if len(target) == len(x):
        target = tuple(mine if to == 0 else to for mine, to in zip(x, target, strict=True))
    call.put_out(0, expanded(x, target))


def _broadcast_axis(call: Call) -> None:
    x = call.dims(0)
    y = list(x)
    for axis, size in zip(call.attrs.integers("axis", ()), call.attrs.integers("size", ()), strict=True):
        along = axis_of(axis, len(x))
        if y[along] not in (1, None):
            raise Mismatch(f"axis {axis} of {text(x)} is not of extent 1")
        y[along] = size
    call.put_out(0, tuple(y))


def _broadcast_like(call: Call) -> None:
    x, like = call.every()
    mine, other = call.attrs.maybe_integers("lhs_axes"), call.attrs.maybe_integers("rhs_axes")
    if mine is None or other is None:
        call.put_out(0, like)
        return
    y = list(x)
    for axis, source in zip(mine, other, strict=True):
        y[axis_of(axis, len(x))] = like[axis_of(source, len(like))]
    call.put_out(0, tuple(y))


define("tile _npi_tile", _tile, COPY)
define("repeat _np_repeat _npi_repeat _npi_repeats", _repeat, COPY)
define("broadcast_to _npi_broadcast_to", _broadcast_to, COPY)
define("broadcast_axis broadcast_axes", _broadcast_axis, COPY)
define("broadcast_like _npx_broadcast_like", _broadcast_like, _FIRST_ONLY, types_of(0), slots="lhs like")
