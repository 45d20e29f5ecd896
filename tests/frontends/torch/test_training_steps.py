"""Steps of several passes, and gradients that are kept as zeros: `accumulate=4`, `zero_grad="zero"`."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from helpers_live import Live, work
from torch import Tensor, nn

import opcost
from opcost.errors import ForwardError, InputError, UnknownName

N, K, M = 8, 16, 32
PARAMS = K * M + M + M * K


class Net(nn.Module):
    """Two layers, the second without a bias, and a loss."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(K, M), nn.Linear(M, K, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(F.gelu(self.first(x))).square().mean()


def rows() -> Tensor:
    return torch.randn(N, K)


def real(model: nn.Module, x: Tensor, step: int, *, zero_grad: str, accumulate: int) -> tuple[Live, Live, int]:
    """The last pass and the update of a real step, and the bytes of gradients that are there before the step."""
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    for _ in range(step):
        before = sum(p.grad.nbytes for p in model.parameters() if p.grad is not None)
        for _ in range(accumulate):
            with Live() as last:
                model(x).backward()
        with Live() as update:
            optimizer.step()
            optimizer.zero_grad(set_to_none=zero_grad == "none")
    return last, update, before


@pytest.mark.parametrize(("accumulate", "zero_grad"), [(1, "none"), (1, "zero"), (3, "none"), (3, "zero")])
def test_it_is_what_the_last_pass_and_the_update_of_a_real_step_run(accumulate: int, zero_grad: Any) -> None:
    model, x = Net(), rows()
    last, update, before = real(model, x, 2, zero_grad=zero_grad, accumulate=accumulate)
    report = opcost.count(model, x, optimizer="AdamW", accumulate=accumulate, zero_grad=zero_grad)
    found = work(report)
    assert found[: len(last.work)] == last.work
    # In the first step state is made, and a real one reads numbers from it.
    apart = ("aten::zeros_like", "aten::lift_fresh", "aten::_local_scalar_dense", "profiler::")
    assert [op for op in found[len(last.work) :] if not op[0].startswith(apart)] == [
        op for op in update.work if not op[0].startswith(apart)
    ]
    # What is there before the step.
    plain = opcost.count(model, x, optimizer="AdamW")
    assert report.memory.base_bytes - plain.memory.base_bytes == before == (4 * PARAMS if zero_grad == "zero" else 0)
    # What the last pass holds at most above that; gradients of passes before are carried into it.
    carried = 4 * PARAMS if accumulate > 1 and zero_grad == "none" else 0
    passes = [size for size, row in zip(report.memory.curve, report.rows, strict=True) if row.op.phase != "update"]
    seed = 4  # a loss begins with one number, which a count lets go when it was read
    assert last.peak - (max(passes) - report.memory.base_bytes - carried) in (0, seed)


def test_the_peak_of_a_real_run_is_that_of_a_run_without_data() -> None:
    model, x = Net(), rows()
    for options in ({"zero_grad": "zero"}, {"accumulate": 2}, {"accumulate": 2, "zero_grad": "zero"}):
        dataless, real = (opcost.count(model, x, optimizer="AdamW", real=real, **options) for real in (False, True))
        assert (dataless.memory.peak_bytes, dataless.memory.parts) == (real.memory.peak_bytes, real.memory.parts)
        assert all(p.grad is None for p in model.parameters())
        assert all(not p._backward_hooks for p in model.parameters())


def test_totals_are_those_of_the_whole_step() -> None:
    model, x = Net(), rows()
    once, four = (opcost.count(model, x, optimizer="sgd", accumulate=passes) for passes in (1, 4))
    product = N * K * M
    assert once.totals.macs == 2 * product + 3 * product  # the input needs no gradient
    assert four.totals.macs == 4 * once.totals.macs
    assert four.totals.params == once.totals.params
    assert four.phases["forward"] == once.phases["forward"] * 4
    assert four.phases["update"] == once.phases["update"]
    # The first pass makes gradients, the three others add to them: one addition for each element.
    assert four.phases["backward"].flops == 4 * once.phases["backward"].flops + 3 * PARAMS
    added = [row for row in four.rows if row.op.raw == "aten::add_" and row.op.phase == "backward"]
    assert {row.op.repeat for row in added} == {3}
    assert [row.op.module for row in added] == ["second", "first", "first"]
    assert four.module("first").calls == 4
    assert four.meta["accumulate"] == "4"
    assert "a step of 4 passes" in next(note.text for note in four.notes if note.code == "accumulate")
    zero = opcost.count(model, x, optimizer="sgd", accumulate=4, zero_grad="zero")
    assert zero.phases["backward"].flops == 4 * once.phases["backward"].flops + 4 * PARAMS


def test_gradients_are_kept_while_a_later_pass_runs() -> None:
    model = nn.Linear(1024, 1024, bias=False)
    weight, row = 1024 * 1024 * 4, 1024 * 4
    once, more = (
        opcost.count(model, torch.zeros(1, 1024), backward=True, accumulate=passes).memory for passes in (1, 2)
    )
    assert once.peak_bytes - once.base_bytes == weight + 2 * row  # the gradient; the result and what it begins with
    assert more.base_bytes == once.base_bytes == weight + row
    assert (
        more.peak_bytes - more.base_bytes == 2 * weight + 2 * row
    )  # the gradients, and the new one before it is added
    assert more.parts["gradients"] == weight
    assert more.curve[0] == more.base_bytes + weight


def test_zeros_are_there_before_the_step_and_are_written_after_it() -> None:
    report = opcost.count(Net(), rows(), backward=True, zero_grad="zero")
    assert report.memory.parts["gradients"] == 4 * PARAMS
    zeroed = [row for row in report.rows if row.op.raw == "aten::zero_"]
    assert [row.op.phase for row in zeroed] == ["update"] * 3
    assert sum(row.cost.bytes_written for row in zeroed) == 4 * PARAMS
    together = opcost.count(Net(), rows(), optimizer="AdamW", zero_grad="zero", device="h200")
    assert [row.op.raw for row in together.rows if "zero_" in row.op.raw] == ["aten::_foreach_zero_"]


def test_a_weight_that_is_used_twice_is_added_to_once_and_one_that_is_not_used_never() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.idle = nn.Linear(K, K, bias=False), nn.Linear(K, K)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(self.layer(x))

    report = opcost.count(Tied(), rows(), backward=True, accumulate=2)
    added = [row for row in report.rows if row.op.raw == "aten::add_"]
    assert len(added) == 1
    assert report.memory.parts["gradients"] == 4 * K * K


def test_mixed_gradients_are_added_in_the_type_of_the_weight() -> None:
    report = opcost.count(Net(), rows(), backward=True, accumulate=2, precision="bf16-mixed", checkpoint="first")
    added = [row for row in report.rows if row.op.raw == "aten::add_"]
    assert {spec.dtype for row in added for spec in row.ins} == {"float32"}


def test_conventions_of_papers_count_the_tokens_of_all_passes() -> None:
    from opcost.analysis.join import step_flops
    from opcost.core.devices import device

    model = nn.Sequential(nn.Embedding(K, K), nn.Linear(K, K))
    tokens = torch.zeros(2, 8, dtype=torch.int64)
    once, more = (opcost.count(model, tokens, backward=True, accumulate=passes) for passes in (1, 3))
    for convention in ("executed", "6N"):
        assert (
            step_flops(more, device("h200"), convention).flops == 3 * step_flops(once, device("h200"), convention).flops
        )


def test_a_prediction_is_of_the_whole_step() -> None:
    model, x = Net(), rows()
    once, more = (opcost.predict(model, x, optimizer="AdamW", accumulate=passes) for passes in (1, 5))
    added = {row.id for row in more.rows if row.type == "aten::add_" and row.phase == "backward"}
    assert [row.count for row in more.rows if row.id in added] == [4] * 3
    five, one = (
        sum(row.device_ns for row in found.rows if row.phase != "update" and not (found is more and row.id in added))
        for found in (more, once)
    )
    assert five == pytest.approx(5 * one, rel=1e-3)
    zeroed = opcost.predict(model, x, optimizer="AdamW", zero_grad="zero")
    assert sum(row.device_ns for row in zeroed.rows if row.type.endswith("zero_")) > 0
    merged = opcost.predict(model, x, optimizer="AdamW", accumulate=5, execution="compiled")
    assert any(row.type.startswith("merged") and row.count == 5 for row in merged.rows)
    assert merged.kernel_ns < more.kernel_ns


def test_what_cannot_be_is_refused() -> None:
    model, x = Net(), rows()
    with pytest.raises(InputError, match="accumulate is 0; it must be a whole number above zero"):
        opcost.count(model, x, backward=True, accumulate=0)
    with pytest.raises(UnknownName, match="unknown value of zero_grad 'zeros'; did you mean 'zero'"):
        opcost.count(model, x, backward=True, zero_grad="zeros")
    with pytest.raises(InputError, match="accumulate is about a training step, and no backward pass is counted"):
        opcost.count(model, x, accumulate=2)
    sparse = nn.Sequential(nn.Embedding(K, K, sparse=True), nn.Linear(K, K))
    tokens = torch.zeros(N, dtype=torch.int64)
    with pytest.raises(ForwardError, match=r"the gradient of 0\.weight is sparse"):
        opcost.count(sparse, tokens, backward=True, accumulate=2, real=True)
