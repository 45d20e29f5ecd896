"""Inputs of models whose files leave sizes open, by a name or without one: what the caller asks for is filled in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from opcost.errors import InputError, UnknownName
from opcost.frontends.inputs import resized
from opcost.frontends.options import Option, Sizes
from opcost.wording import shortened

Open: TypeAlias = "tuple[int | str | None, ...]"
"""The extents of a shape: a size, the name of one that is left open, or nothing at all."""

DIM = Option(
    "dim",
    str,
    "A size that a model's file leaves open, by name: --dim batch=1 --dim seq=128, or batch=1,seq=128.",
    "NAME=SIZE",
    repeated=True,
)


def parse_dims(given: str | Sequence[str] | None, declared: Mapping[str, Open]) -> dict[str, int]:
    """Sizes by name from `batch=1` and `seq=128`, or from `batch=1,seq=128`."""
    texts = (given,) if isinstance(given, str) else given or ()
    known = {extent for shape in declared.values() for extent in shape if isinstance(extent, str)}
    found: dict[str, int] = {}
    for part in filter(None, (part.strip() for text in texts for part in text.split(","))):
        name, _, size = part.partition("=")
        if not size.isdecimal() or len(size) > 18:
            raise InputError(
                f"{shortened(repr(part))} is not a size",
                hint="write --dim NAME=SIZE, such as --dim batch=1 --dim seq=128",
            )
        if name not in known:
            raise UnknownName("dimension", name, known)
        if found.setdefault(name, int(size)) != int(size):
            raise InputError(f"the dimension {shortened(name)} is given as {found[name]} and as {int(size)}")
    return found


def filled(declared: Mapping[str, Open], sizes: Sizes, dims: dict[str, int]) -> dict[str, Open]:
    """The shapes with another batch, length or image; a name that stands in such a place has that size, everywhere."""
    if not any(sizes):
        return dict(declared)
    changed = resized(sizes, {name: shape for name, shape in declared.items() if shape})
    for name, shape in changed.items():
        for before, after in zip(declared[name], shape, strict=True):
            if isinstance(before, str) and isinstance(after, int) and dims.setdefault(before, after) != after:
                raise InputError(f"{before} was asked to be {dims[before]} and {after}", hint="give one of them")
    return {**declared, **changed}
