"""Products of matrices and attention, and their gradients."""

from __future__ import annotations

import random

import torch
import torch.nn.functional as F

from opcost.recorders.calibration.cases import (
    BATCHES,
    CLASSES,
    HEADS,
    PATCHES,
    WIDTHS,
    Case,
    Family,
    Tensor,
    backward,
    tokens,
)


def _other_width(rng: random.Random, width: int) -> int:
    """The other side of a layer: most are a small multiple or part of the one side."""
    if rng.random() < 0.3:
        return rng.choice(WIDTHS)
    return max(16, int(width * rng.choice((1, 1, 2, 3, 4, 4, 0.5, 0.25))))


def linear(rng: random.Random, dtype: torch.dtype) -> Case:
    """A layer that multiplies by a weight."""
    m, k, bias = tokens(rng), rng.choice(WIDTHS), rng.random() < 0.6
    n = rng.choice(CLASSES) if rng.random() < 0.06 else _other_width(rng, k)
    tensors = [Tensor((m, k), dtype), Tensor((n, k), dtype, cold=True)]
    if bias:
        tensors.append(Tensor((n,), dtype, cold=True))
    return Case("linear", tuple(tensors), F.linear, flops=2 * m * n * k)


def vocabulary(rng: random.Random, dtype: torch.dtype) -> Case:
    """A last layer, whose classes or words are often no multiple of eight."""
    m, k, n = tokens(rng), rng.choice(WIDTHS[9:24]), rng.choice((1000, 1001, 21841, 30522, 50257, 50257, 50265, 51865))
    return Case("linear", (Tensor((m, k), dtype), Tensor((n, k), dtype, cold=True)), F.linear, flops=2 * m * n * k)


def linear_gradient(rng: random.Random, dtype: torch.dtype) -> Case:
    """The two products of a backward pass: to the input, over the outputs; to the weight, over the rows."""
    m, k = tokens(rng), rng.choice(WIDTHS)
    n = _other_width(rng, k)
    if rng.random() < 0.5:
        given = Tensor((m, n), dtype), Tensor((n, k), dtype, cold=True)
        return Case("linear to input", given, torch.mm, flops=2 * m * n * k)
    given = Tensor((m, n), dtype), Tensor((m, k), dtype, cold=True)
    return Case("linear to weight", given, lambda y, x: torch.mm(y.t(), x), flops=2 * m * n * k)


def batched(rng: random.Random, dtype: torch.dtype) -> Case:
    """Products of many small matrices, as attention without a kernel of its own has them."""
    b = rng.choice(BATCHES) * rng.choice((1, 3, 4, 6, 8, 12, 16, 32))
    s, t, e = rng.choice(PATCHES), rng.choice(PATCHES), rng.choice(HEADS)
    m, k, n = rng.choice([(s, e, t), (s, t, e), (e, s, t)])
    return Case("bmm", (Tensor((b, m, k), dtype), Tensor((b, k, n), dtype)), torch.bmm, flops=2 * b * m * n * k)


def windowed(rng: random.Random, dtype: torch.dtype) -> Case:
    """Scores and sums of attention within the windows of an image: thousands of products of a few rows each."""
    windows = rng.choice(BATCHES) * rng.choice((1, 4, 16, 64))
    b, s, e = (
        windows * rng.choice((2, 3, 4, 6, 8, 12, 24)),
        rng.choice((49, 49, 64, 144, 256)),
        rng.choice((16, 32, 32, 64)),
    )
    flops = 2 * b * s * s * e
    if rng.random() < 0.5:
        return Case("bmm", (Tensor((b, s, s), dtype), Tensor((b, s, e), dtype)), torch.bmm, flops=flops)
    given = Tensor((b, s, e), dtype), Tensor((b, s, e), dtype)
    return Case("bmm", given, torch.bmm, "turned", flops, lambda q, k: (q, k.transpose(1, 2)))


def attention(rng: random.Random, dtype: torch.dtype) -> Case:
    """Attention, and one step of it against a cache; causal, masked or neither."""
    b, heads, e, causal = rng.choice(BATCHES), rng.choice((3, 6, 8, 12, 16, 32)), rng.choice(HEADS), rng.random() < 0.4
    s = rng.choice(PATCHES) if rng.random() < 0.5 else 2 ** rng.randint(5, 12)
    t = s
    if rng.random() < 0.2:  # one step against a cache, or a text that looks at an image
        s, causal = rng.choice((1, 1, 77, s)), False
    given = [Tensor((b, heads, s, e), dtype), Tensor((b, heads, t, e), dtype), Tensor((b, heads, t, e), dtype)]
    if masked := not causal and rng.random() < 0.3:
        given.append(Tensor((b, 1 if rng.random() < 0.5 else heads, s, t), dtype))

    def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v, mask, is_causal=causal)

    return Case(
        "attention", tuple(given), run, "causal" if causal else "masked" if masked else "", 4 * b * heads * s * t * e
    )


def hidden(rng: random.Random, dtype: torch.dtype) -> Case:
    """Attention under a mask of truths that all heads share, as texts of several lengths have it."""
    b, heads, e = rng.choice(BATCHES[:8]), rng.choice((8, 12, 12, 14, 16, 16, 32)), rng.choice(HEADS)
    s = rng.choice(PATCHES) if rng.random() < 0.3 else 2 ** rng.randint(5, 11)
    part = Tensor((b, heads, s, e), dtype)
    given = part, part, part, Tensor((b, 1, s, s), torch.bool)
    return Case("attention", given, F.scaled_dot_product_attention, "masked", 4 * b * heads * s * s * e)


def attention_gradient(rng: random.Random, dtype: torch.dtype) -> Case:
    """The backward pass of attention: five products of sizes of which the forward pass has two."""
    case = attention(rng, dtype)
    return backward(case, 3, case.flops * 5 // 2)


SHARES: dict[Family, int] = {
    linear: 8, vocabulary: 1, linear_gradient: 3, batched: 2, windowed: 1, attention: 2, hidden: 1, attention_gradient: 1,
}  # fmt: skip
"""How many cases of each family one round of the plan holds: many where sizes decide much."""
