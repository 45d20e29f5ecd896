"""The same module in every layer under one name: `blocks.*.attn.q` for that of all blocks.

Traces number the calls of a class through (`Block_3.Attention_3.Linear_14`), models the places of a list (`blocks.3.attn.q`).
A module that holds others loses its number where there are several beside each other; one that holds none is distinguished by
its place among those of its name, so that the third projection of every layer is a line of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

ANY = "*"
_NUMBERED = re.compile(r"(?P<stem>.+_)?(?P<number>\d+)")


def folded(*models: Iterable[str]) -> list[dict[str, str]]:
    """Of the paths of each model the names under which layers are one; models are compared with each other, so all decide."""
    trees = [_parents(paths) for paths in models]
    named: list[dict[str, str]] = [{"": ""} for _ in trees]
    places: list[dict[str, tuple[str, int]]] = [_places(tree) for tree in trees]
    for depth in range(1, max((path.count(".") + 1 for tree in trees for path in tree if path), default=0) + 1):
        found = [[path for path in tree if path and path.count(".") + 1 == depth] for tree in trees]
        several = {
            (names[_above(path)], place[path][0])
            for paths, names, place in zip(found, named, places, strict=True)
            for path in paths
            if path in place and place[path][1] > 0
        }
        for paths, names, place, tree in zip(found, named, places, trees, strict=True):
            for path in paths:
                above, own = names[_above(path)], path.rpartition(".")[2]
                if path in place:
                    stem, number = place[path]
                    own = stem.rstrip("_") or own
                    if (above, stem) in several:
                        own = f"{stem}{ANY if tree[path] else number}"
                names[path] = f"{above}.{own}" if above else own
    return named


def _above(path: str) -> str:
    return path.rpartition(".")[0]


def _parents(paths: Iterable[str]) -> dict[str, bool]:
    """Every path and those above it, in their order, and whether there is something below."""
    found: dict[str, bool] = {}
    for path in paths:
        below = False
        while path and not (found.get(path, False) or (path in found and not below)):
            found[path] = found.get(path, False) or below
            path, below = _above(path), True  # noqa: PLW2901 - up to the root
    return found


def _places(tree: Iterable[str]) -> dict[str, tuple[str, int]]:
    """Of each module with a number its name without it, and its place among those of that name beside it."""
    numbers: dict[tuple[str, str], dict[int, str]] = {}
    for path in tree:
        if match := _NUMBERED.fullmatch(path.rpartition(".")[2]):
            numbers.setdefault((_above(path), match["stem"] or ""), {})[int(match["number"])] = path
    return {
        path: (stem, place)
        for (_, stem), beside in numbers.items()
        for place, (_, path) in enumerate(sorted(beside.items()))
    }
