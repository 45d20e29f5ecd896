"""Data movement: lookups, gathers, scatters, copies, filled tensors, and communication between ranks."""

from collections.abc import Sequence
from math import ceil, prod
from typing import Any

from opcost.core import shapes
from opcost.frontends.aten.call import AtenCall, Translation, means, per_axis, rows
from opcost.frontends.aten.results import OUTPUTS, WHOLE_OUTPUTS, Results, axis_of, like, made, replaced
from opcost.frontends.aten.tensor import AtenTensor, Described, NotKnown, lie_alike, promoted, seen_as, type_name

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
    "all_reduce": "all_reduce", "allreduce": "all_reduce", "reduce": "reduce", "all_gather": "all_gather",
    "allgather": "all_gather", "_allgather": "all_gather", "gather": "gather", "reduce_scatter": "reduce_scatter",
    "_reduce_scatter": "reduce_scatter", "all_to_all": "all_to_all", "alltoall": "all_to_all",
    "shard_dim_alltoall": "all_to_all", "scatter": "scatter", "broadcast": "broadcast", "send": "send",
    "isend": "send", "batch_p2p": "send", "recv": "recv", "irecv": "recv", "wait": "wait", "barrier": "wait",
    "monitored_barrier": "wait", "check_for_nan": "wait",
}  # fmt: skip
"""Our word for the longest of these that an operator's name begins with."""


def _collective(call: AtenCall, ins: Any, outs: Any, group: int | None) -> Translation:
    fn = _FUNCTIONS[max((start for start in _FUNCTIONS if call.base.startswith(start)), key=len)]
    return means("collective", ins, outs, fn=fn, group=group, peer=call.get("dst", "src"))


def _process_group(call: AtenCall) -> Translation:
    """Outputs are handed in as the first argument, except where one tensor is both; the group is an opaque object."""
    inputs = call.tensors("input_tensor", "input_tensors", "input_list", "inputs", "input")
    outputs = call.tensors("output_tensor", "output_tensors", "output_lists", "outputs", "output")
    both = call.tensors("tensors", "tensor")
    return _collective(call, inputs or both, outputs or both, None)


_FUNCTIONAL = {
    "_c10d_functional":
        "all_reduce all_reduce_coalesced all_gather_into_tensor all_gather_into_tensor_coalesced "
        "all_gather_into_tensor_out reduce_scatter_tensor reduce_scatter_tensor_coalesced reduce_scatter_tensor_out "
        "all_to_all_single broadcast isend irecv wait_tensor batch_p2p_ops",
    "_c10d_functional_autograd": "all_gather_into_tensor reduce_scatter_tensor all_to_all_single",
    "c10d_functional": "all_reduce all_gather_into_tensor reduce_scatter_tensor all_to_all_single broadcast wait_tensor",
    "_dtensor": "shard_dim_alltoall",
}  # fmt: skip
_OF_GROUPS = (
    "_allgather_base _reduce_scatter_base allgather allgather_coalesced allgather_into_tensor_coalesced allreduce "
    "allreduce_coalesced alltoall alltoall_base barrier broadcast check_for_nan gather monitored_barrier recv "
    "recv_any_source reduce reduce_scatter reduce_scatter_tensor_coalesced scatter send"
)

rows(
    {
        " ".join(f"{library}::{name}" for library, names in _FUNCTIONAL.items() for name in names.split()):
            lambda call, group_size=None: _collective(
                call, None, None, group_size if isinstance(group_size, int) else None,
            ),
        " ".join(f"c10d::{name}" for name in _OF_GROUPS.split()): _process_group,
    }
)  # fmt: skip


# -- results of lookups, gathers, scatters and copies, and of what fills new tensors


def _embedding_bag(
    weight: AtenTensor, indices: AtenTensor, offsets: AtenTensor, include_last_offset: Any, mode: int
) -> Results:
    """The bags, to which bag each index belongs, how many there are in each, and where the largest elements were."""
    bags = offsets.shape[0] - bool(include_last_offset)
    y = made((bags, weight.shape[1]), weight)
    kept = 0 if mode == 0 else indices.numel()
    return y, made((kept,), "int64"), made((bags,), "int64"), made(y.shape if mode == 2 else (bags,), "int64")


def _cat(tensors: Sequence[AtenTensor], dim: int) -> Described:
    """A tensor of one axis without elements may be beside any other, and adds nothing."""
    joined = [x for x in tensors if tuple(x.shape) != (0,)] or tensors
    if not all(type_name(x) for x in tensors):
        raise NotKnown("the element types in a list")
    return made(shapes.concat([x.shape for x in joined], dim), promoted(*tensors))


def _pad(call: AtenCall, self: AtenTensor) -> Described:
    """Pairs of what is added before and behind, from the last axis on."""
    added = call.get("pad", "padding") or ()
    pairs = [added[at : at + 2] for at in range(0, len(added) - 1, 2)][::-1]
    return made(shapes.padded(self.shape, [(0, 0)] * (self.dim() - len(pairs)) + pairs), self)


def _im2col(self: AtenTensor, kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> Described:
    """A column for every position of the window, with all elements under it."""
    *batch, channels, height, width = self.shape
    settings = (per_axis(each, 2) for each in (kernel_size, dilation, padding, stride))
    columns: Any = 1
    for n, k, d, p, s in zip((height, width), *settings, strict=True):
        columns *= shapes.windows(n, k, stride=s, padding=(p, p), dilation=d)
    return made((*batch, channels * prod(per_axis(kernel_size, 2)), columns), self)


def _col2im(self: AtenTensor, kernel_size: Any, output_size: Sequence[int]) -> Described:
    down, across = per_axis(kernel_size, 2)
    return made((*self.shape[:-2], self.shape[-2] // (down * across), *output_size), self)


def _shuffled(x: AtenTensor, channels: int, height: int, width: int) -> Described:
    return made((*x.shape[:-3], channels, height, width), x)


def _diag_embed(self: AtenTensor, offset: int, dim1: int, dim2: int) -> Described:
    """The last axis becomes the diagonal of two, at the requested axes."""
    side, rank = self.shape[-1] + abs(offset), self.dim() + 1
    shape: Any = self.shape[:-1]
    for axis in sorted(axis % rank for axis in (dim1, dim2)):
        shape = shapes.inserted(shape, axis, side)
    return made(shape, self)


def _expand_copy(self: AtenTensor, size: Sequence[int]) -> Described:
    own = (*(1,) * (len(size) - self.dim()), *self.shape)
    return made((n if m == -1 else m for n, m in zip(own, size, strict=True)), self)


def _arange(end: Any, start: Any = 0, step: Any = 1, dtype: str | None = None) -> Described:
    whole = all(isinstance(bound, int) for bound in (start, end, step))
    return made((max(0, ceil((end - start) / step)),), dtype or ("int64" if whole else "float32"))


def _normal(call: AtenCall, dtype: str | None = None) -> Described:
    """Drawn for each mean and deviation, or as many as requested."""
    if "size" in call.args:
        return made(call["size"], dtype or "float32")
    parameters = [value for value in call.args.values() if isinstance(value, AtenTensor)]
    return made(shapes.broadcast([x.shape for x in parameters]), parameters[0])


def _dropout(call: AtenCall, train: Any = True) -> Results:  # noqa: FBT002
    """What is left, and which elements those are; without training nothing is drawn."""
    if train is False:
        raise NotKnown("what a dropout that does nothing hands out")
    x = call.get("input", "self")
    return like(x), like(x, "bool" if call.base == "native_dropout" else "uint8")


OUTPUTS.rows(
    {
        "embedding": lambda weight, indices: made((*indices.shape, *weight.shape[1:]), weight),
        "embedding_dense_backward":
            lambda grad_output, num_weights: made((num_weights, grad_output.shape[-1]), grad_output),
        "embedding_bag": _embedding_bag,
        "cat": _cat,
        "index_select": lambda self, dim, index: made(replaced(self, dim, index.numel()), self),
        "gather take": lambda self, index: like(index, type_name(self)),
        "nonzero_static": lambda self, size: made((size, self.dim()), "int64"),
        # copies
        "repeat": lambda self, repeats: made(shapes.tiled(self.shape, repeats), self),
        "tile": lambda self, dims: made(shapes.tiled(self.shape, dims), self),
        "constant_pad_nd reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d "
        "replication_pad3d": _pad,
        "rot90": lambda self, k, dims: made(shapes.swapped(self.shape, *dims) if k % 2 else self.shape, self),
        "im2col": _im2col,
        "col2im": _col2im,
        "pixel_shuffle": lambda self, upscale_factor: _shuffled(
            self, self.shape[-3] // upscale_factor**2, self.shape[-2] * upscale_factor, self.shape[-1] * upscale_factor,
        ),
        "pixel_unshuffle": lambda self, downscale_factor: _shuffled(
            self, self.shape[-3] * downscale_factor**2, self.shape[-2] // downscale_factor,
            self.shape[-1] // downscale_factor,
        ),
        "diag_embed": _diag_embed,
        "expand_copy": _expand_copy,
        "permute_copy": lambda self, dims: made((self.shape[axis] for axis in dims), self),
        "transpose_copy":
            lambda self, dim0, dim1: made(shapes.swapped(self.shape, dim0, dim1) if self.dim() else (), self),
        "t_copy": lambda self: made(self.shape[::-1], self),
        # tensors filled with something
        "zeros ones rand randn _efficientzerotensor": lambda size, dtype: made(size, dtype or "float32"),
        "full": lambda size, fill_value, dtype: made(size, dtype or promoted(fill_value)),
        "randint": lambda size, dtype: made(size, dtype or "int64"),
        "randperm": lambda n, dtype: made((n,), dtype or "int64"),
        "eye": lambda n, dtype, m=None: made((n, n if m is None else m), dtype or "float32"),
        "scalar_tensor": lambda dtype: made((), dtype or "float32"),
        "linspace logspace": lambda steps, dtype: made((steps,), dtype or "float32"),
        "arange": _arange,
        "normal": _normal,
        "multinomial": lambda self, num_samples: made((*self.shape[:-1], num_samples), "int64"),
        "native_dropout _fused_dropout": _dropout,
    }
)  # fmt: skip


# -- results of operators that only programs name whole: a profiler shows what they consist of


def _index(self: AtenTensor, indices: Sequence[AtenTensor | None]) -> Described:
    """Indices broadcast; they are where the first of them was, or in front where others are between."""
    given = {at: index for at, index in enumerate(indices) if index is not None}
    if any(type_name(index) in ("bool", "uint8") for index in given.values()):
        raise NotKnown("how much a mask picks")
    rest = [n for at, n in enumerate(self.shape) if at not in given]
    first = min(given) if max(given) - min(given) < len(given) else 0
    return made((*rest[:first], *shapes.broadcast([index.shape for index in given.values()]), *rest[first:]), self)


def _meshgrid(tensors: Sequence[AtenTensor], indexing: str = "ij") -> Results:
    shape = [max(x.numel(), 1) for x in tensors]
    if indexing == "xy":
        shape[:2] = shape[:2][::-1]
    return [made(shape, x) for x in tensors]


def _repeat_interleave(self: AtenTensor, repeats: Any, dim: int | None) -> Described:
    if isinstance(repeats, AtenTensor):
        raise NotKnown("how often elements are repeated")
    return made(shapes.repeated(self.shape, repeats, dim), self)


def _diff(self: AtenTensor, n: int, dim: int, prepend: AtenTensor | None, append: AtenTensor | None) -> Described:
    axis = axis_of(self, dim)
    extent = sum(each.shape[axis] for each in (self, prepend, append) if each is not None)
    return made(replaced(self, axis, max(extent - n, 0)), self)


def _einsum(equation: str, tensors: Sequence[AtenTensor]) -> Described:
    written = shapes.explicit(equation, [x.dim() for x in tensors])
    return made(shapes.einsum(written, [tuple(x.shape) for x in tensors]), promoted(*tensors))


WHOLE_OUTPUTS.rows(
    {
        "concat": _cat,
        "stack": lambda tensors, dim: made(shapes.stack([x.shape for x in tensors], dim), promoted(*tensors)),
        "index": _index,
        "meshgrid": _meshgrid,
        "einsum": _einsum,
        "diff": _diff,
        "repeat_interleave": _repeat_interleave,
        "pad": _pad,
        "one_hot": lambda self, num_classes: made((*self.shape, num_classes), "int64"),
        "triu tril": lambda self: like(self),
    }
)
