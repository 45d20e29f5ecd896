"""Which tensors of a checkpoint are quantized weights, how many parameters they hold, and which others only serve them.

Schemes are told by the names and types of tensors that stand together. Of how many bits a packed weight is, its shapes say;
where they cannot, the configuration beside the checkpoint does. What fits no scheme is counted as it is stored.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any, NamedTuple

from opcost.frontends.checkpoint.gguf import QUANTIZED as GGUF_TYPES
from opcost.frontends.checkpoint.reader import Raw

WORD = 32
"""Bits of the integers that smaller ones are packed into."""
_FLOAT8 = frozenset(("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"))
_INTEGERS = frozenset(("uint8", "int8", "int32", "uint32"))
_QUANTIZED = frozenset((*GGUF_TYPES, *_FLOAT8, *_INTEGERS))
_SMALL = 1024

_ACTIVATIONS = ("input_scale", "input_zero_point", "input_global_scale", "output_scale", "output_zero_point")
_SERVING: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    **dict.fromkeys(("awq", "gptq"), ((), ("scales", "qzeros", "g_idx"))),
    **dict.fromkeys(
        ("compressed-tensors", "int8"), (("_scale", "_zero_point", "_shape", "_g_idx", "_global_scale"), _ACTIVATIONS)
    ),
    "bitsandbytes": (
        (
            ".absmax", ".quant_map", ".nested_absmax", ".nested_quant_map", ".quant_state.bitsandbytes__nf4",
            ".quant_state.bitsandbytes__fp4",
        ),
        ("SCB", "weight_format"),
    ),
    "fp8": (("_scale", "_scale_inv"), _ACTIVATIONS),
    "mxfp4": (("_scales",), ()),
    "nvfp4": (("_scale", "_scale_2"), _ACTIVATIONS),
    "mlx": ((), ("scales", "biases")),
}  # fmt: skip
"""What serves a weight, by its scheme: what follows the weight's own name, and names in its module."""
_CACHES = frozenset(("k_scale", "v_scale", "q_scale", "kv_scale", "prob_scale"))
"""Of the cache of an attention layer, where anything is quantized."""


class Packed(NamedTuple):
    """A weight as the model sees it."""

    shape: tuple[int, ...]
    dtype: str
    scheme: str


@dataclass(slots=True)
class Recognised:
    """Quantized weights by name, and the names of those that serve them."""

    weights: dict[str, Packed] = field(default_factory=dict)
    scales: set[str] = field(default_factory=set)


def recognise(tensors: Mapping[str, Raw], config: Mapping[str, Any]) -> Recognised:
    """Look through the tensors of a checkpoint. Floats of eight bits come last: they may be the scales of others."""
    found = Recognised()
    look, beside = _Look(tensors, config), _Beside(tensors)
    later: list[tuple[str, tuple[int, ...], str]] = []
    for name, tensor in tensors.items():
        dtype = tensor.dtype
        if dtype not in _QUANTIZED:
            continue
        if dtype in GGUF_TYPES:
            found.weights[name] = Packed(tensor.shape, dtype, "gguf")
        elif dtype in _FLOAT8 and tensor.role == "weight":
            later.append((name, tensor.shape, dtype))
        elif dtype in _INTEGERS and tensor.role == "weight" and (packed := look.at(tensor)) is not None:
            found.weights[name] = packed
            beside.serve(name, packed.scheme, found.scales)
    weights, scales = found.weights, found.scales
    for name, shape, dtype in later:
        if name not in scales:
            weights[name] = Packed(shape, dtype, "fp8")
            beside.serve(name, "fp8", scales)
    if found.weights and not beside.leaves.isdisjoint(_CACHES):
        found.scales.update(
            name
            for name, tensor in tensors.items()
            if name.rpartition(".")[2] in _CACHES and prod(tensor.shape) <= _SMALL
        )
    found.scales -= found.weights.keys()
    return found


class _Beside:
    """Finds what serves a weight; names that no tensor of the checkpoint ends with are not looked for again and again."""

    def __init__(self, tensors: Mapping[str, Raw]) -> None:
        self.tensors = tensors
        self.leaves = {name.rpartition(".")[2] for name in tensors}
        self._wanted: dict[str, tuple[list[str], list[str]]] = {}

    def serve(self, name: str, scheme: str, scales: set[str]) -> None:
        """Add the names of those that serve a weight."""
        endings, words = self._wanted.get(scheme) or self._narrowed(scheme)
        if scheme == "compressed-tensors":
            name = name.removesuffix("_packed")
        elif scheme == "mxfp4":
            name = name.removesuffix("_blocks")
        for ending in endings:
            if (each := name + ending) in self.tensors:
                scales.add(each)
        if words:
            stem, dot, _ = name.rpartition(".")
            for word in words:
                if (each := f"{stem}{dot}{word}") in self.tensors:
                    scales.add(each)

    def _narrowed(self, scheme: str) -> tuple[list[str], list[str]]:
        endings, words = _SERVING[scheme]
        last = {ending: ending.rpartition(".")[2] for ending in endings}
        ends = [ending for ending in endings if any(leaf.endswith(last[ending]) for leaf in self.leaves)]
        self._wanted[scheme] = ends, [word for word in words if word in self.leaves]
        return self._wanted[scheme]


@dataclass(slots=True)
class _Look:
    """One look at a tensor and at those beside it."""

    tensors: Mapping[str, Raw]
    config: Mapping[str, Any]

    def at(self, tensor: Raw) -> Packed | None:
        name, shape = tensor.name, tensor.shape
        stem, _, leaf = name.rpartition(".")
        if leaf == "qweight" and len(shape) == 2:
            return self._gptq_or_awq(tensor, stem)
        if leaf == "weight_packed" and shape:
            return self._compressed(tensor, stem)
        match tensor.dtype:
            case "uint8":
                return self._uint8(tensor)
            case "uint32" if (scales := self.tensors.get(f"{stem}.scales")) is not None and shape:
                return self._mlx(tensor, scales, stem)
            case "int8":
                if f"{stem}.SCB" in self.tensors:
                    return Packed(shape, "int8", "bitsandbytes")
                return Packed(shape, "int8", "int8") if f"{name}_scale" in self.tensors else None
        return None

    def _gptq_or_awq(self, tensor: Raw, stem: str) -> Packed | None:
        """Zero points are packed like weights and scales are not, so the two tell the bits; GPTQ packs along the inputs."""
        scales, zeros = self.tensors.get(f"{stem}.scales"), self.tensors.get(f"{stem}.qzeros")
        rows, columns = tensor.shape
        bits: int | None = None
        if scales is not None and zeros is not None and len(scales.shape) == len(zeros.shape) == 2 and scales.shape[1]:
            bits = _width(WORD * zeros.shape[1] / scales.shape[1])
        bits = bits or _width(self._told("bits", "w_bit"))
        if bits is None:
            return None
        by_input = scales is None or len(scales.shape) != 2 or scales.shape[1] == columns
        if by_input:
            order = self.tensors.get(f"{stem}.g_idx")
            inputs = order.shape[0] if order is not None and len(order.shape) == 1 else 0
            if not 0 < inputs <= rows * WORD // bits:
                inputs = rows * WORD // bits
            return Packed((columns, inputs), f"int{bits}", "gptq")
        return Packed((columns * WORD // bits, rows), f"int{bits}", "awq")

    def _compressed(self, tensor: Raw, stem: str) -> Packed | None:
        scheme, shape = "compressed-tensors", tensor.shape
        if tensor.dtype == "uint8":
            scale = self.tensors.get(f"{stem}.weight_scale")
            kind = "mxfp4" if scale is not None and scale.dtype in ("uint8", "float8_e8m0fnu") else "nvfp4"
            return Packed((*shape[:-1], 2 * shape[-1]), kind, scheme)
        true = _numbers(self.tensors.get(f"{stem}.weight_shape"))
        per_row = shape[-1]
        bits = _width(self._told("num_bits"))
        if len(true) == len(shape) and true[:-1] == shape[:-1] and per_row:
            # The last word of a row may have room to spare.
            fitting = [width for width in range(1, 17) if -(-true[-1] // (WORD // width)) == per_row]
            if fitting:
                return Packed(true, f"int{bits if bits in fitting else fitting[-1]}", scheme)
        return None if bits is None else Packed((*shape[:-1], per_row * (WORD // bits)), f"int{bits}", scheme)

    def _uint8(self, tensor: Raw) -> Packed | None:
        name, shape = tensor.name, tensor.shape
        for kind in ("nf4", "fp4"):
            state = self.tensors.get(f"{name}.quant_state.bitsandbytes__{kind}")
            if state is not None:
                stored = 2 * prod(shape)
                true = _state_shape(state.content)
                return Packed(true if stored - prod(true) in (0, 1) else (stored,), kind, "bitsandbytes")
        if name.endswith("_blocks") and f"{name.removesuffix('_blocks')}_scales" in self.tensors and len(shape) >= 2:
            return Packed((*shape[:-2], 2 * shape[-2] * shape[-1]), "mxfp4", "mxfp4")
        if shape and f"{name}_scale_2" in self.tensors:
            return Packed((*shape[:-1], 2 * shape[-1]), "nvfp4", "nvfp4")
        return None

    def _mlx(self, tensor: Raw, scales: Raw, stem: str) -> Packed | None:
        told = self.config.get("quantization", self.config.get("quantization_config"))
        entries = told if isinstance(told, dict) else {}
        own = entries.get(stem)
        entries = {**entries, **own} if isinstance(own, dict) else entries
        bits, group = _width(entries.get("bits")), entries.get("group_size", 64)
        if bits is None and type(group) is int and scales.shape and scales.shape[-1] * group > 0:
            bits = _width(WORD * tensor.shape[-1] / (scales.shape[-1] * group))
        if bits is None:
            return None
        return Packed((*tensor.shape[:-1], tensor.shape[-1] * WORD // bits), f"int{bits}", "mlx")

    def _told(self, *names: str) -> int | None:
        """A number of the configuration's part about quantization, however deep."""
        for part in ("quantization_config", "compression_config"):
            waiting = [self.config.get(part)]
            while waiting:
                entry = waiting.pop(0)
                if not isinstance(entry, dict):
                    continue
                for name in names:
                    if type(entry.get(name)) is int:
                        return int(entry[name])
                groups = entry.get("config_groups")
                waiting += groups.values() if isinstance(groups, dict) else [entry.get("weights")]
        return None


def _width(bits: object) -> int | None:
    """The bits of a packed integer, if these can be."""
    return int(bits) if isinstance(bits, (int, float)) and bits in range(1, 17) else None


def _numbers(tensor: Raw | None) -> tuple[int, ...]:
    """The numbers of a small tensor."""
    form = {"int64": "q", "int32": "i"}.get(tensor.dtype, "") if tensor is not None else ""
    if tensor is None or not form or not tensor.content or len(tensor.content) % struct.calcsize(form):
        return ()
    return struct.unpack(f"<{len(tensor.content) // struct.calcsize(form)}{form}", tensor.content)


def _state_shape(content: bytes) -> tuple[int, ...]:
    """The shape in what bitsandbytes notes of a weight, as JSON."""
    try:
        shape = json.loads(content)["shape"]
    except (ValueError, TypeError, LookupError, RecursionError):
        return ()
    whole: Callable[[object], bool] = lambda extent: type(extent) is int and 0 <= extent < 1 << 63  # noqa: E731
    return tuple(shape) if isinstance(shape, list) and len(shape) < 9 and all(map(whole, shape)) else ()
