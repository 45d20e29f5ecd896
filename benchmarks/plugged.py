"""opcost from a checkout that nobody installed: its own parts, told by pyproject.toml instead of by the installed package."""

from __future__ import annotations

import re
from importlib.metadata import EntryPoint
from pathlib import Path

import opcost.core.plugin

ROOT = Path(__file__).resolve().parent.parent
_GROUP = re.compile(r'^\[project\.entry-points\."([\w.]+)"\]\n((?:[^\[\n].*\n)*)', re.MULTILINE)
_ENTRY = re.compile(r'^([\w-]+)\s*=\s*"([^"]+)"', re.MULTILINE)


def plug_in() -> None:
    """Make opcost's rules and front ends known where it is not installed."""
    if opcost.core.plugin.find(opcost.core.plugin.RULES):
        return
    groups = {
        group: [EntryPoint(name, value, group) for name, value in _ENTRY.findall(body)]
        for group, body in _GROUP.findall((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    }
    opcost.core.plugin.entry_points = lambda group: groups.get(group, [])  # type: ignore[assignment]
    opcost.core.plugin.find.cache_clear()
