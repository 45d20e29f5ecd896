"""What decides how long an operator takes: its family, how much it calculates and moves, and its place among those like it.

A place is a few numbers, mostly logarithms of sizes, such that operators that lie close together run at about the same share
of what their device can do. One step is a size twice as large; what matters less is scaled down.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import log2, prod
from typing import NamedTuple

from opcost.core.cost import FLOPS_PER_MAC, Cost
from opcost.core.graph import Attrs, TensorSpec

LAYOUTS = ("strided", "channels-last")
"""Words of families that tell how memory lies, which older calibrations do not tell apart."""


class Work(NamedTuple):
    """One operator as a device sees it."""

    family: str
    dtype: str
    flops: int
    """Of its products; what else it calculates hides behind the memory."""
    nbytes: int
    place: tuple[float, ...]


def work_of(
    kind: str, raw: str, attrs: Attrs, ins: tuple[TensorSpec, ...], outs: tuple[TensorSpec, ...], cost: Cost | None
) -> Work:
    """What an operator is to a device."""
    ins, outs = (tuple(spec for spec in specs if spec.known) for specs in (ins, outs))
    dtype = next((spec.dtype for spec in (*ins, *outs) if "float" in spec.dtype), "float32")
    flops = FLOPS_PER_MAC * cost.macs if cost is not None else 0
    moved = sum(spec.nbytes for spec in (*ins, *outs))
    if kind == "scatter" and raw.endswith("_") and cost is not None:  # in place: only what is written is touched
        moved = cost.bytes_read + cost.bytes_written
    gradient = bool(attrs.get("grad") or attrs.get("grads"))
    if kind == "matmul" and outs:
        family, place = _product(raw, attrs, outs[0].dims)
    elif kind == "conv" and len(ins) > 1 and outs:
        family, place = _convolution(attrs, ins, outs)
    elif kind == "attention" and len(ins) > 2:
        family, place = _attention(attrs, ins[1 if gradient else 0].dims, ins[2 if gradient else 1].dims, len(ins))
    else:
        return Work(_family(kind, raw, attrs, ins), dtype, 0, moved, _by_memory(kind, ins, outs, moved))
    return Work(family, dtype, flops, moved, place)


def families(work: Work) -> Iterator[str]:
    """The family of an operator; then the one of its kind whatever way memory lies."""
    yield work.family
    words = work.family.split()
    if words[-1] in LAYOUTS:
        yield " ".join(words[:-1])


def _log(size: float) -> float:
    return log2(size) if size > 0 else 0.0


def _alignment(size: int) -> float:
    """How many times a size can be halved, up to a multiple of eight: tensor cores take eight elements at a time."""
    return min((size & -size).bit_length() - 1, 3) / 2 if size else 0.0


def _product(raw: str, attrs: Attrs, shape: tuple[int, ...]) -> tuple[str, tuple[float, ...]]:
    k = attrs.get("depth")
    depth = k if isinstance(k, int) else 1
    m, n = shape[-2] if len(shape) > 1 else 1, shape[-1] if shape else 1
    batch = prod(shape[:-2])
    # A product with a bias takes another way through the library, and in float32 twice the time at small sizes.
    family = "bmm" if "bmm" in raw else "addmm" if attrs.get("bias") else "mm"
    sizes = [_log(size) for size in (batch, m, n, depth)]
    return family, (*sizes, *map(_alignment, (n, depth, m)))


def _convolution(
    attrs: Attrs, ins: tuple[TensorSpec, ...], outs: tuple[TensorSpec, ...]
) -> tuple[str, tuple[float, ...]]:
    wanted = attrs.get("grads")
    gradients = wanted if isinstance(wanted, tuple) else ()
    y, x, w = (ins[0], ins[1], ins[2]) if gradients and len(ins) > 2 else (outs[0], ins[0], ins[1])
    image, weight, result = x.dims, w.dims, y.dims
    groups = max(1, image[1] // max(1, weight[1])) if len(weight) > 1 and len(image) > 1 else 1
    depthwise = groups > 1 and weight[1] == 1
    to = "".join(sorted(str(each)[0] for each in gradients if each != "bias"))
    layout = "channels-last" if attrs.get("channels_last") else ""
    words = ("conv", "depthwise" if depthwise else "grouped" if groups > 1 else "dense", to, layout)
    family = " ".join(filter(None, words))
    stride = -(-image[-1] // max(1, result[-1]))
    place = (
        _log(prod(result) / max(1, result[1])),  # places of the result
        _log(image[1]),
        _log(result[1]),
        2 * _log(weight[-1]),
        _log(stride),
        _log(result[0]) / 2,
        0.0 if depthwise else _log(groups),
        (image[1] % 8 == 0) / 2,
        (result[1] % 8 == 0) / 2,
        (len(ins) > 2 and not gradients) / 2,  # a bias is a kernel of its own
    )
    return family, place


def _attention(attrs: Attrs, query: tuple[int, ...], key: tuple[int, ...], given: int) -> tuple[str, tuple[float, ...]]:
    gradient = bool(attrs.get("grad"))
    masked = given > (4 if gradient else 3)
    family = (
        f"attention{' gradient' if gradient else ''}{' causal' if attrs.get('causal') else ' masked' if masked else ''}"
    )
    return family, (_log(prod(query[:-2])), _log(query[-2]), _log(key[-2]), _log(query[-1]))


_BY_FUNCTION = frozenset({"norm", "softmax", "reduce", "pool", "resize"})


def _family(kind: str, raw: str, attrs: Attrs, ins: tuple[TensorSpec, ...]) -> str:
    words = [kind]
    if kind in _BY_FUNCTION:
        words.append(str(attrs.get("fn", "")))
    if kind == "copy":
        words.append(raw.rpartition("::")[2])
    if attrs.get("strided"):
        words.append("strided")
    if attrs.get("grad"):
        words.append("gradient")
    if attrs.get("training"):
        words.append("training")
    if kind == "elementwise" and len(ins) > 1 and ins[0].numel != ins[1].numel:
        words.append("broadcast")
    return " ".join(words)


def _by_memory(kind: str, ins: tuple[TensorSpec, ...], outs: tuple[TensorSpec, ...], moved: int) -> tuple[float, ...]:
    shape = ins[0].dims if ins else ()
    rows = outs[1].numel if kind == "norm" and len(outs) > 1 else 1
    fewer = (ins[0].numel if ins else 1) / max(1, outs[0].numel if outs else 1)
    return (
        _log(moved),
        0.3 * _log(shape[-1] if shape else 1),
        0.5 * _log(fewer),
        0.4 * _log(shape[0] if shape else 1),
        0.7 * _log(rows),
    )
