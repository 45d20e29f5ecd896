"""Which module was the innermost one at a time, from the calls of modules on a thread."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import NamedTuple

from opcost.traces.kineto.lane import NONE, Lane

NEVER = 2**64
"""Later than every time."""


class Changes(NamedTuple):
    """When another module becomes the innermost one on a thread, and which; times only grow."""

    times: list[int]
    modules: list[int]

    def at(self, times: array[int]) -> list[int]:
        """The innermost module at each of these times, which only grow too."""
        if not self.times:
            return [NONE] * len(times)
        found: list[int] = []
        add = found.append
        upcoming = zip([*self.times, NEVER], [*self.modules, NONE], strict=True)
        module = NONE
        next_change, next_module = next(upcoming)
        for time in times:
            while next_change <= time:
                module = next_module
                next_change, next_module = next(upcoming)
            add(module)
        return found


@dataclass(slots=True)
class ModuleTree:
    """The modules of a trace, numbered; a module is told by the one around it and its own class and number."""

    paths: list[str] = field(default_factory=list)
    """By number: the classes and numbers from the outermost, as `ResNet_0.Conv2d_3`."""
    _numbers: dict[tuple[int, str], int] = field(default_factory=dict)

    def number(self, around: int, name: str) -> int:
        number = self._numbers.get((around, name))
        if number is None:
            number = self._numbers[around, name] = len(self.paths)
            self.paths.append(name if around == NONE else f"{self.paths[around]}.{name}")
        return number

    def changes(self, calls: Lane, names: list[str]) -> Changes:
        """What the calls of modules on one thread change; `names` are those of all signatures."""
        calls.sort()
        found = Changes([], [])
        opened: list[tuple[int, int]] = [(NEVER, NONE)]
        """The end and the number of each module that is being called, the outermost first."""
        for start, duration, signature in zip(calls.start, calls.duration, calls.signature, strict=True):
            _close(opened, start, found)
            number = self.number(opened[-1][1], names[signature])
            opened.append((start + duration, number))
            found.times.append(start)
            found.modules.append(number)
        _close(opened, NEVER - 1, found)
        return found


def _close(opened: list[tuple[int, int]], until: int, found: Changes) -> None:
    """End what ends by this time; a call that seems to end after the one around it ends with that one."""
    while opened[-1][0] <= until:
        end, _ = opened.pop()
        found.times.append(max(end, found.times[-1]))
        found.modules.append(opened[-1][1])
