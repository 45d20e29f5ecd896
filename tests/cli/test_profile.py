"""`opcost profile`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from opcost.core.profile_schema import load

NET = (
    "examples/transformer.py:Decoder",
    "--set",
    "layers=1",
    "--set",
    "vocabulary=50",
    "--set",
    "width=16",
    "--set",
    "heads=2",
)
SMALL = (*NET, "-i", "tokens:1x4:int64", "--repeat", "2", "--warmup", "0")


def test_the_profile_is_written_and_the_times_are_printed(
    opcost_command: Callable[..., Any], root: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(root)
    outcome = opcost_command("profile", *SMALL, "-o", tmp_path / "p.json")
    assert outcome.code == 0, outcome.err
    assert "unprofiled" in outcome.out
    assert "2 runs" in outcome.out
    profile = load(tmp_path / "p.json")
    assert profile.meta["steps"] == "2"
    assert {"blocks.0.attention.qkv", "norm"} <= {row.module for row in profile.rows}


def test_several_runs_are_one_line_for_each_operator_unless_another_key_is_requested(
    opcost_command: Callable[..., Any], root: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(root)
    path = tmp_path / "p.json"
    opcost_command("profile", *SMALL, "-o", path, "--quiet")
    for options, lines_of_it in (((), 1), (("--aggregate-by", "step,name"), 2), (("--group-by", "module"), 1)):
        answer = json.loads(opcost_command("analyze", path, *options, "-t", "0", "--format", "json").out)
        lines = [line for line in answer["lines"] if line.get("name") == "norm.layer_norm" and line["role"] == "row"]
        assert [line["count"] for line in lines] == [1] * lines_of_it
        assert (answer["runs"], answer["is_per_run"]) == (2, lines_of_it == 1)


def test_the_table_is_of_one_run_and_has_the_cost_of_the_model(
    opcost_command: Callable[..., Any], root: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(root)
    counted = json.loads(opcost_command("count", *NET, "-i", "tokens:1x4:int64", "--format", "json").out)["totals"][
        "flops"
    ]
    outcome = opcost_command("profile", *SMALL)
    assert outcome.code == 0, outcome.err
    assert "2 runs, per run" in outcome.out
    assert "-o FILE.json" in outcome.out
    path = tmp_path / "p.json"
    printed = opcost_command("profile", *SMALL, "-o", path).out
    assert "FLOP/s" in printed
    for key in ("kind", "module", "type", "name"):
        answer = json.loads(opcost_command("analyze", path, "--aggregate-by", key, "--format", "json").out)
        assert answer["lines"][-1]["computation"] == counted, key
        assert "2 runs, per run" in opcost_command("analyze", path, "--aggregate-by", key).out
    assert opcost_command("profile", *SMALL, "-o", path, "--quiet").out == ""


def test_a_layout_without_a_file_is_refused_before_anything_runs(opcost_command: Callable[..., Any]) -> None:
    outcome = opcost_command("profile", "nowhere.py:Net", "--layout", "chrome")
    assert outcome.code == 2
    assert "-o FILE.json" in outcome.err


def test_the_layouts_are_megengines_and_chromes(
    opcost_command: Callable[..., Any], root: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(root)
    for layout, key in (("megengine", "graph_exec"), ("chrome", "traceEvents")):
        path = tmp_path / f"{layout}.json"
        outcome = opcost_command(
            "profile", *SMALL, "-o", path, "--layout", layout, "--backward", "--quiet", "--host-only"
        )
        assert (outcome.code, outcome.out) == (0, ""), outcome.err
        assert json.loads(path.read_text())[key]


def test_a_file_that_cannot_be_run_is_refused(opcost_command: Callable[..., Any], tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    report.write_text('{"schema": "opcost.report/1"}')
    outcome = opcost_command("profile", report, "-o", tmp_path / "p.json")
    assert outcome.code == 2
    assert "cannot be run" in outcome.err


def test_the_flags_of_a_model_and_its_inputs_are_those_of_count(opcost_command: Callable[..., Any]) -> None:
    def flags(command: str) -> set[str]:
        text = opcost_command(command, "--help").out
        groups = [
            text.partition(f"─ {title} ─")[2].partition("╰")[0] for title in ("Inputs", "One file format or library")
        ]
        return set(re.findall("--[a-z]+", "".join(groups)))

    only_of_files = {"--epoch", "--function", "--params", "--signature"}
    assert flags("profile") == flags("count") - only_of_files
    assert {"--set", "--input", "--batch", "--tokens", "--image", "--arg", "--dim"} <= flags("profile")


SIZED = """
from torch import nn

class Net(nn.Conv2d):
    def __init__(self, width=3):
        super().__init__(3, width, 1)
        self.default_cfg = {"input_size": (3, 8, 6)}
"""


def test_default_inputs_have_the_size_and_type_that_flags_say(
    opcost_command: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "net.py").write_text(SIZED)
    words = ("--batch", "2", "--image", "5", "--dtype", "bf16", "--set", "width=7", "--repeat", "1", "--warmup", "0")
    outcome = opcost_command("profile", f"{tmp_path / 'net.py'}:Net", *words, "-o", tmp_path / "p.json")
    assert outcome.code == 0, outcome.err
    assert "no inputs were given: input 2x3x5x5 bfloat16, from its default_cfg" in outcome.out
    (row,) = [row for row in load(tmp_path / "p.json").rows if row.cost is not None and row.cost.macs]
    assert row.cost is not None
    assert row.cost.macs == 2 * 5 * 5 * 3 * 7
    assert [spec.dtype for spec in row.ins[:2]] == ["bfloat16"] * 2
