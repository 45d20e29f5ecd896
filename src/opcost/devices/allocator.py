"""PyTorch's caching allocator, simulated without a GPU: what it reserves of the device for tensors that are created and freed.

Memory is reserved in segments: 2 MiB for tensors of at most 1 MiB, 20 MiB for those below 10 MiB, else the size in
steps of 2 MiB. A tensor gets the smallest free block that is large enough, and what is left of that is split off; blocks side by
side that are free become one again. A block keeps a rest of up to 1 MiB that is not worth splitting, so that more is allocated
than tensors have. Segments are released only when the device has no more memory, and only those without a block in use: so free
memory in pieces is lost, and a model may fail far below the limit.

With expandable segments (`PYTORCH_ALLOC_CONF=expandable_segments:True`) there is one for small and one for large tensors of each
stream, which grows by pages of 2 or 20 MiB at its end; every rest is split off, and free pages are released one by one.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from copy import copy
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from opcost.core.graph import Lives, Memory

BLOCK = 512
SMALL = 1 << 20
SMALL_SEGMENT = 2 << 20
LARGE = 10 << 20
LARGE_SEGMENT = 20 << 20
PASSES = 3  # passes or steps after which memory no longer changes
NARROWINGS = 7  # how often the range of the least capacity is halved


_Pool: TypeAlias = tuple[int, bool]
"""Where a block is from: memory that one stream has used is not given to another; and whether it is one for small tensors."""


class OutOfMemory(Exception):
    """The device has too little memory."""


@dataclass(slots=True, eq=False)
class _CachedBlock:
    """A piece of a segment, linked with its neighbours."""

    address: int
    size: int
    pool: _Pool
    before: _CachedBlock | None = None
    after: _CachedBlock | None = None
    free: bool = False


class Allocator:
    """The state of the allocator of a device with this capacity in bytes; None: unlimited."""

    def __init__(self, capacity: int | None = None, *, expandable: bool = False) -> None:
        self.reserved = 0
        self.most_reserved = 0
        self.segments = 0  # taken from the device so far
        self._capacity = capacity
        self._expandable = expandable
        self._used = 0
        self._following = 0
        self._last: dict[_Pool, _CachedBlock] = {}  # of each expandable segment
        self._free: defaultdict[_Pool, list[tuple[int, int, _CachedBlock]]] = defaultdict(list)

    def limit(self, capacity: int | None) -> None:
        """Continue a copy, in which nothing is freed that was allocated so far, on a device of this capacity."""
        if capacity is not None and self.reserved > capacity:
            raise OutOfMemory
        self._capacity = capacity
        kept, self._free, self._last = self._free.items(), defaultdict(list), dict(self._last)
        for pool, free in kept:
            for size, at, block in free:
                twin = _CachedBlock(at, size, pool, block.before, free=True)
                self._free[pool].append((size, at, twin))
                if self._last.get(pool) is block:
                    self._last[pool] = twin

    def take(self, size: int, stream: int = 0) -> _CachedBlock:
        """A block for a tensor of this size."""
        size = -(-size // BLOCK) * BLOCK
        pool = stream, size <= SMALL
        free = self._free[pool]
        place = bisect_left(free, (size, -1))
        new = self._expanded if self._expandable else self._segment
        block = free.pop(place)[2] if place < len(free) else new(size, pool)
        block.free = False
        left = block.size - size
        if left >= BLOCK if pool[1] or self._expandable else left > SMALL:
            after = block.after
            block.after = rest = _CachedBlock(block.address + size, left, pool, block, after, free=True)
            if after is not None:
                after.before = rest
            elif self._expandable:
                self._last[pool] = rest
            block.size = size
            insort(free, (left, rest.address, rest))
        self._used += block.size
        return block

    def give(self, block: _CachedBlock) -> None:
        """Free a block, and join it with free neighbours."""
        self._used -= block.size
        free = self._free[block.pool]
        before, after = block.before, block.after
        if after is not None and after.free:
            del free[bisect_left(free, (after.size, after.address))]
            block.size += after.size
            block.after = after = after.after
            if after is not None:
                after.before = block
            elif self._expandable:
                self._last[block.pool] = block
        if before is not None and before.free:
            del free[bisect_left(free, (before.size, before.address))]
            before.size += block.size
            before.after = after
            if after is not None:
                after.before = before
            elif self._expandable:
                self._last[block.pool] = before
            block = before
        block.free = True
        insort(free, (block.size, block.address, block))

    def _segment(self, size: int, pool: _Pool) -> _CachedBlock:
        whole = -(-size // SMALL_SEGMENT) * SMALL_SEGMENT
        segment = SMALL_SEGMENT if pool[1] else LARGE_SEGMENT if size < LARGE else whole
        if self._capacity is not None and self.reserved + segment > self._capacity:
            for free in self._free.values():
                self.reserved -= sum(block.size for _, _, block in free if _is_segment(block))
                free[:] = [entry for entry in free if not _is_segment(entry[2])]
            if self.reserved + segment > self._capacity:
                raise OutOfMemory
        self.segments += 1
        self.reserved += segment
        self.most_reserved = max(self.most_reserved, self.reserved)
        block = _CachedBlock(self._following, segment, pool)
        self._following += segment
        return block

    def _expanded(self, size: int, pool: _Pool) -> _CachedBlock:
        """The free end of the segment of a pool with as many pages more as are missing."""
        last, page = self._last.get(pool), SMALL_SEGMENT if pool[1] else LARGE_SEGMENT
        there = last.size if last is not None and last.free else 0
        more = -(-(size - there) // page) * page
        if self._capacity is not None and self.reserved + more > self._capacity:
            self.reserved = -(-self._used // SMALL_SEGMENT) * SMALL_SEGMENT + there
            if self.reserved + more > self._capacity:
                raise OutOfMemory
        self.reserved += more
        self.segments += 1
        self.most_reserved = max(self.most_reserved, self.reserved)
        if last is not None and there:
            free = self._free[pool]
            del free[bisect_left(free, (last.size, last.address))]
            last.size += more
            return last
        address = 0 if last is None else last.address + last.size
        block = self._last[pool] = _CachedBlock(address, more, pool, before=last)
        if last is not None:
            last.after = block
        return block


def _is_segment(block: _CachedBlock) -> bool:
    return block.before is None and block.after is None


@lru_cache(maxsize=8)
def _never_freed(lasting: tuple[int, ...], *, expandable: bool) -> tuple[list[int], Allocator]:
    """The blocks of tensors that are never freed, and the allocator with these."""
    allocator = Allocator(expandable=expandable)
    return [allocator.take(size).size for size in lasting], allocator


class AllocatedBlocks(NamedTuple):
    """The bytes of each block for the requests of `Lives`, and the bytes reserved of the device."""

    lasting: list[int]
    inputs: list[int]
    sizes: list[int]
    workspaces: list[int]
    reserved: int


def allocated_blocks(lives: Lives, capacity: int | None = None) -> AllocatedBlocks:
    """The blocks of tensors in a pass or step once memory no longer changes."""
    lasting, begun = _never_freed(tuple(lives.lasting), expandable=lives.expandable)
    allocator = copy(begun)
    allocator.limit(capacity)
    take, give = allocator.take, allocator.give
    given: list[int] = []
    wanted, made = lives.sizes, len(lives.sizes)
    sizes, workspaces = [0] * made, [0] * len(lives.workspaces)
    used = tuple([step for step, size in enumerate(lives.workspaces) if size])
    order = _order(tuple(lives.births), tuple(lives.deaths), used, len(workspaces))
    streams = lives.streams or [0] * made
    for _ in range(PASSES):
        before = allocator.segments
        inputs = [take(size) for size in lives.inputs]
        blocks: list[_CachedBlock | None] = [None] * made
        for event in order:
            if event < 0:
                give(blocks[event])  # type: ignore[arg-type]
                blocks[event] = None
            elif event < made:
                blocks[event] = block = take(wanted[event], streams[event])
                sizes[event] = block.size
            else:
                block = take(lives.workspaces[event - made])
                workspaces[event - made] = block.size
                give(block)
        given = [block.size for block in inputs]
        for left in (*filter(None, blocks), *inputs):  # what is left at the end of a pass is freed too
            give(left)
        if allocator.segments == before:  # all that is free is joined again as it was, so the next pass does the same
            break
    return AllocatedBlocks([*lasting], given, sizes, workspaces, allocator.most_reserved)


@lru_cache(maxsize=8)
def _order(births: tuple[int, ...], deaths: tuple[int, ...], used: tuple[int, ...], steps: int) -> list[int]:
    """What happens, one after the other: tensor i of n is made (i) and freed (i - n), operator j uses a workspace (n + j).

    What is gone before an operator is freed first, then it makes its results, then it has its workspace.
    """
    made, whole = len(births), len(births) + steps
    events = [3 * step * whole + at for at, step in enumerate(deaths) if step < steps]
    events += [(3 * step + 1) * whole + at for at, step in enumerate(births)]
    events += [(3 * step + 2) * whole + made + step for step in used]
    events.sort()
    return [at - made if kind % 3 == 0 else at for kind, at in (divmod(event, whole) for event in events)]


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
    return peak if memory.lives is None else max(peak, least_capacity(memory.lives, limit, peak, memory.reserved_bytes))


def least_capacity(lives: Lives, limit: int, peak: int, most: int | None = None) -> int:
    """Nearly the least device memory with which it runs; whether that is below the limit is exact.

    `most` is what it reserves of an unlimited device, if that is known.
    """
    most = most or allocated_blocks(lives).reserved
    if most <= limit:
        return most
    low, high = (peak, limit) if reserved(lives, limit) is not None else (limit, most)
    for _ in range(NARROWINGS):
        middle = (low + high) // 2
        low, high = (low, middle) if reserved(lives, middle) is not None else (middle, high)
    return high
