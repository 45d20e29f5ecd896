"""Of many equal blocks few are recorded, and the graph of all follows: equal to that of a recording of all in every number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import opcost
from opcost.api import count_graph
from opcost.core.alignment import NotRepeating
from opcost.core.graph import Graph
from opcost.core.repeating import repeated, same
from opcost.core.report import Report
from opcost.frontends.torch.sharding import one_rank

dist = pytest.importorskip("torch.distributed")
if not dist.is_available():
    pytest.skip("PyTorch without torch.distributed", allow_module_level=True)

B, S, D = 2, 8, 16
X = torch.ones(B, S, D)
LAYERS = one_rank.MANY


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(D)
        self.w1, self.w2 = nn.Linear(D, 2 * D), nn.Linear(2 * D, D)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.w2(torch.relu(self.w1(self.norm(x))))


class Net(nn.Module):
    def __init__(self, layers: int = LAYERS) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Block() for _ in range(layers))
        self.head = nn.Linear(D, 3)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


class Tapped(Net):
    """Two layers give a result of their own, by their numbers, as backbones of detectors do."""

    def forward(self, x: Tensor) -> Tensor:
        kept = []
        for number, layer in enumerate(self.layers):
            x = layer(x)
            if number in (8, 12):
                kept.append(x)
        return self.head(x + sum(kept))


class Mirrored(Net):
    """The layers of the second half read what those of the first half made, the last what the first made."""

    def forward(self, x: Tensor) -> Tensor:
        made: list[Tensor] = []
        for number, layer in enumerate(self.layers):
            x = layer(x if 2 * number < len(self.layers) else x + made.pop())
            if 2 * number < len(self.layers) - 1:
                made.append(x)
        return self.head(x)


def assert_equal(found: Report, whole: Report) -> None:
    assert found.totals == whole.totals
    assert found.memory == whole.memory
    assert found.modules == whole.modules
    assert [
        (row.op.raw, row.op.module, row.op.phase, row.op.attrs, row.ins, row.outs, row.cost) for row in found.rows
    ] == [(row.op.raw, row.op.module, row.op.phase, row.op.attrs, row.ins, row.outs, row.cost) for row in whole.rows]


OPTIONS: list[dict[str, Any]] = [
    {"mesh": "fsdp=8"},
    {"mesh": "fsdp=8", "backward": True},
    {"mesh": "tp=2", "backward": True},
    {"mesh": "fsdp=2,tp=2", "backward": True, "sequence_parallel": True},
    {"mesh": "fsdp=4,tp=2", "backward": True, "precision": "bf16-mixed", "rank": 5},
    {"mesh": "replicate=2,fsdp=4", "optimizer": "adamw", "reshard": False},
    {"mesh": "fsdp=8", "optimizer": "sgd", "checkpoint": "layers.*"},
    {"mesh": "fsdp=8", "optimizer": "adamw", "device": "h100"},  # all parameters in one operator
    {"mesh": "fsdp=4,tp=2", "optimizer": "sgd", "device": "h100", "precision": "bf16-mixed"},
    {"mesh": "fsdp=8", "optimizer": "adamw_fused"},
    {"mesh": "fsdp=8", "optimizer": "adamw", "device": "h100", "accumulate": 3},
]


@pytest.mark.parametrize(
    ("model", "options"), [*((Net, options) for options in OPTIONS), (Tapped, OPTIONS[1]), (Mirrored, OPTIONS[1])]
)
def test_few_blocks_give_the_report_of_all(
    model: Callable[[], nn.Module], options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = opcost.count(model(), X, **options)
    monkeypatch.setattr(one_rank, "MANY", LAYERS + 1)
    assert_equal(found, opcost.count(model(), X, **options))


def recorded_layers(model: nn.Module, monkeypatch: pytest.MonkeyPatch, **options: Any) -> list[int]:
    """How many blocks each of the sharded copies had that were recorded."""
    seen = []
    spread = one_rank.spread

    def noted(copy: Any, *args: Any) -> Any:
        seen.append(len(copy.layers))
        return spread(copy, *args)

    monkeypatch.setattr(one_rank, "spread", noted)
    opcost.count(model, X, mesh="fsdp=8", **options)
    return seen


@pytest.mark.parametrize(
    ("options", "layers"),
    [
        ({}, [5, 6]),
        ({"backward": True}, [5, 6, 7]),  # in backward two blocks at either end differ from those between
        ({"optimizer": "adamw", "device": "h100"}, [5, 6, 7]),
        ({"optimizer": "adamw_fused"}, [5, 6, 7]),
    ],
)
def test_equal_blocks_are_not_all_recorded(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], layers: list[int]
) -> None:
    assert recorded_layers(Net(), monkeypatch, **options) == layers


@pytest.mark.parametrize("model", [Tapped, Mirrored])
def test_all_blocks_are_recorded_where_their_numbers_matter(
    model: Callable[[], nn.Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert recorded_layers(model(), monkeypatch) == [LAYERS]


def graph(layers: int, **options: Any) -> Graph:
    found = count_graph(Net(layers), X, **options)[1]
    assert found is not None
    return found


def test_the_larger_graph_is_valid_and_the_same() -> None:
    fewer, more, whole = (graph(layers, backward=True) for layers in (5, 6, 9))
    found = repeated(fewer, more, "layers", 3)
    found.check()
    assert same(found, whole)
    assert not same(found, repeated(fewer, more, "layers", 4))


def test_graphs_that_differ_otherwise_determine_nothing() -> None:
    with pytest.raises(NotRepeating):
        repeated(graph(5), graph(6, backward=True), "layers", 3)
