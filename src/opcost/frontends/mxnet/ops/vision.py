"""Images at other sizes, values between their elements, boxes and regions."""

from __future__ import annotations

import struct
from collections.abc import Callable
from math import prod

from opcost.core.shapes import Extent, Mismatch, Shape, adaptive_windows, divided, product, text, times, total
from opcost.frontends.mxnet.ops.layers import BILINEAR_TAPS
from opcost.frontends.mxnet.ops.reshape import image
from opcost.frontends.mxnet.ops.table import (
    FIRST,
    Call,
    Means,
    always_type,
    elements,
    like_first,
    pattern,
    row,
    types_of,
)
from opcost.frontends.mxnet.symbol import AttributeFault, Attributes

# -- interpolation -----------------------------------------------------------------------------------------------------

_MOST_INPUTS = 1024


def _upsample_shapes(call: Call) -> Shape:
    batch, channels, height, width = image(call.dims(0))
    scale = call.attrs.integer("scale")
    if scale < 1:
        raise AttributeFault(f"the scale is {scale}")
    if call.attrs.text("sample_type") == "bilinear":
        size = 2 * scale - scale % 2
        call.put_in(1, (channels, 1, size, size))
    elif call.attrs.text("multi_input_mode", "concat") == "concat":
        channels = total(None if shape is None else image(shape)[1] for shape in call.ins)
    return (batch, channels, times(height, scale), times(width, scale))


def _upsample(call: Call) -> Means:
    """Bilinear upsampling is a transposed convolution of each channel with a learned kernel."""
    if call.attrs.text("sample_type") == "bilinear":
        return "conv", {"transposed": True}
    if call.attrs.text("multi_input_mode", "concat") == "sum" and len(call.ins) > 1:
        return elements("add", (len(call.ins) - 1) * prod(call.y()))
    return "resize", {"fn": "nearest"}


def _upsample_slots(attrs: Attributes) -> tuple[str, ...]:
    bilinear = attrs.text("sample_type", "nearest") == "bilinear"
    return ("data", "weight") if bilinear else ("data",) * min(attrs.integer("num_args", 1), _MOST_INPUTS)


_SHIFTS = {"to_even_down": (0, -1), "to_even_up": (0, 1), "to_odd_down": (1, -1), "to_odd_up": (1, 1)}
"""Modes of a resize that make extents even or odd: the parity that is kept, and the step of others."""


def _resize_shapes(call: Call) -> Shape:
    batch, channels, *space = image(call.dims(0))
    mode = call.attrs.text("mode", "size")
    if mode == "like":
        return (batch, channels, *image(call.dims(1))[2:])
    if mode == "size" and "scale_height" not in call.attrs:
        return (batch, channels, call.attrs.integer("height", 1), call.attrs.integer("width", 1))
    if mode in ("size", "odd_scale"):
        # MXNet keeps the scales in single precision; with `odd_scale` an odd extent stays odd.
        scales = struct.unpack("<2f", struct.pack("<2f", *map(call.attrs.number, ("scale_height", "scale_width"))))
        rests = [extent % 2 if mode == "odd_scale" and extent is not None else 0 for extent in space]
        sizes = zip(space, scales, rests, strict=True)
        return (batch, channels, *(None if n is None else int(scale * (n - rest)) + rest for n, scale, rest in sizes))
    if mode not in _SHIFTS:
        raise AttributeFault(f"the mode {mode!r} is not known")
    parity, shift = _SHIFTS[mode]
    return (batch, channels, *(n if n is None or n % 2 == parity else n + shift for n in space))


def _grid_shapes(call: Call) -> Shape:
    x = call.dims(0)
    if call.attrs.text("transform_type") != "affine":
        return x
    call.put_in(0, (None, 6))
    return (x[0], 2, *call.attrs.integers("target_shape"))


def _grid(call: Call) -> Means:
    """An affine place is two products and two sums, a warped one a sum."""
    if call.attrs.text("transform_type") == "affine":
        return elements("fma", 2 * prod(call.y()))
    return "elementwise", {"fn": "add"}


_INTERPOLATIONS = {0: "nearest", 1: "bilinear", 2: "bicubic", 3: "area", 4: "bicubic"}
"""OpenCV's numbers; of a Lanczos window, the nearest that has a cost."""


def _picture_resize_shapes(call: Call) -> Shape:
    """Pictures are height, width and channels, with a batch before them or not."""
    *batch, rows, columns, channels = call.dims(0)
    size = call.attrs.integers("size")
    width, height = size if len(size) == 2 else (size[0], size[0])
    if len(size) == 1 and call.attrs.flag("keep_ratio") and rows is not None and columns is not None:
        if rows > columns:
            height = rows * size[0] // columns
        else:
            width = columns * size[0] // rows
    return (*batch, height, width, channels)


_AUGMENTATIONS = """
    adjust_lighting random_brightness random_color_jitter random_contrast random_flip_left_right random_flip_top_bottom
    random_hue random_lighting random_saturation normalize
""".split()

_RESIZED = [
    row("UpSampling _npx_upsampling", _upsample_shapes, _upsample, slots=_upsample_slots),
    row("_contrib_BilinearResize2D _npx_bilinear_resize2d", _resize_shapes, "resize bilinear", FIRST,
        slots=lambda attrs: ("data", "like") if attrs.text("mode", "size") == "like" else ("data",), reads=(0,)),
    row("BilinearSampler", pattern("n c _ _, n _ h w -> n c h w"), "sample", slots="data grid"),
    row("SpatialTransformer", pattern("b c _ _, b 6 -> b c {*target_shape}"), "sample", slots="data loc"),
    row("GridGenerator", _grid_shapes, _grid, slots="data"),
    row("_image_resize _npx__image_resize", _picture_resize_shapes,
        lambda c: ("resize", {"fn": _INTERPOLATIONS.get(c.attrs.integer("interp", 1), "bilinear")})),
    row([f"{prefix}image_{name}" for prefix in ("_", "_npx__") for name in _AUGMENTATIONS], like_first, "elementwise fma"),
    row("_image_crop _npx__image_crop", pattern("... _ _ c -> ... {height} {width} c"), "copy"),
    row("_image_to_tensor _npx__image_to_tensor", pattern("... h w c -> ... c h w"), "elementwise div", always_type("float32")),
]  # fmt: skip

# -- boxes: anchors, proposals, non-maximum suppression ----------------------------------------------------------------

OVERLAP_FLOPS = 14
"""Of two boxes: four comparisons, two differences and two clamps, a product, and what the union needs (5)."""
DECODE_FLOPS = 14  # Of a box: four products, four sums, two exponentials, two halvings, two differences


def _sorted(batch: tuple[int, ...], boxes: int, flops: int = 0) -> Means:
    """Comparisons that sort boxes by score, and `flops` for each box.

    How many pairs are compared after that depends on the data and is left out.
    """
    return elements("compare", (prod(batch) or 1) * (boxes * max(boxes - 1, 0).bit_length() + boxes * flops))


def _encode(call: Call) -> list[Shape]:
    for index in (4, 5):
        call.put_in(index, (4,))
    return [call.ins[2], call.ins[2]]


def _coded(call: Call) -> Means:
    return elements("add", DECODE_FLOPS * (prod(call.y()) // 4))


def _prior(call: Call) -> Shape:
    x = call.dims(0)
    if len(x) < 4:
        raise Mismatch(f"the data is {text(x)}, not batch, channels, height and width")
    each = call.attrs.count("sizes", 1) + call.attrs.count("ratios", 1) - 1
    return (1, times(product(x[2:4]), each), 4)


def _target_shapes(call: Call) -> list[Shape]:
    anchors, label = call.dims(0), call.dims(1)
    if len(anchors) != 3 or not label:
        return []
    return [(label[0], product(anchors)), (label[0], product(anchors)), (label[0], anchors[1])]


def _matching(call: Call) -> Means:
    """Every anchor meets every label; negatives are chosen by a sort."""
    anchors, labels = call.x(0)[1], call.x(1)[1]
    return elements("add", call.x(1)[0] * anchors * labels * OVERLAP_FLOPS)


def _detection_shapes(call: Call) -> Shape:
    scores, anchors = call.ins[0], call.ins[2]
    count: Extent = scores[2] if scores and len(scores) == 3 else None
    if anchors is not None and len(anchors) == 3:
        count = anchors[1]
    return (scores[0] if scores else None, count, 6)


def _proposal(call: Call) -> Means:
    batch, channels, height, width = call.x()
    return _sorted((batch,), channels // 2 * height * width, DECODE_FLOPS)


# -- pools over regions ------------------------------------------------------------------------------------------------


def _region_shapes(call: Call) -> Shape:
    """One small image for every region; its channels are the data's unless `output_dim` says otherwise."""
    x, regions = call.dims(0), call.dims(1)
    if len(x) != 4 or len(regions) != 2:
        raise Mismatch(f"the data is {text(x)} and the regions are {text(regions)}")
    size = call.attrs.integers("pooled_size")
    height, width = size if len(size) == 2 else (size[0], size[0])
    depth: Extent = call.attrs.integer("output_dim") if "output_dim" in call.attrs else x[1]
    if call.attrs.flag("position_sensitive"):
        depth = divided(depth, height * width, "channels", "places")
    return (regions[0], depth, height, width)


def _region_pool(fn: str) -> Callable[[Call], Means]:
    """Regions are in data; a window is taken as its share of the whole image."""
    return lambda call: ("pool", {"fn": fn, "window": prod(adaptive_windows(call.x()[2:], call.y()[2:])[0])})


def _align(call: Call) -> Means:
    """Each output averages bilinear samples; a ratio that adapts itself to the region is taken as two."""
    ratio = call.attrs.integer("sample_ratio", call.attrs.integer("sampling_ratio", -1))
    return "sample", {"taps": BILINEAR_TAPS * (ratio * ratio if ratio > 0 else 4)}


def _scored(attrs: Attributes) -> int:
    return 2 if attrs.flag("output_score") else 1


_REGIONS, _KEPT = "b c h w, b 2*c h w, b 3", "{rpn_post_nms_top_n=300}"
"""Scores and changes of boxes; of all images together, or of each, this many are kept."""

_BOXES = [
    row("_contrib_box_nms _contrib_box_non_maximum_suppression _npx_box_nms", pattern("... n k -> ... n k"),
        lambda c: _sorted(c.x()[:-2], c.x()[-2])),
    row("_contrib_box_iou _npx_box_iou", lambda c: (*c.dims(0)[:-1], *c.dims(1)[:-1]),
        lambda c: elements("add", OVERLAP_FLOPS * prod(c.y())), slots="lhs rhs"),
    row("_contrib_bipartite_matching _npx_bipartite_matching", pattern("... r c -> ... r, ... c"),
        lambda c: _sorted(c.x()[:-2], prod(c.x()[-2:])), outputs=2),
    row("_contrib_box_encode _npx_box_encode", _encode, _coded, types_of(2, 3), 2),
    row("_contrib_box_decode _npx_box_decode", like_first, _coded, slots="data anchors"),
    row("_contrib_MultiBoxPrior _npx_multibox_prior MultiBoxPrior", _prior, "create"),
    row("_contrib_MultiBoxTarget _npx_multibox_target MultiBoxTarget", _target_shapes, _matching, outputs=3,
        slots="anchor label cls_pred"),
    row("_contrib_MultiBoxDetection _npx_multibox_detection MultiBoxDetection", _detection_shapes,
        lambda c: _sorted(c.y()[:1], c.y()[1], DECODE_FLOPS), slots="cls_prob loc_pred anchor"),
    row("_contrib_Proposal Proposal", pattern(f"{_REGIONS} -> {_KEPT} 5, {_KEPT} 1"), _proposal, outputs=_scored,
        slots="cls_prob bbox_pred im_info"),
    row("_contrib_MultiProposal MultiProposal", pattern(f"{_REGIONS} -> b*{_KEPT} 5, b*{_KEPT} 1"), _proposal, outputs=_scored,
        slots="cls_prob bbox_pred im_info"),
    row("ROIPooling _npx_roi_pooling", _region_shapes, _region_pool("adaptive_max"), types_of(0, 1), slots="data rois"),
    row("_contrib_PSROIPooling", _region_shapes, _region_pool("adaptive_avg"), types_of(0, 1), slots="data rois"),
    row("_contrib_ROIAlign _npx_roi_align _contrib_RROIAlign", _region_shapes, _align, types_of(0, 1), slots="data rois"),
    row("_contrib_DeformablePSROIPooling", _region_shapes,
        lambda c: ("sample", {"taps": BILINEAR_TAPS * c.attrs.integer("sample_per_part", 1) ** 2}), types_of(0, 1),
        slots="data rois trans"),
]  # fmt: skip

ROWS = [*_RESIZED, *_BOXES]
