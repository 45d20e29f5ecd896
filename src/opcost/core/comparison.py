"""Several models side by side: one amount for each of them, of the whole, of a kind or of a module. Plain data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, TypeAlias

from opcost.core.brief import Listed, brief, brief_record
from opcost.core.plugin import COMPARISON_VIEWS
from opcost.core.quantity import Quantity, find_quantity
from opcost.core.shown import Shown

Part: TypeAlias = Literal["total", "kind", "module", "operator", "type", "kernel"]
Change: TypeAlias = Literal["added", "removed", "changed", "same", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One of the things that are compared: what it is called and where it came from."""

    label: str
    """As it was named; two of the same name are told apart by a number."""
    facts: Mapping[str, str]
    """Framework, version, inputs, mode: what its numbers must be seen against."""
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return brief_record(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One quantity of one thing, with an amount for each source: None where it is not known, or the thing not there."""

    part: Part
    name: str
    """The kind or the path of the module; empty for the whole, and for the module at the root."""
    type: str = ""
    detail: str = ""
    """What else tells it from others of its name, such as the shapes of an operator."""
    quantity: Quantity
    amounts: tuple[int | None, ...]
    present: tuple[bool, ...]
    """Whether each source has this at all."""
    partial: tuple[bool, ...]
    """Where an operator has no price, the amount is a lower bound."""

    @property
    def change(self) -> Change:
        """What became of it from the first source to the last."""
        if self.present[0] != self.present[-1]:
            return "removed" if self.present[0] else "added"
        if self.present[0] and None in (self.amounts[0], self.amounts[-1]):
            return "unknown"
        return "same" if self.amounts[0] == self.amounts[-1] else "changed"

    @property
    def changed(self) -> bool:
        """Whether it is known to be another."""
        return self.change not in ("same", "unknown")

    @property
    def difference(self) -> int | None:
        """The last amount less the first; what is not there costs nothing, and what is not known has no difference."""
        first, last = (
            amount if there else 0
            for amount, there in ((self.amounts[place], self.present[place]) for place in (0, -1))
        )
        return None if first is None or last is None else last - first

    def __repr__(self) -> str:
        amounts = " | ".join("?" if amount is None else f"{amount:,}" for amount in self.amounts)
        return brief(self, [f"{self.quantity.name} {amounts}", self.change], f"{self.part} {self.name}".rstrip())


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison(Shown):
    """What several models cost, one amount for each. Print it, save it, or ask it."""

    views: ClassVar[str] = COMPARISON_VIEWS

    sources: tuple[Compared, ...]
    entries: tuple[Entry, ...]
    changes: bool = False
    """It tells what became of the first source in the last: of kinds and modules only what is not the same in both."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "entries", Listed(self.entries))

    def __repr__(self) -> str:
        changed = sum(entry.changed for entry in self.entries)
        said = f"{changed:,} of {len(self.entries):,} amounts differ" if len(self.sources) > 1 else ""
        return brief(self, [said], " and ".join(source.label for source in self.sources))

    def total(self, quantity: str) -> Entry | None:
        """A quantity of the whole by its name; None where it was not compared."""
        totals = {entry.quantity.name: entry for entry in self.of_part("total")}
        return totals.get(quantity) or totals.get(find_quantity(quantity).name)

    def of_part(self, part: Part) -> Iterator[Entry]:
        """The entries about the whole, about kinds, or about modules."""
        return (entry for entry in self.entries if entry.part == part)

    def changed(self) -> Comparison:
        """What differs between the first source and the last, and all totals."""
        kept = (entry for entry in self.entries if entry.part == "total" or entry.changed)
        return replace(self, entries=tuple(kept), changes=True)

    def __bool__(self) -> bool:
        """Whether there is something to tell: of changes, whether anything did change."""
        return any(not self.changes or entry.changed for entry in self.entries)
