"""`measure_flops`: two for each multiply-add of a forward pass, and of a backward pass where there is a loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from opcost.compat.flop_counter import FlopCounterMode


def measure_flops(model: nn.Module, forward_fn: Callable[[], Any], loss_fn: Callable[[Any], Any] | None = None) -> int:
    """The FLOPs of `forward_fn()`, and with `loss_fn` also of the loss and its `backward()`."""
    with FlopCounterMode(display=False) as counter:
        result = forward_fn()
        if loss_fn is not None:
            loss_fn(result).backward()
    return counter.get_total_flops()
