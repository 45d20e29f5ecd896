"""Reductions, normalizations, pools, interpolations, sorting, transforms and losses."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from opcost.core.graph import NO_ATTRS, Attr
from opcost.core.shapes import Dims, Extent, Shape, Unknown, axes_of, axis_of, complete, known, reduced, replaced
from opcost.frontends.nodes.call import Call, Made, Meaning, Out, fitting, numel, result
from opcost.frontends.nodes.meanings import common
from opcost.frontends.onnx.operators.contraction import window
from opcost.frontends.onnx.table import MICROSOFT, NCHWC, handles

_REDUCTIONS = {
    "ReduceSum": "sum", "ReduceMean": "mean", "ReduceMax": "max", "ReduceMin": "min", "ReduceProd": "prod", "ReduceL1": "norm",
    "ReduceL2": "norm", "ReduceLogSum": "sum", "ReduceLogSumExp": "logsumexp", "ReduceSumSquare": "norm",
    "ReduceSumInteger": "sum", "QLinearReduceMean": "mean",
}  # fmt: skip


@handles(*_REDUCTIONS)
@handles("ReduceSumInteger", "QLinearReduceMean", domains=(MICROSOFT,))
def _reduce(call: Call) -> Meaning:
    x, name = call[0], call.node.op
    axes = call.integers("axes", 1)
    if not axes and call.flag("noop_with_empty_axes"):
        return Meaning("view", NO_ATTRS, [Out(x.shape, x.dtype, x.content, x)], [x])
    shape = reduced(x.dims, axes or None, keepdims=call.flag("keepdims", default=True))
    items = None
    if x.content is not None and len(x.dims) == 1 and None not in x.numbers:
        folded: dict[str, Any] = {"ReduceProd": prod, "ReduceSum": sum, "ReduceMax": max, "ReduceMin": min}
        items = [folded[name](x.numbers)] if name in folded and x.numbers else None
    dtype = "int32" if name == "ReduceSumInteger" else x.dtype
    return Meaning("reduce", {"fn": _REDUCTIONS[name]}, [Out(shape, dtype, fitting(shape, items))], [x])


@handles("ArgMax", "ArgMin")
def _argmax(call: Call) -> Meaning:
    shape = reduced(call[0].dims, (call.whole("axis"),), keepdims=call.flag("keepdims", default=True))
    return result(call, "reduce", {"fn": call.node.op.lower()}, shape, "int64")


@handles("CumSum", "CumProd")
def _running(call: Call) -> Meaning:
    return Meaning("reduce", {"fn": call.node.op.lower()}, [Out(call[0].shape, call[0].dtype)], [call[0]])


# -- normalizations ----------------------------------------------------------------------------------------------------


@handles("BatchNormalization")
def _batch_norm(call: Call) -> Meaning:
    x, mean = call[0], call[3]
    attrs: dict[str, Attr] = {"fn": "batch"}
    if call.flag("training_mode"):
        attrs["training"] = True
    kept = Out(mean.shape, mean.dtype)  # up to four statistics, in older files
    return Meaning("norm", attrs, [Out(x.shape, x.dtype), kept, kept, kept, kept])


_NORMS = {
    "InstanceNormalization": "instance", "GroupNormalization": "group", "LayerNormalization": "layer", "RMSNormalization": "rms",
    "SimplifiedLayerNormalization": "rms", "LRN": "local_response", "LpNormalization": "lp",
    "MeanVarianceNormalization": "instance", "GroupNorm": "group",
}  # fmt: skip


@handles(*_NORMS, domains=("", MICROSOFT))
def _norm(call: Call) -> Meaning:
    x = call[0]
    attrs: dict[str, Attr] = {"fn": _NORMS[call.node.op]}
    if call.node.op == "LRN":
        attrs["window"] = call.whole("size")
    outs = [Out(x.shape, x.dtype)]
    if len(call.node.outputs) > 1:  # mean and inverse deviation
        axis = axis_of(call.whole("axis", -1), len(x.dims))
        kept = Out(reduced(x.dims, range(axis, len(x.dims)), keepdims=True), "float32")
        outs += [kept, kept]
    return Meaning("norm", attrs, outs)


@handles("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", domains=(MICROSOFT,))
def _skip_norm(call: Call) -> Meaning:
    """The sum of two tensors, and a bias, normalized."""
    x, skip = call[0], call[1]
    simple = call.node.op == "SkipSimplifiedLayerNormalization"
    bias = call.at(3 if simple else 4)
    affine = [made for made in (call.at(2), None if simple else call.at(3)) if made is not None]
    added = _summed(call, [x, skip, bias])
    kept = reduced(x.dims, (-1,), keepdims=True)
    outs = [Out(x.shape, x.dtype), Out(kept, "float32"), Out(kept, "float32"), Out(x.shape, x.dtype, home=added)]
    return Meaning("norm", {"fn": "rms" if simple else "layer"}, outs, [added, *affine])


@handles("EmbedLayerNormalization", domains=(MICROSOFT,))
def _embed_norm(call: Call) -> Meaning:
    """Rows of up to three tables looked up, added and normalized."""
    words, segments, table = call[0], call.at(1), call[2]
    shape = (*words.dims, table.dims[-1])
    parts = []
    for place, rows in ((2, words), (3, words), (4, segments)):
        made = call.at(place)
        if made is not None and rows is not None:
            parts += call.step("embedding", NO_ATTRS, [made, rows], [Out(shape, made.dtype)])
    added = _summed(call, parts)
    affine = [made for made in (call.at(5), call.at(6)) if made is not None]
    outs = [Out(shape, table.dtype), Out((words.dims[0],), "int32"), Out(shape, table.dtype, home=added)]
    return Meaning("norm", {"fn": "layer"}, outs, [added, *affine])


def _summed(call: Call, parts: Sequence[Made | None]) -> Made:
    ins = [made for made in parts if made is not None]
    shape = common(ins)
    attrs: dict[str, Attr] = {"fn": "add"}
    if complete(shape):
        attrs["elements"] = numel(shape) * (len(ins) - 1)
    return call.step("elementwise", attrs, ins, [Out(shape, ins[0].dtype)])[0]


# -- windows -----------------------------------------------------------------------------------------------------------

_POOLS = {"MaxPool": "max", "AveragePool": "avg", "LpPool": "lp", "QLinearAveragePool": "avg", "NhwcMaxPool": "max"}


@handles(*_POOLS, domains=("", MICROSOFT, NCHWC))
def _pool(call: Call) -> Meaning:
    x = call[0]
    last = call.node.op.startswith("Nhwc") or call.flag("channels_last")
    kernel = call.integers("kernel_shape") or ()
    over = window(call, kernel, x.dims[1:-1] if last else x.dims[2:])
    space = over.swept(ceil=call.flag("ceil_mode"))
    shape = (x.dims[0], *space, x.dims[-1]) if last else (*x.dims[:2], *space)
    attrs = {"fn": _POOLS[call.node.op], "window": prod(kernel), **over.geometry}
    return Meaning("pool", attrs, [Out(shape, x.dtype), Out(shape, "int64")], [x])


@handles("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool", domains=("", NCHWC))
@handles("QLinearGlobalAveragePool", domains=(MICROSOFT,))
def _global_pool(call: Call) -> Meaning:
    x = call[0]
    last = call.flag("channels_last")
    space = x.dims[1:-1] if last else x.dims[2:]
    ones = (1,) * len(space)
    shape = (x.dims[0], *ones, x.dims[-1]) if last else (*x.dims[:2], *ones)
    fn = {"GlobalMaxPool": "adaptive_max", "GlobalLpPool": "lp"}.get(call.node.op, "adaptive_avg")
    return Meaning("pool", {"fn": fn, "window": prod(known(space))}, [Out(shape, x.dtype)], [x])


@handles("MaxUnpool")
def _unpool(call: Call) -> Meaning:
    x, target = call[0], call.at(2)
    kernel = call.integers("kernel_shape") or ()
    stride, pads = call.integers("strides") or (1,) * len(kernel), call.integers("pads") or (0,) * 2 * len(kernel)
    if target is not None:
        shape: Shape = target.integers
    else:
        around = [pads[at] + pads[at + len(kernel)] for at in range(len(kernel))]
        axes = zip(known(x.dims[2:]), stride, kernel, around, strict=True)
        shape = (*x.dims[:2], *[(n - 1) * s + k - p for n, s, k, p in axes])
    return Meaning("pool", {"fn": "unpool", "window": prod(kernel)}, [Out(shape, x.dtype)], [x, call[1]])


@handles("RoiAlign", "MaxRoiPool")
def _roi(call: Call) -> Meaning:
    x, regions = call[0], call[1]
    if call.node.op == "RoiAlign":
        height, width = call.whole("output_height", 1), call.whole("output_width", 1)
        taps = 4 * max(call.whole("sampling_ratio"), 1) ** 2
        shape: Shape = (regions.dims[0], x.dims[1], height, width)
        return Meaning("sample", {"taps": taps}, [Out(shape, x.dtype)])
    shape = (regions.dims[0], x.dims[1], *(call.integers("pooled_shape") or ()))
    return Meaning("unknown", NO_ATTRS, [Out(shape, x.dtype)])  # how much of x lies under a region is data


@handles("GridSample", domains=("", MICROSOFT))
def _grid_sample(call: Call) -> Meaning:
    x, grid = call[0], call[1]
    rank = len(x.dims) - 2
    taps = {"nearest": 1, "bicubic": 4**rank, "cubic": 4**rank}.get(call.text("mode", "linear"), 2**rank)
    return Meaning("sample", {"taps": taps}, [Out((*x.dims[:2], *grid.dims[1:-1]), x.dtype)])


@handles("AffineGrid")
def _affine_grid(call: Call) -> Meaning:
    batch, _, *space = call[1].integers
    rank = len(space)
    return Meaning("matmul", {"depth": rank + 1}, [Out((batch, *space, rank), call[0].dtype)], [call[0]])


@handles("Resize", "Upsample", domains=("", NCHWC))
def _resize(call: Call) -> Meaning:
    x = call[0]
    shape = _resized(call, x)
    moved = sum(a != b for a, b in zip(x.dims, shape, strict=True))
    mode = call.text("mode", "nearest")
    smooth = {0: "linear", 1: "linear", 2: "bilinear"}.get(moved, "trilinear")
    fn = {"nearest": "nearest", "cubic": "bicubic"}.get(mode, smooth)
    return Meaning("resize", {"fn": fn}, [Out(shape, x.dtype)], [x])


def _resized(call: Call, x: Made) -> Dims:
    axes = axes_of(call.integers("axes"), len(x.dims))
    shape: list[Extent] = list(x.dims)
    sizes = call.at(3)
    if sizes is not None and sizes.shape != (0,):
        given = sizes.integers
        if call.text("keep_aspect_ratio_policy", "stretch") == "stretch":
            for axis, wanted in zip(axes, given, strict=True):
                shape[axis] = wanted
            return tuple(shape)
        pick = min if call.text("keep_aspect_ratio_policy") == "not_larger" else max
        scale = pick(extent / known((x.dims[axis],))[0] for axis, extent in zip(axes, given, strict=True))
        for axis in axes:
            shape[axis] = int(known((x.dims[axis],))[0] * scale + 0.5)
        return tuple(shape)
    place = 1 if call.node.op == "Upsample" or call.version < 11 else 2
    scales = call.attrs.get("scales") or call[place].numbers
    for axis, factor in zip(axes, scales, strict=True):
        extent = shape[axis]
        shape[axis] = None if extent is None or factor is None else int(extent * factor)
    return tuple(shape)


# -- the rest ----------------------------------------------------------------------------------------------------------


@handles("TopK")
def _topk(call: Call) -> Meaning:
    x = call[0]
    axis = axis_of(call.whole("axis", -1), len(x.dims))
    count = call.integers("k", None if "k" in call.attrs else 1)
    shape = replaced(x.dims, axis, count[0] if count else None)
    length = known((x.dims[axis],))[0]
    attrs: dict[str, Attr] = {"length": length, **({"selected": count[0]} if count else {})}
    return Meaning("sort", attrs, [Out(shape, x.dtype), Out(shape, "int64")], [x])


@handles("Unique")
@handles("Unique", domains=(MICROSOFT,))
def _unique(call: Call) -> Meaning:
    x = call[0]
    first: Dims = (None,)
    if "axis" in call.attrs:
        first = replaced(x.dims, axis_of(call.whole("axis"), len(x.dims)), None)
    places = Out((None,), "int64")
    return Meaning("sort", {"length": max(numel(x.shape), 1)}, [Out(first, x.dtype), places, places, places])


@handles("Det")
@handles("Inverse", domains=(MICROSOFT,))
def _linalg(call: Call) -> Meaning:
    shape = call[0].dims[:-2] if call.node.op == "Det" else call[0].dims
    return result(call, "linalg", {"fn": call.node.op.lower()}, shape)


@handles("CDist", domains=(MICROSOFT,))
def _distance(call: Call) -> Meaning:
    return result(call, "distance", NO_ATTRS, (call[0].dims[0], call[1].dims[0]))


@handles("DFT")
def _dft(call: Call) -> Meaning:
    x = call[0]
    at = call.at(2)
    axis = axis_of(call.whole("axis", 1) if at is None else at.integers[0], len(x.dims))
    length = call[1].integers[0] if call.at(1) is not None else known((x.dims[axis],))[0]
    half, back = call.flag("onesided"), call.flag("inverse")
    if half and back and call.at(1) is None:
        length = 2 * (length - 1)
    shape = (*replaced(x.dims, axis, length // 2 + 1 if half and not back else length)[:-1], 1 if half and back else 2)
    return _transformed(call, x, shape, length, real=x.dims[-1] == 1 or half)


@handles("STFT")
def _stft(call: Call) -> Meaning:
    """Frames are multiplied by a window, then transformed."""
    x, step = call[0], call[1].integers[0]
    window, given = call.at(2), call.at(3)
    length = given.integers[0] if given is not None else known(call[2].dims)[0]
    batch, samples = x.dims[0], known((x.dims[1],))[0]
    frames = (samples - length) // step + 1
    cut = call.step("elementwise", {"fn": "mul"}, [x, window], [Out((batch, frames, length), x.dtype)])[0]
    bins = length // 2 + 1 if call.flag("onesided", default=True) else length
    cut = call.step("view", NO_ATTRS, [cut], [Out((batch, frames, length, 1), x.dtype, home=cut)])[0]
    return _transformed(call, cut, (batch, frames, bins, 2), length, real=True)


@handles("Rfft", "Irfft", domains=(MICROSOFT,))
def _real_dft(call: Call) -> Meaning:
    x = call[0]
    if call.whole("signal_ndim", 1) != 1:
        raise Unknown(f"its attribute signal_ndim={call.whole('signal_ndim')} is not supported")
    if call.node.op == "Rfft":
        length = known(x.dims[-1:])[0]
        x = call.step("view", NO_ATTRS, [x], [Out((*x.dims, 1), x.dtype, home=x)])[0]
        return _transformed(call, x, (*x.dims[:-2], length // 2 + 1, 2), length, real=True)
    length = 2 * (known(x.dims[-2:-1])[0] - 1)
    found = _transformed(call, x, (*x.dims[:-2], length, 1), length, real=True)
    return found._replace(outs=[found.outs[0]._replace(shape=(*x.dims[:-2], length))])


def _transformed(call: Call, x: Made, shape: Dims, length: int, *, real: bool) -> Meaning:
    """A Fourier transform of tensors whose last axis holds the real, and maybe the imaginary, part."""
    complex_one = "complex128" if x.dtype == "float64" else "complex64"
    types = [complex_one if dims[-1] == 2 else x.dtype for dims in (x.dims, shape)]
    whole = call.step("view", NO_ATTRS, [x], [Out(x.dims[:-1], types[0], home=x)])
    made = call.step("fft", {"lengths": (length,), "real": real}, whole, [Out(shape[:-1], types[1])])[0]
    return Meaning("view", NO_ATTRS, [Out(shape, x.dtype, home=made)], [made])


@handles("HannWindow", "HammingWindow", "BlackmanWindow")
def _window(call: Call) -> Meaning:
    return Meaning("elementwise", {"fn": "cos"}, [Out((call[0].integers[0],), "float32")], [])


@handles("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss")
def _loss(call: Call) -> Meaning:
    x, target = call[0], call[1]
    fn = "nll" if call.node.op == "NegativeLogLikelihoodLoss" else "cross_entropy"
    shape = target.shape if call.text("reduction", "mean") == "none" else ()
    return Meaning("loss", {"fn": fn}, [Out(shape, x.dtype), Out(x.shape, x.dtype)])


@handles("NonMaxSuppression")
def _suppress(call: Call) -> Meaning:
    """Boxes are sorted by their scores; how many overlaps are compared depends on data and is left out."""
    boxes = call[0].dims[1]
    return Meaning("sort", {"length": max(known((boxes,))[0], 1)}, [Out((None, 3), "int64")], [call[1], call[0]])
