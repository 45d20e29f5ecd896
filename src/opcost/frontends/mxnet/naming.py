"""A tree of modules from the names of nodes: `stage1_unit1_conv1` is conv1 in unit1 in stage1.

MXNet's graphs are flat, but their names are not: gluon blocks and most authors put the enclosing parts in front. A prefix
becomes a module where at least two nodes share it; dots and slashes always separate.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

FORWARD = "_fwd"
"""What gluon puts behind a block's name for the operator that is the block."""

ANONYMOUS = re.compile(r"node_\d+")
"""Names that MXNet 2.0 gives to all operators; there the names of the weights tell the block."""

DEEPEST = 32
"""Modules inside one another; what a name says beyond is the name of the last. Real ones go down to a dozen."""

MOST_WORDS = 256
"""Words of a level that are looked at; the rest is one word."""

_SEPARATORS = re.compile(r"[./]+")
_WORDS = re.compile(r"(?<=[^_])_(?=.)")


def paths_of(names: Sequence[str], weights: Sequence[Sequence[str]]) -> list[str]:
    """A dotted path for each operator, from its name and the names of the weights that it reads."""
    labels = [_label(name, held) for name, held in zip(names, weights, strict=True)]
    beginnings = _Beginnings(labels)
    return [_path(label, beginnings) for label in labels]


def _label(name: str, weights: Iterable[str]) -> tuple[str, ...]:
    """The words of a name."""
    if ANONYMOUS.fullmatch(name):
        owners = {_SEPARATORS.sub(".", weight).rpartition(".")[0] for weight in weights}
        if len(owners) == 1 and (owner := owners.pop()):
            return tuple(f"{word}." for word in owner.split("."))
        return (name,)
    return _words(name.removesuffix(FORWARD) or name)


@lru_cache(maxsize=65536)
def _words(name: str) -> tuple[str, ...]:
    """A name's words; one that ends in a dot begins a level whether it is shared or not."""
    *parts, rest = _SEPARATORS.split(name, DEEPEST)
    parts = [part for part in (*parts, _SEPARATORS.sub("_", rest)) if part]
    words: list[str] = []
    for place, part in enumerate(parts):
        *first, last = _WORDS.split(part, MOST_WORDS)
        words.extend(first)
        words.append(f"{last}." if place < len(parts) - 1 else last)
    return tuple(words) or ("unnamed",)


class _Beginnings:
    """All beginnings of names as a tree, each a number: a step for each word, however many words come before it."""

    def __init__(self, labels: Iterable[tuple[str, ...]]) -> None:
        self._numbers: dict[tuple[int, str], int] = {}
        self._goes_on: dict[int, int] = {}
        """By beginning, the longer one that was met first."""
        self._shared: set[int] = set()
        for label in dict.fromkeys(labels):
            before = 0
            for word in label:
                number = self._numbers.setdefault((before, word), len(self._numbers) + 1)
                if before and self._goes_on.setdefault(before, number) != number:
                    self._shared.add(before)
                before = number
            self._shared.add(before)

    def of(self, label: tuple[str, ...]) -> Iterator[bool]:
        """For each word, whether the name up to it is shared by two different nodes, or is a whole name."""
        before = 0
        for word in label:
            before = self._numbers[before, word]
            yield before in self._shared


def _path(label: tuple[str, ...], beginnings: _Beginnings) -> str:
    levels: list[str] = []
    words: list[str] = []
    for word, shared in zip(label, beginnings.of(label), strict=True):
        words.append(word.removesuffix("."))
        if (word.endswith(".") or shared) and len(levels) < DEEPEST:
            levels.append("_".join(words))
            words = []
    return ".".join([*levels, "_".join(words)] if words else levels)


def inner_name(weight: str, node: str, path: str) -> str:
    """What a weight is called inside the module that reads it: `weight` of `conv0_weight` in `conv0`."""
    stem = node.removesuffix(FORWARD)
    if stem and weight.startswith(stem) and len(weight) > len(stem) + 1 and weight[len(stem)] in "_./":
        rest = weight[len(stem) + 1 :]
    else:
        plain = _SEPARATORS.sub(".", weight)
        rest = plain.removeprefix(f"{path}.") if path else plain
    return _SEPARATORS.sub("_", rest)


def unique(names: Mapping[int, str]) -> dict[int, str]:
    """The names with a number behind where two would be the same."""
    taken: set[str] = set()
    found: dict[int, str] = {}
    for key, name in names.items():
        candidate, count = name, 1
        while candidate in taken:
            count += 1
            candidate = f"{name}_{count}"
        taken.add(candidate)
        found[key] = candidate
    return found
