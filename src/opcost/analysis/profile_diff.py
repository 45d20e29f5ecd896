"""What differs between two profiles: time and executions of operators with the same module, type and shapes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from opcost.analysis.part import LABELS, parts_of, shapes_text, unattributed_parts, usual_side
from opcost.core.profile import Profile
from opcost.core.wishes import Side


class Key(NamedTuple):
    """What two operators must have in common to be compared."""

    module: str
    type: str
    shape: str


class Spent(NamedTuple):
    """Time and executions of one key in one profile."""

    time_ns: int = 0
    count: int = 0  # type: ignore[assignment]  # a tuple has a method of this name


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeChange:
    """One key in both profiles; a count of 0 says that it is in one of them only."""

    key: Key
    before: Spent
    after: Spent

    @property
    def delta_ns(self) -> int:
        return self.after.time_ns - self.before.time_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileDifference:
    """All keys whose time or count is not the same, the largest change first."""

    side: Side
    before_ns: int
    after_ns: int
    changes: tuple[TimeChange, ...]

    def __bool__(self) -> bool:
        return bool(self.changes)


def diff_profiles(before: Profile, after: Profile) -> ProfileDifference:
    """Compare on the device if both have times of one, else on the host."""
    side: Side = "device" if usual_side(before) == usual_side(after) == "device" else "host"
    old, new = _spent(before, side), _spent(after, side)
    nothing = Spent()
    changes = [
        TimeChange(key=key, before=old.get(key, nothing), after=new.get(key, nothing))
        for key in dict.fromkeys((*old, *new))
        if old.get(key) != new.get(key)
    ]
    return ProfileDifference(
        side=side,
        before_ns=sum(spent.time_ns for spent in old.values()),
        after_ns=sum(spent.time_ns for spent in new.values()),
        changes=tuple(sorted(changes, key=lambda change: -abs(change.delta_ns))),
    )


def _spent(profile: Profile, side: Side) -> dict[Key, Spent]:
    found: dict[Key, Spent] = {}
    parts = parts_of(profile, side, "time")
    if side == "device":
        parts += unattributed_parts(profile)
    for part in parts:
        row = part.row
        key = Key(row.module, row.type, shapes_text(row.ins)) if row else Key("", LABELS["type"](part), "")
        known = found.get(key, Spent())
        found[key] = Spent(known.time_ns + part.time_ns, known.count + part.count)
    return found
