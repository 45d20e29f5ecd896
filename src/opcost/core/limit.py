"""Limits on quantities as people write them: `<4.2G`, `<=512MiB`, and against what was before, `>+1%` or `<+10M`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from operator import ge, gt, le, lt
from typing import Literal, TypeAlias

from opcost.core.quantity import QUANTITIES, Quantity, find_quantity
from opcost.core.units import parse_bytes, parse_count, parse_time
from opcost.errors import OpcostError
from opcost.wording import shortened

Scale: TypeAlias = Literal["amount", "change", "percent"]

_RELATIONS: dict[str, Callable[[Fraction, Fraction], bool]] = {"<=": le, ">=": ge, "<": lt, ">": gt}
_CONDITION = re.compile(r"\s*(?P<name>[A-Za-z][A-Za-z_ -]{0,60}?)\s*(?P<limit>[<>].*)", re.DOTALL)
_LIMIT = re.compile(
    r"\s*(?P<relation><=|>=|<|>)?\s*(?P<sign>[+-])?\s*(?P<number>[^\s%<>=+-][^%<>=]*)(?P<percent>%)?\s*"
)
_PERCENT = re.compile(r"\d{1,9}(?:\.\d{0,9})?")
HINT = "write macs<4.2G, peak_bytes<=512MiB, or against what was before macs>+1%, params>+10M"


@dataclass(frozen=True, slots=True)
class Limit:
    """What is said of one quantity: its amount, or its change since before, and how much that is compared with."""

    quantity: Quantity
    relation: str
    value: Fraction
    scale: Scale
    text: str
    """As it was written, beginning with the relation."""

    @property
    def relative(self) -> bool:
        """It is about a change, so it needs to know what was before."""
        return self.scale != "amount"

    def holds(self, amount: int, before: int | None = None) -> bool:
        """Whether what is said is so. A change in percent of nothing is without bounds, unless there is no change."""
        holds = _RELATIONS[self.relation]
        if self.scale == "amount":
            return holds(Fraction(amount), self.value)
        if before is None:
            raise OpcostError(f"{self} is about a change, and nobody says what was before")
        change = Fraction(amount - before)
        if self.scale == "change":
            return holds(change, self.value)
        return holds(100 * change, self.value * before) if before or not change else holds(change, Fraction(0))

    def __str__(self) -> str:
        return f"{self.quantity.name}{self.text}"


def parse_limit(name: str, limit: str | float, known: Mapping[str, Quantity] | None = None) -> Limit:
    """What a quantity may be: `"<4.2G"`, `"4.2G"` (at most), a whole number (at most; of bytes), `"<+1%"`."""
    quantity = _quantity(name, known)
    if isinstance(limit, bool) or not isinstance(limit, (str, int, float)) or not _is_whole(limit):
        raise OpcostError(f"{shortened(repr(limit))} is not a limit of {quantity.name}", hint=HINT)
    text = limit if isinstance(limit, str) else f"{int(limit)}{'B' if quantity.unit == 'bytes' else ''}"
    return _limit(quantity, text, text)


def parse_condition(text: str, known: Mapping[str, Quantity] | None = None) -> Limit:
    """`macs>+1%`: the name of a quantity and what is said of it."""
    found = _CONDITION.fullmatch(text)
    if found is None:
        raise OpcostError(f"{shortened(repr(text))} is not a condition", hint=HINT)
    return _limit(_quantity(found["name"], known), found["limit"], text)


def _quantity(name: str, known: Mapping[str, Quantity] | None) -> Quantity:
    return find_quantity(name, QUANTITIES if known is None else known)


def _is_whole(limit: str | float) -> bool:
    return isinstance(limit, (str, int)) or limit.is_integer()


def _limit(quantity: Quantity, text: str, told: str) -> Limit:
    found = _LIMIT.fullmatch(text)
    if found is None:
        raise OpcostError(f"{shortened(repr(told))} is not a limit of {quantity.name}", hint=HINT)
    number, sign, relation = found["number"].strip(), found["sign"] or "", found["relation"] or "<="
    scale: Scale = "percent" if found["percent"] else "change" if sign else "amount"
    if scale == "percent":
        if not sign or not _PERCENT.fullmatch(number):
            what = "has no sign" if not sign else "is not a number of percent"
            raise OpcostError(f"the limit {shortened(repr(told))} of {quantity.name} {what}", hint=HINT)
        value = Fraction(number)
    else:
        parse = {"bytes": parse_bytes, "time": parse_time}.get(quantity.unit, parse_count)
        value = Fraction(parse(number))
    written = f"{relation}{sign}{number}{found['percent'] or ''}"
    return Limit(quantity, relation, -value if sign == "-" else value, scale, written)
