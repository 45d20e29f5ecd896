"""Operators that ask for numbers: values that Python reads, and outputs as large as their content says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from opcost.frontends.torch.ledger.entry import State
from opcost.frontends.torch.operators import values
from opcost.frontends.torch.operators.call import META, Call
from opcost.frontends.torch.operators.describe import record

_MASKS = (torch.bool, torch.uint8)
_PASSES_WHEN = {"aten::lt": False, "aten::le": False, "aten::ge": True, "aten::ne": True, "aten::all": True}
"""How PyTorch's checks of numbers end well, by the operator that makes the flag.

`istft` checks that its overlapping windows do not come near zero, `cov` that weights are not negative and their sum is not
zero, `quantile` that all quantiles lie between 0 and 1.
"""


def item(call: Call) -> Any:
    """`.item()`, `bool(tensor)`, `int(tensor)`: known contents, or a weight that is really there."""
    return call.ledger.content_asked(call.states[0], call.func).item()


def equal(call: Call) -> Any:
    """`equal` of a flag and a true made from it: so PyTorch's own operators check their numbers, which are taken to be right.

    Any other comparison of unknown numbers is the model's own, and only data could answer it.
    """
    flag, true = call.states
    if call.ledger.knows(flag) or flag.sig.dtype is not torch.bool or flag.sig.shape:
        return NotImplemented
    latest = call.ledger.ops[-1]
    if latest.entry.raw != "aten::new_ones" or latest.inputs != (flag.vid,) or latest.outputs != (true.vid,):
        return NotImplemented
    checked = call.ledger.maker_of(flag.vid)
    return _PASSES_WHEN.get(checked.entry.raw, NotImplemented) if checked else NotImplemented


def by_mask(call: Call) -> Any:
    """`x[mask]`: as many elements as the mask has true."""
    masks = [state for state in call.states[1:] if state.sig.dtype in _MASKS]
    if not masks:
        return NotImplemented
    for mask in masks:
        _must_be_known(call, mask)
    if _all_known(call):
        return values.run(call)
    trial = call.on_meta()
    return record(call, trial, call.func(trial.tensors[0], list(_indices(call, trial.tensors))))


def _indices(call: Call, metas: list[torch.Tensor]) -> Iterator[torch.Tensor | None]:
    """The indices of a call, with the places in the place of every mask, which must have the shape of what it chooses from."""
    tensors = iter(zip(call.states[1:], metas[1:], strict=True))
    shape, axis = call.states[0].sig.shape, 0
    for index in call.args[1]:
        if index is None:
            yield None
            axis += 1
            continue
        state, meta = next(tensors)
        if state.sig.dtype not in _MASKS or state.content is None:
            yield meta
            axis += 1
            continue
        mask = state.sig.shape
        if mask != shape[axis : axis + len(mask)]:
            raise IndexError(
                f"The shape of the mask {list(mask)} does not match that of the indexed tensor {list(shape)}"
            )
        chosen = torch.empty((int(state.content.count_nonzero()),), dtype=torch.int64, device=META)
        yield from [chosen] * len(mask)
        axis += len(mask)


def masked_select(call: Call) -> Any:
    """`masked_select`: as many elements as the mask has true, in one row."""
    source, mask = call.states
    if mask.sig.dtype not in _MASKS:
        return NotImplemented
    _must_be_known(call, mask)
    if _all_known(call):
        return values.run(call)
    assert mask.content is not None
    chosen = int(mask.content.expand(torch.broadcast_shapes(source.sig.shape, mask.sig.shape)).sum())
    return record(call, call.on_meta(), torch.empty((chosen,), dtype=source.sig.dtype, device=META))


def _all_known(call: Call) -> bool:
    """Whether the result can be computed, and not only its size."""
    return all(call.ledger.knows(state) for state in call.states)


def _must_be_known(call: Call, mask: State) -> None:
    if not call.ledger.knows(mask):
        raise call.ledger.unknown("the number of elements that a mask selects", call.func)
    call.ledger.decides(mask)


def pack_padded(call: Call) -> Any:
    """Padded sequences laid end to end. The batch sizes have memory, since layers and gradients look into it."""
    padded, lengths = call.states
    if not call.ledger.knows(lengths):
        raise call.ledger.unknown("the length of packed sequences", call.func)
    assert lengths.content is not None
    numbers = torch.zeros(padded.sig.shape[:2]).unsqueeze(-1)
    _, sizes = call.func(numbers, lengths.content, call.argument("batch_first"))
    data = torch.empty((int(lengths.content.sum()), *padded.sig.shape[2:]), dtype=padded.sig.dtype, device=META)
    return record(call, call.on_meta(), (data, sizes), [None, sizes])[0], sizes


def to_sparse(call: Call) -> Any:
    """How many values a sparse tensor stores decides what every operator on it costs."""
    dense = call.states[0]
    if not call.ledger.knows(dense) and dense.sig.stored is None:
        raise call.ledger.unknown(
            "how many values of a dense tensor are not zero, and stored by a sparse one", call.func
        )
    return NotImplemented
