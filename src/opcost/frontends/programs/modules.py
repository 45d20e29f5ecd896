"""The modules of the exported model, as its operators remember them: `key,path,type;key,path,type`, outermost first."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from opcost.core.checked import Bad, short
from opcost.core.graph import Call, Module
from opcost.frontends.building import above, tree_order

_LONGEST_PATH = 1000
_DEEPEST = 64
_AGAIN = re.compile(r"@\d+(?=\.|$)")
"""What a path has where a module is called once more."""


class Entry(NamedTuple):
    """A module around an operator."""

    key: str
    """Another one for each call."""
    path: str
    type: str


def stack_of(text: str) -> tuple[Entry, ...]:
    """The modules around an operator."""
    found = []
    for entry in text.split(";") if text else ():
        key, _, rest = entry.partition(",")
        path, _, kind = rest.rpartition(",")
        if key.startswith("_empty_nn_module_stack"):
            return ()
        found.append(Entry(key, again_removed(_checked(path)), kind.rpartition(".")[2] or "Module"))
    return tuple(found)


def again_removed(path: str) -> str:
    """The path of a module, whichever of its calls is meant."""
    return _AGAIN.sub("", path)


def _checked(path: str) -> str:
    if len(path) > _LONGEST_PATH or path.count(".") > _DEEPEST:
        raise Bad(f"the module {short(path)} lies too deep")
    return path


class Modules:
    """Follows the operators through the modules."""

    def __init__(self) -> None:
        self.types: dict[str, str] = {"": "Module"}
        self.held: dict[str, tuple[list[tuple[str, int]], list[tuple[str, int]]]] = {}
        self.calls: list[Call] = []
        self._open: list[tuple[str, int]] = []

    def declare(self, path: str) -> None:
        """A module that the program names."""
        for each in (*above(_checked(path)), path):
            self.types.setdefault(each, "Module")

    def hold(self, name: str, value: int, *, parameter: bool) -> None:
        """A weight, by its full name."""
        path, _, own = name.rpartition(".")
        self.declare(path)
        self.held.setdefault(path, ([], []))[0 if parameter else 1].append((own, value))

    def enter(self, stack: tuple[Entry, ...], at: int) -> str:
        """The module of the next operator, which is the `at`-th; no stack means that it has no place of its own."""
        if not stack:
            return ""
        same = 0
        for entry, (opened, _) in zip(stack, self._open, strict=False):
            if entry.key != opened:
                break
            same += 1
        self.leave(at, same)
        for key, path, kind in stack[same:]:
            self.declare(path)
            if self.types[path] == "Module":
                self.types[path] = kind
            self._open.append((key, len(self.calls)))
            self.calls.append(Call(path, (), (), at, at))
        return stack[-1].path

    def leave(self, at: int, depth: int = 0) -> None:
        """Close the modules below a depth."""
        while len(self._open) > depth:
            _, index = self._open.pop()
            self.calls[index] = self.calls[index]._replace(end=at)

    def all(self) -> Iterator[Module]:
        """Every module once, in the order of definition, those below right after the one above."""
        count: dict[str, int] = {}
        for call in self.calls:
            count[call.path] = count.get(call.path, 0) + 1
        for path in tree_order(self.types):
            parameters, buffers = self.held.get(path, ((), ()))
            yield Module(
                path=path,
                type=self.types[path],
                parameters=tuple(parameters),
                buffers=tuple(buffers),
                calls=count.get(path, 0),
            )
