"""Families of cases that only move memory: elementwise, copies, pools, sums, lookups; and those of text generation.

The order of draws in each decides all later cases, as that of the families does: calibrations resume by their position.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from opcost.recorders.calibration import cases
from opcost.recorders.calibration.cases import BATCHES, HEADS, PATCHES, WIDTHS, Case, Draw, aten

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


def unary(d: Draw) -> Case:
    """A function of each element."""
    name = d.pick(list(UNARY))
    return Case(name, (d.tensor(*d.elements()),), UNARY[name])


def binary(d: Draw) -> Case:
    """A function of two tensors, one of which may be broadcast."""
    name, shape = d.pick(list(BINARY)), d.elements()
    other, how = shape, d.rng.random()
    if name in ("add", "mul") and how < 0.4:  # a bias or scale for each channel, or for each position
        each = shape[-1:] if len(shape) == 2 else (shape[0], shape[1], 1, 1)
        other = each if how < 0.3 else (*shape[:-1], 1)
    return Case(name, (d.tensor(*shape), d.tensor(*other, cold="gradient" in name)), BINARY[name])


def apart(d: Draw) -> Case:
    """Elements that are not side by side: halves of rows, one of two transposed, one row or column broadcast."""
    b, s, heads, e = d.pick(BATCHES), d.pick((*PATCHES, 512, 1024)), d.pick((3, 6, 8, 12, 16)), d.pick(HEADS)
    how, name = d.pick(("half", "turned", "spread")), d.pick(("add", "mul", "neg"))
    given: tuple[cases.CaseTensor, ...] = (d.tensor(b, s, heads, e),)
    if how != "half":
        name = "add" if name == "neg" else name
        given = d.tensor(b, s, heads * e), d.tensor(*(b, heads * e, s) if how == "turned" else (b, s, 1))

    def prepare(x: Tensor, y: Tensor | None = None) -> tuple[Tensor, ...]:
        if y is not None:
            return x, y.transpose(1, 2) if how == "turned" else y.expand_as(x)
        first, second = x.transpose(1, 2).chunk(2, -1)
        return (second,) if name == "neg" else (first, second)

    return Case(name, given, (UNARY | BINARY)[name], how, prepare=prepare)


def where(d: Draw) -> Case:
    """Elements replaced under a mask."""
    x = d.tensor(*d.elements())
    return Case("masked_fill", (x, replace(x, dtype=torch.bool)), lambda x, m: x.masked_fill(m, 0.0))


def cast(d: Draw) -> Case:
    """Another element type."""
    other = torch.float32 if d.dtype is not torch.float32 else torch.bfloat16
    return Case("cast", (d.tensor(*d.elements()),), lambda x: x.to(other), f"to={other}")


def moved(d: Draw) -> Case:
    """Copies into another order: heads beside positions, channels last, windows."""
    b, how = d.pick(BATCHES), d.pick(("heads", "channels last", "transposed", "windows", "roll"))
    if how == "heads":
        given = d.tensor(b, d.pick(PATCHES), d.pick((3, 8, 12, 16)), d.pick(HEADS))
        return Case(how, (given,), lambda x: x.transpose(1, 2).contiguous())
    if how == "windows":
        n, c = d.pick((7, 14, 28, 56)), d.pick((96, 128, 192, 384, 768))
        given = d.tensor(b, n // 7, 7, n // 7, 7, c)
        return Case(how, (given,), lambda x: x.permute(0, 1, 3, 2, 4, 5).contiguous())
    n, c, h, w = d.image()
    if how == "roll":
        return Case(how, (d.tensor(n, h, w, c),), lambda x: x.roll((3, 3), (1, 2)))
    if how == "channels last":
        return Case(how, (d.tensor(n, c, h, w),), lambda x: x.permute(0, 2, 3, 1).contiguous())
    return Case(how, (d.tensor(d.tokens(), d.pick(WIDTHS)),), lambda x: x.t().contiguous())


def joined(d: Draw) -> Case:
    """Tensors joined, few large or many small."""
    b, c, h, _ = d.image()
    parts = d.pick((1, 1, 2, 3, 5, 8, 13, 24))
    part = d.tensor(b, min(c, 32 if parts > 3 else c), h, h)
    return Case("cat", (d.tensor(b, c, h, h), *[part] * parts), lambda *x: torch.cat(x, 1))


def pooled(d: Draw) -> Case:
    """The largest or the mean of windows."""
    given = (d.tensor(*d.image()),)
    k, s, p = d.pick([(3, 2, 1), (2, 2, 0), (3, 1, 1), (5, 1, 2)])
    name, run = ("max_pool2d", F.max_pool2d) if d.chance(0.5) else ("avg_pool2d", F.avg_pool2d)
    return Case(name, given, lambda x: run(x, k, s, p), f"kernel={k} stride={s}")


def pool_gradient(d: Draw) -> Case:
    """The backward pass of a pool."""
    return cases.backward(pooled(d), 1)


def adaptive(d: Draw) -> Case:
    """Means of a given number of windows."""
    to = d.pick((1, 7))
    return Case("adaptive_avg_pool2d", (d.tensor(*d.image()),), lambda x: F.adaptive_avg_pool2d(x, to), f"to={to}")


def reduced(d: Draw) -> Case:
    """Sums and means: over the rows (gradients of biases), over the last axis, over the positions of an image."""
    name = d.pick(("sum rows", "sum last", "sum places", "mean last", "mean places"))
    how, over = name.split()
    shape = d.image() if over == "places" else (d.tokens(), d.pick(WIDTHS))
    axes = {"rows": 0, "last": -1, "places": (2, 3)}[over]
    return Case(name, (d.tensor(*shape),), lambda x: getattr(torch, how)(x, axes, keepdim=True))


def lengths(d: Draw) -> Case:
    """The length of each vector, by which queries and keys are divided: of the last axis, or of the positions in it."""
    b, heads, s, e = d.pick(BATCHES) * d.pick((1, 1, 16, 64)), d.pick((3, 4, 6, 12, 24)), d.pick(PATCHES), 32
    given = d.tensor(*d.pick([(b, heads, s, e), (b, heads, e, s)]))
    return Case("length", (given,), lambda x: torch.linalg.vector_norm(x, dim=-1, keepdim=True))


def gathered(d: Draw) -> Case:
    """Rows of a table of words, and the gradient to it."""
    words, width = d.pick((512, 30522, 50257, 128256)), d.pick((384, 512, 768, 1024, 2048, 4096))
    places = d.tokens()
    index = d.tensor(places, dtype=torch.int64, below=words)
    if not d.chance(0.3):
        return Case("embedding", (d.cold(words, width), index), lambda w, i: F.embedding(i, w))

    def run(y: Tensor, i: Tensor) -> Any:
        return aten.embedding_dense_backward(y, i, words, -1, scale_grad_by_freq=False)

    return Case("embedding gradient", (d.tensor(places, width), index), run, f"{words}")


def resized(d: Draw) -> Case:
    """An image of twice the size."""
    mode = d.pick(("nearest", "bilinear"))
    return Case("interpolate", (d.tensor(*d.image()),), lambda x: F.interpolate(x, scale_factor=2, mode=mode), mode)


def indexed(d: Draw) -> Case:
    """Rows taken by number, as a table of relative positions is read."""
    rows, width = d.pick((169, 225, 732, 961, 3136)), d.pick((3, 6, 12, 24, 64, 384))
    given = d.tensor(rows, width), d.tensor(d.pick((2401, 4096, 9604, 38809)), dtype=torch.int64, below=rows)
    return Case("index", given, lambda x, i: x[i])


def padded(d: Draw) -> Case:
    """Zeros behind the rows and columns of an image."""
    b, h, c, more = d.pick(BATCHES), d.pick(cases.EXTENTS), d.pick(WIDTHS[:12]), d.pick((0, 1, 3, 7))
    return Case("pad", (d.tensor(b, h, h, c),), lambda x: F.pad(x, (0, 0, 0, more, 0, more)), f"by={more}")


def repeated(d: Draw) -> Case:
    """Keys and values of grouped heads, written out once for each head that uses them."""
    b, heads, s, e, times = d.pick(BATCHES), d.pick((2, 4, 8)), d.power(5, 12), d.pick((64, 128)), d.pick((4, 7, 8))
    x = d.tensor(b, heads, 1, s, e)
    return Case("repeat", (x,), lambda x: x.expand(b, heads, times, s, e).contiguous(), f"times={times}")


def filled(d: Draw) -> Case:
    """One number written everywhere."""
    return Case("fill", (d.tensor(*d.elements()),), lambda x: x.fill_(1.0))


# -- text generation: few rows at a time, against a cache of keys and values

TEXTS = (1, 1, 2, 4, 8, 8, 16, 32, 64)  # texts that are generated at once
_KV_HEADS = (1, 2, 4, 8, 8, 12, 16, 32)
_QUERIES = (1, 1, 2, 3, 4, 4, 6, 7, 8)  # query heads for each head of the cache
_FEATURES = (64, 64, 80, 96, 128, 128, 128, 256)


def _cache(d: Draw) -> tuple[int, int, int, int]:
    """Texts, heads, features and tokens of a cache, one of them new: any number, as texts have."""
    return d.pick(TEXTS), d.pick(_KV_HEADS), d.pick(_FEATURES), int(2 ** d.rng.uniform(4, 13.5))


def _cat(axis: int) -> Callable[..., Tensor]:
    return lambda *x: torch.cat(x, axis)


def thin(d: Draw) -> Case:
    """A layer on a token of each text: its weight is read for a few rows."""
    m, k = d.pick(TEXTS), d.pick(WIDTHS[9:])
    n = d.pick(cases.CLASSES[4:]) if d.chance(0.1) else d.pick(WIDTHS[5:])
    return cases.linear_case(d, m, k, n, bias=d.chance(0.3))


def step(d: Draw) -> Case:
    """Attention of one new token of each text against the cache; heads share keys and values, unless a mask is given."""
    b, heads, e, t = _cache(d)
    masked = d.chance(0.25)
    groups = 1 if masked else d.pick(_QUERIES)
    mask = [d.tensor(b, 1, 1, t, dtype=torch.bool)] if masked else []
    return cases.attention_case(d.tensor(b, heads * groups, 1, e), d.cold(b, heads, t, e), *mask)


def grown(d: Draw) -> Case:
    """A cache, and a longer one with a new token appended."""
    b, heads, e, t = _cache(d)
    return Case("cat", (d.cold(b, heads, t, e), d.tensor(b, heads, 1, e)), _cat(-2))


def grown_apart(d: Draw) -> Case:
    """The same where keys and values of the token are parts of what one layer gave."""
    b, heads, e, t = _cache(d)
    given = d.cold(b, heads, t, e), d.tensor(b, 1, heads, 3 * e)
    return Case("cat", given, _cat(-2), "apart", prepare=lambda cache, x: (cache, x[..., :e].transpose(1, 2)))


def grown_first(d: Draw) -> Case:
    """A cache that begins: what it keeps of a text comes word by word, and is stored head by head."""
    b, heads, e, t = d.pick(TEXTS[:6]), d.pick(_KV_HEADS), d.pick(_FEATURES), int(2 ** d.rng.uniform(4, 13.5))
    given = (d.tensor(b, t, heads, e),)
    return Case("cat", given, _cat(-2), "first", prepare=lambda x: (x[:, :0].transpose(1, 2), x.transpose(1, 2)))


def _rotated(d: Draw) -> tuple[int, int, int, int]:
    """Texts, heads, features and tokens of queries or keys."""
    b, heads, e = d.pick(TEXTS), d.pick(_KV_HEADS) * d.pick(_QUERIES), d.pick(_FEATURES)
    return b, heads, e, d.pick((1, 1, 1, 128, 512, 1024, 2048))


def halves(d: Draw) -> Case:
    """Both halves of what rotary positions turned, joined again."""
    b, heads, e, s = _rotated(d)
    return Case("cat", (d.tensor(b, heads, s, e // 2), d.tensor(b, heads, s, e // 2)), _cat(-1))


def turned_halves(d: Draw) -> Case:
    """Both halves of queries or keys, swapped, in the memory that a layer wrote."""
    b, heads, e, s = _rotated(d)

    def halved(x: Tensor) -> tuple[Tensor, ...]:
        first, second = x.transpose(1, 2).chunk(2, -1)
        return -second, first

    return Case("cat", (d.tensor(b, s, heads, e),), _cat(-1), "turned", prepare=halved)


def entered(d: Draw) -> Case:
    """A new token written into a cache of its final length."""
    b, heads, e, t = _cache(d)
    given = d.cold(b, heads, t, e), d.tensor(1, dtype=torch.int64, below=t), d.tensor(b, heads, 1, e)
    return Case("index_copy", given, lambda cache, place, new: cache.index_copy_(2, place, new))


SHARES: dict[cases.Family, int] = {
    **cases.COMPUTING,
    unary: 2, binary: 2, apart: 2, where: 1, cast: 1, moved: 2, joined: 1, pooled: 1, pool_gradient: 1, adaptive: 1,
    reduced: 2, lengths: 1, gathered: 1, resized: 1, indexed: 1, padded: 1, repeated: 1, filled: 1, thin: 4, step: 4,
    grown: 2, grown_apart: 1, grown_first: 1, halves: 1, turned_halves: 2, entered: 1,
}  # fmt: skip
"""The families of the whole plan."""
