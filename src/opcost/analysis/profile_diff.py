"""What differs between two profiles: time and executions by operator, kind, module or kernel, in one step where both have steps.

A prediction names operators as the dispatcher runs them and a trace as the author called them (`aten::addmm`, `aten::linear`), so
one is held against the other by module and kind. The same module of many layers is one line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

from opcost.analysis import bounds
from opcost.analysis.layers import folded
from opcost.analysis.part import LABELS, NOWHERE, Part, parts_of, shapes_text, unattributed_parts, usual_side
from opcost.core.answer import Busy
from opcost.core.comparison import Compared, Comparison, Entry
from opcost.core.comparison import Part as PartName
from opcost.core.profile import Profile
from opcost.core.quantity import Quantity
from opcost.options import Side

By: TypeAlias = Literal["operator", "kind", "module", "kernel", "shape"]
"""What makes a line: the type of an operator, ... or its module, type and shapes together."""
_PARTS: dict[By, PartName] = {
    "operator": "type",
    "kind": "kind",
    "module": "module",
    "kernel": "kernel",
    "shape": "operator",
}


class Key(NamedTuple):
    """What two operators must have in common to be compared."""

    name: str
    type: str = ""
    shape: str = ""


class Spent(NamedTuple):
    """Time and executions of one key in one run of a profile."""

    time_ns: int = 0
    count: int = 0  # type: ignore[assignment]  # a tuple has a method of this name


TIME = Quantity("time", "time", "time")
CALLS = Quantity("calls", "calls", "number")


def diff_profiles(
    before: Profile, after: Profile, labels: tuple[str, str] = ("before", "after"), by: By | None = None
) -> Comparison:
    """All keys whose time or count is not the same, the largest change first, on the device if both have times of one."""
    side: Side = "device" if usual_side(before) == usual_side(after) == "device" else "host"
    time = TIME._replace(title=f"{side} time")
    foretold = by is None and _is_foretold(before) != _is_foretold(after)
    uses = [bounds.devices(profile) for profile in (before, after)]
    parts = _divisors((before, after), uses)
    layers = folded(*([row.module for row in profile.rows] for profile in (before, after)))
    old, new = (
        _spent(profile, side, divided, by or "operator", names, by_kind=foretold)
        for profile, divided, names in zip((before, after), parts, layers, strict=True)
    )
    keys = [key for key in dict.fromkeys((*old, *new)) if old.get(key) != new.get(key)]
    keys.sort(key=lambda key: -abs(new.get(key, _NOTHING).time_ns - old.get(key, _NOTHING).time_ns))
    whole = [sum(spent.time_ns for spent in found.values()) for found in (old, new)]
    entries = [_entry("total", Key(""), time, list(whole))]
    if side == "device":
        entries += _of_devices(uses, parts)
    name: PartName = "operator" if foretold else _PARTS[by or "operator"]
    for key in keys:
        was, now = old.get(key), new.get(key)
        entries.append(_entry(name, key, time, [None if each is None else each.time_ns for each in (was, now)]))
        entries.append(_entry(name, key, CALLS, [None if each is None else each.count for each in (was, now)]))
    sources = tuple(
        Compared(label=label, facts=_facts(profile, divided))
        for label, profile, divided in zip(labels, (before, after), parts, strict=True)
    )
    return Comparison(sources=sources, entries=tuple(entries)).changed()


def _facts(profile: Profile, divided: int) -> dict[str, str]:
    meta = profile.meta
    per = f"per step of {divided}" if divided > 1 else ""
    facts = {"source": meta.get("source", ""), "format": meta.get("format", ""), "device": meta.get("device", "")}
    return {**facts, "per": per}


def _divisors(profiles: Sequence[Profile], uses: Sequence[Sequence[Busy]]) -> list[int]:
    """What sums are divided by: runs that opcost recorded, else steps where both profiles have some."""
    steps = [max((use.steps for use in each), default=0) for each in uses]
    if any(profile.runs > 1 for profile in profiles) or not all(steps):
        return [profile.runs for profile in profiles]
    return steps


def _of_devices(uses: Sequence[Sequence[Busy]], divided: Sequence[int]) -> list[Entry]:
    """The time of a device from its first kernel to its last, its idle time, and collectives that nothing hid, on average."""

    def mean(place: int, name: str) -> int | None:
        found = [getattr(use, name) for use in uses[place]]
        return round(sum(found) / len(found) / divided[place]) if found and None not in found else None

    names = (("span", "from first to last kernel"), ("idle", "idle time"), ("communication", "exposed communication"))
    found = []
    for name, title in names:
        amounts = [mean(place, f"{name}_ns") for place in range(2)]
        if None not in amounts and any(amounts):
            found.append(_entry("total", Key(""), Quantity(name, title, "time"), amounts))
    return found


_NOTHING = Spent()


def _entry(part: PartName, key: Key, quantity: Quantity, amounts: list[int | None]) -> Entry:
    """An amount that is missing belongs to an operator that only the other profile has."""
    return Entry(
        part=part,
        name=key.name,
        type=key.type,
        detail=key.shape,
        quantity=quantity,
        amounts=tuple(amounts),
        present=tuple(amount is not None for amount in amounts),
        partial=(False, False),
    )


def _is_foretold(profile: Profile) -> bool:
    return profile.meta.get("format") == "prediction"


def _spent(
    profile: Profile, side: Side, divided: int, by: By, layers: Mapping[str, str], *, by_kind: bool
) -> dict[Key, Spent]:
    found: dict[Key, Spent] = {}
    parts = parts_of(profile, side, "time", keys=("kernel",) if by == "kernel" else ())
    if side == "device":
        parts += unattributed_parts(profile)
    for part in parts:
        row = part.row
        if (
            by_kind and row is not None and row.kind == "view"
        ):  # a prediction leaves them out: they run nothing on a device
            continue
        key = _foretold_key(part, layers) if by_kind else _key(part, by, layers)
        known = found.get(key, Spent())
        count = part.launches if by == "kernel" else part.count
        found[key] = Spent(known.time_ns + part.time_ns, known.count + count)
    return {key: Spent(round(spent.time_ns / divided), round(spent.count / divided)) for key, spent in found.items()}


def _key(part: Part, by: By, layers: Mapping[str, str]) -> Key:
    row = part.row
    if by == "kernel":
        return Key(LABELS["kernel"](part))
    if by == "shape":
        return Key("", LABELS["type"](part)) if row is None else Key(layers[row.module], row.type, shapes_text(row.ins))
    if by == "operator":
        return Key(LABELS["type"](part))
    if by == "module" and row is not None:
        return Key(layers[row.module] or NOWHERE)
    # Of a kind that nobody knows, the type tells more than nothing.
    return Key(LABELS[by](part) or (NOWHERE if row is None else row.type))


def _foretold_key(part: Part, layers: Mapping[str, str]) -> Key:
    row = part.row
    return Key("", LABELS["type"](part)) if row is None else Key(layers[row.module], row.kind or row.type)
