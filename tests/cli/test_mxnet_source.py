"""MXNet's checkpoints on the command line: a symbol, a prefix, an epoch, a parameter file."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

CASE = Path(__file__).parents[1] / "data/mxnet/small/tiny_resnet_v1"
MACS = "3,166,528"
PARAMS = "31,666"


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    for path in CASE.glob("model*"):
        shutil.copy(path, tmp_path)
    return tmp_path / "model"


@pytest.mark.parametrize(
    "words",
    [
        ("{}-symbol.json", "--input", "data:1x3x32x32"),
        ("{}-symbol.json", "--input", "1x3x32x32"),
        ("{}", "--input", "data:1x3x32x32"),
        ("{}", "--epoch", "0", "--input", "1x3x32x32"),
        ("{}-0000.params", "--input", "1x3x32x32"),
        ("{}-symbol.json", "--params", "{}-0000.params", "--input", "1x3x32x32"),
    ],
)
def test_a_checkpoint_is_named_in_many_ways(
    words: tuple[str, ...], prefix: Path, opcost_command: Callable[..., Any]
) -> None:
    done = opcost_command("count", *(word.format(prefix) for word in words), "--width", "120")
    assert done.code == 0, done.err
    assert MACS in done.out
    assert PARAMS in done.out
    assert "mxnet 1.9.1" in done.out


def test_without_parameters_the_symbol_alone_is_counted(prefix: Path, opcost_command: Callable[..., Any]) -> None:
    Path(f"{prefix}-0000.params").unlink()
    done = opcost_command("count", prefix, "--input", "1x3x32x32", "--width", "120")
    assert done.code == 0
    assert MACS in done.out


def test_an_epoch_that_is_not_there_is_reported(prefix: Path, opcost_command: Callable[..., Any]) -> None:
    done = opcost_command("count", prefix, "--epoch", "7", "--input", "1x3x32x32")
    assert done.code == 2
    assert "epochs beside it: 0" in done.err


def test_a_missing_shape_is_reported_in_one_message(prefix: Path, opcost_command: Callable[..., Any]) -> None:
    done = opcost_command("count", prefix)
    assert done.code == 2
    assert "--input data:1x3x224x224" in done.err
    assert "Traceback" not in done.err


def test_two_checkpoints_are_compared(prefix: Path, opcost_command: Callable[..., Any]) -> None:
    done = opcost_command("compare", "--changes", prefix, f"{prefix}-symbol.json", "--input", "1x3x32x32")
    assert done.code == 0, done.err
    assert "no difference" in done.out


def test_a_checkpoint_is_compared_with_a_budget(prefix: Path, opcost_command: Callable[..., Any]) -> None:
    assert opcost_command("check", prefix, "--input", "1x3x32x32", "--max-macs", "3.2M").code == 0
    assert opcost_command("check", prefix, "--input", "1x3x32x32", "--max-macs", "3.1M").code == 1
