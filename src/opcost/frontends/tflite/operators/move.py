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
    inserted,
    known,
    padded,
    replaced,
    reshaped,
    squeezed,
    stack,
    tiled,
    times,
)
from opcost.frontends.nodes import meanings
from opcost.frontends.nodes.call import Call, Made, Meaning, Out, fitting
from opcost.frontends.nodes.meanings import Cut, copied, created, viewed
from opcost.frontends.nodes.model import MOST_AXES
from opcost.frontends.tflite.table import activated, handles

# -- the same memory ---------------------------------------------------------------------------------------------------


@handles("RESHAPE", "STABLEHLO_RESHAPE")
def _reshape(call: Call) -> Meaning:
    x, told = call[0], call.at(1)
    if told is not None and told.content is not None:
        target: list[Extent] = [None if n is None else int(n) for n in told.numbers]
    elif call.attrs.get("new_shape") and told is None:
        target = list(call.attrs["new_shape"])
    else:
        raise Unknown
    return viewed(x, reshaped(x.dims, target))


@handles("SQUEEZE", "EXPAND_DIMS")
def _axes(call: Call) -> Meaning:
    x = call[0]
    if call.node.op == "EXPAND_DIMS":
        return viewed(x, inserted(x.dims, call[1].integers[0]))
    axes = call.attrs.get("squeeze_dims")
    if not axes and None in x.dims:
        raise Unknown
    return viewed(x, squeezed(x.dims, axes or [axis for axis, n in enumerate(x.dims) if n == 1]))


# -- copies ------------------------------------------------------------------------------------------------------------


@handles("TRANSPOSE", "STABLEHLO_TRANSPOSE")
def _transpose(call: Call) -> Meaning:
    order = call.attrs["permutation"] if call.node.op.startswith("S") else call[1].integers
    return meanings.turned(call[0], axes_of(order, len(call[0].dims)))


@handles("CONCATENATION", "STABLEHLO_CONCATENATE")
def _concat(call: Call) -> Meaning:
    return activated(call, meanings.joined(call.given, call.whole("axis")))


@handles("PACK")
def _pack(call: Call) -> Meaning:
    parts, axis = call.given, call.whole("axis")
    shape = stack([made.dims for made in parts], axis)
    numbers = [made.content.items[0] if made.content and not made.dims else None for made in parts]
    return Meaning(
        "copy", NO_ATTRS, [Out(shape, parts[0].dtype, fitting(shape, numbers if not parts[0].dims else None))]
    )


@handles("UNPACK")
def _unpack(call: Call) -> Meaning:
    x = call[0]
    axis = axis_of(call.whole("axis"), len(x.dims))
    pieces = meanings.divided(x, axis, [1] * len(call.node.outputs)).outs
    shape = replaced(x.dims, axis)
    outs = [Out(shape, x.dtype, fitting(shape, out.content.items if out.content else None)) for out in pieces]
    return Meaning("copy", NO_ATTRS, outs, [x])


@handles("SPLIT", "SPLIT_V")
def _split(call: Call) -> Meaning:
    if call.node.op == "SPLIT":
        x, count = call[1], len(call.node.outputs)
        axis = axis_of(call[0].integers[0], len(x.dims))
        lengths: Sequence[Extent] = [divided(x.dims[axis], count)] * count
    else:
        x = call[0]
        axis, lengths = axis_of(call[2].integers[0], len(x.dims)), list(call[1].integers)
        if -1 in lengths:
            extent = x.dims[axis]
            rest = None if extent is None else extent - sum(n for n in call[1].integers if n >= 0)
            lengths = [rest if n == -1 else n for n in lengths]
    return meanings.divided(x, axis, lengths)


@handles("SLICE", "STABLEHLO_SLICE", "STABLEHLO_DYNAMIC_SLICE")
def _slice(call: Call) -> Meaning:
    x = call[0]
    if call.node.op == "STABLEHLO_SLICE":
        at = call.attrs
        return meanings.sliced(x, range(len(x.dims)), at["begins"], at["ends"], at["steps"])
    if call.node.op == "STABLEHLO_DYNAMIC_SLICE":
        return copied(x, tuple(call.attrs["sizes"]))
    begins, sizes = call[1], call[2].numbers
    if begins.content is None or None in begins.numbers or None in sizes:
        return copied(x, tuple(None if n is None or n < 0 else int(n) for n in sizes))
    ends: list[int | None] = [
        None if size is not None and size < 0 else begin + int(size or 0)
        for begin, size in zip(begins.integers, sizes, strict=True)
    ]
    return meanings.sliced(x, range(len(x.dims)), begins.integers, ends, (1,) * len(x.dims))


@handles("STRIDED_SLICE")
def _strided(call: Call) -> Meaning:
    """Python's way to write slices, one entry for each axis, an ellipsis, a new axis, or an index that takes an axis away."""
    x, rank = call[0], len(call[0].dims)
    (entries,) = known(call[1].shape)
    if entries > MOST_AXES:
        raise Mismatch(f"it has {entries} entries, and a tensor at most {MOST_AXES} axes")

    def marked(name: str, entry: int) -> bool:
        return bool(call.whole(f"{name}_mask") >> entry & 1)

    columns = [_numbers(call[place], entries) for place in (1, 2, 3)]
    given = sum(not marked("new_axis", at) and not marked("ellipsis", at) for at in range(entries))
    cuts: list[Cut] = []
    added: list[int] = []
    """Where new axes stand in the result."""
    for entry, (begin, end, step) in enumerate(zip(*columns, strict=True)):
        if marked("ellipsis", entry):
            cuts += [Cut()] * max(rank - given, 0)
        elif marked("new_axis", entry):
            added.append(len(added) + sum(not each.gone for each in cuts))
        elif marked("shrink_axis", entry):
            cuts.append(Cut(begin, sure=begin is not None, gone=True))
        else:
            sure = (begin is not None or marked("begin", entry)) and (end is not None or marked("end", entry))
            sure = sure and step is not None
            first, last = None if marked("begin", entry) else begin, None if marked("end", entry) else end
            if call.flag("offset") and last is not None and first is not None:
                last += first
            cuts.append(Cut(first, last, step, sure=sure))
    if len(cuts) > rank:
        raise Mismatch(f"it cuts {len(cuts)} axes, and there are {rank}")
    out = meanings.cut(x, cuts)
    shape = out.shape or ()
    for place in added:
        shape = inserted(shape, place)
    return copied(x, shape, fitting(shape, out.content.items if out.content else None))


def _numbers(made: Made, count: int) -> list[int | None]:
    if made.content is None:
        return [None] * count
    return [None if n is None else int(n) for n in made.numbers]


@handles("PAD", "PADV2", "MIRROR_PAD")
def _pad(call: Call) -> Meaning:
    x, pads = call[0], call[1].integers
    return copied(x, padded(x.dims, list(zip(pads[::2], pads[1::2], strict=True))))


@handles("STABLEHLO_PAD")
def _pad_between(call: Call) -> Meaning:
    x = call[0]
    spread = [
        None if n is None else n + max(n - 1, 0) * gap for n, gap in zip(x.dims, call.attrs["interior"], strict=True)
    ]
    return copied(x, padded(spread, list(zip(call.attrs["low"], call.attrs["high"], strict=True))))


@handles("DILATE")
def _dilate(call: Call) -> Meaning:
    x, factors = call[0], call[1].integers
    return copied(x, tuple(None if n is None else (n - 1) * f + 1 for n, f in zip(x.dims, factors, strict=True)))


@handles("TILE")
def _tile(call: Call) -> Meaning:
    return copied(call[0], tiled(call[0].dims, call[1].integers))


@handles("BROADCAST_TO")
def _broadcast_to(call: Call) -> Meaning:
    target: Dims = tuple(None if n is None else int(n) for n in call[1].numbers)
    return meanings.stretched(call[0], broadcast([call[0].dims, target]))


@handles("SPACE_TO_DEPTH", "DEPTH_TO_SPACE")
def _blocks(call: Call) -> Meaning:
    (batch, *space, channels), size = call[0].dims, call.whole("block_size")
    if call.node.op == "SPACE_TO_DEPTH":
        return copied(call[0], (batch, *[divided(n, size) for n in space], times(channels, size * size)))
    return copied(call[0], (batch, *[times(n, size) for n in space], divided(channels, size * size)))


@handles("SPACE_TO_BATCH_ND", "BATCH_TO_SPACE_ND")
def _batches(call: Call) -> Meaning:
    batch, *rest = call[0].dims
    sizes, edges = call[1].integers, call[2].integers
    many = 1
    for place, size in enumerate(sizes):
        around = edges[2 * place] + edges[2 * place + 1]
        extent = rest[place]
        many *= size
        if extent is None:
            continue
        if call.node.op == "SPACE_TO_BATCH_ND":
            rest[place] = divided(extent + around, size)
        else:
            rest[place] = extent * size - around
    count = times(batch, many) if call.node.op == "SPACE_TO_BATCH_ND" else divided(batch, many)
    return copied(call[0], (count, *rest))


@handles("REVERSE_V2", "REVERSE_SEQUENCE", "MATRIX_SET_DIAG")
def _same(call: Call) -> Meaning:
    return copied(call[0], call[0].shape)


@handles("DENSIFY")
def _densify(call: Call) -> Meaning:
    """A weight is stored without its zeros; its shape is the whole one."""
    return copied(call[0], call[0].shape)


@handles("MATRIX_DIAG")
def _diagonal(call: Call) -> Meaning:
    return copied(call[0], (*call[0].dims, call[0].dims[-1]))


@handles("DYNAMIC_UPDATE_SLICE", "STABLEHLO_DYNAMIC_UPDATE_SLICE")
def _update(call: Call) -> Meaning:
    x = call[0]
    return Meaning("scatter", NO_ATTRS, [Out(x.shape, x.dtype)], [x, call[2], call[1]])


@handles("STABLEHLO_BROADCAST_IN_DIM")
def _broadcast_in(call: Call) -> Meaning:
    told = call.at(1)
    return copied(call[0], told.integers if told is not None and told.content is not None else None)


# -- by index ----------------------------------------------------------------------------------------------------------


@handles("GATHER")
def _gather(call: Call) -> Meaning:
    x, indices, batch = call[0], call[1], call.whole("batch_dims")
    axis = axis_of(call.whole("axis"), len(x.dims))
    if batch:
        shape: Dims = (*x.dims[:axis], *indices.dims[batch:], *x.dims[axis + 1 :])
        return Meaning("gather", NO_ATTRS, [Out(shape, x.dtype)], [x, indices])
    return meanings.picked(x, indices, axis)


@handles("GATHER_ND")
def _gather_nd(call: Call) -> Meaning:
    x, indices = call[0], call[1]
    depth = known(indices.dims[-1:])[0]
    return Meaning("gather", NO_ATTRS, [Out((*indices.dims[:-1], *x.dims[depth:]), x.dtype)])


@handles("STABLEHLO_GATHER")
def _gather_windows(call: Call) -> Meaning:
    """A window of x for each index; its axes stand where the options say."""
    indices, at = call[1], call.attrs
    taken = [size for axis, size in enumerate(at["sizes"]) if axis not in at["collapsed"]]
    batch = [n for axis, n in enumerate(indices.dims) if axis != at["index_axis"]]
    pieces, rows = iter(taken), iter(batch)
    shape = [next(pieces) if axis in at["offset_dims"] else next(rows) for axis in range(len(taken) + len(batch))]
    return Meaning("gather", NO_ATTRS, [Out(tuple(shape), call.out_dtype)])


@handles("SCATTER_ND", "STABLEHLO_SCATTER", "SPARSE_TO_DENSE")
def _scatter(call: Call) -> Meaning:
    """Numbers put at places; what a little graph does with those that are there is one operation."""
    if call.node.op == "STABLEHLO_SCATTER":
        x, indices, updates = call[0], call[1], call[2]
        return Meaning("scatter", {"fn": "add"}, [Out(x.shape, x.dtype)], [x, indices, updates])
    if call.node.op == "SPARSE_TO_DENSE":
        indices, target, updates = call[0], call[1], call[2]
        return Meaning("scatter", NO_ATTRS, [Out(target.integers, updates.dtype)], [updates, indices, updates])
    indices, updates, target = call[0], call[1], call[2]
    return Meaning("scatter", {"fn": "add"}, [Out(target.integers, updates.dtype)], [updates, indices, updates])


@handles("EMBEDDING_LOOKUP", "HASHTABLE_LOOKUP")
def _lookup(call: Call) -> Meaning:
    rows, table = call[0], call[-1 + len(call.ins)]
    outs = [Out((*rows.dims, *table.dims[1:]), table.dtype), Out(rows.shape, "uint8")]
    return Meaning("embedding", NO_ATTRS, outs, [table, rows])


@handles("EMBEDDING_LOOKUP_SPARSE")
def _bag(call: Call) -> Meaning:
    """Rows are multiplied by weights and added up by what they belong to."""
    ids, shape, weights, table = call[0], call[2], call[3], call[4]
    rows: Dims = tuple(int(n) for n in shape.integers[:-1]) if shape.content is not None else (None,)
    reduce = "sum" if call.whole("combiner") == 0 else "mean"
    outs = [Out((*rows, *table.dims[1:]), table.dtype)]
    return Meaning("embedding", {"reduce": reduce, "weighted": True}, outs, [table, ids, weights])


@handles("WHERE")
def _where(call: Call) -> Meaning:
    x = call[0]
    count = None
    if x.content is not None and None not in x.numbers:
        count = sum(bool(number) for number in x.numbers)
    return Meaning("gather", NO_ATTRS, [Out((count, len(x.dims)), "int64")])


@handles("HASHTABLE", "HASHTABLE_FIND", "HASHTABLE_IMPORT", "HASHTABLE_SIZE")
def _hash_table(call: Call) -> Meaning:
    """A table of keys and values, filled once; values are found by their keys."""
    match call.node.op:
        case "HASHTABLE_FIND":
            return Meaning("gather", NO_ATTRS, [Out(call[1].shape, call.out_dtype)])
        case "HASHTABLE_IMPORT":
            return Meaning("copy", NO_ATTRS, [])
    return created((1,), call.out_dtype)


# -- from nothing ------------------------------------------------------------------------------------------------------


@handles("SHAPE", "RANK")
def _shape(call: Call) -> Meaning:
    if call.node.op == "RANK":
        return created((), "int32", [len(call[0].dims)])
    return meanings.shape_of(call[0].dims, call.out_dtype)


@handles("BROADCAST_ARGS")
def _stretch_shapes(call: Call) -> Meaning:
    a, b = (tuple(None if n is None else int(n) for n in made.numbers) for made in (call[0], call[1]))
    return meanings.shape_of(broadcast([a, b]), call.out_dtype)


@handles("FILL")
def _fill(call: Call) -> Meaning:
    number: Any = call[1].content.items[0] if call[1].content and call[1].content.items else None
    if any(n is not None and n < 0 for n in call[0].numbers):
        raise Mismatch(f"its shape would be {call[0].numbers}")
    return meanings.filled_with(number, call[0].numbers, call[1].dtype)


@handles("ZEROS_LIKE")
def _zeros(call: Call) -> Meaning:
    return meanings.filled_with(0, call[0].dims, call[0].dtype)


@handles("RANGE")
def _range(call: Call) -> Meaning:
    return meanings.counted(call.given, call.out_dtype)


@handles("ONE_HOT")
def _one_hot(call: Call) -> Meaning:
    depth = call[1].content.items[0] if call[1].content else None
    axis = axis_of(call.whole("axis"), len(call[0].dims) + 1)
    shape: Shape = inserted(call[0].dims, axis, None if depth is None else int(depth))
    return created(shape, call.out_dtype)


@handles("STABLEHLO_IOTA")
def _iota(call: Call) -> Meaning:
    return created(None, call.out_dtype)
