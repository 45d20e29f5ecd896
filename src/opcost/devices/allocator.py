"""PyTorch's caching allocator, simulated without a GPU: what it reserves of the device for tensors that are created and freed.

Memory is reserved in segments: 2 MiB for tensors of at most 1 MiB, 20 MiB for those below 10 MiB, else the size in
steps of 2 MiB. A tensor gets the smallest free block that is large enough, and what is left of that is split off; blocks side by
side that are free become one again. A block keeps a rest of up to 1 MiB that is not worth splitting, so that more is allocated
than tensors have. Segments are released only when the device has no more memory, and only those without a block in use: so free
memory in pieces is lost, and a model may fail far below the limit.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass
from typing import NamedTuple

from opcost.core.graph import Lives, Memory

BLOCK = 512
SMALL = 1 << 20
SMALL_SEGMENT = 2 << 20
LARGE = 10 << 20
LARGE_SEGMENT = 20 << 20
PASSES = 3  # passes or steps after which memory no longer changes
NARROWINGS = 7  # how often the range of the least capacity is halved


class OutOfMemory(Exception):
    """The device has too little memory."""


@dataclass(slots=True, eq=False)
class _CachedBlock:
    """A piece of a segment, linked with its neighbours."""

    address: int
    size: int
    small: bool
    before: _CachedBlock | None = None
    after: _CachedBlock | None = None
    free: bool = False


class Allocator:
    """The state of the allocator of a device with this capacity in bytes; None: unlimited."""

    def __init__(self, capacity: int | None = None) -> None:
        self.reserved = 0
        self.most_reserved = 0
        self._capacity = capacity
        self._following = 0
        self._free: dict[bool, list[tuple[int, int, _CachedBlock]]] = {True: [], False: []}

    def take(self, size: int) -> _CachedBlock:
        """A block for a tensor of this size."""
        size = -(-size // BLOCK) * BLOCK
        small = size <= SMALL
        free = self._free[small]
        place = bisect_left(free, (size, -1))
        block = free.pop(place)[2] if place < len(free) else self._segment(size, small=small)
        block.free = False
        left = block.size - size
        if left >= BLOCK if small else left > SMALL:
            rest = _CachedBlock(block.address + size, left, small, before=block, after=block.after)
            if rest.after is not None:
                rest.after.before = rest
            block.after, block.size = rest, size
            self._put(rest)
        return block

    def give(self, block: _CachedBlock) -> None:
        """Free a block, and join it with free neighbours."""
        before, after = block.before, block.after
        if before is not None and before.free:
            self._pull(before)
            block = self._joined(before, block)
        if after is not None and after.free:
            self._pull(after)
            block = self._joined(block, after)
        self._put(block)

    def _segment(self, size: int, *, small: bool) -> _CachedBlock:
        whole = -(-size // SMALL_SEGMENT) * SMALL_SEGMENT
        segment = SMALL_SEGMENT if small else LARGE_SEGMENT if size < LARGE else whole
        if self._capacity is not None and self.reserved + segment > self._capacity:
            for free in self._free.values():
                self.reserved -= sum(block.size for _, _, block in free if _is_segment(block))
                free[:] = [entry for entry in free if not _is_segment(entry[2])]
            if self.reserved + segment > self._capacity:
                raise OutOfMemory
        self.reserved += segment
        self.most_reserved = max(self.most_reserved, self.reserved)
        block = _CachedBlock(self._following, segment, small)
        self._following += segment
        return block

    @staticmethod
    def _joined(first: _CachedBlock, second: _CachedBlock) -> _CachedBlock:
        first.size += second.size
        first.after = second.after
        if first.after is not None:
            first.after.before = first
        return first

    def _put(self, block: _CachedBlock) -> None:
        block.free = True
        insort(self._free[block.small], (block.size, block.address, block))

    def _pull(self, block: _CachedBlock) -> None:
        free = self._free[block.small]
        del free[bisect_left(free, (block.size, block.address))]


def _is_segment(block: _CachedBlock) -> bool:
    return block.before is None and block.after is None


class AllocatedBlocks(NamedTuple):
    """The bytes of each block for the requests of `Lives`, and the bytes reserved of the device."""

    lasting: list[int]
    inputs: list[int]
    sizes: list[int]
    workspaces: list[int]
    reserved: int


def allocated_blocks(lives: Lives, capacity: int | None = None) -> AllocatedBlocks:
    """The blocks of tensors in a pass or step once memory no longer changes."""
    allocator = Allocator(capacity)
    take, give = allocator.take, allocator.give
    lasting = [block.size for block in map(take, lives.lasting)]
    given: list[int] = []
    sizes, workspaces = [0] * len(lives.sizes), [0] * len(lives.workspaces)
    # What is gone before an operator is freed first, then it makes its results, then it has its workspace
    events = [(step, 0, at, 0) for at, step in enumerate(lives.deaths) if step < len(workspaces)]
    events += [(step, 1, at, size) for at, (step, size) in enumerate(zip(lives.births, lives.sizes, strict=True))]
    events += [(step, 2, step, size) for step, size in enumerate(lives.workspaces) if size]
    events.sort()
    for _ in range(PASSES):
        inputs = [take(size) for size in lives.inputs]
        blocks: dict[int, _CachedBlock] = {}
        for _, what, at, size in events:
            if what == 0:
                give(blocks.pop(at))
                continue
            block = take(size)
            if what == 1:
                blocks[at], sizes[at] = block, block.size
            else:
                workspaces[at] = block.size
                give(block)
        given = [block.size for block in inputs]
        for block in (*blocks.values(), *inputs):  # what is left at the end of a pass is freed too
            give(block)
    return AllocatedBlocks(lasting, given, sizes, workspaces, allocator.most_reserved)


def reserved(lives: Lives, capacity: int | None = None) -> int | None:
    """The most that is reserved of the device; None where it has too little memory."""
    try:
        return allocated_blocks(lives, capacity).reserved
    except OutOfMemory:
        return None


def fits(memory: Memory, limit: int) -> bool:
    """Whether a device has enough memory; where its allocator was not simulated, by tensors alone."""
    if memory.lives is None or memory.peak_bytes > limit:
        return memory.peak_bytes <= limit
    return (memory.reserved_bytes or 0) <= limit or reserved(memory.lives, limit) is not None


def needed_bytes(memory: Memory, limit: int) -> int:
    """What is compared with the limit: the peak, or of a device nearly the least memory with which its allocator gets by."""
    peak = memory.peak_bytes
    return peak if memory.lives is None else max(peak, least_capacity(memory.lives, limit, peak))


def least_capacity(lives: Lives, limit: int, peak: int) -> int:
    """Nearly the least device memory with which it runs; whether that is below the limit is exact."""
    most = reserved(lives)
    assert most is not None
    if most <= limit:
        return most
    low, high = (peak, limit) if reserved(lives, limit) is not None else (limit, most)
    for _ in range(NARROWINGS):
        middle = (low + high) // 2
        low, high = (low, middle) if reserved(lives, middle) is not None else (middle, high)
    return high
