"""Operators that need more than shapes: values that Python asks for, and outputs whose size depends on content."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import TYPE_CHECKING, Any

import torch

from opcost.frontends.torch import recurrent
from opcost.frontends.torch.entry import SMALL, Leaf, State
from opcost.frontends.torch.subclass import has_data
from opcost.frontends.torch.without_data import META, describe, device_of, substitute, unknown_value, work_out

if TYPE_CHECKING:
    from opcost.frontends.torch.recorder import Recorder

_aten = torch.ops.aten
Handler = Callable[["Recorder", Any, Any, dict[str, Any], list[State]], Any]


def _item(recorder: Recorder, func: Any, args: Any, kwargs: dict[str, Any], states: list[State]) -> Any:
    """`.item()`, `bool(tensor)`, `int(tensor)`: known contents, or a weight that is really there."""
    state = states[0]
    if recorder.knows(state):
        recorder.decides(state)
        assert state.content is not None
        return state.content.item()
    if isinstance(state, Leaf) and has_data(state.tensor) and state.untouched:
        return state.tensor.detach().item()
    raise unknown_value(recorder, f"the value of a {state.sig.spec.dtype} tensor, which the model asks for,")


def _by_mask(recorder: Recorder, func: Any, args: Any, kwargs: dict[str, Any], states: list[State]) -> Any:
    """`x[mask]` and `masked_select`: as many elements as the mask has true."""
    masks = [state for state in states[1:] if state.sig.dtype in (torch.bool, torch.uint8)]
    if not masks:
        return NotImplemented
    for mask in masks:
        if not recorder.knows(mask):
            raise unknown_value(recorder, "the number of elements that a mask selects")
        recorder.decides(mask)
    metas = [state.sig.meta() for state in states]
    feed = iter(metas)
    meta_args = substitute(args, feed, META)
    if func is _aten.masked_select.default:
        assert masks[0].content is not None
        shape = torch.broadcast_shapes(states[0].sig.shape, states[1].sig.shape)
        chosen = int(masks[0].content.expand(shape).sum())
        result = torch.empty((chosen,), dtype=states[0].sig.dtype, device=META)
    else:
        position = iter(range(1, len(states)))
        indices: list[Any] = []
        for index in args[1]:
            if index is None:
                indices.append(None)
                continue
            at = next(position)
            real = states[at].content
            if states[at].sig.dtype in (torch.bool, torch.uint8) and real is not None:
                indices.extend(column.to(META) for column in real.nonzero().unbind(1))
            else:
                indices.append(metas[at])
        result = func(metas[0], indices)
    entry = describe(recorder, func, meta_args, {}, metas, states, result, device_of(recorder, kwargs, states))
    return recorder.emit(entry, states)


def _pack_padded(recorder: Recorder, func: Any, args: Any, kwargs: dict[str, Any], states: list[State]) -> Any:
    """Padded sequences laid end to end. The batch sizes have memory, since layers and gradients look into it."""
    padded, lengths = states[0], states[1]
    if not recorder.knows(lengths):
        raise unknown_value(recorder, "the length of packed sequences")
    batch_first = args[2] if len(args) > 2 else kwargs["batch_first"]
    assert lengths.content is not None
    zeros = torch.zeros(padded.sig.shape[:2])
    _, sizes = func(zeros.unsqueeze(-1), lengths.content, batch_first)
    data = torch.empty((int(lengths.content.sum()), *padded.sig.shape[2:]), dtype=padded.sig.dtype, device=META)
    metas = [state.sig.meta() for state in states]
    meta_args = substitute(args, iter(metas), META)
    entry = describe(
        recorder, func, meta_args, kwargs, metas, states, (data, sizes), device_of(recorder, kwargs, states)
    )
    return recorder.emit(entry, states, [None, sizes])[0], sizes


def _choice(recorder: Recorder, func: Any, args: Any, kwargs: dict[str, Any], states: list[State]) -> Any:
    """`topk`, `sort`, `argmax` of unknown numbers: which ones win is unknown, so every candidate wins equally often.

    This is what makes a mixture of experts countable: each expert sees the same share of the tokens.
    """
    if recorder.knows(states[0]):
        return NotImplemented
    entry = work_out(recorder, func, args, kwargs, states)
    index = entry.outs[-1].sig
    elements = index.spec.numel
    if index.dtype is not torch.int64 or not index.shape or elements > SMALL:
        return recorder.emit(entry, states)
    axis = _axis(func, args, kwargs, len(states[0].sig.shape))
    candidates = states[0].sig.shape[axis] if states[0].sig.shape else 1
    kept = index.shape[axis] if len(index.shape) == len(states[0].sig.shape) else 1
    rows = elements // max(kept, 1)
    turns = (torch.arange(rows * kept) % max(candidates, 1)).reshape(rows, kept)
    if len(index.shape) == len(states[0].sig.shape):
        moved = [n for i, n in enumerate(index.shape) if i != axis]
        content = turns.reshape(*moved, kept).movedim(-1, axis).contiguous()
    else:
        content = turns.reshape(index.shape)
    contents: list[torch.Tensor | None] = [None] * (len(entry.outs) - 1) + [content]
    result = recorder.emit(entry, states, contents)
    recorder.assume(result if isinstance(result, torch.Tensor) else result[-1], "balanced")
    return result


def _drawn(recorder: Recorder, func: Any, args: Any, kwargs: dict[str, Any], states: list[State]) -> Any:
    """A single random number gets the middle of its range: whether a layer is dropped is then decided as it mostly is."""
    entry = work_out(recorder, func, args, kwargs, states)
    sig = entry.outs[0].sig
    if sig.spec.numel != 1:
        return recorder.emit(entry, states)
    result = recorder.emit(entry, states, [torch.full(sig.shape, _middle(func, args), dtype=sig.dtype)])
    recorder.assume(result, "drawn")
    return result


def _middle(func: Any, args: Any) -> float:
    if func is _aten.randn.default:
        return 0.0
    if func is _aten.randint.default:
        return float(args[0] // 2)
    return float((args[0] + args[1]) // 2) if func is _aten.randint.low else 0.5


def _axis(func: Any, args: Any, kwargs: dict[str, Any], rank: int) -> int:
    names = [argument.name for argument in func._schema.arguments]
    if "dim" not in names:
        return rank - 1
    at = names.index("dim")
    dim = args[at] if at < len(args) else kwargs.get("dim", func._schema.arguments[at].default_value)
    return (rank - 1 if dim is None else int(dim)) % max(rank, 1)


def _grouped(recorder: Recorder, func: Any, args: Any, kwargs: dict[str, Any], states: list[State]) -> Any:
    """A grouped product counts all tokens, however they are spread over the groups; say how many that is."""
    tokens, weights = states[0].sig.shape, states[1].sig.shape
    if len(tokens) == 2 and len(weights) == 3:
        recorder.note(
            "experts",
            f"grouped product: {tokens[0]} token rows over {weights[0]} experts, {tokens[0] / weights[0]:g} each if balanced; "
            "the total does not depend on the spread",
        )
    return NotImplemented


def _copy_to_itself(recorder: Recorder, func: Any, args: Any, kwargs: dict[str, Any], states: list[State]) -> Any:
    """`matmul(..., out=x)` writes to `x.view(...)`, and copies back unless it sees that both are the same memory.

    Of tensors without data it cannot see that.
    """
    target, source = states[0], states[1]
    same = recorder.storages[target.vid] == recorder.storages[source.vid] and target.sig.shape != source.sig.shape
    return args[0] if same and target.sig.spec.numel == source.sig.spec.numel else NotImplemented


def _look_at(recorder: Recorder, func: Any, args: Any, kwargs: dict[str, Any], states: list[State]) -> Any:
    """`set_`: a new tensor looks at memory that is there, as cuDNN's layers do at all their weights in one."""
    size = args[3] if len(args) > 3 else (args[1].nbytes() // states[0].sig.dtype.itemsize,)
    tensor = states[0].sig.meta().resize_(size)
    entry = describe(recorder, func, (tensor, *args[1:]), kwargs, [tensor], states, tensor, states[0].sig.device)
    return recorder.emit(entry, states)


def _to_sparse(recorder: Recorder, func: Any, args: Any, kwargs: dict[str, Any], states: list[State]) -> Any:
    """How many values a sparse tensor stores decides what every operator on it costs."""
    if not recorder.knows(states[0]) and states[0].sig.stored is None:
        raise unknown_value(recorder, "how many values of a dense tensor are not zero, and stored by a sparse one,")
    return NotImplemented


def _filled(recorder: Recorder, func: Any, args: Any, kwargs: dict[str, Any], states: list[State]) -> Any:
    """`ones_like`, `new_zeros`: what they make is known, whatever their template holds."""
    sig = states[0].sig
    like = func in _LIKE
    if recorder.knows(states[0]) or sig.stored is not None or (sig.spec.numel if like else prod(args[1])) > SMALL:
        return NotImplemented
    template = sig.zeros() if like else torch.zeros((), dtype=sig.dtype)
    real_args, real_kwargs = (template, *args[1:]), substitute(kwargs, iter(()), torch.device("cpu"))
    content = func(*real_args, **real_kwargs)
    device = device_of(recorder, kwargs, states)
    entry = describe(recorder, func, real_args, real_kwargs, [template], states, content, device)
    return recorder.emit(entry, states, [content])


_LIKE = (_aten.zeros_like.default, _aten.ones_like.default, _aten.full_like.default)
_NEW = (_aten.new_zeros.default, _aten.new_ones.default, _aten.new_full.default)


def _equal(recorder: Recorder, func: Any, args: Any, kwargs: dict[str, Any], states: list[State]) -> Any:
    """`istft` asks so whether its overlapping windows come below a tiny number somewhere: not if it can be inverted."""
    flag, true = states
    if recorder.knows(flag) or flag.sig.dtype is not torch.bool or flag.sig.shape or not recorder.knows(true):
        return NotImplemented
    below = any(op.entry.raw == "aten::lt" and flag.vid in op.outputs for op in recorder.ops[-2:])
    return False if below else NotImplemented


def _device(recorder: Recorder, func: Any, args: Any, kwargs: dict[str, Any], states: list[State]) -> Any:
    """`.device`, which a fake tensor is asked through the dispatcher."""
    return states[0].sig.device


HANDLERS: dict[Any, Handler] = {
    torch.ops.prim.device.default: _device,
    _aten._local_scalar_dense.default: _item,
    _aten.index.Tensor: _by_mask,
    _aten._unsafe_index.Tensor: _by_mask,
    _aten.masked_select.default: _by_mask,
    _aten._pack_padded_sequence.default: _pack_padded,
    _aten.topk.default: _choice,
    _aten.sort.default: _choice,
    _aten.sort.stable: _choice,
    _aten.argmax.default: _choice,
    _aten.argmin.default: _choice,
    _aten.max.dim: _choice,
    _aten.min.dim: _choice,
    _aten._grouped_mm.default: _grouped,
    _aten.rand.default: _drawn,
    _aten.randn.default: _drawn,
    _aten.randint.default: _drawn,
    _aten.randint.low: _drawn,
    _aten.copy_.default: _copy_to_itself,
    _aten.equal.default: _equal,
    **dict.fromkeys((*_LIKE, *_NEW), _filled),
    _aten._to_sparse.default: _to_sparse,
    _aten._to_sparse.sparse_dim: _to_sparse,
    _aten._to_sparse_csr.default: _to_sparse,
    _aten._to_sparse_csc.default: _to_sparse,
    **dict.fromkeys(recurrent.WHOLE_LAYERS, recurrent.whole_layer),
    _aten._cudnn_rnn.default: recurrent.cudnn,
    _aten._cudnn_rnn_backward.default: recurrent.cudnn_gradient,
    _aten.set_.source_Storage: _look_at,
    _aten.set_.source_Storage_storage_offset: _look_at,
}
