"""Names of many layers as one line: `model.layers.{0..79}.mlp.*`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

MANY_RUNS = 4
"""Runs of numbers that are written out; of more, the first and the last number and how many there are."""
_PLACE = "\0"
"""Stands for a number; no name that is shown has this letter."""
_BEGINS = re.compile(r"[0-9]{1,9}(?![0-9])")
_NUMBER = re.compile(r"(?<![^.])[0-9]{1,9}(?![^.])")


@dataclass(slots=True)
class Pattern:
    """What stands behind one line: the words of the name, and the numbers that stood in each of its places."""

    words: tuple[str, ...]
    cut: bool
    """Something may follow after these words."""
    numbers: list[set[str]]
    rests: set[str] = field(default_factory=set)
    """What followed; a single rest is written out."""

    def __str__(self) -> str:
        found = iter(self.numbers)
        words = [_numbers(map(int, next(found))) if word == _PLACE else word for word in self.words]
        if self.cut:
            words += [
                rest if len(self.rests) == 1 else "*" for rest in [*self.rests][:1] if rest or len(self.rests) > 1
            ]
        return ".".join(words)


class _Cut(NamedTuple):
    """Where names of one skeleton are cut."""

    pattern: Pattern
    numbers: int
    """How many of their numbers stand before that."""
    rest: str


def patterns_of(names: Sequence[str], depth: int | None) -> list[Pattern]:
    """The pattern of each name; names of one line have the same object.

    A line reaches to the module of a tensor where no layer is numbered, else `depth` words beyond the number of the layer;
    further numbers are no words. With no depth it is the whole name.
    """
    known: dict[str, _Cut] = {}
    lines: dict[tuple[str, ...], Pattern] = {}
    found = []
    for name in names:
        name = name.replace(_PLACE, "\ufffd") if _PLACE in name else name  # noqa: PLW2901 - the name as it is shown
        numbers = _NUMBER.findall(name)
        skeleton = _NUMBER.sub(_PLACE, name) if numbers else name
        at = known.get(skeleton)
        if at is None:
            at = known[skeleton] = _cut(skeleton, depth, lines)
        pattern = at.pattern
        for seen, number in zip(pattern.numbers, numbers, strict=False):
            seen.add(number)
        if len(pattern.rests) < 2:
            rest = at.rest
            for number in numbers[at.numbers :]:
                rest = rest.replace(_PLACE, number, 1)
            pattern.rests.add(rest)
        found.append(pattern)
    return found


def _cut(skeleton: str, depth: int | None, lines: dict[tuple[str, ...], Pattern]) -> _Cut:
    words = skeleton.split(".")
    if depth is None:
        end = len(words)
    elif _PLACE not in words:
        end = max(len(words) - 1, 1)
    else:
        end, left = words.index(_PLACE) + 1, depth
        while end < len(words) and (left or words[end] == _PLACE):
            left -= words[end] != _PLACE
            end += 1
    kept = tuple(words[:end])
    count = kept.count(_PLACE)
    pattern = lines.get(kept)
    if pattern is None:
        pattern = lines[kept] = Pattern(kept, depth is not None, [set() for _ in range(count)])
    return _Cut(pattern, count, ".".join(words[end:]))


def natural(name: str) -> list[tuple[int, str]]:
    """The key by which `layers.2` stands before `layers.10`, and before `layers.{10..19}`."""
    return [
        (int(begin[0]), "") if (begin := _BEGINS.match(word)) is not None else (-1, word)
        for word in name.replace("{", "").split(".")
    ]


def _numbers(found: Iterable[int]) -> str:
    """`7`, `{0..79}`, `{0..3,8..11}`, and of many runs `{0..76: 20}`."""
    ordered = sorted(found)
    if len(ordered) == 1:
        return str(ordered[0])
    runs: list[list[int]] = []
    for number in ordered:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    if len(runs) > MANY_RUNS:
        return f"{{{ordered[0]}..{ordered[-1]}: {len(ordered):,}}}"
    return f"{{{','.join(f'{a}..{b}' if b > a else str(a) for a, b in runs)}}}"
