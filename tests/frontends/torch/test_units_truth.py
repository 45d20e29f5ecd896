"""Unit cases from the test suites of other counters: what is universally true must hold here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from opcost.core.report import Report

DATA = Path(__file__).resolve().parents[2] / "data" / "units.json"
CASES = {case["id"]: case for case in json.loads(DATA.read_text(encoding="utf-8"))["rows"]}
UNIVERSAL = [name for name, case in CASES.items() if case["kind"] == "universal"]
aten = torch.ops.aten


# -- the nets that the cases name --------------------------------------------------------------------------------------


class ThreeNet(nn.Module):
    def __init__(self, incoming: int, conv: int, linear: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(incoming, conv, 1)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.linear1 = nn.Linear(conv, linear)
        self.linear2 = nn.Linear(linear, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear2(self.linear1(self.pool(self.conv(x)).flatten(1)))


class SmallConvNet(nn.Module):
    def __init__(self, incoming: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(incoming, 8, 1, 1)
        self.conv2 = nn.Conv2d(8, 4, 1, 2)
        self.conv3 = nn.Conv2d(4, 2, 1, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv3(self.conv2(self.conv1(x)))


class NetWithReuse(nn.Module):
    def __init__(self, reuse: bool) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(100, 100, 3)
        self.conv2 = nn.Conv2d(100, 100, 3)
        if reuse:
            self.conv2.weight = self.conv1.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.conv2(self.conv1(x))


class RepeatedNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(10, 10)
        self.fc2 = nn.Linear(10, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(self.fc2(self.fc1(self.fc1(self.fc1(x)))))


class RecursiveScopeNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(10, 1)

    def forward(self, x: Tensor, turns: int = 3) -> Tensor:
        return self(x, turns - 1) if turns else self.fc(x)


def gram(a: Tensor) -> Tensor:
    return a.mm(a.t()).sum()


def scaled_mm(a: Tensor, b: Tensor) -> Tensor:
    one = torch.ones((), device=a.device)
    left, right = a.to(torch.float8_e4m3fn), b.t().contiguous().t().to(torch.float8_e4m3fn)
    return torch._scaled_mm(left, right, one, one, out_dtype=torch.bfloat16)


def flash(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return aten._flash_attention_forward(q, k, v, None, None, q.shape[1], k.shape[1], 0.0, False, False)[0]


SPELLED_OUT = {
    "a.mm(a.t()).sum().backward(); again": gram,
    "aten._flash_attention_forward": flash,
    "torch._scaled_mm": scaled_mm,
}
NAMES = {
    "F": F, "nn": nn, "torch": torch, "ThreeNet": ThreeNet, "SmallConvNet": SmallConvNet, "NetWithReuse": NetWithReuse,
    "RepeatedNet": RepeatedNet, "RecursiveScopeNet": RecursiveScopeNet,
}  # fmt: skip
HALF = ("torch/sdpa_uniform", "torch/flash_layout")
"""Cases for kernels that know only half precision."""


def counted(name: str, count: Any, **options: Any) -> Report:
    case = CASES[name]
    model = SPELLED_OUT.get(case["build"]) or eval(case["build"], NAMES)
    shapes = case["inputs"] or [[1, 100, 8, 8]]  # a case about parameters gives no input
    dtype = torch.float16 if name in HALF else torch.float32
    inputs = [torch.empty(s, dtype=dtype, device="meta", requires_grad=bool(options)) for s in shapes]
    return count(model, *inputs, **options)


def of_contractions(report: Report, case: dict[str, Any], phase: str) -> int:
    """A phase in the unit of the case, where one multiply-add is one MAC or two FLOPs and nothing else is counted."""
    return report.phases[phase].macs * {"MAC": 1, "FLOP": 2}[case["unit"]]


# -- the cases -------------------------------------------------------------------------------------------------------

COUNTED = [name for name in UNIVERSAL if CASES[name]["unit"] in ("MAC", "FLOP")]
FORWARD = [name for name in COUNTED if CASES[name]["mode"] == "forward"]
BACKWARD = [name for name in COUNTED if CASES[name]["mode"] == "forward+backward"]


@pytest.mark.parametrize("name", FORWARD)
def test_a_forward_pass_has_the_published_count(name: str, count: Any) -> None:
    case = CASES[name]
    report = counted(name, count)
    expected = case["expected"]
    assert of_contractions(report, case, "forward") == expected.get("total", expected.get("forward"))
    kinds = {group.key: group.stats.macs for group in report.by_kind()}
    for kind, macs in expected.get("by_op", {}).items():
        assert kinds[kind] == macs
    for path, macs in expected.get("by_module", {}).items():
        assert report.module(path).total.macs == macs
    if "params" in expected:
        assert report.totals.params == expected["params"]


@pytest.mark.parametrize("name", [name for name in BACKWARD if "forward" in CASES[name]["expected"]])
def test_a_backward_pass_has_the_published_count(name: str, count: Any) -> None:
    case = CASES[name]
    report = counted(name, count, backward=True)
    for phase in ("forward", "backward"):
        assert of_contractions(report, case, phase) == case["expected"][phase]


def test_two_passes_have_the_published_count(count: Any) -> None:
    case = CASES["torch/backward_twice"]
    passes = [counted("torch/backward_twice", count, backward=True) for _ in range(2)]
    found = sum(of_contractions(report, case, phase) for report in passes for phase in ("forward", "backward"))
    assert found == case["expected"]["total"]


def test_attention_has_the_published_count_with_its_backward_pass(count: Any) -> None:
    case = CASES["torch/sdpa_uniform"]
    fused = counted("torch/sdpa_uniform", count, backward=True)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        math = counted("torch/sdpa_uniform", count, backward=True)
    for report, key in ((fused, "forward+backward_flash_or_efficient"), (math, "forward+backward_math")):
        found = of_contractions(report, case, "forward") + of_contractions(report, case, "backward")
        assert found == case["expected"][key]


def test_the_flash_kernel_has_the_published_backward_count(count: Any) -> None:
    case = CASES["torch/flash_layout"]
    report = counted("torch/flash_layout", count, backward=True)
    assert of_contractions(report, case, "backward") == case["expected"]["backward"]


def test_activations_are_the_published_ones(count: Any) -> None:
    expected = CASES["fvcore/act_conv3"]["expected"]
    report = counted("fvcore/act_conv3", count)
    assert report.totals.activations == expected["activations"]
    found = {path: report.module(path).total.activations for path in expected["activations_by_module"]}
    assert found == expected["activations_by_module"]


def test_parameters_are_the_published_ones(count: Any) -> None:
    report = counted("fvcore/params_shared_weight", count)
    assert report.totals.params == CASES["fvcore/params_shared_weight"]["expected"]["params"]
    assert [parameter.names for parameter in report.shared] == [("conv1.weight", "conv2.weight")]


def test_a_layer_called_several_times_has_its_parameters_once(count: Any) -> None:
    assert counted("fvcore/repeated", count).totals.params == 2 * (10 * 10 + 10)


def test_the_universal_part_of_a_case_of_convention_holds_too(count: Any) -> None:
    expected = CASES["fvcore/threenet"]["expected"]
    report = counted("fvcore/threenet", count)
    kinds = {group.key: group.stats.macs for group in report.by_kind()}
    assert (kinds["conv"], kinds["matmul"]) == (expected["by_op"]["conv"], expected["by_op"]["linear"])
    ptflops = counted("ptflops/conv", count)
    outputs = ptflops.outputs[0].numel
    assert ptflops.totals.macs + outputs == CASES["ptflops/conv"]["expected"]["total"]
    assert ptflops.totals.params == CASES["ptflops/conv"]["expected"]["params"]


def test_every_universal_case_is_tested() -> None:
    apart = {"fvcore/act_conv3", "fvcore/params_shared_weight", "torch/backward_twice"}
    backward = {name for name in BACKWARD if "forward" in CASES[name]["expected"]}
    assert set(UNIVERSAL) == set(FORWARD) | backward | apart
