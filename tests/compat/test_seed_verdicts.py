"""Three small nets through torchsummary's, torchstat's and torchinfo's calls, and what must be printed of them.

Two convolutions, one convolution called twice, and a second convolution that is never called. The tables are those that
users know from the three tools; a line that differs is one whose number was wrong, with a note here.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import nn

import opcost
from opcost.compat import thop, torchinfo, torchstat, torchsummary

SIZE = (1, 512, 512)
WEIGHTS = 3 * 3
PIXELS = 512 * 512


def conv() -> nn.Conv2d:
    return nn.Conv2d(in_channels=1, out_channels=1, kernel_size=3, stride=1, padding=1, bias=False)


class TwoLayers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = conv(), conv()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv2(self.conv1(x))


class Shared(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = conv()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv1(self.conv1(x))


class Unused(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = conv(), conv()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv1(x)


for _class in (TwoLayers, Shared, Unused):
    _class.__name__ = "Net"


def printed(capsys: pytest.CaptureFixture[str], call: Any, *args: Any) -> str:
    capsys.readouterr()
    call(*args)
    return capsys.readouterr().out


# -- torchsummary -----------------------------------------------------------------------------------------------------

TORCHSUMMARY = """\
----------------------------------------------------------------
        Layer (type)               Output Shape         Param #
================================================================
            Conv2d-1          [-1, 1, 512, 512]               9
            Conv2d-2          [-1, 1, 512, 512]               9
================================================================
Total params: 18
Trainable params: 18
Non-trainable params: 0
----------------------------------------------------------------
Input size (MB): 1.00
Forward/backward pass size (MB): 4.00
Params size (MB): 0.00
Estimated Total Size (MB): 5.00
----------------------------------------------------------------
"""


def test_torchsummary_of_two_layers(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, torchsummary.summary, TwoLayers(), SIZE) == TORCHSUMMARY


def test_torchsummary_counts_the_shared_layer_once_and_marks_it(capsys: pytest.CaptureFixture[str]) -> None:
    right = TORCHSUMMARY.replace("Conv2d-2          [-1, 1, 512, 512]               9",
                                 "Conv2d-2          [-1, 1, 512, 512]        (shared)").replace(" 18\n", " 9\n")  # fmt: skip
    assert printed(capsys, torchsummary.summary, Shared(), SIZE) == right


def test_torchsummary_counts_the_unused_layer_and_names_it(capsys: pytest.CaptureFixture[str]) -> None:
    right = (
        TORCHSUMMARY.replace("            Conv2d-2          [-1, 1, 512, 512]               9\n", "")
        .replace("pass size (MB): 4.00", "pass size (MB): 2.00")
        .replace("Total Size (MB): 5.00", "Total Size (MB): 3.00")
        .replace("Non-trainable params: 0\n", "Non-trainable params: 0\nUnused params: 9 (conv2)\n")
    )
    assert printed(capsys, torchsummary.summary, Unused(), SIZE) == right


# -- torchstat: the shares of the time are measured, and masked here ----------------------------------------------------

TORCHSTAT = """\
      module name  input shape output shape  params memory(MB)         MAdd        Flops  MemRead(B)  MemWrite(B) duration[%]  MemR+W(B)
0           conv1    1 512 512    1 512 512     9.0       1.00  4,456,448.0  2,359,296.0   1048612.0    1048576.0           %  2097188.0
1           conv2    1 512 512    1 512 512     9.0       1.00  4,456,448.0  2,359,296.0   1048612.0    1048576.0           %  2097188.0
total                                          18.0       2.00  8,912,896.0  4,718,592.0   2097224.0    2097152.0           %  4194376.0
========================================================================================================================================
Total params: 18
----------------------------------------------------------------------------------------------------------------------------------------
Total memory: 2.00MB
Total MAdd: 8.91MMAdd
Total Flops: 4.72MFlops
Total MemR+W: 4.0MB

"""  # noqa: E501 - the table is as wide as it is
"""torchstat's total row repeats 1048612.0 and 1048576.0 of the last layer; here it holds the sums."""


def masked(text: str) -> str:
    return re.sub(r" *\d+\.\d\d%", lambda share: "%".rjust(len(share.group())), text)


def test_torchstat_of_two_layers(capsys: pytest.CaptureFixture[str]) -> None:
    assert masked(printed(capsys, torchstat.stat, TwoLayers(), SIZE)) == TORCHSTAT


def test_torchstat_counts_the_shared_layer_once_and_its_work_twice(capsys: pytest.CaptureFixture[str]) -> None:
    header, _, _, total, *footer = TORCHSTAT.splitlines(keepends=True)
    row = "0      conv1 (x2)    1 512 512    1 512 512     9.0"
    total = total.replace(" 18.0 ", "  9.0 ")
    right = "".join([header, row + total[len(row) :], total, *footer]).replace("Total params: 18", "Total params: 9")
    assert masked(printed(capsys, torchstat.stat, Shared(), SIZE)) == right


def test_torchstat_counts_the_unused_layer_and_marks_it(capsys: pytest.CaptureFixture[str]) -> None:
    lines = masked(printed(capsys, torchstat.stat, Unused(), SIZE)).splitlines()
    _, first, _, _, *footer = TORCHSTAT.splitlines()
    assert lines[1].split() == first.split()
    assert " ".join(lines[2].split()) == "1 conv2 (unused) 0 0 0 0 0 0 9.0 0.00 0.0 0.0 0.0 0.0 % 0.0"
    of_the_used_layer = first.split()[9:]
    assert lines[3].split() == ["total", "18.0", *of_the_used_layer]
    assert lines[5] == footer[1] == "Total params: 18"
    assert lines[7:11] == [
        "Total memory: 1.00MB",
        "Total MAdd: 4.46MMAdd",
        "Total Flops: 2.36MFlops",
        "Total MemR+W: 2.0MB",
    ]


# -- torchinfo --------------------------------------------------------------------------------------------------------

TORCHINFO = """\
==========================================================================================
Layer (type:depth-idx)                   Output Shape              Param #
==========================================================================================
Net                                      [1, 512, 512]             --
├─Conv2d: 1-1                            [1, 512, 512]             9
├─Conv2d: 1-2                            [1, 512, 512]             9
==========================================================================================
Total params: 18
Trainable params: 18
Non-trainable params: 0
Total mult-adds (M): 4.72
==========================================================================================
Input size (MB): 1.05
Forward/backward pass size (MB): 4.19
Params size (MB): 0.00
Estimated Total Size (MB): 5.24
==========================================================================================
"""
"""torchinfo takes the channels of an unbatched image for the batch, and prints 0.01 M mult-adds."""


def test_torchinfo_of_two_layers(capsys: pytest.CaptureFixture[str]) -> None:
    assert f"{2 * WEIGHTS * PIXELS / 1e6:.2f}" == "4.72"
    assert printed(capsys, torchinfo.summary, TwoLayers(), SIZE) == TORCHINFO


def test_torchinfo_counts_the_shared_layer_once_and_its_work_and_its_output_twice(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Releases before 1.8 left the second output out of the forward/backward pass size; 1.8 has it, as here."""
    right = TORCHINFO.replace("├─Conv2d: 1-2                            [1, 512, 512]             9",
                              "├─Conv2d: 1-2                            [1, 512, 512]             (recursive)")  # fmt: skip
    assert printed(capsys, torchinfo.summary, Shared(), SIZE) == right.replace(" 18\n", " 9\n")


def test_torchinfo_counts_the_unused_layer(capsys: pytest.CaptureFixture[str]) -> None:
    right = (
        TORCHINFO.replace("├─Conv2d: 1-2                            [1, 512, 512]             9\n", "")
        .replace("[1, 512, 512]             --", "[1, 512, 512]             9")
        .replace(f"{2 * WEIGHTS * PIXELS / 1e6:.2f}", f"{WEIGHTS * PIXELS / 1e6:.2f}")
        .replace("pass size (MB): 4.19", "pass size (MB): 2.10")
        .replace("Total Size (MB): 5.24", "Total Size (MB): 3.15")
    )
    assert printed(capsys, torchinfo.summary, Unused(), SIZE) == right
    assert torchinfo.summary(Unused(), SIZE, verbose=0).unused_layers == ("conv2",)


# -- the verdict ------------------------------------------------------------------------------------------------------

VERDICT = {TwoLayers: (2 * WEIGHTS, 2), Shared: (WEIGHTS, 2), Unused: (2 * WEIGHTS, 1)}
"""Parameters of the model, shared ones once and unused ones too; and how many convolutions run."""


@pytest.mark.parametrize("make", VERDICT)
def test_every_peer_gives_the_same_numbers(make: type[nn.Module]) -> None:
    params, uses = VERDICT[make]
    macs = uses * WEIGHTS * PIXELS
    report = opcost.count(make(), shapes=(1, *SIZE))
    assert (report.totals.params, report.totals.macs) == (params, macs)
    assert thop.profile(make(), (torch.rand(1, *SIZE),), verbose=False) == (macs, params)
    summary = torchinfo.summary(make(), (1, *SIZE), verbose=0)
    assert (summary.total_params, summary.total_mult_adds) == (params, macs)
    rows = torchstat.ModelStat(make(), SIZE)._analyze_model()
    assert (sum(row.parameter_quantity for row in rows), sum(row.Flops for row in rows)) == (params, macs)


def test_the_shared_layer_is_counted_once_its_work_per_use_and_it_is_marked() -> None:
    report = opcost.count(Shared(), shapes=(1, *SIZE))
    layer = report.module("conv1")
    assert (layer.calls, layer.total.params, layer.total.macs) == (2, WEIGHTS, 2 * WEIGHTS * PIXELS)


def test_the_unused_layer_is_named() -> None:
    report = opcost.count(Unused(), shapes=(1, *SIZE))
    assert [parameter.name for parameter in report.unused] == ["conv2.weight"]
    assert report.totals.unused_params == WEIGHTS
    assert re.search(r"conv2\b.*unused", str(report))
