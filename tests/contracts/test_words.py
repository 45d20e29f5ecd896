"""Plain English: words of an old private dialect do not come back into the package.

Each word has a number of places that may still have it; the number only goes down, to zero.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

SOURCES = Path(__file__).resolve().parents[2] / "src" / "opcost"
ALLOWED = {
    "told": 900, "untold": 14, "asked": 500, "wish": 40, "held": 500, "stands": 260, "nobody": 130, "somebody": 30, "whoever": 10,
    "door": 20, "doors": 10, "price": 60, "priced": 60, "prices": 10, "pricing": 8, "dear": 10, "dearer": 1, "dearest": 10,
    "so many": 110, "harmless": 20, "undisturbed": 10, "four of five": 5, "made up": 10, "won back": 2, "gone on with": 0,
}  # fmt: skip


@pytest.fixture(scope="module")
def words() -> Counter[str]:
    """How often each word occurs, also inside identifiers."""
    pattern = re.compile("|".join(rf"(?<![a-z]){word}(?![a-z])" for word in sorted(ALLOWED, key=len, reverse=True)))
    found: Counter[str] = Counter()
    for path in SOURCES.rglob("*.py"):
        found.update(pattern.findall(path.read_text(encoding="utf-8").lower()))
        found.update(pattern.findall(path.stem))
    return found


@pytest.mark.parametrize("word", ALLOWED)
def test_a_word_of_the_old_dialect_gets_rarer(words: Counter[str], word: str) -> None:
    assert words[word] <= ALLOWED[word], (
        f"{word!r} occurs {words[word]} times; say it in words that users of PyTorch know"
    )
