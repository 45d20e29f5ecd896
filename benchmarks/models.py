"""The models that the benchmarks count, each with its inputs; the large ones have shapes but no weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class Subject(NamedTuple):
    """A model in eval mode and the arguments of its forward."""

    model: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def prepare() -> None:
    """Make a torchvision without its binary importable: timm and transformers import it."""
    from opcost.frontends.zoo import declare_torchvision_operators

    declare_torchvision_operators()


def _image(name: str) -> Subject:
    import torch

    prepare()
    import timm

    return Subject(timm.create_model(name).eval(), (torch.zeros(1, 3, 224, 224),), {})


def _gpt2() -> Subject:
    import torch

    prepare()
    from transformers import GPT2Config, GPT2LMHeadModel

    return Subject(GPT2LMHeadModel(GPT2Config()).eval(), (), {"input_ids": torch.zeros(1, 128, dtype=torch.int64)})


def _llama(tokens: int, **sizes: int) -> Subject:
    import torch

    prepare()
    from transformers import LlamaConfig, LlamaForCausalLM

    with torch.device("meta"):
        model = LlamaForCausalLM(LlamaConfig(**sizes)).eval()
    return Subject(model, (), {"input_ids": torch.zeros(1, tokens, dtype=torch.int64)})


def _llama_7b() -> Subject:
    return _llama(2048)


def _llama_70b() -> Subject:
    return _llama(
        2048,
        num_hidden_layers=80,
        hidden_size=8192,
        intermediate_size=28672,
        num_attention_heads=64,
        num_key_value_heads=8,
    )


MODELS: dict[str, Callable[[], Subject]] = {
    "resnet50": lambda: _image("resnet50"),
    "vit_base_patch16_224": lambda: _image("vit_base_patch16_224"),
    "swin_tiny": lambda: _image("swin_tiny_patch4_window7_224"),
    "gpt2": _gpt2,
    "llama-7b": _llama_7b,
    "llama-70b": _llama_70b,
}
