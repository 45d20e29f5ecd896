"""Memory over the execution by what holds it: what is there throughout, and what comes and goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from opcost.core.memory import PARTS, Memory, Part

STANDING: tuple[Part, ...] = ("weights", "inputs", "optimizer")
"""What is held from the first operator to the last."""


class Layers(NamedTuple):
    """Amounts that stay, and curves; together they are the whole curve."""

    standing: Mapping[Part, int]
    passing: Mapping[str, Sequence[int]]


def layers_of(memory: Memory) -> Layers:
    """The curve by its parts; where those are known at the peak alone, all that the pass adds is one: "added"."""
    passing: dict[str, Sequence[int]] = {part: memory.layers[part] for part in PARTS if part in memory.layers}
    standing = {part: memory.parts[part] for part in STANDING if memory.parts.get(part) and part not in passing}
    if memory.curve and sum(standing.values()) > min(memory.curve):  # inputs that the run freed, and no curve of theirs
        standing.pop("inputs", None)
    base = sum(standing.values())
    rest = [whole - base - sum(held) for whole, *held in zip(memory.curve, *passing.values(), strict=True)]
    if any(rest):
        passing["workspace" if memory.layers else "added"] = rest
    return Layers(standing, passing)
