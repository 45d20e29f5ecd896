"""Layers beside convolutions: products, attention, recurrent layers, norms, pools, reductions and sorts."""

from math import prod

from opcost.core import shapes as sh
from opcost.core.graph import Attr, bits
from opcost.core.shapes import Dims, Extent, Mismatch, Shape
from opcost.frontends.megengine.operators.convolution import image
from opcost.frontends.megengine.operators.table import FUNCTIONS, MegEngineCall
from opcost.frontends.megengine.schema import NO_AXIS
from opcost.frontends.rows import Means

MOST_LAYERS = 1 << 10  # Layers of the deepest recurrent operator that is believed

# -- matrix products and linear algebra --------------------------------------------------------------------------------

_PACKS = {"MK4": 4, "MK4_DOT": 4, "MK8": 8}


def _unpacked(call: MegEngineCall) -> tuple[Dims, Dims, int]:
    """Both matrices, and the pack in which their elements are stored: (m/p, k/p, p, p) and (k/p, n, p)."""
    left, right = call.dims(0), call.dims(1)
    pack = _PACKS.get(call.attrs.text("format"), 1)
    if pack > 1:
        if len(left) != 4 or len(right) != 3:
            raise Mismatch(f"a packed product takes 4 and 3 axes, not {len(left)} and {len(right)}")
        return (sh.times(left[0], pack), sh.times(left[1], pack)), (sh.times(right[0], pack), right[1]), pack
    if len(left) < 2 or len(right) < 2:
        raise Mismatch("a matrix has two axes")
    return left, right, pack


def _product_shape(call: MegEngineCall) -> Shape:
    left, right, pack = _unpacked(call)
    found = sh.matmul(left, right, transpose_a=call.attrs.flag("transposeA"), transpose_b=call.attrs.flag("transposeB"))
    if pack > 1:
        return (sh.divided(found[-2], pack), found[-1], pack)
    return found


def _product(call: MegEngineCall) -> Means:
    left, right, _ = _unpacked(call)
    depth = left[-2 if call.attrs.flag("transposeA") else -1]
    if depth is None:
        depth = right[-1 if call.attrs.flag("transposeB") else -2]
    return "matmul", {} if depth is None else {"depth": depth}


def _square(call: MegEngineCall) -> Shape:
    dims = call.dims(0)
    if len(dims) < 2 or (None not in dims[-2:] and dims[-1] != dims[-2]):
        raise Mismatch("a square matrix is needed")
    return dims


def _svd_shapes(call: MegEngineCall) -> list[Shape]:
    *batch, rows, columns = call.dims(0)
    least = None if rows is None or columns is None else min(rows, columns)
    if not call.attrs.flag("compute_uv"):
        return [(*batch, least)]
    full = call.attrs.flag("full_matrices")
    return [(*batch, rows, rows if full else least), (*batch, least), (*batch, columns if full else least, columns)]


def _cross_shape(call: MegEngineCall) -> Shape:
    dims = call.dims(0)
    axis = sh.axis_of(call.attrs.integer("axisa"), len(dims))
    return sh.inserted(sh.replaced(dims, axis), call.attrs.integer("axisc"), dims[axis])


# -- attention in one operator: projections, scores, their softmax, the weighted values, the last projection -----------


def _attention(call: MegEngineCall) -> tuple[list[Shape], list[Extent]]:
    """The shapes of all results, and the products: scores, weighted values, projections; a size of 0 is no projection.

    Inputs are queries, keys and values as (batch, length, features), then all weights in one. The results are the values,
    the weights of the attention, and two stores for a backward pass.
    """
    (batch, queries, q), (_, length, k), value = (call.ranked(index, 3) for index in range(3))
    more = (call.attrs.text("tensor_combination_type") in ("ONLY_BIASKV", "ALL")) + call.attrs.flag("add_zero_attn")
    keys, v = sh.total((length, more)), call.attrs.integer("vproj_size") or value[2]
    sizes = {"q": call.attrs.integer("qproj_size") or q, "k": call.attrs.integer("kproj_size") or k, "v": v}
    out = call.attrs.integer("oproj_size") or v
    terms = [sh.product((batch, queries, keys, size)) for size in (sizes["q"], v)]
    for index, (name, size) in enumerate(sizes.items()):
        if call.attrs.integer(f"{name}proj_size"):
            terms.append(sh.product((*call.dims(index), size)))
    if call.attrs.integer("oproj_size"):
        terms.append(sh.product((batch, queries, v, out)))
    heads = sh.product((batch, call.attrs.integer("num_heads")))
    return [(batch, queries, out), (heads, queries, keys), (None,), (None,)], terms


def _attention_products(call: MegEngineCall) -> Means:
    """All products; the softmax between them is not among the FLOPs."""
    terms = _attention(call)[1]
    if None in terms:
        return "unknown", {}
    return "matmul", {"macs": sum(term or 0 for term in terms), "bias": call.attrs.flag("obias")}


# -- recurrent layers, and single steps of them ------------------------------------------------------------------------

_PLAIN_CELLS = {"RELU": "rnn_relu", "TANH": "rnn_tanh"}


def _directions(call: MegEngineCall) -> int:
    return 2 if call.attrs.flag("bidirectional") else 1


def _layer_shapes(call: MegEngineCall) -> list[Shape]:
    """x (time, batch, features) and the states; the results are y, the new states, and what a backward pass would need.

    For a backward pass a CPU sets aside the bytes of every state, given as that many elements.
    """
    (steps, batch, _), state = call.ranked(0, 3), call.ranked(1, 3)
    states = [call.dims(index) for index in range(1, len(call.outs) - 1)]
    kept = _directions(call) * (2 if call.type == "LSTM" else 1) * bits(call.dtype()) // 8
    per_step = kept * call.attrs.integer("num_layers") * call.attrs.integer("hidden_size")
    return [(steps, batch, sh.times(state[2], _directions(call))), *states, (sh.product((steps, batch, per_step)),)]


def _layers(call: MegEngineCall) -> Means:
    steps, batch, features = call.ranked(0, 3)
    hidden = call.ranked(1, 3)[2]
    elements = sh.product((steps, batch))
    if elements is None or features is None or hidden is None:
        return "recurrent", {"cell": _cell(call)}
    count = call.attrs.integer("num_layers")
    if not 0 < count <= MOST_LAYERS:
        raise Mismatch(f"{count} layers are not plausible")
    projected = call.attrs.integer("proj_size") or hidden
    first = ((features, hidden, projected),) * _directions(call)
    inner = ((_directions(call) * projected, hidden, projected),) * _directions(call)
    layers = first + inner * (count - 1)
    return "recurrent", {"cell": _cell(call), "steps": elements, "layers": layers, "bias": call.attrs.flag("bias")}


def _layer_results(call: MegEngineCall) -> tuple[int, ...]:
    known = None not in (*call.dims(0), call.dims(1)[2])
    return tuple(range(len(call.outs) - 1)) if known else (0,)


def _cell(call: MegEngineCall) -> str:
    if call.type.startswith("LSTM"):
        return "lstm"
    mode = call.attrs.text("nonlineMode")
    if mode not in _PLAIN_CELLS:
        raise Mismatch(f"a recurrent layer with {mode or 'no'} activation is not known")
    return _PLAIN_CELLS[mode]


def _step(call: MegEngineCall) -> Means:
    """x, weight_ih, bias_ih, h, weight_hh, bias_hh, and c of an LSTM, which gives the two new states and the gates."""
    batch, features = call.ranked(0, 2)
    hidden: Extent = call.ranked(3, 2)[1]
    if batch is None or features is None or hidden is None:
        return "recurrent", {"cell": "lstm"}
    mode, lstm = call.attrs.text("nonlineMode"), call.type == "LSTMCell"
    if not lstm and mode == "IDENTITY":
        # Two products and three additions without a function: no cell, but a matrix product.
        return "matmul", {"depth": features + hidden, "bias": True, "then": ("add", "add")}
    cell = "lstm" if lstm else _PLAIN_CELLS.get(mode, "rnn_relu")
    return "recurrent", {"cell": cell, "steps": batch, "layers": ((features, hidden, hidden),), "bias": True}


# -- norms: results after the first, such as mean and deviation, are kept for a backward pass --------------------------


def _norm_shapes(call: MegEngineCall) -> list[Shape]:
    """The result, and a mean and a deviation for everything that is normalized together."""
    x, attrs = call.dims(0), call.attrs
    begin, end = attrs.integer("axis_start"), attrs.integer("axis_end")
    if call.type == "LayerNorm":
        begin, end = len(x) - attrs.integer("normalized_dim"), len(x)
        if begin < 0:
            raise Mismatch(f"{end - begin} axes cannot be normalized where there are {end}")
    kept = (*x[:begin], *x[end:])
    return [x, kept, kept]


# -- pools: with a window, to a given size, and over regions -----------------------------------------------------------

_WINDOWED = {"MAX": "max", "AVERAGE": "avg", "AVERAGE_COUNT_EXCLUDE_PADDING": "avg"}


def _pool_shape(call: MegEngineCall) -> Shape:
    x = call.ranked(0, 4, 5)
    layout = image(call.format)
    return layout.resized(x, call.window(layout.plane(x), call.per_axis("window")).swept())


def _pool(call: MegEngineCall) -> Means:
    kernel = call.per_axis("window")
    attrs: dict[str, Attr] = {"fn": _WINDOWED.get(call.attrs.text("mode"), "avg"), "window": prod(kernel)}
    if call.type == "PoolingBackward":  # x, y and the gradient of y are the inputs
        return "pool", {**attrs, "grad": True}
    return "pool", {**attrs, "kernel": kernel, "stride": call.per_axis("stride")}


def plane(target: Dims) -> Dims:
    """Height and width, as an input gives them."""
    if len(target) != 2:
        raise Mismatch(f"height and width are needed, not {len(target)} numbers")
    return target


def _adaptive_shape(call: MegEngineCall) -> Shape:
    x = call.ranked(0, 4, 5)
    target = call.target(1)
    return image(call.format).resized(x, plane(target * 2 if len(target) == 1 else target))


def _adaptive_fn(call: MegEngineCall) -> str:
    return "adaptive_max" if call.attrs.text("mode") == "MAX" else "adaptive_avg"


def _adaptive(call: MegEngineCall) -> Means:
    layout, y = image(call.format), call.outs[0]
    kernel, stride = sh.adaptive_windows(layout.plane(call.dims(0)), layout.plane(y) if y is not None else (None, None))
    if len(kernel) != 2:  # a size that depends on data makes the cost unknown, whatever the window is
        return "pool", {"fn": _adaptive_fn(call), "window": 1}
    return "pool", {"fn": _adaptive_fn(call), "window": prod(kernel), "kernel": kernel, "stride": stride}


def _pooled_regions(call: MegEngineCall) -> list[Shape]:
    x, regions = call.ranked(0, 4), call.dims(1)
    shape = (regions[0], x[1], *plane(call.target(2)))
    return [shape, shape]


def _region_pool(call: MegEngineCall) -> Means:
    """Regions are in data; a window is taken as its share of the whole image."""
    x, y = call.dims(0), call.outs[0]
    return "pool", {"fn": _adaptive_fn(call), "window": 1 if y is None else prod(sh.adaptive_windows(x[2:], y[2:])[0])}


# -- reductions and sorts ----------------------------------------------------------------------------------------------

_REDUCTIONS = {"SUM": "sum", "SUM_SQR": "dot", "PRODUCT": "prod", "MIN": "min", "MAX": "max", "MEAN": "mean"}
_RESULTS = {"FLOAT_O32xC32": "float32", "FLOAT_O16xC32": "float16", "QUINT_I8xO32": "qint32", "QINT_I8xO32": "qint32"}


def _along(call: MegEngineCall) -> Shape:
    """One axis to extent 1."""
    return sh.reduced(call.dims(0), [call.attrs.integer("axis")], keepdims=True)


def _reduce_shape(call: MegEngineCall) -> Shape:
    """One axis to extent 1, or all axes to the shape that a second input names."""
    if len(call.ins) > 1:
        return call.target(1)
    return (1,) if call.attrs.integer("axis") == NO_AXIS else _along(call)


def _reduce(call: MegEngineCall) -> Means:
    fn = _REDUCTIONS.get(call.attrs.text("mode"))
    return ("reduce", {"fn": fn}) if fn else ("unknown", {})


def _top_shapes(call: MegEngineCall) -> list[Shape]:
    """The best of each row; a negative number selects the largest."""
    rows, length = call.ranked(0, 2)
    if call.attrs.text("mode") == "KTH_ONLY":
        return [(rows,)]
    wanted = call.first(1)
    kept = None if wanted is None or length is None else min(abs(wanted), length)
    return [(rows, kept), (rows, kept)]


def _sort(call: MegEngineCall) -> Means:
    length = call.dims(0)[-1]
    attrs: dict[str, Attr] = {"length": 1 if length is None else length}
    if call.type == "TopK" and (wanted := call.first(1)) is not None:
        attrs["selected"] = abs(wanted)
    return "sort", attrs


def _suppression(call: MegEngineCall) -> Means:
    raise Mismatch("how many pairs of boxes are compared depends on data")


FUNCTIONS.update(
    one=lambda call: (1,),
    dot=lambda call: ("matmul", {"depth": max(sh.product(call.dims(index)) or 1 for index in (0, 1))}),
    attention_shapes=lambda call: _attention(call)[0],
    # statistics first, the result last; at inference there are no running statistics
    batch_norm_shapes=lambda call: [*[call.dims(1)] * (4 if len(call.outs) == 6 else 2), (0,), call.dims(0)],
    training=lambda call: {"training": call.attrs.text("fwd_mode") == "TRAINING"},
    batch_norm_types=lambda call: [*([call.dtype(1)] * (len(call.outs) - 2)), "uint8", call.dtype()],
    last_result=lambda call: (len(call.outs) - 1,),
    softmax_gradient=lambda call: ("softmax", {"grad": True}),
    reduce_type=lambda call: [_RESULTS.get(call.attrs.text("data_type"), call.dtype())],
    nonzero=lambda call: (len(call.dims(0)), None),
)
