from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion
from work import calls

from opcost.core.report import Report
from opcost.core.units import format_bytes, format_count
from opcost.errors import OpcostError, UnknownName
from opcost.views.text import TABLE, terminal_width
from opcost.views.view import width_of

WIDTHS = (80, 120, 200)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["plain", "odd", "deep", "long"])
def test_picture_of_modules(name: str, width: int, request: pytest.FixtureRequest, picture: SnapshotAssertion) -> None:
    assert request.getfixturevalue(name).render("table", width=width) == picture


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("by", ["op", "kind", "type"])
def test_picture_of_the_other_listings(by: str, width: int, odd: Report, picture: SnapshotAssertion) -> None:
    assert odd.render("table", width=width, by=by) == picture


def test_picture_of_the_costliest_modules(plain: Report, picture: SnapshotAssertion) -> None:
    assert plain.render("table", width=80, top=4) == picture


def test_picture_in_exact_numbers(plain: Report, picture: SnapshotAssertion) -> None:
    assert plain.render("table", width=120, exact=True, sort="macs", depth=1) == picture


def test_picture_in_colour(odd: Report, picture: SnapshotAssertion) -> None:
    assert odd.render("table", width=80, color=True) == picture


def test_colour_adds_nothing_but_colour(odd: Report) -> None:
    coloured = odd.render("table", width=100, color=True)
    assert "\x1b[" in coloured
    bare = re.sub(r"\x1b\[[0-9;]*m", "", coloured)
    assert [line.rstrip() for line in bare.splitlines()] == odd.render("table", width=100).splitlines()


@pytest.mark.parametrize("name", ["plain", "odd", "deep", "long"])
@pytest.mark.parametrize("options", [{}, {"by": "op"}, {"by": "kind"}, {"by": "type"}, {"top": 3}, {"depth": None}])
def test_no_line_is_wider_than_the_room_and_no_number_is_ever_cut(
    name: str, options: Any, request: pytest.FixtureRequest
) -> None:
    report: Report = request.getfixturevalue(name)
    for width in range(40, 220, 9):
        text = report.render("table", width=width, **options)
        table = text.split("\n\n")[1]
        assert max(map(width_of, table.splitlines())) <= width
        total = next(line for line in table.splitlines()[2:] if not {"by", "top"} & set(options) or "total" in line)
        assert format_count(report.totals.macs) in total, f"the total is not whole at width {width}"
        for line in text.splitlines():
            assert width_of(line) <= width or " " not in line.strip(), "only a name that cannot be broken may be longer"


def test_more_columns_appear_with_more_room_and_none_disappears(plain: Report) -> None:
    shown: set[str] = set()
    for width in (40, 60, 80, 100, 120, 160, 200):
        head = plain.render("table", width=width).split("\n\n")[1].splitlines()[0]
        now = set(head.split())
        assert shown <= now
        shown = now
    assert {"module", "type", "input", "output", "params", "MACs", "FLOPs", "activations", "bytes", "own"} <= shown


def test_a_column_without_information_is_not_shown_unless_requested(plain: Report, odd: Report) -> None:
    def heads(report: Report, **options: Any) -> list[str]:
        return report.render("table", width=200, **options).split("\n\n")[1].splitlines()[0].split()

    assert "calls" not in heads(plain)
    assert "calls" in heads(odd)
    assert heads(plain, columns="module,calls") == ["module", "calls"]
    assert "phase" not in heads(plain, by="op")
    assert "phase" in heads(odd, by="op")


def test_requested_columns_without_room_follow_below_beside_the_same_names(plain: Report) -> None:
    wanted = "module,type,params,macs,flops,bytes,activations,bytes_read"
    blocks = [block.splitlines() for block in plain.render("table", width=51, columns=wanted).split("\n\n")[1:4]]
    heads = [["params", "MACs", "FLOPs"], ["bytes", "activations"], ["read"]]
    assert [block[0].split() for block in blocks] == [["module", "type", *head] for head in heads]
    assert {len(block) for block in blocks} == {2 + len(plain.modules)}


def test_the_totals_are_given_in_units_and_exactly(plain: Report) -> None:
    text = plain.render("table", width=80)
    totals = plain.totals
    for label, value, form in [
        ("params", totals.params, format_count),
        ("MACs", totals.macs, format_count),
        ("FLOPs", totals.flops, format_count),
        ("activations", totals.activations, format_count),
        ("bytes read", totals.bytes_read, format_bytes),
        ("bytes written", totals.bytes_written, format_bytes),
        ("param bytes", totals.param_bytes, format_bytes),
        ("peak memory", plain.peak_bytes, format_bytes),
    ]:
        assert re.search(rf"^{label} +{re.escape(form(value))} +{value:,}\b", text, re.MULTILINE), label


def test_nothing_is_said_where_there_is_nothing_to_say(plain: Report) -> None:
    text = plain.render("table", width=120)
    for word in ("unused", "shared", "uncounted", "notes", "phase", "backward", "frozen", "causal", "≥", "?"):
        assert word not in text, word


def test_a_bound_is_marked_as_a_bound_and_the_unknown_is_not_zero(odd: Report) -> None:
    lines = odd.render("table", width=120).splitlines()
    root = next(line for line in lines if line.startswith("OddNet  "))
    twister = next(line for line in lines if "twister" in line)
    assert f"≥{format_count(odd.totals.macs)}" in root
    assert re.search(r" \? +\? +\? ", twister)


def test_a_shared_parameter_is_marked_and_not_added_twice(odd: Report) -> None:
    lines = odd.render("table", width=80, columns="module,params").splitlines()
    assert any(re.fullmatch(r"├─ lm_head +\(shared\)", line) for line in lines)
    assert any(re.fullmatch(r"├─ again +\(shared\)", line) for line in lines)


def test_calls_are_shown_where_there_is_more_than_one(odd: Report) -> None:
    lines = odd.render("table", columns="module,calls", width=80).split("\n\n")[1].splitlines()
    assert next(line for line in lines if re.search(r"\d$", line)).split() == ["├─", "fc", "2"]


def test_wide_letters_keep_the_columns_straight(plain: Report) -> None:
    from dataclasses import replace

    modules = [replace(module, type="卷积层" if module.type == "Linear" else module.type) for module in plain.modules]
    table = replace(plain, modules=tuple(modules)).render("table", width=80).split("\n\n")[1].splitlines()
    assert table.pop().startswith("no room for ")
    assert {width_of(line) for line in table} == {width_of(table[0])}


def test_a_name_cannot_steer_the_terminal(plain: Report) -> None:
    from dataclasses import replace

    hostile = replace(plain, modules=(replace(plain.modules[0], type="Net\x1b[2J\n\rEvil"), *plain.modules[1:]))
    for view in ("table", "text", "arch", "md", "latex"):
        text = hostile.render(view)
        assert "\x1b" not in text
        assert "\r" not in text


def test_the_width_is_the_terminals_or_what_the_environment_says(
    monkeypatch: pytest.MonkeyPatch, plain: Report
) -> None:
    monkeypatch.setenv("COLUMNS", "57")
    assert terminal_width() == 57
    assert plain.render("table") == plain.render("table", width=57)
    monkeypatch.delenv("COLUMNS")
    monkeypatch.setattr(sys, "__stdout__", None)
    monkeypatch.setattr(sys, "__stderr__", None)
    monkeypatch.setattr(sys, "__stdin__", None)
    assert terminal_width() == 80


def test_printing_a_report_is_the_table(plain: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    assert str(plain) == plain.render("table", width=100)


def test_a_misspelt_option_is_an_error_that_knows_better(plain: Report) -> None:
    with pytest.raises(UnknownName, match="option of the table view 'colour'; did you mean 'color'"):
        plain.render("table", colour=True)
    with pytest.raises(OpcostError, match="width"):
        TABLE.choose("report", width=0)


def test_rich_is_imported_only_for_colour() -> None:
    code = (
        "import sys\n"
        "import opcost.views.text, opcost.views.tree, opcost.views.results, opcost.views.markdown\n"
        "assert not [name for name in sys.modules if name.split('.')[0] in ('rich', 'torch', 'numpy')]\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("options", [{"depth": None}, {}])
def test_the_work_of_a_table_grows_as_its_modules_do(
    big: Callable[[int, int], Report], options: dict[str, Any]
) -> None:
    few, many = big(100, 100), big(1000, 1000)
    assert len(many.modules) > 1000
    few.render("table", width=120, **options)  # loads what it needs
    each = [calls(lambda: report.render("table", width=120, **options)) / len(report.modules) for report in (few, many)]  # noqa: B023
    assert max(each) < 200


@pytest.mark.parametrize("view", ["table", "csv", "md", "json"])
def test_work_grows_in_proportion_to_the_rows(view: str, big: Callable[[int, int], Report]) -> None:
    options = {} if view == "json" else {"by": "op"}
    small, large = big(100, 500), big(100, 4000)
    small.render(view, **options)  # loads what it needs
    few, many = (calls(lambda: report.render(view, **options)) for report in (small, large))  # noqa: B023
    assert many < 1.2 * 8 * few
