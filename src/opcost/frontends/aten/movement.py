"""Data movement: lookups, gathers, scatters, copies, filled tensors, and communication between ranks."""

from __future__ import annotations

from typing import Any

from opcost.frontends.aten.call import Call, Tensor, Translation, lie_alike, means, on, seen_as, type_name

# -- lookups ----------------------------------------------------------------------------------------------------------

_BAG_MODES = ("sum", "mean", "max")


@on(
    "embedding_bag", "_embedding_bag", "_embedding_bag_forward_only",
    "quantized::embedding_bag_byte_rowwise_offsets", "quantized::embedding_bag_4bit_rowwise_offsets",
    "quantized::embedding_bag_2bit_rowwise_offsets",
)  # fmt: skip
def _embedding_bag(call: Call) -> Translation:
    weighted = call["per_sample_weights"] is not None
    return means("embedding", reduce=_BAG_MODES[call["mode"]], weighted=weighted or None)


@on("_embedding_bag_backward", "_embedding_bag_dense_backward", "_embedding_bag_sparse_backward")
def _embedding_bag_backward(call: Call) -> Translation:
    # Every looked-up element is added to its row of a new table
    elements = call["indices"].numel() * call["grad"].shape[-1]
    return Translation("scatter", {"fn": "add", "elements": elements})


@on("_embedding_bag_per_sample_weights_backward")
def _per_sample_weights_backward(call: Call) -> Translation:
    """For each index the product of its row with its bag's gradient, summed."""
    return Translation("elementwise", {"fn": "fma", "elements": call["indices"].numel() * call["weight"].shape[-1]})


# -- scatters ---------------------------------------------------------------------------------------------------------

_REDUCTIONS = {
    "add": "add", "sum": "add", "multiply": "mul", "prod": "mul", "amax": "max", "amin": "min", "mean": "mean",
}  # fmt: skip


def scatter(call: Call, fn: str, indices: str, source: str = "", elements: int | None = None) -> Translation:
    """Elements put into the first argument; in place only these move."""
    ins = call.tensors("self", indices, source)
    return means("scatter", ins, fn=fn, elements=elements, overwrites=call.in_place or None)


@on("index_put", "_index_put_impl")
def _index_put(call: Call) -> Translation:
    """The values are broadcast to the places that the indices name."""
    return scatter(call, "add" if call["accumulate"] else "copy", "indices", "values", _places(call))


@on("_unsafe_masked_index_put_accumulate")
def _masked_index_put(call: Call) -> Translation:
    return scatter(call, "add", "indices", "values", call["values"].numel())


def _places(call: Call) -> int:
    """Elements that an index names: its own extents, broadcast, times the axes that are not indexed.

    How many a mask names is in its data; all of it is counted.
    """
    x = call["self"]
    shape: list[int] = []
    kept = 1
    axis = 0
    for index in call["indices"]:
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
    for n in x.shape[axis:]:
        kept *= n
    for n in shape:
        kept *= n
    return kept


@on("scatter", "scatter_reduce")
def _scatter(call: Call) -> Translation:
    fn = _REDUCTIONS[call["reduce"]] if call.get("reduce") else "copy"
    return scatter(call, fn, "index", "src")


on("scatter_add")(lambda call: scatter(call, "add", "index", "src"))
on("index_add")(lambda call: scatter(call, "add", "index", "source"))
on("index_copy")(lambda call: scatter(call, "copy", "index", "source"))
on("index_reduce")(lambda call: scatter(call, _REDUCTIONS[call["reduce"]], "index", "source"))


@on("index_fill")
def _index_fill(call: Call) -> Translation:
    x, index = call["self"], call["index"]
    extent = x.shape[call["dim"]] if x.dim() else 1
    return scatter(call, "copy", "index", elements=x.numel() // max(extent, 1) * index.numel())


on("put")(lambda call: scatter(call, "add" if call["accumulate"] else "copy", "index", "source"))
on("masked_scatter")(lambda call: scatter(call, "copy", "mask", "source", call["mask"].numel()))


@on("gather_backward", "index_select_backward", "value_selecting_reduction_backward", "masked_select_backward")
def _gather_backward(call: Call) -> Translation:
    """The gradient is added to a new tensor at the places it was picked from."""
    return Translation("scatter", {"fn": "add", "elements": call["grad"].numel()})


@on("col2im", "unfold_backward")
def _overlapping(call: Call) -> Translation:
    """Windows are laid back into a new tensor and added where they overlap."""
    x = call.get("self", "grad_in")
    return Translation("scatter", {"fn": "add", "elements": x.numel()})


@on(*(f"{mode}_pad{axes}d_backward" for mode in ("reflection", "replication") for axes in (1, 2, 3)))
def _pad_backward(call: Call) -> Translation:
    """The gradient of the border is added to that of the elements it was copied from."""
    return Translation("scatter", {"fn": "add", "elements": call["grad_output"].numel()}, call.tensors("grad_output"))


# -- copies -----------------------------------------------------------------------------------------------------------


@on("copy", "_copy_from", "_copy_from_and_resize", "copy_sparse_to_sparse", "set_data")
def _copy(call: Call) -> Translation:
    """The destination is written, not read."""
    names = ("self",) if call.base.startswith("_copy_from") else ("src", "other", "new_data")
    return Translation("copy", {}, call.tensors(*names))


@on("cat", "concat", "concatenate")
def _cat(call: Call) -> Translation:
    """What does not lie alike is copied piece by piece."""
    tensors = call.tensors("tensors")
    return Translation("copy", {} if lie_alike(tensors) else {"strided": True}, tensors)


@on(
    "contiguous",
    "to",
    "type_as",
    "resolve_conj",
    "resolve_neg",
    "_autocast_to_reduced_precision",
    "_autocast_to_full_precision",
)
def _perhaps(call: Call) -> Translation:
    """Nothing happens if the result looks as the argument did."""
    x, y = next(iter(call.args.values())), call.outs[0]
    same = x.dtype == y.dtype and x.stride() == y.stride() and x.device == y.device
    return Translation("view" if same else "copy", {}, (x,))


@on("reshape", "reshape_as", "flatten", "ravel")
def _perhaps_seen(call: Call) -> Translation:
    """A view where the memory can be seen with the other shape."""
    x: Tensor = call["self"]
    return Translation("copy" if seen_as(x, call.outs[0].shape) is None else "view", {}, (x,))


# -- tensors filled with something ------------------------------------------------------------------------------------


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


def _fn(base: str) -> str:
    return _FUNCTIONS[max((start for start in _FUNCTIONS if base.startswith(start)), key=len)]


@on(
    *(
        f"_c10d_functional::{name}"
        for name in (
            "all_reduce", "all_reduce_coalesced", "all_gather_into_tensor", "all_gather_into_tensor_coalesced",
            "all_gather_into_tensor_out", "reduce_scatter_tensor", "reduce_scatter_tensor_coalesced",
            "reduce_scatter_tensor_out", "all_to_all_single", "broadcast", "isend", "irecv", "wait_tensor",
            "batch_p2p_ops",
        )
    ),
    *(
        f"_c10d_functional_autograd::{name}"
        for name in ("all_gather_into_tensor", "reduce_scatter_tensor", "all_to_all_single")
    ),
    *(
        f"c10d_functional::{name}"
        for name in (
            "all_reduce", "all_gather_into_tensor", "reduce_scatter_tensor", "all_to_all_single", "broadcast", "wait_tensor",
        )
    ),
    "_dtensor::shard_dim_alltoall",
)  # fmt: skip
def _functional(call: Call) -> Translation:
    size = call.get("group_size")
    return means("collective", fn=_fn(call.base), group=size if isinstance(size, int) else None)


@on(
    *(
        f"c10d::{name}"
        for name in (
            "_allgather_base", "_reduce_scatter_base", "allgather", "allgather_coalesced",
            "allgather_into_tensor_coalesced", "allreduce", "allreduce_coalesced", "alltoall", "alltoall_base",
            "barrier", "broadcast", "check_for_nan", "gather", "monitored_barrier", "recv", "recv_any_source", "reduce",
            "reduce_scatter", "reduce_scatter_tensor_coalesced", "scatter", "send",
        )
    ),
)  # fmt: skip
def _process_group(call: Call) -> Translation:
    """Outputs are handed in as the first argument, except where one tensor is both."""
    size = _group_size(call.args.get("process_group"))
    inputs = call.tensors("input_tensor", "input_tensors", "input_list", "inputs", "input")
    outputs = call.tensors("output_tensor", "output_tensors", "output_lists", "outputs", "output")
    both = call.tensors("tensors", "tensor")
    return means("collective", inputs or both, outputs or both, fn=_fn(call.base), group=size or None)


def _group_size(group: Any) -> int:
    """The number of ranks of a process group, which arrives as an opaque object."""
    size = getattr(group, "size", None)
    try:
        found = size() if callable(size) else 0
    except (RuntimeError, TypeError):
        return 0
    return found if isinstance(found, int) else 0
