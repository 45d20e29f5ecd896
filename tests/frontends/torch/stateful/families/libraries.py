"""Models of libraries as they come, which keep tensors in caches of their files, with small configurations."""

from __future__ import annotations

import importlib.util
from typing import Any

import torch
from stateful.registry import stateful
from torch import nn

_HERE = importlib.util.find_spec("transformers") is not None


def image() -> tuple[Any, ...]:
    return (torch.linspace(-1, 1, 3 * 64 * 64).reshape(1, 3, 64, 64),)


def _detector(name: str, **more: Any) -> nn.Module:
    import transformers

    backbone = transformers.RTDetrResNetConfig(
        embedding_size=4, hidden_sizes=[4, 8, 12, 16], depths=[1, 1, 1, 1], layer_type="basic",
        out_features=["stage2", "stage3", "stage4"],
    )  # fmt: skip
    config = getattr(transformers, f"{name}Config")(
        backbone_config=backbone, encoder_hidden_dim=8, encoder_in_channels=[8, 12, 16], encoder_layers=1,
        encoder_ffn_dim=8, encoder_attention_heads=2, d_model=8, num_queries=5, decoder_in_channels=[8, 8, 8],
        decoder_ffn_dim=8, decoder_layers=2, decoder_attention_heads=2, feat_strides=[8, 16, 32],
        num_denoising=0, hidden_expansion=1.0, **more,
    )  # fmt: skip
    return getattr(transformers, f"{name}Model")(config).eval()


if _HERE:

    @stateful("anchors of RT-DETR", inputs=image, modules=("transformers.models.rt_detr.modeling_rt_detr",))
    def RTDetr() -> nn.Module:
        return _detector("RTDetr")

    @stateful("anchors of RT-DETR v2", inputs=image, modules=("transformers.models.rt_detr_v2.modeling_rt_detr_v2",))
    def RTDetrV2() -> nn.Module:
        return _detector("RTDetrV2")

    @stateful("anchors of D-FINE", inputs=image, modules=("transformers.models.d_fine.modeling_d_fine",))
    def DFine() -> nn.Module:
        return _detector("DFine", depth_mult=0.34)

    @stateful("positions of DINOv3", inputs=image, modules=("transformers.models.dinov3_vit.modeling_dinov3_vit",))
    def DINOv3() -> nn.Module:
        import transformers

        config = transformers.DINOv3ViTConfig(
            image_size=64, patch_size=16, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2
        )
        return transformers.DINOv3ViTModel(config).eval()

    @stateful("relative positions of BEiT", inputs=image, modules=("transformers.models.beit.modeling_beit",))
    def Beit() -> nn.Module:
        import transformers

        config = transformers.BeitConfig(
            image_size=64, patch_size=16, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2,
            use_relative_position_bias=True,
        )  # fmt: skip
        return transformers.BeitModel(config).eval()

    @stateful(
        "relative positions of Data2Vec",
        inputs=image,
        modules=("transformers.models.data2vec.modeling_data2vec_vision",),
    )
    def Data2VecVision() -> nn.Module:
        import transformers

        config = transformers.Data2VecVisionConfig(
            image_size=64, patch_size=16, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2,
            use_relative_position_bias=True,
        )  # fmt: skip
        return transformers.Data2VecVisionModel(config).eval()
