"""What TensorFlow Lite's operators mean. Plain ones are rows; images are (batch, *space, channels)."""

from __future__ import annotations

from math import prod
from typing import Any

from opcost.core import shapes
from opcost.core.graph import NO_ATTRS, Attr
from opcost.core.shapes import Dims, Extent, Mismatch, Shape, known  # fmt: skip
from opcost.frontends.nodes import MOST_AXES, results
from opcost.frontends.nodes.meaning import Handler, NodeCall, OperatorMeaning, OperatorTable, Out
from opcost.frontends.nodes.operators import add_functions, add_rows
from opcost.frontends.nodes.results import common, fitting, like, numel, one

TABLE = OperatorTable()
handles = TABLE.handles

add_rows(TABLE, """
RESHAPE STABLEHLO_RESHAPE: reshape x shape shape<new_shape
SQUEEZE: squeeze x axes<squeeze_dims
EXPAND_DIMS: expand_dims x axes
TRANSPOSE: transpose x perm
STABLEHLO_TRANSPOSE: transpose x perm<permutation
CONCATENATION STABLEHLO_CONCATENATE: concat *values
PACK: stack *values
SPLIT: split axis x
SPLIT_V: split x split_sizes axis
PAD PADV2 MIRROR_PAD: pad x pad
TILE: tile x reps
BROADCAST_TO: broadcast_to x shape
SPACE_TO_DEPTH: space_to_depth x last=1
DEPTH_TO_SPACE: depth_to_space x last=1
REVERSE_V2 REVERSE_SEQUENCE MATRIX_SET_DIAG DENSIFY REAL IMAG: copy x
GATHER: gather x indices
GATHER_ND: gather_nd x indices
DYNAMIC_UPDATE_SLICE STABLEHLO_DYNAMIC_UPDATE_SLICE: update x updates indices
SHAPE: shape x out_dtype=int32
FILL: fill shape value
RANGE: range_1d start end step
ONE_HOT: one_hot indices one_hot_vector_size
RANDOM_STANDARD_NORMAL RANDOM_UNIFORM: random shape
MEAN: reduce x axes fn=mean none=1
SUM: reduce x axes fn=sum none=1 folded=1
REDUCE_PROD: reduce x axes fn=prod none=1 folded=1
REDUCE_MAX: reduce x axes fn=max none=1 folded=1
REDUCE_MIN: reduce x axes fn=min none=1 folded=1
REDUCE_ANY: reduce x axes fn=any none=1 folded=1
REDUCE_ALL: reduce x axes fn=all none=1 folded=1
ARG_MAX: reduce_arg x axis fn=argmax out_dtype=int32
ARG_MIN: reduce_arg x axis fn=argmin out_dtype=int32
CUMSUM: same x kind=reduce fn=cumsum
SOFTMAX: same x kind=softmax fn=softmax
LOG_SOFTMAX: same x kind=softmax fn=log_softmax
L2_NORMALIZATION: same x kind=norm fn=lp
TOPK_V2: topk x k out_dtype=int32
BATCH_MATMUL: matmul x y transpose_x<adj_x transpose_y<adj_y
ADD_N: added *values
""")  # fmt: skip

add_functions(
    TABLE,
    {
        **{name: name.lower() for name in (
            "ABS CEIL COS ELU EXP FLOOR LEAKY_RELU LOG NEG RELU RELU6 ROUND RSQRT SIGN SIN SQRT SQUARE TANH PRELU ATAN2 ADD "
            "SUB MUL DIV POW"
        ).split()},
        "RELU_N1_TO_1": "hardtanh", "RELU_0_TO_1": "clamp", "HARD_SWISH": "hardswish", "LOGISTIC": "sigmoid",
        "FAKE_QUANT": "fake_quantize", "FLOOR_DIV": "floor_divide", "FLOOR_MOD": "remainder", "MAXIMUM": "max", "MINIMUM": "min",
        "BITWISE_XOR": "bitwise", "RIGHT_SHIFT": "shift", "COMPLEX_ABS": "hypot", "SELECT": "where", "SELECT_V2": "where",
        **dict.fromkeys("LOGICAL_NOT LOGICAL_AND LOGICAL_OR STABLEHLO_AND STABLEHLO_OR".split(), "logical"),
        **dict.fromkeys("EQUAL NOT_EQUAL GREATER GREATER_EQUAL LESS LESS_EQUAL STABLEHLO_COMPARE".split(), "compare"),
        "STABLEHLO_LOGISTIC": "sigmoid", "STABLEHLO_ADD": "add", "STABLEHLO_DIVIDE": "div", "STABLEHLO_MULTIPLY": "mul",
        "STABLEHLO_MAXIMUM": "max", "STABLEHLO_MINIMUM": "min", "STABLEHLO_ABS": "abs", "STABLEHLO_COSINE": "cos",
        "STABLEHLO_EXPONENTIAL": "exp", "STABLEHLO_FLOOR": "floor", "STABLEHLO_LOG": "log", "STABLEHLO_NEGATE": "neg",
        "STABLEHLO_POWER": "pow", "STABLEHLO_REMAINDER": "remainder", "STABLEHLO_RSQRT": "rsqrt", "STABLEHLO_SELECT": "where",
        "STABLEHLO_SUBTRACT": "sub", "STABLEHLO_TANH": "tanh", "STABLEHLO_SHIFT_LEFT": "shift", "STABLEHLO_CBRT": "cbrt",
    },
    {
        "MAXIMUM": "max", "MINIMUM": "min", "FLOOR_DIV": "floordiv", "FLOOR_MOD": "mod", "NOT_EQUAL": "notequal",
        "GREATER_EQUAL": "greaterorequal", "LESS_EQUAL": "lessorequal", "LOGICAL_AND": "and", "LOGICAL_OR": "or",
        "LOGICAL_NOT": "not", "SELECT": "where", "SELECT_V2": "where",
    },
)  # fmt: skip


# Operators of one expression each
handles("GELU")(lambda call: results.pointwise("gelu_tanh" if call.flag("approximate") else "gelu", call.given))
handles("STABLEHLO_CLAMP")(lambda call: like(call[1], "elementwise", {"fn": "clamp"}))
handles("CAST", "STABLEHLO_CONVERT")(lambda call: results.converted(call[0], call.out_dtype))
handles("BITCAST")(lambda call: OperatorMeaning("view", NO_ATTRS, [Out(None, call.out_dtype, home=call[0])], [call[0]]))
handles("STABLEHLO_DYNAMIC_SLICE")(lambda call: results.copied(call[0], tuple(call.attrs["sizes"])))
handles("MATRIX_DIAG")(lambda call: results.copied(call[0], (*call[0].dims, call[0].dims[-1])))
# Numbers put at places; what a little graph does with those that are there is one operation
handles("STABLEHLO_SCATTER")(lambda call: like(call[0], "scatter", {"fn": "add"}, [call[0], call[1], call[2]]))
handles("RANK")(lambda call: results.created((), "int32", [len(call[0].dims)]))
handles("ZEROS_LIKE")(lambda call: results.filled_with(0, call[0].dims, call[0].dtype))
handles("STABLEHLO_IOTA")(lambda call: results.created(None, call.out_dtype))
handles("MULTINOMIAL")(lambda call: one("random", NO_ATTRS, (call[0].dims[0], call[1].integers[0]), call.out_dtype, []))


_FUSED = {1: "relu", 2: "hardtanh", 3: "relu6", 4: "tanh", 5: "sign"}


def then(call: NodeCall) -> dict[str, Attr]:
    """The activation that a product or a convolution applies to its result."""
    name = _FUSED.get(call.whole("fused"))
    return {"then": (name,)} if name else {}


def _activated(handler: Handler) -> Handler:
    """A handler of another operator that may apply an activation to its result, in place."""

    def activated(call: NodeCall) -> OperatorMeaning:
        meaning, name = handler(call), _FUSED.get(call.whole("fused"))
        if name is None:
            return meaning
        if name == "relu" and meaning.attrs == {"fn": "add"}:
            return meaning._replace(attrs={"fn": "add_relu"})
        reads = call.given if meaning.reads is None else meaning.reads
        made = call.step(meaning.kind, meaning.attrs, reads, meaning.outs)[0]
        return OperatorMeaning("elementwise", {"fn": name}, [Out(made.shape, made.dtype, home=made)], [made])

    return activated


@handles("SQUARED_DIFFERENCE")
def _squared_difference(call: NodeCall) -> OperatorMeaning:
    return one("elementwise", results.added(call.given, "sub", more=1), common(call.given), call[0].dtype)


@handles("QUANTIZE", "DEQUANTIZE")
def _quantize(call: NodeCall) -> OperatorMeaning:
    """Half the bits of a real number are widened without arithmetic."""
    kind = "copy" if call[0].dtype in ("float16", "bfloat16") else "quantize"
    return like(call[0], kind, NO_ATTRS, [call[0]], call.out_dtype)


# -- elements in other places --------------------------------------------------------------------------------------------


@handles("UNPACK")
def _unpack(call: NodeCall) -> OperatorMeaning:
    x = call[0]
    axis = shapes.axis_of(call.whole("axis"), len(x.dims))
    shape = shapes.replaced(x.dims, axis)
    pieces = results.divided_into(x, axis, [1] * len(call.node.outputs)).outs
    outs = [Out(shape, x.dtype, fitting(shape, out.content.items if out.content else None)) for out in pieces]
    return OperatorMeaning("copy", NO_ATTRS, outs, [x])


@handles("SLICE", inputs="x begin size")
def _slice(call: NodeCall) -> OperatorMeaning:
    x, begins, sizes = call[0], call[1], call[2].numbers
    if begins.content is None or None in begins.numbers or None in sizes:
        return results.copied(x, tuple(None if n is None or n < 0 else int(n) for n in sizes))
    pairs = zip(begins.integers, call[2].integers, strict=True)
    ends = [None if size < 0 else begin + size for begin, size in pairs]
    return results.sliced(x, range(len(x.dims)), begins.integers, ends, (1,) * len(x.dims))


@handles("STABLEHLO_SLICE")
def _slice_by_attributes(call: NodeCall) -> OperatorMeaning:
    at = call.attrs
    return results.sliced(call[0], range(len(call[0].dims)), at["begins"], at["ends"], at["steps"])


@handles("STRIDED_SLICE", inputs="x begin end strides")
def _strided(call: NodeCall) -> OperatorMeaning:
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


@handles("STABLEHLO_PAD")
def _pad_between(call: NodeCall) -> OperatorMeaning:
    x, at = call[0], call.attrs
    gaps = zip(x.dims, at["interior"], strict=True)
    spread = [None if extent is None else extent + max(extent - 1, 0) * gap for extent, gap in gaps]
    return results.copied(x, shapes.padded(spread, list(zip(at["low"], at["high"], strict=True))))


@handles("DILATE")
def _dilate(call: NodeCall) -> OperatorMeaning:
    x, factors = call[0], call[1].integers
    pairs = zip(x.dims, factors, strict=True)
    return results.copied(x, tuple(None if n is None else (n - 1) * f + 1 for n, f in pairs))


@handles("SPACE_TO_BATCH_ND", "BATCH_TO_SPACE_ND")
def _batches(call: NodeCall) -> OperatorMeaning:
    batch, *rest = call[0].dims
    sizes, edges = call[1].integers, call[2].integers
    into = call.node.op == "SPACE_TO_BATCH_ND"
    for place, size in enumerate(sizes):
        around = edges[2 * place] + edges[2 * place + 1]
        if (extent := rest[place]) is not None:
            rest[place] = shapes.divided(extent + around, size) if into else extent * size - around
    batch = shapes.times(batch, prod(sizes)) if into else shapes.divided(batch, prod(sizes))
    return results.copied(call[0], (batch, *rest))


@handles("STABLEHLO_BROADCAST_IN_DIM")
def _broadcast_in(call: NodeCall) -> OperatorMeaning:
    wanted = call.at(1)
    return results.copied(call[0], wanted.integers if wanted is not None and wanted.content is not None else None)


@handles("STABLEHLO_GATHER")
def _gather_windows(call: NodeCall) -> OperatorMeaning:
    """A window of x for each index; its axes are where the options put them."""
    indices, at = call[1], call.attrs
    taken = [size for axis, size in enumerate(at["sizes"]) if axis not in at["collapsed"]]
    batch = [n for axis, n in enumerate(indices.dims) if axis != at["index_axis"]]
    pieces, rows = iter(taken), iter(batch)
    shape = [next(pieces) if axis in at["offset_dims"] else next(rows) for axis in range(len(taken) + len(batch))]
    return one("gather", NO_ATTRS, tuple(shape), call.out_dtype)


@handles("SCATTER_ND", inputs="indices updates shape")
@handles("SPARSE_TO_DENSE", inputs="indices shape updates")
def _scatter_into_zeros(call: NodeCall) -> OperatorMeaning:
    attrs = {"fn": "add"} if call.node.op == "SCATTER_ND" else NO_ATTRS
    updates = call["updates"]
    return one("scatter", attrs, call["shape"].integers, updates.dtype, [updates, call["indices"], updates])


@handles("EMBEDDING_LOOKUP", "HASHTABLE_LOOKUP")
def _lookup(call: NodeCall) -> OperatorMeaning:
    rows, table = call[0], call[-1 + len(call.ins)]
    outs = [Out((*rows.dims, *table.dims[1:]), table.dtype), Out(rows.shape, "uint8")]
    return OperatorMeaning("embedding", NO_ATTRS, outs, [table, rows])


@handles("EMBEDDING_LOOKUP_SPARSE")
def _bag(call: NodeCall) -> OperatorMeaning:
    """Rows are multiplied by weights and added up by what they belong to."""
    ids, shape, weights, table = call[0], call[2], call[3], call[4]
    rows: Dims = shape.integers[:-1] if shape.content is not None else (None,)
    attrs = {"reduce": "sum" if call.whole("combiner") == 0 else "mean", "weighted": True}
    return one("embedding", attrs, (*rows, *table.dims[1:]), table.dtype, [table, ids, weights])


@handles("WHERE")
def _where(call: NodeCall) -> OperatorMeaning:
    x = call[0]
    count = sum(map(bool, x.numbers)) if x.content is not None and None not in x.numbers else None
    return one("gather", NO_ATTRS, (count, len(x.dims)), "int64")


@handles("HASHTABLE", "HASHTABLE_FIND", "HASHTABLE_IMPORT", "HASHTABLE_SIZE")
def _hash_table(call: NodeCall) -> OperatorMeaning:
    """A table of keys and values, filled once; values are found by their keys."""
    match call.node.op:
        case "HASHTABLE_FIND":
            return like(call[1], "gather", dtype=call.out_dtype)
        case "HASHTABLE_IMPORT":
            return OperatorMeaning("copy", NO_ATTRS, [])
    return results.created((1,), call.out_dtype)


@handles("BROADCAST_ARGS", inputs="a b")
def _stretch_shapes(call: NodeCall) -> OperatorMeaning:
    return results.shape_of(shapes.broadcast([call.extents("a") or (), call.extents("b") or ()]), call.out_dtype)


@handles("STABLEHLO_RNG_BIT_GENERATOR")
def _random_bits(call: NodeCall) -> OperatorMeaning:
    state = call[0]
    return OperatorMeaning("random", NO_ATTRS, [Out(state.shape, state.dtype), Out(None, call.out_dtype)], [state])


SAME = 0


def window(call: NodeCall, space: Dims, kernel: Dims, axes: str) -> results.SlidingWindow:
    """The window of an operator along the axes `hw` or `dhw`."""
    stride, dilation = ([call.whole(f"{name}_{axis}", 1) for axis in axes] for name in ("stride", "dilation"))
    return results.SlidingWindow(kernel, space, stride=stride, dilation=dilation, same=call.whole("padding") == SAME)


def swept(extent: Extent, kernel: Extent, stride: int, dilation: int, spread: int, pads: tuple[int, int]) -> Extent:
    """The number of windows along an axis, between whose elements zeros are put first."""
    grown = None if extent is None else (extent - 1) * spread + 1
    return shapes.windows(grown, kernel, stride=stride, dilation=dilation, padding=pads)


# -- reductions, pools, normalizations, interpolations, sorting, transforms ----------------------------------------------


@handles("STABLEHLO_REDUCE")
def _reduce_by_graph(call: NodeCall) -> OperatorMeaning:
    """Each of the first half of the inputs is reduced; what the little graph does with two elements is one operation."""
    values = call.given[: len(call.given) // 2]
    outs = [Out(shapes.reduced(each.dims, call.attrs["dims"]), each.dtype) for each in values]
    return OperatorMeaning("reduce", {"fn": "sum", "each": True}, outs, values)


@handles("STABLEHLO_REDUCE_WINDOW", "REDUCE_WINDOW")
def _reduce_window(call: NodeCall) -> OperatorMeaning:
    x = call[0]
    if call.node.op == "REDUCE_WINDOW":
        window, strides, dilations = call[2].integers, call[3].integers, call[4].integers
        spread, pads = (1,) * len(window), (0,) * (2 * len(window))
    else:
        window, ones = call.attrs["window"], (1,) * len(call.attrs["window"])
        strides, dilations, spread = (call.attrs[name] or ones for name in ("strides", "dilations", "base"))
        pads = call.attrs["padding"] or (0,) * (2 * len(window))
    axes = zip(x.dims, window, strides, dilations, spread, zip(pads[::2], pads[1::2], strict=True), strict=True)
    shape = tuple(swept(*axis) for axis in axes)
    return one("pool", {"fn": "max", "window": prod(window)}, shape, x.dtype, [x])


_POOLS = {"AVERAGE_POOL_2D": "avg", "MAX_POOL_2D": "max", "L2_POOL_2D": "lp"}


@handles(*_POOLS)
def _pool(call: NodeCall) -> OperatorMeaning:
    x, kernel = call[0], (call.whole("filter_h"), call.whole("filter_w"))
    over = window(call, x.dims[1:-1], kernel, "hw")
    attrs = {"fn": _POOLS[call.node.op], "window": kernel[0] * kernel[1], **over.geometry}
    return one("pool", attrs, (x.dims[0], *over.swept(), x.dims[-1]), x.dtype, [x])


@handles("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR")
def _resize(call: NodeCall) -> OperatorMeaning:
    x, fn = call[0], "bilinear" if call.node.op == "RESIZE_BILINEAR" else "nearest"
    return one("resize", {"fn": fn}, (x.dims[0], *call[1].integers, x.dims[-1]), x.dtype, [x])


@handles("LOCAL_RESPONSE_NORMALIZATION")
def _local_norm(call: NodeCall) -> OperatorMeaning:
    return like(call[0], "norm", {"fn": "local_response", "window": 2 * call.whole("radius") + 1})


@handles("STABLEHLO_SORT")
def _sort(call: NodeCall) -> OperatorMeaning:
    length = known((call[0].dims[shapes.axis_of(call.whole("axis"), len(call[0].dims))],))[0]
    return OperatorMeaning("sort", {"length": max(length, 1)}, [Out(each.shape, each.dtype) for each in call.given])


@handles("UNIQUE")
def _unique(call: NodeCall) -> OperatorMeaning:
    x = call[0]
    return OperatorMeaning("sort", {"length": max(numel(x.shape), 1)}, [Out((None,), x.dtype), Out(x.shape, "int32")])


@handles("BUCKETIZE")
def _bucketize(call: NodeCall) -> OperatorMeaning:
    return like(call[0], "sort", {"length": max(len(call.attrs.get("boundaries", ())), 1)}, [call[0]], "int32")


@handles("NON_MAX_SUPPRESSION_V4", "NON_MAX_SUPPRESSION_V5")
def _suppress(call: NodeCall) -> OperatorMeaning:
    """Boxes are sorted by their scores; the number of overlaps that are compared depends on data and is left out."""
    boxes, most = call[0], call[2].first
    kept: Shape = (None if most is None else int(most),)
    outs = [Out(kept, "int32"), *[Out(kept, "float32")] * call.node.op.endswith("V5"), Out((), "int32")]
    return OperatorMeaning("sort", {"length": max(known(boxes.dims[:1])[0], 1)}, outs, [call[1], boxes])


@handles("RFFT2D")
def _rfft(call: NodeCall) -> OperatorMeaning:
    x, (rows, columns) = call[0], call[1].integers
    attrs: dict[str, Any] = {"lengths": (rows, columns), "real": True}
    return one("fft", attrs, (*x.dims[:-2], rows, columns // 2 + 1), "complex64", [x])


_SEGMENTS = {"SUM": "add", "PROD": "mul", "MAX": "max", "MIN": "min"}


@handles("SEGMENT_SUM", *(f"UNSORTED_SEGMENT_{name}" for name in _SEGMENTS))
def _segment(call: NodeCall) -> OperatorMeaning:
    """Rows with the same number are combined."""
    x, ids, count = call[0], call[1], None
    if call.node.op == "SEGMENT_SUM":
        count = ids.integers[-1] + 1 if ids.content and ids.numbers and None not in ids.numbers else None
    elif call[2].content is not None:
        count = call[2].integers[0]
    attrs: dict[str, Any] = {"fn": _SEGMENTS[call.node.op.rpartition("_")[2]], "elements": numel(x.shape)}
    return one("scatter", attrs, (count, *x.dims[len(ids.dims) :]), x.dtype, [x, ids])


for _name in ("CONCATENATION", "ADD", "SUB", "MUL", "DIV", *_POOLS, "L2_NORMALIZATION"):
    TABLE["", _name] = TABLE["", _name]._replace(handler=_activated(TABLE["", _name].handler))
