"""Changes between plain and packed layouts of images and filters."""

from __future__ import annotations

from opcost.core.shapes import Dims, Extent, Mismatch, Shape
from opcost.frontends.megengine.layouts import image
from opcost.frontends.megengine.node import Node, Rule, means

_IMAGES: dict[str, tuple[str, str]] = {
    "NHWC_NHWCD4": ("NHWC", "NHWCD4"), "NHWCD4_NHWC": ("NHWCD4", "NHWC"), "NHWC_NHWCD4I": ("NHWC", "NHWCD4"),
    "NCHW_NHWCD4": ("NCHW", "NHWCD4"), "NCHW_NHWCD4I": ("NCHW", "NHWCD4"), "NHWCD4I_NCHW": ("NHWCD4", "NCHW"),
    "NHWCD4_NCHW": ("NHWCD4", "NCHW"), "NHWCD4I_NHWC": ("NHWCD4", "NHWC"), "NCHW4_CHWN4": ("NCHW4", "CHWN4"),
    "CHWN4_NCHW4": ("CHWN4", "NCHW4"), "NCHW_NCHW88": ("NCHW", "NCHW88"), "NCHW88_NCHW": ("NCHW88", "NCHW"),
    "NCHW_NCHW4_IC_SMALL": ("NCHW", "NCHW4"), "NCHW_NCHW4": ("NCHW", "NCHW4"), "NCHW4_NCHW": ("NCHW4", "NCHW"),
    "NCHW_NCHW64": ("NCHW", "NCHW64"), "NCHW64_NCHW": ("NCHW64", "NCHW"), "NCHW_NHWC": ("NCHW", "NHWC"),
    "NHWC_NCHW": ("NHWC", "NCHW"),
}  # fmt: skip
"""Images: the layout before and after."""

_FILTERS: dict[str, tuple[int, str]] = {
    "INTER_WEIGHT_DENSE": (4, "0/4 2 3 1^4 =4"), "INTER_WEIGHT_DENSEI": (4, "0/4 2 3 1^4 =4"),
    "INTER_WEIGHT_GROUP": (5, "0 1/4 3 4 2 =4"), "INTER_WEIGHT_GROUPI": (5, "0 1/4 3 4 2 =4"),
    "INTER_WEIGHT_CHAN": (5, "0/4 =1 3 4 =4"), "INTER_WEIGHT_CHANI": (5, "0/4 =1 3 4 =4"),
    "INTER_WEIGHT_DENSEI_DOT": (4, "0/4 2 3 1/4 =4 =4"), "INTER_WEIGHT_GROUPI_DOT": (5, "0 1/4 3 4 2/4 =4 =4"),
    "NCHW_NCHW88_CONV_DENSE_WEIGHT": (4, "0/8 1/8 2 3 =8 =8"),
    "NCHW_NCHW88_CONV_CHAN_WEIGHT": (5, "0/8 1 2 3 4 =8"),
    "NCHW_NCHW88_CONV_GROUP_WEIGHT": (5, "0 1/8 2/8 3 4 =8 =8"),
    "NCHW_NCHW4_IC_SMALL_CONV_DENSE_WEIGHT": (4, "0 1/4 2 3 =4"),
}  # fmt: skip
"""Filters: their rank, and the axes after: an old axis, `/n` in packs of n, `^n` filled up to a multiple, `=n` fixed."""

_FOUR_PACKED = {4: "0^4 1/4 2 3 =4", 5: "0 1^4 2/4 3 4 =4"}
"""The same for NCHW_NCHW4_WEIGHT, dense and grouped."""


def _shapes(node: Node) -> list[Shape]:
    mode = node.word("mode")
    if mode == "NCHW_NCHW4_WEIGHT":
        dims = node.ranked(0, 4, 5)
        return [_packed(dims, _FOUR_PACKED[len(dims)])]
    if mode in _FILTERS:
        rank, pattern = _FILTERS[mode]
        return [_packed(node.ranked(0, rank), pattern)]
    if mode not in _IMAGES:
        raise Mismatch(f"the change of layout {mode} is not known")
    before, after = (image(form) for form in _IMAGES[mode])
    dims = node.ranked(0, before.rank)
    channels = before.channel_count(dims)
    if mode == "NCHW_NCHW4" and channels is not None:  # every group fills its own packs
        groups = node.whole("group") or 1
        channels = groups * (-(-channels // groups // 4) * 4)
    if mode in ("NCHW4_NCHW", "NCHW64_NCHW") and node.whole("oc"):
        channels = node.whole("oc")
    return [after.shape(dims[before.batch], channels, [dims[axis] for axis in before.spatial])]


def _packed(dims: Dims, pattern: str) -> Shape:
    shape: list[Extent] = []
    for item in pattern.split():
        if item.startswith("="):
            shape.append(int(item[1:]))
            continue
        axis, by = int(item[0]), int(item[2:] or 1)
        extent = dims[axis]
        if extent is not None:
            extent = -(-extent // by) * (by if item[1:2] == "^" else 1)
        shape.append(extent)
    return tuple(shape)


RULES = {"RelayoutFormat": Rule(_shapes, means("copy"))}
