"""Profiles that opcost itself saved."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opcost.core.profile import Profile
from opcost.core.profile_schema import SCHEMA, loads
from opcost.errors import SourceError
from opcost.traces.file import TraceFile

if TYPE_CHECKING:
    from opcost.traces.registry import Reader

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


READER: Reader = OwnReader()
