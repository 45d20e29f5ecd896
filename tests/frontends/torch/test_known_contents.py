"""Small tensors that keep their content, and what must not follow from that. Each test is named for a fault it keeps away."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from peak_memory import needs_peak, rises_by_less_than
from torch import nn

import opcost
from opcost.errors import ForwardError


class Forward(nn.Module):
    """A module around a function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


def test_the_real_part_of_a_tensor_is_not_its_known_content() -> None:
    report = opcost.count(Forward(lambda x: torch.fft.fft(x).real + x), shapes=(4, 8))
    assert report.outputs[0].shape == (4, 8)
    assert report.outputs[0].dtype == "float32"


def test_arithmetic_on_plain_numbers_has_a_value() -> None:
    def chunked(x: torch.Tensor) -> torch.Tensor:
        return x.view(x.size(0), torch.div(x.size(1), 4, rounding_mode="trunc"), 4)

    assert opcost.count(Forward(chunked), shapes=(2, 12)).outputs[0].shape == (2, 3, 4)


@needs_peak
def test_a_mask_of_all_pairs_is_not_allocated() -> None:
    tokens = 100_000  # all pairs as booleans would take 10 GB

    def causal(x: torch.Tensor) -> torch.Tensor:
        at = torch.arange(tokens)
        return x + (at[:, None] >= at[None, :]).sum()

    with rises_by_less_than(200 << 20):
        report = opcost.count(Forward(causal), shapes=(1,))
    assert max(row.outs[0].numel for row in report.rows) == tokens * tokens


def test_a_mask_that_is_expanded_stays_known() -> None:
    """Multimodal models hold the places of an image, expanded to all features, against the features that they have of it."""
    tokens, width, places = 512, 4096, 100  # 2,097,152 elements are too many to be kept, 512 are not

    def at_places(x: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        mask = (ids == 7).unsqueeze(-1).expand_as(x)
        if x[mask].numel() != places * width:
            raise ValueError("other places")
        return x[mask]

    ids = torch.zeros(1, tokens, dtype=torch.int64)
    ids[:, 1 : places + 1] = 7
    with torch.device("meta"):
        x = torch.empty(1, tokens, width)
    assert opcost.count(Forward(at_places), (x, ids), real=False).outputs[0].shape == (places * width,)


@needs_peak
def test_what_is_made_of_an_expanded_mask_is_not_allocated() -> None:
    def inverted(ids: torch.Tensor) -> torch.Tensor:
        mask = (ids == 7)[..., None].expand(-1, -1, 1 << 14)  # shows 2²⁵ elements
        return ~mask

    ids = torch.zeros(1, 1 << 11, dtype=torch.int64)
    with rises_by_less_than(16 << 20):
        assert opcost.count(Forward(inverted), ids).outputs[0].shape == (1, 1 << 11, 1 << 14)


@needs_peak
def test_a_huge_range_is_not_allocated() -> None:
    with rises_by_less_than(200 << 20):
        report = opcost.count(Forward(lambda x: x + torch.arange(10**10).sum()), shapes=(1,))
    assert report.rows[0].outs[0].shape == (10**10,)


def test_writing_an_unknown_number_makes_the_content_unknown() -> None:
    def decides(x: torch.Tensor) -> torch.Tensor:
        flags = torch.zeros(3)
        flags[0] = x.sum()
        return x if flags.sum() > 0 else -x

    with pytest.raises(opcost.OpcostError, match="depends on values"):
        opcost.count(Forward(decides), shapes=(2,), real=False)


CHECKED: dict[str, Callable[[torch.Tensor], Any]] = {
    "quantile": lambda x: torch.quantile(x, x.sigmoid()[0], dim=1),
    "cov": lambda x: torch.cov(x, aweights=x.sigmoid()[0]),
}


@pytest.mark.parametrize("name", CHECKED)
def test_numbers_that_pytorch_itself_checks_are_taken_to_be_right(name: str) -> None:
    model = Forward(CHECKED[name])
    ran = [row for row in opcost.count(model, torch.randn(4, 6), real=True).rows if row.op.raw != "aten::equal"]
    counted = opcost.count(model, torch.randn(4, 6)).rows
    assert [(row.op.raw, row.cost) for row in counted] == [(row.op.raw, row.cost) for row in ran]


def test_a_mask_of_another_shape_is_refused_as_pytorch_refuses_it() -> None:
    mask = torch.ones(2, 3, dtype=torch.bool)
    assert opcost.count(Forward(lambda x: x[:, mask]), shapes=(4, 2, 3)).outputs[0].shape == (4, 6)
    with pytest.raises(ForwardError, match="shape of the mask"):
        opcost.count(Forward(lambda x: x[mask]), shapes=(4, 2, 3))
