"""Reductions, pools, normalizations, interpolations, sorting and transforms."""

from __future__ import annotations

from typing import Any

from opcost.core.graph import NO_ATTRS
from opcost.core.shapes import Shape, axis_of, known, reduced, replaced, windows
from opcost.frontends.nodes.call import Call, Made, Meaning, Out, fitting, numel
from opcost.frontends.tflite.operators.contraction import window
from opcost.frontends.tflite.table import activated, handles

_REDUCTIONS = {
    "MEAN": "mean", "SUM": "sum", "REDUCE_PROD": "prod", "REDUCE_MAX": "max", "REDUCE_MIN": "min", "REDUCE_ANY": "any",
    "REDUCE_ALL": "all",
}  # fmt: skip
_FOLDED: dict[str, Any] = {"SUM": sum, "REDUCE_MAX": max, "REDUCE_MIN": min, "REDUCE_ANY": any, "REDUCE_ALL": all}


@handles(*_REDUCTIONS)
def _reduce(call: Call) -> Meaning:
    x, name = call[0], call.node.op
    shape = reduced(x.dims, call[1].integers, keepdims=call.flag("keep_dims"))
    items = None
    if x.content is not None and numel(shape) == 1 and x.numbers and None not in x.numbers:
        product = 1
        for number in x.numbers:
            product *= number  # type: ignore[assignment,operator]
        items = [product] if name == "REDUCE_PROD" else [_FOLDED[name](x.numbers)] if name in _FOLDED else None
    return Meaning("reduce", {"fn": _REDUCTIONS[name]}, [Out(shape, x.dtype, fitting(shape, items))], [x])


@handles("ARG_MAX", "ARG_MIN")
def _arg(call: Call) -> Meaning:
    shape = reduced(call[0].dims, call[1].integers)
    return Meaning("reduce", {"fn": call.node.op.lower().replace("_", "")}, [Out(shape, call.out_dtype)], [call[0]])


@handles("CUMSUM")
def _running(call: Call) -> Meaning:
    x = call[0]
    return Meaning("reduce", {"fn": "cumsum"}, [Out(x.shape, x.dtype)], [x])


@handles("STABLEHLO_REDUCE")
def _reduce_by_graph(call: Call) -> Meaning:
    """Each of the first half of the inputs is reduced, whatever the little graph does with two elements: one operation."""
    count = len(call.given) // 2
    outs = [Out(reduced(made.dims, call.attrs["dims"]), made.dtype) for made in call.given[:count]]
    return Meaning("reduce", {"fn": "sum", "each": True}, outs, call.given[:count])


@handles("STABLEHLO_REDUCE_WINDOW", "REDUCE_WINDOW")
def _reduce_window(call: Call) -> Meaning:
    x = call[0]
    if call.node.op == "REDUCE_WINDOW":
        window, strides, dilations = call[2].integers, call[3].integers, call[4].integers
        spread, pads = (1,) * len(window), (0,) * (2 * len(window))
    else:
        window, ones = call.attrs["window"], (1,) * len(call.attrs["window"])
        strides, dilations, spread = (call.attrs[name] or ones for name in ("strides", "dilations", "base"))
        pads = call.attrs["padding"] or (0,) * (2 * len(window))
    shape = []
    for axis, extent in enumerate(x.dims):
        grown = None if extent is None else (extent - 1) * spread[axis] + 1
        around = (pads[2 * axis], pads[2 * axis + 1])
        shape.append(windows(grown, window[axis], stride=strides[axis], dilation=dilations[axis], padding=around))
    taken = 1
    for extent in window:
        taken *= extent
    return Meaning("pool", {"fn": "max", "window": taken}, [Out(tuple(shape), x.dtype)], [x])


# -- windows -----------------------------------------------------------------------------------------------------------

_POOLS = {"AVERAGE_POOL_2D": "avg", "MAX_POOL_2D": "max", "L2_POOL_2D": "lp"}


@handles(*_POOLS)
def _pool(call: Call) -> Meaning:
    x = call[0]
    kernel = (call.whole("filter_h"), call.whole("filter_w"))
    over = window(call, x.dims[1:-1], kernel, "hw")
    attrs: dict[str, Any] = {"fn": _POOLS[call.node.op], "window": kernel[0] * kernel[1], **over.geometry}
    return activated(call, Meaning("pool", attrs, [Out((x.dims[0], *over.swept(), x.dims[-1]), x.dtype)], [x]))


@handles("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR")
def _resize(call: Call) -> Meaning:
    x = call[0]
    fn = "bilinear" if call.node.op == "RESIZE_BILINEAR" else "nearest"
    return Meaning("resize", {"fn": fn}, [Out((x.dims[0], *call[1].integers, x.dims[-1]), x.dtype)], [x])


@handles("L2_NORMALIZATION", "LOCAL_RESPONSE_NORMALIZATION")
def _norm(call: Call) -> Meaning:
    x = call[0]
    attrs: dict[str, Any] = {"fn": "lp"}
    if call.node.op == "LOCAL_RESPONSE_NORMALIZATION":
        attrs = {"fn": "local_response", "window": 2 * call.whole("radius") + 1}
    return activated(call, Meaning("norm", attrs, [Out(x.shape, x.dtype)]))


# -- the rest ----------------------------------------------------------------------------------------------------------


@handles("TOPK_V2")
def _topk(call: Call) -> Meaning:
    x, count = call[0], call[1].integers[0]
    shape = replaced(x.dims, len(x.dims) - 1, count)
    attrs: dict[str, Any] = {"length": known(x.dims[-1:])[0], "selected": count}
    return Meaning("sort", attrs, [Out(shape, x.dtype), Out(shape, "int32")], [x])


@handles("STABLEHLO_SORT")
def _sort(call: Call) -> Meaning:
    length = known((call[0].dims[axis_of(call.whole("axis"), len(call[0].dims))],))[0]
    return Meaning("sort", {"length": max(length, 1)}, [Out(made.shape, made.dtype) for made in call.given])


@handles("UNIQUE")
def _unique(call: Call) -> Meaning:
    x = call[0]
    return Meaning("sort", {"length": max(numel(x.shape), 1)}, [Out((None,), x.dtype), Out(x.shape, "int32")])


@handles("BUCKETIZE")
def _bucketize(call: Call) -> Meaning:
    length = len(call.attrs.get("boundaries", ()))
    return Meaning("sort", {"length": max(length, 1)}, [Out(call[0].shape, "int32")], [call[0]])


@handles("NON_MAX_SUPPRESSION_V4", "NON_MAX_SUPPRESSION_V5")
def _suppress(call: Call) -> Meaning:
    """Boxes are sorted by their scores; how many overlaps are compared depends on data and is left out."""
    boxes, most = call[0], call[2]
    kept: Shape = (int(most.numbers[0]) if most.content and most.numbers[0] is not None else None,)
    outs = [Out(kept, "int32"), *[Out(kept, "float32")] * call.node.op.endswith("V5"), Out((), "int32")]
    return Meaning("sort", {"length": max(known(boxes.dims[:1])[0], 1)}, outs, [call[1], boxes])


@handles("RFFT2D")
def _rfft(call: Call) -> Meaning:
    x, (rows, columns) = call[0], call[1].integers
    shape = (*x.dims[:-2], rows, columns // 2 + 1)
    attrs: dict[str, Any] = {"lengths": (rows, columns), "real": True}
    return Meaning("fft", attrs, [Out(shape, "complex64")], [x])


_SEGMENTS = {"SUM": "add", "PROD": "mul", "MAX": "max", "MIN": "min"}


@handles("SEGMENT_SUM", *(f"UNSORTED_SEGMENT_{name}" for name in _SEGMENTS))
def _segment(call: Call) -> Meaning:
    """Rows with the same number are combined."""
    x, ids = call[0], call[1]
    count = None
    if call.node.op == "SEGMENT_SUM":
        count = int(ids.integers[-1]) + 1 if ids.content and ids.numbers and None not in ids.numbers else None
    elif call[2].content is not None:
        count = call[2].integers[0]
    shape = (count, *x.dims[len(ids.dims) :])
    fn = _SEGMENTS[call.node.op.rpartition("_")[2]]
    return Meaning("scatter", {"fn": fn, "elements": numel(x.shape)}, [Out(shape, x.dtype)], [x, ids])


def _drawn(call: Call, shape: Shape) -> Meaning:
    return Meaning("random", NO_ATTRS, [Out(shape, call.out_dtype)], [])


@handles("RANDOM_STANDARD_NORMAL", "RANDOM_UNIFORM")
def _random(call: Call) -> Meaning:
    return _drawn(call, call[0].integers)


@handles("MULTINOMIAL", "STABLEHLO_RNG_BIT_GENERATOR")
def _draw(call: Call) -> Meaning:
    if call.node.op == "MULTINOMIAL":
        return _drawn(call, (call[0].dims[0], call[1].integers[0]))
    state: Made = call[0]
    return Meaning("random", NO_ATTRS, [Out(state.shape, state.dtype), Out(None, call.out_dtype)], [state])
