"""Shape arithmetic, once for all front ends: the shape of an operator's output.

Pure functions on tuples of extents. An extent may be unknown (None), and then only what follows from it is. Shapes that do not
fit raise `Mismatch`; the calling front end adds the operator's name.
"""

from collections.abc import Iterable, Mapping, Sequence
from string import ascii_letters
from typing import Literal, TypeAlias, TypeVar

Extent: TypeAlias = "int | None"
E = TypeVar("E", int, "int | None")
Dims: TypeAlias = "tuple[Extent, ...]"
Shape: TypeAlias = "Dims | None"  # none is an unknown extent, or a whole shape that is unknown


class Mismatch(ValueError):
    """Shapes do not fit each other, or the operation."""


class Unknown(Exception):
    """A shape or a number is needed that follows from an unknown one."""


def text(shape: Shape) -> str:
    """A shape as a reader knows it: 1x3x?x?."""
    if shape is None:
        return "an unknown shape"
    return "x".join("?" if extent is None else str(extent) for extent in shape) or "a scalar"


def complete(shape: Shape) -> bool:
    """Whether every extent is known."""
    return shape is not None and None not in shape


def known(shape: Shape) -> tuple[int, ...]:
    """The extents of a shape that must all be known."""
    if shape is None or None in shape:
        raise Unknown
    return shape  # type: ignore[return-value]


def merge(first: Shape, second: Shape) -> Shape:
    """What two descriptions of one shape give together; `first` itself where the second adds nothing."""
    if second is None or first is second or first == second:
        return first
    if first is None:
        return second
    if len(first) != len(second) or any(
        a != b and a is not None and b is not None for a, b in zip(first, second, strict=True)
    ):
        raise Mismatch(f"{text(first)} and {text(second)} cannot be the same shape")
    merged = tuple([b if a is None else a for a, b in zip(first, second, strict=True)])
    return first if merged == first else merged


def product(extents: Iterable[Extent]) -> Extent:
    """The number of elements, where it is known; an axis without elements decides alone."""
    found, certain = 1, True
    for extent in extents:
        if extent is None:
            certain = False
        else:
            found *= extent
    return found if certain or found == 0 else None


def times(extent: Extent, factor: Extent) -> Extent:
    """A multiple of an extent."""
    return None if extent is None or factor is None else extent * factor


def total(extents: Iterable[Extent]) -> Extent:
    """The sum of extents, where it is known."""
    found = 0
    for extent in extents:
        if extent is None:
            return None
        found += extent
    return found


def divided(extent: Extent, parts: int, what: str = "elements", among: str = "parts") -> Extent:
    """An extent shared out evenly."""
    if extent is None:
        return None
    if extent % parts:
        raise Mismatch(f"{extent} {what} cannot be divided among {parts} {among}")
    return extent // parts


# -- axes: counted, reordered, removed, inserted, stretched ------------------------------------------------------------


def axis_of(axis: int, rank: int, what: str = "axis") -> int:
    """An axis counted from the front."""
    if not -rank <= axis < rank:
        raise Mismatch(f"{what} {axis} is not one of the {rank} axes")
    return axis % rank


def axes_of(axes: Iterable[int] | None, rank: int) -> tuple[int, ...]:
    """Axes counted from the front; all of them where none are named."""
    return tuple(range(rank)) if axes is None else tuple([axis_of(axis, rank) for axis in axes])


def replaced(shape: Sequence[Extent], axis: int, *extents: Extent) -> Dims:
    """The shape with another extent along one axis, or with several axes in its place, or without it."""
    return (*shape[:axis], *extents, *shape[axis + 1 :])


def inserted(shape: Sequence[Extent], axis: int, extent: Extent = 1) -> Dims:
    """The shape with one axis more, which in the result is `axis`."""
    place = axis_of(axis, len(shape) + 1)
    return (*shape[:place], extent, *shape[place:])


def squeezed(shape: Sequence[Extent], axes: Iterable[int]) -> Dims:
    """The shape without axes of extent 1."""
    gone = axes_of(axes, len(shape))
    for axis in gone:
        if shape[axis] not in (1, None):
            raise Mismatch(f"axis {axis} of {text(tuple(shape))} is not of extent 1")
    return reduced(shape, gone)


def reduced(shape: Sequence[Extent], axes: Iterable[int] | None = None, *, keepdims: bool = False) -> Dims:
    """What a reduction over these axes, or over all, leaves."""
    gone = axes_of(axes, len(shape))
    if keepdims:
        return tuple([1 if axis in gone else extent for axis, extent in enumerate(shape)])
    return tuple([extent for axis, extent in enumerate(shape) if axis not in gone])


def permuted(shape: Sequence[Extent], order: Sequence[int]) -> Dims:
    """The axes in another order; an empty order turns them round."""
    rank = len(shape)
    places = axes_of(order, rank) or tuple(reversed(range(rank)))
    if len(places) != rank or len(set(places)) != rank:
        raise Mismatch(f"the axes {tuple(order)} do not fit {rank} axes")
    return tuple([shape[axis] for axis in places])


def swapped(shape: Sequence[Extent], first: int, second: int) -> Dims:
    """Two axes exchanged."""
    found = list(shape)
    a, b = axis_of(first, len(found)), axis_of(second, len(found))
    found[a], found[b] = found[b], found[a]
    return tuple(found)


def flattened(shape: Sequence[Extent], axis: int = 1) -> Dims:
    """A matrix: all axes before `axis` in one, and all from it on in another."""
    return (product(shape[:axis]), product(shape[axis:]))


def filled(shape: Sequence[Extent], elements: Extent) -> Dims:
    """The shape with its one unknown extent worked out from the number of elements."""
    if elements is None or list(shape).count(None) != 1:
        return tuple(shape)
    rest = product([extent for extent in shape if extent is not None]) or 0
    if elements % rest if rest else elements:
        raise Mismatch(f"{elements} elements do not divide into {rest}")
    return tuple([(elements // rest if rest else 0) if extent is None else extent for extent in shape])


def reshaped(shape: Sequence[Extent], target: Sequence[Extent], *, zero_copies: bool = False) -> Dims:
    """The same elements in another shape, where -1 leaves one extent open and, with `zero_copies`, 0 copies one."""
    if any(extent is not None and extent < -1 for extent in target) or list(target).count(-1) > 1:
        why = "it leaves more than one extent open, or has a negative one"
        raise Mismatch(f"{tuple(target)} cannot be a new shape: {why}")
    if zero_copies and 0 in target[len(shape) :]:
        raise Mismatch(f"{text(tuple(shape))} has too few axes for the new shape {tuple(target)}")
    found = [shape[axis] if zero_copies and extent == 0 else extent for axis, extent in enumerate(target)]
    elements = product(shape)
    if -1 in found:
        place = found.index(-1)
        found[place] = None
        return filled(found, elements) if found.count(None) == 1 else tuple(found)
    wanted = product(found)
    if elements is not None and wanted is not None and elements != wanted:
        raise Mismatch(f"{text(tuple(shape))} has {elements} elements, the new shape {text(tuple(found))} has {wanted}")
    return tuple(found)


def broadcast(shapes: Sequence[Sequence[E]]) -> tuple[E, ...]:
    """The shape to which all of these stretch, aligned at their last axes; an unknown extent stretches to any."""
    found: Sequence[E] = tuple(shapes[0]) if shapes else ()
    for shape in shapes[1:]:
        if shape == found:
            continue
        long, short = (found, shape) if len(found) > len(shape) else (shape, found)
        wide = list(long)
        offset = len(long) - len(short)
        for axis, extent in enumerate(short, offset):
            have = wide[axis]
            if have == 1 or (have is None and extent != 1):
                wide[axis] = extent
            elif extent not in (1, None, have):
                raise Mismatch(f"{' and '.join(text(tuple(each)) for each in shapes)} do not broadcast")
        found = tuple(wide)
    return tuple(found)


def expanded(shape: Sequence[Extent], target: Sequence[Extent]) -> Dims:
    """A shape stretched to another one, and no further."""
    added = len(target) - len(shape)
    pairs = list(zip(shape, target[max(added, 0) :], strict=False))
    if added < 0 or any(None not in (have, want) and have not in (1, want) for have, want in pairs):
        raise Mismatch(f"{text(tuple(shape))} cannot be stretched to {text(tuple(target))}")
    return (*target[:added], *[have if want is None and have != 1 else want for have, want in pairs])


def tiled(shape: Sequence[Extent], times_each: Sequence[int]) -> Dims:
    """The whole tensor repeated along each axis, aligned at the last."""
    rank = max(len(shape), len(times_each))
    whole, many = (*(1,) * (rank - len(shape)), *shape), (*(1,) * (rank - len(times_each)), *times_each)
    return tuple([times(extent, count) for extent, count in zip(whole, many, strict=True)])


def repeated(shape: Sequence[Extent], count: int, axis: int | None) -> Dims:
    """Every element repeated along an axis, or all elements in a row."""
    if axis is None:
        return (times(product(shape), count),)
    along = axis_of(axis, len(shape))
    return replaced(shape, along, times(shape[along], count))


# -- joining and slicing -----------------------------------------------------------------------------------------------


def concat(shapes: Sequence[Sequence[Extent]], axis: int) -> Dims:
    """Joined along one axis, which adds up; the others are the same."""
    if not shapes:
        raise Mismatch("there is nothing to join")
    first = tuple(shapes[0])
    along = axis_of(axis, len(first))
    common: Shape = None
    for shape in shapes:
        if len(shape) != len(first):
            raise Mismatch(f"{text(first)} and {text(tuple(shape))} cannot be joined")
        common = merge(common, replaced(shape, along, None))
    return replaced(common or (), along, total(shape[along] for shape in shapes))


def stack(shapes: Sequence[Sequence[Extent]], axis: int) -> Dims:
    """Joined along a new axis; all must be the same."""
    return concat([inserted(shape, axis) for shape in shapes], axis)


def even_parts(extent: Extent, count: int) -> list[Extent]:
    """The lengths of `count` parts of almost equal length, the longer ones first."""
    if extent is None:
        return [None] * count
    short, longer = divmod(extent, count)
    return [short + (index < longer) for index in range(count)]


def slice_length(extent: Extent, begin: int | None, end: int | None, step: int | None = None) -> Extent:
    """How many elements a slice takes from an axis, by Python's rules, which all frameworks share."""
    if step == 0:
        raise Mismatch("a slice has the step 0")
    return None if extent is None else len(range(*slice(begin, end, step).indices(extent)))


def padded(shape: Sequence[Extent], widths: Sequence[Sequence[int]]) -> Dims:
    """More elements before and behind each axis; a negative number takes some away."""
    if len(widths) != len(shape):
        raise Mismatch(f"widths for {len(widths)} axes do not fit {text(tuple(shape))}")
    return tuple([total((extent, *width)) for extent, width in zip(shape, widths, strict=True)])


def gathered(shape: Sequence[Extent], indices: Sequence[Extent], axis: int) -> Dims:
    """Elements picked along an axis, which the axes of the indices replace."""
    return replaced(shape, axis_of(axis, len(shape)), *indices)


def diagonal(rows: Extent, columns: Extent, offset: int = 0) -> Extent:
    """The length of a diagonal of a matrix, `offset` columns to the right of the main one."""
    if rows is None or columns is None:
        return None
    return max(min(rows + min(offset, 0), columns - max(offset, 0)), 0)


# -- products that sum over axes: matrices and batches of them, NumPy's dot, tensordot and einsum ----------------------


def matmul(a: Sequence[Extent], b: Sequence[Extent], *, transpose_a: bool = False, transpose_b: bool = False) -> Dims:
    """Matrices in the last two axes, the others broadcast; a vector is a row on the left and a column on the right."""
    left, right = _matrices(a, transpose=transpose_a, row=True), _matrices(b, transpose=transpose_b, row=False)
    if None not in (left[-1], right[-2]) and left[-1] != right[-2]:
        raise Mismatch(f"rows of {left[-1]} elements do not fit columns of {right[-2]}")
    rows, columns = left[-2:-1] if len(a) > 1 else (), right[-1:] if len(b) > 1 else ()
    return (*broadcast([left[:-2], right[:-2]]), *rows, *columns)


def _matrices(shape: Sequence[Extent], *, transpose: bool, row: bool) -> Dims:
    if not shape:
        raise Mismatch("a matrix product takes no scalars")
    if len(shape) == 1:
        return (1, *shape) if row else (*shape, 1)
    return swapped(shape, -1, -2) if transpose else tuple(shape)


def dot(a: Sequence[Extent], b: Sequence[Extent]) -> Dims:
    """NumPy's dot: the last axis of the first with the last but one of the second; a scalar multiplies."""
    if not a or not b:
        return (*a, *b)
    return tensordot(a, b, (-1,), (-1 if len(b) == 1 else -2,))


def tensordot(a: Sequence[Extent], b: Sequence[Extent], axes_a: Sequence[int], axes_b: Sequence[int]) -> Dims:
    """Axes of the first summed with axes of the second; the others stay, those of the first before."""
    if len(axes_a) != len(axes_b):
        raise Mismatch("the two operands do not have the same number of summed axes")
    for mine, other in zip(axes_of(axes_a, len(a)), axes_of(axes_b, len(b)), strict=True):
        if None not in (a[mine], b[other]) and a[mine] != b[other]:
            raise Mismatch(f"an axis of extent {a[mine]} cannot be summed with one of extent {b[other]}")
    return (*reduced(a, axes_a), *reduced(b, axes_b))


def explicit(equation: str, ranks: Sequence[int]) -> str:
    """An equation of einsum with its output written out, a letter for every axis of an ellipsis, and no spaces."""
    written = equation.replace(" ", "")
    left, arrow, output = written.partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise Mismatch(f"the equation {written!r} has {len(terms)} operands, not {len(ranks)}")
    free = [letter for letter in ascii_letters if letter not in written]
    hidden = [rank - len(term.replace("...", "")) for term, rank in zip(terms, ranks, strict=True)]
    for term, count, rank in zip(terms, hidden, ranks, strict=True):
        if count < 0 or (count and "..." not in term) or count > len(free):
            raise Mismatch(f"the labels {term!r} do not fit {rank} axes")
    widest = max(hidden, default=0)
    dots = "".join(free[:widest])
    inputs = ",".join(term.replace("...", dots[widest - own :]) for term, own in zip(terms, hidden, strict=True))
    if not arrow:
        once = sorted({c for c in left if c.isalpha() and left.count(c) == 1})
        output = "..." * ("..." in left) + "".join(once)
    return f"{inputs}->{output.replace('...', dots)}"


def label_extents(terms: Sequence[str], shapes: Sequence[Sequence[E]]) -> Mapping[str, E]:
    """The extent of every label of an explicit equation; an axis of extent 1 is stretched."""
    extents: dict[str, E] = {}
    for labels, shape in zip(terms, shapes, strict=True):
        for label, extent in zip(labels, shape, strict=True):
            try:
                (extents[label],) = broadcast([(extents.get(label, 1),), (extent,)])
            except Mismatch:
                raise Mismatch(f"the label {label!r} has the extents {extents[label]} and {extent}") from None
    return extents


def einsum(equation: str, shapes: Sequence[Sequence[Extent]]) -> Dims:
    """The result of an explicit equation."""
    left, _, output = equation.partition("->")
    extents = label_extents(left.split(","), shapes)
    if not set(output) <= extents.keys():
        raise Mismatch(f"the output {output!r} has a label that no operand has")
    return tuple([extents[label] for label in output])


# -- windows along an axis: of convolutions, transposed ones and pools --------------------------------------------------

Last: TypeAlias = Literal["whole", "begun", "any"]
"""Which window may be the last: one that is inside with all its elements; one that begins inside (the ceil mode of PyTorch,
of ONNX, and of Caffe where it pads); or one that begins behind the end (MXNet's `full`, Caffe without padding)."""


def windows(
    extent: Extent, size: Extent, *, stride: int = 1, padding: tuple[int, int] = (0, 0), dilation: int = 1,
    last: Last = "whole",
) -> Extent:  # fmt: skip
    """How many windows fit along an axis that is padded before and behind."""
    if stride < 1 or dilation < 1:
        raise Mismatch(f"its stride is {stride}" if stride < 1 else f"its dilation is {dilation}")
    if extent is None or size is None:
        return None
    span = dilation * (size - 1) + 1
    room = extent + sum(padding) - span
    if room < 0:
        width = " and ".join(map(str, dict.fromkeys(padding)))
        raise Mismatch(f"a kernel that reaches {span} does not fit {extent} padded by {width}")
    if last == "whole":
        return room // stride + 1
    steps = -(-room // stride)
    return steps if last == "begun" and steps * stride >= extent + padding[0] else steps + 1


def same_windows(extent: Extent, stride: int) -> Extent:
    """How many windows there are where an axis is padded so that only the stride shortens it (SAME)."""
    return None if extent is None else -(-extent // stride)


def spread(
    extent: Extent, size: Extent, *, stride: int = 1, padding: tuple[int, int] = (0, 0), dilation: int = 1,
    extra: int = 0,
) -> Extent:  # fmt: skip
    """What a transposed convolution makes of an axis: the smallest from which such windows make it, and `extra` more."""
    if extent is None or size is None:
        return None
    grown = (extent - 1) * stride + dilation * (size - 1) + 1 - sum(padding) + extra
    if grown < 1:
        raise Mismatch(f"nothing is left of {extent} after removing the padding")
    return grown


def adaptive_windows(source: Sequence[Extent], target: Sequence[Extent]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Size and stride of windows that share out each axis; an axis that is unknown or has no result is left out."""
    pairs = [(before, after) for before, after in zip(source, target, strict=True) if before is not None and after]
    return tuple([-(-before // after) for before, after in pairs]), tuple([before // after for before, after in pairs])
