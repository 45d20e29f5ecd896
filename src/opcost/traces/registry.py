"""Which reader a trace is for: the content decides, whatever the file is called."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from os import PathLike
from typing import TYPE_CHECKING, Protocol

from opcost.errors import AmbiguousSource, UnknownSource
from opcost.traces.file import TraceFile

if TYPE_CHECKING:
    from opcost.core.profile import Profile


class Reader(Protocol):
    """One format of traces."""

    name: str

    def sniff(self, head: bytes) -> bool:
        """Whether a file that begins with these bytes (unpacked) is of this format."""

    def read(self, file: TraceFile, *, partial: bool = False) -> Profile:
        """The profile; with `partial`, of a damaged file what stands before the damage."""


READERS = ("kineto", "megengine", "mxnet", "onnxruntime", "openvino", "own", "tensorrt")
"""Modules of this package, each with a `READER`; imported when a trace is first read."""


@cache
def readers() -> tuple[Reader, ...]:
    """All readers."""
    names = (f"opcost.traces.{name}" for name in READERS)
    return tuple(import_module(name).READER for name in names if find_spec(name))


def reader_of(file: TraceFile) -> Reader:
    """The one reader of this file; none, or more than one, is an error and not a guess."""
    claims = [reader for reader in readers() if reader.sniff(file.head)]
    if len(claims) == 1:
        return claims[0]
    if claims:
        raise AmbiguousSource(f"{' and '.join(reader.name for reader in claims)} both claim the file {file.path}")
    from opcost.frontends.identify import identify

    known = ", ".join(reader.name for reader in readers())
    what = "gzipped content of an unknown kind" if file.packed else identify(file.path).what
    raise UnknownSource(f"{file.path} is no trace that opcost reads: it is {what}", hint=f"known formats: {known}")


def read(path: str | PathLike[str], *, partial: bool = False) -> Profile:
    """The profile in this file, of whatever tool it comes from."""
    file = TraceFile(path)
    return reader_of(file).read(file, partial=partial)
