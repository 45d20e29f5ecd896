from __future__ import annotations

import json
from pathlib import Path

import pytest

from opcost.core.report import Report
from opcost.core.schema import SCHEMA, load, loads, to_dict
from opcost.errors import UnknownName


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("name", ["plain", "odd", "deep"])
def test_the_report_comes_back_as_it_was(name: str, indent: int | None, request: pytest.FixtureRequest) -> None:
    report: Report = request.getfixturevalue(name)
    text = report.render("json", indent=indent)
    assert loads(text) == report
    assert json.loads(text) == {**json.loads(json.dumps(to_dict(report))), "answer": report.answer}


def test_a_report_that_was_read_back_prints_the_same(odd: Report) -> None:
    again = loads(odd.render("json"))
    for view in ("table", "arch", "csv", "md", "json"):
        assert again.render(view) == odd.render(view)


def test_a_file_is_written_by_its_suffix_and_names_its_schema(plain: Report, tmp_path: Path) -> None:
    path = tmp_path / "net.json"
    plain.save(str(path))
    assert json.loads(path.read_text(encoding="utf-8"))["schema"] == SCHEMA
    assert load(path) == plain


def test_a_misspelt_option_is_an_error(plain: Report) -> None:
    with pytest.raises(UnknownName, match="'indent'"):
        plain.render("json", ident=2)
