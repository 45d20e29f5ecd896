"""Nested tensors that a model makes, and padded ones taken apart again: their lengths are known, their numbers are not."""

from __future__ import annotations

from typing import Any

import torch

from opcost.frontends.torch.operators.call import META, Call
from opcost.frontends.torch.operators.describe import record

STRIDED = (
    "nested tensors of the strided layout are counted in the jagged layout: the same products, component by component"
)
"""What a report says of them: compiled code takes them apart, unseen."""


def from_list(call: Call) -> Any:
    """A nested tensor of the strided layout from its components; it is made in the jagged one."""
    components, dtype, device = (call.argument(name) for name in ("list", "dtype", "device"))
    call.ledger.note("nested", STRIDED)
    with call.ledger:
        return torch.nested.as_nested_tensor(list(components), dtype=dtype, device=device, layout=torch.jagged)


def from_padded(call: Call) -> Any:
    """The components out of a padded tensor, laid end to end: as long as the offsets say."""
    dense, offsets = call.states[0], call.states[1]
    total = call.argument("total_L")
    if total is None:
        if not call.ledger.knows(offsets):
            raise call.ledger.unknown("the length of the components of a nested tensor")
        assert offsets.content is not None
        total = offsets.content[-1].item()
    made = torch.empty((int(total), *dense.sig.shape[2:]), dtype=dense.sig.dtype, device=META)
    return record(call, call.on_meta(), made)
