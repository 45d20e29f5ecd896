"""Normalizations, pools, interpolations, sorting, transforms and losses of ONNX."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from opcost.core.graph import NO_ATTRS, Attr
from opcost.core.shapes import Dims, Extent, Shape, Unknown, axes_of, axis_of, known, reduced, replaced
from opcost.frontends.nodes.meaning import NodeCall, Operand, OperatorMeaning, Out
from opcost.frontends.nodes.results import SlidingWindow, numel, one
from opcost.frontends.onnx.operators import MICROSOFT, NCHWC, handles


@handles("BatchNormalization")
def _batch_norm(call: NodeCall) -> OperatorMeaning:
    x, mean = call[0], call[3]
    attrs: dict[str, Attr] = {"fn": "batch", "training": True} if call.flag("training_mode") else {"fn": "batch"}
    kept = Out(mean.shape, mean.dtype)  # up to four statistics, in older files
    return OperatorMeaning("norm", attrs, [Out(x.shape, x.dtype), kept, kept, kept, kept])


_NORMS = {
    "InstanceNormalization": "instance", "GroupNormalization": "group", "LayerNormalization": "layer", "RMSNormalization": "rms",
    "SimplifiedLayerNormalization": "rms", "LRN": "local_response", "LpNormalization": "lp",
    "MeanVarianceNormalization": "instance", "GroupNorm": "group",
}  # fmt: skip


@handles(*_NORMS, domains=("", MICROSOFT))
def _norm(call: NodeCall) -> OperatorMeaning:
    x = call[0]
    attrs: dict[str, Attr] = {"fn": _NORMS[call.node.op]}
    if call.node.op == "LRN":
        attrs["window"] = call.whole("size")
    outs = [Out(x.shape, x.dtype)]
    if len(call.node.outputs) > 1:  # mean and inverse deviation
        axis = axis_of(call.whole("axis", -1), len(x.dims))
        outs += [Out(reduced(x.dims, range(axis, len(x.dims)), keepdims=True), "float32")] * 2
    return OperatorMeaning("norm", attrs, outs)


# -- windows -------------------------------------------------------------------------------------------------------------


class OnnxWindow(SlidingWindow):
    """The window of a node over an image, whose channels may come last."""

    def __init__(self, call: NodeCall, x: Operand, weight: Operand | None = None, *, last: bool = False) -> None:
        kernel = call.integers("kernel_shape") or (weight.dims[2:] if weight is not None else ())
        rank, auto = len(kernel), call.text("auto_pad", "NOTSET")
        pads = (call.integers("pads") if auto == "NOTSET" else None) or ()
        pairs = tuple(zip(pads[:rank], pads[rank:], strict=False))
        stride, dilation = call.integers("strides"), call.integers("dilations")
        space, same = x.dims[1:-1] if last else x.dims[2:], auto in ("SAME_UPPER", "SAME_LOWER")
        super().__init__(kernel, space, stride=stride, dilation=dilation, pads=pairs, same=same)
        self.batch, self.last = x.dims[0], last

    def shape(self, channels: Extent, *, ceil: bool = False) -> Dims:
        """The image of all places that the kernel takes."""
        space = self.swept(ceil=ceil)
        return (self.batch, *space, channels) if self.last else (self.batch, channels, *space)


_POOLS = {"MaxPool": "max", "AveragePool": "avg", "LpPool": "lp", "QLinearAveragePool": "avg", "NhwcMaxPool": "max"}


@handles(*_POOLS, domains=("", MICROSOFT, NCHWC))
def _pool(call: NodeCall) -> OperatorMeaning:
    x, last = call[0], call.node.op.startswith("Nhwc") or call.flag("channels_last")
    over = OnnxWindow(call, x, last=last)
    shape = over.shape(x.dims[-1 if last else 1], ceil=call.flag("ceil_mode"))
    attrs = {"fn": _POOLS[call.node.op], "window": prod(known(over.kernel)), **over.geometry}
    return OperatorMeaning("pool", attrs, [Out(shape, x.dtype), Out(shape, "int64")], [x])


@handles("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool", domains=("", NCHWC))
@handles("QLinearGlobalAveragePool", domains=(MICROSOFT,))
def _global_pool(call: NodeCall) -> OperatorMeaning:
    x, last = call[0], call.flag("channels_last")
    space = x.dims[1:-1] if last else x.dims[2:]
    ones = (1,) * len(space)
    shape = (x.dims[0], *ones, x.dims[-1]) if last else (*x.dims[:2], *ones)
    fn = {"GlobalMaxPool": "adaptive_max", "GlobalLpPool": "lp"}.get(call.node.op, "adaptive_avg")
    return one("pool", {"fn": fn, "window": prod(known(space))}, shape, x.dtype, [x])


@handles("MaxUnpool")
def _unpool(call: NodeCall) -> OperatorMeaning:
    x, target = call[0], call.at(2)
    kernel = call.integers("kernel_shape") or ()
    stride, pads = call.integers("strides") or (1,) * len(kernel), call.integers("pads") or (0,) * 2 * len(kernel)
    if target is not None:
        shape: Shape = target.integers
    else:
        around = [pads[at] + pads[at + len(kernel)] for at in range(len(kernel))]
        axes = zip(known(x.dims[2:]), stride, kernel, around, strict=True)
        shape = (*x.dims[:2], *[(n - 1) * s + k - p for n, s, k, p in axes])
    return one("pool", {"fn": "unpool", "window": prod(kernel)}, shape, x.dtype, [x, call[1]])


@handles("RoiAlign", "MaxRoiPool")
def _roi(call: NodeCall) -> OperatorMeaning:
    x, front = call[0], (call[1].dims[0], call[0].dims[1])
    if call.node.op == "MaxRoiPool":  # how much of x is under a region is data
        return one("unknown", NO_ATTRS, (*front, *(call.integers("pooled_shape") or ())), x.dtype)
    taps = 4 * max(call.whole("sampling_ratio"), 1) ** 2
    shape = (*front, call.whole("output_height", 1), call.whole("output_width", 1))
    return one("sample", {"taps": taps}, shape, x.dtype)


@handles("GridSample", domains=("", MICROSOFT))
def _grid_sample(call: NodeCall) -> OperatorMeaning:
    x, grid = call[0], call[1]
    rank = len(x.dims) - 2
    taps = {"nearest": 1, "bicubic": 4**rank, "cubic": 4**rank}.get(call.text("mode", "linear"), 2**rank)
    return one("sample", {"taps": taps}, (*x.dims[:2], *grid.dims[1:-1]), x.dtype)


@handles("AffineGrid")
def _affine_grid(call: NodeCall) -> OperatorMeaning:
    batch, _, *space = call[1].integers
    return one("matmul", {"depth": len(space) + 1}, (batch, *space, len(space)), call[0].dtype, [call[0]])


@handles("Resize", "Upsample", domains=("", NCHWC))
def _resize(call: NodeCall) -> OperatorMeaning:
    x, sizes, policy = call[0], call.at(3), call.text("keep_aspect_ratio_policy", "stretch")
    axes = axes_of(call.integers("axes"), len(x.dims))
    extents = [x.dims[axis] for axis in axes]
    wanted: Sequence[Extent]
    if sizes is not None and sizes.shape != (0,):
        wanted = sizes.integers
        if policy != "stretch":
            pick = min if policy == "not_larger" else max
            scale = pick(size / n for size, n in zip(sizes.integers, known(tuple(extents)), strict=True))
            wanted = [int(n * scale + 0.5) for n in known(tuple(extents))]
    else:
        place = 1 if call.node.op == "Upsample" or call.version < 11 else 2
        pairs = zip(extents, call.attrs.get("scales") or call[place].numbers, strict=True)
        wanted = [None if n is None or factor is None else int(n * factor) for n, factor in pairs]
    shape: list[Extent] = list(x.dims)
    for axis, size in zip(axes, wanted, strict=True):
        shape[axis] = size
    moved = sum(a != b for a, b in zip(x.dims, shape, strict=True))
    smooth = {0: "linear", 1: "linear", 2: "bilinear"}.get(moved, "trilinear")
    fn = {"nearest": "nearest", "cubic": "bicubic"}.get(call.text("mode", "nearest"), smooth)
    return one("resize", {"fn": fn}, tuple(shape), x.dtype, [x])


# -- sorting, transforms, losses -----------------------------------------------------------------------------------------


@handles("Unique", domains=("", MICROSOFT))
def _unique(call: NodeCall) -> OperatorMeaning:
    x = call[0]
    first: Dims = (None,)
    if "axis" in call.attrs:
        first = replaced(x.dims, axis_of(call.whole("axis"), len(x.dims)), None)
    outs = [Out(first, x.dtype), *[Out((None,), "int64")] * 3]
    return OperatorMeaning("sort", {"length": max(numel(x.shape), 1)}, outs)


@handles("NonMaxSuppression")
def _suppress(call: NodeCall) -> OperatorMeaning:
    """Boxes are sorted by their scores; the number of overlaps that are compared depends on data and is left out."""
    length = max(known((call[0].dims[1],))[0], 1)
    return one("sort", {"length": length}, (None, 3), "int64", [call[1], call[0]])


@handles("Det")
@handles("Inverse", domains=(MICROSOFT,))
def _linalg(call: NodeCall) -> OperatorMeaning:
    x, det = call[0], call.node.op == "Det"
    return one("linalg", {"fn": call.node.op.lower()}, x.dims[:-2] if det else x.dims, x.dtype)


@handles("CDist", domains=(MICROSOFT,))
def _distance(call: NodeCall) -> OperatorMeaning:
    return one("distance", NO_ATTRS, (call[0].dims[0], call[1].dims[0]), call[0].dtype)


@handles("DFT", inputs="x length axis")
def _dft(call: NodeCall) -> OperatorMeaning:
    x = call["x"]
    axis = axis_of(call.whole("axis", 1), len(x.dims))
    given = call.integers("length")
    length = given[0] if given else known((x.dims[axis],))[0]
    half, back = call.flag("onesided"), call.flag("inverse")
    if half and back and not given:
        length = 2 * (length - 1)
    shape = (*replaced(x.dims, axis, length // 2 + 1 if half and not back else length)[:-1], 1 if half and back else 2)
    return _transformed(call, x, shape, length, real=x.dims[-1] == 1 or half)


@handles("STFT")
def _stft(call: NodeCall) -> OperatorMeaning:
    """Frames are multiplied by a window, then transformed."""
    x, step, given = call[0], call[1].integers[0], call.at(3)
    length = given.integers[0] if given is not None else known(call[2].dims)[0]
    batch, samples = x.dims[0], known((x.dims[1],))[0]
    frames = (samples - length) // step + 1
    cut = call.one("elementwise", {"fn": "mul"}, [x, call.at(2)], (batch, frames, length))
    bins = length // 2 + 1 if call.flag("onesided", default=True) else length
    cut = call.viewed(cut, (batch, frames, length, 1))
    return _transformed(call, cut, (batch, frames, bins, 2), length, real=True)


@handles("Rfft", "Irfft", domains=(MICROSOFT,))
def _real_dft(call: NodeCall) -> OperatorMeaning:
    x = call[0]
    if call.whole("signal_ndim", 1) != 1:
        raise Unknown(f"its attribute signal_ndim={call.whole('signal_ndim')} is not supported")
    if call.node.op == "Rfft":
        length = known(x.dims[-1:])[0]
        x = call.viewed(x, (*x.dims, 1))
        return _transformed(call, x, (*x.dims[:-2], length // 2 + 1, 2), length, real=True)
    length = 2 * (known(x.dims[-2:-1])[0] - 1)
    found = _transformed(call, x, (*x.dims[:-2], length, 1), length, real=True)
    return found._replace(outs=[found.outs[0]._replace(shape=(*x.dims[:-2], length))])


def _transformed(call: NodeCall, x: Operand, shape: Dims, length: int, *, real: bool) -> OperatorMeaning:
    """A Fourier transform of tensors whose last axis holds the real, and maybe the imaginary, part."""
    complex_one = "complex128" if x.dtype == "float64" else "complex64"
    types = [complex_one if dims[-1] == 2 else x.dtype for dims in (x.dims, shape)]
    whole = call.step("view", NO_ATTRS, [x], [Out(x.dims[:-1], types[0], home=x)])
    made = call.one("fft", {"lengths": (length,), "real": real}, whole, shape[:-1], types[1])
    return OperatorMeaning("view", NO_ATTRS, [Out(shape, x.dtype, home=made)], [made])


@handles("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss")
def _loss(call: NodeCall) -> OperatorMeaning:
    x, target = call[0], call[1]
    fn = "nll" if call.node.op == "NegativeLogLikelihoodLoss" else "cross_entropy"
    shape = target.shape if call.text("reduction", "mean") == "none" else ()
    return OperatorMeaning("loss", {"fn": fn}, [Out(shape, x.dtype), Out(x.shape, x.dtype)])
