"""Small tensors whose elements are known, moved as models move them when they compute shapes."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from itertools import product as places
from math import prod

from opcost.frontends.nodes.model import MOST_CONTENT, Content, Number


def strides(shape: Sequence[int]) -> list[int]:
    """How far apart the elements along each axis lie."""
    found, step = [], 1
    for extent in reversed(shape):
        found.append(step)
        step *= extent
    return found[::-1]


def _at(content: Content, shape: tuple[int, ...], steps: Sequence[int], origin: int = 0) -> Content:
    """A tensor whose elements lie so far apart in another."""
    if 0 in shape:  # its other extents may be any
        return Content(shape, ())
    items = [content.items[origin + sum(map(operator.mul, at, steps))] for at in places(*map(range, shape))]
    return Content(shape, tuple(items))


def permuted(content: Content, order: Sequence[int]) -> Content:
    """The axes in another order."""
    steps = strides(content.shape)
    return _at(content, tuple(content.shape[axis] for axis in order), [steps[axis] for axis in order])


def stretched(content: Content, shape: tuple[int, ...]) -> Content:
    """As if it had this larger shape, aligned at the last axis."""
    if content.shape == shape:
        return content
    own = (*(1,) * (len(shape) - len(content.shape)), *content.shape)
    steps = [0 if extent == 1 else step for extent, step in zip(own, strides(own), strict=True)]
    return _at(content, shape, steps)


def taken(content: Content, axis: int, indices: Sequence[int]) -> Content | None:
    """The elements at some places along an axis; None: there are too many."""
    shape = (*content.shape[:axis], len(indices), *content.shape[axis + 1 :])
    if 0 in shape:
        return Content(shape, ())
    if prod(shape) > MOST_CONTENT:
        return None
    before, extent, after = prod(content.shape[:axis]), content.shape[axis], prod(content.shape[axis + 1 :])
    chosen = [at % extent if extent else at for at in indices]
    items: list[Number] = []
    for block in range(before):
        for at in chosen:
            begin = (block * extent + at) * after
            items += content.items[begin : begin + after]
    return Content(shape, tuple(items))


def joined(parts: Iterable[Content], axis: int) -> Content:
    """Joined along an axis."""
    several = list(parts)
    shape = several[0].shape
    before = prod(shape[:axis])
    items: list[Number] = []
    for block in range(before if any(part.items for part in several) else 0):
        for part in several:
            size = len(part.items) // before if before else 0
            items += part.items[block * size : (block + 1) * size]
    return Content((*shape[:axis], sum(part.shape[axis] for part in several), *shape[axis + 1 :]), tuple(items))


def unknown(shape: tuple[int, ...]) -> Content | None:
    """A tensor of which no element is known, to be joined to others of which some are."""
    return Content(shape, (None,) * prod(shape)) if prod(shape) <= MOST_CONTENT else None
