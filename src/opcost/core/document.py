"""JSON files of opcost's own: each states its schema, and whatever else it turns out to be is one clear error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike, fspath
from typing import Any, Generic, TypeVar

from opcost.core.checked import Bad, short
from opcost.core.collector import without_collector
from opcost.core.harmless import json_text
from opcost.core.parsing import parse
from opcost.core.reading import pipes_kept, whole
from opcost.errors import SourceError

T = TypeVar("T")

LARGEST = 128 << 20
"""Bytes of the largest file that is believed: a report of a hundred thousand operators has a tenth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Document(Generic[T]):
    """One kind of file: what it is called, its schema, and how its dictionaries become data."""

    noun: str
    schema: str
    again: str
    """How to make such a file anew, for the hints."""
    read: Callable[[dict[str, Any]], T]
    """From dictionaries with the right schema; `Bad` where a field is not what it should be."""

    def load(self, path: str | PathLike[str]) -> T:
        """What is saved in this file."""
        try:
            with pipes_kept():
                text = whole(path, LARGEST, f"saved {self.noun}").decode("utf-8")
        except UnicodeDecodeError as exc:
            raise SourceError(f"the {self.noun} {fspath(path)!r} cannot be read: {exc}") from exc
        try:
            return self.loads(text)
        except SourceError as exc:
            raise SourceError(f"{fspath(path)}: {exc.message}", hint=exc.hint) from exc

    def loads(self, text: str) -> T:
        """What is saved in this text; anything else raises `SourceError`."""
        with without_collector():
            try:
                data = parse(text)
            except ValueError as exc:
                raise SourceError(f"this is not a saved {self.noun}: the JSON cannot be read ({exc})") from exc
            return self.from_dict(data)

    def from_dict(self, data: object) -> T:
        """What is saved in these dictionaries; anything else raises `SourceError`."""
        if not isinstance(data, dict) or not isinstance(data.get("schema"), str):
            raise SourceError(f'this is not a saved {self.noun}: it has no "schema"', hint=f"to make one: {self.again}")
        if data["schema"] != self.schema:
            raise SourceError(
                f"this file has the schema {short(data['schema'])}, and this version of opcost reads {self.schema!r}",
                hint=f"use a newer opcost, or make the file again: {self.again}",
            )
        try:
            return self.read(data)
        except (Bad, RecursionError) as exc:
            raise SourceError(f"this saved {self.noun} is damaged: {exc}", hint=f"make it again: {self.again}") from exc


def dumps(data: dict[str, Any]) -> str:
    """Dictionaries as the text of such a file."""
    return json_text(data, allow_nan=False, separators=(",", ":"))
