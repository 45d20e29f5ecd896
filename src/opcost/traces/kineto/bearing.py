"""Which of the operators that lie in one another bear a price, so that nothing is counted twice.

An operator that PyTorch takes apart gives way to what it consists of. One that a count shows whole keeps its price, and what it
calls on its way has none: the mean squared error around its sum. It gives way only to one inside that is the same work under
another name: a convolution to that of a library. To a copy of its arguments, an empty result or a view nothing gives way but
another such.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import NamedTuple, TypeAlias

from opcost.core.graph import TensorSpec
from opcost.core.kinds import CONTRACTIONS
from opcost.traces.kineto.link import Linked, Rows
from opcost.traces.kineto.meaning import Meaning

MOVES = ("copy", "create", "view")
"""Kinds that prepare the arguments or the results of others."""

PICKS = ("gather", "scatter")
"""Kinds of which PyTorch does one through another with the same work, as it does products."""


_Word: TypeAlias = tuple[str, str]
"""A kind and its function."""
SAME_WORDS: tuple[tuple[_Word, _Word], ...] = (
    (("elementwise", "relu"), ("elementwise", "max")),
    (("embedding", ""), ("gather", "")),
)
"""What PyTorch does through another operator of the same price: `relu_` as `clamp_min_`. On a device its kernel is there; a count
sees the outer one, and so does a trace of the host, where both take time."""


class Bearing(NamedTuple):
    """Who has no price of their own."""

    wrappers: frozenset[int]
    """Signatures whose work is done, and counted, by an operator inside."""
    covered: bytes
    """Of each row, the number in `kinds` of the operator around it that has the price of all that is inside; 0 without such."""
    kinds: tuple[str, ...] = ("",)


def bearing(linked: Linked, meanings: Sequence[Meaning]) -> Bearing:
    """Decide it by what signatures lie in each other, and for the rows of those inside."""
    words = SAME_WORDS if linked.columns.device.start else ()
    found = _Found([signature.name for signature in linked.signatures], meanings, words)
    inside_out: dict[int, set[int]] = {}
    around = _around(linked)
    for inner, outer in _nested(linked, around):
        inside_out.setdefault(inner, set()).add(outer)
    for inner, told in enumerate(meanings):
        if told.kind:
            for outer in _reached(inside_out, inner):
                found.look(outer, inner)
    # What a product needs beside itself, the addition of a bias, is counted beside it; nothing else is done twice.
    hosts = {host for host in found.hosts if host not in found.doubled or meanings[host].kind not in CONTRACTIONS}
    wrappers = frozenset(found.wrappers | (found.doubled - hosts))
    if not hosts:
        return Bearing(wrappers, bytes(len(linked)))
    kinds = ("", *sorted({meanings[host].kind for host in hosts}))
    number_of = {kind: number for number, kind in enumerate(kinds)}
    numbers = [number_of[told.kind] if host in hosts else 0 for host, told in enumerate(meanings)]
    return Bearing(wrappers, _inside(linked.rows, around, [*numbers, 0]), kinds)


@dataclass(slots=True)
class _Found:
    """What the signatures are that have others inside."""

    names: Sequence[str]
    meanings: Sequence[Meaning]
    words: Sequence[tuple[_Word, _Word]]
    """What counts as the same work under another name, beside products."""
    wrappers: set[int] = field(default_factory=set)
    """They give way to one inside."""
    doubled: set[int] = field(default_factory=set)
    """One inside is the same work."""
    hosts: set[int] = field(default_factory=set)
    """One inside is only a part of the work."""

    def look(self, outer: int, inner: int) -> None:
        """Take note of one operator in another."""
        around, told = self.meanings[outer], self.meanings[inner]
        is_taken_apart = bool(around.outs) and not around.is_own
        if told.kind in MOVES:
            if around.kind == told.kind or (is_taken_apart and around.kind not in CONTRACTIONS):
                self.wrappers.add(outer)
        elif around.is_own:
            is_double = self.names[outer] != self.names[inner] and _is_same_work(around, told, self.words)
            (self.doubled if is_double else self.hosts).add(outer)
        elif is_taken_apart or told.kind in CONTRACTIONS or around.kind not in CONTRACTIONS:
            self.wrappers.add(outer)  # of what is not told so, a product may need a sum


def _is_same_work(outer: Meaning, inner: Meaning, words: Sequence[tuple[_Word, _Word]]) -> bool:
    """Whether one inside works on the same tensors and makes as much; a bias may be added later, and shapes have more axes."""
    is_alike = outer.kind == inner.kind and (
        outer.kind in CONTRACTIONS or (outer.kind in PICKS and outer.attrs == inner.attrs)
    )
    return (
        inner.is_own
        and (is_alike or (_word(outer), _word(inner)) in words)
        and _sizes(outer.outs) == _sizes(inner.outs)
        and _sizes(inner.ins) <= _sizes(outer.ins)
    )


def _word(told: Meaning) -> _Word:
    return told.kind, str(told.attrs.get("fn", ""))


def _sizes(tensors: Sequence[TensorSpec]) -> Counter[int]:
    return Counter(tensor.numel for tensor in tensors)


def _around(linked: Linked) -> list[int]:
    """Of each row, the signature of the one around it; where there is none, a number that no signature has."""
    found = array("i", linked.rows.signature)
    found.append(len(linked.signatures))  # NONE picks this one
    return [found[parent] for parent in linked.rows.parent]


def _nested(linked: Linked, around: list[int]) -> set[tuple[int, int]]:
    """The signatures of each row and of the one around it; a row that is joined to another is not inside that one."""
    nothing = len(linked.signatures)
    inner = array("i", linked.rows.signature)
    for row in linked.joined:
        inner[row] = nothing
    return {pair for pair in set(zip(inner, around, strict=True)) if nothing not in pair}


def _reached(inside_out: dict[int, set[int]], inner: int) -> set[int]:
    """All signatures that stood around this one, at any distance."""
    found: set[int] = set()
    waiting = list(inside_out.get(inner, ()))
    while waiting:
        outer = waiting.pop()
        if outer not in found and outer != inner:
            found.add(outer)
            waiting.extend(inside_out.get(outer, ()))
    return found


def _inside(rows: Rows, around: list[int], numbers: list[int]) -> bytes:
    """Of each row, the number of the outermost signature around it that has one.

    What lies in a row comes behind it, up to the first row whose parent comes before it; runtime calls come last, and have no
    price anyway.
    """
    covered, parent = bytearray(len(rows.parent)), rows.parent
    hosts = set(compress(parent, map(numbers.__getitem__, around)))
    for host in sorted(hosts):
        number, row = numbers[rows.signature[host]], host + 1
        while not covered[host] and row < len(parent) and parent[row] >= host:
            covered[row] = number
            row += 1
    return bytes(covered)
