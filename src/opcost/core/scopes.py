"""Paths of modules in the names that exporters give to operators."""

from __future__ import annotations

from collections.abc import Sequence


def path_of_scopes(scopes: Sequence[str]) -> str:
    """The module that lies in these, each inside the one before: `layer1`, `layer1.0`, `conv1` is layer1.0.conv1.

    Exporters repeat the name of a list, or the whole path so far, in the names of what lies in it.
    """
    path = ""
    for scope in scopes:
        if path and (scope == path or scope.startswith(f"{path}.")):
            path = scope
            continue
        last = path.rpartition(".")[2]
        new = scope.removeprefix(f"{last}.") if last else scope
        path = f"{path}.{new}" if path else new
    return path
