"""Which reader a trace is for: the content decides, whatever the file is called."""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from opcost.core.files import keep_pipes
from opcost.core.plugin import TRACES, faults_attributed, usable, warn_of_fault
from opcost.errors import AmbiguousSource, OpcostError, SourceError, UnknownName, UnknownSource
from opcost.traces.file import TraceFile
from opcost.traces.seen import seen_in

if TYPE_CHECKING:
    from opcost.core.profile import Profile


class Reader(Protocol):
    """One format of traces."""

    name: str

    def sniff(self, head: bytes) -> bool:
        """Whether a file that begins with these bytes (unpacked) is of this format; asked again with more where nobody knows."""
        ...

    def read(self, file: TraceFile, *, partial: bool = False) -> Profile:
        """The profile; with `partial`, of a damaged file what stands before the damage."""
        ...


@runtime_checkable
class TellsMore(Protocol):
    """A reader of large files, whose format may tell more than is read of them unless it is asked for."""

    def read_more(
        self, file: TraceFile, *, partial: bool, memory: bool | None, timeline: bool, executions: bool
    ) -> Profile:
        """The profile, with what allocators told (None: as the reader sees fit), with when everything ran, or each execution."""
        ...


@runtime_checkable
class Replays(Protocol):
    """A reader that finds the operators of replayed graphs in a trace of their capture."""

    def read_replayed(self, file: TraceFile, capture: TraceFile, *, partial: bool) -> Profile:
        """The profile, with operators from the trace of the capture."""
        ...


def readers() -> tuple[Reader, ...]:
    """All readers, in the order of their names."""
    return tuple(reader for _, reader in sorted(usable(TRACES).items()))


def claimant(file: TraceFile) -> Reader | None:
    """The one reader that claims this file by its beginning, or by more of it where none or several do.

    That several still claim it is an error and not a guess.
    """
    claims: list[Reader] = []
    for head in file.heads():
        claims = [reader for reader in readers() if _claims(reader, head)]
        if len(claims) == 1:
            return claims[0]
    if claims:
        names = [reader.name for reader in claims]
        raise AmbiguousSource(
            f"{' and '.join(names)} both claim the file {file.path}: it has {seen_in(file.head)}",
            hint=f"say which of them reads it: `opcost analyze --reader {names[0]}` (reader={names[0]!r})",
        )
    return None


def _claims(reader: Reader, head: bytes) -> bool:
    try:
        return reader.sniff(head)
    except (OpcostError, OSError, KeyboardInterrupt):
        raise
    except BaseException as exc:  # noqa: BLE001 - a plug-in may raise anything
        warn_of_fault(TRACES, reader, "asked whether it reads a trace", exc)
        return False


def check_reader(name: str | None) -> None:
    """Raise for a reader that does not exist, before a long file is opened."""
    known = [reader.name for reader in readers()]
    if name is not None and name not in known:
        raise UnknownName("reader", name, known)


def reader_of(file: TraceFile, name: str | None = None) -> Reader:
    """The reader of this name, or the one that claims the file; that there is none is an error which says what the file is."""
    check_reader(name)
    known = {reader.name: reader for reader in readers()}
    if name is not None:
        return known[name]
    if (found := claimant(file)) is not None:
        return found
    from opcost.frontends.identify import Identity, identify

    told = Identity("gzipped", "") if file.packed else identify(file.path)
    seen = seen_in(file.head)
    raise UnknownSource(
        f"{file.path} is not a trace that opcost reads: it is {told.what}{f', with {seen}' if seen else ''}",
        hint=told.hint
        if told.is_own
        else f"readers: {', '.join(known)}; `opcost analyze --reader NAME` (reader=) takes one of them anyway",
    )


def read(
    path: str | PathLike[str],
    *,
    partial: bool = False,
    reader: str | None = None,
    memory: bool | None = None,
    timeline: bool = False,
    executions: bool = False,
    capture: str | PathLike[str] | None = None,
) -> Profile:
    """The profile in this file, of whatever tool it comes from; what is read of it as `opcost.read_profile` says."""
    with keep_pipes():
        file = TraceFile(path)
        if capture is not None:
            return _read_replayed(file, reader, TraceFile(capture), partial=partial)
        return _read(file, reader, partial=partial, memory=memory, timeline=timeline, executions=executions)


def _read_replayed(file: TraceFile, reader: str | None, capture: TraceFile, *, partial: bool) -> Profile:
    found = reader_of(file, reader)
    if not isinstance(found, Replays):
        raise OpcostError(
            f"{file.path}: traces of {found.name} have no captures",
            hint="leave capture= (`opcost analyze --capture`) out",
        )
    with faults_attributed(found, "reading a trace"):
        return found.read_replayed(file, capture, partial=partial)


def _read(
    file: TraceFile, reader: str | None, *, partial: bool, memory: bool | None, timeline: bool, executions: bool
) -> Profile:
    found = reader_of(file, reader)
    with faults_attributed(found, "reading a trace"):
        profile = (
            found.read_more(file, partial=partial, memory=memory, timeline=timeline, executions=executions)
            if isinstance(found, TellsMore)
            else found.read(file, partial=partial)
        )
    if not profile.rows and not profile.unattributed:
        raise SourceError(
            f"{file.path}: as a trace of {found.name}, it holds neither an operator nor device work",
            hint="record the trace again, while the model runs",
        )
    return profile
