"""Operators that only move memory: elementwise, copies, pools, sums, lookups."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from opcost.recorders.calibration.cases import (
    BATCHES,
    EXTENTS,
    HEADS,
    PATCHES,
    WIDTHS,
    Case,
    Family,
    Tensor,
    aten,
    backward,
    elements,
    image,
    tokens,
)

UNARY: dict[str, Callable[..., Any]] = {
    "relu": torch.relu, "gelu": F.gelu, "silu": F.silu, "sigmoid": torch.sigmoid, "tanh": torch.tanh, "exp": torch.exp,
    "hardswish": F.hardswish, "neg": torch.neg, "rsqrt": torch.rsqrt, "pow": lambda x: x.pow(2), "clone": torch.clone,
    "add number": lambda x: x + 1.0, "relu_": torch.relu_, "cos": torch.cos, "leaky_relu": F.leaky_relu,
}  # fmt: skip
BINARY: dict[str, Callable[..., Any]] = {
    "add": torch.add, "mul": torch.mul, "div": torch.div, "sub": torch.sub, "add_": lambda x, y: x.add_(y),
    "relu gradient": lambda y, x: aten.threshold_backward(y, x, 0), "gelu gradient": aten.gelu_backward,
    "sigmoid gradient": aten.sigmoid_backward,
}  # fmt: skip


def unary(rng: random.Random, dtype: torch.dtype) -> Case:
    """A function of each element."""
    name = rng.choice(list(UNARY))
    return Case(name, (Tensor(elements(rng), dtype),), UNARY[name])


def binary(rng: random.Random, dtype: torch.dtype) -> Case:
    """A function of two tensors, one of which may be spread over the other."""
    name, shape = rng.choice(list(BINARY)), elements(rng)
    other, how = shape, rng.random()
    if name in ("add", "mul") and how < 0.4:  # a bias or scale for each channel, or for each place
        each = shape[-1:] if len(shape) == 2 else (shape[0], shape[1], 1, 1)
        other = each if how < 0.3 else (*shape[:-1], 1)
    return Case(name, (Tensor(shape, dtype), Tensor(other, dtype, cold="gradient" in name)), BINARY[name])


def apart(rng: random.Random, dtype: torch.dtype) -> Case:
    """Elements that do not lie side by side: halves of rows, one of two turned round, one row or column spread over all."""
    b, s, heads, e = (
        rng.choice(BATCHES),
        rng.choice((*PATCHES, 512, 1024)),
        rng.choice((3, 6, 8, 12, 16)),
        rng.choice(HEADS),
    )
    how, name = rng.choice(("half", "turned", "spread")), rng.choice(("add", "mul", "neg"))
    if how == "half":
        given: tuple[Tensor, ...] = (Tensor((b, s, heads, e), dtype),)

        def prepare(*x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            first, second = x[0].transpose(1, 2).chunk(2, -1)
            return (second,) if name == "neg" else (first, second)
    else:
        name = "add" if name == "neg" else name
        given = Tensor((b, s, heads * e), dtype), Tensor((b, heads * e, s) if how == "turned" else (b, s, 1), dtype)

        def prepare(*x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return x[0], x[1].transpose(1, 2) if how == "turned" else x[1].expand_as(x[0])

    return Case(name, given, (UNARY | BINARY)[name], how, prepare=prepare)


def where(rng: random.Random, dtype: torch.dtype) -> Case:
    """Elements replaced under a mask."""
    shape = elements(rng)
    mask = Tensor(shape, torch.bool)
    return Case("masked_fill", (Tensor(shape, dtype), mask), lambda x, m: x.masked_fill(m, 0.0))


def cast(rng: random.Random, dtype: torch.dtype) -> Case:
    """Another element type."""
    other = torch.float32 if dtype is not torch.float32 else torch.bfloat16
    return Case("cast", (Tensor(elements(rng), dtype),), lambda x: x.to(other), f"to={other}")


def moved(rng: random.Random, dtype: torch.dtype) -> Case:
    """Copies into another order: heads beside places, channels behind, windows."""
    b, how = rng.choice(BATCHES), rng.choice(("heads", "channels last", "transposed", "windows", "roll"))
    if how == "heads":
        shape: tuple[int, ...] = (b, rng.choice(PATCHES), rng.choice((3, 8, 12, 16)), rng.choice(HEADS))
        return Case(how, (Tensor(shape, dtype),), lambda x: x.transpose(1, 2).contiguous())
    if how == "windows":
        n = rng.choice((7, 14, 28, 56))
        c = rng.choice((96, 128, 192, 384, 768))
        shape = (b, n // 7, 7, n // 7, 7, c)
        return Case(how, (Tensor(shape, dtype),), lambda x: x.permute(0, 1, 3, 2, 4, 5).contiguous())
    shape = image(rng)
    if how == "roll":
        return Case(how, (Tensor((shape[0], *shape[2:], shape[1]), dtype),), lambda x: x.roll((3, 3), (1, 2)))
    if how == "channels last":
        return Case(how, (Tensor(shape, dtype),), lambda x: x.permute(0, 2, 3, 1).contiguous())
    return Case(how, (Tensor((tokens(rng), rng.choice(WIDTHS)), dtype),), lambda x: x.t().contiguous())


def joined(rng: random.Random, dtype: torch.dtype) -> Case:
    """Tensors joined, few large or many small."""
    b, c, h, _ = image(rng)
    parts = rng.choice((1, 1, 2, 3, 5, 8, 13, 24))
    given = (
        Tensor((b, c, h, h), dtype),
        *(Tensor((b, min(c, 32 if parts > 3 else c), h, h), dtype) for _ in range(parts)),
    )
    return Case("cat", given, lambda *x: torch.cat(x, 1))


def pooled(rng: random.Random, dtype: torch.dtype) -> Case:
    """The largest or the mean of windows."""
    given = (Tensor(image(rng), dtype),)
    k, s, p = rng.choice([(3, 2, 1), (2, 2, 0), (3, 1, 1), (5, 1, 2)])
    if rng.random() < 0.5:
        return Case("max_pool2d", given, lambda x: F.max_pool2d(x, k, s, p), f"kernel={k} stride={s}")
    return Case("avg_pool2d", given, lambda x: F.avg_pool2d(x, k, s, p), f"kernel={k} stride={s}")


def reduced(rng: random.Random, dtype: torch.dtype) -> Case:
    """Sums and means: over the rows (gradients of biases), over the last axis, over the places of an image."""
    how = rng.choice(("rows", "last", "places", "mean last", "mean places"))
    if how in ("rows", "last", "mean last"):
        given = (Tensor((tokens(rng), rng.choice(WIDTHS)), dtype),)
        axis = 0 if how == "rows" else -1
        if how == "mean last":
            return Case(how, given, lambda x: x.mean(-1, keepdim=True))
        return Case(f"sum {how}", given, lambda x: x.sum(axis, keepdim=True))
    given = (Tensor(image(rng), dtype),)
    if how == "places":
        return Case("sum places", given, lambda x: x.sum((2, 3), keepdim=True))
    return Case(how, given, lambda x: x.mean((2, 3), keepdim=True))


def lengths(rng: random.Random, dtype: torch.dtype) -> Case:
    """The length of each vector, as queries and keys are divided by it: of the last axis, or of the places in it."""
    b, heads, s, e = (
        rng.choice(BATCHES) * rng.choice((1, 1, 16, 64)),
        rng.choice((3, 4, 6, 12, 24)),
        rng.choice(PATCHES),
        32,
    )
    shape = rng.choice([(b, heads, s, e), (b, heads, e, s)])
    return Case("length", (Tensor(shape, dtype),), lambda x: torch.linalg.vector_norm(x, dim=-1, keepdim=True))


def gathered(rng: random.Random, dtype: torch.dtype) -> Case:
    """Rows of a table of words, and the gradient to it."""
    words, width, places = (
        rng.choice((512, 30522, 50257, 128256)),
        rng.choice((384, 512, 768, 1024, 2048, 4096)),
        tokens(rng),
    )
    index = Tensor((places,), torch.int64, below=words)
    if rng.random() < 0.3:
        given = Tensor((places, width), dtype), index
        return Case(
            "embedding gradient",
            given,
            lambda y, i: aten.embedding_dense_backward(y, i, words, -1, scale_grad_by_freq=False),
            f"{words}",
        )
    return Case("embedding", (Tensor((words, width), dtype, cold=True), index), lambda w, i: F.embedding(i, w))


def indexed(rng: random.Random, dtype: torch.dtype) -> Case:
    """Rows taken by number, as a table of relative positions is read."""
    rows, width, places = (
        rng.choice((169, 225, 732, 961, 3136)),
        rng.choice((3, 6, 12, 24, 64, 384)),
        rng.choice((2401, 4096, 9604, 38809)),
    )
    given = Tensor((rows, width), dtype), Tensor((places,), torch.int64, below=rows)
    return Case("index", given, lambda x, i: x[i])


def padded(rng: random.Random, dtype: torch.dtype) -> Case:
    """Zeros behind the rows and columns of an image."""
    b, h, c, more = rng.choice(BATCHES), rng.choice(EXTENTS), rng.choice(WIDTHS[:12]), rng.choice((0, 1, 3, 7))
    return Case("pad", (Tensor((b, h, h, c), dtype),), lambda x: F.pad(x, (0, 0, 0, more, 0, more)), f"by={more}")


def repeated(rng: random.Random, dtype: torch.dtype) -> Case:
    """Keys and values of grouped heads, written out once for each head that asks."""
    b, heads, s, e, times = (
        rng.choice(BATCHES),
        rng.choice((2, 4, 8)),
        2 ** rng.randint(5, 12),
        rng.choice((64, 128)),
        rng.choice((4, 7, 8)),
    )
    given = (Tensor((b, heads, 1, s, e), dtype),)
    return Case("repeat", given, lambda x: x.expand(b, heads, times, s, e).contiguous(), f"times={times}")


def filled(rng: random.Random, dtype: torch.dtype) -> Case:
    """One number written everywhere."""
    return Case("fill", (Tensor(elements(rng), dtype),), lambda x: x.fill_(1.0))


def adaptive(rng: random.Random, dtype: torch.dtype) -> Case:
    """Means of as many windows as are asked for."""
    to = rng.choice((1, 7))
    given = (Tensor(image(rng), dtype),)
    return Case("adaptive_avg_pool2d", given, lambda x: F.adaptive_avg_pool2d(x, to), f"to={to}")


def pool_gradient(rng: random.Random, dtype: torch.dtype) -> Case:
    """The backward pass of a pool."""
    return backward(pooled(rng, dtype), 1)


def resized(rng: random.Random, dtype: torch.dtype) -> Case:
    """An image of twice the size."""
    mode = rng.choice(("nearest", "bilinear"))
    given = (Tensor(image(rng), dtype),)
    return Case("interpolate", given, lambda x: F.interpolate(x, scale_factor=2, mode=mode), mode)


SHARES: dict[Family, int] = {
    unary: 2, binary: 2, apart: 2, where: 1, cast: 1, moved: 2, joined: 1, pooled: 1, pool_gradient: 1, adaptive: 1, reduced: 2,
    lengths: 1, gathered: 1, resized: 1, indexed: 1, padded: 1, repeated: 1, filled: 1,
}  # fmt: skip
"""How many cases of each family one round of the plan holds: many where sizes decide much."""
