"""What nodes of every format do: shapes, and the contents from which models compute shapes, are worked out once."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from opcost.core.graph import NO_ATTRS
from opcost.core.shapes import (
    Dims,
    Extent,
    Shape,
    axis_of,
    broadcast,
    concat,
    gathered,
    known,
    permuted,
    replaced,
    slice_length,
)
from opcost.frontends.nodes import content
from opcost.frontends.nodes.call import Made, Meaning, Out, fitting, numel
from opcost.frontends.nodes.model import MOST_CONTENT, Content, Number

_MOST_COMPUTED = 1024
"""Elements that are worked out one by one."""

# -- functions of each element -------------------------------------------------------------------------------------------


def _divide(a: Any, b: Any) -> Any:
    """As machines do: a quotient of whole numbers is cut towards zero."""
    if isinstance(a, int) and isinstance(b, int):
        return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    return a / b


def _power(a: Any, b: Any) -> Any:
    if isinstance(a, int) and isinstance(b, int) and abs(a) > 1 and b > 64:
        raise OverflowError("the power has more than 64 bits")
    return a**b


COMPUTED: dict[str, Callable[..., Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": _divide, "mod": operator.mod, "pow": _power,
    "floordiv": operator.floordiv, "min": min, "max": max, "neg": operator.neg, "abs": abs,
    "ceil": lambda x: float(math.ceil(x)), "floor": lambda x: float(math.floor(x)), "round": lambda x: float(round(x)),
    "sqrt": math.sqrt, "equal": operator.eq, "notequal": operator.ne, "greater": operator.gt, "less": operator.lt,
    "greaterorequal": operator.ge, "lessorequal": operator.le, "and": lambda a, b: bool(a and b), "or": lambda a, b: bool(a or b),
    "not": operator.not_, "sum": lambda *all: sum(all), "sign": lambda x: (x > 0) - (x < 0),
    "where": lambda chosen, a, b: a if chosen else b,
}  # fmt: skip
"""Functions that models apply to small contents."""


def computed(name: str, ins: Sequence[Made], shape: Shape) -> list[Number] | None:
    """The elements of a small result, None where one is not known."""
    function = COMPUTED.get(name)
    if function is None or shape is None or None in shape or not all(made.content for made in ins):
        return None
    if numel(shape) > _MOST_COMPUTED:
        return None
    columns = [content.stretched(made.content, known(shape)).items for made in ins if made.content]
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


def pointwise(fn: str, ins: Sequence[Made], function: str = "", dtype: str = "") -> Meaning:
    """A function of each element of inputs that are stretched to each other; `function` says how contents are computed."""
    shape = common(ins)
    found = fitting(shape, computed(function, ins, shape))
    return Meaning("elementwise", {"fn": fn}, [Out(shape, dtype or ins[0].dtype, found)], ins)


def converted(x: Made, dtype: str) -> Meaning:
    """The elements as another type."""
    found = x.content
    if found is not None and dtype.startswith(("int", "uint")):
        found = Content(
            found.shape, tuple([None if n is None or not math.isfinite(n) else int(n) for n in found.items])
        )
    elif found is not None and dtype == "bool":
        found = Content(found.shape, tuple([None if n is None else bool(n) for n in found.items]))
    return Meaning("copy", NO_ATTRS, [Out(x.shape, dtype, found)], [x])


# -- elements in other shapes and places ---------------------------------------------------------------------------------


def copied(x: Made, shape: Shape, found: Content | None = None) -> Meaning:
    """Elements of one tensor, moved into another shape."""
    return Meaning("copy", NO_ATTRS, [Out(shape, x.dtype, found)], [x])


def viewed(x: Made, shape: Shape) -> Meaning:
    """The same memory with another shape."""
    found = fitting(shape, x.content.items if x.content else None)
    return Meaning("view", NO_ATTRS, [Out(shape, x.dtype, found, x)], [x])


def turned(x: Made, order: Sequence[int]) -> Meaning:
    """The axes in another order."""
    return copied(x, permuted(x.dims, order), content.permuted(x.content, order) if x.content else None)


def joined(parts: Sequence[Made], axis: int) -> Meaning:
    """Tensors one behind the other along an axis."""
    if any(made.shape is None for made in parts):
        return Meaning("copy", NO_ATTRS, [Out(None, parts[0].dtype)], parts)
    shape = concat([made.dims for made in parts], axis)
    found = None
    if any(made.content for made in parts) and None not in shape and numel(shape) <= MOST_CONTENT:
        known_parts = [made.content or content.unknown(known(made.shape)) for made in parts]
        found = content.joined(filter(None, known_parts), axis_of(axis, len(shape)))
    return Meaning("copy", NO_ATTRS, [Out(shape, parts[0].dtype, found)], parts)


def divided(x: Made, axis: int, lengths: Sequence[Extent]) -> Meaning:
    """Pieces of so many elements along an axis."""
    outs, begin = [], 0
    for length in lengths:
        part = content.taken(x.content, axis, range(begin, begin + (length or 0))) if x.content else None
        outs.append(Out(replaced(x.dims, axis, length), x.dtype, part))
        begin += length or 0
    return Meaning("copy", NO_ATTRS, outs, [x])


def sliced(
    x: Made, axes: Sequence[int], begins: Sequence[int | None], ends: Sequence[int | None], steps: Sequence[int | None]
) -> Meaning:
    """Every so manieth element between two places along some axes, by Python's rules."""
    shape, found = x.dims, x.content
    for axis, begin, end, step in zip(axes, begins, ends, steps, strict=True):
        extent = shape[axis]
        shape = replaced(shape, axis, slice_length(extent, begin, end, step))
        if found is not None and extent is not None:
            found = content.taken(found, axis, range(extent)[begin:end:step])
    return copied(x, shape, found)


class Cut(NamedTuple):
    """What is taken of one axis: from one place to another, all unless told; `sure`: the places are known, or left open."""

    begin: int | None = None
    end: int | None = None
    step: int | None = 1
    sure: bool = True
    gone: bool = False
    """One element is taken, at `begin`, and the axis goes."""


def cut(x: Made, cuts: Sequence[Cut]) -> Out:
    """The part of a tensor that lies between places along its first axes; an axis of which a place is not known is open."""
    out = Out(x.dims, x.dtype, x.content)
    for axis, each in enumerate(cuts):
        if not each.sure and not each.gone:
            out = Out(replaced(out.shape or (), axis, None), x.dtype)
            continue
        end = None if each.gone and each.begin in (None, -1) else (each.begin or 0) + 1 if each.gone else each.end
        here = Made(x.value, out.shape, x.dtype, out.content)
        out = sliced(here, [axis], [each.begin], [end], [1 if each.gone else each.step]).outs[0]
    gone = {axis for axis, each in enumerate(cuts) if each.gone}
    shape = tuple(extent for axis, extent in enumerate(out.shape or ()) if axis not in gone)
    sure = all(each.sure for each in cuts)
    return Out(shape, x.dtype, fitting(shape, out.content.items if out.content and sure else None))


def stretched(x: Made, shape: Dims) -> Meaning:
    """Repeated along axes of extent 1, up to this shape."""
    found = x.content if None not in shape and numel(shape) <= _MOST_COMPUTED else None
    return copied(x, shape, content.stretched(found, known(shape)) if found else None)


def picked(x: Made, indices: Made, axis: int) -> Meaning:
    """Elements by their places along an axis; rows of a stored table are an embedding."""
    shape = gathered(x.dims, indices.dims, axis)
    found = None
    if x.content and indices.content and None not in indices.numbers:
        chosen = content.taken(x.content, axis, indices.integers)
        found = fitting(shape, chosen.items if chosen else None)
    if x.stored and axis == 0 and len(x.dims) > 1:  # a table of weights
        return Meaning("embedding", NO_ATTRS, [Out(shape, x.dtype)], [x, indices])
    return Meaning("gather", NO_ATTRS, [Out(shape, x.dtype, found)], [x, indices])


# -- from nothing --------------------------------------------------------------------------------------------------------


def created(shape: Shape, dtype: str, items: Sequence[Number] | None = None) -> Meaning:
    """A tensor that is made of no other, with its elements where they are known."""
    return Meaning("create", NO_ATTRS, [Out(shape, dtype, fitting(shape, items))], [])


def shape_of(dims: Dims, dtype: str = "int64") -> Meaning:
    """The extents of a shape as a tensor."""
    return Meaning("create", NO_ATTRS, [Out((len(dims),), dtype, Content((len(dims),), dims))], [])


def filled_with(number: Number, wanted: Sequence[Number], dtype: str) -> Meaning:
    """The same number everywhere in a shape that a tensor tells."""
    shape: Dims = tuple([None if n is None else int(n) for n in wanted])
    small = None not in shape and numel(shape) <= _MOST_COMPUTED
    return created(shape, dtype, [number] * numel(shape) if small else None)


def counted(ends: Sequence[Made], dtype: str) -> Meaning:
    """Numbers from one to another by a step."""
    begin, end, step = (made.content.items[0] if made.content and made.content.items else None for made in ends)
    if begin is None or end is None or step is None or not step:
        return created((None,), dtype)
    count = max(-int((begin - end) // step), 0)
    return created((count,), dtype, [begin + at * step for at in range(count)] if count <= _MOST_COMPUTED else None)
