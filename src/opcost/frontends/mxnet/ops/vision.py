"""Boxes and regions: anchors, proposals, non-maximum suppression, pooling of regions."""

from __future__ import annotations

from math import prod

from opcost.core.shapes import Extent, Mismatch, adaptive_windows, divided, product, text, times
from opcost.frontends.mxnet.attribute import Attributes
from opcost.frontends.mxnet.ops.convolution import BILINEAR_TAPS
from opcost.frontends.mxnet.ops.elementwise import like_first
from opcost.frontends.mxnet.ops.table import (
    Call,
    Operator,
    Translate,
    Translation,
    define,
    elementwise,
    register,
    same_types,
    types_of,
)

OVERLAP_FLOPS = 14
"""Of two boxes: four comparisons, two differences and two clamps, a product, and what the union needs (5)."""
DECODE_FLOPS = 14
"""Of a box: four products, four sums, two exponentials, two halvings, two differences."""


def _compared(boxes: int, batch: int) -> Translation:
    """Boxes sorted by score. How many pairs are compared after that depends on the data and is left out."""
    return elementwise("compare", elements=batch * boxes * max(boxes - 1, 0).bit_length())


def _suppressed(call: Call) -> Translation:
    *batch, boxes, _ = call.x()
    return _compared(boxes, product(batch) or 1)


def _nms(call: Call) -> None:
    like_first(call)
    x = call.dims(0)
    if len(x) < 2:
        raise Mismatch(f"the data is {text(x)}, not boxes and their coordinates")


def _overlap(call: Call) -> None:
    a, b = call.every()
    call.put_out(0, (*a[:-1], *b[:-1]))


def _overlapped(call: Call) -> Translation:
    return elementwise("add", elements=OVERLAP_FLOPS * (product(call.y()) or 0))


def _match(call: Call) -> None:
    x = call.dims(0)
    if len(x) > 1:
        call.put_out(0, x[:-1])
        call.put_out(1, (*x[:-2], x[-1]))


def _matched(call: Call) -> Translation:
    *batch, rows, columns = call.x()
    return _compared(rows * columns, product(batch) or 1)


def _encode(call: Call) -> None:
    anchors = call.ins[2]
    call.put_in(4, (4,))
    call.put_in(5, (4,))
    call.put_out(0, anchors)
    call.put_out(1, anchors)


def _coded(call: Call) -> Translation:
    boxes = (product(call.y()) or 0) // 4
    return elementwise("add", elements=DECODE_FLOPS * boxes)


def _prior(call: Call) -> None:
    x = call.dims(0)
    if len(x) < 4:
        raise Mismatch(f"the data is {text(x)}, not batch, channels, height and width")
    each = call.attrs.count("sizes", 1) + call.attrs.count("ratios", 1) - 1
    call.put_out(0, (1, times(product(x[2:4]), each), 4))


def _target(call: Call) -> None:
    anchors, label = call.dims(0), call.dims(1)
    if len(anchors) != 3 or not label:
        return
    numbers = product(anchors)
    call.put_out(0, (label[0], numbers))
    call.put_out(1, (label[0], numbers))
    call.put_out(2, (label[0], anchors[1]))


def _targeted(call: Call) -> Translation:
    """Every anchor meets every label; negatives are chosen by a sort."""
    anchors, labels = call.x(0)[1], call.x(1)[1]
    return elementwise("add", elements=call.x(1)[0] * anchors * labels * OVERLAP_FLOPS)


def _detection(call: Call) -> None:
    scores, anchors = call.ins[0], call.ins[2]
    batch: Extent = scores[0] if scores else None
    count = (
        anchors[1] if anchors is not None and len(anchors) == 3 else scores[2] if scores and len(scores) == 3 else None
    )
    call.put_out(0, (batch, count, 6))


def _detected(call: Call) -> Translation:
    batch, boxes, _ = call.y()
    sort = boxes * max(boxes - 1, 0).bit_length()
    return elementwise("compare", elements=batch * (sort + boxes * DECODE_FLOPS))


def _proposal(*, whole_batch: bool) -> Operator:
    """Regions from scores and box changes; with `whole_batch` so many for every image."""

    def infer(call: Call) -> None:
        scores = call.ins[0]
        kept = call.attrs.integer("rpn_post_nms_top_n", 300)
        if scores is not None and len(scores) == 4:
            batch, channels, height, width = scores
            call.put_in(1, (batch, times(channels, 2), height, width))
            call.put_in(2, (batch, 3))
            rows: Extent = times(batch, kept) if whole_batch else kept
            call.put_out(0, (rows, 5))
            call.put_out(1, (rows, 1))

    def translate(call: Call) -> Translation:
        batch, channels, height, width = call.x()
        boxes = channels // 2 * height * width
        sort = boxes * max(boxes - 1, 0).bit_length()
        return elementwise("compare", elements=batch * (sort + boxes * DECODE_FLOPS))

    return Operator(infer, translate, same_types, _proposal_outputs, slots=("cls_prob", "bbox_pred", "im_info"))


def _proposal_outputs(attrs: Attributes) -> int:
    return 2 if attrs.flag("output_score") else 1


def _pooled_size(call: Call) -> tuple[int, ...]:
    size = call.attrs.integers("pooled_size")
    return size if len(size) == 2 else (size[0], size[0])


def _regions(call: Call) -> None:
    """One small image for every region; its channels are the data's unless `output_dim` says otherwise."""
    x, regions = call.dims(0), call.dims(1)
    if len(x) != 4 or len(regions) != 2:
        raise Mismatch(f"the data is {text(x)} and the regions are {text(regions)}")
    height, width = _pooled_size(call)
    depth: Extent = call.attrs.integer("output_dim") if "output_dim" in call.attrs else x[1]
    if call.attrs.flag("position_sensitive"):
        depth = divided(depth, height * width, "channels", "places")
    call.put_out(0, (regions[0], depth, height, width))


def _pooled(fn: str) -> Translate:
    """Regions lie in data; a window is taken as its share of the whole image."""

    def translate(call: Call) -> Translation:
        return Translation("pool", {"fn": fn, "window": prod(adaptive_windows(call.x()[2:], call.y()[2:])[0])})

    return translate


def _aligned(call: Call) -> Translation:
    """Each output averages bilinear samples; a ratio that adapts itself to the region is taken as two."""
    ratio = call.attrs.integer("sample_ratio", call.attrs.integer("sampling_ratio", -1))
    each = ratio * ratio if ratio > 0 else 4
    return Translation("sample", {"taps": BILINEAR_TAPS * each})


def _deformed(call: Call) -> Translation:
    each = call.attrs.integer("sample_per_part", 1)
    return Translation("sample", {"taps": BILINEAR_TAPS * each * each})


_ROI_SLOTS = ("data", "rois")

define("_contrib_box_nms _contrib_box_non_maximum_suppression _npx_box_nms", _nms, _suppressed)
define("_contrib_box_iou _npx_box_iou", _overlap, _overlapped, slots="lhs rhs")
define("_contrib_bipartite_matching _npx_bipartite_matching", _match, _matched, same_types, 2)
define("_contrib_box_encode _npx_box_encode", _encode, _coded, types_of(2, 3), 2)
define("_contrib_box_decode _npx_box_decode", like_first, _coded, same_types, slots="data anchors")
define("_contrib_MultiBoxPrior _npx_multibox_prior MultiBoxPrior", _prior, Translation("create"))
define(
    "_contrib_MultiBoxTarget _npx_multibox_target MultiBoxTarget",
    _target,
    _targeted,
    same_types,
    3,
    slots="anchor label cls_pred",
)
define(
    "_contrib_MultiBoxDetection _npx_multibox_detection MultiBoxDetection",
    _detection,
    _detected,
    slots="cls_prob loc_pred anchor",
)
register(("_contrib_Proposal", "Proposal"), _proposal(whole_batch=False))
register(("_contrib_MultiProposal", "MultiProposal"), _proposal(whole_batch=True))
define("ROIPooling _npx_roi_pooling", _regions, _pooled("adaptive_max"), types_of(0, 1), slots=_ROI_SLOTS)
define("_contrib_PSROIPooling", _regions, _pooled("adaptive_avg"), types_of(0, 1), slots=_ROI_SLOTS)
define("_contrib_ROIAlign _npx_roi_align _contrib_RROIAlign", _regions, _aligned, types_of(0, 1), slots=_ROI_SLOTS)
define("_contrib_DeformablePSROIPooling", _regions, _deformed, types_of(0, 1), slots="data rois trans")
