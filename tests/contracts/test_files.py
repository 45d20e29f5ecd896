"""What holds for every file of the project."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@cache
def code() -> dict[str, str]:
    """Every Python file with what it says."""
    paths = sorted(path for part in ("src", "tests", "examples", "benchmarks") for path in (ROOT / part).rglob("*.py"))
    return {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in paths}


@cache
def texts() -> dict[str, str]:
    """Every Python file, document, list of requirements, the Makefile and what CI runs."""
    patterns = ("*.md", "docs/*.md", "requirements/*.txt", "Makefile", ".ci/run")
    paths = [path for pattern in patterns for path in ROOT.glob(pattern)]
    return code() | {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in paths}


def test_the_files_are_found() -> None:
    assert {"src/opcost/api.py", "tests/contracts/test_files.py", "benchmarks/mutate.py"} <= set(code())
    assert {"README.md", "docs/architecture.md", "requirements/test.txt", "Makefile", ".ci/run"} <= set(texts())


def test_a_file_holds_one_thing_and_stays_small() -> None:
    lines = {name: len(text.splitlines()) for name, text in code().items()}
    # a table of rows is read from place to place
    assert [name for name, count in lines.items() if count > (500 if name.startswith("src/") else 1200)] == []


def test_nothing_is_left_for_later() -> None:
    marks = re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|X{3}|HA[C]K)\b")
    assert [name for name, text in texts().items() if marks.search(text)] == []


def test_no_file_names_a_machine_or_a_package_registry() -> None:
    places = re.compile(r"(?<![\w.])/(?:work|opt|root|home)/|pypi\.org|download\.pytorch\.org|--(?:extra-)?index-url")
    assert [name for name, text in texts().items() if places.search(text.replace(places.pattern, ""))] == []


def test_a_module_says_in_one_sentence_what_it_is() -> None:
    assert [name for name, text in code().items() if name.startswith("src/") and not text.startswith('"""')] == []


def test_what_runs_a_module_as_a_program_is_its_last_statement() -> None:
    programs = {name: ast.parse(text).body for name, text in code().items() if "__main__" in text}
    starts = {
        name: [number for number, statement in enumerate(body, 1) if "__name__" in ast.unparse(statement)[:12]]
        for name, body in programs.items()
    }
    assert [name for name, found in starts.items() if found not in ([], [len(programs[name])])] == []
