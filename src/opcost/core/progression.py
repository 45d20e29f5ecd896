"""Rising sizes as people write them: `1,2,4..256`, `128..8192`, `10,20..100`."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import pairwise

from opcost.errors import InputError
from opcost.wording import shortened

MOST = 1000
"""Sizes of one progression."""
HINT = "write sizes that rise: 1,2,4..256 goes on as it began, 128..8192 doubles, 10,20..100 adds 10"
_ITEM = re.compile(r"\s*(\d{1,18})\s*(?:\.\.\s*(\d{1,18})\s*)?")


def parse_sizes(text: str) -> tuple[int, ...]:
    """Numbers with commas; `..` goes on from those before it up to a last one.

    One number before the dots is doubled. Two of them are the first steps of equal ones. Of three or more the last three say
    whether a number is added or multiplied with; where they say neither, nobody knows how to go on.
    """
    sizes: list[int] = []
    began = 0
    for item in text.split(","):
        found = _ITEM.fullmatch(item)
        if found is None:
            raise InputError(f"{shortened(repr(text))} are not sizes: {shortened(repr(item.strip()))}", hint=HINT)
        sizes.append(int(found[1]))
        if found[2] is not None:
            _go_on(sizes, began, int(found[2]), text)
            began = len(sizes)
    return check_sizes(sizes, text)


def check_sizes(sizes: Sequence[int], told: object) -> tuple[int, ...]:
    """The sizes, if they rise from above zero and are not too many."""
    if not sizes or any(not isinstance(size, int) or isinstance(size, bool) or size < 1 for size in sizes):
        raise InputError(f"{shortened(repr(told))}: sizes are whole numbers above zero", hint=HINT)
    if any(after <= before for before, after in pairwise(sizes)):
        raise InputError(f"{shortened(repr(told))}: the sizes do not rise", hint=HINT)
    if len(sizes) > MOST:
        raise InputError(f"{shortened(repr(told))}: more than {MOST:,} sizes", hint="take larger steps")
    return tuple(sizes)


def _go_on(sizes: list[int], began: int, last: int, text: str) -> None:
    step = _step(sizes[began:], text)
    if last <= sizes[-1]:
        raise InputError(f"{shortened(repr(text))}: {last} is not above {sizes[-1]}", hint=HINT)
    while (after := step(sizes[-1])) <= last and len(sizes) <= MOST:
        if after <= sizes[-1]:
            raise InputError(f"{shortened(repr(text))}: the sizes do not rise", hint=HINT)
        sizes.append(after)


def _step(before: Sequence[int], text: str) -> Callable[[int], int]:
    """How numbers go on that begin like these."""
    if len(before) == 1:
        return lambda size: 2 * size
    *_, a, b = before
    if len(before) == 2 or b - a == a - before[-3]:
        return lambda size: size + b - a
    if a and before[-3] and b % a == 0 and b * before[-3] == a * a:
        return lambda size: size * (b // a)
    said = ", ".join(map(str, before[-3:]))
    raise InputError(f"{shortened(repr(text))}: {said} go on neither by adding nor by multiplying", hint=HINT)
