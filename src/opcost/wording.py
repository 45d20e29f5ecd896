"""Names and lists of names in sentences: what is long is cut, and the reader is told how much is missing."""

from __future__ import annotations

from collections.abc import Sequence

LONG = 200
"""Characters of a name or a value that is quoted; a path is rarely longer."""
MANY = 8
"""Entries of one list that are named; the others are only counted."""


def shortened(text: str, limit: int = LONG) -> str:
    """The text itself, or its beginning and its end with the number of characters between them."""
    if len(text) <= limit:
        return text
    head, tail = limit * 2 // 3, limit // 3
    return f"{text[:head]}… ({len(text) - head - tail:,} characters more) …{text[-tail:]}"


def some(words: Sequence[str], limit: int = MANY, *, kind: str = "") -> list[str]:
    """The words, or the first of them and `and 99,990 more`: no more than `limit` entries in all."""
    if len(words) <= limit:
        return list(words)
    more = f"{len(words) - limit + 1:,} more"
    return [*words[: limit - 1], f"and {more} {kind}".rstrip()]


def counted(number: int, word: str, plural: str = "") -> str:
    """`1 kernel`, `1,707 kernels`."""
    return f"{number:,} {word if number == 1 else plural or word + 's'}"
