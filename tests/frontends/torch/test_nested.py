"""Nested tensors are counted with the lengths of their components, in both layouts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import opcost
from opcost.errors import ForwardError, InputError

D, H, HEADS = 16, 32, 2
LENGTHS = (3, 5, 2)
TOKENS = sum(LENGTHS)
LAYOUTS = pytest.mark.parametrize("layout", [torch.strided, torch.jagged], ids=["strided", "jagged"])


def nested(layout: torch.layout, **options: Any) -> Tensor:
    return torch.nested.nested_tensor([torch.ones(length, D) for length in LENGTHS], layout=layout, **options)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(D, H)
        self.second = nn.Linear(H, D)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(F.relu(self.first(x)))


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(D, D) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        heads = [
            project(x).unflatten(-1, [HEADS, D // HEADS]).transpose(1, 2)
            for project in (self.query, self.key, self.value)
        ]
        return F.scaled_dot_product_attention(*heads).transpose(1, 2).flatten(-2)


class Makes(nn.Module):
    """Makes a nested tensor of parts of its input, and a padded one of the result."""

    def __init__(self, layout: torch.layout) -> None:
        super().__init__()
        self.layout = layout
        self.inner = Net()

    def forward(self, x: Tensor) -> Tensor:
        parts = torch.nested.as_nested_tensor([x[i, :length] for i, length in enumerate(LENGTHS)], layout=self.layout)
        return torch.nested.to_padded_tensor(self.inner(parts), 0.0)


@LAYOUTS
def test_linear_layers_see_the_tokens_of_all_components_and_no_padding(layout: torch.layout) -> None:
    report = opcost.count(Net(), nested(layout))
    assert report.coverage.complete
    assert report.totals.macs == 2 * TOKENS * D * H
    assert report.totals.flops == 2 * report.totals.macs + TOKENS * (H + D) + TOKENS * H  # biases, and the relu
    assert [str(spec) for spec in report.module("first").inputs] == [f"{TOKENS}x{D}"]


@LAYOUTS
def test_backward(layout: torch.layout) -> None:
    report = opcost.count(Net(), nested(layout), backward=True)
    products = 2 + 3  # both forward; both weights and the input of the second backward
    assert report.totals.macs == products * TOKENS * D * H
    assert opcost.count(Net(), nested(layout, requires_grad=True), backward=True).totals.macs == 6 * TOKENS * D * H


@LAYOUTS
def test_attention_is_that_of_each_component(layout: torch.layout) -> None:
    pairs = sum(length * length for length in LENGTHS)
    report = opcost.count(Attention(), nested(layout))
    assert report.coverage.complete
    assert report.totals.macs == 3 * TOKENS * D * D + 2 * pairs * D  # queries with keys, weights with values
    backward = opcost.count(Attention(), nested(layout), backward=True)
    assert sum(row.cost.macs for row in backward.rows if row.op.kind == "attention" and row.cost) == (2 + 5) * pairs * D


@LAYOUTS
def test_a_model_may_make_nested_tensors_itself(layout: torch.layout) -> None:
    x = torch.ones(len(LENGTHS), 6, D)
    assert opcost.count(Makes(layout), x).totals.macs == 2 * TOKENS * D * H
    assert opcost.count(Makes(layout), x, backward=True).totals.macs == 5 * TOKENS * D * H


def test_components_one_by_one() -> None:
    report = opcost.count(lambda x: [part * 2 for part in x.unbind()], nested(torch.jagged))
    assert [str(row.ins[0]) for row in report.rows if row.op.raw == "aten::mul"] == [f"{n}x{D}" for n in LENGTHS]


def test_a_note_says_that_the_strided_layout_was_changed() -> None:
    assert [note.code for note in opcost.count(Net(), nested(torch.strided)).notes] == ["nested"]
    assert [note.code for note in opcost.count(Makes(torch.strided), torch.ones(3, 6, D)).notes] == ["nested"]
    assert opcost.count(Net(), nested(torch.jagged)).notes == ()


@LAYOUTS
def test_a_nested_input_and_the_model_stay_as_they_are(layout: torch.layout) -> None:
    x, net = nested(layout), Net()
    before = [part.clone() for part in x.unbind()]
    expected = [part.clone() for part in net(x).unbind()]
    opcost.count(net, x, backward=True)
    assert x.layout is layout
    assert all(map(torch.equal, x.unbind(), before))
    assert all(map(torch.equal, net(x).unbind(), expected))


def test_a_report_on_nested_tensors_is_saved_with_plain_numbers(tmp_path: Path) -> None:
    opcost.count(Net(), nested(torch.jagged)).save(tmp_path / "nested.json")
    assert json.loads((tmp_path / "nested.json").read_text())
    assert opcost.load_report(tmp_path / "nested.json").totals.macs == 2 * TOKENS * D * H


def test_a_real_run() -> None:
    assert opcost.count(Net(), nested(torch.jagged), real=True).totals.macs == 2 * TOKENS * D * H
    assert opcost.count(Net(), nested(torch.strided), real=True).totals.macs == 2 * TOKENS * D * H


def test_components_that_differ_in_more_than_one_dimension_are_refused_with_words() -> None:
    odd = torch.nested.nested_tensor([torch.ones(3, 4), torch.ones(5, 6)])
    with pytest.raises(InputError, match="strided layout"):
        opcost.count(nn.ReLU(), odd)


def test_a_nested_parameter_of_the_strided_layout_is_refused_with_words() -> None:
    class Holds(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("table", nested(torch.strided))

        def forward(self, x: Tensor) -> Tensor:
            return x + 1

    with pytest.raises(ForwardError, match=r"layout=torch\.jagged"):
        opcost.count(Holds(), torch.ones(2, D))
