"""Images at other sizes, values between their elements, boxes and regions."""

from __future__ import annotations

import struct
from collections.abc import Callable
from math import prod

from opcost.core.shapes import Dims, Extent, Mismatch, Shape, adaptive_windows, divided, product, text, times, total
from opcost.frontends.mxnet.ops.layers import BILINEAR_TAPS
from opcost.frontends.mxnet.ops.reshape import image
from opcost.frontends.mxnet.ops.table import FIRST, Call, Means, always_type, elements, like_first, row, types_of
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
    return (batch, channels, *_target(call, space))


def _target(call: Call, space: list[Extent]) -> list[Extent]:
    mode = call.attrs.text("mode", "size")
    if mode == "like":
        return list(image(call.dims(1))[2:])
    if mode == "size" and "scale_height" not in call.attrs:
        return [call.attrs.integer("height", 1), call.attrs.integer("width", 1)]
    if mode in ("size", "odd_scale"):
        odd = mode == "odd_scale"
        scales = (_single(call.attrs.number(name)) for name in ("scale_height", "scale_width"))
        return [_scaled(extent, scale, odd=odd) for extent, scale in zip(space, scales, strict=True)]
    if mode not in _SHIFTS:
        raise AttributeFault(f"the mode {mode!r} is not known")
    parity, shift = _SHIFTS[mode]
    return [None if extent is None else extent if extent % 2 == parity else extent + shift for extent in space]


def _scaled(extent: Extent, factor: float, *, odd: bool) -> Extent:
    """An extent times a factor; one that is odd may stay so."""
    rest = 0 if extent is None or not odd else extent % 2
    return None if extent is None else int(factor * (extent - rest)) + rest


def _single(number: float) -> float:
    """A number in the precision in which MXNet keeps it."""
    return float(struct.unpack("<f", struct.pack("<f", number))[0])


def _sampler(call: Call) -> Shape:
    x, grid = (image(shape) for shape in call.every())
    return (*x[:2], *grid[2:])


def _transformer(call: Call) -> Shape:
    batch, channels, _, _ = image(call.dims(0))
    call.put_in(1, (batch, 6))
    return (batch, channels, *call.attrs.integers("target_shape"))


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


def _picture(call: Call) -> Dims:
    """Height, width and channels, with a batch before them or not."""
    x = call.dims(0)
    if len(x) not in (3, 4):
        raise Mismatch(f"the data is {text(x)}, not height, width and channels")
    return x


def _picture_resize_shapes(call: Call) -> Shape:
    *batch, rows, columns, channels = _picture(call)
    size = call.attrs.integers("size")
    width, height = (size[0], size[0]) if len(size) == 1 else (size[0], size[1])
    if len(size) == 1 and call.attrs.flag("keep_ratio") and rows is not None and columns is not None:
        if rows > columns:
            height = rows * size[0] // columns
        else:
            width = columns * size[0] // rows
    return (*batch, height, width, channels)


def _picture_crop(call: Call) -> Shape:
    *batch, _, _, channels = _picture(call)
    return (*batch, call.attrs.integer("height"), call.attrs.integer("width"), channels)


def _to_tensor(call: Call) -> Shape:
    *batch, height, width, channels = _picture(call)
    return (*batch, channels, height, width)


_AUGMENTATIONS = """
    adjust_lighting random_brightness random_color_jitter random_contrast random_flip_left_right random_flip_top_bottom
    random_hue random_lighting random_saturation normalize
""".split()

_RESIZED = [
    row("UpSampling _npx_upsampling", _upsample_shapes, _upsample, slots=_upsample_slots),
    row("_contrib_BilinearResize2D _npx_bilinear_resize2d", _resize_shapes, "resize bilinear", FIRST,
        slots=lambda attrs: ("data", "like") if attrs.text("mode", "size") == "like" else ("data",), reads=(0,)),
    row("BilinearSampler", _sampler, "sample", slots="data grid"),
    row("SpatialTransformer", _transformer, "sample", slots="data loc"),
    row("GridGenerator", _grid_shapes, _grid, slots="data"),
    row("_image_resize _npx__image_resize", _picture_resize_shapes,
        lambda c: ("resize", {"fn": _INTERPOLATIONS.get(c.attrs.integer("interp", 1), "bilinear")})),
    row([f"{prefix}image_{name}" for prefix in ("_", "_npx__") for name in _AUGMENTATIONS], like_first, "elementwise fma"),
    row("_image_crop _npx__image_crop", _picture_crop, "copy"),
    row("_image_to_tensor _npx__image_to_tensor", _to_tensor, "elementwise div", always_type("float32")),
]  # fmt: skip

# -- boxes: anchors, proposals, non-maximum suppression ----------------------------------------------------------------

OVERLAP_FLOPS = 14
"""Of two boxes: four comparisons, two differences and two clamps, a product, and what the union needs (5)."""
DECODE_FLOPS = 14
"""Of a box: four products, four sums, two exponentials, two halvings, two differences."""


def _sorting(boxes: int) -> int:
    """Comparisons that sort boxes by score. How many pairs are compared after that depends on the data and is left out."""
    return boxes * max(boxes - 1, 0).bit_length()


def _nms_shapes(call: Call) -> None:
    like_first(call)
    x = call.dims(0)
    if len(x) < 2:
        raise Mismatch(f"the data is {text(x)}, not boxes and their coordinates")


def _nms(call: Call) -> Means:
    *batch, boxes, _ = call.x()
    return elements("compare", (prod(batch) or 1) * _sorting(boxes))


def _overlap(call: Call) -> Shape:
    a, b = call.every()
    return (*a[:-1], *b[:-1])


def _match_shapes(call: Call) -> list[Shape]:
    x = call.dims(0)
    return [x[:-1], (*x[:-2], x[-1])] if len(x) > 1 else []


def _match(call: Call) -> Means:
    *batch, rows, columns = call.x()
    return elements("compare", (prod(batch) or 1) * _sorting(rows * columns))


def _encode(call: Call) -> list[Shape]:
    call.put_in(4, (4,))
    call.put_in(5, (4,))
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
    numbers = (label[0], product(anchors))
    return [numbers, numbers, (label[0], anchors[1])]


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


def _detection(call: Call) -> Means:
    batch, boxes, _ = call.y()
    return elements("compare", batch * (_sorting(boxes) + boxes * DECODE_FLOPS))


def _proposal_shapes(*, whole_batch: bool) -> Callable[[Call], list[Shape]]:
    """Regions from scores and box changes; with `whole_batch` the same number for every image."""

    def shapes(call: Call) -> list[Shape]:
        scores = call.ins[0]
        kept = call.attrs.integer("rpn_post_nms_top_n", 300)
        if scores is None or len(scores) != 4:
            return []
        batch, channels, height, width = scores
        call.put_in(1, (batch, times(channels, 2), height, width))
        call.put_in(2, (batch, 3))
        rows: Extent = times(batch, kept) if whole_batch else kept
        return [(rows, 5), (rows, 1)]

    return shapes


def _proposal(call: Call) -> Means:
    batch, channels, height, width = call.x()
    boxes = channels // 2 * height * width
    return elements("compare", batch * (_sorting(boxes) + boxes * DECODE_FLOPS))


def _proposal_outputs(attrs: Attributes) -> int:
    return 2 if attrs.flag("output_score") else 1


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


_BOXES = [
    row("_contrib_box_nms _contrib_box_non_maximum_suppression _npx_box_nms", _nms_shapes, _nms),
    row("_contrib_box_iou _npx_box_iou", _overlap, lambda c: elements("add", OVERLAP_FLOPS * prod(c.y())), slots="lhs rhs"),
    row("_contrib_bipartite_matching _npx_bipartite_matching", _match_shapes, _match, outputs=2),
    row("_contrib_box_encode _npx_box_encode", _encode, _coded, types_of(2, 3), 2),
    row("_contrib_box_decode _npx_box_decode", like_first, _coded, slots="data anchors"),
    row("_contrib_MultiBoxPrior _npx_multibox_prior MultiBoxPrior", _prior, "create"),
    row("_contrib_MultiBoxTarget _npx_multibox_target MultiBoxTarget", _target_shapes, _matching, outputs=3,
        slots="anchor label cls_pred"),
    row("_contrib_MultiBoxDetection _npx_multibox_detection MultiBoxDetection", _detection_shapes, _detection,
        slots="cls_prob loc_pred anchor"),
    row("_contrib_Proposal Proposal", _proposal_shapes(whole_batch=False), _proposal, outputs=_proposal_outputs,
        slots="cls_prob bbox_pred im_info"),
    row("_contrib_MultiProposal MultiProposal", _proposal_shapes(whole_batch=True), _proposal, outputs=_proposal_outputs,
        slots="cls_prob bbox_pred im_info"),
    row("ROIPooling _npx_roi_pooling", _region_shapes, _region_pool("adaptive_max"), types_of(0, 1), slots="data rois"),
    row("_contrib_PSROIPooling", _region_shapes, _region_pool("adaptive_avg"), types_of(0, 1), slots="data rois"),
    row("_contrib_ROIAlign _npx_roi_align _contrib_RROIAlign", _region_shapes, _align, types_of(0, 1), slots="data rois"),
    row("_contrib_DeformablePSROIPooling", _region_shapes,
        lambda c: ("sample", {"taps": BILINEAR_TAPS * c.attrs.integer("sample_per_part", 1) ** 2}), types_of(0, 1),
        slots="data rois trans"),
]  # fmt: skip

ROWS = [*_RESIZED, *_BOXES]
