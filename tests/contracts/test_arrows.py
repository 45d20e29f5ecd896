"""Who may import whom, and that the contracts say it about every part."""

from __future__ import annotations

from pathlib import Path

import pytest

tomllib = pytest.importorskip("tomllib", reason="part of Python from 3.11 on")


def test_the_arrows_of_the_design_hold(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from importlinter.cli import lint_imports

    monkeypatch.chdir(root)
    assert lint_imports(config_filename=str(root / "pyproject.toml"), no_cache=True) == 0


def test_every_part_of_the_package_says_which_libraries_it_does_without(root: Path) -> None:
    contracts = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    bound = {module for contract in contracts for module in contract.get("source_modules", ())}
    parts = {f"opcost.{folder.parent.name}" for folder in (root / "src/opcost").glob("*/__init__.py")}
    assert parts - bound == {"opcost.cli"}, "only the command line may import everything"
