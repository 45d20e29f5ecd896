"""What is timed: an operator with its tensors, and the sizes that models have.

With random odd sizes products of bfloat16 matrices take five to eight times as long, and a prediction from them is as wrong.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import torch

aten: Any = torch.ops.aten


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor to be made for a case."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    cold: bool = False
    """It comes from memory when a model runs (a weight, an activation saved for the backward pass) and not from the cache,
    where what the operator before has just written still is."""
    below: int = 0
    """Of integers, the bound."""

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * int(self.dtype.itemsize)


@dataclass(frozen=True, slots=True)
class Case:
    """One operator on one set of sizes."""

    family: str
    tensors: tuple[Tensor, ...]
    run: Callable[..., Any]
    settings: str = ""
    """What beside the tensors tells it apart from other cases of the family."""
    flops: int = 0
    """About how much it calculates: a case that would take too long is left out."""
    prepare: Callable[..., tuple[Any, ...]] | None = None
    """What makes of the tensors, once and untimed, what `run` takes."""

    @property
    def name(self) -> str:
        """What the case is called: the same in every run, so that one that was broken off can go on."""
        shapes = " ".join("x".join(map(str, tensor.shape)) for tensor in self.tensors)
        return f"{self.family} {str(self.tensors[0].dtype).removeprefix('torch.')} {shapes} {self.settings}".rstrip()


def backward(case: Case, wanted: int, flops: int = 0) -> Case:
    """The backward pass of a case, to the first tensors that it is given: so many as are `wanted`."""

    def prepare(*given: torch.Tensor) -> tuple[Any, ...]:
        sources = tuple(tensor.detach().requires_grad_() for tensor in given[:wanted])
        with torch.enable_grad():
            out = case.run(*sources, *given[wanted:])
        return out, torch.ones_like(out), *sources

    def run(out: torch.Tensor, gradient: torch.Tensor, *sources: torch.Tensor) -> Any:
        return torch.autograd.grad(out, sources, gradient, retain_graph=True)

    return Case(f"{case.family} gradient", case.tensors, run, case.settings, flops, prepare)


Family = Callable[[random.Random, torch.dtype], Case]

WIDTHS = (
    64, 96, 128, 160, 192, 256, 320, 384, 512, 576, 640, 768, 896, 960, 1024, 1152, 1280, 1536, 1792, 2048, 2304, 2560,
    3072, 3584, 4096, 4864, 5120, 6144, 8192, 9728, 11008, 12288, 14336,
)  # fmt: skip
"""Widths of layers."""
CLASSES = (10, 21, 1000, 21841, 30522, 32000, 50257, 128256, 151936)
"""What last layers hand out: classes and vocabularies."""
PATCHES = (49, 50, 64, 77, 144, 145, 196, 197, 256, 257, 576, 577, 784, 1024, 3136)
"""Places of an image, or a short text."""
BATCHES = (1, 1, 2, 4, 8, 8, 16, 32, 32, 64)
CHANNELS = (
    3, 16, 24, 32, 40, 48, 64, 64, 72, 80, 96, 112, 128, 128, 144, 160, 192, 240, 256, 256, 288, 320, 384, 448, 480, 512,
    512, 576, 640, 672, 768, 960, 1024, 1152, 1280, 1536, 1920, 2048,
)  # fmt: skip
EXTENTS = (7, 14, 28, 56, 112)
HEADS = (32, 48, 64, 64, 64, 80, 96, 128, 128)


def tokens(rng: random.Random) -> int:
    """Rows of a product: places times batch, a power of two, or seldom anything."""
    how = rng.random()
    if how < 0.5:
        return rng.choice(PATCHES) * rng.choice(BATCHES)
    return 2 ** rng.randint(0, 14) if how < 0.9 else int(2 ** rng.uniform(0, 14))


def image(rng: random.Random) -> tuple[int, int, int, int]:
    """Images, channels and extents as a network has them: the smaller the image has become, the more channels it has."""
    stage = rng.choice((0, 1, 1, 2, 2, 3, 3, 3, 4, 4))
    channels = [c for c in CHANNELS if 8 << stage <= c <= 160 << stage]
    return rng.choice(BATCHES), rng.choice(channels), 112 >> stage, 112 >> stage


def rows(rng: random.Random) -> tuple[int, int]:
    """What is normalised row by row: places of an image with its channels behind, or words with their width."""
    if rng.random() < 0.4:
        n, c, h, w = image(rng)
        return n * h * w, max(64, c)
    return tokens(rng), rng.choice(WIDTHS[:25])


def elements(rng: random.Random) -> tuple[int, ...]:
    """Activations as they are between layers."""
    return image(rng) if rng.random() < 0.5 else (tokens(rng), rng.choice(WIDTHS))
