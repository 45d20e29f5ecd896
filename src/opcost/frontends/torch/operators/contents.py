"""Small tensors whose content is known: indices, masks, lengths, constants. Their operators are computed for real.

Decoders ask their masks `bool(mask.all())`, detectors loop over level sizes, packed sequences carry lengths. Such tensors are
small integers and booleans (and constants made from them), so they keep their content beside the tensor without data.
"""

from __future__ import annotations

from math import prod
from typing import Any

import torch

from opcost.frontends.torch.ledger.recorder_state import Choice
from opcost.frontends.torch.ledger.tensors import SMALL, OperatorEntry, Signature, State
from opcost.frontends.torch.operators.calls import (
    CPU,
    RANKS,
    DispatchedCall,
    Trial,
    describe,
    record,
    substitute,
    work_out,
)
from opcost.frontends.torch.operators.closed_form import overloads
from opcost.frontends.torch.tree import tensors_passed

_aten = torch.ops.aten
_SEEN = 1 << 25  # Elements that a view of small contents may show: to go through them takes hundredths of a second
_SIZED = overloads("zeros ones full empty.memory_format")
_STEPPED = overloads("linspace logspace")
_RANGES = overloads("arange arange.start arange.start_step")
_GRIDS = overloads("eye eye.m tril_indices triu_indices")


def computable(func: Any, args: Any, states: list[State]) -> bool:
    """Whether an operator on known contents has a known result: not where it draws random numbers, or asks other ranks."""
    return (
        bool(states or _is_known_factory(func, args))
        and torch.Tag.nondeterministic_seeded not in func.tags
        and func.namespace not in RANKS
    )


def _is_known_factory(func: Any, args: Any) -> bool:
    """Whether an operator without tensor arguments makes a small tensor whose content follows from its arguments."""
    if func in _SIZED:
        return bool(prod(args[0]) <= SMALL)
    if func in _STEPPED:
        return bool(args[2] <= SMALL)
    if func in _RANGES:
        start, end, step = (0, args[0], 1) if len(args) == 1 else (*args, 1)[:3]
        return bool(step and abs((end - start) / step) <= SMALL)
    if func in _GRIDS:
        return bool(args[0] * (args[1] if len(args) > 1 else args[0]) <= SMALL)
    # Arithmetic on plain numbers (`torch.div(size, 2)`) makes a scalar.
    return torch.Tag.pointwise in func.tags or func is _aten.scalar_tensor.default


def depends_on_content(func: Any) -> bool:
    """Whether what the operator makes, and not only its numbers, depends on content (`nonzero`)."""
    return torch.Tag.dynamic_output_shape in func.tags or torch.Tag.data_dependent_output in func.tags


def is_small(entry: OperatorEntry) -> bool:
    """Whether the results may carry their content: two small tensors can make a very large one (a mask of all pairs).

    A view is as small as what it looks into: a mask of tokens that is expanded to all their features stays known.
    """
    return all(out.sig.spec.numel <= (SMALL if out.base < 0 else _SEEN) for out in entry.outs)


def run(call: DispatchedCall, entry: OperatorEntry | None = None) -> Any:
    """Compute an operator on known contents, and record it; `entry` is what is known of it already."""
    trial = call.on([_content(state) for state in call.states], CPU)
    result = call.func(*trial.args, **trial.kwargs)
    flat = tensors_passed(result, [])
    if not flat and not call.func._schema.is_mutable:
        for state in call.states:
            call.ledger.decides(state)
        return result
    if entry is None:
        entry = describe(call, trial, result)
    emitted = call.ledger.emit(entry, call.states, [item if _takes_little(item) else None for item in flat])
    if (found := call.ledger.assumed(call.states)) is not None:
        _pass_assumption_on(call, emitted, *found)
    return emitted


def _takes_little(content: torch.Tensor) -> bool:
    """Whether a content can be kept: few numbers, or a view of few that is not too long to be gone through."""
    if content.numel() <= SMALL:
        return True
    return bool(content.numel() <= _SEEN and content.untyped_storage().nbytes() <= SMALL * content.itemsize)


def _content(state: State) -> torch.Tensor:
    assert state.content is not None
    return state.content


def _pass_assumption_on(call: DispatchedCall, emitted: Any, how: str, choice: Choice | None) -> None:
    """What is computed from an assumed content is assumed as well."""
    made = tensors_passed(emitted, [])
    if how == "chosen" and choice is not None:
        name = call.func._schema.name
        if name in _SPREADING:
            how = "balanced"
        elif name in _COMPARING and (numbers := _compared_with(call)) is not None:
            how = "compared"
            choice.compared.update(number for number in numbers if 0 <= number < choice.candidates)
            choice.won = choice.won or any(
                content is not None and bool(content.any()) for content in map(call.ledger.content_of, made)
            )
    for item in made:
        call.ledger.assume(item, how, choice)
    if torch.Tag.dynamic_output_shape in call.func.tags and call.func is not _aten.index.Tensor:
        call.ledger.decides(call.ledger.state(made[0]))


def _compared_with(call: DispatchedCall) -> list[int] | None:
    """The numbers with which an index is compared; None where they are winners as well."""
    others = [state for state in call.states if call.ledger.assumed([state]) is None]
    if len(call.states) > 1:
        return [int(number) for state in others for number in _content(state).flatten().tolist()] if others else None
    return [int(call.args[1])] if isinstance(call.args[1], (int, float)) else None


_COMPARING = frozenset({"aten::eq", "aten::ne", "aten::isin"})
_SPREADING = frozenset(
    {
        "aten::scatter", "aten::scatter_", "aten::scatter_add", "aten::scatter_add_", "aten::scatter_reduce",
        "aten::scatter_reduce_", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_", "aten::index_add",
        "aten::index_add_", "aten::index_fill", "aten::index_fill_", "aten::bincount", "aten::histc",
        "aten::_unique2", "aten::unique_dim", "aten::unique_consecutive", "aten::sort", "aten::argsort", "aten::topk",
        "aten::searchsorted", "aten::nonzero",
    }
)  # fmt: skip
"""Operators that make of the indices of winners how many tokens each candidate gets, and in which order."""


def filled(call: DispatchedCall) -> Any:
    """`ones_like`, `new_zeros`: what they make is known, whatever their template holds."""
    sig = call.states[0].sig
    like = "_like" in call.func._schema.name
    elements = sig.spec.numel if like else prod(call.args[1])
    if call.ledger.knows(call.states[0]) or sig.stored is not None or elements > SMALL:
        return NotImplemented
    template = sig.zeros() if like else torch.zeros((), dtype=sig.dtype)
    trial = Trial([template], (template, *call.args[1:]), substitute(call.kwargs, iter(()), CPU))
    content = call.func(*trial.args, **trial.kwargs)
    return record(call, trial, content, [content])


# -- assumed: Unknown numbers that decide what runs: winners of a comparison, and random draws. They are assumed.
#
# Where such a number does decide something, the report says so (`ASSUMPTIONS`).


def choice(call: DispatchedCall) -> Any:
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


def _in_turn(call: DispatchedCall, index: Signature) -> torch.Tensor:
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


def _axis(call: DispatchedCall, rank: int) -> int:
    dim = call.argument("dim") if call.has("dim") else None
    return (rank - 1 if dim is None else int(dim)) % max(rank, 1)


def drawn(call: DispatchedCall) -> Any:
    """A single random number gets the middle of its range: whether a layer is dropped is then decided as it mostly is."""
    entry = work_out(call)
    sig = entry.outs[0].sig
    if sig.spec.numel != 1:
        return call.ledger.emit(entry, call.states)
    result = call.ledger.emit(entry, call.states, [torch.full(sig.shape, _middle(call), dtype=sig.dtype)])
    call.ledger.assume(result, "drawn")
    return result


def _middle(call: DispatchedCall) -> float:
    func, args = call.func, call.args
    if func is _aten.randn.default:
        return 0.0
    if func is _aten.randint.default:
        return float(args[0] // 2)
    return float((args[0] + args[1]) // 2) if func is _aten.randint.low else 0.5
