"""Results that handlers of all formats give: shapes, and the contents from which models compute shapes, worked out once."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from opcost.core import shapes
from opcost.core.graph import NO_ATTRS, Attr, Attrs
from opcost.core.shapes import Dims, Extent, Shape, known
from opcost.frontends.nodes import MOST_CONTENT
from opcost.frontends.nodes.meaning import Content, NodeCall, Number, Operand, Operands, OperatorMeaning, Out

# -- shapes, contents and meanings --------------------------------------------------------------------------------------


def numel(shape: Shape) -> int:
    """The number of elements, which must be known."""
    return math.prod(known(shape))


def fitting(shape: Shape, items: Sequence[Number] | None) -> Content | None:
    """A content for a result, if it is small and whole."""
    if items is None or shape is None or None in shape or numel(shape) != len(items) or len(items) > MOST_CONTENT:
        return None
    return Content(known(shape), tuple(items))


def like(
    x: Operand, kind: str, attrs: Attrs = NO_ATTRS, reads: Operands | None = None, dtype: str = ""
) -> OperatorMeaning:
    """One result with the shape, and unless given the element type, of a tensor."""
    return OperatorMeaning(kind, attrs, [Out(x.shape, dtype or x.dtype)], reads)


def one(kind: str, attrs: Attrs, shape: Shape, dtype: str, reads: Operands | None = None) -> OperatorMeaning:
    """One result."""
    return OperatorMeaning(kind, attrs, [Out(shape, dtype)], reads)


def with_bias(bias: Operand | None, **attrs: Any) -> dict[str, Any]:
    """Attributes of a product, which may add a bias."""
    return attrs if bias is None else {**attrs, "bias": True}


def element_type(call: NodeCall, x: Operand) -> str:
    """The element type of a result: that of the input `like`, the one that the row gives, or that of an operand."""
    like = call.at("like") if "like" in call.places else None
    return call.attrs.get("out_dtype", x.dtype) if like is None else like.dtype


def common(ins: Sequence[Operand]) -> Shape:
    """The shape to which all inputs are stretched."""
    return None if any(each.shape is None for each in ins) else shapes.broadcast([each.dims for each in ins])


# -- functions of each element -------------------------------------------------------------------------------------------

_MOST_COMPUTED = 1024  # Elements that are worked out one by one


def _divide(a: Any, b: Any) -> Any:
    """As machines do: a quotient of whole numbers is cut towards zero."""
    if isinstance(a, int) and isinstance(b, int):
        return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    return a / b


def _power(a: Any, b: Any) -> Any:
    if isinstance(a, int) and isinstance(b, int) and abs(a) > 1 and b > 64:
        raise OverflowError("the power has more than 64 bits")
    return a**b


_COMPUTED: dict[str, Callable[..., Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "mod": operator.mod, "floormod": operator.mod,
    "floordiv": operator.floordiv, "min": min, "minimum": min, "max": max, "maximum": max, "neg": operator.neg, "abs": abs,
    "ceil": lambda x: float(math.ceil(x)), "floor": lambda x: float(math.floor(x)), "round": lambda x: float(round(x)),
    "sqrt": math.sqrt, "equal": operator.eq, "notequal": operator.ne, "greater": operator.gt, "less": operator.lt,
    "sum": lambda *all: sum(all), "sign": lambda x: (x > 0) - (x < 0), "pow": _power,
    **dict.fromkeys(("div", "realdiv"), _divide),
    **dict.fromkeys(("greaterorequal", "greaterequal"), operator.ge),
    **dict.fromkeys(("lessorequal", "lessequal"), operator.le),
    **dict.fromkeys(("and", "logicaland"), lambda a, b: bool(a and b)),
    **dict.fromkeys(("or", "logicalor"), lambda a, b: bool(a or b)),
    **dict.fromkeys(("not", "logicalnot"), operator.not_),
    **dict.fromkeys(("where", "select", "selectv2"), lambda chosen, a, b: a if chosen else b),
}  # fmt: skip
"""Functions that models apply to small contents, by the names of operators without underscores."""


def computed(name: str, ins: Sequence[Operand], shape: Shape) -> list[Number] | None:
    """The elements of a small result, None where one is not known."""
    function = _COMPUTED.get(name)
    if function is None or shape is None or None in shape or not all(each.content for each in ins):
        return None
    if numel(shape) > _MOST_COMPUTED:
        return None
    columns = [each.content.stretched(known(shape)).items for each in ins if each.content]
    found: list[Number] = []
    for row in zip(*columns, strict=True):
        try:
            found.append(None if None in row else function(*row))
        except (ArithmeticError, ValueError, TypeError):
            return None
    return found


def pointwise(fn: str, ins: Sequence[Operand], function: str = "", dtype: str = "") -> OperatorMeaning:
    """A function of each element of inputs that are stretched to each other; `function` is how contents are computed."""
    shape = common(ins)
    found = fitting(shape, computed(function, ins, shape))
    return OperatorMeaning("elementwise", {"fn": fn}, [Out(shape, dtype or ins[0].dtype, found)], ins)


def added(ins: Sequence[Operand], fn: str = "add", more: int = 0) -> dict[str, Attr]:
    """Attributes of a sum of several tensors: one operation less for each element than there are tensors, and `more`."""
    shape = common(ins)
    known_size = shape is not None and None not in shape
    return {"fn": fn, "elements": numel(shape) * (len(ins) - 1 + more)} if known_size else {"fn": fn}


def converted(x: Operand, dtype: str) -> OperatorMeaning:
    """The elements as another type."""
    found = x.content
    if found is not None and dtype.startswith(("int", "uint")):
        whole = [None if n is None or not math.isfinite(n) else int(n) for n in found.items]
        found = Content(found.shape, tuple(whole))
    elif found is not None and dtype == "bool":
        found = Content(found.shape, tuple([None if n is None else bool(n) for n in found.items]))
    return OperatorMeaning("copy", NO_ATTRS, [Out(x.shape, dtype, found)], [x])


# -- elements in other shapes and places ---------------------------------------------------------------------------------


def copied(x: Operand, shape: Shape, found: Content | None = None) -> OperatorMeaning:
    """Elements of one tensor, moved into another shape."""
    return OperatorMeaning("copy", NO_ATTRS, [Out(shape, x.dtype, found)], [x])


def viewed(x: Operand, shape: Shape) -> OperatorMeaning:
    """The same memory with another shape."""
    found = fitting(shape, x.content.items if x.content else None)
    return OperatorMeaning("view", NO_ATTRS, [Out(shape, x.dtype, found, x)], [x])


def turned(x: Operand, order: Sequence[int]) -> OperatorMeaning:
    """The axes in another order."""
    return copied(x, shapes.permuted(x.dims, order), x.content.permuted(order) if x.content else None)


def joined(parts: Sequence[Operand], axis: int) -> OperatorMeaning:
    """Tensors one behind the other along an axis."""
    if any(each.shape is None for each in parts):
        return OperatorMeaning("copy", NO_ATTRS, [Out(None, parts[0].dtype)], parts)
    shape = shapes.concat([each.dims for each in parts], axis)
    found = None
    if any(each.content for each in parts) and None not in shape and numel(shape) <= MOST_CONTENT:
        contents = [each.content or Content(known(each.shape), (None,) * numel(each.shape)) for each in parts]
        found = Content.joined(contents, shapes.axis_of(axis, len(shape)))
    return OperatorMeaning("copy", NO_ATTRS, [Out(shape, parts[0].dtype, found)], parts)


def divided_into(x: Operand, axis: int, lengths: Sequence[Extent]) -> OperatorMeaning:
    """Pieces of these lengths along an axis."""
    outs, begin = [], 0
    for length in lengths:
        part = x.content.taken(axis, range(begin, begin + (length or 0))) if x.content else None
        outs.append(Out(shapes.replaced(x.dims, axis, length), x.dtype, part))
        begin += length or 0
    return OperatorMeaning("copy", NO_ATTRS, outs, [x])


def sliced(
    x: Operand, axes: Sequence[int], begins: Sequence[Extent], ends: Sequence[Extent], steps: Sequence[Extent]
) -> OperatorMeaning:
    """Elements between two places along some axes, by Python's rules for slices."""
    shape, found = x.dims, x.content
    for axis, begin, end, step in zip(axes, begins, ends, steps, strict=True):
        extent = shape[axis]
        shape = shapes.replaced(shape, axis, shapes.slice_length(extent, begin, end, step))
        if found is not None and extent is not None:
            found = found.taken(axis, range(extent)[begin:end:step])
    return copied(x, shape, found)


class Cut(NamedTuple):
    """What is taken of one axis: from one place to another, all unless given; `sure`: the places are known, or left open."""

    begin: int | None = None
    end: int | None = None
    step: int | None = 1
    sure: bool = True
    gone: bool = False  # One element is taken, at `begin`, and the axis goes


def cut(x: Operand, cuts: Sequence[Cut]) -> Out:
    """The part of a tensor between places along its first axes; an axis of which a place is not known is open."""
    out = Out(x.dims, x.dtype, x.content)
    for axis, each in enumerate(cuts):
        if not each.sure and not each.gone:
            out = Out(shapes.replaced(out.shape or (), axis, None), x.dtype)
            continue
        end = None if each.gone and each.begin in (None, -1) else (each.begin or 0) + 1 if each.gone else each.end
        here = Operand(x.value, out.shape, x.dtype, out.content)
        out = sliced(here, [axis], [each.begin], [end], [1 if each.gone else each.step]).outs[0]
    gone = {axis for axis, each in enumerate(cuts) if each.gone}
    shape = tuple(extent for axis, extent in enumerate(out.shape or ()) if axis not in gone)
    sure = all(each.sure for each in cuts)
    return Out(shape, x.dtype, fitting(shape, out.content.items if out.content and sure else None))


def stretched(x: Operand, shape: Dims) -> OperatorMeaning:
    """Repeated along axes of extent 1, up to this shape."""
    found = x.content if None not in shape and numel(shape) <= _MOST_COMPUTED else None
    return copied(x, shape, found.stretched(known(shape)) if found else None)


def picked(x: Operand, indices: Operand, axis: int) -> OperatorMeaning:
    """Elements by their places along an axis; rows of a stored table are an embedding."""
    shape = shapes.gathered(x.dims, indices.dims, axis)
    found = None
    if x.content and indices.content and None not in indices.numbers:
        chosen = x.content.taken(axis, indices.integers)
        found = fitting(shape, chosen.items if chosen else None)
    if x.stored and axis == 0 and len(x.dims) > 1:  # a table of weights
        return OperatorMeaning("embedding", NO_ATTRS, [Out(shape, x.dtype)], [x, indices])
    return OperatorMeaning("gather", NO_ATTRS, [Out(shape, x.dtype, found)], [x, indices])


# -- from nothing --------------------------------------------------------------------------------------------------------


def created(shape: Shape, dtype: str, items: Sequence[Number] | None = None) -> OperatorMeaning:
    """A tensor that is made of no other, with its elements where they are known."""
    return OperatorMeaning("create", NO_ATTRS, [Out(shape, dtype, fitting(shape, items))], [])


def shape_of(dims: Dims, dtype: str = "int64") -> OperatorMeaning:
    """The extents of a shape as a tensor."""
    return OperatorMeaning("create", NO_ATTRS, [Out((len(dims),), dtype, Content((len(dims),), dims))], [])


def filled_with(number: Number, wanted: Sequence[Number], dtype: str) -> OperatorMeaning:
    """The same number everywhere in a shape that a tensor holds."""
    shape: Dims = tuple([None if n is None else int(n) for n in wanted])
    small = None not in shape and numel(shape) <= _MOST_COMPUTED
    return created(shape, dtype, [number] * numel(shape) if small else None)


def counted(ends: Sequence[Operand], dtype: str) -> OperatorMeaning:
    """Numbers from one to another by a step."""
    begin, end, step = (each.first for each in ends)
    if begin is None or end is None or step is None or not step:
        return created((None,), dtype)
    count = max(-int((begin - end) // step), 0)
    return created((count,), dtype, [begin + at * step for at in range(count)] if count <= _MOST_COMPUTED else None)
