"""Models of images: timm says the size itself, torchvision in the transforms of its weights or in the model's own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from torch import nn

from opcost.frontends.torch.guessing.guess import Guess, Maker, comes_from

_FRAMES = 16
"""Of a video: with so many all of torchvision's were trained."""
_FLOW = (520, 960)
"""Of a pair of frames: to this size torchvision's own example brings them."""


def timm(model: nn.Module, maker: Maker) -> Guess | None:
    """A model of timm, or one that says its size in timm's way."""
    for name in ("pretrained_cfg", "default_cfg"):
        size = (getattr(model, name, None) or {}).get("input_size")
        if size is not None:
            channels, height, width = size
            image = maker.floats(channels, *maker.image((height, width)))
            return Guess((image,), {}, f"its {name}")
    return None


def torchvision(model: nn.Module, maker: Maker) -> Guess | None:
    """A model of torchvision: a detector takes a list of images, a video model frames, a flow model two images."""
    if not comes_from(model, "torchvision"):
        return None
    module = type(model).__module__
    if ".detection." in module:
        size = _detected(getattr(model, "transform", None))
        shape = maker.floats(3, *maker.image(size))[0].shape
        images = [maker.floats(*shape)[0] for _ in range(maker.batch)]
        return Guess((images,), {}, "the size to which its own transform brings images")
    if ".optical_flow." in module:
        pair = tuple(maker.floats(3, *maker.image(_FLOW)) for _ in range(2))
        return Guess(pair, {}, "the size of torchvision's own example")
    size, source = _trained(model)
    image = maker.image(size)
    if ".video." in module:
        return Guess((maker.floats(3, _FRAMES, *image),), {}, f"{_FRAMES} frames, and {source}")
    return Guess((maker.floats(3, *image),), {}, source)


def _detected(transform: Any) -> tuple[int, int]:
    fixed, least = getattr(transform, "fixed_size", None), getattr(transform, "min_size", (800,))
    if fixed is not None:
        return int(fixed[1]), int(fixed[0])
    return int(least[-1]), int(least[-1])


def _trained(model: nn.Module) -> tuple[tuple[int, int], str]:
    """The size of images in the transforms of the weights that fit this model: those with as many parameters."""
    least: tuple[int, int] | None = None
    count = sum(parameter.numel() for parameter in model.parameters())
    for weights in _weights(type(model)):
        size = _crop(weights)
        if size is None:
            continue
        if weights.meta.get("num_params") == count:
            return size, f"the transforms of its weights {weights}"
        least = size if least is None else min(least, size)
    return least or (224, 224), "the transforms of its family's weights" if least else "the usual size"


def _weights(cls: type) -> Iterator[Any]:
    """All weights that the file of a class, or of one above, has."""
    for base in cls.__mro__:
        if base.__module__.startswith("torchvision.models"):
            for value in vars(sys.modules[base.__module__]).values():
                if isinstance(value, type) and value.__name__.endswith("_Weights") and hasattr(value, "__members__"):
                    yield from value  # type: ignore[misc]


def _crop(weights: Any) -> tuple[int, int] | None:
    settings = getattr(weights.transforms, "keywords", {})
    size = settings.get("crop_size") or settings.get("resize_size")
    if isinstance(size, (list, tuple)):
        return int(size[0]), int(size[-1])
    return (int(size), int(size)) if isinstance(size, int) else None
