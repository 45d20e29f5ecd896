"""JSON from anywhere: parsed only where what it unfolds into stays in proportion to its text."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

SMALL_TEXT = 8 << 20
"""Whatever stands in so few bytes, it unfolds into less than 300 MB."""
BYTES_PER_CONTAINER = 12
"""A list or an object takes some twenty times the three bytes of `[],`. In real files there is one in thirty bytes."""

_HALVES = re.compile(r"\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[dD][89a-fA-F][0-9a-fA-F]{2}")


def parse(text: str, *, parse_constant: Callable[[str], Any] | None = None, **hooks: Any) -> Any:
    """What stands in a text; whatever is wrong with it is a ValueError. NaN and Infinity are none of JSON's numbers."""
    check_unfolded(text)
    try:
        return json.loads(text, parse_constant=parse_constant or _no_constant, **hooks)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def check_unfolded(text: str | bytes) -> None:
    """Raise for a large text that is made of almost nothing but brackets."""
    if len(text) <= SMALL_TEXT:
        return
    marks: Any = ("[", "{") if isinstance(text, str) else (b"[", b"{")
    containers = sum(text.count(mark) for mark in marks)
    if containers * BYTES_PER_CONTAINER > len(text):
        raise ValueError(f"its {len(text)} bytes hold {containers} lists and objects, which is not plausible")


def mended(text: str) -> str:
    """JSON in which a half of a character that takes two stands for a character that cannot be shown."""
    if r"\ud" not in text and r"\uD" not in text:
        return text
    return _HALVES.sub(lambda found: r"\ufffd" if len(found[0]) == 6 else found[0], text)


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")
