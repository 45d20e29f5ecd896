"""What differs between two reports: totals, and modules by their path."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from opcost.core.report import STATS, Report


class Change(NamedTuple):
    """A quantity that is not the same in both."""

    quantity: str
    before: int
    after: int

    @property
    def delta(self) -> int:
        return self.after - self.before


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleChange:
    """A module whose own cost changed, or that stands in one report only."""

    path: str
    type: str
    changes: tuple[Change, ...]
    only_in: str = ""
    """`before` or `after` for a module that the other report does not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """All that differs; empty if the two cost the same, quantity by quantity and module by module."""

    totals: tuple[Change, ...]
    modules: tuple[ModuleChange, ...]

    def __bool__(self) -> bool:
        return bool(self.totals or self.modules)


def diff(before: Report, after: Report) -> Difference:
    """Compare two reports: every quantity of the whole, and every module's own share of it."""
    totals = [*_stats(before), ("peak_bytes", before.peak_bytes)]
    others = dict([*_stats(after), ("peak_bytes", after.peak_bytes)])
    changed = tuple(Change(name, value, others[name]) for name, value in totals if value != others[name])
    return Difference(totals=changed, modules=tuple(_modules(before, after)))


def _stats(report: Report) -> list[tuple[str, int]]:
    return [(name, getattr(report.totals, name)) for name in STATS]


def _modules(before: Report, after: Report) -> list[ModuleChange]:
    old = {module.path: module for module in before.modules}
    new = {module.path: module for module in after.modules}
    found = []
    for path in dict.fromkeys((*old, *new)):
        a, b = old.get(path), new.get(path)
        changes = tuple(
            Change(name, left, right)
            for name in STATS
            if (left := getattr(a.own, name) if a else 0) != (right := getattr(b.own, name) if b else 0)
        )
        only_in = "" if a and b else "before" if a else "after"
        if changes or only_in:
            shown = b or a
            found.append(ModuleChange(path=path, type=shown.type if shown else "", changes=changes, only_in=only_in))
    return found
