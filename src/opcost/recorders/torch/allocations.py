"""What PyTorch allocates on the host, told by its older profiler, which is silent and quick to start."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate

import torch
from torch._C._profiler import ProfilerConfig, ProfilerState, _ExperimentalConfig


def written_down() -> Callable[[], int] | None:
    """Begin to write allocations down; what is returned ends that and tells the peak. None while another profiler runs."""
    if torch.autograd._profiler_enabled():
        return None
    config = ProfilerConfig(ProfilerState.CPU, False, True, False, False, False, _ExperimentalConfig())  # noqa: FBT003
    torch.autograd._enable_profiler_legacy(config)

    def most() -> int:
        events = [event for thread in torch.autograd._disable_profiler_legacy() for event in thread]
        moves = sorted((e for e in events if e.kind() == "memory_alloc"), key=lambda event: event.start_us())
        return max(accumulate((int(event.cpu_memory_usage()) for event in moves), initial=0))

    return most
