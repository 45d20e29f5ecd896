"""Convolutions as image networks have them, and their gradients."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import torch
import torch.nn.functional as F

from opcost.recorders.calibration.cases import BATCHES, CHANNELS, Case, Family, Tensor, aten, image


@dataclass(frozen=True, slots=True)
class _Window:
    """The sizes of a convolution."""

    n: int
    c: int
    o: int
    h: int
    k: int
    s: int
    g: int

    @property
    def image(self) -> tuple[int, ...]:
        return (self.n, self.c, self.h, self.h)

    @property
    def weight(self) -> tuple[int, ...]:
        return (self.o, self.c // self.g, self.k, self.k)

    @property
    def padding(self) -> int:
        return 0 if self.k == self.s else self.k // 2

    @property
    def out(self) -> tuple[int, ...]:
        h = (self.h + 2 * self.padding - self.k) // self.s + 1
        return (self.n, self.o, h, h)

    @property
    def flops(self) -> int:
        return 2 * prod(self.out) * prod(self.weight[1:])

    def __str__(self) -> str:
        return f"kernel={self.k} stride={self.s} groups={self.g}"


def _first(rng: random.Random) -> _Window:
    """The first layer of a network."""
    k, s = rng.choice([(3, 1), (3, 2), (3, 2), (7, 2), (7, 2), (7, 4), (11, 4), (4, 4), (14, 14), (16, 16), (32, 32)])
    o = rng.choice((16, 24, 32, 40, 48, 64, 96, 128, 192, 384, 768, 1024))
    return _Window(rng.choice(BATCHES), 3, o, 224, k, s, 1)


def _window(rng: random.Random) -> _Window:
    n, c, h, _ = image(rng)
    how = rng.random()
    if how < 0.07:
        return _first(rng)
    if how < 0.27:  # depthwise
        return _Window(n, c, c, h, rng.choice((3, 3, 3, 5, 5, 7, 7)), rng.choice((1, 1, 1, 2)), c)
    if how < 0.36:  # grouped
        width, groups = rng.choice((4, 8, 16, 24, 32, 48, 56, 64, 112)), rng.choice((2, 3, 4, 6, 8, 16, 32))
        return _Window(n, width * groups, width * groups, h, 3, rng.choice((1, 1, 1, 2)), groups)
    o = rng.choice(CHANNELS[1:]) if rng.random() < 0.3 else max(16, int(c * rng.choice((1, 1, 2, 4, 6, 0.5, 0.25))))
    if how < 0.40:  # as in Inception, and a patch made smaller by half
        k, s = rng.choice([(2, 2), (5, 1), (7, 1)])
        return _Window(n, c, o, h if h % 2 == 0 or s == 1 else h + 1, k, s, 1)
    if how < 0.45:  # squeeze and excitation
        return _Window(n, c, max(8, c // rng.choice((4, 8, 16, 24))), 1, 1, 1, 1)
    k = rng.choice((1, 1, 1, 3, 3))
    return _Window(n, c, o, h, k, rng.choice((1, 1, 1, 1, 2)), 1)


def convolution(rng: random.Random, dtype: torch.dtype) -> Case:
    """A convolution."""
    return _case(_window(rng), dtype, bias=rng.random() < 0.3)


def first_layer(rng: random.Random, dtype: torch.dtype) -> Case:
    """A convolution of images as they come, with three channels, which take ways of their own."""
    return _case(_first(rng), dtype, bias=rng.random() < 0.3)


def _case(w: _Window, dtype: torch.dtype, *, bias: bool) -> Case:
    tensors = [Tensor(w.image, dtype), Tensor(w.weight, dtype, cold=True)]
    if bias:
        tensors.append(Tensor((w.o,), dtype, cold=True))

    def run(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        return F.conv2d(x, weight, bias, w.s, w.padding, 1, w.g)

    return Case("convolution", tuple(tensors), run, str(w), w.flops)


def convolution_gradient(rng: random.Random, dtype: torch.dtype) -> Case:
    """The backward pass of a convolution: to its input, weight and bias, as far as they are wanted."""
    w = _window(rng)
    mask = [rng.random() < 0.9 and w.c != 3, True, rng.random() < 0.2]  # nobody asks for the gradient to an image

    def run(y: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> Any:
        sizes = {"stride": [w.s] * 2, "padding": [w.padding] * 2, "dilation": [1, 1], "output_padding": [0, 0]}
        return aten.convolution_backward(y, x, weight, [w.o], **sizes, transposed=False, groups=w.g, output_mask=mask)

    tensors = Tensor(w.out, dtype), Tensor(w.image, dtype, cold=True), Tensor(w.weight, dtype, cold=True)
    to = "".join(letter for letter, wanted in zip("iwb", mask, strict=True) if wanted)
    return Case("convolution gradient", tensors, run, f"{w} to={to}", 2 * w.flops)


def _laid_out(case: Case) -> Case:
    """The same with the channels of images and weights side by side."""

    def prepare(*given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x for x in given)

    return replace(case, family=f"{case.family} channels last", prepare=prepare)


def channels_last(rng: random.Random, dtype: torch.dtype) -> Case:
    """A convolution of images whose channels lie side by side."""
    return _laid_out(convolution(rng, dtype))


def channels_last_gradient(rng: random.Random, dtype: torch.dtype) -> Case:
    """Its backward pass."""
    return _laid_out(convolution_gradient(rng, dtype))


SHARES: dict[Family, int] = {
    convolution: 12, first_layer: 1, convolution_gradient: 3, channels_last: 3, channels_last_gradient: 1,
}  # fmt: skip
"""How many cases of each family one round of the plan holds: many where sizes decide much."""
