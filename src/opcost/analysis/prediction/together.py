"""One simple operator over many tensors at once, as optimizers update all parameters of a model.

PyTorch cuts the tensors into chunks, one for each block of threads, and starts a kernel for so many tensors or chunks as its
arguments have room for. A kernel takes at least as long as one block takes for the largest chunk, however few there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

CHUNK = 65_536
"""Elements that one block of threads goes through."""
CHUNKS = 320
"""Chunks that one kernel takes."""
TENSORS = (110, 64, 48, 36, 30)
"""Tensors that one kernel takes, where they come in one list, in two, and so on."""
START_NS = 2_500
BLOCK_NS = {"plain": 15_000, "dear": 26_000}
"""What a block takes for a whole chunk; fitted to Adam of half of the measured models, and held against the others."""
REACHED = {("plain", 2): 0.6, ("plain", 4): 0.8, ("dear", 2): 0.4, ("dear", 4): 0.7}
"""The share of the bandwidth that is reached, by the bytes of an element."""
DEAR = frozenset({"sqrt", "div", "addcdiv", "pow", "exp", "reciprocal", "rsqrt"})
"""Roots and quotients."""


def together_ns(raw: str, sizes: Sequence[int], lists: int, moved: int, itemsize: int, bandwidth: float) -> float:
    """The time of all kernels of an operator over tensors of so many elements, which moves so many bytes."""
    name = raw.rpartition("::")[2].removeprefix("_foreach_").rstrip("_")
    price = "dear" if name in DEAR else "plain"
    rate = bandwidth * REACHED[price, 2 if itemsize <= 2 else 4]
    each = moved / max(1, sum(sizes))
    return sum(
        max(START_NS + BLOCK_NS[price] * largest / CHUNK, elements * each / rate * 1e9)
        for elements, largest in launches(sizes, lists)
    )


def launches(sizes: Iterable[int], lists: int) -> Iterator[tuple[int, int]]:
    """The elements that each kernel goes through, and those of its largest chunk."""
    most = TENSORS[min(lists, len(TENSORS)) - 1]
    tensors = chunks = elements = largest = 0
    for size in sizes:
        tensors += 1
        for begin in range(0, max(1, size), CHUNK):
            chunk = min(CHUNK, size - begin)
            chunks += 1
            elements += chunk
            largest = max(largest, chunk)
            ends = begin + CHUNK >= size
            if chunks == CHUNKS or (ends and tensors == most):
                yield elements, largest
                chunks = elements = largest = 0
                tensors = 0 if ends else 1
    if chunks:
        yield elements, largest
