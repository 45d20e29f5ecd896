"""Normalizations, interpolations, sorting, transforms and losses of ONNX."""

from collections.abc import Sequence
from math import prod

from opcost.core.graph import NO_ATTRS, Attr
from opcost.core.shapes import Dims, Extent, Shape, Unknown, axes_of, axis_of, known, reduced, replaced
from opcost.frontends.nodes.meaning import Handler, NodeCall, Operand, OperatorMeaning, Out
from opcost.frontends.nodes.operators import suppressed
from opcost.frontends.nodes.results import like, numel, one

EXPRESSIONS: dict[str, Handler] = {
    "non_max_suppression": lambda call: suppressed(call, [Out((None, 3), "int64")]),
    "det": lambda call: one("linalg", {"fn": "det"}, call["x"].dims[:-2], call["x"].dtype),
    "inverse": lambda call: like(call["x"], "linalg", {"fn": "inverse"}),
    "cdist": lambda call: one("distance", NO_ATTRS, (call["a"].dims[0], call["b"].dims[0]), call["a"].dtype),
}
"""Handlers of one expression each, by their names."""


def _batch_norm(call: NodeCall) -> OperatorMeaning:
    x, mean = call[0], call[3]
    attrs: dict[str, Attr] = {"fn": "batch", "training": True} if call.flag("training_mode") else {"fn": "batch"}
    kept = Out(mean.shape, mean.dtype)  # up to four statistics, in older files
    return OperatorMeaning("norm", attrs, [Out(x.shape, x.dtype), kept, kept, kept, kept])


def _norm(call: NodeCall) -> OperatorMeaning:
    x = call[0]
    attrs: dict[str, Attr] = {"fn": call.text("fn")}
    if call.node.op == "LRN":
        attrs["window"] = call.whole("size")
    outs = [Out(x.shape, x.dtype)]
    if len(call.node.outputs) > 1:  # mean and inverse deviation
        axis = axis_of(call.whole("axis", -1), len(x.dims))
        outs += [Out(reduced(x.dims, range(axis, len(x.dims)), keepdims=True), "float32")] * 2
    return OperatorMeaning("norm", attrs, outs)


# -- windows and places -------------------------------------------------------------------------------------------------


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


def _roi_align(call: NodeCall) -> OperatorMeaning:
    taps = 4 * max(call.whole("sampling_ratio"), 1) ** 2
    space = call.whole("output_height", 1), call.whole("output_width", 1)
    return one("sample", {"taps": taps}, (call["rois"].dims[0], call["x"].dims[1], *space), call["x"].dtype)


def _roi_pool(call: NodeCall) -> OperatorMeaning:
    """How much of x is under a region is data."""
    space = call.integers("pooled_shape") or ()
    return one("unknown", NO_ATTRS, (call["rois"].dims[0], call["x"].dims[1], *space), call["x"].dtype)


def _grid_sample(call: NodeCall) -> OperatorMeaning:
    x, grid = call[0], call[1]
    rank = len(x.dims) - 2
    taps = {"nearest": 1, "bicubic": 4**rank, "cubic": 4**rank}.get(call.text("mode", "linear"), 2**rank)
    return one("sample", {"taps": taps}, (*x.dims[:2], *grid.dims[1:-1]), x.dtype)


def _affine_grid(call: NodeCall) -> OperatorMeaning:
    batch, _, *space = call[1].integers
    return one("matmul", {"depth": len(space) + 1}, (batch, *space, len(space)), call[0].dtype, [call[0]])


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


def _unique(call: NodeCall) -> OperatorMeaning:
    x = call[0]
    first: Dims = (None,)
    if "axis" in call.attrs:
        first = replaced(x.dims, axis_of(call.whole("axis"), len(x.dims)), None)
    outs = [Out(first, x.dtype), *[Out((None,), "int64")] * 3]
    return OperatorMeaning("sort", {"length": max(numel(x.shape), 1)}, outs)


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


def _rfft(call: NodeCall) -> OperatorMeaning:
    """Along one axis, of real numbers, or back to them."""
    x, axes = call["x"], call.whole("signal_ndim", 1)
    if axes != 1:
        raise Unknown(f"its attribute signal_ndim={axes} is not supported")
    if call.node.op == "Rfft":
        length = known(x.dims[-1:])[0]
        return _transformed(call, call.viewed(x, (*x.dims, 1)), (*x.dims[:-1], length // 2 + 1, 2), length, real=True)
    front, length = x.dims[:-2], 2 * (known(x.dims[-2:-1])[0] - 1)
    found = _transformed(call, x, (*front, length, 1), length, real=True)
    return found._replace(outs=[found.outs[0]._replace(shape=(*front, length))])


def _transformed(call: NodeCall, x: Operand, shape: Dims, length: int, *, real: bool) -> OperatorMeaning:
    """A Fourier transform of tensors whose last axis holds the real, and maybe the imaginary, part."""
    complex_one = "complex128" if x.dtype == "float64" else "complex64"
    types = [complex_one if dims[-1] == 2 else x.dtype for dims in (x.dims, shape)]
    whole = call.step("view", NO_ATTRS, [x], [Out(x.dims[:-1], types[0], home=x)])
    made = call.one("fft", {"lengths": (length,), "real": real}, whole, shape[:-1], types[1])
    return OperatorMeaning("view", NO_ATTRS, [Out(shape, x.dtype, home=made)], [made])


def _loss(call: NodeCall) -> OperatorMeaning:
    x, target = call["x"], call["target"]
    shape = target.shape if call.text("reduction", "mean") == "none" else ()
    return OperatorMeaning("loss", {"fn": call.text("fn")}, [Out(shape, x.dtype), Out(x.shape, x.dtype)])
