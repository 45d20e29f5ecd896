"""A Hugging Face configuration as plain data, from which a library may then make a model: nothing in it loads anything.

Three things are done with an entry that a library might follow to code or weights outside the file. What is never needed for a
count is left out (`auto_map`: transformers' own code is used, or none). What only chooses between random and trained weights
chooses random ones. What names something to be loaded is refused.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from opcost.core.units import format_bytes
from opcost.errors import Refused, SourceError
from opcost.wording import shortened

LARGEST_FILE = 1 << 25
"""Bytes. The labels of ImageNet-22k make a configuration of one megabyte."""
DEEPEST = 64
"""Levels of nesting; real configurations have about five."""

LEFT_OUT = frozenset({"auto_map", "trust_remote_code", "custom_pipelines"})
"""Where foreign code lies and whether it may be run: it is not."""
RANDOM_WEIGHTS = frozenset({"use_pretrained_backbone"})
"""Switches between random and trained weights. They change no count, so they are off."""
LOADS = frozenset({"checkpoint_path", "pretrained", "pretrained_backbone", "weights", "weights_backbone"})
"""What is loaded, as the argument of a function that makes a model."""

_ARGUMENTS = re.compile(r"(kwargs|args|arguments)$")
_ELSEWHERE = re.compile(r"\s*(hf[-_]hub|local[-_]dir):", re.IGNORECASE)
_IMPLEMENTATION = re.compile(r"(attn|attention|experts)_implementation(_internal)?$")
_NAMES_THE_FILE = frozenset({"_name_or_path", "name_or_path"})

_MOST = {
    re.compile(r"(^|_)(layers?|blocks?|depths?|stages?|levels?|codebooks|groups)$"): 10_000,
    re.compile(r"(^|_)experts$"): 100_000,
    re.compile(r"(^|_)(labels|classes)$"): 1_000_000,
}
"""What is made one by one, and how many of it. The deepest published models have about a thousand layers, and 16,384 experts."""


_NAME = re.compile(r"(?:[\w.-]+/)?[\w.-]+")
"""Of a model on the hub, with its owner."""


_PAIR = ("encoder", "decoder")
_NAMES_ITS_PARTS = {
    "timm_wrapper": ("architecture",),
    **dict.fromkeys(("encoder-decoder", "vision-encoder-decoder", "speech-encoder-decoder"), _PAIR),
}
"""Models that are only named by an entry; without it, some model that nobody asked for would be made."""


def cached_configuration(name: str) -> Path | None:
    """The config.json of a model that was fetched before, in the cache of Hugging Face: the newest state of its main branch."""
    if not _NAME.fullmatch(name) or name.startswith("."):
        return None
    home = os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "huggingface"
    model = Path(os.environ.get("HF_HUB_CACHE") or Path(home) / "hub") / f"models--{name.replace('/', '--')}"
    newest = model / "refs" / "main"
    try:
        state = newest.read_text(encoding="ascii").strip()
        found = model / "snapshots" / state / "config.json"
        return found if state.isalnum() and found.is_file() else None
    except (OSError, ValueError):
        return None


def read_entries(path: Path) -> dict[str, Any]:
    """The entries of a JSON file; what is no object, or says one thing twice, is an error."""
    if (size := path.stat().st_size) > LARGEST_FILE:
        raise SourceError(
            f"{path} has {format_bytes(size)}, and no configuration is larger than {format_bytes(LARGEST_FILE)}"
        )
    try:
        entries = json.loads(path.read_text(encoding="utf-8-sig"), object_pairs_hook=_once)
    except SourceError as exc:
        raise SourceError(f"{path} {exc.message}") from exc
    except (ValueError, RecursionError) as exc:
        raise SourceError(f"{path} is not JSON: {exc}") from exc
    if not isinstance(entries, dict):
        raise SourceError(f"{path} holds no entries")
    return entries


def read_configuration(path: Path) -> dict[str, Any]:
    """The entries of a configuration of Hugging Face."""
    entries = read_entries(path)
    if not isinstance(entries.get("model_type"), str):
        raise SourceError(f"{path} is not a Hugging Face configuration: it has no model_type")
    for name in _NAMES_ITS_PARTS.get(entries["model_type"], ()):
        if name not in entries:
            raise SourceError(f"{path} does not say which model it is: a {entries['model_type']} has an entry {name!r}")
    return entries


def without_loads(entries: Mapping[str, Any], source: str) -> dict[str, Any]:
    """The entries, without those that lead to foreign code; one that must load something is refused by its name."""
    return _cleaned(entries, source, ())


def refuse_loads(settings: Mapping[str, Any], source: str) -> None:
    """The same of the arguments of a function that makes a model, where nothing can be left out."""
    _cleaned(settings, source, ("args",))


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise SourceError(f"gives {shortened(repr(twice))} twice")
    return entries


def _cleaned(entries: Mapping[str, Any], source: str, outer: tuple[str, ...]) -> dict[str, Any]:
    if len(outer) > DEEPEST:
        raise SourceError(f"{source}: the configuration is nested more than {DEEPEST} levels deep")
    kept: dict[str, Any] = {}
    for key, value in entries.items():
        place = (*outer, str(key))
        if key in LEFT_OUT:
            continue
        if (reason := _reason_to_refuse(str(key), value, outer)) is not None:
            raise Refused(
                f"{source}: {shortened('.'.join(place).removeprefix('args.'))} = {shortened(repr(value))} {reason}",
                hint="a model is made and counted without loading anything; take the entry out, or set it to null",
            )
        _check_amount(str(key), value, source)
        kept[key] = False if key in RANDOM_WEIGHTS else _cleaned_value(value, source, place)
    return kept


def _cleaned_value(value: Any, source: str, place: tuple[str, ...]) -> Any:
    if isinstance(value, Mapping):
        return _cleaned(value, source, place)
    if isinstance(value, (list, tuple)):
        return [*_cleaned({str(index): item for index, item in enumerate(value)}, source, place).values()]
    return value


def _reason_to_refuse(key: str, value: Any, outer: tuple[str, ...]) -> str | None:
    if key in LOADS and value and (key == "checkpoint_path" or any(map(_ARGUMENTS.search, outer))):
        return "would load trained weights"
    if isinstance(value, str) and _ELSEWHERE.match(value) and key not in _NAMES_THE_FILE:
        return "would load a model from elsewhere"
    inside = key if _IMPLEMENTATION.search(key) else outer[-1] if outer else ""
    if isinstance(value, str) and "/" in value and _IMPLEMENTATION.search(inside):
        return "would fetch a kernel and run it"
    return None


def _check_amount(key: str, value: Any, source: str) -> None:
    """Sizes of tensors cost nothing; what is made one by one takes time and memory for each."""
    most = next((most for pattern, most in _MOST.items() if pattern.search(key)), None)
    if most is not None and any(number > most for number in _numbers(value)):
        raise SourceError(f"{source}: {key} = {shortened(repr(value))} is more than the {most:,} that opcost makes")


def _numbers(value: Any) -> Iterator[float]:
    items: Iterable[Any] = value if isinstance(value, (list, tuple)) else (value,)
    return (item for item in items if isinstance(item, (int, float)) and not isinstance(item, bool))
