"""From a path to a scan: the files it means are read, their tensors joined, and quantized weights recognised."""

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import msgspec

from opcost.core.files import read_whole
from opcost.core.graph import Note
from opcost.core.progress import sharing
from opcost.core.scan import Scan, StoredTensor, totals_of
from opcost.core.units import format_count
from opcost.errors import SourceError, UnknownSource, shortened, some
from opcost.frontends.checkpoint.quantization import Packed, experts_of, facts_beside, recognise, tied
from opcost.frontends.checkpoint.reader import Contents, Raw, contents_of, reader_of, readers

INDEX = ".index.json"
_LARGEST_INDEX = 64 << 20
_MOST_FILES = 20_000
_SHARD = re.compile(r"[-_.]\d{5}-of-\d{5}$")
_ORDER = (
    ".safetensors", ".gguf", ".bin", ".pth", ".pt", ".ckpt", ".keras", ".h5", ".params", ".npz", ".onnx", ".mge",
)  # fmt: skip
"""Of a folder with several formats, the first of these is taken."""
_USUAL = ("model", "diffusion_pytorch_model", "pytorch_model", "adapter_model")
"""The name that is taken where a folder has several checkpoints."""
_NO_WEIGHTS = frozenset(
    "training_args.bin optimizer.bin optimizer.pt scheduler.pt scheduler.bin scaler.pt rng_state.pth tokenizer.model".split()
)


class _Index(msgspec.Struct):
    weight_map: dict[str, str]


_INDEX = msgspec.json.Decoder(_Index)


class CheckpointFile(NamedTuple):
    """A file of a checkpoint, and what precedes the names of its tensors."""

    path: Path
    prefix: str = ""


class CheckpointFiles(NamedTuple):
    """What a path means."""

    parts: list[CheckpointFile]
    folder: Path  # Where the configuration is
    notes: tuple[Note, ...] = ()
    promised: frozenset[str] | None = None  # The names that an index promises


def files_of(path: Path) -> CheckpointFiles:
    """The files of the checkpoint at this path."""
    if path.is_dir():
        # The checkpoint of a folder, or those of its subfolders, each under the name of its folder
        found = _best(path)
        if found is not None:
            return found
        parts: list[CheckpointFile] = []
        notes: list[Note] = []
        for folder in sorted(each for each in path.iterdir() if each.is_dir() and not each.name.startswith(".")):
            inner = _best(folder)
            if inner is not None:
                parts += [CheckpointFile(part.path, f"{folder.name}.") for part in inner.parts]
                notes += inner.notes
        if not parts:
            known = ", ".join(sorted({suffix for reader in readers() for suffix in reader.suffixes}))
            raise UnknownSource(f"{path} holds no checkpoint", hint=f"its files end with one of {known}")
        return CheckpointFiles(parts, path, tuple(notes))
    if path.name.endswith(INDEX):
        return _indexed(path)
    return CheckpointFiles([CheckpointFile(path)], path.parent)


def _indexed(path: Path) -> CheckpointFiles:
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
            hint = "an index names files of its own folder; nothing elsewhere is opened"
            raise SourceError(f"{path} names the file {shortened(ascii(name))}, which is not beside it", hint=hint)
    there = set(_names(path.parent))
    missing = [name for name in files if name not in there]
    if missing:
        fault = f"{path} names {len(files):,} files, of which {len(missing):,} are not there"
        hint = "fetch them, or scan the files that are there by their names"
        raise SourceError(f"{fault}: {', '.join(some(missing))}", hint=hint)
    parts = [CheckpointFile(path.parent / name) for name in files]
    return CheckpointFiles(parts, path.parent, promised=frozenset(named))


def _names(folder: Path) -> list[str]:
    """The files of a folder, in the order of their names."""
    with os.scandir(folder) as entries:
        return sorted(entry.name for entry in entries if entry.is_file())


def _best(folder: Path) -> CheckpointFiles | None:
    """One checkpoint of a folder: by its format, its index and its name; a note names the others."""
    files = [name for name in _names(folder) if name not in _NO_WEIGHTS and name.lower().endswith(_ORDER)]
    if not files:
        return None
    suffix = next(suffix for suffix in _ORDER if any(name.lower().endswith(suffix) for name in files))
    ours = [name for name in files if name.lower().endswith(suffix)]
    families: dict[str, list[str]] = {}
    for name in ours:
        families.setdefault(_SHARD.sub("", name[: -len(suffix)]), []).append(name)
    usual = [name for name in _USUAL if name in families]
    if len(families) > 1 and not usual and suffix != ".safetensors":
        fault = f"{folder} holds {len(families)} checkpoints: {', '.join(some(sorted(families)))}"
        raise SourceError(fault, hint="name one of the files")
    chosen = usual[0] if usual else next(iter(families))
    kept = ours if len(families) > 1 and not usual else families[chosen]
    left = some(sorted(set(files) - set(kept)))
    notes = (Note("others", f"not read: {', '.join(left)}; name a file to scan it", str(folder)),) if left else ()
    index = folder / f"{chosen}{suffix}{INDEX}"
    if len(families[chosen]) > 1 and index.is_file():
        return _indexed(index)._replace(notes=notes)
    if suffix == ".gguf":
        kept = kept[:1]  # which names its other parts
    return CheckpointFiles([CheckpointFile(folder / name) for name in kept], folder, notes)


# -- from a path to a scan: the files are read, their tensors put together, and what is quantized is recognised

_STATISTICS = (".running_mean", ".running_var", ".num_batches_tracked", ".moving_mean", ".moving_variance")
_PACKED = frozenset(("uint8", "int8", "uint16", "int16", "int32", "uint32"))
_MANY = 1 << 16


def scan_files(paths: Sequence[Path]) -> Scan:
    """What the checkpoint in these files or this folder holds."""
    try:
        return _scan(", ".join(some([str(path) for path in paths])), [files_of(path) for path in paths])
    except (OSError, ValueError) as exc:  # what the file system says of a name or a folder
        fault = getattr(exc, "strerror", None) or exc
        raise SourceError(f"{shortened(ascii(str(paths[0])))} cannot be read: {fault}") from exc


def _scan(source: str, founds: Sequence[CheckpointFiles]) -> Scan:
    facts, notes = facts_beside(founds[0].folder)
    notes = (*notes, *(note for found in founds for note in found.notes))
    tensors: dict[str, Raw] = {}
    homes: dict[str, str] = {}
    files: dict[str, None] = {}
    formats: dict[str, None] = {}
    details: dict[str, str] = {}
    ordered = True
    parts = sum(len(found.parts) for found in founds)
    with sharing(lambda: (len(files), parts)):
        for found in founds:
            reader = None
            for path, prefix in found.parts:
                if str(path) in files:
                    continue
                # The shards that an index names are all of one format.
                reader = reader if reader is not None and found.promised else reader_of(path)
                contents = contents_of(path, reader)
                formats[reader.name] = None
                ordered &= reader.ordered
                files.update(dict.fromkeys(map(str, contents.parts or (path,))))
                details.update(contents.details)
                notes = (*notes, *contents.notes)
                facts = {**contents.facts, **facts}
                _gather(contents, prefix, path, tensors, homes)
            if lacking := (found.promised or frozenset()) - tensors.keys():
                missing = ", ".join(some(sorted(lacking)))
                hint = "fetch the files again"
                raise SourceError(f"the index names tensors that its files do not hold: {missing}", hint=hint)
    stored, more = tied(_stored(tensors, homes, *recognise(tensors, facts)), facts)
    experts = experts_of(stored, facts)
    return Scan(
        source=source, format=" and ".join(formats), files=tuple(files), tensors=tuple(stored), experts=experts, ordered=ordered,
        totals=totals_of(stored, experts), details=details, notes=(*notes, *more, *_remarks(stored)),
    )  # fmt: skip


def _gather(contents: Contents, prefix: str, path: Path, tensors: dict[str, Raw], homes: dict[str, str]) -> None:
    """Add what a file holds; a name that is there already cannot be of the same checkpoint."""
    before, listed = len(tensors), contents.tensors
    if prefix:
        listed = [tensor._replace(name=prefix + tensor.name) for tensor in listed]
    own = {tensor.name: tensor for tensor in listed}
    tensors.update(own)
    homes.update(dict.fromkeys(own, path.name))
    if len(tensors) != before + len(contents.tensors):
        names = [prefix + tensor.name for tensor in contents.tensors]
        twice = next((name for name in names if names.count(name) > 1), None) if len(names) < _MANY else None
        if twice is not None:
            raise SourceError(f"{path} holds {shortened(twice)!r} twice")
        fault = f"{path} holds tensors whose names another file holds too, so that they are not of one checkpoint"
        raise SourceError(fault, hint="scan them one at a time")


def _stored(
    tensors: Mapping[str, Raw], homes: Mapping[str, str], weights: Mapping[str, Packed], scales: Collection[str]
) -> list[StoredTensor]:
    firsts: dict[Any, str] = {}
    found = []
    for name, raw in tensors.items():
        _, shape, dtype, size, role, storage, _ = raw
        scheme, home, first = "", homes[name], name
        if name in scales:
            role = "scale"
        elif name in weights:
            shape, dtype, scheme = weights[name]
        params = prod(shape) if role == "weight" else 0
        if storage is not None and (first := firsts.setdefault((home, storage), name)) != name:
            params = size = 0
        found.append(StoredTensor(name, shape, dtype, params, size, role, scheme, home, first if first != name else ""))
    return found


def _remarks(tensors: Iterable[StoredTensor]) -> Iterator[Note]:
    """What a reader of the sums must know: statistics among the parameters, ties, copies, and what may be packed."""
    statistics = elements = packed = 0
    ties: list[str] = []
    others: dict[str, int] = {}
    for name, shape, dtype, params, size, role, scheme, _, tied_to in tensors:
        if name.endswith(_STATISTICS):
            statistics += 1
            elements += params
        if tied_to and not params and not size:
            ties.append(f"{name} = {tied_to}")
        if role == "weight":
            packed += dtype in _PACKED and not scheme and len(shape) > 1 and params > _MANY
        elif role in ("optimizer", "copy"):
            others[role] = others.get(role, 0) + 1
    if statistics:
        text = f"{statistics:,} tensors ({elements:,} elements) are running statistics, counted as parameters"
        yield Note("statistics", text)
    if ties:
        yield Note("tied", f"stored once, counted once: {', '.join(some(ties))}")
    for part, count in others.items():
        training = "belong to an optimizer or to the state of training"
        what = training if part == "optimizer" else "repeat weights of the same name"
        yield Note(part, f"{count:,} tensors {what} and are no parameters")
    if packed:
        text = f"{packed:,} large tensors of integers fit no known scheme of quantization and are counted as stored"
        yield Note("integers", f"{text}; if they hold packed weights, there are more parameters")


# -- where a checkpoint and the code of its model disagree: tensors that one of them lacks, and other shapes

Shapes: TypeAlias = Mapping[str, tuple[int, ...]]

_LEAVES = {"qweight": "weight", "weight_packed": "weight"}


class ExpectedTensors(NamedTuple):
    """What the code of a model would load."""

    layouts: Sequence[Shapes]
    """Shapes by name, in each of the ways in which the code can store them; the one that fits best is meant."""
    optional: frozenset[str] = frozenset()  # Names that may be missing, because they are tied to others or made anew


def disagreements(scan: Scan, expected: ExpectedTensors) -> tuple[Note, ...]:
    """What differs, or that nothing does."""
    stored: dict[str, StoredTensor] = {}
    for tensor in scan.tensors:
        if tensor.role == "weight":  # by the name that it has where it is not packed
            stem, dot, leaf = tensor.name.rpartition(".")
            plain = f"{stem}{dot}{_LEAVES.get(leaf, leaf)}" if tensor.scheme else tensor.name
            stored[tensor.name.removesuffix("_blocks") if tensor.scheme == "mxfp4" else plain] = tensor
    shapes = max(expected.layouts, key=lambda layout: len(layout.keys() & stored.keys()))
    missing = [name for name in shapes if name not in stored and name not in expected.optional]
    extra = [name for name in stored if name not in shapes]
    other = []
    for name, tensor in stored.items():
        mine, theirs = tensor.shape, shapes.get(name, tensor.shape)
        if mine != theirs and not (tensor.scheme and prod(mine) == prod(theirs)):  # a packed weight may be transposed
            other.append(f"{name} {_text(mine)}, in the code {_text(theirs)}")
    found = [
        Note("checkpoint-differs", f"{len(names):,} {what}: {shortened('; '.join(some(names)), 900)}", scan.source)
        for names, what in (
            (missing, "tensors of the code are not in the checkpoint"),
            (extra, "tensors of the checkpoint are not in the code"),
            (other, "tensors have another shape in the checkpoint"),
        )
        if names
    ]
    if found:
        return tuple(found)
    fits = f"the checkpoint beside it fits the code: {len(stored):,} tensors, {format_count(scan.totals.params)} parameters"
    return (Note("checkpoint", fits, scan.source),)


def _text(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "scalar"
