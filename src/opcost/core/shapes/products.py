"""Products that sum over axes: matrices and batches of them, NumPy's dot, tensordot and einsum."""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_letters

from opcost.core.shapes.axes import axes_of, broadcast, reduced, swapped
from opcost.core.shapes.extents import Dims, Extent, Mismatch


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


def _label_extents(terms: Sequence[str], shapes: Sequence[Sequence[Extent]]) -> dict[str, Extent]:
    """The extent of every label of an explicit equation; an axis of extent 1 is stretched."""
    extents: dict[str, Extent] = {}
    for labels, shape in zip(terms, shapes, strict=True):
        for label, extent in zip(labels, shape, strict=True):
            try:
                (extents[label],) = broadcast([(extents.get(label, 1),), (extent,)])
            except Mismatch:
                raise Mismatch(f"the label {label!r} stands for {extents[label]} and for {extent}") from None
    return extents


def einsum(equation: str, shapes: Sequence[Sequence[Extent]]) -> Dims:
    """The result of an explicit equation."""
    left, _, output = equation.partition("->")
    extents = _label_extents(left.split(","), shapes)
    if not set(output) <= extents.keys():
        raise Mismatch(f"the output {output!r} has a label that no operand has")
    return tuple([extents[label] for label in output])
