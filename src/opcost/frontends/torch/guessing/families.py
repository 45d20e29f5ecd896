"""All families of models, in the order in which they are asked."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from opcost.frontends.torch.guessing import others
from opcost.frontends.torch.guessing.guess import Guess, Maker
from opcost.frontends.torch.guessing.images import timm, torchvision
from opcost.frontends.torch.guessing.transformers import transformers

FAMILIES: tuple[Callable[[nn.Module, Maker], Guess | None], ...] = (
    others.lightning,
    others.sentence_transformers,
    others.diffusers,
    others.open_clip,
    others.torch_geometric,
    transformers,
    timm,
    torchvision,
)


def guess(model: nn.Module, maker: Maker) -> Guess | None:
    """What the first family says that knows the model; None if nobody does."""
    return next((found for family in FAMILIES if (found := family(model, maker)) is not None), None)
