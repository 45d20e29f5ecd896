"""Models that say what they take by an example, and libraries with one kind of input."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from opcost.frontends.torch.guessing.guess import Guess, Maker, comes_from

_NODES, _EDGES = 1000, 5000
"""Of a graph: about what a small citation graph has."""


def lightning(model: nn.Module, maker: Maker) -> Guess | None:
    """A model with Lightning's `example_input_array`."""
    example = getattr(model, "example_input_array", None)
    if example is None:
        return None
    if isinstance(example, Mapping):
        return Guess((), dict(example), "its example_input_array")
    return Guess(example if isinstance(example, tuple) else (example,), {}, "its example_input_array")


def diffusers(model: nn.Module, maker: Maker) -> Guess | None:
    """A denoiser or autoencoder of diffusers, by its configuration."""
    if not comes_from(model, "diffusers"):
        return None
    config: Any = getattr(model, "config", {})
    names = _arguments(model)
    channels, size = config.get("in_channels", 3), config.get("sample_size") or 32
    height, width = maker.image(size if isinstance(size, int) else (size[0], size[1]))
    kwargs: dict[str, Any] = {}
    if "hidden_states" in names:
        kwargs["hidden_states"] = maker.floats(channels, height, width)
    else:
        kwargs["sample"] = maker.floats(channels, height, width)
    if "timestep" in names:
        kwargs["timestep"] = maker.integers()
    width_of_text = (
        config.get("cross_attention_dim") or config.get("caption_channels") or config.get("joint_attention_dim")
    )
    if isinstance(width_of_text, (list, tuple)):
        width_of_text = width_of_text[0]
    if "encoder_hidden_states" in names and width_of_text:
        kwargs["encoder_hidden_states"] = maker.floats(maker.sizes.tokens or 77, width_of_text)
    if "pooled_projections" in names and (pooled := config.get("pooled_projection_dim")):
        kwargs["pooled_projections"] = maker.floats(pooled)
    if "class_labels" in names and config.get("num_embeds_ada_norm") and config.get("norm_type") == "ada_norm_zero":
        kwargs["class_labels"] = maker.integers()
    if config.get("addition_embed_type") == "text_time":
        ids = 6
        pooled = config["projection_class_embeddings_input_dim"] - ids * config["addition_time_embed_dim"]
        kwargs["added_cond_kwargs"] = {"text_embeds": maker.floats(pooled), "time_ids": maker.floats(ids)}
    return Guess((), kwargs, "its configuration")


def open_clip(model: nn.Module, maker: Maker) -> Guess | None:
    """An image and a text, as open_clip's models take them."""
    if not comes_from(model, "open_clip"):
        return None
    size = getattr(getattr(model, "visual", None), "image_size", 224)
    length = getattr(model, "context_length", None) or getattr(getattr(model, "text", None), "context_length", 77)
    image = maker.floats(3, *maker.image(size if isinstance(size, int) else (size[0], size[1])))
    return Guess((image, maker.integers(maker.tokens(length))), {}, "its image size and context length")


def sentence_transformers(model: nn.Module, maker: Maker) -> Guess | None:
    """The tokens of a sentence, in the mapping that the parts of a sentence model hand on."""
    if not comes_from(model, "sentence_transformers"):
        return None
    tokens = maker.tokens(getattr(model, "max_seq_length", None) or 512)
    features = {"input_ids": maker.integers(tokens, value=1), "attention_mask": maker.integers(tokens, value=1)}
    return Guess((features,), {}, "its max_seq_length")


def torch_geometric(model: nn.Module, maker: Maker) -> Guess | None:
    """A graph: features of nodes, and edges, none of which has a place of its own."""
    if not comes_from(model, "torch_geometric"):
        return None
    width = getattr(model, "in_channels", None)
    if isinstance(width, (list, tuple)):
        width = width[0]
    names = _arguments(model)
    if not isinstance(width, int) or width < 1 or "edge_index" not in names:
        return None
    nodes = torch.empty((_NODES, width), dtype=maker.dtype, device="meta")
    edges = torch.stack([torch.arange(_EDGES) % _NODES, (torch.arange(_EDGES) * 7 + 1) % _NODES])
    return Guess((), {names[0]: nodes, "edge_index": edges}, f"a graph of {_NODES} nodes and {_EDGES} edges")


def _arguments(model: nn.Module) -> list[str]:
    import inspect

    try:
        return list(inspect.signature(model.forward).parameters)
    except (TypeError, ValueError):  # a method of a traced module
        return []
