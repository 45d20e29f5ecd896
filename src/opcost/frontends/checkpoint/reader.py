"""What a reader of checkpoints is, and what it hands over: tensors as they are stored, none of their data."""

from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias

from opcost.core.files import head_of, is_nameless
from opcost.core.graph import Note
from opcost.core.parsing import Bad
from opcost.core.plugin import FRONTENDS, only, usable
from opcost.core.scan import Role
from opcost.errors import SourceError, UnknownSource

HEAD_BYTES = 4096
Content: TypeAlias = bytes


class Raw(NamedTuple):
    """A tensor as its file has it."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    bytes: int
    role: Role = "weight"
    storage: object = None
    """Equal for tensors that are the same piece of the file; None where each is stored on its own."""
    content: Content = b""  # Of the few that describe others: their content


class Contents(NamedTuple):
    """What a file holds."""

    tensors: list[Raw]
    details: Mapping[str, str] = {}
    facts: Mapping[str, Any] = {}  # What the file says of the model: entries of a configuration
    notes: tuple[Note, ...] = ()
    parts: tuple[Path, ...] = ()  # Other files that were read because this one names them


class CheckpointReader(Protocol):
    """One format of checkpoints; a class that derives from this one writes `sniff` and `read`."""

    name: str
    what: str = "a checkpoint"  # A file of the format, in words
    suffixes: tuple[str, ...]  # Of its files, with the dot; they choose between readers where the content fits several
    ordered: bool = True  # The order of the tensors means something

    @abstractmethod
    def sniff(self, head: bytes, path: Path) -> bool:
        """Whether a file with this beginning is of the format."""

    @abstractmethod
    def read(self, path: Path) -> Contents:
        """What the file holds; whatever is wrong with it is a SourceError, or Bad, which becomes one."""


def readers() -> tuple[CheckpointReader, ...]:
    """All formats, in the order of their names."""
    return tuple(reader for _, reader in sorted(usable(FRONTENDS, "read").items()))


def reader_of(path: Path) -> CheckpointReader:
    """Who reads this file: the content decides, and the suffix where it fits several."""
    head = head_of(path, HEAD_BYTES)
    claims = [reader for reader in readers() if reader.sniff(head, path)]
    if len(claims) > 1 and not is_nameless(path):
        claims = [reader for reader in claims if path.name.lower().endswith(reader.suffixes)] or claims
    if claims:
        return only(claims, f"the file {path}")  # type: ignore[no-any-return]
    from opcost.frontends.identify import identify

    known = ", ".join(sorted({suffix for reader in readers() for suffix in reader.suffixes}))
    raise UnknownSource(f"{path} is {identify(path).what}, and no checkpoint that is known", hint=f"known: {known}")


class NotRead(Bad):
    """The file is whole, but holds something that is not read, so that it does not help to fetch it again."""


def contents_of(path: Path, reader: CheckpointReader) -> Contents:
    """What the file holds."""
    try:
        return reader.read(path)
    except (Bad, RecursionError) as exc:
        hint = "" if isinstance(exc, NotRead) else "the file is damaged or cut short: fetch it again"
        raise SourceError(f"{path} is not {reader.what} that can be read: {exc}", hint=hint) from exc


def first_member(head: bytes) -> str:
    """The name of the first file of a zip archive; empty where there is none."""
    if not head.startswith(b"PK\x03\x04") or len(head) < 30:
        return ""
    return head[30 : 30 + int.from_bytes(head[26:28], "little")].decode("utf-8", "replace")
