"""Inputs of models whose files leave sizes open, by a name or without one: what the caller asks for is filled in."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

from opcost.core.dtype import INTEGER
from opcost.core.option import Sizes
from opcost.errors import InputError, UnknownName
from opcost.frontends.inputs import resized
from opcost.frontends.options import Option
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
    if any(shape and isinstance(shape[0], str) for shape in declared.values()):  # the batch; what is fixed there is not
        changed = {
            name: shape if isinstance(declared[name][0], str) else (declared[name][0], *shape[1:])
            for name, shape in changed.items()
        }
    for name, shape in changed.items():
        for before, after in zip(declared[name], shape, strict=True):
            if isinstance(before, str) and isinstance(after, int) and dims.setdefault(before, after) != after:
                raise InputError(f"{before} was asked to be {dims[before]} and {after}", hint="give one of them")
    return {**declared, **changed}


# -- sizes that the caller does not give -----------------------------------------------------------------------------------


class Usual(NamedTuple):
    """The sizes that models of a kind mostly get, and where they are known from."""

    image: tuple[int, int] = (224, 224)
    why: str = "the usual size of images"
    samples: int = 16_000
    """One second of speech."""
    tokens: int = 128

    @classmethod
    def of(cls, metadata: Mapping[str, str], *, detector: bool) -> Usual:
        """What a file's metadata says of images, else what is usual: larger ones for a model that finds objects."""
        for key in ("imgsz", "image_size", "img_size", "input_size"):
            numbers = [int(number) for number in re.findall(r"\b[1-9]\d{0,4}\b", metadata.get(key, "")[:100])]
            if numbers:
                height, width = (numbers * 2)[-2:] if len(numbers) > 1 else numbers * 2
                return cls((height, width), f"{key} in the model's metadata")
        if detector or metadata.get("task") in ("detect", "segment", "pose", "obb"):
            return cls((640, 640), "the usual size of images for detectors")
        return cls()

    def sizes(self, shape: Open, dtype: str) -> dict[int, tuple[int, str]]:
        """Sizes of open dimensions, and why, for an input that looks like an image, a sound or a text."""
        whole = dtype in INTEGER and dtype != "uint8"
        if len(shape) == 4 and not whole:
            last = isinstance(shape[3], int) and shape[3] in (1, 3, 4) and not isinstance(shape[1], int)
            return {axis: (size, self.why) for axis, size in zip((1, 2) if last else (2, 3), self.image, strict=True)}
        if not whole and (len(shape) == 2 or (len(shape) == 3 and shape[1] == 1)):
            return {len(shape) - 1: (self.samples, "one second of sound at 16 kHz")}
        return {1: (self.tokens, "a text of that many tokens")} if whole and self.tokens and len(shape) == 2 else {}


_BATCH, _LENGTH = re.compile("batch", re.IGNORECASE), re.compile("seq|len|time|frame|token|step", re.IGNORECASE)


def is_batch(extent: int | str | None, axis: int) -> bool:
    """Whether an open dimension is a batch, which is 1 unless given: by its name, or because it is the first."""
    named = isinstance(extent, str) and not extent.endswith("]")
    return bool(named and _BATCH.search(extent)) or (axis == 0 and not (named and _LENGTH.search(extent)))  # type: ignore[arg-type]
