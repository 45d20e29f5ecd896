"""What a compiled forward pass keeps for the backward pass: minimum cuts of models small enough to see them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import opcost
from opcost.analysis.compiled.partition import with_recomputation
from opcost.analysis.prediction.fusion import compiled, memory_of_kernels
from opcost.api import count_graph, on_device

pytestmark = pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")
N, MIB = 1024, 1 << 20
SIZE = 4 * N * N
"""Bytes of each matrix: 4 MiB."""


class Net(nn.Module):
    """A product, a chain of simple operators, and another product."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = (nn.Linear(N, N, bias=False, device="meta") for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        y = F.silu(self.a(x)) * 2.0
        return self.b(y.sigmoid()).square().mean()


def halves(report: opcost.Report) -> tuple[list[Any], list[Any]]:
    forward, backward = ([row for row in report.rows if row.op.phase == phase] for phase in ("forward", "backward"))
    return forward, backward


def test_the_results_of_products_are_kept_and_simple_ones_computed_again() -> None:
    report = opcost.count(Net(), torch.empty(N, N), backward=True)
    forward, backward = halves(report)
    first = 1 + max(value for row in report.rows for value in row.op.outputs)
    found, fresh = with_recomputation(forward, backward, first)
    again = [row.op.raw for row in found[: len(found) - len(backward)] if row.op.kind != "view"]
    # silu and its double for the gradient of the sigmoid, which needs its own result
    assert again == ["aten::silu", "aten::mul", "aten::sigmoid"]
    new = {value for row in found for value in row.op.inputs if value >= first}
    assert new <= set(range(first, fresh))
    made = {value: row for row in forward for value in row.op.outputs}
    read = {made[value].op.kind for row in found for value in row.op.inputs if value in made}
    assert read == {"matmul", "reduce"}  # the last is the loss, of one number
    assert all(row.op.phase == "backward" for row in found)


def test_a_backward_pass_that_reads_nothing_stays_as_it_is() -> None:
    report = opcost.count(Net(), torch.empty(N, N), backward=True)
    _, backward = halves(report)
    assert with_recomputation([], backward, 9) == (backward, 9)


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.a = nn.LayerNorm(N, device="meta"), nn.Linear(N, N, bias=False, device="meta")

    def forward(self, x: Tensor) -> Tensor:
        return self.a(self.norm(F.relu(x))).sum()


def test_sums_are_kept_and_what_is_made_with_them_is_computed_again() -> None:
    report = opcost.count(Normed(), torch.empty(N, N), backward=True)
    forward, backward = halves(report)
    first = 1 + max(value for row in report.rows for value in row.op.outputs)
    found, _ = with_recomputation(forward, backward, first)
    again = [row for row in found[: len(found) - len(backward)] if row.op.kind != "view"]
    assert [row.op.raw for row in again] == ["aten::relu", "aten::native_layer_norm"]
    assert again[1].op.kind == "elementwise"
    assert len(again[1].op.outputs) == 1


def test_memory_is_there_where_kernels_write_until_the_last_reader_has_run() -> None:
    """Eagerly the results of the product, silu, its double and the sigmoid are kept; compiled that of the product alone."""
    report, graph = count_graph(Net(), torch.empty(N, N), backward=True, device="h200")
    assert graph is not None
    assert report.memory is not None
    kernels = compiled(report)
    found = memory_of_kernels(kernels, graph, report, on_device("h200", expandable=False))
    assert (found.base_bytes, found.device) == (report.memory.base_bytes, "h200")
    # x, weights and library are there before. The forward pass writes the product, the sigmoid and the second product.
    forward = [kernel for kernel in kernels if kernel.row.op.phase == "forward"]
    sizes = [spec.nbytes for kernel in forward for spec in kernel.row.outs if spec.numel > 1]
    assert sizes.count(SIZE) == 3
    eager = [
        row for row in report.rows if row.op.phase == "forward" and row.op.kind != "view" and row.outs[0].numel > 1
    ]
    assert len(eager) == 6  # two products, silu, its double, sigmoid, square
    # At its end eager execution holds five of these (the square is summed up and gone), compiled the product and its root.
    end = max(kernel.at for kernel in forward)
    assert report.memory.curve[end] - report.memory.base_bytes == pytest.approx(5 * SIZE, abs=MIB)
    assert found.curve[end] - found.base_bytes == pytest.approx(2 * SIZE, abs=MIB)
