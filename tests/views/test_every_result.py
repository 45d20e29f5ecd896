"""Every result gives the same kind of sheet, and every format writes it without knowing the result."""

from __future__ import annotations

from typing import Any

import pytest
from tests.shared.page_subjects import checkpoint, comparison, profile, recomputation, report, sweep

from opcost.analysis.query import query
from opcost.core.plugin import OWN, VIEWS, load
from opcost.core.results import Fit, ModelCheck, Verdict
from opcost.core.sheet import Amount, Field, Line, Sheet, Table

RESULTS: dict[str, Any] = {
    "report": report(uncounted=True),
    "answer": query(profile()),
    "comparison": comparison(),
    "sweep": sweep(),
    "scan": checkpoint(),
    "fit": Fit(source="net", vary="batch", largest=2, peak_bytes=20, next_peak_bytes=30, limit_bytes=25),
    "recomputation": recomputation(),
    "verdict": Verdict(models=(ModelCheck(name="net", source="", inputs="", lines=()),)),
}


@pytest.mark.parametrize("view", ["table", "md", "notebook"])
@pytest.mark.parametrize("name", RESULTS)
def test_a_result_and_its_sheet_look_the_same(name: str, view: str) -> None:
    result = RESULTS[name]
    sheet = result.sheet()
    assert isinstance(sheet, Sheet)
    assert sheet.tables
    assert sheet.answer.replace("\u00a0", " ") == result.answer
    assert result.answer
    drawn = sheet.render(view)
    if name != "report" or view != "notebook":  # where a report opens more of its tree
        assert drawn == result.render(view)


@pytest.mark.parametrize("name", RESULTS)
def test_a_sheet_of_a_result_is_written_for_programs_too(name: str) -> None:
    sheet = RESULTS[name].sheet()
    rows = sum(len(table.rows) for table in sheet.tables)
    assert len(sheet.render("csv").splitlines()) == rows + 1
    assert len(sheet.to_dict()["table"]) == rows
    assert '"opcost.sheet/1"' in sheet.render("json")


def test_every_view_names_the_results_that_it_shows() -> None:
    shown = {name: set(load(VIEWS, name).results) for name in OWN[VIEWS]}
    everything = {"report", "profile", "scan", "tables"}
    assert {name for name, kinds in shown.items() if kinds == everything} == {
        "answer", "table", "md", "latex", "csv", "json", "columns", "html", "notebook",
    }  # fmt: skip
    assert all(kinds <= everything for kinds in shown.values())


def test_a_column_is_left_out_where_it_is_dull_or_blank_unless_it_is_chosen() -> None:
    fields = (Field("rank", "number", dull=True), Field("name"), Field("note", blank=("",)), Field("time", "time"))
    lines = (Line((0, "a", "", 1)), Line((0, "b", "", 2)), Line(("", "total", "", 3), "total"))
    table = Table(title="t", fields=fields, lines=lines)
    assert table.visible == [1, 3]
    assert table.total == ("", "total", "", 3)
    chosen = table.select(["rank", "time"])
    assert chosen is not None
    assert [chosen.fields[place].name for place in chosen.visible] == ["rank", "time"]
    assert table.records() == [
        {"rank": 0, "name": "a", "note": "", "time": 1},
        {"rank": 0, "name": "b", "note": "", "time": 2},
    ]


def test_an_amount_is_a_plain_number_for_programs() -> None:
    lines = [("peak", Amount(1024, "bytes")), ("time", Amount(1500, "time", partial=True))]
    table = Table.of("t", "what:text amount:number", lines)
    sheet = Sheet(name="mixed", meta={"source": "net"}, tables=(table,))
    assert sheet.to_dict()["amount"] == [1024, 1500]
    assert "1.00 KiB" in sheet.render("table")
    assert "≥1.50 µs" in sheet.render("table")
