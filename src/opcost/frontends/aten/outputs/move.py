"""Results of lookups, gathers, scatters and copies, and of what fills new tensors."""

from __future__ import annotations

from math import ceil

from opcost.core.shapes import broadcast
from opcost.frontends.aten.call import Call, per_axis
from opcost.frontends.aten.outputs.table import axis_of, default_type, like, made, on, on_each, replaced
from opcost.frontends.aten.promotion import promoted
from opcost.frontends.aten.tensor import Described, Tensor, type_name
from opcost.frontends.aten.told import NotTold


@on("embedding")
def _embedding(call: Call) -> tuple[Described, ...]:
    table, indices = call["weight"], call["indices"]
    return (made((*indices.shape, *table.shape[1:]), type_name(table)),)


@on("embedding_bag")
def _embedding_bag(call: Call) -> tuple[Described, ...]:
    """The bags, to which bag each index belongs, how many there are in each, and where the largest elements were."""
    weight, bags = call["weight"], call["offsets"].shape[0] - bool(call["include_last_offset"])
    kept = 0 if call["mode"] == 0 else call["indices"].numel()
    y = made((bags, weight.shape[1]), type_name(weight))
    largest = made(y.shape if call["mode"] == 2 else (bags,), "int64")
    return (y, made((kept,), "int64"), made((bags,), "int64"), largest)


@on("embedding_dense_backward")
def _embedding_backward(call: Call) -> tuple[Described, ...]:
    grad = call["grad_output"]
    return (made((call["num_weights"], grad.shape[-1]), type_name(grad)),)


@on("index_select")
def _index_select(call: Call) -> tuple[Described, ...]:
    x, index = call["self"], call["index"]
    return (made(replaced(x, call["dim"], index.numel()), type_name(x)),)


@on("cat")
def _cat(call: Call) -> tuple[Described, ...]:
    """A tensor of one axis without elements may stand beside any other, and adds nothing."""
    joined = [x for x in call["tensors"] if tuple(x.shape) != (0,)] or call["tensors"]
    types = {type_name(x) for x in call["tensors"]}
    if len(types) != 1 or "" in types:
        raise NotTold("the element types in a list")
    axis = axis_of(joined[0], call["dim"])
    return (made(replaced(joined[0], axis, sum(x.shape[axis] for x in joined)), types.pop()),)


# -- put into a tensor, or beside it: as large as that ----------------------------------------------------------------


@on("select_backward", "slice_backward", "diagonal_backward")
def _backward(call: Call) -> tuple[Described, ...]:
    return (made(call["input_sizes"], type_name(call["grad_output"])),)


# -- copies -----------------------------------------------------------------------------------------------------------


@on("_to_copy", "zeros_like", "ones_like", "full_like", "rand_like", "randn_like", "randint_like", "empty_like")
def _like(call: Call) -> tuple[Described, ...]:
    return (like(call["self"], default_type(call, type_name(call["self"]))),)


@on("contiguous", "resolve_conj", "resolve_neg")
def _perhaps(call: Call) -> tuple[Described, ...]:
    """Row by row, which is a copy only of what lies otherwise."""
    return (like(call["self"]),)


@on("repeat", "tile")
def _repeat(call: Call) -> tuple[Described, ...]:
    x, repeats = call["self"], call.get("repeats", "dims")
    rank = max(x.dim(), len(repeats))
    times = (*(1,) * (rank - len(repeats)), *repeats)
    extents = (*(1,) * (rank - x.dim()), *x.shape)
    return (made((n * k for n, k in zip(extents, times, strict=True)), type_name(x)),)


@on("constant_pad_nd", "reflection_pad1d", "reflection_pad2d", "reflection_pad3d", "replication_pad1d",
    "replication_pad2d", "replication_pad3d")  # fmt: skip
def _pad(call: Call) -> tuple[Described, ...]:
    """Pairs of what is added before and behind, from the last axis on."""
    x, added = call["self"], call.get("pad", "padding") or ()
    shape = list(x.shape)
    for place in range(len(added) // 2):
        shape[-1 - place] += added[2 * place] + added[2 * place + 1]
    return (made(shape, type_name(x)),)


@on(*(f"{mode}_pad{axes}d_backward" for mode in ("reflection", "replication") for axes in (1, 2, 3)))
def _pad_backward(call: Call) -> tuple[Described, ...]:
    return (like(call["self"]),)


@on("rot90")
def _rot90(call: Call) -> tuple[Described, ...]:
    x = call["self"]
    shape = list(x.shape)
    if call["k"] % 2:
        a, b = call["dims"]
        shape[a], shape[b] = shape[b], shape[a]
    return (made(shape, type_name(x)),)


@on("im2col")
def _im2col(call: Call) -> tuple[Described, ...]:
    """A column for every place of the window, with all that lies under it."""
    x = call["self"]
    *batch, channels, height, width = x.shape
    settings = (per_axis(call[name], 2) for name in ("kernel_size", "dilation", "padding", "stride"))
    columns, under = 1, channels
    for n, k, d, p, s in zip((height, width), *settings, strict=True):
        columns *= (n + 2 * p - d * (k - 1) - 1) // s + 1
        under *= k
    return (made((*batch, under, columns), type_name(x)),)


@on("col2im")
def _col2im(call: Call) -> tuple[Described, ...]:
    x = call["self"]
    *batch, under, _ = x.shape
    down, across = per_axis(call["kernel_size"], 2)
    return (made((*batch, under // (down * across), *call["output_size"]), type_name(x)),)


@on("pixel_shuffle")
def _pixel_shuffle(call: Call) -> tuple[Described, ...]:
    (*batch, channels, height, width), factor = call["self"].shape, call["upscale_factor"]
    return (made((*batch, channels // factor**2, height * factor, width * factor), type_name(call["self"])),)


@on("pixel_unshuffle")
def _pixel_unshuffle(call: Call) -> tuple[Described, ...]:
    (*batch, channels, height, width), factor = call["self"].shape, call["downscale_factor"]
    return (made((*batch, channels * factor**2, height // factor, width // factor), type_name(call["self"])),)


@on("diag_embed")
def _diag_embed(call: Call) -> tuple[Described, ...]:
    """The last axis becomes the diagonal of two, put where they are asked for."""
    x = call["self"]
    side = x.shape[-1] + abs(call["offset"])
    rank = x.dim() + 1
    shape = list(x.shape[:-1])
    for axis in sorted(axis % rank for axis in (call["dim1"], call["dim2"])):
        shape.insert(axis, side)
    return (made(shape, type_name(x)),)


@on("expand_copy")
def _expand_copy(call: Call) -> tuple[Described, ...]:
    x, wanted = call["self"], call["size"]
    own = (*(1,) * (len(wanted) - x.dim()), *x.shape)
    return (made((n if m == -1 else m for n, m in zip(own, wanted, strict=True)), type_name(x)),)


@on("permute_copy")
def _permute_copy(call: Call) -> tuple[Described, ...]:
    x = call["self"]
    return (made((x.shape[axis] for axis in call["dims"]), type_name(x)),)


@on("transpose_copy", "t_copy")
def _transpose_copy(call: Call) -> tuple[Described, ...]:
    x = call["self"]
    shape = list(x.shape)
    if "dim0" in call.args:
        a, b = (axis_of(x, call[name]) for name in ("dim0", "dim1"))
        if x.dim():
            shape[a], shape[b] = shape[b], shape[a]
    else:
        shape.reverse()
    return (made(shape, type_name(x)),)


# -- tensors filled with something ------------------------------------------------------------------------------------


@on("eye")
def _eye(call: Call) -> tuple[Described, ...]:
    rows = call["n"]
    return (made((rows, call["m"] if "m" in call.args else rows), default_type(call)),)


@on("arange")
def _arange(call: Call) -> tuple[Described, ...]:
    bounds = [call[name] for name in ("start", "end", "step") if name in call.args]
    start, step = (bounds[0] if "start" in call.args else 0), (bounds[-1] if "step" in call.args else 1)
    whole = all(isinstance(bound, int) for bound in bounds)
    return (made((max(0, ceil((call["end"] - start) / step)),), default_type(call, "int64" if whole else "float32")),)


@on("normal")
def _normal(call: Call) -> tuple[Described, ...]:
    """Drawn for each mean and deviation, or as many as asked for."""
    if "size" in call.args:
        return (made(call["size"], default_type(call)),)
    parameters = [value for value in call.args.values() if isinstance(value, Tensor)]
    return (made(broadcast([x.shape for x in parameters]), type_name(parameters[0])),)


@on("native_dropout", "_fused_dropout")
def _dropout(call: Call) -> tuple[Described, ...]:
    """What is left, and which elements those are; without training nothing is drawn."""
    x = call.get("input", "self")
    if "train" in call.args and call["train"] is False:
        raise NotTold("what a dropout that does nothing hands out")
    return like(x), like(x, "bool" if call.base == "native_dropout" else "uint8")


on_each(
    {
        "gather take": lambda call: (like(call["index"], type_name(call["self"])),),
        "nonzero_static": lambda call: (made((call["size"], call["self"].dim()), "int64"),),
        "unfold_backward": lambda call: (made(call["input_sizes"], type_name(call["grad_in"])),),
        "trace_backward": lambda call: (made(call["sizes"], type_name(call["grad"])),),
        "zeros ones rand randn _efficientzerotensor": lambda call: (made(call["size"], default_type(call)),),
        "full": lambda call: (made(call["size"], default_type(call, promoted(call["fill_value"]))),),
        "randint": lambda call: (made(call["size"], default_type(call, "int64")),),
        "randperm": lambda call: (made((call["n"],), default_type(call, "int64")),),
        "new_zeros new_ones new_full": lambda call: (made(call["size"], default_type(call, type_name(call["self"]))),),
        "scalar_tensor": lambda call: (made((), default_type(call)),),
        "linspace logspace": lambda call: (made((call["steps"],), default_type(call)),),
        "multinomial": lambda call: (made((*call["self"].shape[:-1], call["num_samples"]), "int64"),),
    }
)
