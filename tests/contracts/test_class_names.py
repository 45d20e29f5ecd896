"""A class name says what it is: no two unrelated modules have a class of the same name."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

SOURCES = Path(__file__).resolve().parents[2] / "src" / "opcost"
SCHEMAS = {
    "core/schema.py",
    "core/profile_schema.py",
}  # what a class looks like in a saved file has the name of the class
SHARED = {
    "Graph": "core's, and onnx_tool's own name",
    "Model": "MegEngine's, and onnx_tool's own name",
    "Profile": "what was measured; the one that users get derives from it and answers questions",
}


def test_no_class_name_is_used_in_two_modules() -> None:
    homes: dict[str, set[str]] = defaultdict(set)
    for path in SOURCES.rglob("*.py"):
        home = path.relative_to(SOURCES).as_posix()
        # The names in compat are those of the peers; helpers there are named like ours, with an underscore.
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and home not in SCHEMAS:
                is_peers = home.startswith("compat/") and not node.name.startswith("_")
                homes[node.name if is_peers else node.name.lstrip("_")].add(home)
    ours = {name: found for name, found in homes.items() if any(not home.startswith("compat/") for home in found)}
    shared = {name: found for name, found in ours.items() if len(found) > 1 and name not in SHARED}
    assert not shared
