"""From a path to a scan: the files are read, their tensors put together, and what is quantized is recognised."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

from opcost.core.graph import Note
from opcost.core.progress import sharing
from opcost.core.scan import Scan, StoredTensor, totals_of
from opcost.errors import SourceError, shortened, some
from opcost.frontends.checkpoint.facts import experts_of, facts_beside, tied
from opcost.frontends.checkpoint.files import files_of
from opcost.frontends.checkpoint.quantization import Recognised, recognise
from opcost.frontends.checkpoint.reader import Contents, Raw, reader_of

_STATISTICS = (".running_mean", ".running_var", ".num_batches_tracked", ".moving_mean", ".moving_variance")
_PACKED = frozenset(("uint8", "int8", "uint16", "int16", "int32", "uint32"))
_MANY = 1 << 16


def scan_files(paths: Sequence[Path]) -> Scan:
    """What the checkpoint in these files or this folder holds."""
    try:
        return _scan(paths)
    except (OSError, ValueError) as exc:  # what the file system says of a name or a folder
        raise SourceError(
            f"{shortened(ascii(str(paths[0])))} cannot be read: {getattr(exc, 'strerror', None) or exc}"
        ) from exc


def _scan(paths: Sequence[Path]) -> Scan:
    founds = [files_of(path) for path in paths]
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
                contents = reader.read(path)
                formats[reader.name] = None
                ordered &= reader.ordered
                files.update(dict.fromkeys(map(str, contents.parts or (path,))))
                details.update(contents.details)
                notes = (*notes, *contents.notes)
                facts = {**contents.facts, **facts}
                _gather(contents, prefix, path, tensors, homes)
            if lacking := (found.promised or frozenset()) - tensors.keys():
                missing = ", ".join(some(sorted(lacking)))
                raise SourceError(
                    f"the index names tensors that its files do not hold: {missing}", hint="fetch the files again"
                )
    recognised = recognise(tensors, facts)
    stored = list(_stored(tensors, homes, recognised))
    stored, more = tied(stored, facts)
    experts = experts_of(stored, facts)
    return Scan(
        source=", ".join(some([str(path) for path in paths])),
        format=" and ".join(formats),
        files=tuple(files),
        tensors=tuple(stored),
        totals=totals_of(stored, experts),
        experts=experts,
        ordered=ordered,
        details=details,
        notes=(*notes, *more, *_remarks(stored)),
    )


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
        raise SourceError(
            f"{path} holds tensors whose names another file holds too, so that they are not of one checkpoint",
            hint="scan them one at a time",
        )


def _stored(tensors: Mapping[str, Raw], homes: Mapping[str, str], recognised: Recognised) -> Iterator[StoredTensor]:
    firsts: dict[Any, str] = {}
    weights, scales = recognised.weights, recognised.scales
    for name, raw in tensors.items():
        _, shape, dtype, size, role, storage, _ = raw
        scheme, home, first = "", homes[name], ""
        if name in scales:
            role = "scale"
        elif name in weights:
            shape, dtype, scheme = weights[name]
        params = prod(shape) if role == "weight" else 0
        if storage is not None:
            first = firsts.setdefault((home, storage), name)
            if first != name:
                params = size = 0
        yield StoredTensor(name, shape, dtype, params, size, role, scheme, home, first if first != name else "")


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
        yield Note(
            "statistics",
            f"{statistics:,} tensors ({elements:,} elements) are running statistics, counted as parameters",
        )
    if ties:
        yield Note("tied", f"stored once, counted once: {', '.join(some(ties))}")
    for part, count in others.items():
        what = (
            "belong to an optimizer or to the state of training"
            if part == "optimizer"
            else "repeat weights of the same name"
        )
        yield Note(part, f"{count:,} tensors {what} and are no parameters")
    if packed:
        yield Note(
            "integers",
            f"{packed:,} large tensors of integers fit no known scheme of quantization and are counted as stored; if they hold "
            "packed weights, there are more parameters",
        )
