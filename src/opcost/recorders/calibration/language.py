"""What language models do while they write a text: few rows at a time, against a cache of keys and values."""

from __future__ import annotations

import random
from typing import Any

import torch
import torch.nn.functional as F

from opcost.recorders.calibration.cases import CLASSES, WIDTHS, Case, Family, Tensor

AT_ONCE = (1, 1, 2, 4, 8, 8, 16, 32, 64)
"""Texts that are written at once."""
_KV_HEADS = (1, 2, 4, 8, 8, 12, 16, 32)
_QUERIES = (1, 1, 2, 3, 4, 4, 6, 7, 8)
"""Heads that ask for each head of the cache."""
_FEATURES = (64, 64, 80, 96, 128, 128, 128, 256)


def _cached(rng: random.Random) -> int:
    """Tokens of a cache, one of them new: any number, as texts have."""
    return int(2 ** rng.uniform(4, 13.5))


def thin(rng: random.Random, dtype: torch.dtype) -> Case:
    """A layer on a token of each text: its weight is read for a few rows."""
    m, k = rng.choice(AT_ONCE), rng.choice(WIDTHS[9:])
    n = rng.choice(CLASSES[4:]) if rng.random() < 0.1 else rng.choice(WIDTHS[5:])
    tensors = [Tensor((m, k), dtype), Tensor((n, k), dtype, cold=True)]
    if rng.random() < 0.3:
        tensors.append(Tensor((n,), dtype, cold=True))
    return Case("linear", tuple(tensors), F.linear, flops=2 * m * n * k)


def step(rng: random.Random, dtype: torch.dtype) -> Case:
    """Attention of one new token of each text against the cache; heads share keys and values, unless a mask is given."""
    b, heads, e, t = rng.choice(AT_ONCE), rng.choice(_KV_HEADS), rng.choice(_FEATURES), _cached(rng)
    masked = rng.random() < 0.25
    groups = 1 if masked else rng.choice(_QUERIES)
    cache = Tensor((b, heads, t, e), dtype, cold=True)
    given = [Tensor((b, heads * groups, 1, e), dtype), cache, cache]
    if masked:
        given.append(Tensor((b, 1, 1, t), torch.bool))

    def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v, mask, enable_gqa=groups > 1)

    return Case("attention", tuple(given), run, "masked" if masked else "", 4 * b * heads * groups * t * e)


def grown(rng: random.Random, dtype: torch.dtype) -> Case:
    """A cache, and a longer one with a new token behind."""
    b, heads, e, t = rng.choice(AT_ONCE), rng.choice(_KV_HEADS), rng.choice(_FEATURES), _cached(rng)
    given = Tensor((b, heads, t, e), dtype, cold=True), Tensor((b, heads, 1, e), dtype)
    return Case("cat", given, lambda *x: torch.cat(x, -2))


def grown_apart(rng: random.Random, dtype: torch.dtype) -> Case:
    """The same where keys and values of the token are parts of what one layer handed out."""
    b, heads, e, t = rng.choice(AT_ONCE), rng.choice(_KV_HEADS), rng.choice(_FEATURES), _cached(rng)
    given = Tensor((b, heads, t, e), dtype, cold=True), Tensor((b, 1, heads, 3 * e), dtype)
    return Case(
        "cat",
        given,
        lambda *x: torch.cat(x, -2),
        "apart",
        prepare=lambda cache, x: (cache, x[..., :e].transpose(1, 2)),
    )


def grown_first(rng: random.Random, dtype: torch.dtype) -> Case:
    """A cache that begins: what it keeps of a text comes word by word, and lies head by head."""
    b, heads, e, t = rng.choice(AT_ONCE[:6]), rng.choice(_KV_HEADS), rng.choice(_FEATURES), _cached(rng)
    given = (Tensor((b, t, heads, e), dtype),)
    return Case(
        "cat",
        given,
        lambda *x: torch.cat(x, -2),
        "first",
        prepare=lambda x: (x[:, :0].transpose(1, 2), x.transpose(1, 2)),
    )


def turned_halves(rng: random.Random, dtype: torch.dtype) -> Case:
    """Both halves of queries or keys, swapped, as they lie in what a layer handed out."""
    b, heads, e = rng.choice(AT_ONCE), rng.choice(_KV_HEADS) * rng.choice(_QUERIES), rng.choice(_FEATURES)
    s = rng.choice((1, 1, 1, 128, 512, 1024, 2048))

    def halved(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        first, second = x.transpose(1, 2).chunk(2, -1)
        return -second, first

    return Case("cat", (Tensor((b, s, heads, e), dtype),), lambda *x: torch.cat(x, -1), "turned", prepare=halved)


def halves(rng: random.Random, dtype: torch.dtype) -> Case:
    """Both halves of what is turned by its position, joined again."""
    b, heads, e = rng.choice(AT_ONCE), rng.choice(_KV_HEADS) * rng.choice(_QUERIES), rng.choice(_FEATURES)
    s = rng.choice((1, 1, 1, 128, 512, 1024, 2048))
    given = Tensor((b, heads, s, e // 2), dtype), Tensor((b, heads, s, e // 2), dtype)
    return Case("cat", given, lambda *x: torch.cat(x, -1))


def entered(rng: random.Random, dtype: torch.dtype) -> Case:
    """A new token written into a cache that is as long as it will ever be."""
    b, heads, e, t = rng.choice(AT_ONCE), rng.choice(_KV_HEADS), rng.choice(_FEATURES), _cached(rng)
    given = (
        Tensor((b, heads, t, e), dtype, cold=True),
        Tensor((1,), torch.int64, below=t),
        Tensor((b, heads, 1, e), dtype),
    )

    def run(cache: torch.Tensor, place: torch.Tensor, new: torch.Tensor) -> Any:
        return cache.index_copy_(2, place, new)

    return Case("index_copy", given, run)


SHARES: dict[Family, int] = {
    thin: 4, step: 4, grown: 2, grown_apart: 1, grown_first: 1, halves: 1, turned_halves: 2, entered: 1,
}  # fmt: skip
"""How many cases of each family one round of the plan holds: many where sizes decide much."""
