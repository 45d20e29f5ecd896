"""The README's table of what other tools count: the truth is derived from the shapes, and each tool is run again."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import logging
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from sampling import chosen
from torch import nn

import opcost

ROOT = Path(__file__).resolve().parents[2]


def example(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, ROOT / f"examples/{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Case(NamedTuple):
    make: Callable[[], nn.Module]
    inputs: Callable[[], torch.Tensor]
    truth: int


def resnet_truth() -> int:
    macs, size, channels = 112 * 112 * 64 * 3 * 49, 56, 64
    for stage in range(4):
        wide = 64 * 2**stage
        size = 56 // 2**stage
        first = size * size * wide * (channels * 9 + wide * 9)
        shortcut = size * size * wide * channels if wide != channels else 0
        macs += first + shortcut + size * size * wide * 2 * wide * 9
        channels = wide
    return macs + 512 * 1000


def decoder_truth(tokens: int = 256, width: int = 512, layers: int = 6, vocabulary: int = 32000) -> int:
    projections = tokens * width * (3 * width + width + 4 * width + 4 * width)
    attention = 2 * tokens * tokens * width
    return layers * (projections + attention) + tokens * width * vocabulary


def lstm_truth(steps: int = 32 * 4, width: int = 64, hidden: int = 128) -> int:
    return sum(2 * steps * 4 * hidden * (inputs + hidden) for inputs in (width, 2 * hidden))


def encoder_truth(batch: int = 2, length: int = 16, width: int = 64, between: int = 128) -> int:
    tokens = batch * length
    layer = tokens * width * (3 * width + width + 2 * between) + 2 * batch * length * length * width
    return 2 * layer


CASES = {
    "examples/resnet18.py": Case(
        lambda: example("resnet18").ResNet18(), lambda: torch.zeros(1, 3, 224, 224), resnet_truth()
    ),
    "examples/transformer.py": Case(
        lambda: example("transformer").Decoder(), lambda: torch.zeros(1, 256, dtype=torch.int64), decoder_truth()
    ),
    "nn.LSTM": Case(lambda: nn.LSTM(64, 128, 2, bidirectional=True), lambda: torch.zeros(32, 4, 64), lstm_truth()),
    "nn.TransformerEncoder": Case(
        lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), 2),
        lambda: torch.zeros(2, 16, 64),
        encoder_truth(),
    ),
}


def by_flop_counter(model: nn.Module, x: torch.Tensor) -> int:
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(x)
    return counter.get_total_flops() // 2  # it counts two for each multiply-accumulate


def by_fvcore(model: nn.Module, x: torch.Tensor) -> int:
    from fvcore.nn import FlopCountAnalysis

    return int(FlopCountAnalysis(model, x).total())


def by_torchinfo(model: nn.Module, x: torch.Tensor) -> int:
    from torchinfo import summary

    return int(summary(model, input_data=x, verbose=0).total_mult_adds)


def by_ptflops(model: nn.Module, x: torch.Tensor) -> int:
    from ptflops import get_model_complexity_info

    with contextlib.redirect_stdout(io.StringIO()):
        counted, _ = get_model_complexity_info(
            model, (1,), input_constructor=lambda _: x, as_strings=False, print_per_layer_stat=False
        )
    return int(counted)


def by_thop(model: nn.Module, x: torch.Tensor) -> int:
    from thop import profile

    return int(profile(model, inputs=(x,), verbose=False)[0])


def by_opcost(model: nn.Module, x: torch.Tensor) -> int:
    return opcost.count(model, x).totals.macs


TOOLS = (by_opcost, by_flop_counter, by_fvcore, by_torchinfo, by_ptflops, by_thop)


@pytest.fixture
def silence() -> Iterator[None]:
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


def printed(row: str) -> list[int]:
    """The numbers of the table's row that begins with this name."""
    line = next(line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith(f"| `{row}`"))
    return [int(cell.replace(",", "")) for cell in re.findall(r"(?<=\| )[\d,]+(?= \|)", line)]


@pytest.mark.parametrize("name", CASES)
def test_opcost_counts_the_truth_and_the_table_prints_it(name: str) -> None:
    case = CASES[name]
    assert by_opcost(case.make().eval(), case.inputs()) == case.truth
    assert printed(name)[0] == case.truth


@pytest.mark.parametrize("name", chosen(CASES, "nn.LSTM", "nn.TransformerEncoder"))
@pytest.mark.usefixtures("silence")
def test_the_table_prints_what_the_other_tools_say(name: str) -> None:
    case = CASES[name]
    assert printed(name) == [tool(case.make().eval(), case.inputs()) for tool in TOOLS]
