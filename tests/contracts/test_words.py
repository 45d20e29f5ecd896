"""Plain English: words of an old private dialect do not come back into the package.

Those with a number above zero are in names of public columns (held_up, priced_ns, unpriced).
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

SOURCES = Path(__file__).resolve().parents[2] / "src" / "opcost"
ALLOWED = {
    "told": 0, "untold": 0, "asked": 0, "wish": 0, "held": 19, "stands": 0, "nobody": 0, "somebody": 0, "whoever": 0,
    "door": 0, "doors": 0, "price": 0, "priced": 12, "prices": 0, "pricing": 0, "dear": 0, "dearer": 0, "dearest": 0,
    "so many": 0, "harmless": 0, "undisturbed": 0, "four of five": 0, "made up": 0, "won back": 0, "gone on with": 0,
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
