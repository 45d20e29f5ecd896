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
        parts = path.split(".")
        # A scope with dots repeats the end of the path: in stage2.0.branches.0, branches.0.0 is stage2.0.branches.0.0.
        ends = (".".join(parts[at:]) for at in range(len(parts)))
        end = next((end for end in ends if scope.startswith(f"{end}.")), "") if path else ""
        path = f"{path.removesuffix(end)}{scope}" if end else f"{path}.{scope}" if path else scope
    return path
