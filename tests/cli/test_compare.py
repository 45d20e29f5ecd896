"""`opcost compare`, and the answer to `opcost diff`."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest
from html_page import HtmlPage, column
from onnx_making import helper, tensor, weight

import opcost

ROWS, WIDTH, CLASSES = 3, 8, 5


@pytest.fixture
def linear(tmp_path: Path) -> str:
    path = tmp_path / "linear.py"
    path.write_text(
        "from torch import nn\n"
        "def Net(classes=5, bias=False):\n"
        f"    return nn.Sequential(nn.Linear({WIDTH}, classes, bias=bias))\n"
    )
    return f"{path}:Net"


@pytest.fixture
def saved(opcost_command: Callable, linear: str, tmp_path: Path) -> Path:
    path = tmp_path / "saved.json"
    opcost_command("count", linear, "-i", f"{ROWS}x{WIDTH}", "-q", "-o", path)
    return path


def test_a_model_a_file_and_a_report_stand_side_by_side(
    opcost_command: Callable, linear: str, saved: Path, tmp_path: Path
) -> None:
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    graph = helper.make_graph(
        [node], "g", [tensor("x", ROWS, WIDTH)], [tensor("y", ROWS, 2 * CLASSES)], [weight("w", WIDTH, 2 * CLASSES)]
    )
    file = tmp_path / "net.onnx"
    file.write_bytes(helper.make_model(graph).SerializeToString())
    done = opcost_command("compare", linear, saved, file, "-i", f"{ROWS}x{WIDTH}", "--format", "json", "-q")
    assert done.code == 0, done.err
    data = json.loads(done.out)
    assert [source["label"] for source in data["sources"]] == [linear, str(saved), str(file)]
    amounts = {line["quantity"]: line["amounts"] for line in data["lines"]}
    macs = ROWS * WIDTH * CLASSES
    assert amounts["macs"] == [macs, macs, 2 * macs]
    assert amounts["params"] == [WIDTH * CLASSES, WIDTH * CLASSES, 2 * WIDTH * CLASSES]


def test_nine_sources_fit_eighty_columns_and_none_is_missing(
    opcost_command: Callable, saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(saved.parent)
    done = opcost_command("compare", *[saved.name] * 9, "--width", "80", "-q")
    assert done.code == 0
    assert all(len(line) <= 80 for line in done.out.splitlines())
    for place in range(2, 10):
        assert f"saved.json ({place})  " in done.out
    assert "no room for" not in done.out


def test_every_form_has_the_same_numbers(opcost_command: Callable, linear: str, saved: Path, tmp_path: Path) -> None:
    files = [tmp_path / f"found{suffix}" for suffix in (".md", ".csv", ".json", ".html", ".txt")]
    words = [word for file in files for word in ("-o", file)]
    twice = 2 * CLASSES
    done = opcost_command(
        "compare", saved, linear, "--set", f"classes={twice}", "-i", f"{ROWS}x{WIDTH}", "--by", "kind", "-q", *words
    )
    assert (done.code, done.out) == (0, "")
    macs = (ROWS * WIDTH * CLASSES, ROWS * WIDTH * twice)
    text = {file.suffix: file.read_text() for file in files}
    (line,) = [
        line for line in csv.DictReader(StringIO(text[".csv"])) if (line["part"], line["quantity"]) == ("kind", "macs")
        if line["name"] == "matmul"
    ]  # fmt: skip
    assert (line[str(saved)], line[linear]) == tuple(map(str, macs))
    assert f"| matmul | {macs[0]} | {macs[1]} |" in text[".md"]
    (kinds,) = HtmlPage(text[".html"]).data["tables"]
    line = column(kinds, "kind").index("matmul")
    assert [column(kinds, str(source))[line][0] for source in (saved, linear)] == list(macs)
    assert ["matmul", *map(str, macs)] in [line.split() for line in text[".txt"].splitlines()]
    lines = json.loads(text[".json"])["lines"]
    assert [line["amounts"] for line in lines if line["name"] == "matmul"] == [list(macs)]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "name two or more"),
        (("a.json",), "name two or more"),
        (
            ("SAVED", "SAVED", "--format", "pdf"),
            "known: answer, chart, columns, csv, html, json, latex, md, notebook, table",
        ),
        (("SAVED", "SAVED", "--format", "tabel"), "did you mean 'table'"),
        (("SAVED", "SAVED", "-o", "x.pdf"), ".csv, .html, .json, .md, .tex, .txt"),
        (("SAVED", "SAVED", "--by", "kinds"), "did you mean 'kind'"),
        (("SAVED", "SAVED", "--quantity", "parms"), "did you mean 'params'"),
        (("SAVED", "SAVED", "--depth", "deep"), "neither a number nor 'all'"),
        (("SAVED", "SAVED", "-i", "1x8"), "options about counting do not apply"),
    ],
)
def test_what_cannot_be_done_is_said_before_anything_is_counted(
    opcost_command: Callable, saved: Path, words: tuple[str, ...], said: str
) -> None:
    done = opcost_command("compare", *(str(saved) if word == "SAVED" else word for word in words))
    assert done.code == 2
    assert said in done.err


def test_code_that_makes_a_model_is_run_once(opcost_command: Callable, saved: Path, tmp_path: Path) -> None:
    path = tmp_path / "noted.py"
    path.write_text(
        f"from pathlib import Path\nfrom torch import nn\nlog = Path({str(tmp_path / 'log')!r})\n"
        "log.write_text((log.read_text() if log.exists() else '') + 'x')\n"
        "def Net():\n    return nn.Linear(8, 5)\n"
    )
    assert opcost_command("compare", saved, f"{path}:Net", "-i", "1x8", "-q").code == 0
    assert (tmp_path / "log").read_text() == "x"


# -- diff --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def larger(opcost_command: Callable, linear: str, tmp_path: Path) -> Path:
    path = tmp_path / "larger.json"
    opcost_command("count", linear, "--set", "classes=6", "-i", f"{ROWS}x{WIDTH}", "-q", "-o", path)
    return path


GROWTH = 100 * (6 - 5) / 5
"""Percent of MACs and parameters, for 6 classes in place of 5."""


@pytest.mark.parametrize(
    ("conditions", "code"),
    [
        (("macs>+1%",), 1),
        ((f"macs>+{GROWTH:g}%",), 0),
        ((f"macs>=+{GROWTH:g}%",), 1),
        (("params>+7",), 1),
        (("params>+8",), 0),
        (("params>47",), 1),
        (("params<0", "macs>+1%"), 1),
        (("params<0", "macs<1"), 0),
    ],
)
def test_a_diff_fails_only_where_a_condition_holds(
    opcost_command: Callable, saved: Path, larger: Path, conditions: tuple[str, ...], code: int
) -> None:
    words = [word for condition in conditions for word in ("--fail-if", condition)]
    done = opcost_command("compare", "--changes", saved, larger, *words, "-q")
    assert done.code == code, done.err
    assert ("→" in done.err) == bool(code)
    assert opcost_command("compare", saved, larger, "--fail-if", "changed", "-q").code == 1
    assert opcost_command("compare", saved, saved, "--fail-if", "changed", "-q").code == 0


def test_the_offending_totals_are_named(opcost_command: Callable, saved: Path, larger: Path) -> None:
    done = opcost_command(
        "compare", "--changes", saved, larger, "--fail-if", "params>+1%", "--fail-if", "flops<1", "-q"
    )
    assert "params>+1%: 40 → 48 (+20.00%)" in done.err
    assert "flops<1" not in done.err
    wrong = opcost_command("compare", "--changes", saved, larger, "--fail-if", "parms>+1%")
    assert (wrong.code, "did you mean 'params'" in wrong.err) == (2, True)


def test_a_condition_may_be_on_a_total_that_the_table_does_not_have(
    opcost_command: Callable, saved: Path, larger: Path
) -> None:
    """The bytes moved are those read and those written, which a comparison shows apart."""
    before, after = (opcost.load_report(path).totals for path in (saved, larger))
    old, new = (totals.bytes_read + totals.bytes_written for totals in (before, after))
    for words in ((), ("--quantity", "macs"), ("--changes",)):
        done = opcost_command("compare", saved, larger, *words, "--fail-if", f"bytes>{old}B", "-q")
        assert (done.code, f"{old:,} → {new:,}" in done.err) == (1, True), done.err
        assert opcost_command("compare", saved, larger, *words, "--fail-if", f"bytes>{new}B", "-q").code == 0


@pytest.mark.parametrize("words", [("--quantity", "macs"), ("--depth", "2")])
def test_options_that_changes_do_not_heed_are_refused(
    opcost_command: Callable, saved: Path, larger: Path, words: tuple[str, ...]
) -> None:
    done = opcost_command("compare", saved, larger, "--changes", *words)
    assert (done.code, f"({words[0]}) does not apply" in done.err) == (2, True)


def test_a_condition_on_a_lower_bound_is_not_known(opcost_command: Callable, tmp_path: Path) -> None:
    for name, domain, kind in (("known", "", "Relu"), ("unknown", "vendor", "Mystery")):
        nodes = [helper.make_node("MatMul", ["x", "w"], ["y"]), helper.make_node(kind, ["y"], ["z"], domain=domain)]
        graph = helper.make_graph(
            nodes, "g", [tensor("x", ROWS, WIDTH)], [tensor("z", ROWS, CLASSES)], [weight("w", WIDTH, CLASSES)]
        )
        (tmp_path / f"{name}.onnx").write_bytes(helper.make_model(graph).SerializeToString())
    words = ("compare", "--changes", tmp_path / "known.onnx", tmp_path / "unknown.onnx", "--fail-if", "macs>+1%", "-q")
    done = opcost_command(*words)
    assert done.code == 1
    assert "unknown" in done.err
    assert opcost_command(*words, "--allow-uncounted").code == 0
    assert opcost_command(*words[:4], "--fail-if", "params>+1%", "-q").code == 0  # parameters need no cost model


def test_the_terminal_gets_some_lines_and_a_file_all(opcost_command: Callable, tmp_path: Path) -> None:
    path = tmp_path / "deep.py"
    path.write_text(
        "from torch import nn\n"
        "def Net(width=8):\n"
        "    return nn.Sequential(*[nn.Linear(8 if not n else width, width, bias=False) for n in range(30)])\n"
    )
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    opcost_command("count", f"{path}:Net", "-i", "1x8", "-q", "-o", old)
    opcost_command("count", f"{path}:Net", "--set", "width=9", "-i", "1x8", "-q", "-o", new)
    done = opcost_command("compare", "--changes", old, new, "--top", "4", "-o", tmp_path / "all.md")
    assert f"and {30 - 4} more lines" in done.out
    assert sum("| changed |" in line for line in (tmp_path / "all.md").read_text().splitlines()) == 30 + len(
        ("matmul",)
    )
