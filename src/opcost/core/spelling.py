"""Our characters on terminals that do not have them: tables are drawn in ASCII there."""

from __future__ import annotations

import codecs
from typing import Any

ASCII: dict[int, str] = str.maketrans(
    {
        "│": "|", "├": "|", "└": "`", "─": "-", "…": "~", "·": "-", "×": "x", "≥": ">", "≤": "<", "–": "-", "µ": "u", "→": ">",
        "\u00a0": " ", "▁": "_", "▂": "_", "▃": ".", "▄": "-", "▅": "-", "▆": "=", "▇": "+", "█": "#",
        "²": "^2", "³": "^3", "⁵": "^5", "Σ": "sum ", "\u0302": "^",
    }
)  # fmt: skip
"""One for one, so that columns stay where they are; only of formulas, which stand in no table, more than one."""


def shows_unicode(stream: Any) -> bool:
    """Whether what is written there can hold any character; a stream without an encoding is text in memory."""
    encoding = getattr(stream, "encoding", None)
    if not encoding:
        return True
    try:
        return codecs.lookup(encoding).name.startswith("utf")
    except LookupError:
        return False


def spelled_for(stream: Any, text: str) -> str:
    """The text with our own characters in ASCII, where the stream would not have all of them."""
    return text if text.isascii() or shows_unicode(stream) else text.translate(ASCII)
