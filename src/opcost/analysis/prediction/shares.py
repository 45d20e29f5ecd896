"""What the parts of a prediction wait for, and how far each is from what its device could do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from opcost.analysis.aggregate import check_keys
from opcost.analysis.part import label, parts_of, usual_side
from opcost.analysis.prediction.predict import ideal_of
from opcost.core.profile import Profile


@dataclass(slots=True)
class Share:
    """All operators of one module, type, kind or name."""

    key: str
    time_ns: int = 0
    ideal_ns: int = 0
    """At the printed peaks of the device."""
    bounds: dict[str, int] = field(default_factory=dict)
    """Its time by what the operators wait for."""

    @property
    def told(self) -> Mapping[str, float]:
        """The same as shares of its time."""
        return {name: taken / self.time_ns for name, taken in self.bounds.items() if self.time_ns}


def shares(profile: Profile, by: str, depth: int | None) -> tuple[Share, ...]:
    """The rows added up by a key, the longest first."""
    check_keys((by,))
    found: dict[str, Share] = {}
    for part in parts_of(profile, usual_side(profile), "time"):
        key = label(part, by, depth)
        share = found.setdefault(key, Share(key))
        if part.row is not None:
            bound = str(part.row.attrs.get("bound", ""))
            share.time_ns += part.time_ns
            share.ideal_ns += ideal_of(part.row)
            share.bounds[bound] = share.bounds.get(bound, 0) + part.time_ns
    return tuple(sorted(found.values(), key=lambda share: -share.time_ns))
