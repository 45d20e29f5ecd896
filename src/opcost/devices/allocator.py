"""PyTorch's caching allocator on a GPU, without one: what it takes of the device to hold tensors that come and go.

Memory is taken in segments: 2 MiB for tensors of at most 1 MiB, 20 MiB for those below 10 MiB, else as much as is wanted in
steps of 2 MiB. A tensor gets the smallest free block that is large enough, and what is left of that is split off; blocks side by
side that are free become one again. A block keeps a rest of up to 1 MiB that is not worth splitting, so that more is allocated
than tensors have. Segments go back only when the device has no more to give, and only those of which nothing is in use: so free
memory in pieces is lost, and a model may fail far below the limit.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from typing import NamedTuple

from opcost.core.memory import Lives, Memory

BLOCK = 512
SMALL = 1 << 20
SMALL_SEGMENT = 2 << 20
LARGE = 10 << 20
LARGE_SEGMENT = 20 << 20
PASSES = 3
"""After so many passes or steps memory is as it stays."""
NARROWINGS = 7
"""How often the range is halved in which the least capacity lies."""


class OutOfMemory(Exception):
    """The device has no more to give."""


class _Block:
    """A piece of a segment; those before and after it lie side by side with it."""

    __slots__ = ("address", "after", "before", "free", "size", "small")

    def __init__(self, address: int, size: int, *, small: bool) -> None:
        self.address = address
        self.size = size
        self.small = small
        self.before: _Block | None = None
        self.after: _Block | None = None
        self.free = False


class Allocator:
    """The state of the allocator of a device that has so many bytes; None: as many as are wanted."""

    def __init__(self, capacity: int | None = None) -> None:
        self.reserved = 0
        self.most_reserved = 0
        self._capacity = capacity
        self._following = 0
        self._free: dict[bool, list[tuple[int, int, _Block]]] = {True: [], False: []}

    def take(self, size: int) -> _Block:
        """A block for a tensor of this size."""
        size = -(-size // BLOCK) * BLOCK
        small = size <= SMALL
        free = self._free[small]
        place = bisect_left(free, (size, -1))
        block = free.pop(place)[2] if place < len(free) else self._segment(size, small=small)
        block.free = False
        left = block.size - size
        if left >= BLOCK if small else left > SMALL:
            rest = _Block(block.address + size, left, small=small)
            rest.before, rest.after = block, block.after
            if rest.after is not None:
                rest.after.before = rest
            block.after, block.size = rest, size
            self._put(rest)
        return block

    def give(self, block: _Block) -> None:
        """Let a block go; it becomes one with free ones beside it."""
        before, after = block.before, block.after
        if before is not None and before.free:
            self._pull(before)
            block = self._joined(before, block)
        if after is not None and after.free:
            self._pull(after)
            block = self._joined(block, after)
        self._put(block)

    def _segment(self, size: int, *, small: bool) -> _Block:
        whole = -(-size // SMALL_SEGMENT) * SMALL_SEGMENT
        segment = SMALL_SEGMENT if small else LARGE_SEGMENT if size < LARGE else whole
        if self._capacity is not None and self.reserved + segment > self._capacity:
            self._return_unused()
            if self.reserved + segment > self._capacity:
                raise OutOfMemory
        self.reserved += segment
        self.most_reserved = max(self.most_reserved, self.reserved)
        block = _Block(self._following, segment, small=small)
        self._following += segment
        return block

    def _return_unused(self) -> None:
        for free in self._free.values():
            self.reserved -= sum(block.size for _, _, block in free if _is_segment(block))
            free[:] = [entry for entry in free if not _is_segment(entry[2])]

    @staticmethod
    def _joined(first: _Block, second: _Block) -> _Block:
        first.size += second.size
        first.after = second.after
        if first.after is not None:
            first.after.before = first
        return first

    def _put(self, block: _Block) -> None:
        block.free = True
        insort(self._free[block.small], (block.size, block.address, block))

    def _pull(self, block: _Block) -> None:
        free = self._free[block.small]
        del free[bisect_left(free, (block.size, block.address))]


def _is_segment(block: _Block) -> bool:
    return block.before is None and block.after is None


class Handed(NamedTuple):
    """What an allocator hands out for what it is asked for: the bytes of each block, and what it takes of the device."""

    lasting: list[int]
    inputs: list[int]
    sizes: list[int]
    workspaces: list[int]
    reserved: int


def handed_out(lives: Lives, capacity: int | None = None) -> Handed:
    """The blocks that tensors get in a pass or step once memory is as it stays."""
    allocator = Allocator(capacity)
    found = Handed([block.size for block in _held(allocator, lives.lasting)], [], [], [], 0)
    for _ in range(PASSES):
        found = _run(allocator, lives, found)
    return found._replace(reserved=allocator.most_reserved)


def reserved(lives: Lives, capacity: int | None = None) -> int | None:
    """What is taken of the device at most, over some passes; None where it has too little."""
    try:
        return handed_out(lives, capacity).reserved
    except OutOfMemory:
        return None


def fits(memory: Memory, limit: int) -> bool:
    """Whether a device has enough memory; where its allocator was not followed, tensors alone tell."""
    if memory.lives is None or memory.peak_bytes > limit:
        return memory.peak_bytes <= limit
    return (memory.reserved_bytes or 0) <= limit or reserved(memory.lives, limit) is not None


def _held(allocator: Allocator, sizes: Iterable[int]) -> list[_Block]:
    return [allocator.take(size) for size in sizes]


def _run(allocator: Allocator, lives: Lives, found: Handed) -> Handed:
    """One pass or step; what is left at its end goes too."""
    inputs = _held(allocator, lives.inputs)
    given = [block.size for block in inputs]
    blocks: dict[int, _Block] = {}
    sizes: list[int] = []
    workspaces: list[int] = []
    births = iter(zip(lives.births, lives.sizes, strict=True))
    following = next(births, None)
    deaths = sorted(range(len(lives.deaths)), key=lives.deaths.__getitem__)
    gone = 0
    for step, wanted in enumerate(lives.workspaces):
        while gone < len(deaths) and lives.deaths[deaths[gone]] <= step:
            allocator.give(blocks.pop(deaths[gone]))
            gone += 1
        while following is not None and following[0] == step:
            block = blocks[len(sizes)] = allocator.take(following[1])
            sizes.append(block.size)
            following = next(births, None)
        workspaces.append(_passing(allocator, wanted) if wanted else 0)
    for block in (*blocks.values(), *inputs):
        allocator.give(block)
    return found._replace(inputs=given, sizes=sizes, workspaces=workspaces)


def _passing(allocator: Allocator, wanted: int) -> int:
    """The block for what an operator takes for itself, which it gives back."""
    block = allocator.take(wanted)
    size = block.size
    allocator.give(block)
    return size


def least_capacity(lives: Lives, limit: int, peak: int) -> int:
    """The least memory of a device with which it runs, nearly; on which side of the limit that lies is told exactly."""
    most = reserved(lives)
    assert most is not None
    if most <= limit:
        return most
    low, high = (peak, limit) if reserved(lives, limit) is not None else (limit, most)
    for _ in range(NARROWINGS):
        middle = (low + high) // 2
        low, high = (low, middle) if reserved(lives, middle) is not None else (middle, high)
    return high
