"""What a call allocates on the host, as the allocators themselves tell: Python's with NumPy's, and PyTorch's.

The system sees only what a process takes from it. An allocator that keeps memory for later needs none of the system for a call
that uses it again.
"""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable
from typing import Any


def allocated_by(call: Callable[[], Any]) -> int:
    """The most bytes that were allocated at a time and not there before; the larger of what the allocators tell."""
    traces = not tracemalloc.is_tracing()  # the user's own trace is left alone
    told = None
    if "torch" in sys.modules:
        from opcost.recorders.torch.allocations import written_down

        told = written_down()
    if traces:
        tracemalloc.start()
    found = [0]
    try:
        call()
    finally:
        if traces:
            found.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
        if told is not None:
            found.append(told())
    return max(found)
