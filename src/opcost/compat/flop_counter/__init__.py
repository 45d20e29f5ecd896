"""torch.utils.flop_counter: a block that counts the FLOPs of what runs inside it.

    from opcost.compat.flop_counter import FlopCounterMode

A multiply-add is two FLOPs, everything else is free; what differs is listed in docs/compat.md.
"""

from __future__ import annotations

from torch.utils.flop_counter import flop_registry, register_flop_formula

from opcost.compat.flop_counter.mode import FlopCounterMode

__all__ = ["FlopCounterMode", "flop_registry", "register_flop_formula"]
