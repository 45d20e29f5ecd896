"""Images: interpolation, warping, colours, regions of interest, windows laid out."""

from opcost.core.graph import NO_ATTRS
from opcost.core.shapes import Dims, Extent, Mismatch, Shape, product, replaced
from opcost.frontends.megengine.operators.convolution import image
from opcost.frontends.megengine.operators.layers import plane
from opcost.frontends.megengine.operators.table import FUNCTIONS, MegEngineCall
from opcost.frontends.rows import Means

_PLANE = {"NEAREST": "nearest", "LINEAR": "bilinear", "CUBIC": "bicubic", "AREA": "area"}
_TAPS = {"NEAREST": 1, "LINEAR": 4, "CUBIC": 16, "LANCZOS4": 64}  # Source elements under one element of the result
_BILINEAR_TAPS = 4


def _resized(call: MegEngineCall, target: Dims, batch: Extent) -> Shape:
    """x with a new height and width."""
    x, layout = call.ranked(0, 4, 5), image(call.format)
    return layout.resized(replaced(x, layout.batch, batch), plane(target))


def _resize(call: MegEngineCall) -> Means:
    mode = call.attrs.text("imode")
    if mode == "LANCZOS4":
        return "resize", {"fn": "bicubic", "taps": _TAPS[mode]}
    return "resize", {"fn": _PLANE.get(mode, "bilinear")}


def _resize_3d_shape(call: MegEngineCall) -> Shape:
    x, target = call.ranked(0, 5), call.target(1)
    if len(target) != 3:
        raise Mismatch(f"depth, height and width are needed, not {len(target)} numbers")
    return (*x[:2], *target)


def _warp_shape(call: MegEngineCall) -> Shape:
    """x, a matrix for each result, [which image each matrix warps], and the size; packed layouts may change."""
    target, matrices = call.target(len(call.ins) - 1), call.ranked(1, 3)
    form = call.attrs.text("format")
    if "_" in form and form != "NCHW44_DOT":
        x = call.ranked(0, 4, 5)
        source, _, packed = form.partition("_")
        after = image("NCHW4" if "NCHW4" in packed else packed)
        return after.shape(matrices[0], image(source).channel_count(x), target)
    return _resized(call, target, matrices[0])


def _sample(call: MegEngineCall) -> Means:
    """Positions are worked out once for all channels; each element of the result is made of some of the source."""
    return "sample", {"taps": _TAPS.get(call.attrs.text("imode"), _BILINEAR_TAPS)}


# -- regions -----------------------------------------------------------------------------------------------------------


def _sampled_region(call: MegEngineCall) -> Means:
    """Every result takes samples on a grid of its own, each interpolated; beside it is what a backward pass would need.

    Of position-sensitive regions each part reads its own channels, or all of them where nothing is shifted.
    """
    if call.type == "ROIAlign":
        samples = call.attrs.integer("sample_height") * call.attrs.integer("sample_width")
    else:
        samples = call.attrs.integer("sample_per_part") ** 2
    return "sample", {"taps": _BILINEAR_TAPS * max(samples, 1)}


# -- windows -----------------------------------------------------------------------------------------------------------


def _window_shape(call: MegEngineCall) -> Shape:
    batch, channels, *space = call.ranked(0, 4)
    windows = call.per_axis("window")
    return (batch, channels, *call.window(space, windows).swept(), *windows)


def _overlap(call: MegEngineCall) -> Means:
    """Windows are added where they overlap."""
    elements = product(call.dims(0))
    return "elementwise", {"fn": "add"} if elements is None else {"fn": "add", "elements": elements}


# -- other -------------------------------------------------------------------------------------------------------------


def _correlation_shape(call: MegEngineCall) -> Shape:
    batch, _, *space = call.ranked(0, 4)
    reach, kernel = call.attrs.integer("max_displacement"), call.attrs.integer("kernel_size")
    border = reach + (kernel - 1) // 2
    more, stride = 2 * call.attrs.integer("pad_size") - 2 * border, call.attrs.integer("stride1") or 1
    counts = [None if extent is None else max(-(-(extent + more) // stride), 0) for extent in space]
    return (batch, (2 * (reach // (call.attrs.integer("stride2") or 1)) + 1) ** 2, *counts)


def _correlation(call: MegEngineCall) -> Means:
    """Each result sums products (or absolute differences) over all channels under a kernel."""
    channels = call.dims(0)[1]
    return "matmul", NO_ATTRS if channels is None else {"depth": channels * call.attrs.integer("kernel_size") ** 2}


_COLOURS = dict.fromkeys((0, 6, 8), 1) | dict.fromkeys((1, 2, 3, 4, 5, 7, 9, 11, 12, 22, 23), 3)
"""Channels after; half-height images hold luminance and chrominance one below the other."""
_PLANAR_TO_GRAY = (10, 13, 16, 19)


def _colour_shape(call: MegEngineCall) -> Shape:
    batch, height, width, _ = call.ranked(0, 4)
    mode = call.attrs.integer("mode")
    if mode in _COLOURS:
        return (batch, height, width, _COLOURS[mode])
    rows = None if height is None else height * 2 // 3
    return (batch, rows, width, 1 if mode in _PLANAR_TO_GRAY else 3)


def _colour(call: MegEngineCall) -> Means:
    """A weighted sum of three channels for each element; where channels are only swapped or dropped, a copy."""
    if call.attrs.integer("mode") in (3, 4, 5, 7, 9, *_PLANAR_TO_GRAY):
        return "copy", NO_ATTRS
    return "elementwise", {"fn": "colour"}


def _blur(call: MegEngineCall) -> Means:
    """One pass along each axis."""
    taps = call.attrs.integer("kernel_height") + call.attrs.integer("kernel_width")
    return ("resize", {"fn": "bilinear", "taps": taps}) if taps else ("unknown", NO_ATTRS)


def _transform_shape(call: MegEngineCall) -> Shape:
    """Blocks of the image become channels; a mask selects some of them."""
    batch, channels, height, width = call.ranked(0, 4)
    block = call.attrs.integer("dct_block_size") or 1
    selected = call.dims(2)[0] if len(call.ins) > 2 else product((channels, block * block))
    space = [None if extent is None else extent // block for extent in (height, width)]
    return image(call.format).shape(batch, selected, space)


FUNCTIONS.update(
    all_but_last=lambda call: tuple(range(len(call.ins) - 1)),
    resize_shape=lambda call: _resized(call, call.target(1), call.dims(0)[0]),
    resize_3d=lambda call: ("resize", {"fn": "nearest" if call.attrs.text("imode") == "NEAREST" else "trilinear"}),
    remap_shape=lambda call: _resized(call, call.ranked(1, 4)[1:3], call.dims(0)[0]),
    mask_shape=lambda call: call.window(call.ranked(0, 2), call.per_axis("kernel")).swept(),
)
