"""Where a text of events may be cut: what stands between two of them."""

from __future__ import annotations

import json
import re

LARGEST_FIRST = 1 << 22
"""In so many bytes the first event must end."""
_NEXT = re.compile(r"\s*,\s*\{")


def separator_of(buffer: bytes) -> bytes:
    """From the end of an event to the beginning of the next one, as this file writes it; empty if that is not seen yet.

    The indentation before the closing brace belongs to it, so that the same bytes inside an event are seldom taken for it.
    """
    text = buffer[:LARGEST_FIRST].decode("utf-8", "replace")
    end = _end_of_first(text)
    found = _NEXT.match(text, end) if end is not None else None
    if found is None:
        return b""
    _, broken, indent = text[:end].rpartition("}")[0].rpartition("\n")
    return (("\n" + indent if broken and not indent.strip() else "") + "}" + found[0]).encode()


def _end_of_first(text: str) -> int | None:
    try:
        _, end = json.JSONDecoder().raw_decode(text, len(text) - len(text.lstrip()))
    except (ValueError, RecursionError):
        return None
    return end
