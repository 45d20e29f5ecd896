"""What models may cost and what they do cost: one line for each limit, and a verdict on all of them. Plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

from opcost.core.brief import brief, brief_record
from opcost.core.limit import Limit
from opcost.core.plugin import COMPARISON_VIEWS
from opcost.core.quantity import Quantity
from opcost.core.report import Uncounted
from opcost.core.shown import Shown
from opcost.core.units import format_time

Word: TypeAlias = Literal["ok", "EXCEEDED", "UNKNOWN", "new", ""]
"""Of a limit: kept, not kept, not known because operators have no price, about a change of what is new. Empty without a limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """One quantity of one model: what it is, what it was, and what it may be."""

    model: str
    quantity: Quantity
    amount: int
    partial: bool
    """Operators have no price, so the amount is a lower bound."""
    before: int | None
    """In the baseline, where there is one and the model is in it."""
    limit: Limit | None
    """None where the line only tells of a change."""
    word: Word

    @property
    def difference(self) -> int | None:
        return None if self.before is None else self.amount - self.before

    def __str__(self) -> str:
        told = format_time if self.quantity.unit == "time" else "{:,}".format
        was = "" if self.before is None else f", it was {told(self.before)}"
        allowed = f"{self.limit.text} is allowed" if self.limit else "no limit"
        return f"{self.model}: {self.quantity.title} {told(self.amount)}, and {allowed}{was}"

    def __repr__(self) -> str:
        return brief(self, [str(self), self.word])


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One model: where it came from, its lines, and operators without a price that nobody allowed."""

    name: str
    source: str
    inputs: str
    lines: tuple[Held, ...]
    missed: tuple[Uncounted, ...] = ()

    @property
    def kept(self) -> bool:
        return not self.missed and all(line.word in ("ok", "new", "") for line in self.lines)

    def __repr__(self) -> str:
        return brief_record(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict(Shown):
    """Whether models keep to their budgets; it is true if all do. Print it, save it, or ask it."""

    views: ClassVar[str] = COMPARISON_VIEWS

    models: tuple[Judged, ...]
    baseline: str = ""
    """The file that amounts are compared with."""

    @property
    def lines(self) -> tuple[Held, ...]:
        return tuple(line for model in self.models for line in model.lines)

    @property
    def offending(self) -> tuple[str, ...]:
        """What is wrong, in sentences."""
        said = [str(line) for line in self.lines if line.word == "EXCEEDED"]
        for model in self.models:
            said += [
                f"{model.name}: {missed.raw} has no price ({missed.reason}), so what was counted is a lower bound"
                for missed in model.missed
            ]
        return tuple(said)

    def __repr__(self) -> str:
        names = " and ".join(model.name for model in self.models)
        return brief(self, ["all limits are kept" if self else "exceeded", *self.offending[:1]], names)

    def __bool__(self) -> bool:
        return all(model.kept for model in self.models)
