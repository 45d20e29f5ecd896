"""Timed operators by their places, of which those nearest to a place are found without looking at all of them.

They are kept as a balanced k-d tree: the middle one of a range divides the others along one axis into those before it and those
behind it. Each family is packed by itself, and unpacked when the first operator like it is predicted.
"""

import struct
import zlib
from bisect import insort
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import repeat
from math import dist, inf
from typing import NamedTuple

LEAF = 64  # so few are looked at one by one
_ROUNDING = 1 - 1e-9  # a distance may come out that much too small


class Near(NamedTuple):
    """One timed operator: its place among those like it, and by how much it missed the law, or its share of workspace."""

    place: tuple[float, ...]
    ratio: float


class _Tree(NamedTuple):
    places: Sequence[tuple[float, ...]]
    ratios: Sequence[float]
    numbers: Sequence[int]  # where each was among those given
    axes: bytes  # along which axis the middle one of each range divides it


class Neighbours:
    """The timed operators of one family. Of those that are equally far from a place the first given is the nearest."""

    def __init__(self, near: Iterable[Near] = (), *, packed: bytes = b"") -> None:
        self._given, self._packed = tuple(near), packed

    @cached_property
    def _tree(self) -> _Tree:
        return _unpacked(self._packed) if self._packed else _grown(self._given)

    def __iter__(self) -> Iterator[Near]:
        places, ratios, numbers, _ = self._tree
        for i in sorted(range(len(numbers)), key=numbers.__getitem__):
            yield Near(places[i], ratios[i])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Neighbours) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]

    def closest(self, place: tuple[float, ...], count: int) -> list[tuple[float, float]]:
        """The distances and ratios of those nearest to a place, the nearest first."""
        places, ratios, numbers, axes = self._tree
        best: list[tuple[float, int, float]] = []
        farthest = inf  # of the nearest so far, once these are as many as wanted
        gaps = [0.0] * len(place)  # the squares of the distances to the range that is searched, along each axis

        def look(low: int, high: int) -> None:
            nonlocal farthest
            for i, distance in enumerate(map(dist, places[low:high], repeat(place)), low):
                if distance <= farthest:
                    insort(best, (distance, numbers[i], ratios[i]))
                    if len(best) > count:
                        del best[-1]
                    if len(best) == count:
                        farthest = best[-1][0]

        def search(low: int, high: int, beyond: float) -> None:
            if high - low <= LEAF:
                look(low, high)
                return
            middle = (low + high) // 2
            axis = axes[middle]
            offset = place[axis] - places[middle][axis]
            sides = (low, middle), (middle + 1, high)
            search(*sides[offset > 0], beyond)
            gap = gaps[axis]
            beyond += offset * offset - gap
            if beyond * _ROUNDING <= farthest * farthest:
                look(middle, middle + 1)
                gaps[axis] = offset * offset
                search(*sides[offset <= 0], beyond)
                gaps[axis] = gap

        search(0, len(numbers), 0.0)
        return [(distance, ratio) for distance, _, ratio in best]

    def packed(self) -> bytes:
        """All of it, the same on every machine."""
        places, ratios, numbers, axes = self._tree
        columns = [*zip(*places, strict=True), ratios]
        counts = struct.pack("<2I", len(numbers), len(columns))
        floats = b"".join(struct.pack(f"<{len(column)}d", *column) for column in columns)
        return zlib.compress(counts + floats + struct.pack(f"<{len(numbers)}I", *numbers) + axes, 9)


def _unpacked(packed: bytes) -> _Tree:
    content = zlib.decompress(packed)
    count, columns = struct.unpack_from("<2I", content)
    *axes_of_places, ratios = (struct.unpack_from(f"<{count}d", content, 8 + 8 * count * i) for i in range(columns))
    numbers = struct.unpack_from(f"<{count}I", content, 8 + 8 * count * columns)
    return _Tree(tuple(zip(*axes_of_places, strict=True)), ratios, numbers, content[-count:])


def _grown(near: Sequence[Near]) -> _Tree:
    order = list(range(len(near)))
    axes = bytearray(len(near))

    def divide(low: int, high: int) -> None:
        if high - low <= LEAF:
            return
        columns = list(zip(*(near[i].place for i in order[low:high]), strict=True))
        spans = [max(column) - min(column) for column in columns]
        axis, middle = spans.index(max(spans)), (low + high) // 2
        order[low:high] = sorted(order[low:high], key=lambda i: near[i].place[axis])
        axes[middle] = axis
        divide(low, middle)
        divide(middle + 1, high)

    divide(0, len(near))
    return _Tree([near[i].place for i in order], [near[i].ratio for i in order], order, bytes(axes))
