"""Symbols written by hand, and the cases that MXNet itself has worked out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import opcost
from opcost.core.report import Report
from opcost.frontends.mxnet.load import Opened, open_file
from opcost.frontends.options import CountOptions

DATA = Path(__file__).parents[2] / "data" / "mxnet"


class Case:
    """A symbol with what MXNet says of it."""

    def __init__(self, folder: Path) -> None:
        self.name = f"{folder.parent.name}/{folder.name}"
        self.symbol = folder / "model-symbol.json"
        self.expected: dict[str, Any] = json.loads((folder / "expected.json").read_text())
        self.shapes = {name: tuple(shape) for name, shape in self.expected.get("inputs", {}).items()}

    def open(self, symbol: Path | None = None) -> Opened:
        """The case, or a copy of its symbol in another folder, with the golden shapes."""
        return open_file(symbol or self.symbol, CountOptions(shapes=self.shapes))


CASES = [Case(path.parent) for path in sorted(DATA.glob("*/*/expected.json"))]


@pytest.fixture(params=[case for case in CASES if "nodes" in case.expected], ids=lambda case: case.name)
def case(request: pytest.FixtureRequest) -> Case:
    """A case for which MXNet lists every node."""
    found: Case = request.param
    return found


@pytest.fixture(params=[case for case in CASES if "internals" in case.expected], ids=lambda case: case.name)
def version(request: pytest.FixtureRequest) -> Case:
    """A case as one version of MXNet wrote it, with the shapes that this version gives."""
    found: Case = request.param
    return found


@pytest.fixture
def data() -> Path:
    """The folder of MXNet's files."""
    return DATA


@pytest.fixture
def node() -> Callable[..., dict[str, Any]]:
    """A node as a file of 1.x has it; an input is the place of a node, or that and an output."""

    def made(op: str, name: str, *inputs: int | tuple[int, int], **attrs: object) -> dict[str, Any]:
        entries = [[place, 0, 0] if isinstance(place, int) else [*place, 0] for place in inputs]
        return {"op": op, "name": name, "attrs": {key: str(value) for key, value in attrs.items()}, "inputs": entries}

    return made


@pytest.fixture
def var() -> Callable[..., dict[str, Any]]:
    """A variable."""

    def made(name: str, **attrs: object) -> dict[str, Any]:
        return {"op": "null", "name": name, "attrs": {key: str(value) for key, value in attrs.items()}, "inputs": []}

    return made


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write nodes, or a whole file's content, as a symbol; the last node is its head."""

    def written(*content: Any, name: str = "net") -> Path:
        whole = content[0]
        if "nodes" not in whole:
            whole = {
                "nodes": list(content),
                "heads": [[len(content) - 1, 0, 0]],
                "attrs": {"mxnet_version": ["int", 10901]},
            }
        path = tmp_path / f"{name}-symbol.json"
        path.write_text(json.dumps(whole))
        return path

    return written


@pytest.fixture
def count(write: Callable[..., Path]) -> Callable[..., Report]:
    """Count nodes with these shapes."""
    return lambda *content, **options: opcost.count(str(write(*content)), **options)
