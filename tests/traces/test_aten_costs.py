"""What the operators of a real PyTorch trace cost, from its shapes alone, against the count of the same model."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

import opcost
from opcost.analysis.join import with_costs
from opcost.core.profile import ProfileRow
from opcost.rules import default_rules
from opcost.traces.kineto.operators import TracedOperator, traced_operator


class Net(nn.Module):
    """Lookups, attention, norms, pools and activations, so that their gradients are in the trace too."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(50, 32)
        self.block = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, activation="gelu", dropout=0.0)
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.head = nn.Linear(4 * 3 * 5, 10)

    def forward(self, tokens: Tensor, target: Tensor) -> Tensor:
        x = self.block(self.table(tokens))
        x = F.relu(self.norm(self.conv(x[:, None])))
        x = F.max_pool2d(x, 3, stride=2, padding=1, ceil_mode=True)
        x = F.adaptive_avg_pool2d(F.avg_pool2d(F.hardswish(x), 2, ceil_mode=True), (3, 5))
        z = self.head(x.flatten(1)).index_select(1, torch.arange(7))
        z = z.gather(1, torch.zeros(2, 5, dtype=torch.int64))
        z = torch.sigmoid(z) * torch.tanh(z) + z.mean(1, keepdim=True) + z.sum()
        return F.cross_entropy(z.softmax(1), target)


INPUTS = (torch.arange(32).reshape(2, 16) % 50, torch.tensor([1, 2]))
GRADIENTS = (
    "_scaled_dot_product_flash_attention_for_cpu_backward native_layer_norm_backward native_batch_norm_backward "
    "max_pool2d_with_indices_backward avg_pool2d_backward _adaptive_avg_pool2d_backward threshold_backward "
    "hardswish_backward sigmoid_backward tanh_backward _softmax_backward_data _log_softmax_backward_data "
    "nll_loss_backward embedding_dense_backward"
).split()
FORWARD = (
    "_scaled_dot_product_flash_attention_for_cpu native_layer_norm native_batch_norm max_pool2d_with_indices avg_pool2d "
    "_adaptive_avg_pool2d hardswish sigmoid tanh _softmax _log_softmax nll_loss_forward gather"
).split()


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> tuple[ProfileRow, ...]:
    net = Net()
    net(*INPUTS).backward()
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as recorded:
        net(*INPUTS).backward()
    path = tmp_path_factory.mktemp("trace") / "trace.json"
    recorded.export_chrome_trace(str(path))
    return with_costs(opcost.read_profile(path), default_rules()).rows


@pytest.fixture(scope="module")
def counted() -> opcost.Report:
    return opcost.count(Net(), INPUTS, backward=True)


@pytest.mark.parametrize("name", [*FORWARD, *GRADIENTS])
def test_a_traced_operator_costs_what_the_same_operator_costs_in_a_count(
    name: str, rows: tuple[ProfileRow, ...], counted: opcost.Report
) -> None:
    raw = f"aten::{name}"
    traced: Counter[tuple[int, ...]] = Counter()
    for row in rows:
        if row.type == raw:
            cost = row.cost
            assert cost is not None
            traced[cost.macs, cost.flops, cost.bytes_read, cost.bytes_written] += 1
    expected: Counter[tuple[int, ...]] = Counter()
    for row in counted.rows:
        if row.op.raw == raw:
            assert row.cost is not None
            expected[row.cost.macs, row.cost.flops, row.cost.bytes_read, row.cost.bytes_written] += 1
    assert traced == expected
    assert traced


def test_views_are_free_and_nothing_is_counted_twice(rows: tuple[ProfileRow, ...]) -> None:
    kinds = Counter((row.type, row.kind) for row in rows)
    assert kinds["aten::as_strided", "view"] > 0
    # What PyTorch takes apart, and a convolution around that of a library, give way to the inner one that does the work.
    assert {kind for name, kind in kinds if name in ("aten::transpose", "aten::adaptive_avg_pool2d")} == {""}
    assert {kind for name, kind in kinds if name in ("aten::conv2d", "aten::convolution")} == {""}
    # What a count shows whole keeps its cost, and what it calls has its kind and no cost.
    for outer, inner, kind in (("mean", "sum", "reduce"), ("embedding", "index_select", "embedding")):
        covered = [row for row in rows if row.type == f"aten::{inner}" and _lies_in(row, f"aten::{outer}", rows)]
        assert {(row.kind, row.cost) for row in covered} == {(kind, None)}
        assert all(row.cost is not None for row in rows if row.type == f"aten::{outer}")
    for kind in ("create", "copy", "view", "matmul", "reduce", "pool"):
        times = sorted(
            (row.stream, row.host_start_ns, row.host_start_ns + row.host_ns)
            for row in rows
            if row.kind == kind and row.cost is not None
        )
        assert times
        assert all(start >= end for (a, _, end), (b, start, _) in pairwise(times) if a == b), f"{kind} inside {kind}"


def _lies_in(row: ProfileRow, outer: str, rows: tuple[ProfileRow, ...]) -> bool:
    around = (each for each in rows if each.type == outer and each.stream == row.stream)
    return any(each.host_start_ns <= row.host_start_ns < each.host_start_ns + each.host_ns for each in around)


@pytest.mark.parametrize(
    ("values", "shape"),
    [
        (["", "[0]", "False", ""], (3, 4)),
        (["", "[-1, 0]", "True", ""], (1, 3, 1)),
        (["", "[]", "False", ""], ()),
        (["", ""], ()),
    ],
)
def test_a_sum_reads_its_input_once_and_writes_what_is_left(values: list[str], shape: tuple[int, ...]) -> None:
    dims, types = [[2, 3, 4], *([[]] * (len(values) - 1))], ["float", *map(_word, values[1:])]
    found = traced_operator("aten::sum", *(json.dumps(each).encode() for each in (dims, types, values, [])))
    assert (found.kind, [spec.shape for spec in found.ins]) == ("reduce", [(2, 3, 4)])
    assert [spec.shape for spec in found.outs] == [shape]


def _word(value: str) -> str:
    """How the profiler calls what it writes so."""
    return "ScalarList" if value.startswith("[") else "Scalar" if value else ""


def test_a_sum_over_unknown_axes_has_a_kind_and_no_results() -> None:
    found = traced_operator("aten::sum", b"[[2, 3], [], []]", b'["float", "ScalarList", "Scalar"]', b"", b"")
    assert (found.kind, [spec.shape for spec in found.ins], found.outs) == ("reduce", [(2, 3)], ())


def test_the_name_alone_gives_the_kind_where_a_trace_has_no_shapes() -> None:
    assert traced_operator("aten::conv2d", b"", b"", b"", b"") == TracedOperator("conv", ())
    assert traced_operator("aten::gelu_backward", b"", b"", b"", b"") == TracedOperator("elementwise", ())
    assert traced_operator("mylib::conv2d", b"", b"", b"", b"") == TracedOperator("", ())


def test_rows_are_picked_along_an_axis() -> None:
    said = ([[5, 6, 7], [], [4]], ["float", "Scalar", "long int"], ["", "-2", ""], [])
    found = traced_operator("aten::index_select", *(json.dumps(each).encode() for each in said))
    assert (found.kind, found.outs[0].shape) == ("gather", (5, 4, 7))
