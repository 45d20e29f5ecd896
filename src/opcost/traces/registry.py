"""Which reader a trace is for: the content decides, whatever the file is called."""

import re
from os import PathLike
from typing import Any, Protocol

from opcost.core.files import keep_pipes
from opcost.core.plugin import TRACES, claims, faults_attributed, only, usable
from opcost.core.profile import Profile
from opcost.core.profile_schema import SCHEMA, loads
from opcost.errors import OpcostError, SourceError, UnknownName, UnknownSource, shortened, some
from opcost.traces.file import TraceFile


class Reader(Protocol):
    """One format of traces."""

    name: str

    def sniff(self, head: bytes) -> bool:
        """Whether a file that begins with these bytes (unpacked) is of this format; called again with more if undecided."""
        ...

    def read(self, file: TraceFile, *, partial: bool = False) -> Profile:
        """The profile; with `partial`, of a damaged file what is before the damage."""
        ...


def readers() -> tuple[Reader, ...]:
    """All readers, in the order of their names."""
    return tuple(reader for _, reader in sorted(usable(TRACES).items()))


def claimant(file: TraceFile) -> Reader | None:
    """The one reader that claims this file by its beginning, or by more of it where none or several do.

    That several still claim it is an error and not a guess.
    """
    found: list[Reader] = []
    for head in file.heads():
        doing = "checked whether it reads a trace"
        found = claims(TRACES, readers(), lambda reader: reader.sniff(head), doing)  # noqa: B023 - called at once
        if len(found) == 1:
            return found[0]
    name = found[0].name if found else ""
    hint = f"say which of them reads it: `opcost analyze --reader {name}` (reader={name!r})"
    return only(found, f"the file {file.path}: it has {seen_in(file.head)}", hint)  # type: ignore[no-any-return]


def check_reader(name: str | None) -> None:
    """Raise for a reader that does not exist, before a long file is opened."""
    known = [reader.name for reader in readers()]
    if name is not None and name not in known:
        raise UnknownName("reader", name, known)


def reader_of(file: TraceFile, name: str | None = None) -> Reader:
    """The reader of this name, or the one that claims the file; without one, an error that names what the file is."""
    check_reader(name)
    known = {reader.name: reader for reader in readers()}
    found = claimant(file) if name is None else known[name]
    if found is not None:
        return found
    from opcost.frontends.identify import Identity, identify

    is_ = Identity("gzipped", "") if file.packed else identify(file.path)
    seen = seen_in(file.head)
    what = f"{file.path} is not a trace that opcost reads: it is {is_.what}{f', with {seen}' if seen else ''}"
    others = f"readers: {', '.join(known)}; `opcost analyze --reader NAME` (reader=) takes one of them anyway"
    raise UnknownSource(what, hint=is_.hint if is_.is_own else others)


def read(
    path: str | PathLike[str],
    *,
    partial: bool = False,
    reader: str | None = None,
    capture: str | PathLike[str] | None = None,
    **more: Any,
) -> Profile:
    """The profile in a file of any tool; the options are those of `opcost.read_profile`, `more` those of the Kineto reader."""
    with keep_pipes():
        file = TraceFile(path)
        captured = None if capture is None else TraceFile(capture)
        found = reader_of(file, reader)
        with faults_attributed(found, "reading a trace"):
            if (read_more := getattr(found, "read_more", None)) is not None:
                profile: Profile = read_more(file, partial=partial, capture=captured, **more)
            elif captured is not None:
                hint = "leave capture= (`opcost analyze --capture`) out"
                raise OpcostError(f"{file.path}: traces of {found.name} have no captures", hint=hint)
            else:
                profile = found.read(file, partial=partial)
        if not profile.rows and not profile.unattributed:
            fault = f"{file.path}: as a trace of {found.name}, it has neither an operator nor device work"
            raise SourceError(fault, hint="record the trace again, while the model runs")
        return profile


# -- what is in the beginning of a file that no reader, or more than one, claims: for the error about it

_LONGEST = 40
_TOKEN = re.compile(rb'"((?:[^"\\]|\\.)*)"(\s*:)?|[{}\[\]]')
_CATEGORY = re.compile(rb'"cat"\s*:\s*"([^"\\]*)"')


def seen_in(head: bytes) -> str:
    """The fields of the outermost object and the categories of events; empty where there are neither."""
    depth = 0
    fields: dict[bytes, None] = {}
    for token in _TOKEN.finditer(head) if head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"{" else ():
        if token[0] in b"{[":
            depth += 1
        elif token[0] in b"}]":
            depth -= 1
        elif depth == 1 and token[2] is not None:
            fields[token[1]] = None
    found = []
    for word, names in (("fields", fields), ("categories", dict.fromkeys(_CATEGORY.findall(head)))):
        listed = [shortened(repr(name.decode("utf-8", "replace")), _LONGEST) for name in names]
        if listed:
            found.append(f"the {word} {', '.join(some(listed))}")
    return " and ".join(found)


# -- profiles that opcost itself saved

_FAMILY = SCHEMA.partition("/")[0].encode()


class OwnReader:
    """The JSON of `core.profile_schema`."""

    name = "opcost"

    def sniff(self, head: bytes) -> bool:
        return b'"schema"' in head[:64] and b'"' + _FAMILY + b"/" in head[:128]

    def read(self, file: TraceFile, *, partial: bool = False) -> Profile:
        try:
            return loads(file.text())
        except SourceError as exc:
            raise SourceError(f"{file.path}: {exc.message}", hint=exc.hint) from exc


SAVED_PROFILES: Reader = OwnReader()
