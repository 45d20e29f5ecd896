"""What kernels take for themselves, by the nearest operators that were measured."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import opcost
from opcost.analysis.prediction.speeds import Workspaces, fit_laws
from opcost.core.graph import Op, TensorSpec
from opcost.core.report import Row
from opcost.devices.calibration import Calibration, Measured
from opcost.errors import UnknownName
from opcost.frontends.torch.recording import recorder
from opcost.rules import default_rules

WEIGHT, SMALL = TensorSpec((64, 64, 3, 3), "bfloat16"), TensorSpec((64, 64, 1, 1), "bfloat16")
ATTRS: dict[str, int] = {}


def image(extent: int) -> TensorSpec:
    return TensorSpec((8, 64, extent, extent), "bfloat16")


def measured(weight: TensorSpec, extent: int, workspace: int) -> Measured:
    ins = image(extent), weight
    return Measured("conv", "aten::convolution", ATTRS, ins, (image(extent),), 1000, 0, workspace)


def convolution(weight: TensorSpec, extent: int) -> Row:
    op = Op(0, "conv", "aten::convolution", (0, 1), (2,), ATTRS)
    return Row(op, (image(extent), weight), (image(extent),), None, "conv")


def test_the_share_of_the_tensors_is_that_of_the_nearest_operator() -> None:
    # A window of three by three is brought into another order first, one of one by one is not.
    whole = 2 * image(28).nbytes + WEIGHT.nbytes
    rows = (measured(WEIGHT, 28, whole), measured(SMALL, 28, 0))
    found = Workspaces(fit_laws(Calibration(device="h200", meta={}, position=2, rows=rows), default_rules()).workspaces)
    assert found.of(convolution(WEIGHT, 56)) == 2 * image(56).nbytes + WEIGHT.nbytes
    assert found.of(convolution(SMALL, 56)) == 0


def test_an_operator_of_which_nothing_was_measured_takes_none() -> None:
    empty = Workspaces({})
    assert empty.of(convolution(WEIGHT, 28)) == 0


def test_a_device_hands_out_whole_blocks() -> None:
    model = nn.Sequential(nn.Linear(3, 5), nn.Tanh())
    plain, on_gpu = (opcost.count(model, torch.zeros(1, 3), device=device).memory for device in (None, "h200"))
    assert plain.base_bytes == (3 * 5 + 5 + 3) * 4
    assert on_gpu.base_bytes == 3 * 512  # weight, bias, input
    assert on_gpu.peak_bytes == (3 + 2) * 512
    assert (plain.device, on_gpu.device) == ("", "h200")


def test_a_block_keeps_a_rest_that_is_not_worth_splitting() -> None:
    # One of 12 MiB is gone when another of 11.5 MiB is made, which gets its block whole; so does one in a new segment, as these
    # come in steps of 2 MiB. Beside them are a handful of single bytes.
    mib = 1 << 20
    first, second, third = 12 * mib, 23 * mib // 2, 23 * mib // 2

    class Net(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            scalar = torch.zeros(first, dtype=torch.uint8)[0] + x
            other = torch.zeros(second, dtype=torch.uint8)
            last = torch.zeros(third, dtype=torch.uint8)
            return last[0] + other[0] + scalar

    memory = opcost.count(Net(), torch.zeros(1, dtype=torch.uint8), device="h200").memory
    assert memory.peak_bytes - 2 * 12 * mib in range(8 * 512)
    # What is small shares 2 MiB, and libraries have theirs.
    assert memory.reserved_bytes == (2 + 34 + 12 + 12) * mib
    assert memory.fixed_bytes == 740 * mib


def test_a_convolution_on_a_device_takes_a_workspace() -> None:
    model, x = nn.Conv2d(64, 128, 3, padding=1).bfloat16(), torch.zeros(8, 64, 56, 56, dtype=torch.bfloat16)
    memory = opcost.count(model, x, device="h200").memory
    # As measured on many of this kind: its image, weight and result once more.
    again = (8 * 64 * 56 * 56 + 8 * 128 * 56 * 56 + 128 * 64 * 9) * 2
    assert 0.85 * again <= memory.parts["workspace"] <= 1.15 * again + (1 << 20)  # a block keeps a rest of up to 1 MiB
    assert sum(memory.parts.values()) == memory.peak_bytes


def test_attention_by_products_asks_of_every_score_whether_it_is_hidden() -> None:
    # Heads that share keys have no kernel in float32. On an H200 there were scores, their softmax, and a byte of each.
    query, key = torch.zeros(1, 8, 1024, 64), torch.zeros(1, 2, 1024, 64)

    def heads(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        return nn.functional.scaled_dot_product_attention(q, k, k, enable_gqa=True)

    report = opcost.count(heads, (query, key), device="h200")
    scores = 8 * 1024 * 1024
    assert report.rows[report.memory.at].op.raw == "aten::_safe_softmax"
    assert report.memory.parts["workspace"] == scores
    assert report.memory.peak_bytes > 2 * 4 * scores + scores


def test_on_a_device_an_optimizer_updates_all_parameters_at_once() -> None:
    model, x = nn.Sequential(*(nn.Linear(512, 512, bias=False) for _ in range(4))), torch.zeros(1, 512)
    one, size = 512 * 512 * 4, 4 * 512 * 512 * 4
    alone, together = (opcost.count(model, x, optimizer="Adam", device=device).memory for device in (None, "h200"))
    # Gradients of all, and roots of second moments: all at once; or one after another, the root and what it is divided to,
    # while a variable still holds that of the parameter before. The output is still there.
    output = 512 * 4
    assert alone.peak_bytes - alone.base_bytes == size + 3 * one + output
    assert together.peak_bytes - together.base_bytes == size + size + output


def test_a_long_run_says_that_its_memory_is_not_estimated_for_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "REPLAYS_AFTER", 0)
    report = opcost.count(nn.Linear(2, 2), torch.zeros(1, 2), device="h200")
    assert report.memory.device == ""
    assert [note.code for note in report.notes] == ["memory"]


def test_an_unknown_device_is_refused() -> None:
    with pytest.raises(UnknownName, match="h2000"):
        opcost.count(nn.Linear(2, 2), torch.zeros(1, 2), device="h2000")
