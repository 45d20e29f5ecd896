"""What the peers' tables and reprs print of a model whose names are hostile: nothing that steers the terminal."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from opcost.compat import fvcore, mmengine, mxnet, ptflops, thop, torchinfo, torchstat, torchsummary

EVIL = "x\x1b[2J\n| y |\x9b31m\u202e\r\x00z"


def hostile() -> nn.Module:
    evil = type(EVIL.replace("\x00", ""), (nn.Linear,), {})  # a class cannot have this letter in its name
    model = nn.Sequential()
    model.add_module(EVIL, nn.Sequential(evil(3, 4), nn.ReLU()))
    return model


def flops(model: nn.Module) -> fvcore.FlopCountAnalysis:
    return fvcore.FlopCountAnalysis(model, torch.zeros(1, 3))


def no_cost(module: nn.Module, given: Any, result: Any) -> None:
    """A rule of the user's own."""


PRINTS: dict[str, Callable[[nn.Module], Any]] = {
    "torchinfo": lambda model: torchinfo.summary(model, (1, 3), verbose=2, row_settings=("var_names", "depth")),
    "torchsummary": lambda model: torchsummary.summary(model, (3,), device="cpu"),
    "torchstat": lambda model: torchstat.stat(model, (3,)),
    "fvcore table": lambda model: print(fvcore.flop_count_table(flops(model))),
    "fvcore repr": lambda model: print(fvcore.flop_count_str(flops(model))),
    "fvcore parameters": lambda model: print(fvcore.parameter_count_table(model)),
    "mmengine table": lambda model: print(mmengine.get_model_complexity_info(model, (3,))["out_table"]),
    "mmengine repr": lambda model: print(mmengine.get_model_complexity_info(model, (3,))["out_arch"]),
    "ptflops": lambda model: ptflops.get_model_complexity_info(model, (3,), print_per_layer_stat=True),
    "thop": lambda model: thop.profile(model, (torch.zeros(1, 3),), custom_ops={type(model[0][0]): no_cost}),
}


@pytest.mark.parametrize("tool", PRINTS)
def test_no_table_of_a_peer_steers_the_terminal(tool: str, capsys: pytest.CaptureFixture[str]) -> None:
    PRINTS[tool](hostile())
    text = capsys.readouterr().out
    assert text
    assert {letter for letter in text if not letter.isprintable()} <= {"\n"}


def test_a_name_cannot_break_out_of_a_cell_of_fvcores_table() -> None:
    lines = fvcore.flop_count_table(flops(hostile())).splitlines()
    assert len({len(re.findall(r"(?<!\\)\|", line)) for line in lines}) == 1


def test_the_summary_of_a_hostile_symbol_keeps_its_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [
        {"op": "null", "name": "data", "inputs": []},
        {"op": "Activation", "name": EVIL, "attrs": {"act_type": "relu"}, "inputs": [[0, 0, 0]]},
        {"op": "Activation", "name": f"{EVIL}2", "attrs": {"act_type": "relu"}, "inputs": [[1, 0, 0]]},
    ]
    path = tmp_path / "evil-symbol.json"
    path.write_text(json.dumps({"nodes": nodes, "arg_nodes": [0], "heads": [[2, 0, 0]]}))
    mxnet.print_summary(path, {"data": (1, 3)})
    lines = capsys.readouterr().out.splitlines()
    assert all(line.isprintable() for line in lines)
    assert len(lines) == 11
