"""Images: interpolation, warping, colours, regions of interest, windows laid out."""

from __future__ import annotations

from opcost.core.graph import NO_ATTRS
from opcost.core.shapes import Dims, Extent, Mismatch, Shape, product, replaced, swapped
from opcost.frontends.megengine.operators.convolution import image
from opcost.frontends.megengine.operators.layers import plane
from opcost.frontends.megengine.operators.table import Means, OperatorCall, Row, alike, same

_PLANE = {"NEAREST": "nearest", "LINEAR": "bilinear", "CUBIC": "bicubic", "AREA": "area"}
_TAPS = {"NEAREST": 1, "LINEAR": 4, "CUBIC": 16, "LANCZOS4": 64}  # Source elements under one element of the result
_BILINEAR_TAPS = 4


def _resized(call: OperatorCall, target: Dims, batch: Extent) -> Shape:
    """x with a new height and width."""
    x, layout = call.ranked(0, 4, 5), image(call.format)
    return layout.resized(replaced(x, layout.batch, batch), plane(target))


def _resize(call: OperatorCall) -> Means:
    mode = call.word("imode")
    if mode == "LANCZOS4":
        return "resize", {"fn": "bicubic", "taps": _TAPS[mode]}
    return "resize", {"fn": _PLANE.get(mode, "bilinear")}


def _resize_3d_shapes(call: OperatorCall) -> list[Shape]:
    x, target = call.ranked(0, 5), call.target(1)
    if len(target) != 3:
        raise Mismatch(f"depth, height and width are needed, not {len(target)} numbers")
    return [(*x[:2], *target)]


def _warp_shapes(call: OperatorCall) -> list[Shape]:
    """x, a matrix for each result, [which image each matrix warps], and the size; packed layouts may change."""
    target, matrices = call.target(len(call.ins) - 1), call.ranked(1, 3)
    form = call.word("format")
    if "_" in form and form != "NCHW44_DOT":
        x = call.ranked(0, 4, 5)
        source, _, packed = form.partition("_")
        after = image("NCHW4" if "NCHW4" in packed else packed)
        return [after.shape(matrices[0], image(source).channel_count(x), target)]
    return [_resized(call, target, matrices[0])]


def _sample(call: OperatorCall) -> Means:
    """Positions are worked out once for all channels; each element of the result is made of some of the source."""
    return "sample", {"taps": _TAPS.get(call.word("imode"), _BILINEAR_TAPS)}


# -- regions -----------------------------------------------------------------------------------------------------------


def _region_shapes(call: OperatorCall) -> list[Shape]:
    """One small image for every region, and what a backward pass would need.

    Of position-sensitive regions each part reads its own channels, or all of them where nothing is shifted.
    """
    x, regions = call.ranked(0, 4), call.ranked(1, 2)
    names = ("pooled_height", "pooled_width") if call.type == "ROIAlign" else ("pooled_h", "pooled_w")
    shape = (regions[0], x[1], *map(call.whole, names))
    return [shape, shape]


def _region(call: OperatorCall) -> Means:
    """Every result takes samples on a grid of its own, each interpolated."""
    if call.type == "ROIAlign":
        samples = call.whole("sample_height") * call.whole("sample_width")
    else:
        samples = call.whole("sample_per_part") ** 2
    return "sample", {"taps": _BILINEAR_TAPS * max(samples, 1)}


# -- windows -----------------------------------------------------------------------------------------------------------


def _window_shapes(call: OperatorCall) -> list[Shape]:
    batch, channels, *space = call.ranked(0, 4)
    windows = call.per_axis("window")
    return [(batch, channels, *call.windows(space, windows), *windows)]


def _overlap(call: OperatorCall) -> Means:
    """Windows are added where they overlap."""
    elements = product(call.dims(0))
    return "elementwise", {"fn": "add"} if elements is None else {"fn": "add", "elements": elements}


# -- other -------------------------------------------------------------------------------------------------------------


def _correlation_shapes(call: OperatorCall) -> list[Shape]:
    batch, _, *space = call.ranked(0, 4)
    reach, kernel = call.whole("max_displacement"), call.whole("kernel_size")
    border = reach + (kernel - 1) // 2
    more, stride = 2 * call.whole("pad_size") - 2 * border, call.whole("stride1") or 1
    counts = [None if extent is None else max(-(-(extent + more) // stride), 0) for extent in space]
    return [(batch, (2 * (reach // (call.whole("stride2") or 1)) + 1) ** 2, *counts)]


def _correlation(call: OperatorCall) -> Means:
    """Each result sums products (or absolute differences) over all channels under a kernel."""
    channels = call.dims(0)[1]
    return "matmul", NO_ATTRS if channels is None else {"depth": channels * call.whole("kernel_size") ** 2}


_COLOURS = dict.fromkeys((0, 6, 8), 1) | dict.fromkeys((1, 2, 3, 4, 5, 7, 9, 11, 12, 22, 23), 3)
"""Channels after; half-height images hold luminance and chrominance one below the other."""
_PLANAR_TO_GRAY = (10, 13, 16, 19)


def _colour_shapes(call: OperatorCall) -> list[Shape]:
    batch, height, width, _ = call.ranked(0, 4)
    mode = call.whole("mode")
    if mode in _COLOURS:
        return [(batch, height, width, _COLOURS[mode])]
    rows = None if height is None else height * 2 // 3
    return [(batch, rows, width, 1 if mode in _PLANAR_TO_GRAY else 3)]


def _colour(call: OperatorCall) -> Means:
    """A weighted sum of three channels for each element; where channels are only swapped or dropped, a copy."""
    if call.whole("mode") in (3, 4, 5, 7, 9, *_PLANAR_TO_GRAY):
        return "copy", NO_ATTRS
    return "elementwise", {"fn": "colour"}


def _blur(call: OperatorCall) -> Means:
    """One pass along each axis."""
    taps = call.whole("kernel_height") + call.whole("kernel_width")
    return ("resize", {"fn": "bilinear", "taps": taps}) if taps else ("unknown", NO_ATTRS)


def _transform_shapes(call: OperatorCall) -> list[Shape]:
    """Blocks of the image become channels; a mask selects some of them."""
    batch, channels, height, width = call.ranked(0, 4)
    block = call.whole("dct_block_size") or 1
    selected = call.dims(2)[0] if len(call.ins) > 2 else product((channels, block * block))
    space = [None if extent is None else extent // block for extent in (height, width)]
    return [image(call.format).shape(batch, selected, space)]


_WARP = Row(_warp_shapes, _sample, (), lambda call: tuple(range(len(call.ins) - 1)))

ROWS = {
    "Resize": Row(lambda call: [_resized(call, call.target(1), call.dims(0)[0])], _resize, (), (0,)),
    "ResizeBackward": Row(alike(1), "unknown"),
    "Resize3D": Row(
        _resize_3d_shapes,
        lambda call: ("resize", {"fn": "nearest" if call.word("imode") == "NEAREST" else "trilinear"}),
        (),
        (0,),
    ),
    "WarpPerspective": _WARP,
    "WarpAffine": _WARP,
    "Remap": Row(lambda call: [_resized(call, call.ranked(1, 4)[1:3], call.dims(0)[0])], _sample),
    "ROIAlign": Row(_region_shapes, _region, ("", "int32"), (0, 1), (0,)),
    "DeformablePSROIPooling": Row(_region_shapes, _region, (), (0, 1, 2), (0,)),
    "Images2Neibs": Row(_window_shapes, "copy"),
    "SlidingWindowTranspose": Row(
        lambda call: [(*call.ranked(0, 6)[:2], call.whole("out_h"), call.whole("out_w"))], _overlap
    ),
    "MaskPropagate": Row(
        lambda call: [tuple(call.windows(call.ranked(0, 2), call.per_axis("kernel")))],
        lambda call: ("pool", {"fn": "max", "window": call.whole("kernel_h") * call.whole("kernel_w")}),
    ),
    "Correlation": Row(_correlation_shapes, _correlation),
    "CvtColor": Row(_colour_shapes, _colour),
    "Flip": Row(same, "copy"),
    "Rotate": Row(lambda call: [swapped(call.ranked(0, 4), 1, 2)], "copy"),
    "GaussianBlur": Row(same, _blur),
    "DctChannelSelect": Row(
        _transform_shapes, lambda call: ("matmul", {"depth": call.whole("dct_block_size") ** 2}), ("float32",), (0,)
    ),
}
