"""What is installed with opcost is what opcost imports."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = pytest.importorskip("tomli")

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
WANTED = [*PROJECT["dependencies"], *(line for lines in PROJECT["optional-dependencies"].values() for line in lines)]
MODULES = {"dask": "distributed"}
"""Distributions whose own module is not the one that is used."""


@pytest.mark.parametrize("line", [line for line in WANTED if not line.startswith("opcost[")])
def test_what_is_installed_is_imported(line: str) -> None:
    name = re.split(r"[\[<>=!~; ]", line, maxsplit=1)[0]
    imported = re.compile(rf"^\s*(?:import|from) {MODULES.get(name, name)}\b", re.MULTILINE)
    sources = (ROOT / "src").rglob("*.py")
    assert any(imported.search(path.read_text(encoding="utf-8")) for path in sources)


def test_a_kineto_trace_is_read_without_any_extra() -> None:
    assert any(line.startswith("msgspec") for line in PROJECT["dependencies"])
