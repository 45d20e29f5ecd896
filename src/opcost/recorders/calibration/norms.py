"""Normalisations, softmax, and their gradients."""

from __future__ import annotations

import random
from typing import Any

import torch
import torch.nn.functional as F

from opcost.recorders.calibration.cases import BATCHES, CLASSES, PATCHES, Case, Family, Tensor, aten, image, rows

softmax_gradient = aten._softmax_backward_data  # noqa: SLF001 - its only name
log_softmax_gradient = aten._log_softmax_backward_data  # noqa: SLF001 - its only name


def batch_norm(rng: random.Random, dtype: torch.dtype) -> Case:
    """Normalisation by channel, with saved statistics or its own."""
    shape, training = image(rng), rng.random() < 0.4
    c = shape[1]
    given = Tensor(shape, dtype), *[Tensor((c,), dtype, cold=True)] * 4

    def infer(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, m: torch.Tensor, v: torch.Tensor) -> Any:
        return F.batch_norm(x, m, v, w, b)

    def train(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, m: torch.Tensor, v: torch.Tensor) -> Any:
        return F.batch_norm(x, None, None, w, b, training=True)

    return Case("batch_norm", given, train if training else infer, "training" if training else "")


def batch_norm_gradient(rng: random.Random, dtype: torch.dtype) -> Case:
    """Its backward pass in training."""
    shape = image(rng)
    c = shape[1]
    # The statistics that a GPU saves are in float32 whatever the image is in.
    given = (
        Tensor(shape, dtype),
        Tensor(shape, dtype, cold=True),
        Tensor((c,), dtype),
        *[Tensor((c,), torch.float32)] * 2,
    )

    def run(y: torch.Tensor, x: torch.Tensor, w: torch.Tensor, mean: torch.Tensor, scale: torch.Tensor) -> Any:
        return aten.native_batch_norm_backward(
            y, x, w, None, None, mean, scale, train=True, eps=1e-5, output_mask=[True] * 3
        )

    return Case("batch_norm gradient", given, run)


def layer_norm(rng: random.Random, dtype: torch.dtype) -> Case:
    """Normalisation of rows."""
    m, c = rows(rng)
    given = Tensor((m, c), dtype), Tensor((c,), dtype, cold=True), Tensor((c,), dtype, cold=True)
    return Case("layer_norm", given, lambda x, w, b: F.layer_norm(x, (c,), w, b))


def layer_norm_turned(rng: random.Random, dtype: torch.dtype) -> Case:
    """The same over the channels of an image that lie apart: it is brought into another order first."""
    n, c, h, w = image(rng)
    given = Tensor((n, c, h * w), dtype), Tensor((c,), dtype, cold=True), Tensor((c,), dtype, cold=True)
    return Case(
        "layer_norm",
        given,
        lambda x, w, b: F.layer_norm(x, (c,), w, b),
        "turned",
        prepare=lambda x, w, b: (x.transpose(1, 2), w, b),
    )


def layer_norm_gradient(rng: random.Random, dtype: torch.dtype) -> Case:
    """Its backward pass."""
    m, c = rows(rng)
    each = Tensor((m, 1), torch.float32, cold=True)
    given = (
        Tensor((m, c), dtype),
        Tensor((m, c), dtype, cold=True),
        each,
        each,
        Tensor((c,), dtype),
        Tensor((c,), dtype),
    )

    def run(
        y: torch.Tensor, x: torch.Tensor, mean: torch.Tensor, scale: torch.Tensor, w: torch.Tensor, b: torch.Tensor
    ) -> Any:
        return aten.native_layer_norm_backward(y, x, [c], mean, scale, w, b, [True, True, True])

    return Case("layer_norm gradient", given, run)


def group_norm(rng: random.Random, dtype: torch.dtype) -> Case:
    """Normalisation by groups of channels."""
    c, h, groups = (
        rng.choice((64, 128, 256, 320, 512, 640, 1280)),
        rng.choice((7, 8, 14, 16, 28, 32, 56, 64)),
        rng.choice((1, 32)),
    )
    given = (
        Tensor((rng.choice(BATCHES), c, h, h), dtype),
        Tensor((c,), dtype, cold=True),
        Tensor((c,), dtype, cold=True),
    )
    return Case("group_norm", given, lambda x, w, b: F.group_norm(x, groups, w, b), f"groups={groups}")


def softmax(rng: random.Random, dtype: torch.dtype) -> Case:
    """Softmax over the last axis, and its backward pass."""
    many, places = rng.choice(BATCHES) * rng.choice((3, 8, 12, 16)), rng.choice(PATCHES[:14])
    gradient = rng.random() < 0.3
    if gradient:
        shape = (many, places, places)
        given = Tensor(shape, dtype), Tensor(shape, dtype, cold=True)
        return Case("softmax gradient", given, lambda y, x: softmax_gradient(y, x, -1, dtype))
    return Case("softmax", (Tensor((many, places, places), dtype),), lambda x: torch.softmax(x, -1))


def loss(rng: random.Random, dtype: torch.dtype) -> Case:
    """The logarithm of a softmax over classes or words, and its backward pass."""
    shape = (rng.choice(BATCHES) * rng.choice((1, 128, 512)), rng.choice(CLASSES))
    if rng.random() < 0.5:
        return Case("log_softmax", (Tensor(shape, dtype),), lambda x: torch.log_softmax(x, -1))
    given = Tensor(shape, dtype), Tensor(shape, dtype, cold=True)
    return Case("log_softmax gradient", given, lambda y, x: log_softmax_gradient(y, x, -1, dtype))


SHARES: dict[Family, int] = {
    batch_norm: 2, batch_norm_gradient: 1, layer_norm: 2, layer_norm_turned: 1, layer_norm_gradient: 1, group_norm: 1,
    softmax: 1, loss: 1,
}  # fmt: skip
"""How many cases of each family one round of the plan holds: many where sizes decide much."""
