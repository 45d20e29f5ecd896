"""A Core ML package: a folder whose manifest says which of its files is the model."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from opcost.core.parsing import parse
from opcost.core.reading import whole
from opcost.errors import SourceError

LARGEST_MANIFEST = 1 << 20
"""Bytes of a manifest that is believed; real ones have a thousand."""


def model_of(manifest: Path) -> Path:
    """The model's file that a manifest names, which lies in the package."""
    try:
        content = parse(whole(manifest, LARGEST_MANIFEST, "manifest").decode("utf-8-sig"))
        entry = str(content["itemInfoEntries"][content["rootModelIdentifier"]]["path"])
    except (ValueError, KeyError, TypeError) as exc:
        raise SourceError(f"{manifest} is not the manifest of a Core ML package") from exc
    package = manifest.parent
    found = package / "Data" / PurePosixPath(entry)
    if "\0" in entry or not found.resolve().is_relative_to(package.resolve()):
        raise SourceError(f"{package} names a model outside of itself: {entry!r}")
    if not found.is_file():
        raise SourceError(f"{package} has no model: {entry!r} is not there", hint="the package was copied in part")
    return found
