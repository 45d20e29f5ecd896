"""Reports and answers about profiles are shown by the same views: one way to write a table, a cell and an option."""

from __future__ import annotations

import csv
from dataclasses import fields, replace
from io import StringIO

import pytest

from opcost.analysis.query import query
from opcost.core.graph import TensorSpec
from opcost.core.plugin import views_of
from opcost.core.profile import Answer, Profile, ProfileRow
from opcost.core.report import Report
from opcost.errors import OpcostError, UnknownName


@pytest.fixture
def answer() -> Answer:
    shapes = (TensorSpec((2, 3), "float32"), TensorSpec((3, 4), "float32"))
    rows = tuple(ProfileRow(id=number, name="a|b", type="mm", host_self_ns=1000, ins=shapes) for number in range(2))
    return query(Profile(meta={"source": "x_y.json", "format": "own"}, rows=rows))


@pytest.mark.parametrize("view", views_of("profile"))
def test_every_view_of_answers_refuses_a_misspelt_option(answer: Answer, view: str) -> None:
    with pytest.raises(UnknownName, match=f"option of the {view} view"):
        answer.render(view, widht=80)


@pytest.mark.parametrize("view", sorted(set(views_of("profile")) - {"html", "json"}))
def test_an_option_of_answers_is_one_of_reports_too(view: str) -> None:
    options = views_of("profile")[view].results
    of_answers, of_reports = ({field.name for field in fields(options[kind])} for kind in ("profile", "report"))
    assert of_answers <= of_reports


def test_shapes_in_a_cell_of_csv_have_a_blank_between_them(answer: Answer, plain: Report) -> None:
    for text, column in ((answer.render("csv"), "in_shapes"), (plain.render("csv"), "input")):
        cells = [record[column] for record in csv.DictReader(StringIO(text)) if "x" in record[column]]
        assert cells
        assert not any("," in cell for cell in cells)
    assert "2x3 3x4" in answer.render("csv")


def test_markdown_begins_with_the_answer_and_its_sums_are_bold(answer: Answer, plain: Report) -> None:
    for text in (answer.render("md"), plain.render("md", by="kind")):
        assert text.startswith("**")
        assert "| **total** |" in text
    assert answer.render("md").startswith(
        "**x\\_y.json: 2.00 µs on the host, 50 % in a\\|b mm**\n\n- trace x\\_y.json (own)\n\n| name |"
    )


def test_the_heading_of_an_answer_is_wrapped_like_that_of_a_report(answer: Answer) -> None:
    long = replace(answer, meta={"source": "runs of a long night.json", "format": "written by another tool"})
    assert max(map(len, long.render("table", width=40, columns="name,time").splitlines())) <= 40


def test_no_columns_are_a_mistake_in_every_table(answer: Answer, plain: Report) -> None:
    for thing in (answer, plain):
        with pytest.raises(OpcostError, match="no column is named"):
            thing.render("table", columns=[])


def test_a_table_of_answers_can_be_drawn_in_ascii(answer: Answer) -> None:
    assert not answer.render("table", width=60).isascii()
    assert answer.render("table", width=60, ascii=True).isascii()
