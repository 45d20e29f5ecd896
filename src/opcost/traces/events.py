"""The events of a small Chrome trace, decoded at once, with what stands before the damage of a broken file."""

from __future__ import annotations

import json
import re
from typing import Any

from opcost.errors import SourceError
from opcost.traces.file import TraceFile
from opcost.traces.values import LATEST_NS

NS_PER_US = 1000

_LIST = re.compile(r'"traceEvents"\s*:\s*\[|^\s*\[')


def events_of(file: TraceFile, *, partial: bool = False) -> tuple[list[dict[str, Any]], str]:
    """The events, and what is wrong with the file where `partial` allows that."""
    try:
        return _whole(file), ""
    except SourceError as exc:
        if not partial:
            raise
        fault = exc.message
    # Not above, where the error still holds what was read of the file.
    return _before_damage(file), f"{fault}; this is what stands before it"


def _whole(file: TraceFile) -> list[dict[str, Any]]:
    content = file.json()
    found = content.get("traceEvents") if isinstance(content, dict) else content
    if not isinstance(found, list):
        raise SourceError(f'{file.path}: "traceEvents" is not a list of events')
    faulty = next((place for place, event in enumerate(found) if not isinstance(event, dict)), None)
    if faulty is not None:
        raise SourceError(f"{file.path}: event {faulty} is not an object but {str(found[faulty])[:40]!r}")
    return found


def _before_damage(file: TraceFile) -> list[dict[str, Any]]:
    """Decode one event after another until one cannot be decoded."""
    content = file.unpackable() if file.packed else file.content()
    text = content.decode("utf-8-sig", "replace")
    opening = _LIST.search(text)
    found: list[dict[str, Any]] = []
    place = opening.end() if opening else len(text)
    decoder = json.JSONDecoder()
    gap = re.compile(r"[\s,]*")
    while True:
        skipped = gap.match(text, place)
        place = skipped.end() if skipped else place
        try:
            event, place = decoder.raw_decode(text, place)
        except (ValueError, RecursionError):
            return found
        if not isinstance(event, dict):
            return found
        found.append(event)


def text(event: dict[str, Any], key: str) -> str:
    """A field as text, empty where it is missing."""
    value = event.get(key)
    return value if isinstance(value, str) else ""


def integer(event: dict[str, Any], key: str) -> int | None:
    """A field that is a whole number such as a clock gives, also one written as text; None where it is not."""
    value = event.get(key)
    if isinstance(value, str) and value.isdecimal() and len(value) <= 30:
        value = int(value)
    return value if type(value) is int and abs(value) <= LATEST_NS // NS_PER_US else None
