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
    "told": 154, "untold": 2, "asked": 132, "wish": 1, "held": 189, "stands": 50, "nobody": 47, "somebody": 2,
    "whoever": 0, "door": 1, "doors": 1, "price": 30, "priced": 46, "prices": 8, "pricing": 8, "dear": 8, "dearer": 0,
    "dearest": 4, "so many": 34, "harmless": 0, "undisturbed": 0, "four of five": 3, "made up": 1, "won back": 0,
    "gone on with": 0,
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
