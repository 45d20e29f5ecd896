"""Where a checkpoint and the code of its model disagree: tensors that one of them lacks, and other shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import NamedTuple, TypeAlias

from opcost.core.graph import Note
from opcost.core.scan import Scan, StoredTensor
from opcost.core.units import format_count
from opcost.errors import shortened, some

Shapes: TypeAlias = Mapping[str, tuple[int, ...]]

_PACKED = {"qweight": "weight", "weight_packed": "weight"}


class Expected(NamedTuple):
    """What the code of a model would load."""

    layouts: Sequence[Shapes]
    """Shapes by name, in each of the ways in which the code can store them; the one that fits best is meant."""
    optional: frozenset[str] = frozenset()
    """Names that may be missing, because they are tied to others or made anew."""


def disagreements(scan: Scan, expected: Expected) -> tuple[Note, ...]:
    """What differs, or that nothing does."""
    stored = {_plain_name(tensor): tensor for tensor in scan.tensors if tensor.role == "weight"}
    shapes = max(expected.layouts, key=lambda layout: len(layout.keys() & stored.keys()))
    missing = [name for name in shapes if name not in stored and name not in expected.optional]
    extra = [name for name in stored if name not in shapes]
    other = [
        f"{name} {_text(tensor.shape)}, in the code {_text(shapes[name])}"
        for name, tensor in stored.items()
        if name in shapes and not _fits(tensor, shapes[name])
    ]
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
    told = f"the checkpoint beside it fits the code: {len(stored):,} tensors, {format_count(scan.totals.params)} parameters"
    return (Note("checkpoint", told, scan.source),)


def _plain_name(tensor: StoredTensor) -> str:
    """The name that a weight has where it is not packed."""
    stem, dot, leaf = tensor.name.rpartition(".")
    if tensor.scheme == "mxfp4":
        return tensor.name.removesuffix("_blocks")
    return f"{stem}{dot}{_PACKED.get(leaf, leaf)}" if tensor.scheme else tensor.name


def _fits(tensor: StoredTensor, shape: tuple[int, ...]) -> bool:
    """A packed weight may lie the other way round."""
    return tensor.shape == shape or (bool(tensor.scheme) and prod(tensor.shape) == prod(shape))


def _text(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "scalar"
