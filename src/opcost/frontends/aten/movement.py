"""Data movement: lookups, gathers, scatters, copies, filled tensors, and communication between ranks."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from opcost.frontends.aten.call import AtenCall, AtenTensor, Translation, lie_alike, means, rows, seen_as, type_name

# -- lookups and scatters ---------------------------------------------------------------------------------------------

_BAG_MODES = ("sum", "mean", "max")
_REDUCTIONS = {
    None: "copy", "add": "add", "sum": "add", "multiply": "mul", "prod": "mul", "amax": "max", "amin": "min",
    "mean": "mean",
}  # fmt: skip


def _scatter(call: AtenCall, fn: str, *moved: Any, elements: int | None = None) -> Translation:
    """Elements put into the first argument; in place only these move."""
    return means("scatter", (call["self"], moved), fn=fn, elements=elements, overwrites=call.in_place or None)


def _added(elements: int, ins: Sequence[AtenTensor] | None = None) -> Translation:
    """Elements added to a new tensor."""
    return means("scatter", ins, fn="add", elements=elements)


def _places(x: AtenTensor, indices: Sequence[AtenTensor | None]) -> int:
    """Elements that an index names: its own extents, broadcast, times the axes that are not indexed.

    How many a mask names is in its data; all of it is counted.
    """
    shape: list[int] = []
    kept = 1
    axis = 0
    for index in indices:
        if index is None:
            kept *= x.shape[axis]
            axis += 1
            continue
        mask = type_name(index) in ("bool", "uint8")
        axis += index.dim() if mask else 1
        extents = [index.numel()] if mask else list(index.shape)
        longer, shorter = (extents, shape) if len(extents) >= len(shape) else (shape, extents)
        offset = len(longer) - len(shorter)
        shape = [max(n, shorter[i - offset]) if i >= offset else n for i, n in enumerate(longer)]
    return kept * prod(x.shape[axis:]) * prod(shape)


def _index_fill(call: AtenCall, self: AtenTensor, dim: int, index: AtenTensor) -> Translation:
    extent = self.shape[dim] if self.dim() else 1
    return _scatter(call, "copy", index, elements=self.numel() // max(extent, 1) * index.numel())


# -- copies -----------------------------------------------------------------------------------------------------------


def _perhaps(call: AtenCall) -> Translation:
    """Nothing happens if the result looks as the argument did."""
    x, y = next(iter(call.args.values())), call.outs[0]
    same = x.dtype == y.dtype and x.stride() == y.stride() and x.device == y.device
    return means("view" if same else "copy", (x,))


rows(
    {
        "embedding_bag _embedding_bag _embedding_bag_forward_only quantized::embedding_bag_byte_rowwise_offsets "
        "quantized::embedding_bag_4bit_rowwise_offsets quantized::embedding_bag_2bit_rowwise_offsets":
            lambda mode, per_sample_weights: means(
                "embedding", reduce=_BAG_MODES[mode], weighted=None if per_sample_weights is None else True,
            ),
        # every looked-up element is added to its row of a new table
        "_embedding_bag_backward _embedding_bag_dense_backward _embedding_bag_sparse_backward":
            lambda grad, indices: _added(indices.numel() * grad.shape[-1]),
        # for each index the product of its row with its bag's gradient, summed
        "_embedding_bag_per_sample_weights_backward": lambda weight, indices: means(
            "elementwise", fn="fma", elements=indices.numel() * weight.shape[-1],
        ),
        # the values are broadcast to the places that the indices name
        "index_put _index_put_impl": lambda call, self, indices, values, accumulate: _scatter(
            call, "add" if accumulate else "copy", indices, values, elements=_places(self, indices),
        ),
        "_unsafe_masked_index_put_accumulate":
            lambda call, indices, values: _scatter(call, "add", indices, values, elements=values.numel()),
        "scatter scatter_reduce": lambda call, index, src=None, reduce=None: _scatter(
            call, _REDUCTIONS[reduce], index, src,
        ),
        "scatter_add": lambda call, index, src: _scatter(call, "add", index, src),
        "index_add": lambda call, index, source: _scatter(call, "add", index, source),
        "index_copy": lambda call, index, source: _scatter(call, "copy", index, source),
        "index_reduce": lambda call, index, source, reduce: _scatter(call, _REDUCTIONS[reduce], index, source),
        "index_fill": _index_fill,
        "put": lambda call, index, source, accumulate: _scatter(
            call, "add" if accumulate else "copy", index, source,
        ),
        "masked_scatter":
            lambda call, mask, source: _scatter(call, "copy", mask, source, elements=mask.numel()),
        # the gradient is added to a new tensor at the places it was picked from
        "gather_backward index_select_backward value_selecting_reduction_backward masked_select_backward":
            lambda grad: _added(grad.numel()),
        # windows are laid back into a new tensor and added where they overlap
        "col2im unfold_backward": lambda call: _added(call.get("self", "grad_in").numel()),
        # the gradient of the border is added to that of the elements it was copied from
        "reflection_pad1d_backward reflection_pad2d_backward reflection_pad3d_backward replication_pad1d_backward "
        "replication_pad2d_backward replication_pad3d_backward":
            lambda grad_output: _added(grad_output.numel(), (grad_output,)),
        # the destination is written, not read
        "copy _copy_from _copy_from_and_resize copy_sparse_to_sparse set_data": lambda call: means(
            "copy", call.tensors(*(("self",) if call.base.startswith("_copy_from") else ("src", "other", "new_data"))),
        ),
        # what does not lie alike is copied piece by piece
        "cat concat concatenate":
            lambda tensors: means("copy", tensors, strided=None if lie_alike(tensors) else True),
        "contiguous to type_as resolve_conj resolve_neg _autocast_to_reduced_precision _autocast_to_full_precision":
            _perhaps,
        # a view where the memory can be seen with the other shape
        "reshape reshape_as flatten ravel":
            lambda call, self: means("copy" if seen_as(self, call.outs[0].shape) is None else "view", (self,)),
    }
)  # fmt: skip


# -- communication between ranks: functional collectives, and those of `torch.distributed` on process groups

_FUNCTIONS = {
    "all_reduce": "all_reduce", "allreduce": "all_reduce", "reduce": "all_reduce", "all_gather": "all_gather",
    "allgather": "all_gather", "_allgather": "all_gather", "gather": "all_gather", "reduce_scatter": "reduce_scatter",
    "_reduce_scatter": "reduce_scatter", "all_to_all": "all_to_all", "alltoall": "all_to_all",
    "shard_dim_alltoall": "all_to_all", "scatter": "broadcast", "broadcast": "broadcast", "send": "send",
    "isend": "send", "batch_p2p": "send", "recv": "recv", "irecv": "recv", "wait": "wait", "barrier": "wait",
    "monitored_barrier": "wait", "check_for_nan": "wait",
}  # fmt: skip
"""Our word for the longest of these that an operator's name begins with."""


def _collective(call: AtenCall, ins: Any, outs: Any, group: int | None) -> Translation:
    fn = _FUNCTIONS[max((start for start in _FUNCTIONS if call.base.startswith(start)), key=len)]
    return means("collective", ins, outs, fn=fn, group=group)


def _process_group(call: AtenCall) -> Translation:
    """Outputs are handed in as the first argument, except where one tensor is both; the group is an opaque object."""
    size = getattr(call.args.get("process_group"), "size", None)
    try:
        count = size() if callable(size) else 0
    except (RuntimeError, TypeError):
        count = 0
    inputs = call.tensors("input_tensor", "input_tensors", "input_list", "inputs", "input")
    outputs = call.tensors("output_tensor", "output_tensors", "output_lists", "outputs", "output")
    both = call.tensors("tensors", "tensor")
    return _collective(call, inputs or both, outputs or both, count if isinstance(count, int) and count else None)


def _in(library: str, names: str) -> str:
    return " ".join(f"{library}::{name}" for name in names.split())


rows(
    {
        " ".join(
            (
                _in(
                    "_c10d_functional",
                    "all_reduce all_reduce_coalesced all_gather_into_tensor all_gather_into_tensor_coalesced "
                    "all_gather_into_tensor_out reduce_scatter_tensor reduce_scatter_tensor_coalesced "
                    "reduce_scatter_tensor_out all_to_all_single broadcast isend irecv wait_tensor batch_p2p_ops",
                ),
                _in("_c10d_functional_autograd", "all_gather_into_tensor reduce_scatter_tensor all_to_all_single"),
                _in(
                    "c10d_functional",
                    "all_reduce all_gather_into_tensor reduce_scatter_tensor all_to_all_single broadcast wait_tensor",
                ),
                "_dtensor::shard_dim_alltoall",
            )
        ): lambda call, group_size=None: _collective(
            call, None, None, group_size if isinstance(group_size, int) else None,
        ),
        _in(
            "c10d",
            "_allgather_base _reduce_scatter_base allgather allgather_coalesced allgather_into_tensor_coalesced "
            "allreduce allreduce_coalesced alltoall alltoall_base barrier broadcast check_for_nan gather monitored_barrier recv "
            "recv_any_source reduce reduce_scatter reduce_scatter_tensor_coalesced scatter send",
        ): _process_group,
    }
)  # fmt: skip
