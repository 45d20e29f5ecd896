"""The page of benchmark results is what its command generates from the saved tables, and stays short."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
sys.path.append(str(BENCHMARKS))
from results import PAGE, SECTIONS, render  # noqa: E402 - the folder is named first

SAVED = sorted((BENCHMARKS / "results").glob("*.json"))


def test_the_page_of_results_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == render(), "run: python benchmarks/results.py"


def test_the_page_of_results_has_at_most_2600_words() -> None:
    words = [word for word in re.split(r"[\s|]+", render()) if word.strip("-")]
    assert len(words) <= 2600


def test_every_saved_table_is_on_the_page() -> None:
    assert sorted(name for names in SECTIONS.values() for name in names) == [path.stem for path in SAVED]


@pytest.mark.parametrize("path", SAVED, ids=lambda path: path.stem)
def test_a_table_says_when_where_and_how_it_was_measured(path: Path) -> None:
    found = json.loads(path.read_text(encoding="utf-8"))
    for key in ("title", "claim", "date", "machine", "command"):
        assert found[key]
    assert re.match(r"\d{4}-\d\d-\d\d", found["date"])
    script = re.match(r"(?:python|make) (\S+)", found["command"])
    assert script is not None
    assert not script[1].startswith("benchmarks/") or (BENCHMARKS.parent / script[1]).is_file()


@pytest.mark.parametrize("path", SAVED, ids=lambda path: path.stem)
def test_every_row_has_a_cell_for_every_column(path: Path) -> None:
    found = json.loads(path.read_text(encoding="utf-8"))
    assert {len(row) for row in found["rows"]} == {len(found["columns"])}
    assert {len(row) for row in found.get("details", ())} <= {len(found.get("detail_columns", ()))}
