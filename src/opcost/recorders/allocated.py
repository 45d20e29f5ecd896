"""What a call allocates on the host, by the accounts of the allocators: Python's with NumPy's, and PyTorch's.

The system sees only what a process takes from it: nothing for memory that an allocator kept from an earlier call, too much where
freed memory is in pieces, threads have heaps of their own, a library is loaded or takes scratch space, or another thread works.
"""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable
from typing import Any, NamedTuple


class Allocated(NamedTuple):
    """The most bytes that were allocated at a time and not there before, by the account of each allocator."""

    python: int = 0
    torch: int = 0

    def with_resident(self, rise: int) -> int:
        """The bytes that a call needed, given by how much the resident memory of the process rose.

        The accounts are about the call, and the rise about the whole process. It is taken only where most of it is in no
        account, so that another library must have allocated it.
        """
        known = max(self)
        return known if self.torch or rise <= 2 * known else rise


def allocated_by(call: Callable[[], Any]) -> Allocated:
    """What one call allocates."""
    traces = not tracemalloc.is_tracing()  # the user's own trace is left alone
    told = None
    if "torch" in sys.modules:
        from opcost.recorders.torch.allocations import written_down

        told = written_down()
    if traces:
        tracemalloc.start()
    python = torch = 0
    try:
        call()
    finally:
        if traces:
            python = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        if told is not None:
            torch = told()
    return Allocated(python, torch)
