"""What config.json or the file itself says of the model: experts, tied weights, quantization."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from opcost.core.graph import Note
from opcost.core.scan import Experts, StoredTensor
from opcost.errors import SourceError
from opcost.frontends.zoo import read_entries

CONFIG = "config.json"
OLD_CONFIG = "quantize_config.json"
"""Where AutoGPTQ wrote what is now a part of the configuration."""

_EXPERTS = (
    "num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts", "num_routed_experts", "expert_count",
)  # fmt: skip
_PER_TOKEN = (
    "num_experts_per_tok", "num_experts_per_token", "experts_per_token", "moe_top_k", "moe_topk", "moe_k", "num_selected_experts",
    "top_k_experts", "expert_used_count",
)  # fmt: skip
_PARTS = ("text_config", "llm_config", "language_config", "ffn_config", "thinker_config")
_EXPERT_WORDS = frozenset(("experts", "switch_mlp", "local_experts"))
_EMBEDDINGS = (
    "embed_tokens.weight",
    "wte.weight",
    "word_embeddings.weight",
    "embed_in.weight",
    "tok_embeddings.weight",
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
    count, used = _number(facts, _EXPERTS), _number(facts, _PER_TOKEN)
    if count is None or used is None or not 0 < used <= count or count < 2:
        return None
    params = sum(tensor.params for tensor in tensors if _is_expert(tensor, count))
    return Experts(count, used, params) if params else None


def _is_expert(tensor: StoredTensor, count: int) -> bool:
    words = tensor.name.split(".")
    if not _EXPERT_WORDS.isdisjoint(words) or any(word.endswith("_exps") for word in words):
        return True
    return len(tensor.shape) == 3 and tensor.shape[0] == count and "moe" in tensor.name


def tied(tensors: list[StoredTensor], facts: Mapping[str, Any]) -> tuple[list[StoredTensor], tuple[Note, ...]]:
    """The tensors, where the head of a model that says its head is its embedding holds no parameters of its own."""
    if "general.architecture" in facts:
        names = {tensor.name for tensor in tensors}
        once = {_GGUF_EMBEDDING, _GGUF_NORM} <= names and _GGUF_HEAD not in names
        return tensors, (_once(_GGUF_EMBEDDING),) if once else ()
    told = facts.get("tie_word_embeddings")
    if told is None and isinstance(facts.get("text_config"), dict):
        told = facts["text_config"].get("tie_word_embeddings")
    embedding = next((each for each in tensors if _is_called(each.name, _EMBEDDINGS)), None) if told is True else None
    if embedding is None:
        return tensors, ()
    place = next((at for at, each in enumerate(tensors) if _is_called(each.name, _HEADS)), None)
    if place is None:
        return tensors, (_once(embedding.name),)
    head = tensors[place]
    if head.shape != embedding.shape or head.tied_to:
        return tensors, ()
    said = f"{head.name} is stored although it is tied to {embedding.name}: its bytes count, its parameters do not"
    changed = [*tensors]
    changed[place] = head._replace(params=0, tied_to=embedding.name)
    return changed, (Note("tied", said),)


def _once(name: str) -> Note:
    return Note("tied", f"the head is {name}: one weight that is used twice, counted once")


def _is_called(name: str, known: tuple[str, ...]) -> bool:
    return any(name == each or name.endswith(f".{each}") for each in known)


def _number(facts: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    """The first of these entries that is a number: in the configuration, in its part about text, or by a GGUF's architecture."""
    parts = [facts, *(part for name in _PARTS if isinstance(part := facts.get(name), dict))]
    architecture = facts.get("general.architecture")
    for part in parts:
        for name in names:
            value = part.get(name, part.get(f"{architecture}.{name}") if architecture else None)
            if type(value) is int:
                return value
    return None
