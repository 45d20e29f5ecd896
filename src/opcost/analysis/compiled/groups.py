"""Pieces that a compiler joins into one kernel: what is made by one and read by another, and what reads the same.

Two pieces are joined if their loops are alike: as many elements, or the elements of a sum along an axis. Those that share the
most memory are joined first. A joined group moves memory at its edges only.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from opcost.analysis.compiled.pieces import Piece, Read, pieces
from opcost.core.graph import TensorSpec
from opcost.core.report import Row

LARGEST = 64  # pieces of one kernel
ROUNDS = 10


@dataclass(slots=True, eq=False)
class KernelGroup:
    """What runs as one kernel."""

    number: int
    pieces: list[Piece]
    extent: tuple[int, int]
    library: bool
    runs: tuple[str, int]
    reads: dict[tuple[int, int], Read] = field(default_factory=dict)  # of others
    writes: dict[int, TensorSpec] = field(default_factory=dict)  # in memory
    needs: set[int] = field(default_factory=set)  # the pieces that it reads of

    @property
    def read(self) -> dict[int, TensorSpec]:
        """What it reads of others, by the value in memory; of several views of one the elements of all."""
        found: dict[int, TensorSpec] = {}
        for (root, _), read in self.reads.items():
            known = found.get(root)
            if known is None or not (known.known and read.spec.known):
                found[root] = read.spec
            elif len(self.reads) > 1:
                found[root] = TensorSpec((known.numel + read.spec.numel,), known.dtype)
        return found

    @property
    def moved(self) -> tuple[int, int]:
        """Bytes that it reads and writes."""
        read, written = (
            sum(spec.nbytes for spec in specs.values() if spec.known) for specs in (self.read, self.writes)
        )
        return read, written

    @property
    def rows(self) -> list[Row]:
        """Its operators in the order in which they were called."""
        found = {row.op.id: row for piece in self.pieces for row in piece.rows}
        return [found[number] for number in sorted(found)]


def groups(rows: Iterable[Row], results: Collection[int]) -> list[KernelGroup]:
    """The kernels of a compiled model, in the order in which they can run."""
    made, kept = pieces(rows, results)
    found = [
        KernelGroup(each.number, [each], each.extent, each.library, each.runs, dict(each.reads), dict(each.writes))
        for each in made
    ]
    joined = _Joined(found)
    for _ in range(ROUNDS):
        if not joined.round():
            break
    return joined.finish(kept)


class _Joined:
    """Groups while they are joined."""

    def __init__(self, found: list[KernelGroup]) -> None:
        self.groups = {group.number: group for group in found}
        self.where = {group.number: group for group in found}  # the group that each piece is in
        self.makers: dict[int, list[int]] = {}
        for group in found:
            for value in group.writes:
                self.makers.setdefault(value, []).append(group.number)
        for group in found:
            group.needs = {
                maker for root, _ in group.reads for maker in self.makers.get(root, ()) if maker != group.number
            }

    def round(self) -> bool:
        """Join the pairs that share memory, the most first."""
        touching: dict[tuple[int, int], list[KernelGroup]] = {}
        for group in self.groups.values():
            if not group.library:
                for key in {*group.reads, *((value, value) for value in group.writes)}:
                    touching.setdefault(key, []).append(group)
        shared: dict[tuple[int, int], int] = {}
        for key, those in touching.items():
            for place, one in enumerate(those):
                for other in those[place + 1 : place + 1 + LARGEST]:
                    read = one.reads.get(key) or other.reads.get(key)  # of two that write parts of one, none
                    if read is not None and _alike(one, other):
                        pair = (min(one.number, other.number), max(one.number, other.number))
                        shared[pair] = shared.get(pair, 0) + (read.nbytes if read.spec.known else 0)
        changed = False

        def rank(pair: tuple[int, int]) -> tuple[bool, int, int]:
            one, other = (self.groups[number] for number in pair)
            return (one.extent[1] > 1) != (other.extent[1] > 1), -shared[pair], pair[1] - pair[0]

        for first, second in sorted(shared, key=rank):
            one, other = self.where[first], self.where[second]
            if one is not other and _alike(one, other) and self.allowed(one, other):
                self.join(one, other)
                changed = True
        return changed

    def allowed(self, one: KernelGroup, other: KernelGroup) -> bool:
        """Whether nothing between them must run after the one and before the other, and what passes fits their loops."""
        if len(one.pieces) + len(other.pieces) > LARGEST:
            return False
        for reader, maker in ((one, other), (other, one)):
            for root, shown in reader.reads:
                if root in maker.writes and shown != root:
                    return False
        return not self.between(one, other)

    def between(self, one: KernelGroup, other: KernelGroup) -> bool:
        """Whether a third group reads of one of them and is read by the other."""
        members = (one, other)
        first = min(piece.number for group in members for piece in group.pieces)
        waiting = [self.where[number] for group in members for number in group.needs]
        seen: set[int] = set()
        while waiting:
            group = waiting.pop()
            if group in members or group.number in seen:
                continue
            seen.add(group.number)
            for number in group.needs:
                source = self.where[number]
                if source in members:
                    return True
                if max(piece.number for piece in source.pieces) > first:
                    waiting.append(source)
        return False

    def join(self, one: KernelGroup, other: KernelGroup) -> None:
        if one.number > other.number:
            one, other = other, one
        one.pieces += other.pieces
        one.extent = max(one.extent, other.extent, key=lambda extent: extent[1])
        one.reads |= other.reads
        for value, spec in other.writes.items():
            part = one.writes.get(value)  # of a result that is put together
            one.writes[value] = spec if part is None else TensorSpec((part.numel + spec.numel,), spec.dtype)
        one.reads = {key: read for key, read in one.reads.items() if key[0] not in one.writes}
        one.needs |= other.needs
        for piece in other.pieces:
            self.where[piece.number] = one
        one.needs = {number for number in one.needs if self.where[number] is not one}
        del self.groups[other.number]

    def finish(self, kept: Collection[int]) -> list[KernelGroup]:
        """The groups in an order in which they can run; what no other group reads is not written."""
        readers: dict[int, set[int]] = {}
        for group in self.groups.values():
            for root, _ in group.reads:
                readers.setdefault(root, set()).add(group.number)
        for group in self.groups.values():
            group.writes = {
                v: spec for v, spec in group.writes.items() if v in kept or readers.get(v, set()) - {group.number}
            }
        ordered: dict[int, KernelGroup] = {}
        waiting = list(reversed(self.groups.values()))
        while waiting:
            group = waiting[-1]
            before = [self.where[number] for number in group.needs]
            before = [each for each in before if each.number not in ordered]
            if before:
                waiting += before
                continue
            waiting.pop()
            ordered[group.number] = group
        return list(ordered.values())


def _alike(one: KernelGroup, other: KernelGroup) -> bool:
    """Whether their loops can be one."""
    if one.library or other.library or one.runs != other.runs:
        return False
    if (one.extent[1] > 1) == (other.extent[1] > 1):
        return one.extent == other.extent
    simple, summed = (other, one) if one.extent[1] > 1 else (one, other)
    if any(piece.cut for piece in summed.pieces):
        return False
    return simple.extent[0] in (summed.extent[0], summed.extent[0] * summed.extent[1])
