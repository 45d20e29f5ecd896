"""What differs between two profiles: time and executions of operators with the same module, type and shapes.

A prediction names operators as the dispatcher runs them and a trace as the author called them (`aten::addmm`, `aten::linear`), so
one is held against the other by module and kind.
"""

from __future__ import annotations

from typing import NamedTuple

from opcost.analysis.part import LABELS, parts_of, shapes_text, unattributed_parts, usual_side
from opcost.core.comparison import Compared, Comparison, Entry, Part
from opcost.core.profile import Profile
from opcost.core.quantity import Quantity
from opcost.core.wishes import Side


class Key(NamedTuple):
    """What two operators must have in common to be compared."""

    module: str
    type: str
    shape: str


class Spent(NamedTuple):
    """Time and executions of one key in one run of a profile."""

    time_ns: int = 0
    count: int = 0  # type: ignore[assignment]  # a tuple has a method of this name


TIME = Quantity("time", "time", "time")
CALLS = Quantity("calls", "calls", "number")


def diff_profiles(before: Profile, after: Profile, labels: tuple[str, str] = ("before", "after")) -> Comparison:
    """All keys whose time or count is not the same, the largest change first, on the device if both have times of one."""
    side: Side = "device" if usual_side(before) == usual_side(after) == "device" else "host"
    time = TIME._replace(title=f"{side} time")
    by_kind = _is_foretold(before) != _is_foretold(after)
    old, new = (_spent(profile, side, by_kind=by_kind) for profile in (before, after))
    keys = [key for key in dict.fromkeys((*old, *new)) if old.get(key) != new.get(key)]
    keys.sort(key=lambda key: -abs(new.get(key, _NOTHING).time_ns - old.get(key, _NOTHING).time_ns))
    entries = [
        _entry("total", Key("", "", ""), time, [sum(spent.time_ns for spent in found.values()) for found in (old, new)])
    ]
    for key in keys:
        was, now = old.get(key), new.get(key)
        entries.append(_entry("operator", key, time, [None if each is None else each.time_ns for each in (was, now)]))
        entries.append(_entry("operator", key, CALLS, [None if each is None else each.count for each in (was, now)]))
    sources = tuple(
        Compared(
            label=label, facts={"source": profile.meta.get("source", ""), "format": profile.meta.get("format", "")}
        )
        for label, profile in zip(labels, (before, after), strict=True)
    )
    return Comparison(sources=sources, entries=tuple(entries)).changed()


_NOTHING = Spent()


def _entry(part: Part, key: Key, quantity: Quantity, amounts: list[int | None]) -> Entry:
    """An amount that is missing belongs to an operator that only the other profile has."""
    return Entry(
        part=part,
        name=key.module,
        type=key.type,
        detail=key.shape,
        quantity=quantity,
        amounts=tuple(amounts),
        present=tuple(amount is not None for amount in amounts),
        partial=(False, False),
    )


def _is_foretold(profile: Profile) -> bool:
    return profile.meta.get("format") == "prediction"


def _spent(profile: Profile, side: Side, *, by_kind: bool) -> dict[Key, Spent]:
    found: dict[Key, Spent] = {}
    parts = parts_of(profile, side, "time")
    if side == "device":
        parts += unattributed_parts(profile)
    for part in parts:
        row = part.row
        if row is None:
            key = Key("", LABELS["type"](part), "")
        elif by_kind:
            if row.kind == "view":  # a prediction leaves them out: they run nothing on a device
                continue
            key = Key(row.module, row.kind or row.type, "")
        else:
            key = Key(row.module, row.type, shapes_text(row.ins))
        known = found.get(key, Spent())
        found[key] = Spent(known.time_ns + part.time_ns, known.count + part.count)
    runs = profile.runs
    return {key: Spent(round(spent.time_ns / runs), round(spent.count / runs)) for key, spent in found.items()}
