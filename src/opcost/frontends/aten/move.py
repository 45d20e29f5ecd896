"""Data movement: lookups, gathers, scatters, copies, and tensors filled with a constant or a range."""

from __future__ import annotations

from opcost.core.graph import Attr
from opcost.frontends.aten.call import Call, Translation, on
from opcost.frontends.aten.strides import lie_alike, seen_as
from opcost.frontends.aten.tensor import Tensor, type_name

# -- lookups ----------------------------------------------------------------------------------------------------------

_BAG_MODES = ("sum", "mean", "max")


@on(
    "embedding_bag", "_embedding_bag", "_embedding_bag_forward_only",
    "quantized::embedding_bag_byte_rowwise_offsets", "quantized::embedding_bag_4bit_rowwise_offsets",
    "quantized::embedding_bag_2bit_rowwise_offsets",
)  # fmt: skip
def _embedding_bag(call: Call) -> Translation:
    attrs: dict[str, Attr] = {"reduce": _BAG_MODES[call["mode"]]}
    if call["per_sample_weights"] is not None:
        attrs["weighted"] = True
    return Translation("embedding", attrs)


@on("_embedding_bag_backward", "_embedding_bag_dense_backward", "_embedding_bag_sparse_backward")
def _embedding_bag_backward(call: Call) -> Translation:
    return _into_table(call, call["grad"].shape[-1])


@on("_embedding_bag_per_sample_weights_backward")
def _per_sample_weights_backward(call: Call) -> Translation:
    """For each index the product of its row with its bag's gradient, summed."""
    return Translation("elementwise", {"fn": "fma", "elements": call["indices"].numel() * call["weight"].shape[-1]})


def _into_table(call: Call, width: int) -> Translation:
    """Every looked-up element is added to its row of a new table."""
    elements = call["indices"].numel() * width
    return Translation("scatter", {"fn": "add", "elements": elements})


# -- scatters ---------------------------------------------------------------------------------------------------------

_REDUCTIONS = {
    "add": "add",
    "sum": "add",
    "multiply": "mul",
    "prod": "mul",
    "amax": "max",
    "amin": "min",
    "mean": "mean",
}


def scatter(call: Call, fn: str, indices: str, source: str = "", elements: int | None = None) -> Translation:
    """Elements put into the first argument; in place only these move."""
    attrs: dict[str, Attr] = {"fn": fn}
    if elements is not None:
        attrs["elements"] = elements
    if call.in_place:
        attrs["overwrites"] = True
    return Translation("scatter", attrs, call.tensors("self", indices, source))


@on("index_put", "_index_put_impl")
def _index_put(call: Call) -> Translation:
    """The values are broadcast to the places that the indices name."""
    return scatter(call, "add" if call["accumulate"] else "copy", "indices", "values", _places(call))


@on("_unsafe_masked_index_put_accumulate")
def _masked_index_put(call: Call) -> Translation:
    return scatter(call, "add", "indices", "values", call["values"].numel())


def _places(call: Call) -> int:
    """Elements that an index names: its own extents, broadcast, times the axes that are not indexed.

    How many a mask names stands in its data; all of it is counted.
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


@on("scatter_add")
def _scatter_add(call: Call) -> Translation:
    return scatter(call, "add", "index", "src")


@on("index_add")
def _index_add(call: Call) -> Translation:
    return scatter(call, "add", "index", "source")


@on("index_copy")
def _index_copy(call: Call) -> Translation:
    return scatter(call, "copy", "index", "source")


@on("index_reduce")
def _index_reduce(call: Call) -> Translation:
    return scatter(call, _REDUCTIONS[call["reduce"]], "index", "source")


@on("index_fill")
def _index_fill(call: Call) -> Translation:
    x, index = call["self"], call["index"]
    extent = x.shape[call["dim"]] if x.dim() else 1
    return scatter(call, "copy", "index", elements=x.numel() // max(extent, 1) * index.numel())


@on("put")
def _put(call: Call) -> Translation:
    return scatter(call, "add" if call["accumulate"] else "copy", "index", "source")


@on("masked_scatter")
def _masked_scatter(call: Call) -> Translation:
    return scatter(call, "copy", "mask", "source", call["mask"].numel())


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
