"""`opcost profile`."""

from __future__ import annotations

import json
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


def test_the_profile_is_written_and_the_times_are_told(
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


def test_several_runs_are_one_line_for_each_operator_unless_something_else_is_asked(
    opcost_command: Callable[..., Any], root: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(root)
    path = tmp_path / "p.json"
    opcost_command("profile", *SMALL, "-o", path, "--quiet")
    for options, calls in (((), 2), (("--aggregate-by", "step,name"), 1), (("--group-by", "module"), 2)):
        answer = json.loads(opcost_command("analyze", path, *options, "-t", "0", "--format", "json").out)
        lines = [line for line in answer["lines"] if line.get("name") == "norm.layer_norm" and line["role"] == "row"]
        assert [line["count"] for line in lines] == [calls] * (2 // calls)


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


def test_where_it_is_written_must_be_said(opcost_command: Callable[..., Any]) -> None:
    outcome = opcost_command("profile", *SMALL)
    assert outcome.code == 2
    assert "--output" in outcome.err
