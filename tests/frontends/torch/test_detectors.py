"""torchvision's detectors, whose boxes depend on values: counted on real ones, from Python and from the command line."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from math import prod
from typing import Any

import pytest
import torch
from sampling import chosen
from torch import nn

import opcost

torchvision = pytest.importorskip("torchvision")
pytestmark = pytest.mark.zoo

SIDE = 64
FEW = {"num_classes": 3}
SMALL = {**FEW, "min_size": SIDE, "max_size": SIDE}
TWO_STAGES = {
    **SMALL,
    "rpn_post_nms_top_n_test": 3,
    "rpn_pre_nms_top_n_test": 20,
    "box_detections_per_img": 3,
    "box_score_thresh": 0.0,
}
ONE_STAGE = {**SMALL, "score_thresh": 0.0, "topk_candidates": 20}
DETECTORS: dict[str, dict[str, Any]] = {
    "fasterrcnn_mobilenet_v3_large_320_fpn": TWO_STAGES,
    "maskrcnn_resnet50_fpn": TWO_STAGES,
    "keypointrcnn_resnet50_fpn": TWO_STAGES,
    "retinanet_resnet50_fpn": ONE_STAGE,
    "fcos_resnet50_fpn": ONE_STAGE,
    "ssdlite320_mobilenet_v3_large": {**FEW, "topk_candidates": 20},
}
"""One of each kind, small enough to be run: boxes of any score are kept, so that every head has some to look at."""


def _best_of_overlapping(boxes: torch.Tensor, scores: torch.Tensor, iou_threshold: float) -> torch.Tensor:
    """What torchvision's own operator does: the best box first, and none that overlaps one which was kept."""
    left = scores.argsort(descending=True, stable=True)
    kept = []
    while left.numel():
        kept.append(left[0])
        overlap = torchvision.ops.box_iou(boxes[left[:1]], boxes[left[1:]])[0]
        left = left[1:][overlap <= iou_threshold]
    return torch.stack(kept) if kept else left


@pytest.fixture(scope="module", autouse=True)
def compiled_part() -> Iterator[None]:
    """torchvision's two operators in Python, where its compiled part does not fit the installed torch."""
    extension: Any = torchvision.extension
    if extension._has_ops():
        yield
        return
    pooling: Any = importlib.import_module("torchvision.ops.roi_align")
    in_python = pooling._roi_align.__wrapped__  # not compiled, so that it rounds alike for every caller
    with pytest.MonkeyPatch.context() as patch, torch.library._scoped_library("torchvision", "FRAGMENT") as operators:
        operators.define(
            "roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, "
            "int sampling_ratio, bool aligned) -> Tensor"
        )
        operators.impl("nms", _best_of_overlapping, "CPU")
        operators.impl("roi_align", in_python, "CPU")
        for module in (extension, pooling):
            patch.setattr(module, "_has_ops", lambda: True)
        yield


def _products_by_hand(model: nn.Module, images: list[torch.Tensor]) -> int:
    """Multiply-accumulates of every convolution and linear layer in a real run, from weights and outputs alone."""
    found = 0

    def seen(module: nn.Module, args: tuple[torch.Tensor], out: torch.Tensor) -> None:
        nonlocal found
        if isinstance(module, nn.Linear):
            found += out.numel() * module.in_features
        elif isinstance(module, nn.ConvTranspose2d):
            found += args[0].numel() * module.out_channels * prod(module.kernel_size)
        elif isinstance(module, nn.Conv2d):
            found += out.numel() * module.in_channels // module.groups * prod(module.kernel_size)

    hooks = [module.register_forward_hook(seen) for module in model.modules()]
    with torch.no_grad():
        model(images)
    for hook in hooks:
        hook.remove()
    return found


@pytest.mark.parametrize(
    "name", chosen(DETECTORS, "maskrcnn_resnet50_fpn", "retinanet_resnet50_fpn", "ssdlite320_mobilenet_v3_large")
)
def test_a_detector_is_counted_as_it_runs(name: str) -> None:
    torch.manual_seed(0)
    settings = {"weights": None, "weights_backbone": None, **DETECTORS[name]}
    model = torchvision.models.get_model(name, **settings).eval()
    images = [torch.rand(3, SIDE, SIDE)]
    report = opcost.count(model, (images,))
    by_hand = _products_by_hand(model, images)
    assert by_hand > 0
    products = [row for row in report.rows if row.op.kind in ("conv", "matmul")]
    assert sum(row.cost.macs * row.op.repeat for row in products if row.cost is not None) == by_hand
    assert report.coverage.uncounted == ()
    assert "real-values" in [note.code for note in report.notes]


@pytest.mark.parametrize("name", ["fasterrcnn_mobilenet_v3_large_320_fpn"])
def test_a_detector_is_counted_from_the_command_line(name: str, opcost_command: Any) -> None:
    words = [word for key, value in DETECTORS[name].items() for word in ("--set", f"{key}={value}")]
    done = opcost_command("count", f"torchvision:{name}", *words)
    assert done.code == 0, done.err
    side = DETECTORS[name].get("min_size", 320)
    assert f"no inputs were given: images 3x{side}x{side} float32" in " ".join(done.out.split())
