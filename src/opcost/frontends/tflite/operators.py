"""What TensorFlow Lite's own operators mean; images are (batch, *space, channels)."""

from collections.abc import Sequence
from math import prod
from typing import Any

from opcost.core import shapes
from opcost.core.graph import NO_ATTRS
from opcost.core.shapes import Dims, Extent, Mismatch, known
from opcost.frontends.nodes import MOST_AXES, results
from opcost.frontends.nodes.meaning import Handler, NodeCall, OperatorMeaning, Out
from opcost.frontends.nodes.operators import function, suppressed
from opcost.frontends.nodes.results import common, fitting, like, numel, one
from opcost.frontends.nodes.windows import SlidingWindow, pool, then

EXPRESSIONS: dict[str, Handler] = {
    "activated_function": lambda call: _activated(call, function(call)),
    "activated_pool": lambda call: _activated(call, pool(call)),
    "activated_norm": lambda call: _activated(call, like(call["x"], "norm", {"fn": "lp"})),
    "activated_concat": lambda call: _activated(call, results.joined(call.given, call.whole("axis"))),
    "squared_difference": lambda call: one(
        "elementwise", results.added(call.given, "sub", more=1), common(call.given), call[0].dtype
    ),
    "clamp": lambda call: like(call["x"], "elementwise", {"fn": "clamp"}),
    "bitcast": lambda call: OperatorMeaning("view", NO_ATTRS, [Out(None, call.out_dtype, home=call["x"])]),
    "slice_by_attributes": lambda call: results.sliced(
        call["x"], range(len(call["x"].dims)), call.attrs["begins"], call.attrs["ends"], call.attrs["steps"]
    ),
    "dynamic_slice": lambda call: results.copied(call["x"], tuple(call.attrs["sizes"])),
    "matrix_diag": lambda call: results.copied(call["x"], (*call["x"].dims, call["x"].dims[-1])),
    "rank": lambda call: results.created((), "int32", [len(call["x"].dims)]),
    "zeros_like": lambda call: results.filled_with(0, call["x"].dims, call["x"].dtype),
    "iota": lambda call: results.created(None, call.out_dtype),
    "hashtable": lambda call: results.created((1,), call.out_dtype),  # it is filled once
    "hashtable_find": lambda call: like(call["keys"], "gather", dtype=call.out_dtype),
    "hashtable_import": lambda call: OperatorMeaning("copy", NO_ATTRS, []),
    "broadcast_args": lambda call: results.shape_of(
        shapes.broadcast([call.extents("a") or (), call.extents("b") or ()]), call.out_dtype
    ),
    "multinomial": lambda call: one(
        "random", NO_ATTRS, (call["x"].dims[0], call["count"].integers[0]), call.out_dtype, []
    ),
    "random_bits": lambda call: OperatorMeaning(
        "random", NO_ATTRS, [Out(call["state"].shape, call["state"].dtype), Out(None, call.out_dtype)]
    ),
    "local_response_norm": lambda call: like(
        call["x"], "norm", {"fn": "local_response", "window": 2 * call.whole("radius") + 1}
    ),
    "bucketize": lambda call: like(
        call["x"], "sort", {"length": max(len(call.attrs.get("boundaries", ())), 1)}, dtype="int32"
    ),
}  # fmt: skip
"""Handlers of one expression each, by their names."""


def _activated(call: NodeCall, meaning: OperatorMeaning) -> OperatorMeaning:
    """What another operator means, with the activation that is applied to its result, in place."""
    name = then(call).get("then")
    if name is None:
        return meaning
    if name == ("relu",) and meaning.attrs == {"fn": "add"}:
        return meaning._replace(attrs={"fn": "add_relu"})
    reads = call.given if meaning.reads is None else meaning.reads
    made = call.step(meaning.kind, meaning.attrs, reads, meaning.outs[:1])[0]
    return OperatorMeaning("elementwise", {"fn": name[0]}, [Out(made.shape, made.dtype, home=made)], [made])


def _quantize(call: NodeCall) -> OperatorMeaning:
    """Half the bits of a real number are widened without arithmetic."""
    kind = "copy" if call[0].dtype in ("float16", "bfloat16") else "quantize"
    return like(call[0], kind, NO_ATTRS, [call[0]], call.out_dtype)


# -- elements in other places --------------------------------------------------------------------------------------------


def _unpack(call: NodeCall) -> OperatorMeaning:
    x = call[0]
    axis = shapes.axis_of(call.whole("axis"), len(x.dims))
    shape = shapes.replaced(x.dims, axis)
    pieces = results.divided_into(x, axis, [1] * len(call.node.outputs)).outs
    outs = [Out(shape, x.dtype, fitting(shape, out.content.items if out.content else None)) for out in pieces]
    return OperatorMeaning("copy", NO_ATTRS, outs, [x])


def _slice(call: NodeCall) -> OperatorMeaning:
    x, begins, sizes = call["x"], call["begin"], call.extents("size") or ()
    if begins.content is None or None in begins.numbers or None in sizes:
        return results.copied(x, tuple([None if n is None or n < 0 else n for n in sizes]))
    pairs = zip(begins.integers, known(sizes), strict=True)
    ends = [None if size < 0 else begin + size for begin, size in pairs]
    return results.sliced(x, range(len(x.dims)), begins.integers, ends, (1,) * len(x.dims))


def _strided_slice(call: NodeCall) -> OperatorMeaning:
    """Python's slices: for each axis an entry, an ellipsis, a new axis, or an index that takes an axis away."""
    x, rank = call[0], len(call[0].dims)
    (entries,) = known(call[1].shape)
    if entries > MOST_AXES:
        raise Mismatch(f"it has {entries} entries, and a tensor at most {MOST_AXES} axes")

    def marked(name: str, entry: int) -> bool:
        return bool(call.whole(f"{name}_mask") >> entry & 1)

    contents = [call[place].content for place in (1, 2, 3)]
    items = [[None] * entries if content is None else content.items for content in contents]
    columns = [[None if n is None else int(n) for n in column] for column in items]
    given = sum(not marked("new_axis", at) and not marked("ellipsis", at) for at in range(entries))
    cuts: list[results.Cut] = []
    new_axes: list[int] = []
    for entry, (begin, end, step) in enumerate(zip(*columns, strict=True)):
        if marked("ellipsis", entry):
            cuts += [results.Cut()] * max(rank - given, 0)
        elif marked("new_axis", entry):
            new_axes.append(len(new_axes) + sum(not each.gone for each in cuts))
        elif marked("shrink_axis", entry):
            cuts.append(results.Cut(begin, sure=begin is not None, gone=True))
        else:
            sure = (begin is not None or marked("begin", entry)) and (end is not None or marked("end", entry))
            sure = sure and step is not None
            first, last = None if marked("begin", entry) else begin, None if marked("end", entry) else end
            if call.flag("offset") and last is not None and first is not None:
                last += first
            cuts.append(results.Cut(first, last, step, sure=sure))
    if len(cuts) > rank:
        raise Mismatch(f"it cuts {len(cuts)} axes, and there are {rank}")
    out = results.cut(x, cuts)
    shape = out.shape or ()
    for place in new_axes:
        shape = shapes.inserted(shape, place)
    return results.copied(x, shape, fitting(shape, out.content.items if out.content else None))


def _pad_between(call: NodeCall) -> OperatorMeaning:
    x, at = call[0], call.attrs
    gaps = zip(x.dims, at["interior"], strict=True)
    spread = [None if extent is None else extent + max(extent - 1, 0) * gap for extent, gap in gaps]
    return results.copied(x, shapes.padded(spread, list(zip(at["low"], at["high"], strict=True))))


def _dilate(call: NodeCall) -> OperatorMeaning:
    x, factors = call[0], call[1].integers
    pairs = zip(x.dims, factors, strict=True)
    return results.copied(x, tuple(None if n is None else (n - 1) * f + 1 for n, f in pairs))


def _batches(call: NodeCall) -> OperatorMeaning:
    batch, *rest = call[0].dims
    sizes, edges = call[1].integers, call[2].integers
    into = call.flag("into")
    for place, size in enumerate(sizes):
        around = edges[2 * place] + edges[2 * place + 1]
        if (extent := rest[place]) is not None:
            rest[place] = shapes.divided(extent + around, size) if into else extent * size - around
    batch = shapes.times(batch, prod(sizes)) if into else shapes.divided(batch, prod(sizes))
    return results.copied(call[0], (batch, *rest))


def _broadcast_in(call: NodeCall) -> OperatorMeaning:
    wanted = call.at(1)
    return results.copied(call[0], wanted.integers if wanted is not None and wanted.content is not None else None)


def _gather_windows(call: NodeCall) -> OperatorMeaning:
    """A window of x for each index; its axes are where the options put them."""
    indices, at = call[1], call.attrs
    taken = [size for axis, size in enumerate(at["sizes"]) if axis not in at["collapsed"]]
    batch = [n for axis, n in enumerate(indices.dims) if axis != at["index_axis"]]
    pieces, rows = iter(taken), iter(batch)
    shape = [next(pieces) if axis in at["offset_dims"] else next(rows) for axis in range(len(taken) + len(batch))]
    return one("gather", NO_ATTRS, tuple(shape), call.out_dtype)


def _scatter_into_zeros(call: NodeCall) -> OperatorMeaning:
    attrs = {"fn": "add"} if "fn" in call.attrs else NO_ATTRS
    updates = call["updates"]
    return one("scatter", attrs, call["shape"].integers, updates.dtype, [updates, call["indices"], updates])


def _lookup(call: NodeCall) -> OperatorMeaning:
    rows, table = call[0], call[-1 + len(call.ins)]
    outs = [Out((*rows.dims, *table.dims[1:]), table.dtype), Out(rows.shape, "uint8")]
    return OperatorMeaning("embedding", NO_ATTRS, outs, [table, rows])


def _bag(call: NodeCall) -> OperatorMeaning:
    """Rows are multiplied by weights and added up by what they belong to."""
    ids, shape, weights, table = call[0], call[2], call[3], call[4]
    rows: Dims = shape.integers[:-1] if shape.content is not None else (None,)
    attrs = {"reduce": "sum" if call.whole("combiner") == 0 else "mean", "weighted": True}
    return one("embedding", attrs, (*rows, *table.dims[1:]), table.dtype, [table, ids, weights])


def _where(call: NodeCall) -> OperatorMeaning:
    x = call[0]
    count = sum(map(bool, x.numbers)) if x.content is not None and None not in x.numbers else None
    return one("gather", NO_ATTRS, (count, len(x.dims)), "int64")


def swept(
    space: Sequence[Extent], kernel: Sequence[Extent], stride: Sequence[int], dilation: Sequence[int],
    spread: Sequence[int] = (), pads: Sequence[int] = (),
) -> Dims:  # fmt: skip
    """The number of windows along each axis, between whose elements zeros are put first (`spread`)."""
    factors = spread or (1,) * len(space)
    grown = [None if extent is None else (extent - 1) * by + 1 for extent, by in zip(space, factors, strict=True)]
    pairs = list(zip(pads[::2], pads[1::2], strict=True))
    return SlidingWindow(tuple(kernel), tuple(grown), stride=stride, dilation=dilation, pads=pairs).swept()


# -- reductions, pools, normalizations, interpolations, sorting, transforms ----------------------------------------------


def _reduce_by_graph(call: NodeCall) -> OperatorMeaning:
    """Each of the first half of the inputs is reduced; what the little graph does with two elements is one operation."""
    values = call.given[: len(call.given) // 2]
    outs = [Out(shapes.reduced(each.dims, call.attrs["dims"]), each.dtype) for each in values]
    return OperatorMeaning("reduce", {"fn": "sum", "each": True}, outs, values)


def _reduce_window(call: NodeCall) -> OperatorMeaning:
    x = call[0]
    if call.node.op == "REDUCE_WINDOW":
        words: list[tuple[int, ...]] = [call[place].integers for place in (2, 3, 4)]
    else:
        words = [call.attrs[name] for name in ("window", "strides", "dilations", "base", "padding")]
    return one("pool", {"fn": "max", "window": prod(words[0])}, swept(x.dims, *words), x.dtype, [x])


def _resize(call: NodeCall) -> OperatorMeaning:
    x = call["x"]
    return one("resize", {"fn": call.text("fn")}, (x.dims[0], *call["size"].integers, x.dims[-1]), x.dtype, [x])


def _sort(call: NodeCall) -> OperatorMeaning:
    length = known((call[0].dims[shapes.axis_of(call.whole("axis"), len(call[0].dims))],))[0]
    return OperatorMeaning("sort", {"length": max(length, 1)}, [Out(each.shape, each.dtype) for each in call.given])


def _unique(call: NodeCall) -> OperatorMeaning:
    x = call[0]
    return OperatorMeaning("sort", {"length": max(numel(x.shape), 1)}, [Out((None,), x.dtype), Out(x.shape, "int32")])


def _non_max_suppression(call: NodeCall) -> OperatorMeaning:
    most = call["most"].first
    kept: Dims = (None if most is None else int(most),)
    scores = [Out(kept, "float32")] * call.node.op.endswith("V5")
    return suppressed(call, [Out(kept, "int32"), *scores, Out((), "int32")])


def _rfft(call: NodeCall) -> OperatorMeaning:
    x, (rows, columns) = call[0], call[1].integers
    attrs: dict[str, Any] = {"lengths": (rows, columns), "real": True}
    return one("fft", attrs, (*x.dims[:-2], rows, columns // 2 + 1), "complex64", [x])


def _segment(call: NodeCall) -> OperatorMeaning:
    """Rows with the same number are combined."""
    x, ids, count = call["x"], call["ids"], call.at("count")
    if count is not None:
        rows = count.integers[0] if count.content is not None else None
    else:
        rows = ids.integers[-1] + 1 if ids.content and ids.numbers and None not in ids.numbers else None
    attrs: dict[str, Any] = {"fn": call.text("fn"), "elements": numel(x.shape)}
    return one("scatter", attrs, (rows, *x.dims[len(ids.dims) :]), x.dtype, [x, ids])
