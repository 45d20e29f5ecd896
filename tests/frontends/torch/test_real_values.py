"""Control flow on float values: the count goes on with real values by itself, says why, and leaves everything as it was."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from helpers_state import fingerprint
from torch import Tensor, distributions, nn

import opcost
from opcost.compat import fvcore, thop
from opcost.core import progress
from opcost.errors import DataDependent, ForwardError
from opcost.frontends.options import CountOptions
from opcost.frontends.torch.load import load

B, D = 4, 6
"""A batch and a width."""
LAYER = B * D * D
"""MACs of a linear layer from D to D on the whole batch."""
X = torch.arange(B * D, dtype=torch.float32).reshape(B, D) - 5
"""Its first column is -5, 1, 7, 13: three rows have a positive one."""


class Net(nn.Module):
    """A layer, a small float buffer, and a forward that is given."""

    def __init__(self, function: Callable[[Net, Tensor], Any]) -> None:
        super().__init__()
        self.layer = nn.Linear(D, D)
        self.register_buffer("scale", torch.tensor([0.5]))
        self.function = function
        self.calls = 0

    def forward(self, x: Tensor) -> Any:
        self.calls += 1
        return self.function(self, x)


def checked(net: Net, x: Tensor) -> Tensor:
    if x.isnan().any():
        raise ValueError("not a number")
    return net.layer(x)


# What has compiled a model before has turned the argument checks off for the whole process, so they are set here.


def sampled(net: Net, x: Tensor) -> Tensor:
    policy = distributions.Normal(net.layer(x), F.softplus(net.layer(x)), validate_args=True)
    return policy.log_prob(policy.rsample())


def chosen(net: Net, x: Tensor) -> Tensor:
    policy = distributions.Categorical(logits=net.layer(x), validate_args=True)
    return policy.log_prob(policy.sample())


def aligned(net: Net, x: Tensor) -> Tensor:
    steps = net.layer(x).log_softmax(-1).unsqueeze(1)
    return F.ctc_loss(steps, torch.tensor([[1, 2]]), torch.tensor([B]), torch.tensor([2]))


READING: dict[str, tuple[Callable[[Net, Tensor], Any], int]] = {
    # X sums up to 0 + 1 + ... + 23 - 24 * 5 = 156
    "item": (lambda net, x: net.layer(x) if x.sum().item() > 0 else net.layer(net.layer(x)), LAYER),
    "isnan": (checked, LAYER),
    "mask": (lambda net, x: net.layer(x[x[:, 0] > 0]), 3 * D * D),
    "nonzero": (lambda net, x: net.layer(x[(x[:, 0] > 0).nonzero().squeeze(1)]), 3 * D * D),
    "normal": (sampled, 2 * LAYER),
    "categorical": (chosen, LAYER),
    "ctc": (aligned, LAYER),
    "uniform": (lambda net, x: net.layer(x) if torch.empty(1).uniform_().item() < 1 else x, LAYER),
    "float mask": (lambda net, x: net.layer(x) if (x != 0.5).all() else x, LAYER),
    "float buffer": (lambda net, x: net.layer(x) if (2 * net.scale).item() == 1 else x, LAYER),
    "numpy": (lambda net, x: net.layer(torch.from_numpy(net.layer(x).detach().numpy())), 2 * LAYER),
    "format": (lambda net, x: net.layer(x) if f"{x.mean():.1f}" == "6.5" else x, LAYER),
}


@pytest.mark.parametrize("name", READING)
def test_reading_a_float_is_answered_with_real_values_and_a_note_says_where_and_why(name: str) -> None:
    function, macs = READING[name]
    model = Net(function)
    before = fingerprint(model, X)
    report = opcost.count(model, X)
    assert fingerprint(model, X) == before
    assert report.totals.macs == macs
    (note,) = (note for note in report.notes if note.code == "real-values")
    assert "run on its own weights, because" in note.text
    assert "test_real_values.py:" in note.text
    real = opcost.count(model, X, real=True)
    assert [(row.op.raw, row.ins, row.outs) for row in report.rows] == [
        (row.op.raw, row.ins, row.outs) for row in real.rows
    ]
    assert (report.totals, report.peak_bytes) == (real.totals, real.peak_bytes)


# -- indices of winners -----------------------------------------------------------------------------------------------


def stops(ends: Callable[[Tensor], Tensor]) -> Callable[[Net, Tensor], Any]:
    """A loop of at most three turns that ends as generation does, at a certain index."""

    def forward(net: Net, x: Tensor) -> list[Tensor]:
        made = []
        for _ in range(3):
            made.append(net.layer(x))
            if ends(x.argmax(1)).all():
                break
        return made

    return forward


def pooled(net: Net, x: Tensor) -> Tensor:
    """A graph of which the best nodes are kept, and the edges between them."""
    ends = torch.tensor([[0, 2, 0, 1, 3], [1, 3, 2, 3, 2]])
    kept = torch.zeros(B, dtype=torch.bool)
    kept[x[:, 0].topk(2)[1]] = True
    ends = ends[:, kept[ends].all(0)]
    return net.layer(x[ends[0]] - x[ends[1]])


# The largest number of every row is the last, at D - 1 = 5; the largest of the first column is the last as well, at B - 1 = 3.
INDICES: dict[str, tuple[Callable[[Net, Tensor], Any], int]] = {
    "item": (lambda net, x: net.layer(x[: x[:, 0].topk(2)[1][0].item() - 1]), 2 * D * D),
    "index": (lambda net, x: net.layer(x[: x[:, 0].topk(1)[1]]), 3 * D * D),
    "tolist": (lambda net, x: net.layer(x[: x[:, 0].argsort(descending=True).tolist()[0]]), 3 * D * D),
    "numpy": (lambda net, x: net.layer(x[: x.argmax(1).numpy()[0] - 3]), 2 * D * D),
    "sum": (lambda net, x: net.layer(x[: int(x.argmax(1).sum()) - 18]), 2 * D * D),
    "largest": (lambda net, x: net.layer(x[: int(x.argmax(1).max()) - 3]), 2 * D * D),
    "equal": (
        lambda net, x: x if torch.equal(x[:, 0].argsort(descending=True), torch.arange(B)) else net.layer(x),
        LAYER,
    ),
    "smaller": (lambda net, x: net.layer(x) if (x.argmax(1) > 4).all() else x, LAYER),
    "repeated": (lambda net, x: net.layer(x.repeat_interleave(x.argmax(1), 0)), B * (D - 1) * D * D),
    "end": (stops(lambda index: index == D - 1), LAYER),
    "end at the first index": (stops(lambda index: index == 0), 3 * LAYER),
    "end at one of several": (stops(lambda index: torch.isin(index, torch.tensor([4, 5]))), LAYER),
    # Nodes 3 and 2 are chosen, and of the edges those whose ends are both chosen: two of five.
    "kept edges": (pooled, 2 * D * D),
    "no end": (stops(lambda index: index == 2), 3 * LAYER),
}


@pytest.mark.parametrize("name", INDICES)
def test_an_index_that_data_decide_is_that_of_a_run_on_the_weights(name: str) -> None:
    function, macs = INDICES[name]
    report = opcost.count(Net(function), X)
    assert report.totals.macs == macs
    assert [note.code for note in report.notes] == ["real-values"]
    assert report.coverage.complete


@pytest.mark.parametrize("name", INDICES)
def test_without_weights_an_index_is_assumed_and_the_report_is_not_complete(name: str) -> None:
    report = opcost.count(Net(INDICES[name][0]), X, real=False)
    assert {note.code for note in report.notes} == {"assumed"}
    assert not report.coverage.complete
    if "end" in name:  # a loop is counted as long as it can be
        assert report.totals.macs == 3 * LAYER


def test_a_saved_report_says_that_values_were_assumed(tmp_path: Path) -> None:
    opcost.count(Net(INDICES["item"][0]), X, real=False).save(tmp_path / "report.json")
    assert not opcost.load_report(tmp_path / "report.json").coverage.complete


class Routed(nn.Module):
    """Experts of equal size, each called on its tokens; `hits` are the experts that are looked at, by their own way."""

    def __init__(self, hits: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(D, D) for _ in range(3))
        self.hits = hits

    def forward(self, x: Tensor) -> Tensor:
        index = x[:, :3].topk(2)[1]
        made = torch.zeros_like(x)
        for number in self.hits(index):
            token, _ = torch.where(index == number)
            if len(token):
                made.index_add_(0, token, self.experts[number](x[token]))
        return made


ROUTES: dict[str, Callable[[Tensor], Any]] = {
    "all": lambda index: range(3),
    "counted": lambda index: [at for at, n in enumerate(torch.bincount(index.flatten(), minlength=3).tolist()) if n],
    "unique": torch.unique,
    "one hot": lambda index: F.one_hot(index, 3).sum((0, 1)).gt(0).nonzero().flatten(),
}


@pytest.mark.parametrize("name", ROUTES)
def test_routing_among_experts_needs_no_weights(name: str) -> None:
    model = Routed(ROUTES[name])
    report = opcost.count(model, X)
    assert report.totals.macs == 2 * LAYER  # every token goes to two experts
    assert report.totals.macs == opcost.count(model, X, real=True).totals.macs
    assert [note.code for note in report.notes] == ["balanced"]
    assert report.coverage.complete


# -- settings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", READING)
def test_real_values_can_be_forbidden(name: str) -> None:
    with pytest.raises(DataDependent, match=r"test_real_values\.py:") as caught:
        opcost.count(Net(READING[name][0]), X, real=False)
    assert "real=False" in caught.value.hint
    assert "--no-real" in caught.value.hint


def test_the_note_names_the_operator_and_the_module_that_reads() -> None:
    report = opcost.count(nn.Sequential(nn.ReLU(), Net(READING["nonzero"][0])), X)
    (note,) = report.notes
    assert "aten::nonzero" in note.text
    assert note.where == "1"


def test_the_backward_pass_and_the_update_go_on_as_well() -> None:
    report = opcost.count(Net(checked), X, optimizer=True)
    assert report.phases["forward"].macs == LAYER
    assert report.phases["backward"].macs == LAYER  # the weight's gradient; the input's is not requested
    assert report.totals == opcost.count(Net(checked), X, optimizer=True, real=True).totals


def test_a_model_that_reads_no_value_is_not_run_on_its_weights() -> None:
    model = Net(lambda net, x: net.layer(x))
    assert opcost.count(model, X).notes == ()


def test_a_model_that_catches_the_error_is_counted_as_it_really_goes() -> None:
    def careful(net: Net, x: Tensor) -> Tensor:
        try:
            known = x.sum().item() > 0
        except Exception:  # noqa: BLE001 - as careful code does
            known = False
        return net.layer(x) if known else net.layer(net.layer(x))

    assert opcost.count(Net(careful), X).totals.macs == LAYER
    report = opcost.count(Net(careful), X, real=False)
    assert report.totals.macs == 2 * LAYER
    assert "caught the error" in report.notes[0].text


def test_random_numbers_are_drawn_as_in_a_plain_run() -> None:
    model = Net(lambda net, x: net.layer(x[torch.rand(B) > 0.5]))
    for seed in range(4):
        torch.manual_seed(seed)
        rows = len(model(X))
        torch.manual_seed(seed)
        assert opcost.count(model, X).totals.macs == rows * D * D


def test_without_weights_the_error_says_what_to_give() -> None:
    model = nn.Sequential(nn.Linear(D, D, device="meta"), Net(checked))
    with pytest.raises(DataDependent) as caught:
        opcost.count(model, X)
    assert "0.weight has no data: give the model with its weights" in caught.value.hint


def test_a_failure_of_the_real_run_says_why_there_was_one() -> None:
    def refuses(net: Net, x: Tensor) -> Tensor:
        if x.sum() > 0:
            raise ValueError("too much")
        return net.layer(x)

    with pytest.raises(ForwardError, match=r"too much; the model was run on its own weights, because the content"):
        opcost.count(Net(refuses), X)


# -- a model that was made without its weights ------------------------------------------------------------------------


def made_without(function: Callable[[Net, Tensor], Any]) -> nn.Module:
    return nn.Sequential(nn.Linear(D, D, device="meta"), Net(function))


def test_a_model_made_without_weights_is_made_again_with_them() -> None:
    options = CountOptions(inputs=X, remake=lambda: nn.Sequential(nn.Linear(D, D), Net(checked)))
    (note,) = load(made_without(checked), options).notes
    assert "with which it was made again" in note.text


def test_a_large_model_is_not_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    size = 4 * (2 * (D * D + D) + 1)  # bytes of two layers and the buffer
    monkeypatch.setattr("opcost.frontends.torch.load.AFFORDABLE", size - 1)
    options = CountOptions(inputs=X, remake=lambda: pytest.fail("it was made"))
    with pytest.raises(DataDependent) as caught:
        load(made_without(checked), options)
    assert "--real" in caught.value.hint
    assert f"{size} B" in caught.value.hint


# -- other counters ---------------------------------------------------------------------------------------------------


def test_the_functions_of_other_counters_work_as_well() -> None:
    model = nn.Sequential(nn.Linear(D, D), Net(checked)).eval()
    flops = fvcore.FlopCountAnalysis(model, X)
    assert flops.total() == 2 * LAYER
    assert flops.by_module()["1.layer"] == LAYER
    macs, params = thop.profile(model, (X,), verbose=False)
    assert (macs, params) == (2 * LAYER, 2 * (D * D + D))


# -- progress ---------------------------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def slow(net: Net, x: Tensor) -> Tensor:
    if x.sum() > 0:
        time.sleep(0.2)
    return net.layer(x)


def test_a_long_real_run_shows_what_it_does_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PATIENCE_S", 0.05)
    monkeypatch.setattr("sys.stderr", screen := Terminal())
    opcost.count(Net(slow), X)
    assert "running Net on real values (2 operators)" in screen.getvalue()  # the sum and the comparison
    assert screen.getvalue().endswith("\r\x1b[K")


def test_elsewhere_a_long_real_run_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PATIENCE_S", 0.05)
    monkeypatch.setattr("sys.stderr", screen := io.StringIO())
    opcost.count(Net(slow), X)
    assert screen.getvalue() == ""
