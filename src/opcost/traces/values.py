"""Numbers and names of a trace, each checked to be one that can be added up, divided and shown."""

from __future__ import annotations

from decimal import Decimal
from math import prod
from typing import Any

LATEST_NS = 2**62
"""146 years: a time of a clock since 1970 is below, and so is every duration."""
MOST_ELEMENTS = 2**63
MOST_AXES = 64


def nanoseconds(value: object, unit: int) -> int:
    """So many units of time in nanoseconds, to the nearest; a `ValueError` where it is no number, or none of a clock."""
    if not _lies(value, -LATEST_NS // unit, LATEST_NS // unit):
        raise ValueError(f"{str(value)[:40]!r} is not a time")
    return round(value * unit)  # type: ignore[operator]  # it is a number


def executions(value: object) -> int:
    """How often something ran; a `ValueError` where that is no count."""
    if isinstance(value, float) or not _lies(value, 0, MOST_ELEMENTS):
        raise ValueError(f"{str(value)[:40]!r} is not a count")
    assert isinstance(value, (int, Decimal))
    return int(value)


def _lies(value: object, least: int, most: int) -> bool:
    """Whether it is a number between these; NaN lies nowhere."""
    if not isinstance(value, (int, float, Decimal)) or isinstance(value, bool):
        return False
    return not (isinstance(value, Decimal) and value.is_nan()) and least <= value <= most


def is_shape(extents: object) -> bool:
    """Whether this is a list of extents, those below nought not known, of a tensor that some memory could hold."""
    if not isinstance(extents, list) or len(extents) > MOST_AXES or not all(type(extent) is int for extent in extents):
        return False
    elements: int = prod(max(abs(extent), 1) for extent in extents)
    return elements < MOST_ELEMENTS


def label(event: dict[str, Any], key: str) -> str | int | float | None:
    """A process, a thread or a stream; whatever else stands there is called as it is written."""
    value = event.get(key)
    return value if value is None or isinstance(value, (str, int, float)) else str(value)[:80]
