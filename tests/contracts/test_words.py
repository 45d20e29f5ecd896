"""Plain English: words of an old private dialect do not come back into the package, its tests and its benchmarks."""

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
FOLDERS = ("src/opcost", "benchmarks", "tests")
LISTS = {ROOT / "tests" / name for name in ("contracts/test_words.py", "contracts/test_readme.py", "frozen/record.py")}
"""Files that contain the words in order to forbid them, or as the names under which columns were frozen."""


@cache
def words_in(folder: str) -> Counter[str]:
    """How often each word occurs, also inside identifiers and names of files."""
    found: Counter[str] = Counter()
    for path in (ROOT / folder).rglob("*.py"):
        if path not in LISTS:
            found.update(PATTERN.findall(path.read_text(encoding="utf-8").lower()))
            found.update(PATTERN.findall(path.stem))
    return found


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("folder", FOLDERS)
def test_a_word_of_the_old_dialect_does_not_come_back(folder: str, word: str) -> None:
    found = words_in(folder)[word]
    assert not found, f"{word!r} occurs {found} times in {folder}; say it in words that users of PyTorch know"
