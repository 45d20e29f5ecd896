"""Plain English: words of an old private dialect do not come back into the package, its tests and its benchmarks.

Those with a number above zero are in names of public columns (held_up, priced_ns, unpriced); the others in tests get rarer.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WORDS = [
    "told", "untold", "asked", "wish", "wishes", "held", "stands", "nobody", "somebody", "whoever", "door", "doors", "price",
    "priced", "prices", "pricing", "dear", "dearer", "dearest", "so many", "harmless", "undisturbed", "four of five", "made up",
    "won back", "gone on with",
]  # fmt: skip
PATTERN = re.compile("|".join(rf"(?<![a-z]){word}(?![a-z])" for word in sorted(WORDS, key=len, reverse=True)))
ALLOWED = {
    "src/opcost": {"held": 19, "priced": 12},
    "benchmarks": {},
    "tests": {
        "told": 204, "door": 143, "held": 113, "asked": 60, "doors": 41, "nobody": 23, "stands": 13, "priced": 12, "so many": 8,
        "somebody": 5, "dearer": 3, "whoever": 2, "price": 2, "made up": 1,
    },
}  # fmt: skip
"""How often a word may occur; each other one not at all."""
LISTS = {"test_words.py", "test_readme.py"}
"""Files of `tests/contracts` that contain the words in order to forbid them."""


@cache
def words_in(folder: str) -> Counter[str]:
    """How often each word occurs, also inside identifiers and names of files."""
    found: Counter[str] = Counter()
    for path in (ROOT / folder).rglob("*.py"):
        if path.name not in LISTS:
            found.update(PATTERN.findall(path.read_text(encoding="utf-8").lower()))
            found.update(PATTERN.findall(path.stem))
    return found


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("folder", ALLOWED)
def test_a_word_of_the_old_dialect_gets_rarer(folder: str, word: str) -> None:
    found = words_in(folder)[word]
    assert found <= ALLOWED[folder].get(word, 0), (
        f"{word!r} occurs {found} times in {folder}; say it in words that users of PyTorch know"
    )
