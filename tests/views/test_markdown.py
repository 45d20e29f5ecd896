from __future__ import annotations

from dataclasses import replace

import pytest
from syrupy.assertion import SnapshotAssertion

from opcost.core.report import Report


@pytest.mark.parametrize("name", ["plain", "odd", "long"])
def test_picture_in_markdown(name: str, request: pytest.FixtureRequest, picture: SnapshotAssertion) -> None:
    assert request.getfixturevalue(name).render("md") == picture


def test_picture_of_the_costliest_kinds_in_markdown(odd: Report, picture: SnapshotAssertion) -> None:
    assert odd.render("md", by="kind", top=1, exact=True) == picture


def tables(text: str) -> list[list[str]]:
    blocks = [block.splitlines() for block in text.split("\n\n")]
    return [block for block in blocks if block[0].startswith("|")]


@pytest.mark.parametrize("by", ["module", "op", "kind", "type"])
def test_every_line_of_a_table_has_as_many_cells(odd: Report, by: str) -> None:
    for table in tables(odd.render("md", by=by)):
        assert len({line.count("|") for line in table}) == 1
        assert set(table[1]) <= set("|:- ")


def test_a_name_cannot_break_out_of_its_cell(plain: Report) -> None:
    hostile = "a|b`c*d<script>\n| x |"
    modules = [replace(module, type=hostile) if module.path == "head" else module for module in plain.modules]
    report = replace(plain, modules=tuple(modules))
    for by in ("module", "type"):
        text = report.render("md", by=by)
        assert "<script" not in text
        for table in tables(text):
            assert len({line.replace("\\|", "").count("|") for line in table}) == 1
