"""The intervals of one sort on one thread, as columns of numbers, and their order in time."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from operator import itemgetter, lt

LONGS, INTS, BYTES = partial(array, "q"), partial(array, "i"), partial(array, "b")
"""Empty columns, by the size of what they hold."""
NONE = -1
"""In a column: nothing is there. Numbers of rows and identifiers of a trace are never below zero."""


@dataclass(slots=True)
class Lane:
    """Intervals in the order of the file, or sorted."""

    start: array[int] = field(default_factory=LONGS)
    duration: array[int] = field(default_factory=LONGS)
    signature: array[int] = field(default_factory=INTS)
    link: array[int] = field(default_factory=LONGS)
    """The sequence number of an operator, the correlation of a launch."""
    backward: array[int] = field(default_factory=BYTES)
    """Whether the backward pass ran this operator, for the forward one with the same sequence number."""
    external: array[int] = field(default_factory=LONGS)

    def sort(self) -> None:
        """Order by start, of two that start together the longer first; most profilers write them so."""
        if _increases(self.start):
            return
        pick = itemgetter(*_order(self.start.tolist(), self.duration))
        for name in self.__slots__:
            column = getattr(self, name)
            setattr(self, name, array(column.typecode, pick(column)))

    def extend(self, other: Lane) -> None:
        """Add the intervals of another lane behind the own ones."""
        for name in self.__slots__:
            getattr(self, name).extend(getattr(other, name))


def _increases(times: Sequence[int]) -> bool:
    return all(map(lt, times, islice(times, 1, None)))


def _order(start: list[int], duration: array[int]) -> list[int]:
    """The places of intervals by start, and only where some start together also by duration."""
    order = sorted(range(len(start)), key=start.__getitem__)
    if not _increases([start[place] for place in order]):
        order.sort(key=lambda place: (start[place], -duration[place]))
    return order
