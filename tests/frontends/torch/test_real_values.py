"""Control flow on float values: the count goes on with real values by itself, says why, and leaves everything as it was."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
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
from opcost.frontends.torch import real_values
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


# What has compiled a model before has turned the argument checks off for the whole process, so they are asked for here.


def sampled(net: Net, x: Tensor) -> Tensor:
    policy = distributions.Normal(net.layer(x), F.softplus(net.layer(x)), validate_args=True)
    return policy.log_prob(policy.rsample())


def chosen(net: Net, x: Tensor) -> Tensor:
    policy = distributions.Categorical(logits=net.layer(x), validate_args=True)
    return policy.log_prob(policy.sample())


def aligned(net: Net, x: Tensor) -> Tensor:
    steps = net.layer(x).log_softmax(-1).unsqueeze(1)
    return F.ctc_loss(steps, torch.tensor([[1, 2]]), torch.tensor([B]), torch.tensor([2]))


ASKING: dict[str, tuple[Callable[[Net, Tensor], Any], int]] = {
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


@pytest.mark.parametrize("name", ASKING)
def test_a_question_for_a_float_is_answered_with_real_values_and_a_note_says_where_and_why(name: str) -> None:
    function, macs = ASKING[name]
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


@pytest.mark.parametrize("name", ASKING)
def test_real_values_can_be_forbidden(name: str) -> None:
    with pytest.raises(DataDependent, match=r"test_real_values\.py:") as caught:
        opcost.count(Net(ASKING[name][0]), X, real=False)
    assert "real=False" in caught.value.hint
    assert "--no-real" in caught.value.hint


def test_the_note_names_the_operator_and_the_module_that_asks() -> None:
    report = opcost.count(nn.Sequential(nn.ReLU(), Net(ASKING["nonzero"][0])), X)
    (note,) = report.notes
    assert "aten::nonzero" in note.text
    assert note.where == "1"


def test_the_backward_pass_and_the_update_go_on_as_well() -> None:
    report = opcost.count(Net(checked), X, optimizer=True)
    assert report.phases["forward"].macs == LAYER
    assert report.phases["backward"].macs == LAYER  # the weight's gradient; nobody asks for the input's
    assert report.totals == opcost.count(Net(checked), X, optimizer=True, real=True).totals


def test_a_model_that_asks_nothing_is_not_run_on_its_weights() -> None:
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
    monkeypatch.setattr(real_values, "AFFORDABLE", size - 1)
    options = CountOptions(inputs=X, remake=lambda: pytest.fail("it was made"))
    with pytest.raises(DataDependent) as caught:
        load(made_without(checked), options)
    assert "--real" in caught.value.hint
    assert f"{size} B" in caught.value.hint


# -- other doors ------------------------------------------------------------------------------------------------------


def test_the_doors_of_other_counters_go_on_as_well() -> None:
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
