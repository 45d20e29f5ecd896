"""The operators that shapes alone do not answer, and the handler of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from opcost.frontends.torch.ledger.recorder_state import RecorderState
from opcost.frontends.torch.ledger.tensors import SMALL, State
from opcost.frontends.torch.operators import contents, layers
from opcost.frontends.torch.operators.calls import META, DispatchedCall, Trial, record
from opcost.frontends.torch.operators.closed_form import overloads

_MASKS = (torch.bool, torch.uint8)
_PASSES_WHEN = {"aten::lt": False, "aten::le": False, "aten::ge": True, "aten::ne": True, "aten::all": True}
"""How PyTorch's checks of numbers end well, by the operator that makes the flag.

`istft` checks that its overlapping windows do not come near zero, `cov` that weights are not negative and their sum is not
zero, `quantile` that all quantiles lie between 0 and 1.
"""


def item(call: DispatchedCall) -> Any:
    """`.item()`, `bool(tensor)`, `int(tensor)`: known contents, or a weight that is really there."""
    return call.ledger.real_content(call.states[0], call.func).item()


def equal(call: DispatchedCall) -> Any:
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


def by_mask(call: DispatchedCall) -> Any:
    """`x[mask]`: as many elements as the mask has true."""
    masks = [state for state in call.states[1:] if state.sig.dtype in _MASKS]
    if not masks:
        return NotImplemented
    for mask in masks:
        _must_be_known(call, mask)
    if _all_known(call):
        return contents.run(call)
    trial = call.on_meta()
    return record(call, trial, call.func(trial.tensors[0], list(_indices(call, trial.tensors))))


def _indices(call: DispatchedCall, metas: list[torch.Tensor]) -> Iterator[torch.Tensor | None]:
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


def masked_select(call: DispatchedCall) -> Any:
    """`masked_select`: as many elements as the mask has true, in one row."""
    source, mask = call.states
    if mask.sig.dtype not in _MASKS:
        return NotImplemented
    _must_be_known(call, mask)
    if _all_known(call):
        return contents.run(call)
    assert mask.content is not None
    chosen = int(mask.content.expand(torch.broadcast_shapes(source.sig.shape, mask.sig.shape)).sum())
    return record(call, call.on_meta(), torch.empty((chosen,), dtype=source.sig.dtype, device=META))


def _all_known(call: DispatchedCall) -> bool:
    """Whether the result can be computed, and not only its size."""
    return all(call.ledger.knows(state) for state in call.states)


def _must_be_known(call: DispatchedCall, mask: State) -> None:
    if not call.ledger.knows(mask):
        raise call.ledger.unknown("the number of elements that a mask selects", call.func)
    call.ledger.decides(mask)


def pack_padded(call: DispatchedCall) -> Any:
    """Padded sequences laid end to end. The batch sizes have memory, since layers and gradients look into it."""
    padded, lengths = call.states
    if not call.ledger.knows(lengths):
        raise call.ledger.unknown("the length of packed sequences", call.func)
    assert lengths.content is not None
    numbers = torch.zeros(padded.sig.shape[:2]).unsqueeze(-1)
    _, sizes = call.func(numbers, lengths.content, call.argument("batch_first"))
    data = torch.empty((int(lengths.content.sum()), *padded.sig.shape[2:]), dtype=padded.sig.dtype, device=META)
    return record(call, call.on_meta(), (data, sizes), [None, sizes])[0], sizes


def to_sparse(call: DispatchedCall) -> Any:
    """How many values a sparse tensor stores decides what every operator on it costs."""
    dense = call.states[0]
    if not call.ledger.knows(dense) and dense.sig.stored is None:
        raise call.ledger.unknown(
            "how many values of a dense tensor are not zero, and stored by a sparse one", call.func
        )
    return NotImplemented


# -- the operators that shapes alone do not answer, by handler; NotImplemented leaves an operator to the recorder


def _device(call: DispatchedCall) -> Any:
    """`.device`, which a fake tensor answers through the dispatcher."""
    return call.states[0].sig.device


def _grouped(call: DispatchedCall) -> Any:
    """A grouped product counts all tokens, however they are spread over the groups; say how many that is."""
    tokens, weights = call.states[0].sig.shape, call.states[1].sig.shape
    if len(tokens) == 2 and len(weights) == 3:
        call.ledger.note(
            "experts",
            f"grouped product: {tokens[0]} token rows over {weights[0]} experts, {tokens[0] / weights[0]:g} each if balanced; "
            "the total does not depend on the spread",
        )
    return NotImplemented


def _copy_to_itself(call: DispatchedCall) -> Any:
    """`matmul(..., out=x)` writes to `x.view(...)`, and copies back unless it sees that both are the same memory.

    Of tensors without data it cannot see that.
    """
    target, source = call.states[0], call.states[1]
    storages = call.ledger.storages
    same = storages[target.vid] == storages[source.vid] and target.sig.shape != source.sig.shape
    return call.args[0] if same and target.sig.spec.numel == source.sig.spec.numel else NotImplemented


def _look_at(call: DispatchedCall) -> Any:
    """`set_`: a new tensor looks at memory that is there, as cuDNN's layers do at all their weights in one."""
    sig = call.states[0].sig
    size = call.args[3] if len(call.args) > 3 else (call.args[1].nbytes() // sig.dtype.itemsize,)
    tensor = sig.meta().resize_(size)
    content = _content_of(call.ledger, call.args[1:], sig.dtype, tensor.numel())
    trial = Trial([tensor], (tensor, *call.args[1:]), call.kwargs)
    result = record(call, trial, tensor, None if content is None else [content])
    call.states[0].content = content
    return result


def _content_of(ledger: RecorderState, memory: Any, dtype: torch.dtype, elements: int) -> torch.Tensor | None:
    """Memory that is really there tells what is in it, where that is little: so a tensor that was pickled comes back."""
    if memory[0].device.type != "cpu" or elements > SMALL or not _is_there(memory[0]):
        return None
    content = torch.empty(0, dtype=dtype).set_(*memory)
    ours = any(shared.untyped_storage()._cdata == memory[0]._cdata for shared in ledger.shared.values())
    return content if ours else content.clone()


def _is_there(storage: torch.UntypedStorage) -> bool:
    """Whether it is memory, and not the storage of a tensor without data, which only says how large it would be."""
    try:
        return bool(storage.data_ptr())
    except RuntimeError:
        return False


_NAMED: dict[str, Callable[[DispatchedCall], Any]] = {
    "_local_scalar_dense": item,
    "equal": equal,
    "index.Tensor _unsafe_index.Tensor": by_mask,
    "masked_select": masked_select,
    "_pack_padded_sequence": pack_padded,
    "_nested_tensor_from_tensor_list": layers.from_list,
    "_padded_dense_to_jagged_forward": layers.from_padded,
    "_to_sparse _to_sparse.sparse_dim _to_sparse_csr _to_sparse_csc": to_sparse,
    "topk sort sort.stable argmax argmin max.dim min.dim": contents.choice,
    "rand randn randint randint.low": contents.drawn,
    "zeros_like ones_like full_like new_zeros new_ones new_full": contents.filled,
    "lstm.input lstm.data gru.input gru.data rnn_tanh.input rnn_tanh.data rnn_relu.input rnn_relu.data": layers.whole_layer,
    "_cudnn_rnn": layers.cudnn,
    "_cudnn_rnn_backward": layers.cudnn_gradient,
    "mkldnn_rnn_layer_backward": layers.onednn_gradient,
    "_grouped_mm": _grouped,
    "copy_": _copy_to_itself,
    "set_.source_Storage set_.source_Storage_storage_offset": _look_at,
}  # fmt: skip
HANDLERS: dict[Any, Callable[[DispatchedCall], Any]] = {torch.ops.prim.device.default: _device} | {
    overload: handler for names, handler in _NAMED.items() for overload in overloads(names)
}
