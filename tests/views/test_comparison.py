"""Comparisons and verdicts in every view: numbers, absent and unknown amounts, widths, and hostile names."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import replace
from io import StringIO

import pytest

from opcost.core.limits import QUANTITIES, parse_limit
from opcost.core.results import Compared, Comparison, Entry, LimitCheck, ModelCheck, Verdict
from opcost.errors import OpcostError, UnknownName
from opcost.views.comparison import short_titles

EVIL = "=cmd|<script>alert(1)</script>`*_[x](y)\x1b[31m\u202e,\n"


def entry(part: str, name: str, quantity: str, *amounts: int | None, absent: tuple[int, ...] = ()) -> Entry:
    return Entry(
        part=part,  # type: ignore[arg-type]
        name=name,
        quantity=QUANTITIES[quantity],
        amounts=amounts,
        present=tuple(place not in absent for place in range(len(amounts))),
        partial=(False,) * len(amounts),
    )


def comparison(*entries: Entry, labels: tuple[str, ...] = ("a", "b")) -> Comparison:
    sources = tuple(Compared(label=label, facts={"framework": "torch"}) for label in labels)
    return Comparison(sources=sources, entries=entries)


def cells(text: str, first: str) -> list[str]:
    return next(re.split(r"\s{2,}", line.strip()) for line in text.splitlines() if line.startswith(first))


def test_every_line_has_the_unit_of_its_quantity() -> None:
    text = str(comparison(entry("total", "", "macs", 1_500, 2_000_000), entry("total", "", "peak_bytes", 2048, 512)))
    assert cells(text, "MACs") == ["MACs", "1.50 K", "2.00 M"]
    assert cells(text, "peak memory") == ["peak memory", "2.00 KiB", "512 B"]
    exact = comparison(entry("total", "", "macs", 1_500, 2_000_000)).render("table", exact=True)
    assert cells(exact, "MACs") == ["MACs", "1,500", "2,000,000"]


def test_what_is_absent_is_empty_and_what_is_unknown_is_a_question_mark() -> None:
    found = comparison(entry("kind", "conv", "macs", 5, None, absent=(1,)), entry("kind", "pool", "macs", 7, None))
    lines = found.render("md").splitlines()
    assert "| conv | 5 |  |" in lines
    assert "| pool | 7 | ? |" in lines
    rows = list(csv.DictReader(StringIO(found.render("csv"))))
    assert [(row["a"], row["b"]) for row in rows] == [("5", ""), ("7", "")]
    assert [line["present"] for line in json.loads(found.render("json"))["lines"]] == [[True, False], [True, True]]


def test_a_lower_bound_is_marked() -> None:
    partial = Entry(
        part="total", name="", quantity=QUANTITIES["macs"], amounts=(5, 5), present=(True, True), partial=(False, True)
    )  # fmt: skip
    assert cells(str(comparison(partial)), "MACs") == ["MACs", "5", "≥5"]


def test_a_difference_has_a_sign_and_a_share() -> None:
    found = comparison(
        entry("total", "", "params", 200, 150),
        entry("total", "", "ops", 4, 4),
        entry("module", "x", "params", 30, None, absent=(1,)),
        entry("module", "y", "params", None, 60, absent=(0,)),
    ).changed()
    text = str(found)
    assert cells(text, "params") == ["params", "200", "150", "-50", "-25.00%"]
    assert "operators" not in text
    assert cells(text, "x ") == ["x", "removed", "-30"]
    assert cells(text, "y ") == ["y", "added", "+60"]
    rows = {row["name"]: row for row in csv.DictReader(StringIO(found.render("csv")))}
    assert (rows["x"]["change"], rows["x"]["difference"]) == ("removed", "-30")


def test_nothing_that_differs_is_said() -> None:
    same = comparison(entry("total", "", "params", 3, 3)).changed()
    assert not same
    assert str(same) == "a → b: no difference\na, b: torch\n"
    assert "no difference" in same.render("html")


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_tables_fit_the_width(width: int) -> None:
    entries = [entry("total", "", name, *range(10**9, 10**9 + 9)) for name in QUANTITIES]
    labels = tuple(f"some/folder/model_{place}.onnx" for place in range(9))
    text = comparison(*entries, labels=labels).render("table", width=width)
    assert all(len(line) <= width for line in text.splitlines())
    tables = text.split("\n\n", 1)[1]
    assert all(f"model_{place}.onnx" in tables for place in range(9))
    assert all(quantity.title in tables for quantity in QUANTITIES.values())
    assert "no room for" not in text


def many(count: int) -> Comparison:
    """Sources whose parameters and MACs are 1,001 and 2,001 and so on."""
    entries = [
        entry("total", "", name, *range(start, start + count)) for name, start in (("params", 1001), ("macs", 2001))
    ]
    kinds = [entry("kind", "conv", "macs", *range(3001, 3001 + count))]
    return comparison(*entries, *kinds, labels=tuple(f"hub:network{place}" for place in range(1, count + 1)))


def test_sources_are_lines_where_their_columns_have_no_room_and_no_number_is_lost() -> None:
    text = many(5).render("table", width=40, exact=True)
    assert [cells(text, f"hub:network{place} ") for place in (1, 5)] == [
        ["hub:network1", "1,001", "2,001"], ["hub:network5", "1,005", "2,005"],
    ]  # fmt: skip
    totals = many(5).render("table", width=100, exact=True)
    assert cells(totals, "MACs") == ["MACs", "2,001", "2,002", "2,003", "2,004", "2,005"]
    assert cells(totals, "conv") == ["conv", "3,001", "3,002", "3,003", "3,004", "3,005"]


def test_columns_without_room_continue_below_under_the_same_names() -> None:
    text = many(9).render("table", width=80, exact=True).rpartition("by kind\n")[2]
    lines = [re.split(r"\s{2,}", line) for line in text.splitlines() if line.startswith(("kind", "conv"))]
    assert len(lines) > 2
    heads, amounts = [[cell for line in lines[place::2] for cell in line[1:]] for place in (0, 1)]
    assert heads == [f"network{place}" for place in range(1, 10)]
    assert amounts == [f"{number:,}" for number in range(3001, 3010)]


def test_markdown_turns_a_table_with_more_sources_than_quantities() -> None:
    assert "| `hub:network3` | 1,003 | 2,003 |" in many(3).render("md", exact=True).splitlines()
    assert "| MACs | 2,001 | 2,002 |" in many(2).render("md", exact=True).splitlines()


def test_sources_under_the_same_conditions_are_one_line() -> None:
    sources = [
        Compared(label=label, facts={"mode": mode}) for label, mode in (("a", "eval"), ("b", "train"), ("c", "eval"))
    ]
    found = Comparison(sources=tuple(sources), entries=(entry("total", "", "macs", 1, 2, 3),))
    assert found.sheet().heading == ("a, c: eval", "b: train")


@pytest.mark.parametrize("changes", [False, True])
def test_models_that_were_counted_in_different_modes_are_warned_of(changes: bool) -> None:
    def of(*modes: str) -> str:
        named = comparison(entry("total", "", "macs", 1, 2, 3), labels=("a", "b", "c"))
        sources = (replace(each, facts={"mode": mode}) for each, mode in zip(named.sources, modes, strict=True))
        return replace(named, sources=tuple(sources), changes=changes).render("table", width=200)

    warned = of("train", "eval", "train")
    assert "the modes differ: train mode of a, c; eval mode of b" in warned
    assert 'count all in one mode: model.eval(), or mode="eval" (on the command line --eval)' in warned
    assert "the modes differ" not in of("eval", "eval", "eval")
    assert "the modes differ" not in of("eval", "", "eval")  # a file without a mode is as it is


def test_titles_are_short_and_different() -> None:
    assert short_titles(["timm:resnet18", "folder/net.onnx"]) == ["resnet18", "net.onnx"]
    assert short_titles(["a/net.onnx", "b/net.onnx"]) == ["a/net.onnx", "b/net.onnx"]
    long = short_titles([f"{'x' * 40}{place}{'y' * 40}" for place in range(3)])
    assert len(set(long)) == 3
    assert all(len(title) <= 18 for title in long)


def test_an_unknown_view_is_refused_with_those_that_there_are() -> None:
    found = comparison(entry("total", "", "params", 3, 3))
    with pytest.raises(UnknownName, match="known: answer, chart, columns, csv, html, json, latex, md, notebook, table"):
        found.render("pdf")
    with pytest.raises(OpcostError, match=r"\.csv, \.html, \.json, \.md, \.tex, \.txt"):
        found.save("x.pdf")


def verdict(name: str = "net") -> Verdict:
    line = LimitCheck(
        model=name,
        quantity=QUANTITIES["macs"],
        amount=120,
        partial=False,
        before=100,
        limit=parse_limit("macs", "<+10%"),
        word="EXCEEDED",
    )
    return Verdict(
        models=(ModelCheck(name=name, source="net.py:Net", inputs="x:1x3", lines=(line,)),), baseline="b.json"
    )


def test_a_verdict_shows_before_and_after() -> None:
    found = verdict()
    assert not found
    assert "| EXCEEDED | MACs | 100 | 120 | +20 | +20.00% | &lt;+10% |" in found.render("md")
    assert "net: MACs 120, and <+10% is allowed, it was 100" in str(found)
    assert json.loads(found.render("json"))["kept"] is False


@pytest.mark.parametrize("view", ["table", "md", "csv", "html", "json"])
def test_names_do_no_harm(view: str) -> None:
    changed = comparison(entry("module", EVIL, "params", 3, 5), labels=(EVIL, "b")).changed()
    for subject in (comparison(entry("module", EVIL, "params", 3, 5), labels=(EVIL, "b")), changed, verdict(EVIL)):
        text = subject.render(view)
        assert "\x1b" not in text
        assert "\u202e" not in text
        if view == "html":
            assert "<script>alert" not in text
        if view == "csv":
            assert not any(cell.startswith("=") for row in csv.reader(StringIO(text)) for cell in row)
        if view == "md":
            rows = [line for line in text.splitlines() if line.startswith("| ")]
            assert len({len(re.findall(r"(?<!\\)\|", line)) for line in rows}) <= 2  # one number of cells in each table
            assert "<script>" not in text
