"""How often a loop turns whose condition looks at a counter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from opcost.frontends.nodes.call import Made
from opcost.frontends.nodes.model import Content, Number

MOST_TURNS = 1 << 40
"""A loop that turns more often ends by something else."""


def without_changes(before: Sequence[Made], after: Sequence[Made]) -> list[Made]:
    """What a loop takes, without the contents that change from turn to turn."""
    pairs = list(zip(before, after, strict=False))
    return [one if one.content == other.content else replace(one, content=None) for one, other in pairs]


def turns_of(holds: Callable[[list[Made]], bool | None], before: Sequence[Made], after: Sequence[Made]) -> int | None:
    """How often a loop turns, by what it takes in its first and its second turn; None: that depends on data."""
    steps = [_step(one, other) for one, other in zip(before, after, strict=False)]
    start = without_changes(before, after)

    def at(turn: int) -> bool | None:
        return holds(
            [
                kept if step is None else replace(kept, content=Content(step[0], (step[1] + turn * step[2],)))
                for kept, step in zip(start, steps, strict=True)
            ]
        )

    return _first_false(at)


def first_of(made: Sequence[Made]) -> Number:
    """The one element of the first tensor, where it is known."""
    content = made[0].content if made else None
    return content.items[0] if content and content.items else None


def _step(before: Made, after: Made) -> tuple[tuple[int, ...], int, int] | None:
    """The shape of a counter, where it begins, and by how much it grows in a turn; None: it is no counter."""
    one, other = before.content, after.content
    if one is None or other is None or one == other or len(one.items) != 1 or len(other.items) != 1:
        return None
    first, second = (
        int(item) if isinstance(item, float) and item.is_integer() else item for item in (one.items[0], other.items[0])
    )
    if not isinstance(first, int) or not isinstance(second, int):
        return None
    return one.shape, first, second - first


def _first_false(holds: Callable[[int], bool | None]) -> int | None:
    """The first turn at which a condition no longer holds, found by doubling and halving: a counter grows evenly."""
    if (answer := holds(0)) is None:
        return None
    if not answer:
        return 0
    low, high = 0, 1
    while holds(high):
        low, high = high, 2 * high
        if high > MOST_TURNS:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return high
