from __future__ import annotations

from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from opcost.core.report import Report
from opcost.errors import UnknownName


@pytest.mark.parametrize("name", ["plain", "odd", "long"])
def test_picture_in_ascii(name: str, request: pytest.FixtureRequest, picture: SnapshotAssertion) -> None:
    text = request.getfixturevalue(name).render("text", width=80, ascii=True)
    assert text.isascii()
    assert text == picture


def test_ascii_keeps_every_line_as_wide_as_it_was(odd: Report) -> None:
    fancy, ascii_ = (odd.render("text", width=100, ascii=ascii_).splitlines() for ascii_ in (False, True))
    assert list(map(len, fancy)) == list(map(len, ascii_))


def test_text_is_the_table_at_a_width_that_no_terminal_changes(odd: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    assert odd.render("text") == odd.render("table", width=120)


def test_text_is_what_a_txt_file_holds(odd: Report, tmp_path: Path) -> None:
    path = tmp_path / "report.txt"
    odd.save(str(path), width=90)
    assert path.read_text(encoding="utf-8") == odd.render("text", width=90)


def test_a_misspelt_option_is_an_error(odd: Report) -> None:
    with pytest.raises(UnknownName, match="'ascii'"):
        odd.render("text", asci=True)
