"""A profile as users hold it: what was measured, and the doors to ask it, print it and save it."""

from __future__ import annotations

from dataclasses import dataclass, fields
from os import PathLike
from typing import TYPE_CHECKING, Any

from opcost.core import profile as measured

if TYPE_CHECKING:
    from opcost.core.answer import Answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile(measured.Profile):
    """What was measured, in the order of execution; it answers questions."""

    def query(self, **wishes: Any) -> Answer:
        """Ask: `profile.query(kind="conv", order_by="-time", top=5, aggregate_by="type")`; see `opcost.query` for all wishes."""
        from opcost.analysis.query import query

        return query(self, **wishes)

    def __str__(self) -> str:
        return str(self.query(aggregate_by=self.usual_keys))

    def save(self, path: str | PathLike[str]) -> None:
        """Write the profile as JSON, which `opcost.read_profile` reads. Whatever goes wrong, the old file is as it was."""
        from opcost.core.profile_schema import dumps
        from opcost.core.writing import write_text

        write_text(path, dumps(self))


def askable(found: measured.Profile) -> Profile:
    """What a recorder or a reader found, for users."""
    return Profile(**{field.name: getattr(found, field.name) for field in fields(found)})
