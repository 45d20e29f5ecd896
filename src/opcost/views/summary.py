"""What stands above and below a table: a heading, totals, and everything the reader must know. Plain data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from opcost.core.cost import Cost
from opcost.core.harmless import printable
from opcost.core.units import format_bytes, format_count

LONG_LINE = 1000
"""Characters of one entry below a table; a note is a sentence or two."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """One total."""

    label: str
    value: int
    unit: Literal["count", "bytes"]
    partial: bool = False
    """Some operator has no price, so this is a lower bound."""
    remark: str = ""

    @property
    def human(self) -> str:
        """The value with a unit, marked where it is a lower bound."""
        text = format_bytes(self.value) if self.unit == "bytes" else format_count(self.value)
        return f"≥{text}" if self.partial else text


@dataclass(frozen=True, slots=True)
class Section:
    """Something to know: a title, what it is about line by line, and what to do about it."""

    title: str
    lines: tuple[str, ...]
    hint: str = ""
    urgent: bool = False
    """A number of the report is wrong until something is done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Heading, totals, phases, conventions, and sections where there is something to say."""

    heading: tuple[str, ...]
    quantities: tuple[Quantity, ...] = ()
    phases: tuple[tuple[str, Cost], ...] = ()
    """Empty where there is only the forward pass."""
    conventions: tuple[str, ...] = ()
    seen_against: tuple[str, ...] = ()
    """What the lines of a profile must be seen against: totals, how devices were used, where the peaks are from, notes."""
    sections: tuple[Section, ...] = ()


def phase_rows(phases: Iterable[tuple[str, Cost]]) -> list[tuple[str, ...]]:
    """The costs of each phase, below their titles."""
    rows: list[tuple[str, ...]] = [("phase", "MACs", "FLOPs", "read", "written")]
    for phase, cost in phases:
        counts, moved = (cost.macs, cost.flops), (cost.bytes_read, cost.bytes_written)
        rows.append((phase, *map(format_count, counts), *map(format_bytes, moved)))
    return rows


def held(text: str) -> str:
    """The text with its words held together where lines are broken."""
    return printable(text).replace(" ", "\u00a0")
