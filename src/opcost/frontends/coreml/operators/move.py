"""Elements in other shapes, orders and places; with what is known of their content, because shapes are computed this way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from opcost.core.graph import NO_ATTRS
from opcost.core.shapes import (
    Dims,
    Extent,
    Mismatch,
    Shape,
    Unknown,
    axes_of,
    axis_of,
    broadcast,
    divided,
    flattened,
    inserted,
    known,
    padded,
    reshaped,
    squeezed,
    stack,
    tiled,
    times,
)
from opcost.frontends.coreml.table import arg, args, handles, integer, integers, need, numbers
from opcost.frontends.nodes import meanings
from opcost.frontends.nodes.call import Call, Meaning, Out, fitting
from opcost.frontends.nodes.meanings import Cut, copied, created, viewed


@handles("identity", "read_state")
def _identity(call: Call) -> Meaning:
    x = arg(call, "x") or need(call, "input")
    return viewed(x, x.shape)


@handles("coreml_update_state", "write_state")
def _update_state(call: Call) -> Meaning:
    value = need(call, "value")
    return Meaning("copy", NO_ATTRS, [Out(value.shape, value.dtype)] * len(call.node.outputs), [value])


@handles("reshape")
def _reshape(call: Call) -> Meaning:
    x = need(call, "x")
    target: list[Extent] = [None if n is None else int(n) for n in numbers(call, "shape") or ()]
    return viewed(x, reshaped(x.dims, target, zero_copies=True))


@handles("reshape_like")
def _reshape_like(call: Call) -> Meaning:
    return viewed(need(call, "x"), None)


@handles("flatten2d")
def _flatten(call: Call) -> Meaning:
    x = need(call, "x")
    return viewed(x, flattened(x.dims, integer(call, "axis", 1)))


@handles("expand_dims", "squeeze")
def _axes(call: Call) -> Meaning:
    x, axes = need(call, "x"), integers(call, "axes")
    if call.node.op == "squeeze":
        if not axes and None in x.dims:
            raise Unknown
        return viewed(x, squeezed(x.dims, axes or [at for at, n in enumerate(x.dims) if n == 1]))
    shape = x.dims
    rank = len(x.dims) + len(axes or ())
    for axis in sorted(axis_of(at, rank) for at in axes or ()):
        shape = inserted(shape, axis)
    return viewed(x, shape)


@handles("transpose")
def _transpose(call: Call) -> Meaning:
    x = need(call, "x")
    return meanings.turned(x, axes_of(integers(call, "perm"), len(x.dims)))


@handles("concat")
def _concat(call: Call) -> Meaning:
    return meanings.joined(args(call, "values"), integer(call, "axis"))


@handles("stack")
def _stack(call: Call) -> Meaning:
    values = args(call, "values")
    shape = stack([made.dims for made in values], integer(call, "axis"))
    items = [made.content.items[0] if made.content and not made.dims else None for made in values]
    found = fitting(shape, items if not values[0].dims else None)
    return Meaning("copy", NO_ATTRS, [Out(shape, values[0].dtype, found)], values)


@handles("split")
def _split(call: Call) -> Meaning:
    x = need(call, "x")
    axis = axis_of(integer(call, "axis"), len(x.dims))
    lengths: Sequence[Extent] | None = integers(call, "split_sizes")
    if lengths is None:
        count = integer(call, "num_splits", len(call.node.outputs))
        if not 0 < count <= len(call.node.outputs):
            raise Mismatch(f"it is split into {count}, and has {len(call.node.outputs)} results")
        lengths = [divided(x.dims[axis], count)] * count
    return meanings.divided(x, axis, lengths)


@handles("slice_by_index")
def _slice(call: Call) -> Meaning:
    x = need(call, "x")
    rank = len(x.dims)
    begins, ends = (_known_or_open(call, name, rank) for name in ("begin", "end"))
    steps = integers(call, "stride") or (1,) * rank
    masks = [numbers(call, f"{name}_mask") or (False,) * rank for name in ("begin", "end", "squeeze")]
    cuts = []
    for begin, end, step, whole, over, gone in zip(begins, ends, steps, *masks, strict=True):
        sure = (begin is not None or bool(whole)) and (end is not None or bool(over))
        first, last = None if whole and not gone else begin, None if over else end
        cuts.append(Cut(first, last, step, sure=begin is not None if gone else sure, gone=bool(gone)))
    out = meanings.cut(x, cuts)
    return copied(x, out.shape, out.content)


def _known_or_open(call: Call, name: str, rank: int) -> list[int | None]:
    try:
        found = numbers(call, name)
    except Unknown:
        return [None] * rank
    return [None if n is None else int(n) for n in found or (0,) * rank]


@handles("slice_by_size")
def _slice_by_size(call: Call) -> Meaning:
    x = need(call, "x")
    begins = _known_or_open(call, "begin", len(x.dims))
    shape: list[Extent] = []
    for n, size, begin in zip(x.dims, numbers(call, "size") or (), begins, strict=True):
        rest = None if n is None or begin is None else n - begin
        shape.append(rest if size == -1 else None if size is None else int(size))
    return copied(x, tuple(shape))


@handles("slice_update")
def _slice_update(call: Call) -> Meaning:
    x, update = need(call, "x"), need(call, "update")
    return Meaning("scatter", NO_ATTRS, [Out(x.shape, x.dtype)], [x, need(call, "begin"), update])


@handles("pad")
def _pad(call: Call) -> Meaning:
    x, pads = need(call, "x"), integers(call, "pad") or ()
    pairs = list(zip(pads[::2], pads[1::2], strict=True))
    return copied(x, padded(x.dims, [(0, 0)] * (len(x.dims) - len(pairs)) + pairs))


@handles("tile")
def _tile(call: Call) -> Meaning:
    x = need(call, "x")
    return copied(x, tiled(x.dims, integers(call, "reps") or ()))


@handles("depth_to_space", "pixel_shuffle", "space_to_depth", "pixel_unshuffle")
def _blocks(call: Call) -> Meaning:
    x = need(call, "x")
    *front, channels, height, width = x.dims
    size = integer(call, "block_size") or integer(call, "upscale_factor") or integer(call, "downscale_factor")
    if call.node.op in ("depth_to_space", "pixel_shuffle"):
        return copied(x, (*front, divided(channels, size * size), times(height, size), times(width, size)))
    return copied(x, (*front, times(channels, size * size), divided(height, size), divided(width, size)))


@handles("space_to_batch", "batch_to_space", "sliding_windows")
def _declared(call: Call) -> Meaning:
    return copied(need(call, "x"), None)


@handles("reverse", "reverse_sequence", "band_part")
def _same(call: Call) -> Meaning:
    x = need(call, "x")
    return copied(x, x.shape)


@handles("crop")
def _crop(call: Call) -> Meaning:
    x = need(call, "x")
    edges = [integers(call, f"crop_{side}") or (0, 0) for side in ("height", "width")]
    space = [None if n is None else n - sum(edge) for n, edge in zip(x.dims[-2:], edges, strict=True)]
    return copied(x, (*x.dims[:-2], *space))


@handles("gather")
def _gather(call: Call) -> Meaning:
    x, indices = need(call, "x"), need(call, "indices")
    axis, batch = axis_of(integer(call, "axis"), len(x.dims)), integer(call, "batch_dims")
    if batch:
        shape = (*x.dims[:axis], *indices.dims[batch:], *x.dims[axis + 1 :])
        return Meaning("gather", NO_ATTRS, [Out(shape, x.dtype)], [x, indices])
    return meanings.picked(x, indices, axis)


@handles("gather_along_axis")
def _gather_along(call: Call) -> Meaning:
    x, indices = need(call, "x"), need(call, "indices")
    return Meaning("gather", NO_ATTRS, [Out(indices.shape, x.dtype)], [x, indices])


@handles("gather_nd")
def _gather_nd(call: Call) -> Meaning:
    x, indices = need(call, "x"), need(call, "indices")
    depth = known(indices.dims[-1:])[0] + integer(call, "batch_dims")
    return Meaning("gather", NO_ATTRS, [Out((*indices.dims[:-1], *x.dims[depth:]), x.dtype)], [x, indices])


@handles("scatter", "scatter_along_axis", "scatter_nd")
def _scatter(call: Call) -> Meaning:
    x = need(call, "data")
    fn = {"add": "add", "sub": "add", "mul": "mul", "div": "mul", "max": "max", "min": "min"}.get(
        str(call.attrs.get("mode", "add"))
    )
    reads = [x, need(call, "indices"), need(call, "updates")]
    return Meaning("scatter", {"fn": fn} if fn else NO_ATTRS, [Out(x.shape, x.dtype)], reads)


@handles("non_zero")
def _non_zero(call: Call) -> Meaning:
    x = need(call, "x")
    return Meaning("gather", NO_ATTRS, [Out((None, len(x.dims)), "int32")], [x])


@handles("one_hot")
def _one_hot(call: Call) -> Meaning:
    indices, size = need(call, "indices"), numbers(call, "one_hot_vector_size")
    depth = None if not size or size[0] is None else int(size[0])
    axis = axis_of(integer(call, "axis", -1), len(indices.dims) + 1)
    return created(inserted(indices.dims, axis, depth), call.out_dtype)


@handles("shape")
def _shape(call: Call) -> Meaning:
    return meanings.shape_of(need(call, "x").dims, "int32")


@handles("fill", "fill_like")
def _fill(call: Call) -> Meaning:
    number: Any = (numbers(call, "value") or (0,))[0]
    if call.node.op == "fill_like":
        return created(need(call, "ref_tensor").shape, call.out_dtype)
    return meanings.filled_with(number, numbers(call, "shape") or (), call.out_dtype)


@handles("range_1d")
def _range(call: Call) -> Meaning:
    return meanings.counted([need(call, name) for name in ("start", "end", "step")], call.out_dtype)


@handles("broadcast_to")
def _broadcast(call: Call) -> Meaning:
    x = need(call, "x")
    wanted: Dims = tuple(None if n is None else int(n) for n in numbers(call, "shape") or ())
    return meanings.stretched(x, broadcast([x.dims, wanted]))


@handles("make_list", "list_read", "list_write", "list_gather", "list_scatter", "list_length")
def _list(call: Call) -> Meaning:
    """A list of tensors of one shape: what is read or written is moved; shapes are those that the file declares."""
    shape: Shape = None
    return Meaning("copy", NO_ATTRS, [Out(shape, call.out_dtype)] * len(call.node.outputs))


# -- layers of neural networks, whose tensors end in channels, height and width ----------------------------------------


@handles("reshape_image")
def _reshape_image(call: Call) -> Meaning:
    x, wanted = need(call, "x"), integers(call, "shape") or ()
    front = x.dims[: max(len(x.dims) - 3, 0)]
    if len(wanted) > 3:  # the axis of sequences, too
        return viewed(x, reshaped(x.dims, wanted))
    return viewed(x, (*front, *reshaped(x.dims[len(front) :], wanted)))


@handles("transpose_image")
def _transpose_image(call: Call) -> Meaning:
    x, order = need(call, "x"), integers(call, "perm") or ()
    front = len(x.dims) - 3
    if front < 0:
        raise Unknown
    return meanings.turned(x, (*range(front), *[front + axis for axis in order]))


@handles("permute_sequences")
def _permute_sequences(call: Call) -> Meaning:
    return copied(need(call, "x"), None)


@handles("concat_image")
def _concat_image(call: Call) -> Meaning:
    values = args(call, "values")
    return meanings.joined(values, max(integer(call, "axis"), -len(values[0].dims)))


@handles("slice_image")
def _slice_image(call: Call) -> Meaning:
    x = need(call, "x")
    axis = axis_of(max(integer(call, "axis"), -len(x.dims)), len(x.dims))
    end = integer(call, "end")
    return meanings.sliced(
        x, [axis], [integer(call, "begin")], [None if end == -1 else end], [integer(call, "stride", 1)]
    )


@handles("embed")
def _embed(call: Call) -> Meaning:
    """Rows of a table; an axis of extent 1 behind the indices is where the row goes."""
    table, indices = need(call, "x"), need(call, "indices")
    shape = indices.dims
    if shape[-1:] == (None,):  # it may be 1
        raise Unknown
    if shape[-3:] == (1, 1, 1):
        shape = (*shape[:-3], table.dims[1], 1, 1)
    else:
        shape = (*(shape[:-1] if shape[-1:] == (1,) else shape), table.dims[1])
    return Meaning("embedding", NO_ATTRS, [Out(shape, "float32")], [table, indices])
