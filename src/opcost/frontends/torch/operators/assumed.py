"""Numbers that nobody knows and that decide what runs: winners of a comparison, and random draws. They are assumed.

Where such a number does decide something, the report says so (`ASSUMPTIONS`).
"""

from __future__ import annotations

from typing import Any

import torch

from opcost.frontends.torch.ledger.entry import SMALL
from opcost.frontends.torch.ledger.ledger import Choice
from opcost.frontends.torch.ledger.tensor import Signature
from opcost.frontends.torch.operators.call import Call
from opcost.frontends.torch.operators.without_data import work_out

_aten = torch.ops.aten


def choice(call: Call) -> Any:
    """`topk`, `sort`, `argmax` of unknown numbers: which ones win is unknown, so every candidate wins equally often.

    This is what makes a mixture of experts countable: each expert sees the same share of the tokens.
    """
    if call.ledger.knows(call.states[0]):
        return NotImplemented
    entry = work_out(call)
    index = entry.outs[-1].sig
    if index.dtype is not torch.int64 or not index.shape or index.spec.numel > SMALL:
        return call.ledger.emit(entry, call.states)
    contents: list[torch.Tensor | None] = [None] * (len(entry.outs) - 1)
    result = call.ledger.emit(entry, call.states, [*contents, _in_turn(call, index)])
    axis = _axis(call, len(call.states[0].sig.shape))
    chosen = Choice(call.states[0].sig.shape[axis])
    call.ledger.assume(result if isinstance(result, torch.Tensor) else result[-1], "chosen", chosen)
    return result


def _in_turn(call: Call, index: Signature) -> torch.Tensor:
    """Indices of the winners if the candidates win one after the other."""
    shape = call.states[0].sig.shape
    axis = _axis(call, len(shape))
    keeps_axis = len(index.shape) == len(shape)
    winners = index.shape[axis] if keeps_axis else 1
    candidates = max(shape[axis], 1)
    turns = torch.arange(index.spec.numel) % candidates
    if call.ledger.together:
        turns = candidates - 1 - torch.arange(index.spec.numel) % max(winners, 1)
    if avoided := call.ledger.avoided.get(shape[axis]):
        open_ones = torch.tensor([at for at in range(shape[axis]) if at not in avoided] or [0])
        turns = open_ones[turns % len(open_ones)]
    if not keeps_axis:
        return turns.reshape(index.shape)
    others = [n for i, n in enumerate(index.shape) if i != axis]
    return turns.reshape(*others, winners).movedim(-1, axis).contiguous()


def _axis(call: Call, rank: int) -> int:
    dim = call.argument("dim") if call.has("dim") else None
    return (rank - 1 if dim is None else int(dim)) % max(rank, 1)


def drawn(call: Call) -> Any:
    """A single random number gets the middle of its range: whether a layer is dropped is then decided as it mostly is."""
    entry = work_out(call)
    sig = entry.outs[0].sig
    if sig.spec.numel != 1:
        return call.ledger.emit(entry, call.states)
    result = call.ledger.emit(entry, call.states, [torch.full(sig.shape, _middle(call), dtype=sig.dtype)])
    call.ledger.assume(result, "drawn")
    return result


def _middle(call: Call) -> float:
    func, args = call.func, call.args
    if func is _aten.randn.default:
        return 0.0
    if func is _aten.randint.default:
        return float(args[0] // 2)
    return float((args[0] + args[1]) // 2) if func is _aten.randint.low else 0.5
