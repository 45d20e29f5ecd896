"""What decides how long an operator takes: its family, how much it calculates and moves, and its place among those like it.

A place is a few numbers, mostly logarithms of sizes, such that operators that are close together run at about the same share
of what their device can do. One step is a size twice as large; what matters less is scaled down.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import log2, prod
from typing import Any, NamedTuple

from opcost.core.graph import FLOPS_PER_MAC, Attrs, Cost, TensorSpec

LAYOUTS = ("turned", "strided", "expanded", "channels-last")
"""Words of families for how memory is laid out, which older calibrations do not have."""


MERGED = ("merged", "merged sum")
"""Families of kernels that a compiler writes."""
FEW = 16
"""From how many times as large on a tensor matters little from which some elements are taken."""
PROCESSORS = 132  # of an H200; other large GPUs have about as many
LARGE = 4  # a tensor is as large as the loop over it if it has at least a fourth of its elements


class Work(NamedTuple):
    """One operator as a device sees it."""

    family: str
    dtype: str
    flops: int  # of its products; what else it calculates hides behind the memory
    nbytes: int
    place: tuple[float, ...]
    bias: Work | None = (
        None  # what adds the bias of a convolution, or sums its gradient, where that is a kernel of its own
    )
    idle: float = 1.0  # how many times longer its memory takes, as a part of the device has nothing to do


def work_of(
    kind: str, raw: str, attrs: Attrs, ins: tuple[TensorSpec, ...], outs: tuple[TensorSpec, ...], cost: Cost | None
) -> Work:
    """What an operator is to a device."""
    if attrs.get("fn") == "compiled" and cost is not None:
        loop: Any = {name: attrs[name] for name in _OF_A_LOOP}
        return kernel_of(cost.bytes_read + cost.bytes_written, **loop)
    ins, outs = (tuple(spec for spec in specs if spec.known) for specs in (ins, outs))
    dtype = next((spec.dtype for spec in (*ins, *outs) if "float" in spec.dtype), "float32")
    flops = FLOPS_PER_MAC * cost.macs if cost is not None else 0
    moved = sum(spec.nbytes for spec in (*ins, *outs))
    if kind == "scatter" and raw.endswith("_") and cost is not None:  # in place: only what is written is touched
        moved = cost.bytes_read + cost.bytes_written
    if kind == "gather" and cost is not None:  # it touches what it takes alone
        touched = cost.bytes_read + cost.bytes_written
        moved = touched if FEW * touched < moved else moved
    gradient = bool(attrs.get("grad") or attrs.get("grads"))
    if kind == "matmul" and outs:
        family, place = _product(raw, attrs, outs[0].dims)
    elif kind == "conv" and len(ins) > 1 and outs:
        family, place = _convolution(attrs, ins, outs)
        return Work(family, dtype, flops, moved, place, _of_a_bias(family, attrs, ins, outs))
    elif kind == "attention" and len(ins) > (3 if gradient else 2):
        query, key, _, *masks = ins[1 if gradient else 0 :]
        family, place = _attention(attrs, query.dims, key.dims, masks)
        flops = 0 if "decode" in family else flops
    else:
        family = _family(kind, raw, attrs, ins, outs)
        place = _by_memory(family.split(), raw, attrs, ins, outs, moved)
        return Work(family, dtype, 0, moved, place, idle=_idle(family, ins))
    return Work(family, dtype, flops, moved, place)


def _of_a_bias(family: str, attrs: Attrs, ins: tuple[TensorSpec, ...], outs: tuple[TensorSpec, ...]) -> Work | None:
    """What adds the bias of a convolution, or sums its gradient."""
    wanted = attrs.get("grads")
    if isinstance(wanted, tuple) and wanted:
        gradient = ins[0]
        sums = TensorSpec((1, *gradient.dims[1:2], *(1 for _ in gradient.dims[2:])), gradient.dtype)
        return work_of("reduce", "aten::sum", {"fn": "sum"}, (gradient,), (sums,), None) if "bias" in wanted else None
    if len(ins) > 2 and "depthwise" not in family:
        return work_of("elementwise", "aten::add_", {"fn": "add"}, (outs[0], ins[2]), (outs[0],), None)
    return None


def _idle(family: str, ins: tuple[TensorSpec, ...]) -> float:
    """How many times longer memory takes where a block of threads goes through each channel, and channels are few."""
    words = family.split()
    by_channel = words[:2] == ["norm", "batch"] and not {"training", "gradient"}.isdisjoint(words)
    return max(1.0, PROCESSORS / max(1, ins[0].dims[1])) if by_channel and len(ins[0].dims) > 1 else 1.0


_OF_A_LOOP = ("extent", "large", "small", "costly")


def kernel_of(moved: int, *, extent: tuple[int, int], large: int, small: int, costly: bool) -> Work:
    """A kernel that a compiler writes: a loop over results, each a sum of elements.

    It reads `large` tensors as large as the loop and `small` ones; what it calculates may be `costly`. Its type matters only for
    the bytes.
    """
    count, depth = extent
    place = _log(moved), 0.3 * min(small, 5), 0.5 * costly, 0.5 * _log(count), 0.5 * _log(depth), 0.5 * large
    return Work(MERGED[depth > 1], "float32", 0, moved, place)


def families(work: Work) -> Iterator[str]:
    """The family of an operator; then those nearest to it, which have places of as many numbers."""
    yield work.family
    words = [word for word in work.family.split() if word not in LAYOUTS]
    yield " ".join(words)
    if "decode" in words:
        yield " ".join(word for word in words if word != "masked")  # the cache is read all the same
        yield " ".join(word for word in words if word != "decode")
    if "mixed" in words:
        yield " ".join(word for word in words if word != "mixed")
    if words[-1] in _OF_THEIR_OWN:
        yield words[0]
    if "columns" in words:
        yield "reduce sum columns"
    if words[0] in ("gather", "scatter"):  # what was timed most of them
        yield f"{words[0]} {'index' if words[0] == 'gather' else 'index_put'}"


def _log(size: float) -> float:
    return log2(size) if size > 0 else 0.0


def alignment(size: int) -> float:
    """How many times a size can be halved, up to a multiple of eight: tensor cores take eight elements at a time."""
    return min((size & -size).bit_length() - 1, 3) / 2 if size else 0.0


_PRODUCT = (1.0, 1.0, 1.0, 0.7, 3.0, 1.0, 0.5, 4.0)
_BATCHED = (0.35, 0.5, 1.5, 0.7, 1.0, 3.0, 0.1, 4.0)
_CONVOLUTION = (0.5, 0.5, 0.35, 1.4, 1.5, 0.15, 1.0, 0.75, 1.0, 1.0, 1.0, 0.7, 1.0, 0.25, 1.0, 3.0)
_CHANNELS_LAST = (0.25, 0.5, 0.25, 1.4, 0.3, 0.08, 1.0, 0.75, 3.0, 1.0, 1.0, 0.7, 1.0, 0.25, 1.0, 3.0)
_ATTENTION = (0.7, 0.5, 1.0, 1.2, 0.35, 1.5)
"""What one step along each number of a place weighs: operators of a calibration are predicted best by the others of it."""


def scaled(place: tuple[float, ...], scales: tuple[float, ...]) -> tuple[float, ...]:
    """A place whose numbers weigh as much as given."""
    return tuple(number * scale for number, scale in zip(place, scales, strict=True))


_OF_THEIR_OWN = frozenset({"_weight_int4pack_mm", "_weight_int8pack_mm", "_int_mm", "_grouped_mm"})
"""Products whose kernels take other times than those of whole matrices of one type."""


def _product(raw: str, attrs: Attrs, shape: tuple[int, ...]) -> tuple[str, tuple[float, ...]]:
    k = attrs.get("depth")
    depth = k if isinstance(k, int) else 1
    m, n = shape[-2] if len(shape) > 1 else 1, shape[-1] if shape else 1
    batch = prod(shape[:-2])
    # A product with a bias takes another way through the library, and in float32 twice the time at small sizes.
    family = "bmm" if "bmm" in raw else "addmm" if attrs.get("bias") else "mm"
    name = raw.rpartition("::")[2]
    family += f" {name}" if name in _OF_THEIR_OWN else ""
    whole = n % 8 == depth % 8 == 0  # rows of whole vectors: otherwise another kernel reads them element by element
    place = (*map(_log, (batch, m, n, depth)), *map(alignment, (n, depth, m)), float(whole))
    return family, scaled(place, _BATCHED if family == "bmm" else _PRODUCT)


def convolved(
    ins: Sequence[TensorSpec], outs: Sequence[TensorSpec], *, backward: bool
) -> tuple[TensorSpec, TensorSpec, TensorSpec]:
    """Image, weight and result of a convolution, of which the backward pass reads the gradient first."""
    y, x, w = (ins[0], ins[1], ins[2]) if backward and len(ins) > 2 else (outs[0], ins[0], ins[1])
    return x, w, y


def _convolution(
    attrs: Attrs, ins: tuple[TensorSpec, ...], outs: tuple[TensorSpec, ...]
) -> tuple[str, tuple[float, ...]]:
    wanted = attrs.get("grads")
    gradients = wanted if isinstance(wanted, tuple) else ()
    image, weight, result = (spec.dims for spec in convolved(ins, outs, backward=bool(gradients)))
    groups = max(1, image[1] // max(1, weight[1])) if len(weight) > 1 else 1
    depthwise = groups > 1 and weight[1] == 1
    to = "".join(sorted(str(each)[0] for each in gradients if each != "bias"))
    layout = "channels-last" if attrs.get("channels_last") else ""
    words = ("conv", "depthwise" if depthwise else "grouped" if groups > 1 else "dense", to, layout)
    family = " ".join(filter(None, words))
    stride = -(-image[-1] // max(1, result[-1]))
    each = weight[1] if groups > 1 and not depthwise else 0  # channels of a group
    window = weight[2:] or weight[-1:]
    pointwise = float(prod(window) == 1)  # a product, to which the alignment of its rows of pixels matters
    place = (
        _log(prod(result) / max(1, result[1])),  # places of the result
        _log(image[1]),
        _log(result[1]),
        _log(window[-1]),
        _log(stride),
        _log(result[0]),
        0.0 if depthwise else _log(groups),
        float(image[1] % 8 == 0),
        float(result[1] % 8 == 0),
        float(depthwise and len(ins) > 2 and not gradients),  # within the kernel, or added by one of its own
        _log(window[-1] / window[0]),
        pointwise,
        pointwise * alignment(prod(result[2:])),
        pointwise * alignment(prod(image[2:])),
        _log(each),
        float(each > 0 and each & (each - 1) == 0),  # kernels of their own take groups of a power of two
    )
    return family, scaled(place, _weights(family))


def _weights(family: str) -> tuple[float, ...]:
    """What the numbers of a convolution's place weigh: with channels side by side, those that are no whole vectors are copied."""
    beside = "channels-last" in family and "depthwise" not in family
    return _CHANNELS_LAST if beside else _CONVOLUTION


def place_in(work: Work, family: str) -> tuple[float, ...]:
    """The place of an operator in a family that is like its own."""
    if family == work.family or not family.startswith("conv"):
        return work.place
    weights = zip(_weights(family), _weights(work.family), strict=True)
    return scaled(work.place, tuple(new / old for new, old in weights))


def _attention(
    attrs: Attrs, query: tuple[int, ...], key: tuple[int, ...], masks: Sequence[TensorSpec]
) -> tuple[str, tuple[float, ...]]:
    # For one new token the cache is read, and little is calculated.
    words = "attention", "gradient" if attrs.get("grad") else "decode" if query[-2] == 1 else ""
    masked = bool(masks) and not attrs.get("causal")
    family = " ".join(filter(None, (*words, "causal" if attrs.get("causal") else "masked" if masked else "")))
    read = prod(masks[0].dims[:-2]) if masked else 1  # one for all heads comes from the cache
    sizes = map(_log, (prod(query[:-2]), query[-2], key[-2], query[-1], read))
    return family, scaled((*sizes, float(masked and key[-2] % 64 == 0)), _ATTENTION)  # whole tiles of a mask


_BY_NAME = frozenset({"copy", "gather", "scatter"})
_BY_FUNCTION = frozenset({"norm", "softmax", "reduce", "pool", "resize"})


def _family(kind: str, raw: str, attrs: Attrs, ins: tuple[TensorSpec, ...], outs: tuple[TensorSpec, ...]) -> str:
    words = [kind]
    if attrs.get("fn") == "merged":  # a kernel made for it reads and writes everything once, in vectors
        return kind
    if kind in _BY_FUNCTION:
        words.append(str(attrs.get("fn", "")))
    if raw.endswith("_safe_softmax"):  # looks through each row once more
        words.append("safe")
    if kind == "reduce" and len(ins) == 1 and outs and _inner(ins[0].dims, outs[0].dims) > 1:
        words.append("columns")  # down, where a gradient to a bias is summed, and not along the rows
    if kind in _BY_NAME:
        words.append(raw.rpartition("::")[2])
    if attrs.get("strided"):
        words.append("turned" if attrs.get("turned") else "strided")
    if attrs.get("expanded"):
        words.append("expanded")
    if attrs.get("grad"):
        words.append("gradient")
    if attrs.get("training"):
        words.append("training")
    if kind == "elementwise":
        if len({spec.numel for spec in ins}) > 1:
            words.append("broadcast")
        if len({spec.dtype for spec in ins}) > 1:  # a kernel takes these one by one and not in vectors
            words.append("mixed")
    return " ".join(words)


def _inner(given: tuple[int, ...], made: tuple[int, ...]) -> int:
    """The elements side by side that a reduction keeps apart; 1 if it goes along the rows."""
    if given[: len(made)] == made:
        return 1
    kept = 1
    for a, b in zip(reversed(given), reversed(made), strict=False):
        if a != b:
            break
        kept *= a
    return kept


_EXPENSIVE = frozenset({"gelu", "gelu_backward", "silu", "silu_backward", "mish", "sigmoid", "cos", "sin", "erf"})
"""Functions that take longer than their elements take to come and go, where these are small."""


def _by_memory(
    words: list[str], raw: str, attrs: Attrs, ins: tuple[TensorSpec, ...], outs: tuple[TensorSpec, ...], moved: int
) -> tuple[float, ...]:
    """The place of what only moves memory; as many numbers for all of a family."""
    kind = words[0]
    shape = ins[0].dims if ins else ()
    size = ins[0].numel if ins else 1
    width = shape[-1] if shape else 1
    fewer = size / max(1, outs[0].numel if outs else 1)
    if kind == "elementwise" and "broadcast" not in words:  # little but how much decides
        return _log(moved), 1.5 * (raw.rpartition("::")[2].rstrip("_") in _EXPENSIVE)
    if kind == "softmax" or words[:2] == ["norm", "layer"]:  # whatever axes the rows are counted along
        return _log(size / max(1, width)), _log(width)
    if words == ["norm", "group"] and len(outs) > 1:  # a block of threads goes through one group
        groups = outs[1].numel
        return _log(groups), _log(size / max(1, groups))
    if words[:2] == ["norm", "batch"] and len(shape) > 1:
        return _log(shape[0]), _log(shape[1]), _log(size / max(1, shape[0] * shape[1]))
    if kind == "copy":  # the axes show what is brought into which order
        first = shape[0] if shape else 1
        added = raw.endswith("pad_nd") and fewer != 1
        sizes = _log(moved), 0.3 * _log(width), 0.5 * _log(fewer), 0.4 * _log(first)
        return *sizes, 1.5 * len(shape), 3.0 * added, 0.5 * _log(len(ins))
    if kind == "pool":
        window = attrs.get("window")
        return _log(moved), 0.3 * _log(width), 0.5 * _log(fewer), _log(window if isinstance(window, int) else 1)
    if kind == "resize" and len(shape) > 2 and outs:  # a thread goes through all planes
        planes, pixels = shape[0] * shape[1], prod(outs[0].dims[2:])
        return _log(planes), _log(pixels), _log(prod(shape[2:]) / max(1, pixels))
    if "columns" in words:
        return 0.35 * _log(moved), 0.7 * _log(fewer), 0.7 * _log(_inner(shape, outs[0].dims))
    if kind == "reduce":
        return 0.35 * _log(moved), 0.7 * _log(fewer), 0.05 * _log(width)
    rows = outs[1].numel if kind == "norm" and len(outs) > 1 else 1
    return (_log(moved), 0.3 * _log(width), 0.5 * _log(fewer), 0.4 * _log(shape[0] if shape else 1), 0.7 * _log(rows))
