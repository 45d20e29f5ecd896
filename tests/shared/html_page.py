"""A page for a browser as tests read it: its tags, its scripts, its policy, and the block of data."""

from __future__ import annotations

import base64
import hashlib
import json
from html.parser import HTMLParser
from typing import Any

VOID = {"meta"}


class HtmlPage(HTMLParser):
    """What a browser sees before any script runs."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.inside: dict[str, list[str]] = {"script": [], "style": [], "title": []}
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag in self.inside:
            self.inside[tag].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in self.inside:
            self.inside[self.open[-1]][-1] += data
        else:
            assert not data.strip(), "the page shows nothing that its script does not show"

    @property
    def data(self) -> dict[str, Any]:
        return json.loads(self.inside["script"][0])  # type: ignore[no-any-return]

    @property
    def policy(self) -> str:
        (found,) = [attrs["content"] for _, attrs in self.tags if attrs.get("http-equiv") == "Content-Security-Policy"]
        return found or ""


def hashed(text: str) -> str:
    """As a policy names what may run."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def column(table: dict[str, Any], name: str) -> list[Any]:
    """The values of a column of a table, a tree or the operators."""
    (found,) = [each for each in table["columns"] if each["name"] == name]
    return values(found)


def values(packed: dict[str, Any]) -> list[Any]:
    """A column unpacked."""
    return packed["values"] if "values" in packed else [packed["words"][place] for place in packed["at"]]
