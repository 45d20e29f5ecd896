"""What a checkpoint says of its model, and which of its tensors are quantized weights."""

import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from opcost.core.graph import Note
from opcost.core.names import is_expert
from opcost.core.scan import Experts, StoredTensor
from opcost.errors import SourceError
from opcost.frontends.checkpoint import is_possible
from opcost.frontends.checkpoint.gguf import QUANTIZED as GGUF_TYPES
from opcost.frontends.checkpoint.reader import Raw
from opcost.frontends.zoo import read_entries

CONFIG = "config.json"
OLD_CONFIG = "quantize_config.json"  # Where AutoGPTQ wrote what is now a part of the configuration

_EXPERTS = "num_local_experts num_experts n_routed_experts moe_num_experts num_routed_experts expert_count".split()
_PER_TOKEN = """
    num_experts_per_tok num_experts_per_token experts_per_token moe_top_k moe_topk moe_k num_selected_experts top_k_experts
    expert_used_count
""".split()
_PARTS = ("text_config", "llm_config", "language_config", "ffn_config", "thinker_config")
_EMBEDDINGS = tuple(
    f"{name}.weight" for name in ("embed_tokens", "wte", "word_embeddings", "embed_in", "tok_embeddings")
)
_HEADS = ("lm_head.weight", "embed_out.weight")
_GGUF_EMBEDDING, _GGUF_NORM, _GGUF_HEAD = "token_embd.weight", "output_norm.weight", "output.weight"
"""A decoder has a norm before its head; what has none, as a model of embeddings, has no head."""


def facts_beside(path: Path) -> tuple[dict[str, Any], tuple[Note, ...]]:
    """The configuration in a folder, and what is to say about it."""
    try:
        entries = read_entries(path / CONFIG) if (path / CONFIG).is_file() else {}
        if "quantization_config" not in entries and (path / OLD_CONFIG).is_file():
            entries["quantization_config"] = read_entries(path / OLD_CONFIG)
    except (SourceError, OSError) as exc:
        return {}, (Note("configuration", f"the configuration beside it is not used: {exc}"),)
    return entries, ()


def experts_of(tensors: Iterable[StoredTensor], facts: Mapping[str, Any]) -> Experts | None:
    """The experts of a mixture, where the configuration says how many a token uses."""
    if (routing := routing_of(facts)) is None:
        return None
    count, used = routing
    params = sum(tensor.params for tensor in tensors if is_expert(tensor.name, tensor.shape, count))
    return Experts(count, used, params) if params else None


def routing_of(facts: Mapping[str, Any]) -> tuple[int, int] | None:
    """How many experts a configuration has, and how many of them a token uses; None where it does not say."""
    count, used = _number(facts, _EXPERTS), _number(facts, _PER_TOKEN)
    return None if count is None or used is None or not 0 < used <= count or count < 2 else (count, used)


def tied(tensors: list[StoredTensor], facts: Mapping[str, Any]) -> tuple[list[StoredTensor], tuple[Note, ...]]:
    """The tensors, where the head of a model that says its head is its embedding holds no parameters of its own."""
    once = "the head is {}: one weight that is used twice, counted once"
    if "general.architecture" in facts:
        names = {tensor.name for tensor in tensors}
        tied_head = {_GGUF_EMBEDDING, _GGUF_NORM} <= names and _GGUF_HEAD not in names
        return tensors, (Note("tied", once.format(_GGUF_EMBEDDING)),) if tied_head else ()
    given = facts.get("tie_word_embeddings")
    if given is None and isinstance(facts.get("text_config"), dict):
        given = facts["text_config"].get("tie_word_embeddings")
    embedding = next((each for each in tensors if _is_called(each.name, _EMBEDDINGS)), None) if given is True else None
    if embedding is None:
        return tensors, ()
    place = next((at for at, each in enumerate(tensors) if _is_called(each.name, _HEADS)), None)
    if place is None:
        return tensors, (Note("tied", once.format(embedding.name)),)
    head = tensors[place]
    if head.shape != embedding.shape or head.tied_to:
        return tensors, ()
    text = f"{head.name} is stored although it is tied to {embedding.name}: its bytes count, its parameters do not"
    changed = [*tensors]
    changed[place] = head._replace(params=0, tied_to=embedding.name)
    return changed, (Note("tied", text),)


def _is_called(name: str, known: tuple[str, ...]) -> bool:
    return any(name == each or name.endswith(f".{each}") for each in known)


def _number(facts: Mapping[str, Any], names: Sequence[str]) -> int | None:
    """The first of these entries that is a number: in the configuration, in its part about text, or by a GGUF's architecture."""
    parts = [facts, *(part for name in _PARTS if isinstance(part := facts.get(name), dict))]
    architecture = facts.get("general.architecture")
    for part in parts:
        for name in names:
            value = part.get(name, part.get(f"{architecture}.{name}") if architecture else None)
            if type(value) is int:
                return value
    return None


# -- which tensors are quantized weights, how many parameters they hold, and which others only serve them
#
# A scheme is recognised by the names and types of tensors beside each other. Shapes give the bits of a packed weight, or else the
# configuration beside the checkpoint. A tensor of no known scheme is counted as it is stored.

WORD = 32  # Bits of the integers that smaller ones are packed into
_FLOAT8 = frozenset(("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"))
_INTEGERS = frozenset(("uint8", "int8", "int32", "uint32"))
_QUANTIZED = frozenset((*GGUF_TYPES, *_FLOAT8, *_INTEGERS))
_SMALL = 1024

_STATES = tuple(f".quant_state.bitsandbytes__{kind}" for kind in ("nf4", "fp4"))
_ACTIVATIONS = "input_scale input_zero_point input_global_scale output_scale output_zero_point"
_SERVING = {
    schemes: (endings.split(), words.split())
    for names, endings, words in (
        ("awq gptq", "", "scales qzeros g_idx"),
        ("compressed-tensors int8", "_scale _zero_point _shape _g_idx _global_scale", _ACTIVATIONS),
        ("bitsandbytes", ".absmax .quant_map .nested_absmax .nested_quant_map " + " ".join(_STATES), "SCB weight_format"),
        ("fp8", "_scale _scale_inv", _ACTIVATIONS), ("mxfp4", "_scales", ""),
        ("nvfp4", "_scale _scale_2", _ACTIVATIONS), ("mlx", "", "scales biases"),
    )
    for schemes in names.split()
}  # fmt: skip
"""What serves a weight, by its scheme: what follows the weight's own name, and names in its module."""
_CACHES = frozenset(("k_scale", "v_scale", "q_scale", "kv_scale", "prob_scale"))
"""Of the cache of an attention layer, where anything is quantized."""


class Packed(NamedTuple):
    """A weight as the model sees it."""

    shape: tuple[int, ...]
    dtype: str
    scheme: str


def recognise(tensors: Mapping[str, Raw], config: Mapping[str, Any]) -> tuple[dict[str, Packed], set[str]]:
    """Quantized weights by name, and the names of those that serve them."""
    found = _Recognition(tensors, config)
    weights, scales = found.weights, found.scales
    later: list[Raw] = []  # Floats of eight bits, which may be the scales of others
    for name, tensor in tensors.items():
        dtype = tensor.dtype
        if dtype not in _QUANTIZED:
            continue
        if dtype in GGUF_TYPES:
            weights[name] = Packed(tensor.shape, dtype, "gguf")
        elif dtype in _FLOAT8 and tensor.role == "weight":
            later.append(tensor)
        elif dtype in _INTEGERS and tensor.role == "weight" and (packed := found.packed(tensor)) is not None:
            found.add(name, packed)
    for tensor in later:
        if tensor.name not in scales:
            found.add(tensor.name, Packed(tensor.shape, tensor.dtype, "fp8"))
    if weights and not found.leaves.isdisjoint(_CACHES):
        named = [name for name in tensors if name.rpartition(".")[2] in _CACHES]
        scales.update(name for name in named if prod(tensors[name].shape) <= _SMALL)
    scales -= weights.keys()
    return weights, scales


class _Recognition:
    """Looks at tensors and at those beside them."""

    def __init__(self, tensors: Mapping[str, Raw], config: Mapping[str, Any]) -> None:
        self.tensors, self.config = tensors, config
        self.weights: dict[str, Packed] = {}
        self.scales: set[str] = set()
        self.leaves = {name.rpartition(".")[2] for name in tensors}
        self._serving: dict[str, tuple[list[str], list[str]]] = {}

    def add(self, name: str, packed: Packed) -> None:
        """A quantized weight, with those that serve it."""
        self.weights[name] = packed
        scheme = packed.scheme
        if scheme not in self._serving:  # names that no tensor ends with are not looked for again and again
            endings, words = _SERVING[scheme]
            ends = [end for end in endings if any(leaf.endswith(end.rpartition(".")[2]) for leaf in self.leaves)]
            self._serving[scheme] = ends, [word for word in words if word in self.leaves]
        ends, leaves = self._serving[scheme]
        name = name.removesuffix({"compressed-tensors": "_packed", "mxfp4": "_blocks"}.get(scheme, ""))
        stem, dot, _ = name.rpartition(".")
        beside = [*[name + ending for ending in ends], *[f"{stem}{dot}{leaf}" for leaf in leaves]]
        self.scales.update([each for each in beside if each in self.tensors])

    def packed(self, tensor: Raw) -> Packed | None:
        """The weight as the model sees it; None: it is of no known scheme."""
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
                given = self.config.get("quantization", self.config.get("quantization_config"))
                entries = given if isinstance(given, dict) else {}
                own = entries.get(stem)
                entries = {**entries, **own} if isinstance(own, dict) else entries
                bits, group = _width(entries.get("bits")), entries.get("group_size", 64)
                if bits is None and type(group) is int and scales.shape and scales.shape[-1] * group > 0:
                    bits = _width(WORD * shape[-1] / (scales.shape[-1] * group))
                return Packed((*shape[:-1], shape[-1] * WORD // bits), f"int{bits}", "mlx") if bits else None
            case "int8" if f"{stem}.SCB" in self.tensors:
                return Packed(shape, "int8", "bitsandbytes")
            case "int8" if f"{name}_scale" in self.tensors:
                return Packed(shape, "int8", "int8")
        return None

    def _gptq_or_awq(self, tensor: Raw, stem: str) -> Packed | None:
        """Zero points are packed like weights and scales are not, so the two give the bits; GPTQ packs along the inputs."""
        scales, zeros = self.tensors.get(f"{stem}.scales"), self.tensors.get(f"{stem}.qzeros")
        rows, columns = tensor.shape
        bits: int | None = None
        if scales is not None and zeros is not None and len(scales.shape) == len(zeros.shape) == 2 and scales.shape[1]:
            bits = _width(WORD * zeros.shape[1] / scales.shape[1])
        bits = bits or _width(self._configured("bits", "w_bit"))
        if bits is None:
            return None
        if scales is not None and len(scales.shape) == 2 and scales.shape[1] != columns:
            return Packed((columns * WORD // bits, rows), f"int{bits}", "awq")
        order = self.tensors.get(f"{stem}.g_idx")
        inputs = order.shape[0] if order is not None and len(order.shape) == 1 else 0
        if not 0 < inputs <= rows * WORD // bits:
            inputs = rows * WORD // bits
        return Packed((columns, inputs), f"int{bits}", "gptq")

    def _compressed(self, tensor: Raw, stem: str) -> Packed | None:
        scheme, shape = "compressed-tensors", tensor.shape
        if tensor.dtype == "uint8":
            scale = self.tensors.get(f"{stem}.weight_scale")
            kind = "mxfp4" if scale is not None and scale.dtype in ("uint8", "float8_e8m0fnu") else "nvfp4"
            return Packed((*shape[:-1], 2 * shape[-1]), kind, scheme)
        true = _numbers(self.tensors.get(f"{stem}.weight_shape"))
        per_row = shape[-1]
        bits = _width(self._configured("num_bits"))
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

    def _configured(self, *names: str) -> int | None:
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
        shape = tuple(json.loads(content)["shape"])
    except (ValueError, TypeError, LookupError, RecursionError):
        return ()
    return shape if is_possible(shape) else ()
