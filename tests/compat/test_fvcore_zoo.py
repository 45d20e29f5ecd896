"""Published models: the totals that fvcore itself gives, computed with it and published with timm's benchmark tables.

Built without data, in evaluation mode, batch 1, after `timm.utils.reparameterize_model`.
"""

from __future__ import annotations

import logging

import pytest
import torch
from sampling import chosen

import opcost.compat.fvcore as ours

pytestmark = pytest.mark.zoo
timm = pytest.importorskip("timm")

FLOPS_AND_ACTIVATIONS = {
    ("lcnet_050", 224): (47_264_896, 1_263_432),
    ("vit_tiny_patch16_224", 224): (1_258_411_200, 5_974_636),
    ("convnext_atto", 224): (552_053_760, 3_811_240),
    ("mobileone_s0", 224): (275_160_576, 3_789_288),
    ("swin_tiny_patch4_window7_224", 224): (4_509_194_496, 17_055_352),
    ("tinynet_e", 106): (25_750_752, 690_452),
}


@pytest.mark.parametrize(
    ("name", "size"),
    chosen(FLOPS_AND_ACTIVATIONS, ("lcnet_050", 224), ("vit_tiny_patch16_224", 224), ("mobileone_s0", 224)),
)
def test_a_published_model_has_the_flops_and_activations_of_fvcore(
    name: str, size: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    with torch.device("meta"):
        model = timm.utils.reparameterize_model(timm.create_model(name, pretrained=False).eval())
    x = torch.empty(1, 3, size, size, device="meta")
    flops = ours.FlopCountAnalysis(model, x)
    acts = ours.ActivationCountAnalysis(model, x).share_run(flops)
    assert (flops.total(), acts.total()) == FLOPS_AND_ACTIVATIONS[name, size]


def test_the_lstm_of_sequencer_is_counted_too(caplog: pytest.LogCaptureFixture) -> None:
    """fvcore counts the rest of sequencer2d_s; each of its 18 blocks runs two bidirectional LSTMs over the map."""
    caplog.set_level(logging.ERROR)
    with torch.device("meta"):
        model = timm.create_model("sequencer2d_s", pretrained=False).eval()
    flops = ours.FlopCountAnalysis(model, torch.empty(1, 3, 224, 224, device="meta")).by_operator()
    blocks = ((4, 32, 192, 48), (3, 16, 384, 96), (8, 16, 384, 96), (3, 16, 384, 96))
    assert flops["lstm"] == sum(
        depth * 2 * 2 * side * side * 4 * hidden * (width + hidden) for depth, side, width, hidden in blocks
    )
