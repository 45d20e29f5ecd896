"""Images: interpolation, warping, colours, regions of interest, windows laid out."""

from __future__ import annotations

from opcost.core.graph import Attr
from opcost.core.shapes import Dims, Extent, Mismatch, Shape, product, replaced
from opcost.frontends.megengine.layouts import image
from opcost.frontends.megengine.node import Meaning, Node, Rule, alike, means, same

_PLANE = {"NEAREST": "nearest", "LINEAR": "bilinear", "CUBIC": "bicubic", "AREA": "area"}
_TAPS = {"NEAREST": 1, "LINEAR": 4, "CUBIC": 16, "LANCZOS4": 64}
"""Source elements under one element of the result."""

_LANCZOS_TAPS = 64
_BILINEAR_TAPS = 4


def _resized(node: Node, target: Dims, batch: Extent) -> Shape:
    """x with a new height and width."""
    x = node.ranked(0, 4, 5)
    if len(target) != 2:
        raise Mismatch(f"height and width are needed, not {len(target)} numbers")
    layout = image(node.word("format") or "NCHW")
    return layout.resized(replaced(x, layout.batch, batch), target)


def _resize_meaning(node: Node) -> Meaning:
    mode = node.word("imode")
    if mode == "LANCZOS4":
        return Meaning("resize", {"fn": "bicubic", "taps": _LANCZOS_TAPS}, (0,))
    return Meaning("resize", {"fn": _PLANE.get(mode, "bilinear")}, (0,))


def _resize_3d_shapes(node: Node) -> list[Shape]:
    x, target = node.ranked(0, 5), node.target(1)
    if len(target) != 3:
        raise Mismatch(f"depth, height and width are needed, not {len(target)} numbers")
    return [(*x[:2], *target)]


def _resize_3d_meaning(node: Node) -> Meaning:
    return Meaning("resize", {"fn": "nearest" if node.word("imode") == "NEAREST" else "trilinear"}, (0,))


def _warp_shapes(node: Node) -> list[Shape]:
    """x, a matrix for each result, [which image each matrix warps], and the size; packed layouts may change."""
    last = len(node.shapes) - 1
    target = node.target(last)
    matrices = node.ranked(1, 3)
    form = node.word("format")
    if "_" in form and form != "NCHW44_DOT":
        x = node.ranked(0, 4, 5)
        before = image(form.partition("_")[0])
        after = image("NCHW4" if "NCHW4" in form.partition("_")[2] else form.partition("_")[2])
        return [after.shape(matrices[0], before.channel_count(x), target)]
    return [_resized(node, target, matrices[0])]


def _warp_meaning(node: Node) -> Meaning:
    """Positions are worked out once for all channels; each element of the result is made of some of the source."""
    inputs = tuple(range(len(node.shapes) - 1))
    return Meaning("sample", {"taps": _TAPS.get(node.word("imode"), _BILINEAR_TAPS)}, inputs)


def _remap_shapes(node: Node) -> list[Shape]:
    grid = node.ranked(1, 4)
    return [_resized(node, grid[1:3], node.dims(0)[0])]


def _remap_meaning(node: Node) -> Meaning:
    return Meaning("sample", {"taps": _TAPS.get(node.word("imode"), _BILINEAR_TAPS)})


# -- regions -----------------------------------------------------------------------------------------------------------


def _align_shapes(node: Node) -> list[Shape]:
    x, regions = node.ranked(0, 4), node.ranked(1, 2)
    shape = (regions[0], x[1], node.whole("pooled_height"), node.whole("pooled_width"))
    return [shape, shape]


def _align_meaning(node: Node) -> Meaning:
    """Every result takes samples on a grid of its own, each interpolated."""
    samples = node.whole("sample_height") * node.whole("sample_width")
    attrs: dict[str, Attr] = {"taps": _BILINEAR_TAPS * max(samples, 1)}
    return Meaning("sample", attrs, (0, 1), (0,))


def _part_shapes(node: Node) -> list[Shape]:
    """Position-sensitive regions: each part reads its own channels, or all of them where nothing is shifted."""
    x, regions = node.ranked(0, 4), node.ranked(1, 2)
    shape = (regions[0], x[1], node.whole("pooled_h"), node.whole("pooled_w"))
    return [shape, shape]


def _part_meaning(node: Node) -> Meaning:
    samples = node.whole("sample_per_part") ** 2
    return Meaning("sample", {"taps": _BILINEAR_TAPS * max(samples, 1)}, (0, 1, 2), (0,))


# -- windows -----------------------------------------------------------------------------------------------------------


def _window_shapes(node: Node) -> list[Shape]:
    batch, channels, *plane = node.ranked(0, 4)
    windows = node.per_axis("window")
    return [(batch, channels, *node.windows(plane, windows), *windows)]


def _overlap_shapes(node: Node) -> list[Shape]:
    x = node.ranked(0, 6)
    return [(*x[:2], node.whole("out_h"), node.whole("out_w"))]


def _overlap_meaning(node: Node) -> Meaning:
    """Windows are added where they overlap."""
    elements = product(node.dims(0))
    return Meaning("elementwise", {"fn": "add"} if elements is None else {"fn": "add", "elements": elements})


def _mask_shapes(node: Node) -> list[Shape]:
    return [tuple(node.windows(node.ranked(0, 2), node.per_axis("kernel")))]


def _mask_meaning(node: Node) -> Meaning:
    return Meaning("pool", {"fn": "max", "window": node.whole("kernel_h") * node.whole("kernel_w")})


# -- other -------------------------------------------------------------------------------------------------------------


def _correlation_shapes(node: Node) -> list[Shape]:
    batch, _, *plane = node.ranked(0, 4)
    reach, kernel = node.whole("max_displacement"), node.whole("kernel_size")
    border = reach + (kernel - 1) // 2
    counts: list[Extent] = []
    for extent in plane:
        inside = None if extent is None else extent + 2 * node.whole("pad_size") - 2 * border
        counts.append(None if inside is None else max(-(-inside // (node.whole("stride1") or 1)), 0))
    displacements = 2 * (reach // (node.whole("stride2") or 1)) + 1
    return [(batch, displacements**2, *counts)]


def _correlation_meaning(node: Node) -> Meaning:
    """Each result sums products (or absolute differences) over all channels under a kernel."""
    channels = node.dims(0)[1]
    if channels is None:
        return Meaning("matmul")
    return Meaning("matmul", {"depth": channels * node.whole("kernel_size") ** 2})


_COLOURS = dict.fromkeys((0, 6, 8), 1) | dict.fromkeys((1, 2, 3, 4, 5, 7, 9, 11, 12, 22, 23), 3)
"""Channels after; half-height images hold luminance and chrominance one below the other."""
_PLANAR_TO_GRAY = (10, 13, 16, 19)


def _colour_shapes(node: Node) -> list[Shape]:
    batch, height, width, _ = node.ranked(0, 4)
    mode = node.whole("mode")
    if mode in _COLOURS:
        return [(batch, height, width, _COLOURS[mode])]
    rows = None if height is None else height * 2 // 3
    return [(batch, rows, width, 1 if mode in _PLANAR_TO_GRAY else 3)]


def _colour_meaning(node: Node) -> Meaning:
    """A weighted sum of three channels for each element; where channels are only swapped or dropped, a copy."""
    if node.whole("mode") in (3, 4, 5, 7, 9, *_PLANAR_TO_GRAY):
        return Meaning("copy")
    return Meaning("elementwise", {"fn": "colour"})


def _rotated(node: Node) -> list[Shape]:
    batch, height, width, channels = node.ranked(0, 4)
    return [(batch, width, height, channels)]


def _blur_meaning(node: Node) -> Meaning:
    """One pass along each axis."""
    taps = node.whole("kernel_height") + node.whole("kernel_width")
    return Meaning("resize", {"fn": "bilinear", "taps": taps}) if taps else Meaning("unknown")


def _transform_shapes(node: Node) -> list[Shape]:
    """Blocks of the image become channels; a mask selects some of them."""
    batch, channels, height, width = node.ranked(0, 4)
    block = node.whole("dct_block_size") or 1
    selected = node.dims(2)[0] if len(node.shapes) > 2 else product((channels, block * block))
    plane = [None if extent is None else extent // block for extent in (height, width)]
    return [image(node.word("format") or "NCHW").shape(batch, selected, plane)]


def _transform_meaning(node: Node) -> Meaning:
    """Each coefficient sums the products of a whole block."""
    return Meaning("matmul", {"depth": node.whole("dct_block_size") ** 2}, (0,))


RULES = {
    "Resize": Rule(lambda node: [_resized(node, node.target(1), node.dims(0)[0])], _resize_meaning),
    "ResizeBackward": Rule(alike(1), means("unknown")),
    "Resize3D": Rule(_resize_3d_shapes, _resize_3d_meaning),
    "WarpPerspective": Rule(_warp_shapes, _warp_meaning),
    "WarpAffine": Rule(_warp_shapes, _warp_meaning),
    "Remap": Rule(_remap_shapes, _remap_meaning),
    "ROIAlign": Rule(_align_shapes, _align_meaning, lambda node: [node.dtypes[0], "int32"]),
    "DeformablePSROIPooling": Rule(_part_shapes, _part_meaning),
    "Images2Neibs": Rule(_window_shapes, means("copy")),
    "SlidingWindowTranspose": Rule(_overlap_shapes, _overlap_meaning),
    "MaskPropagate": Rule(_mask_shapes, _mask_meaning),
    "Correlation": Rule(_correlation_shapes, _correlation_meaning),
    "CvtColor": Rule(_colour_shapes, _colour_meaning),
    "Flip": Rule(same, means("copy")),
    "Rotate": Rule(_rotated, means("copy")),
    "GaussianBlur": Rule(same, _blur_meaning),
    "DctChannelSelect": Rule(_transform_shapes, _transform_meaning, lambda node: ["float32"]),
}
