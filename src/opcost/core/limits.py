"""The quantities of a whole model, limits on them (`<4.2G`, against a baseline `>+1%`), and rising sizes (`1,2,4..256`)."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from operator import ge, gt, le, lt
from os import PathLike, fspath
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from opcost.core import document
from opcost.core.escaping import json_text
from opcost.core.files import head_of, write_text
from opcost.core.report import Report
from opcost.core.schema import load as load_report
from opcost.core.units import parse_bytes, parse_count, parse_time
from opcost.errors import InputError, OpcostError, UnknownName, shortened

CountedIn: TypeAlias = Literal["count", "bytes", "number", "time"]


class Quantity(NamedTuple):
    """Something that can be counted, compared, and limited."""

    name: str
    title: str
    unit: CountedIn
    needs_costs: bool = False  # a lower bound where an operator has no cost: behind it sizes may be unknown


_TITLES = {
    "params": "params", "trainable_params": "trainable params", "unused_params": "unused params", "buffers": "buffers",
    "param_bytes": "param bytes", "buffer_bytes": "buffer bytes", "macs": "MACs", "flops": "FLOPs",
    "bytes_read": "bytes read", "bytes_written": "bytes written", "activations": "activations",
    "activation_bytes": "activation bytes", "ops": "operators", "uncounted": "uncounted", "bytes": "bytes moved",
    "peak_bytes": "peak memory", "wire_bytes": "on the wire",
}  # fmt: skip
_NEEDS_COSTS = "macs flops bytes_read bytes_written bytes activations activation_bytes peak_bytes wire_bytes".split()
_PLAIN = ("ops", "uncounted")

QUANTITIES: dict[str, Quantity] = {
    name: Quantity(
        name, title, "bytes" if "bytes" in name else "number" if name in _PLAIN else "count", name in _NEEDS_COSTS
    )
    for name, title in _TITLES.items()
}
"""What a report has of the whole model: the sums of `Stats`, the bytes that move, the highest memory, and what a rank sends."""
LATENCY = Quantity("latency", "latency", "time", needs_costs=True)  # predicted of a device, in no report
LIMITED: dict[str, Quantity] = {**QUANTITIES, LATENCY.name: LATENCY}  # what can be limited
OTHER_NAMES = {"peak_memory": "peak_bytes", "peak": "peak_bytes", "memory": "peak_bytes", "parameters": "params"}


def find_quantity(name: str, known: Mapping[str, Quantity] = QUANTITIES) -> Quantity:
    """The quantity of this name, however it is spelt."""
    key = name.strip().lower().replace(" ", "_").replace("-", "_")
    key = OTHER_NAMES.get(key, key)
    if key not in known:
        raise UnknownName("quantity", name.strip(), known)
    return known[key]


def amounts_of(report: Report) -> dict[str, int]:
    """Every quantity of the whole model that is known."""
    totals = report.totals
    known = totals._asdict() | {
        "bytes": totals.bytes_read + totals.bytes_written,
        "peak_bytes": report.peak_bytes,
        "wire_bytes": report.wire_bytes,
    }
    return {name: int(known[name]) for name in QUANTITIES if known[name] is not None}


# -- limits -------------------------------------------------------------------------------------------------------------

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
    """A limit on one quantity: on its amount, or on its change since a baseline."""

    quantity: Quantity
    relation: str
    value: Fraction
    scale: Scale
    text: str  # as it was written, beginning with the relation

    @property
    def relative(self) -> bool:
        """It is about a change, so it needs a baseline."""
        return self.scale != "amount"

    def holds(self, amount: int, before: int | None = None) -> bool:
        """Whether it is kept. A change in percent of nothing is without bounds, unless there is no change."""
        holds = _RELATIONS[self.relation]
        if self.scale == "amount":
            return holds(Fraction(amount), self.value)
        if before is None:
            raise OpcostError(f"{self} is about a change, and there is no amount from before")
        change = Fraction(amount - before)
        if self.scale == "change":
            return holds(change, self.value)
        return holds(100 * change, self.value * before) if before or not change else holds(change, Fraction(0))

    def __str__(self) -> str:
        return f"{self.quantity.name}{self.text}"


def parse_limit(name: str, limit: str | float, known: Mapping[str, Quantity] = QUANTITIES) -> Limit:
    """What a quantity may be: `"<4.2G"`, `"4.2G"` (at most), a whole number (at most; of bytes), `"<+1%"`."""
    quantity = find_quantity(name, known)
    whole = isinstance(limit, (str, int)) or (isinstance(limit, float) and limit.is_integer())
    if not whole or isinstance(limit, bool):
        raise OpcostError(f"{shortened(repr(limit))} is not a limit of {quantity.name}", hint=HINT)
    text = limit if isinstance(limit, str) else f"{int(limit)}{'B' if quantity.unit == 'bytes' else ''}"
    return _limit(quantity, text, text)


def parse_condition(text: str, known: Mapping[str, Quantity] = QUANTITIES) -> Limit:
    """`macs>+1%`: the name of a quantity and its limit."""
    found = _CONDITION.fullmatch(text)
    if found is None:
        raise OpcostError(f"{shortened(repr(text))} is not a condition", hint=HINT)
    return _limit(find_quantity(found["name"], known), found["limit"], text)


def _limit(quantity: Quantity, text: str, typed: str) -> Limit:
    found = _LIMIT.fullmatch(text)
    if found is None:
        raise OpcostError(f"{shortened(repr(typed))} is not a limit of {quantity.name}", hint=HINT)
    number, sign, relation = found["number"].strip(), found["sign"] or "", found["relation"] or "<="
    scale: Scale = "percent" if found["percent"] else "change" if sign else "amount"
    if scale == "percent":
        if not sign or not _PERCENT.fullmatch(number):
            what = "has no sign" if not sign else "is not a number of percent"
            raise OpcostError(f"the limit {shortened(repr(typed))} of {quantity.name} {what}", hint=HINT)
        value = Fraction(number)
    else:
        value = Fraction({"bytes": parse_bytes, "time": parse_time}.get(quantity.unit, parse_count)(number))
    written = f"{relation}{sign}{number}{found['percent'] or ''}"
    return Limit(quantity, relation, -value if sign == "-" else value, scale, written)


# -- sizes --------------------------------------------------------------------------------------------------------------

MOST = 1000  # sizes of one progression
SIZES_HINT = "write sizes that rise: 1,2,4..256 goes on as it began, 128..8192 doubles, 10,20..100 adds 10"
_ITEM = re.compile(r"\s*(\d{1,18})\s*(?:\.\.\s*(\d{1,18})\s*)?")


def parse_sizes(text: str) -> tuple[int, ...]:
    """Rising sizes, `1,2,4..256`: `..` continues the numbers before it up to a last one.

    One number before the dots is doubled. Two of them are the first steps of equal ones. Of three or more the last three say
    whether a number is added or multiplied with.
    """
    sizes: list[int] = []
    began = 0
    for item in text.split(","):
        found = _ITEM.fullmatch(item)
        if found is None:
            raise InputError(f"{shortened(repr(text))} are not sizes: {shortened(repr(item.strip()))}", hint=SIZES_HINT)
        sizes.append(int(found[1]))
        if found[2] is not None:
            _continue(sizes, began, int(found[2]), text)
            began = len(sizes)
    return check_sizes(sizes, text)


def check_sizes(sizes: Sequence[int], typed: object) -> tuple[int, ...]:
    """The sizes, if they rise from above zero and are not too many."""
    if not sizes or any(not isinstance(size, int) or isinstance(size, bool) or size < 1 for size in sizes):
        raise InputError(f"{shortened(repr(typed))}: sizes are whole numbers above zero", hint=SIZES_HINT)
    if any(after <= before for before, after in pairwise(sizes)):
        raise InputError(f"{shortened(repr(typed))}: the sizes do not rise", hint=SIZES_HINT)
    if len(sizes) > MOST:
        raise InputError(f"{shortened(repr(typed))}: more than {MOST:,} sizes", hint="take larger steps")
    return tuple(sizes)


def _continue(sizes: list[int], began: int, last: int, text: str) -> None:
    """Add sizes as those from `began` on rise, up to the last."""
    *_, a, b = before = [0, *sizes[began:]]
    if len(before) == 2:
        factor, term = 2, 0
    elif len(before) == 3 or b - a == a - before[-3]:
        factor, term = 1, b - a
    elif a and before[-3] and b % a == 0 and b * before[-3] == a * a:
        factor, term = b // a, 0
    else:
        three = ", ".join(map(str, before[-3:]))
        hint = SIZES_HINT
        raise InputError(f"{shortened(repr(text))}: {three} go on neither by adding nor by multiplying", hint=hint)
    if last <= b:
        raise InputError(f"{shortened(repr(text))}: {last} is not above {b}", hint=SIZES_HINT)
    while (after := factor * sizes[-1] + term) <= last and len(sizes) <= MOST:
        if after <= sizes[-1]:
            raise InputError(f"{shortened(repr(text))}: the sizes do not rise", hint=SIZES_HINT)
        sizes.append(after)


# -- baselines: what models cost when that was last agreed on, in one small JSON file that belongs beside the code -------

SCHEMA = "opcost.baseline/1"

Amounts = Mapping[str, int]  # quantities of one model by name


class _BaselineModel(msgspec.Struct):
    source: str
    totals: dict[str, int]


class _Baseline(msgspec.Struct):
    models: dict[str, _BaselineModel]


def _read(data: _Baseline) -> dict[str, Amounts]:
    for name, model in data.models.items():
        document.believe(f"models.{name}", model.totals.values())
    return {
        name: {key: amount for key, amount in model.totals.items() if key in QUANTITIES or key.startswith(LATENCY.name)}
        for name, model in data.models.items()
    }


_DOCUMENT = document.Document(
    noun="baseline", schema=SCHEMA, again="opcost check --save-baseline FILE", form=_Baseline, read=_read
)


def load_baseline(path: str | PathLike[str], models: tuple[str, ...] = ()) -> dict[str, Amounts]:
    """What models cost before, by name; a saved report is the baseline of one model."""
    if len(models) == 1 and b'"opcost.report/' in head_of(path, 512):
        return {models[0]: amounts_of(load_report(path))}
    return _DOCUMENT.load(fspath(path))


def save_baseline(path: str | PathLike[str], models: Mapping[str, tuple[str, Amounts]]) -> None:
    """Write source and amounts of each model, whole or not at all."""
    data: dict[str, Any] = {
        "schema": SCHEMA,
        "models": {name: {"source": source, "totals": dict(totals)} for name, (source, totals) in models.items()},
    }
    write_text(path, json_text(data, indent=2) + "\n")
