"""The notebook shows what its cells show today; `python docs/notebook.py` runs it anew."""

from __future__ import annotations

import ast
import io
import json
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from marked_blocks import without_versions

ROOT = Path(__file__).resolve().parents[2]
CELLS = [
    cell
    for cell in json.loads((ROOT / "docs/notebook.ipynb").read_text("utf-8"))["cells"]
    if cell["cell_type"] == "code"
]


def shown_by(code: str, names: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """What a kernel would show of a cell: what it prints, and its last value as HTML, or as text where it has none."""
    *before, last = ast.parse(code).body
    value = None
    with redirect_stdout(io.StringIO()) as printed:
        if isinstance(last, ast.Expr):
            exec(compile(ast.Module(before, []), "cell", "exec"), names)
            value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
        else:
            exec(compile(code, "cell", "exec"), names)
    if text := printed.getvalue():
        yield "stream", text
    if value is not None:
        yield "text/html", value._repr_html_()


def stored(cell: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for output in cell["outputs"]:
        if output["output_type"] == "stream":
            yield "stream", "".join(output["text"])
        else:
            yield "text/html", "".join(output["data"]["text/html"])


def test_its_cells_show_the_outputs_under_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    names: dict[str, Any] = {}
    shown = 0
    for cell in CELLS:
        code = "".join(cell["source"])
        found = [(kind, without_versions(text)) for kind, text in shown_by(code, names)]
        assert found == [(kind, without_versions(text)) for kind, text in stored(cell)], code
        shown += len(found)
    assert shown >= 8
