"""Which files a path means: a file, the index of a sharded checkpoint, or a folder, whose best checkpoint is taken."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

import msgspec

from opcost.core.files import read_whole
from opcost.core.graph import Note
from opcost.errors import SourceError, UnknownSource, shortened, some
from opcost.frontends.checkpoint.reader import readers

INDEX = ".index.json"
_LARGEST_INDEX = 64 << 20
_MOST_FILES = 20_000
_SHARD = re.compile(r"[-_.]\d{5}-of-\d{5}$")
_ORDER = (
    ".safetensors", ".gguf", ".bin", ".pth", ".pt", ".ckpt", ".keras", ".h5", ".params", ".npz", ".onnx", ".mge",
)  # fmt: skip
"""Of what lies in a folder in several formats, the first of these is taken."""
_USUAL = ("model", "diffusion_pytorch_model", "pytorch_model", "adapter_model")
"""The name that is taken where several checkpoints lie in a folder."""
_NO_WEIGHTS = frozenset(
    "training_args.bin optimizer.bin optimizer.pt scheduler.pt scheduler.bin scaler.pt rng_state.pth tokenizer.model".split()
)


class _Index(msgspec.Struct):
    weight_map: dict[str, str]


_INDEX = msgspec.json.Decoder(_Index)


class Part(NamedTuple):
    """A file of a checkpoint, and what stands before the names of its tensors."""

    path: Path
    prefix: str = ""


class Found(NamedTuple):
    """What a path means."""

    parts: list[Part]
    folder: Path
    """Where the configuration lies."""
    notes: tuple[Note, ...] = ()
    promised: frozenset[str] | None = None
    """The names that an index promises."""


def files_of(path: Path) -> Found:
    """The files of the checkpoint at this path."""
    if path.is_dir():
        return _folder(path)
    if path.name.endswith(INDEX):
        return _indexed(path)
    return Found([Part(path)], path.parent)


def _indexed(path: Path) -> Found:
    """The shards that an index names, each a file beside it."""
    try:
        named = _INDEX.decode(read_whole(path, _LARGEST_INDEX, "index")).weight_map
    except (msgspec.MsgspecError, ValueError, RecursionError) as exc:
        raise SourceError(f"{path} is not the index of a checkpoint: {shortened(str(exc))}") from exc
    files = sorted(set(named.values()))
    if not files or len(files) > _MOST_FILES:
        raise SourceError(f"{path} is not the index of a checkpoint: it names {len(files):,} files")
    for name in files:
        if name in (".", "..") or re.search(r"[/\\\0]", name) or not name:
            raise SourceError(
                f"{path} names the file {shortened(ascii(name))}, which does not lie beside it",
                hint="an index names files of its own folder; nothing elsewhere is opened",
            )
    there = set(_names(path.parent))
    missing = [name for name in files if name not in there]
    if missing:
        raise SourceError(
            f"{path} names {len(files):,} files, of which {len(missing):,} are not there: {', '.join(some(missing))}",
            hint="fetch them, or scan the files that are there by their names",
        )
    return Found([Part(path.parent / name) for name in files], path.parent, promised=frozenset(named))


def _folder(path: Path) -> Found:
    """The checkpoint of a folder, or those of its subfolders, each under the name of its folder."""
    found = _best(path)
    if found is not None:
        return found
    parts: list[Part] = []
    notes: list[Note] = []
    for folder in sorted(each for each in path.iterdir() if each.is_dir() and not each.name.startswith(".")):
        inner = _best(folder)
        if inner is not None:
            parts += [Part(part.path, f"{folder.name}.") for part in inner.parts]
            notes += inner.notes
    if not parts:
        known = ", ".join(sorted({suffix for reader in readers() for suffix in reader.suffixes}))
        raise UnknownSource(f"{path} holds no checkpoint", hint=f"its files end with one of {known}")
    return Found(parts, path, tuple(notes))


def _names(folder: Path) -> list[str]:
    """The files of a folder, in the order of their names."""
    with os.scandir(folder) as entries:
        return sorted(entry.name for entry in entries if entry.is_file())


def _best(folder: Path) -> Found | None:
    """One checkpoint of a folder: by its format, its index and its name; a note tells of the others."""
    files = [name for name in _names(folder) if name not in _NO_WEIGHTS and name.lower().endswith(_ORDER)]
    for suffix in _ORDER:
        ours = [name for name in files if name.lower().endswith(suffix)]
        if not ours:
            continue
        families: dict[str, list[str]] = {}
        for name in ours:
            families.setdefault(_SHARD.sub("", name[: -len(suffix)]), []).append(name)
        usual = [name for name in _USUAL if name in families]
        if len(families) > 1 and not usual and suffix != ".safetensors":
            raise SourceError(
                f"{folder} holds {len(families)} checkpoints: {', '.join(some(sorted(families)))}",
                hint="name one of the files",
            )
        chosen = usual[0] if usual else next(iter(families))
        kept = ours if len(families) > 1 and not usual else families[chosen]
        notes = _left(folder, sorted(set(files) - set(kept)))
        index = folder / f"{chosen}{suffix}{INDEX}"
        if len(families[chosen]) > 1 and index.is_file():
            return _indexed(index)._replace(notes=notes)
        if suffix == ".gguf":
            kept = kept[:1]  # which names its other parts
        return Found([Part(folder / name) for name in kept], folder, notes)
    return None


def _left(folder: Path, names: list[str]) -> tuple[Note, ...]:
    """Other checkpoints beside the one that was taken."""
    if not names:
        return ()
    return (Note("others", f"not read: {', '.join(some(names))}; name a file to scan it", str(folder)),)
