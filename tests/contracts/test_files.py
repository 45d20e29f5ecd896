"""What holds for every file of the project."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CODE = sorted(path for part in ("src", "tests", "examples", "benchmarks") for path in (ROOT / part).rglob("*.py"))
TEXT = [
    *CODE,
    *ROOT.glob("*.md"),
    *ROOT.glob("docs/*.md"),
    *ROOT.glob("requirements/*.txt"),
    ROOT / "Makefile",
    ROOT / ".ci/run",
]


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", CODE, ids=name)
def test_a_file_holds_one_thing_and_stays_small(path: Path) -> None:
    most = 500 if "src" in path.parts else 1200  # a table of rows is read from place to place
    assert len(path.read_text(encoding="utf-8").splitlines()) <= most


@pytest.mark.parametrize("path", TEXT, ids=name)
def test_nothing_is_left_for_later(path: Path) -> None:
    marks = re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|X{3}|HA[C]K)\b")
    assert not marks.search(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", TEXT, ids=name)
def test_no_file_names_a_machine_or_a_package_registry(path: Path) -> None:
    places = re.compile(r"(?<![\w.])/(?:work|opt|root|home)/|pypi\.org|download\.pytorch\.org|--(?:extra-)?index-url")
    assert not places.search(path.read_text(encoding="utf-8").replace(places.pattern, ""))


@pytest.mark.parametrize("path", [p for p in CODE if "src" in p.parts], ids=name)
def test_a_module_says_in_one_sentence_what_it_is(path: Path) -> None:
    assert path.read_text(encoding="utf-8").startswith('"""')


@pytest.mark.parametrize("path", [path for path in CODE if "__main__" in path.read_text(encoding="utf-8")], ids=name)
def test_what_runs_a_module_as_a_program_is_its_last_statement(path: Path) -> None:
    statements = ast.parse(path.read_text(encoding="utf-8")).body
    programs = [number for number, statement in enumerate(statements, 1) if "__name__" in ast.unparse(statement)[:12]]
    assert programs in ([], [len(statements)])
