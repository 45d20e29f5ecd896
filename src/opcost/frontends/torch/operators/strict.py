"""What PyTorch's real kernels refuse and its meta kernels let pass."""

from __future__ import annotations

from typing import Any

import torch

from opcost.frontends.torch.ledger.entry import State

_aten = torch.ops.aten
_ONE_TYPE = frozenset(
    {
        _aten.mm.default, _aten.addmm.default, _aten.bmm.default, _aten.baddbmm.default, _aten.addbmm.default,
        _aten.mv.default, _aten.addmv.default, _aten.dot.default, _aten.vdot.default, _aten.convolution.default,
    }
)  # fmt: skip


def refuse(func: Any, states: list[State]) -> None:
    """Raise where the operands of a product differ in their element type."""
    if func in _ONE_TYPE:
        kinds = dict.fromkeys(state.sig.spec.dtype for state in states)
        if len(kinds) > 1:
            raise RuntimeError(f"{func._schema.name} needs operands of one element type, but got {' and '.join(kinds)}")
