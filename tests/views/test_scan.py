"""A scan as table, Markdown, CSV and JSON: the lines add up, patterns stand on one line, and everything fits the width."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from checkpoint_making import write_safetensors

import opcost
from opcost.core.names import patterns_of
from opcost.core.plugin import views_of
from opcost.core.scan import Scan
from opcost.errors import OpcostError, UnknownName

LAYERS, WIDTH = 12, 8
Command = Callable[..., Any]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    tensors: dict[str, Any] = {"model.embed.weight": ("F32", (10, WIDTH))}
    for layer in range(LAYERS):
        for name in ("q", "k"):
            tensors[f"model.layers.{layer}.attn.{name}.weight"] = ("BF16", (WIDTH, WIDTH))
        tensors[f"model.layers.{layer}.norm.weight"] = ("F32", (WIDTH,))
    return write_safetensors(tmp_path / "m.safetensors", tensors)


@pytest.fixture
def scan(path: Path) -> Scan:
    return opcost.scan(path)


def lines_of(groups: Any) -> dict[str, tuple[int, int, int]]:
    return {group.name: (group.tensors, group.params, group.bytes) for group in groups}


def test_layers_are_on_one_line(scan: Scan) -> None:
    square = WIDTH * WIDTH
    assert lines_of(scan.by_layer()) == {
        "model.embed.weight": (1, 80, 320),
        "model.layers.{0..11}.attn.*": (24, 24 * square, 48 * square),
        "model.layers.{0..11}.norm.weight": (12, 12 * WIDTH, 48 * WIDTH),
    }
    assert "model.layers.{0..11}.attn.k.weight" in lines_of(scan.by_layer(depth=2))


def test_modules_and_types_are_added_up(scan: Scan) -> None:
    square = WIDTH * WIDTH
    assert lines_of(scan.by_module()) == {
        "model.embed": (1, 80, 320),
        "model.layers": (36, 24 * square + 12 * WIDTH, 48 * square + 48 * WIDTH),
    }
    assert lines_of(scan.by_type()) == {
        "bfloat16": (24, 24 * square, 48 * square),
        "float32": (13, 80 + 96, 4 * (80 + 96)),
    }


@pytest.mark.parametrize("by", ["layer", "module", "type", "tensor"])
def test_every_grouping_has_the_same_sum(scan: Scan, by: Any) -> None:
    groups = scan.by(by)
    totals = scan.totals
    assert sum(group.params for group in groups) == totals.params
    assert sum(group.bytes for group in groups) == totals.bytes
    assert sum(group.tensors for group in groups) == totals.tensors == 1 + 3 * LAYERS


@pytest.mark.parametrize(
    ("names", "pattern"),
    [
        (["a.0.w", "a.1.w", "a.2.w"], "a.{0..2}.w"),
        (["a.0.w", "a.2.w", "a.3.w"], "a.{0,2..3}.w"),
        ([f"a.{n}.w" for n in range(0, 20, 2)], "a.{0..18: 10}.w"),
        (["a.7.w"], "a.7.w"),
        (["a.7.m.w", "a.7.m.b"], "a.7.m.*"),
        (["a.0.e.1.w", "a.1.e.2.w"], "a.{0..1}.e.{1..2}.w"),
        (["head.w", "head.b"], "head.*"),
        (["w"], "w"),
        (["٣.w"], "٣.w"),
    ],
)
def test_patterns(names: list[str], pattern: str) -> None:
    assert {str(found) for found in patterns_of(names, 1)} == {pattern}


def test_the_table_fits_eighty_columns_and_ends_with_the_sum(scan: Scan) -> None:
    for by in ("layer", "module", "type", "tensor"):
        text = scan.render("table", width=80, by=by)
        assert max(map(len, text.splitlines())) <= 80
        totals = [line for line in text.splitlines() if line.startswith("total")]
        assert len(totals) == (1 if by == "type" else 2)  # the types are below the requested table
        assert all("1.71 K" in total for total in totals)
    assert str(scan) == scan.render("table")


def test_the_largest_lines_come_first_and_the_rest_is_added_up(scan: Scan) -> None:
    text = scan.render("table", width=80, by="tensor", top=1, exact=True)
    assert "36 more lines" in text
    lines = scan.render("table", width=80, by="layer", sort="params", columns="name,params").splitlines()
    named = [line.split()[0] for line in lines if line.startswith("model")]
    assert named == ["model.layers.{0..11}.attn.*", "model.layers.{0..11}.norm.weight", "model.embed.weight"]


def test_csv_has_a_record_for_each_tensor(scan: Scan) -> None:
    records = list(csv.DictReader(StringIO(scan.render("csv"))))
    assert sum(int(record["params"]) for record in records) == scan.totals.params
    assert records[0] == {
        "name": "model.embed.weight", "role": "weight", "dtype": "float32", "scheme": "", "shape": "10x8", "params": "80",
        "bytes": "320", "bits": "32.0", "file": "m.safetensors", "tied_to": "",
    }  # fmt: skip


def test_json_has_everything(scan: Scan) -> None:
    document = json.loads(scan.render("json"))
    assert document["schema"] == "opcost.scan/1"
    assert document["totals"]["params"] == scan.totals.params
    assert len(document["tensors"]) == scan.totals.tensors
    assert document["by_layer"][1]["name"] == "model.layers.{0..11}.attn.*"


@pytest.mark.parametrize("view", views_of("scan"))
def test_every_view_refuses_a_misspelt_option(scan: Scan, view: str) -> None:
    with pytest.raises(UnknownName, match=f"option of the {view} view"):
        scan.render(view, widht=80)


def test_a_name_cannot_steer_a_terminal_or_a_spreadsheet(tmp_path: Path) -> None:
    scan = opcost.scan(
        write_safetensors(tmp_path / "m.safetensors", {"\x1b[31m.w": ("F32", (2,)), "=cmd()": ("F32", (2,))})
    )
    for view in ("table", "md", "csv"):
        assert "\x1b" not in scan.render(view, **({"by": "tensor"} if view != "csv" else {}))
    assert "'=cmd()" in scan.render("csv")


# -- the command --------------------------------------------------------------------------------------------------------


def test_the_command_prints_and_writes(path: Path, opcost_command: Command, tmp_path: Path) -> None:
    done = opcost_command("scan", path, "--width", "80", "-o", tmp_path / "x.json", "-o", tmp_path / "x.md")
    assert done.code == 0
    assert "model.layers.{0..11}.attn.*" in done.out
    assert json.loads((tmp_path / "x.json").read_text())["totals"]["params"] == opcost.scan(path).totals.params
    assert "| **total** |" in (tmp_path / "x.md").read_text()
    assert opcost_command("scan", path, "-q", "-o", tmp_path / "x.txt").out == ""
    assert opcost_command("scan", path, "--format", "csv").out == opcost.scan(path).render("csv")


@pytest.mark.parametrize("name", ["x.xlsx", "x.jsn", "x"])
def test_an_unknown_suffix_is_refused_with_the_list_before_anything_is_read(
    name: str, opcost_command: Command, tmp_path: Path
) -> None:
    done = opcost_command("scan", tmp_path / "nothing", "-o", tmp_path / name)
    assert done.code == 2
    assert "name the file with one of .csv, " in done.err


def test_wrong_words_are_refused(path: Path, opcost_command: Command, scan: Scan) -> None:
    assert opcost_command("scan").code == 2
    assert opcost_command("scan", path.parent / "nothing.gguf").code == 2
    with pytest.raises(UnknownName, match="did you mean 'params'"):
        scan.render("table", columns="parms")
    with pytest.raises(UnknownName, match="way to group"):
        scan.render("table", by="layr")
    with pytest.raises(OpcostError, match="top=0"):
        scan.render("table", top=0)
