"""Which reader a trace is for: the content decides, whatever the file is called."""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING, Protocol

from opcost.core.plugin import TRACES, answering_for, tell_fault, usable
from opcost.errors import AmbiguousSource, OpcostError, UnknownSource
from opcost.traces.file import TraceFile

if TYPE_CHECKING:
    from opcost.core.profile import Profile


class Reader(Protocol):
    """One format of traces."""

    name: str

    def sniff(self, head: bytes) -> bool:
        """Whether a file that begins with these bytes (unpacked) is of this format."""
        ...

    def read(self, file: TraceFile, *, partial: bool = False) -> Profile:
        """The profile; with `partial`, of a damaged file what stands before the damage."""
        ...


def readers() -> tuple[Reader, ...]:
    """All readers, in the order of their names."""
    return tuple(reader for _, reader in sorted(usable(TRACES).items()))


def claimant(file: TraceFile) -> Reader | None:
    """The reader that claims this file; more than one is an error and not a guess."""
    claims = []
    for reader in readers():
        try:
            if reader.sniff(file.head):
                claims.append(reader)
        except (OpcostError, OSError, KeyboardInterrupt):
            raise
        except BaseException as exc:  # noqa: BLE001 - a plug-in may raise anything
            tell_fault(TRACES, reader, "asked whether it reads a trace", exc)
    if len(claims) > 1:
        raise AmbiguousSource(f"{' and '.join(reader.name for reader in claims)} both claim the file {file.path}")
    return claims[0] if claims else None


def reader_of(file: TraceFile) -> Reader:
    """The one reader of this file; that there is none is an error which says what the file is."""
    if (found := claimant(file)) is not None:
        return found
    from opcost.frontends.identify import identify

    known = ", ".join(reader.name for reader in readers())
    what = "gzipped content of an unknown kind" if file.packed else identify(file.path).what
    raise UnknownSource(f"{file.path} is not a trace that opcost reads: it is {what}", hint=f"known formats: {known}")


def read(path: str | PathLike[str], *, partial: bool = False) -> Profile:
    """The profile in this file, of whatever tool it comes from."""
    file = TraceFile(path)
    reader = reader_of(file)
    with answering_for(reader, "reading a trace"):
        return reader.read(file, partial=partial)
