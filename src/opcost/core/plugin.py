"""The doors for extensions: entry-point groups through which the project's own parts come in too.

Entry points are read once, when first asked for, and each part is imported only when it is used.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from opcost.errors import OpcostError, UnknownName

FRONTENDS = "opcost.frontends"
RULES = "opcost.rules"
VIEWS = "opcost.views"
PROFILE_VIEWS = "opcost.profile_views"


@cache
def find(group: str) -> dict[str, EntryPoint]:
    """The parts of a group by name, not yet imported. Two parts with one name are an error, not a guess."""
    found: dict[str, EntryPoint] = {}
    for entry in entry_points(group=group):
        other = found.setdefault(entry.name, entry)
        if other.value != entry.value:
            raise OpcostError(f"two plug-ins of {group} are called {entry.name!r}: {other.value} and {entry.value}")
    return found


@cache
def load(group: str, name: str) -> Any:
    """Import one part by name."""
    parts = find(group)
    if name not in parts:
        raise UnknownName(group.rpartition(".")[2].rstrip("s"), name, parts)
    return parts[name].load()


def view_for_suffix(path: str) -> Any:
    """The view that writes files with this path's suffix. A view's entry-point name is its suffix or an alias of it."""
    suffix = path.rpartition("/")[2].rpartition(".")[2].lower() if "." in path else ""
    for name in find(VIEWS):
        view = load(VIEWS, name)
        if view.suffix == f".{suffix}":
            return view
    known = sorted(view.suffix for view in (load(VIEWS, name) for name in find(VIEWS)) if view.suffix)
    raise UnknownName("file suffix", f".{suffix}", known, hint=f"name the file with one of {', '.join(known)}")
