"""What is timed: an operator with its tensors, and how sizes as models have them are drawn.

With random odd sizes products of bfloat16 matrices take five to eight times as long, and a prediction from them is as wrong.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, NamedTuple, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

T = TypeVar("T")

WIDTHS = (
    64, 96, 128, 160, 192, 256, 320, 384, 512, 576, 640, 768, 896, 960, 1024, 1152, 1280, 1536, 1792, 2048, 2304, 2560,
    3072, 3584, 4096, 4864, 5120, 6144, 8192, 9728, 11008, 12288, 14336,
)  # fmt: skip
"""Widths of layers."""
CLASSES = (10, 21, 1000, 21841, 30522, 32000, 50257, 128256, 151936)  # outputs of last layers: classes and vocabularies
PATCHES = (49, 50, 64, 77, 144, 145, 196, 197, 256, 257, 576, 577, 784, 1024, 3136)
"""Positions of an image, or a short text."""
BATCHES = (1, 1, 2, 4, 8, 8, 16, 32, 32, 64)
CHANNELS = (
    3, 16, 24, 32, 40, 48, 64, 64, 72, 80, 96, 112, 128, 128, 144, 160, 192, 240, 256, 256, 288, 320, 384, 448, 480, 512,
    512, 576, 640, 672, 768, 960, 1024, 1152, 1280, 1536, 1920, 2048,
)  # fmt: skip
EXTENTS = (7, 14, 28, 56, 112)
HEADS = (32, 48, 64, 64, 64, 80, 96, 128, 128)


@dataclass(frozen=True, slots=True)
class CaseTensor:
    """A tensor to be made for a case."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    cold: bool = False
    """It comes from memory when a model runs (a weight, an activation saved for the backward pass) and not from the cache,
    where what the operator before has just written still is."""
    below: int = 0  # of integers, the bound

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * int(self.dtype.itemsize)


@dataclass(frozen=True, slots=True)
class Case:
    """One operator on one set of sizes."""

    family: str
    tensors: tuple[CaseTensor, ...]
    run: Callable[..., Any]
    settings: str = ""  # what beside the tensors distinguishes it from other cases of the family
    flops: int = 0  # about how much it calculates: a case that would take too long is left out
    prepare: Callable[..., tuple[Any, ...]] | None = None
    """What makes of the tensors, once and untimed, what `run` takes."""

    @property
    def name(self) -> str:
        """The name of the case: the same in every run, so that one that was interrupted can resume."""
        shapes = " ".join("x".join(map(str, tensor.shape)) for tensor in self.tensors)
        return f"{self.family} {str(self.tensors[0].dtype).removeprefix('torch.')} {shapes} {self.settings}".rstrip()


def backward(case: Case, wanted: int, flops: int = 0) -> Case:
    """The backward pass of a case, to the first `wanted` tensors that it is given."""

    def prepare(*given: torch.Tensor) -> tuple[Any, ...]:
        sources = tuple(tensor.detach().requires_grad_() for tensor in given[:wanted])
        with torch.enable_grad():
            out = case.run(*sources, *given[wanted:])
        return out, torch.ones_like(out), *sources

    def run(out: torch.Tensor, gradient: torch.Tensor, *sources: torch.Tensor) -> Any:
        return torch.autograd.grad(out, sources, gradient, retain_graph=True)

    return Case(f"{case.family} gradient", case.tensors, run, case.settings, flops, prepare)


class Draw:
    """Draws the sizes of one case in an element type. The order of draws decides all cases that follow: it must not change."""

    def __init__(self, rng: random.Random, dtype: torch.dtype) -> None:
        self.rng = rng
        self.dtype = dtype

    def pick(self, options: Sequence[T]) -> T:
        return self.rng.choice(options)

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def power(self, low: int, high: int) -> int:
        return int(2 ** self.rng.randint(low, high))

    def tensor(self, *shape: int, cold: bool = False, dtype: torch.dtype | None = None, below: int = 0) -> CaseTensor:
        return CaseTensor(shape, dtype or self.dtype, cold, below)

    def cold(self, *shape: int, dtype: torch.dtype | None = None) -> CaseTensor:
        return self.tensor(*shape, cold=True, dtype=dtype)

    def tokens(self) -> int:
        """Rows of a product: positions times batch, a power of two, or seldom anything."""
        how = self.rng.random()
        if how < 0.5:
            return self.pick(PATCHES) * self.pick(BATCHES)
        return self.power(0, 14) if how < 0.9 else int(2 ** self.rng.uniform(0, 14))

    def image(self) -> tuple[int, int, int, int]:
        """Images, channels and extents as a network has them: the smaller the image has become, the more channels it has."""
        stage = self.pick((0, 1, 1, 2, 2, 3, 3, 3, 4, 4))
        channels = [c for c in CHANNELS if 8 << stage <= c <= 160 << stage]
        return self.pick(BATCHES), self.pick(channels), 112 >> stage, 112 >> stage

    def rows(self) -> tuple[int, int]:
        """What is normalised row by row: positions of an image with its channels last, or words with their width."""
        if self.chance(0.4):
            n, c, h, w = self.image()
            return n * h * w, max(64, c)
        return self.tokens(), self.pick(WIDTHS[:25])

    def elements(self) -> tuple[int, ...]:
        """Activations as they are between layers."""
        return self.image() if self.chance(0.5) else (self.tokens(), self.pick(WIDTHS))


Family = Callable[[Draw], Case]
# -- families that compute: products and attention, convolutions, normalisations, and their gradients
#
# The order of draws in each decides all later cases, as that of the families does: calibrations resume by their position.

aten: Any = torch.ops.aten

# -- products and attention


def _other_width(d: Draw, width: int) -> int:
    """The other side of a layer: most are a small multiple or part of the one side."""
    if d.chance(0.3):
        return d.pick(WIDTHS)
    return max(16, int(width * d.pick((1, 1, 2, 3, 4, 4, 0.5, 0.25))))


def linear_case(d: Draw, m: int, k: int, n: int, *, bias: bool) -> Case:
    """A product of rows with a weight."""
    tensors = d.tensor(m, k), d.cold(n, k), *([d.cold(n)] if bias else ())
    return Case("linear", tensors, F.linear, flops=2 * m * n * k)


def linear(d: Draw) -> Case:
    """A layer that multiplies by a weight."""
    m, k, bias = d.tokens(), d.pick(WIDTHS), d.chance(0.6)
    n = d.pick(CLASSES) if d.chance(0.06) else _other_width(d, k)
    return linear_case(d, m, k, n, bias=bias)


def vocabulary(d: Draw) -> Case:
    """A last layer, whose classes or words are often no multiple of eight."""
    m, k, n = d.tokens(), d.pick(WIDTHS[9:24]), d.pick((1000, 1001, 21841, 30522, 50257, 50257, 50265, 51865))
    return linear_case(d, m, k, n, bias=False)


def linear_gradient(d: Draw) -> Case:
    """The two products of a backward pass: to the input, over the outputs; to the weight, over the rows."""
    m, k = d.tokens(), d.pick(WIDTHS)
    n = _other_width(d, k)
    flops = 2 * m * n * k
    if d.chance(0.5):
        return Case("linear to input", (d.tensor(m, n), d.cold(n, k)), torch.mm, flops=flops)
    return Case("linear to weight", (d.tensor(m, n), d.cold(m, k)), lambda y, x: torch.mm(y.t(), x), flops=flops)


def batched(d: Draw) -> Case:
    """Products of many small matrices, as attention without a kernel of its own has them."""
    b = d.pick(BATCHES) * d.pick((1, 3, 4, 6, 8, 12, 16, 32))
    s, t, e = d.pick(PATCHES), d.pick(PATCHES), d.pick(HEADS)
    m, k, n = d.pick([(s, e, t), (s, t, e), (e, s, t)])
    return Case("bmm", (d.tensor(b, m, k), d.tensor(b, k, n)), torch.bmm, flops=2 * b * m * n * k)


def windowed(d: Draw) -> Case:
    """Scores and sums of attention within the windows of an image: thousands of products of a few rows each."""
    windows = d.pick(BATCHES) * d.pick((1, 4, 16, 64))
    b, s, e = windows * d.pick((2, 3, 4, 6, 8, 12, 24)), d.pick((49, 49, 64, 144, 256)), d.pick((16, 32, 32, 64))
    flops = 2 * b * s * s * e
    if d.chance(0.5):
        return Case("bmm", (d.tensor(b, s, s), d.tensor(b, s, e)), torch.bmm, flops=flops)
    given = d.tensor(b, s, e), d.tensor(b, s, e)
    return Case("bmm", given, torch.bmm, "turned", flops, lambda q, k: (q, k.transpose(1, 2)))


def attention_case(q: CaseTensor, kv: CaseTensor, *mask: CaseTensor, causal: bool = False) -> Case:
    """Attention of queries to keys and values, whose heads may each serve several of the queries."""
    b, heads, s, e = q.shape
    grouped = {"enable_gqa": True} if heads != kv.shape[1] else {}

    def run(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, mask, is_causal=causal, **grouped)

    settings = "causal" if causal else "masked" if mask else ""
    return Case("attention", (q, kv, kv, *mask), run, settings, 4 * b * heads * s * kv.shape[2] * e)


def attention(d: Draw) -> Case:
    """Attention, and one step of it against a cache; causal, masked or neither."""
    b, heads, e, causal = d.pick(BATCHES), d.pick((3, 6, 8, 12, 16, 32)), d.pick(HEADS), d.chance(0.4)
    s = d.pick(PATCHES) if d.chance(0.5) else d.power(5, 12)
    t = s
    if d.chance(0.2):  # one step against a cache, or a text that attends to an image
        s, causal = d.pick((1, 1, 77, s)), False
    masked = not causal and d.chance(0.3)
    mask = [d.tensor(b, 1 if d.chance(0.5) else heads, s, t)] if masked else []
    return attention_case(d.tensor(b, heads, s, e), d.tensor(b, heads, t, e), *mask, causal=causal)


def hidden(d: Draw) -> Case:
    """Attention under a mask of booleans that all heads share, as texts of several lengths have it."""
    b, heads, e = d.pick(BATCHES[:8]), d.pick((8, 12, 12, 14, 16, 16, 32)), d.pick(HEADS)
    s = d.pick(PATCHES) if d.chance(0.3) else d.power(5, 11)
    part = d.tensor(b, heads, s, e)
    return attention_case(part, part, d.tensor(b, 1, s, s, dtype=torch.bool))


def attention_gradient(d: Draw) -> Case:
    """The backward pass of attention: five products of sizes of which the forward pass has two."""
    case = attention(d)
    return backward(case, 3, case.flops * 5 // 2)


# -- convolutions


class _ConvolutionSizes(NamedTuple):
    """A convolution: the shapes of images, weights and results, and its settings."""

    image: tuple[int, ...]
    weight: tuple[int, ...]
    out: tuple[int, ...]
    stride: int
    padding: int
    groups: int
    settings: str
    flops: int


def _sized(n: int, c: int, o: int, h: int, k: int, s: int = 1, g: int = 1) -> _ConvolutionSizes:
    """By images, channels in and out, extent, kernel, stride and groups."""
    padding = 0 if k == s else k // 2
    after = (h + 2 * padding - k) // s + 1
    weight, out = (o, c // g, k, k), (n, o, after, after)
    flops = 2 * prod(out) * prod(weight[1:])
    return _ConvolutionSizes((n, c, h, h), weight, out, s, padding, g, f"kernel={k} stride={s} groups={g}", flops)


def _first(d: Draw) -> _ConvolutionSizes:
    """The first layer of a network."""
    k, s = d.pick([(3, 1), (3, 2), (3, 2), (7, 2), (7, 2), (7, 4), (11, 4), (4, 4), (14, 14), (16, 16), (32, 32)])
    o = d.pick((16, 24, 32, 40, 48, 64, 96, 128, 192, 384, 768, 1024))
    return _sized(d.pick(BATCHES), 3, o, 224, k, s)


def _window(d: Draw) -> _ConvolutionSizes:
    n, c, h, _ = d.image()
    how = d.rng.random()
    if how < 0.07:
        return _first(d)
    if how < 0.27:  # depthwise
        return _sized(n, c, c, h, d.pick((3, 3, 3, 5, 5, 7, 7)), d.pick((1, 1, 1, 2)), c)
    if how < 0.36:  # grouped
        width, groups = d.pick((4, 8, 16, 24, 32, 48, 56, 64, 112)), d.pick((2, 3, 4, 6, 8, 16, 32))
        return _sized(n, width * groups, width * groups, h, 3, d.pick((1, 1, 1, 2)), groups)
    o = d.pick(CHANNELS[1:]) if d.chance(0.3) else max(16, int(c * d.pick((1, 1, 2, 4, 6, 0.5, 0.25))))
    if how < 0.40:  # as in Inception, and a patch made smaller by half
        k, s = d.pick([(2, 2), (5, 1), (7, 1)])
        return _sized(n, c, o, h if h % 2 == 0 or s == 1 else h + 1, k, s)
    if how < 0.45:  # squeeze and excitation
        return _sized(n, c, max(8, c // d.pick((4, 8, 16, 24))), 1, 1)
    return _sized(n, c, o, h, d.pick((1, 1, 1, 3, 3)), d.pick((1, 1, 1, 1, 2)))


def _convolution(d: Draw, w: _ConvolutionSizes) -> Case:
    tensors = d.tensor(*w.image), d.cold(*w.weight), *([d.cold(w.weight[0])] if d.chance(0.3) else ())

    def run(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        return F.conv2d(x, weight, bias, w.stride, w.padding, 1, w.groups)

    return Case("convolution", tensors, run, w.settings, w.flops)


def convolution(d: Draw) -> Case:
    """A convolution."""
    return _convolution(d, _window(d))


def first_layer(d: Draw) -> Case:
    """A convolution of input images, with three channels, for which libraries have kernels of their own."""
    return _convolution(d, _first(d))


def convolution_gradient(d: Draw) -> Case:
    """The backward pass of a convolution: to its input, weight and bias, as far as they are needed."""
    w = _window(d)
    mask = [d.chance(0.9) and w.image[1] != 3, True, d.chance(0.2)]  # the gradient to an image is not needed

    def run(y: Tensor, x: Tensor, weight: Tensor) -> Any:
        stride, padding, transposed = [w.stride] * 2, [w.padding] * 2, False
        sizes = stride, padding, [1, 1], transposed, [0, 0], w.groups
        return aten.convolution_backward(y, x, weight, [w.weight[0]], *sizes, mask)

    tensors = d.tensor(*w.out), d.cold(*w.image), d.cold(*w.weight)
    to = "".join(letter for letter, wanted in zip("iwb", mask, strict=True) if wanted)
    return Case("convolution gradient", tensors, run, f"{w.settings} to={to}", 2 * w.flops)


def _channels_last(case: Case) -> Case:
    def prepare(*given: Tensor) -> tuple[Tensor, ...]:
        return tuple(x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x for x in given)

    return replace(case, family=f"{case.family} channels last", prepare=prepare)


def channels_last(d: Draw) -> Case:
    """A convolution of images and weights whose channels are side by side."""
    return _channels_last(convolution(d))


def channels_last_gradient(d: Draw) -> Case:
    """Its backward pass."""
    return _channels_last(convolution_gradient(d))


# -- normalisations and softmax


def batch_norm(d: Draw) -> Case:
    """Normalisation by channel, with saved statistics or its own."""
    shape, training = d.image(), d.chance(0.4)
    given = d.tensor(*shape), *[d.cold(shape[1])] * 4

    def run(x: Tensor, w: Tensor, b: Tensor, m: Tensor, v: Tensor) -> Any:
        return F.batch_norm(x, None, None, w, b, training=True) if training else F.batch_norm(x, m, v, w, b)

    return Case("batch_norm", given, run, "training" if training else "")


def batch_norm_gradient(d: Draw) -> Case:
    """Its backward pass in training."""
    shape = d.image()
    c = shape[1]
    # The statistics that a GPU saves are in float32 whatever the image is in.
    given = d.tensor(*shape), d.cold(*shape), d.tensor(c), *[d.tensor(c, dtype=torch.float32)] * 2

    def run(y: Tensor, x: Tensor, w: Tensor, mean: Tensor, scale: Tensor) -> Any:
        train = True
        return aten.native_batch_norm_backward(y, x, w, None, None, mean, scale, train, 1e-5, [True] * 3)

    return Case("batch_norm gradient", given, run)


def _layer_norm(d: Draw, shape: tuple[int, ...], c: int) -> Case:
    return Case("layer_norm", (d.tensor(*shape), d.cold(c), d.cold(c)), lambda x, w, b: F.layer_norm(x, (c,), w, b))


def layer_norm(d: Draw) -> Case:
    """Normalisation of rows."""
    m, c = d.rows()
    return _layer_norm(d, (m, c), c)


def layer_norm_turned(d: Draw) -> Case:
    """The same over the channels of an image that are apart: it is copied into another order first."""
    n, c, h, w = d.image()
    case = _layer_norm(d, (n, c, h * w), c)
    return replace(case, settings="turned", prepare=lambda x, w, b: (x.transpose(1, 2), w, b))


def layer_norm_gradient(d: Draw) -> Case:
    """Its backward pass."""
    m, c = d.rows()
    each = d.cold(m, 1, dtype=torch.float32)
    given = d.tensor(m, c), d.cold(m, c), each, each, d.tensor(c), d.tensor(c)

    def run(y: Tensor, x: Tensor, mean: Tensor, scale: Tensor, w: Tensor, b: Tensor) -> Any:
        return aten.native_layer_norm_backward(y, x, [c], mean, scale, w, b, [True, True, True])

    return Case("layer_norm gradient", given, run)


def group_norm(d: Draw) -> Case:
    """Normalisation by groups of channels."""
    c, h, groups = d.pick((64, 128, 256, 320, 512, 640, 1280)), d.pick((7, 8, 14, 16, 28, 32, 56, 64)), d.pick((1, 32))
    given = d.tensor(d.pick(BATCHES), c, h, h), d.cold(c), d.cold(c)
    return Case("group_norm", given, lambda x, w, b: F.group_norm(x, groups, w, b), f"groups={groups}")


def softmax(d: Draw) -> Case:
    """Softmax over the last axis, and its backward pass."""
    many, places = d.pick(BATCHES) * d.pick((3, 8, 12, 16)), d.pick(PATCHES[:14])
    return _softmax(d, "softmax", (many, places, places), gradient=d.chance(0.3))


def _softmax(d: Draw, name: str, shape: tuple[int, ...], *, gradient: bool) -> Case:
    if not gradient:
        return Case(name, (d.tensor(*shape),), lambda x: getattr(torch, name)(x, -1))
    back = getattr(aten, f"_{name}_backward_data")
    return Case(f"{name} gradient", (d.tensor(*shape), d.cold(*shape)), lambda y, x: back(y, x, -1, d.dtype))


def loss(d: Draw) -> Case:
    """The logarithm of a softmax over classes or words, and its backward pass."""
    shape = d.pick(BATCHES) * d.pick((1, 128, 512)), d.pick(CLASSES)
    return _softmax(d, "log_softmax", shape, gradient=not d.chance(0.5))


COMPUTING: dict[Family, int] = {
    linear: 8, vocabulary: 1, linear_gradient: 3, batched: 2, windowed: 1, attention: 2, hidden: 1,
    attention_gradient: 1, convolution: 12, first_layer: 1, convolution_gradient: 3, channels_last: 3,
    channels_last_gradient: 1, batch_norm: 2, batch_norm_gradient: 1, layer_norm: 2, layer_norm_turned: 1,
    layer_norm_gradient: 1, group_norm: 1, softmax: 1, loss: 1,
}  # fmt: skip
"""How many cases of each family one round of the plan has, in the order of the plan: many where sizes decide much."""
