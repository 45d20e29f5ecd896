"""Memory as eager PyTorch holds it: storages live until Python and autograd let go of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

import opcost
from opcost.errors import InputError, OpcostError
from opcost.views.summary import layers_of

MIB = 2**20


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(64, 64), nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.first(x))
        return x + self.second(y).sin()


class Looping(nn.Module):
    """A recurrence in Python, with views and writing in place."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state, out = x[0], torch.zeros_like(x)
        for step in range(x.shape[0]):
            state = self.cell(x[step], state)
            out[step] = state.tanh()
        return out


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.keys = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.scaled_dot_product_attention(x, self.keys(x), x + 1, is_causal=True)


NETS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "residual": (Residual, (8, 64)),
    "loop": (Looping, (7, 3, 16)),
    "convolutions": (
        lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2)),
        (2, 3, 16, 16),
    ),
    "attention": (Attention, (2, 4, 10, 16)),
    "norms": (
        lambda: nn.Sequential(nn.LayerNorm(64), nn.GELU(), nn.Dropout(0.1), nn.Linear(64, 8), nn.Softmax(-1)),
        (4, 64),
    ),
}


@pytest.mark.parametrize("training", [False, True], ids=["forward", "training"])
@pytest.mark.parametrize("name", NETS)
def test_tensors_without_data_live_as_long_as_real_ones(name: str, training: bool) -> None:
    make, shape = NETS[name]
    model, x = make().train(training), torch.randn(shape, requires_grad=training)
    optimizer = "Adam" if training else None
    dataless = opcost.count(model, x, optimizer=optimizer, real=False).memory
    real = opcost.count(model, x, optimizer=optimizer, real=True).memory
    if training:  # the real one runs a few more views, by which operators have other numbers
        dataless, real = (replace(memory, at=0, curve=()) for memory in (dataless, real))
    assert dataless == real
    assert dataless.how == "lifetimes"


def test_a_caller_holds_what_it_passed_until_the_call_is_over() -> None:
    # x is the caller's, and so is `first` while the second layer runs, although nothing reads it after its activation.
    model, size = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64)), 8 * 64 * 4
    memory = opcost.count(model, torch.zeros(8, 64)).memory
    weights = 2 * (64 * 64 + 64) * 4
    assert memory.base_bytes == weights + size
    assert memory.peak_bytes == weights + 3 * size  # x, the result of the layer before, the result
    assert memory.parts == {"weights": weights, "inputs": size, "temporary": 2 * size}


def test_a_local_variable_holds_its_tensor_until_it_ends() -> None:
    class Keeps(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            first = x.sin()  # noqa: F841 - kept alive although nothing reads it
            return x.cos().exp()

    # first, the cosine and the result at once; freed after their last readers it would be two.
    memory = opcost.count(Keeps(), torch.zeros(256)).memory
    assert memory.peak_bytes - memory.base_bytes == 3 * 1024


def test_gradients_stay_until_the_step_is_over() -> None:
    model = nn.Linear(2048, 4096, bias=False)  # 32 MiB
    memory = opcost.count(model, torch.zeros(1, 2048), backward=True).memory
    assert memory.parts["weights"] == memory.parts["gradients"] == 32 * MIB
    assert memory.base_bytes == 32 * MIB + 2048 * 4


def test_an_optimizer_remembers_from_step_to_step() -> None:
    model = nn.Linear(2048, 4096, bias=False)
    memory = opcost.count(model, torch.zeros(1, 2048), optimizer="AdamW").memory
    step = 4  # a number in float32
    assert memory.parts["optimizer"] == 2 * 32 * MIB + step
    assert memory.base_bytes == 3 * 32 * MIB + 2048 * 4 + step
    # The update: gradients, the root of the second moment with what it is divided to, and the output, which is still there.
    assert memory.peak_bytes - memory.base_bytes == 3 * 32 * MIB + 4096 * 4
    assert opcost.count(model, torch.zeros(1, 2048)).memory.peak_bytes < 33 * MIB


def test_of_a_model_with_a_loss_only_the_loss_stays_for_the_backward_pass() -> None:
    class Labelled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(2048, 4096, bias=False)

        def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
            logits = self.head(x)
            return {"loss": (logits.sum() - labels) * 2, "logits": logits}

    given = {"x": torch.zeros(1, 2048), "labels": torch.zeros(())}
    memory = opcost.count(Labelled(), kwargs=given, optimizer="AdamW").memory
    # The update as above, and of the outputs the loss: the logits are freed before gradients begin.
    assert memory.peak_bytes - memory.base_bytes == 3 * 32 * MIB + 4
    assert memory.parts["outputs"] == 4


def test_what_a_block_runs_is_followed_as_well() -> None:
    x = torch.zeros(4, 8)
    with opcost.recording() as recording:
        y = x.sin()
        y = y.cos()
        del y
        z = x.sum()
    size = 4 * 8 * 4
    assert list(recording.report.memory.curve) == [2 * size, 3 * size, size + 4]
    assert z.shape == ()


class Talkative(nn.Module):
    """Runs operators to describe itself, as quantized layers do."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)

    def extra_repr(self) -> str:
        return f"mean={torch.ones(3).add(1).mean().item()}"


def test_operators_of_an_extra_repr_are_not_the_model_s() -> None:
    report = opcost.count(Talkative(), torch.ones(2, 4))
    assert [row.op.raw for row in report.rows] == ["aten::t", "aten::mm"]
    assert report.modules[0].extra == "mean=2.0"
    assert report.peak_bytes == 4 * (4 * 4 + 2 * 4 + 2 * 4)


class Long(nn.Module):
    """Enough operators for a run that is stored as patterns."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(5000):
            x = x + 1
        return x


@pytest.mark.parametrize(
    ("net", "account", "flops"),
    [(nn.Linear(4, 4, bias=False), "costing.memory", 2 * 2 * 4 * 4), (Long(), "costing.follow", 5000 * 2 * 4)],
)
def test_a_memory_account_that_fails_leaves_the_counts(
    net: nn.Module, account: str, flops: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fails(*_: object) -> None:
        raise IndexError("a tensor that is not there")

    monkeypatch.setattr(f"opcost.analysis.{account}", fails)
    report = opcost.count(net, torch.ones(2, 4))
    assert report.totals.flops == flops
    assert report.coverage.complete
    assert report.memory is None
    assert report.peak_bytes is None
    (note,) = [note.text for note in report.notes if note.code == "no-memory"]
    assert note.endswith("IndexError: a tensor that is not there")
    assert str(report).count("peak memory") == str(report).count("peak memory unknown") == 1
    assert note in " ".join(str(report).split())
    for suffix in ("json", "html", "md", "csv"):
        report.save(tmp_path / f"report.{suffix}")
    assert opcost.load_report(tmp_path / "report.json") == report
    with pytest.raises(InputError, match="peak_bytes"):
        opcost.check(report, peak_bytes="<1GiB")
    with pytest.raises(OpcostError, match="a tensor that is not there"):
        report.render("memory")


class Kept:
    """An object that holds a tensor, as a cache does."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor


class Growing(nn.Module):
    def forward(self, kept: Kept | tuple[torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        if isinstance(kept, Kept):
            kept.tensor = torch.cat([kept.tensor, x])
            return x.sin()
        longer = torch.cat([kept[0], x])
        return longer[-1].sin()


@pytest.mark.parametrize("real", [False, True])
def test_what_an_input_object_holds_is_freed_when_the_run_replaces_it(real: bool) -> None:
    old, new = torch.zeros(1000, 4), torch.zeros(1, 4)
    given = 1000 * 4 * 4 + 4 * 4
    memory = opcost.count(Growing(), (Kept(old), new), real=real).memory
    assert (memory.base_bytes, memory.peak_bytes) == (given, given + 1001 * 4 * 4)
    assert list(memory.curve) == [memory.peak_bytes, 4 * 4 + 1001 * 4 * 4 + 4 * 4]  # the old tensor is gone
    assert old.shape == (1000, 4)


@pytest.mark.parametrize("real", [False, True])
def test_a_tensor_that_is_passed_itself_stays_the_callers(real: bool) -> None:
    old, new = torch.zeros(1000, 4), torch.zeros(1, 4)
    given = 1000 * 4 * 4 + 4 * 4
    memory = opcost.count(Growing(), ((old,), new), real=real).memory
    assert (memory.base_bytes, memory.peak_bytes) == (given, given + 1001 * 4 * 4 + 4 * 4)


def test_a_tensor_that_two_inputs_share_is_freed_with_the_last_of_them() -> None:
    old, new = torch.zeros(1000, 4), torch.zeros(1, 4)
    both = opcost.count(lambda first, second, x: Growing()(first, x), (Kept(old), Kept(old[:10]), new)).memory
    assert both.curve[-1] == 1000 * 4 * 4 + 1001 * 4 * 4 + 2 * 4 * 4


def test_a_graph_shows_inputs_that_the_run_frees_as_a_curve_of_their_own() -> None:
    memory = opcost.count(Growing(), (Kept(torch.zeros(1000, 4)), torch.zeros(1, 4))).memory
    for shown in (memory, replace(memory, layers={})):
        standing, passing = layers_of(shown)
        whole = [sum(standing.values()) + sum(sizes) for sizes in zip(*passing.values(), strict=True)]
        assert whole == list(memory.curve)
        assert all(size >= 0 for curve in passing.values() for size in curve)


def test_a_long_run_frees_what_it_replaces_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    from opcost.frontends.torch.recording import recorder

    kept = [Kept(torch.zeros(1000, 4)) for _ in range(20)]
    grow = Growing()

    def forward(caches: list[Kept], x: torch.Tensor) -> torch.Tensor:
        for cache in caches:
            x = grow(cache, x)
        return x

    short = opcost.count(forward, (kept, torch.zeros(1, 4))).memory
    monkeypatch.setattr(recorder, "REPLAYS_AFTER", 4)
    long = opcost.count(forward, (kept, torch.zeros(1, 4))).memory
    assert long.how == "last reader"
    assert short.peak_bytes - short.base_bytes < 2 * 1000 * 4 * 4
    assert long.peak_bytes - long.base_bytes < 2 * 1000 * 4 * 4
