"""The operators that shapes alone do not answer, and who answers each. An answer of NotImplemented leaves it to the usual way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from opcost.frontends.torch.ledger.entry import SMALL
from opcost.frontends.torch.ledger.ledger import Ledger
from opcost.frontends.torch.operators import assumed, jagged, recurrent, sizes, values
from opcost.frontends.torch.operators.call import Call, Trial
from opcost.frontends.torch.operators.describe import record

_aten = torch.ops.aten


def _device(call: Call) -> Any:
    """`.device`, which a fake tensor is asked through the dispatcher."""
    return call.states[0].sig.device


def _grouped(call: Call) -> Any:
    """A grouped product counts all tokens, however they are spread over the groups; say how many that is."""
    tokens, weights = call.states[0].sig.shape, call.states[1].sig.shape
    if len(tokens) == 2 and len(weights) == 3:
        call.ledger.note(
            "experts",
            f"grouped product: {tokens[0]} token rows over {weights[0]} experts, {tokens[0] / weights[0]:g} each if balanced; "
            "the total does not depend on the spread",
        )
    return NotImplemented


def _copy_to_itself(call: Call) -> Any:
    """`matmul(..., out=x)` writes to `x.view(...)`, and copies back unless it sees that both are the same memory.

    Of tensors without data it cannot see that.
    """
    target, source = call.states[0], call.states[1]
    storages = call.ledger.storages
    same = storages[target.vid] == storages[source.vid] and target.sig.shape != source.sig.shape
    return call.args[0] if same and target.sig.spec.numel == source.sig.spec.numel else NotImplemented


def _look_at(call: Call) -> Any:
    """`set_`: a new tensor looks at memory that is there, as cuDNN's layers do at all their weights in one."""
    sig = call.states[0].sig
    size = call.args[3] if len(call.args) > 3 else (call.args[1].nbytes() // sig.dtype.itemsize,)
    tensor = sig.meta().resize_(size)
    content = _content_of(call.ledger, call.args[1:], sig.dtype, tensor.numel())
    trial = Trial([tensor], (tensor, *call.args[1:]), call.kwargs)
    result = record(call, trial, tensor, None if content is None else [content])
    call.states[0].content = content
    return result


def _content_of(ledger: Ledger, memory: Any, dtype: torch.dtype, elements: int) -> torch.Tensor | None:
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


HANDLERS: dict[Any, Callable[[Call], Any]] = {
    torch.ops.prim.device.default: _device,
    _aten._local_scalar_dense.default: sizes.item,
    _aten.equal.default: sizes.equal,
    _aten.index.Tensor: sizes.by_mask,
    _aten._unsafe_index.Tensor: sizes.by_mask,
    _aten.masked_select.default: sizes.masked_select,
    _aten._pack_padded_sequence.default: sizes.pack_padded,
    _aten._nested_tensor_from_tensor_list.default: jagged.from_list,
    _aten._padded_dense_to_jagged_forward.default: jagged.from_padded,
    _aten._to_sparse.default: sizes.to_sparse,
    _aten._to_sparse.sparse_dim: sizes.to_sparse,
    _aten._to_sparse_csr.default: sizes.to_sparse,
    _aten._to_sparse_csc.default: sizes.to_sparse,
    _aten.topk.default: assumed.choice,
    _aten.sort.default: assumed.choice,
    _aten.sort.stable: assumed.choice,
    _aten.argmax.default: assumed.choice,
    _aten.argmin.default: assumed.choice,
    _aten.max.dim: assumed.choice,
    _aten.min.dim: assumed.choice,
    _aten.rand.default: assumed.drawn,
    _aten.randn.default: assumed.drawn,
    _aten.randint.default: assumed.drawn,
    _aten.randint.low: assumed.drawn,
    **dict.fromkeys((*values.LIKE, *values.NEW), values.filled),
    **dict.fromkeys(recurrent.WHOLE_LAYERS, recurrent.whole_layer),
    _aten._cudnn_rnn.default: recurrent.cudnn,
    _aten._cudnn_rnn_backward.default: recurrent.cudnn_gradient,
    _aten.mkldnn_rnn_layer_backward.default: recurrent.onednn_gradient,
    _aten._grouped_mm.default: _grouped,
    _aten.copy_.default: _copy_to_itself,
    _aten.set_.source_Storage: _look_at,
    _aten.set_.source_Storage_storage_offset: _look_at,
}
