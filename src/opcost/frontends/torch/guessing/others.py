"""Models that say what they take by an example, and libraries with one kind of input."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from opcost.errors import InputError
from opcost.frontends.torch.guessing.configuration import Configuration
from opcost.frontends.torch.guessing.guess import Guess, Maker, arguments, comes_from
from opcost.frontends.torch.tree import map_tensors, tensors_in


def lightning(model: nn.Module, maker: Maker) -> Guess | None:
    """A model with Lightning's `example_input_array`."""
    example = getattr(model, "example_input_array", None)
    if example is None:
        return None
    example = _as_asked(example, maker)
    if isinstance(example, Mapping):
        return Guess((), dict(example), "its example_input_array")
    return Guess(example if isinstance(example, tuple) else (example,), {}, "its example_input_array")


def _as_asked(example: Any, maker: Maker) -> Any:
    """An example in the element type of the weights, and with the batch that was asked for, if its tensors agree on theirs."""
    batches = {tensor.shape[0] if tensor.dim() else 0 for tensor in tensors_in(example)}
    batch = maker.sizes.batch and maker.batch
    if batch and (len(batches) != 1 or 0 in batches):
        raise InputError(
            f"a batch of {batch} was asked for, and the tensors of the model's own example begin with different lengths",
            hint="give the inputs: shapes=..., or on the command line --input name:SHAPE",
        )

    def changed(tensor: torch.Tensor) -> torch.Tensor:
        tensor = tensor.to(maker.dtype) if tensor.is_floating_point() else tensor
        return tensor[:1].expand(batch, *tensor.shape[1:]) if batch else tensor

    return map_tensors(example, changed)


def open_clip(model: nn.Module, maker: Maker) -> Guess | None:
    """An image and a text, as open_clip's models take them, or what one of their two parts takes."""
    if not comes_from(model, "open_clip"):
        return None
    looks, reads = getattr(model, "visual", model), getattr(model, "text", model)
    size = getattr(looks, "image_size", None)
    length = getattr(model, "context_length", None) or getattr(reads, "context_length", None)
    given = []
    if size is not None or "image" in arguments(model):
        size = 224 if size is None else size
        given.append(maker.floats(3, *maker.image(size if isinstance(size, int) else (size[0], size[1]))))
    if length is not None or "text" in arguments(model):
        given.append(maker.integers(maker.tokens(length or 77)))
    return Guess(tuple(given), {}, "its image size and context length") if given else None


def sentence_transformers(model: nn.Module, maker: Maker) -> Guess | None:
    """The tokens of a sentence, in the mapping that the parts of a sentence model hand on."""
    layers = list(model.modules())
    if not comes_from(model, "sentence_transformers") or not any(
        isinstance(layer, (nn.Embedding, nn.EmbeddingBag)) for layer in layers
    ):
        return None
    inner = next((layer for layer in layers if comes_from(layer, "transformers") and hasattr(layer, "config")), None)
    most = [getattr(model, "max_seq_length", None), None if inner is None else Configuration(inner).positions()]
    count = maker.tokens(min((length for length in most if length), default=None))
    tokens = maker.integers(count, value=1)
    if any(isinstance(layer, nn.EmbeddingBag) for layer in layers):  # all sentences in one row, and where each begins
        offsets = torch.arange(maker.batch) * count
        return Guess(({"input_ids": tokens.flatten(), "offsets": offsets},), {}, "its max_seq_length")
    features = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}
    if any(isinstance(layer, nn.LSTM) for layer in layers):
        features["sentence_lengths"] = torch.full((maker.batch,), count)
    return Guess((features,), {}, "its max_seq_length")
