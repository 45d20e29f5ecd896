"""A long run, which is replayed and stored as patterns, gives the very report of one that is dispatched and listed."""

from __future__ import annotations

import dataclasses
import gc
import sys
import tracemalloc
import zlib
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import helpers_models
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sampling import FULL, chosen
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

import opcost
from opcost.analysis.costing import cost_graph
from opcost.core.report import Report
from opcost.core.schema import to_dict
from opcost.core.steps import PatternedOps, PatternedValues
from opcost.frontends.options import CountOptions
from opcost.frontends.torch.ledger.tensors import Recorded
from opcost.frontends.torch.load import load
from opcost.frontends.torch.recording import recorder
from opcost.frontends.torch.recording.training_step import TrainingPass
from opcost.rules import default_rules

TURNS = 40


def counted(after: int, model: Any, *args: Any, **options: Any) -> Report:
    """A count that takes a run for long after N operators, and follows memory as that of a long run."""
    with patch.object(recorder, "REPLAYS_AFTER", after), patch.object(TrainingPass, "lifetimes", lambda *_: None):
        return opcost.count(model, *args, **options)


def assert_same(model: Any, *args: Any, **options: Any) -> Report:
    """Replayed from the first operator on, from the middle of the run, and never: one report."""
    usual = counted(sys.maxsize, model, *args, **options)
    assert isinstance(usual.rows, tuple)
    for after in (0, len(usual.rows) // 2):
        replayed = counted(after, model, *args, **options)
        assert not isinstance(replayed.rows, tuple)
        assert to_dict(replayed) == to_dict(usual)
        assert replayed.rows == usual.rows
    return usual


class Failing(nn.Module):
    """Raises at every third call, between two operators."""

    calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        x = x.sin()
        if self.calls % 3 == 0:
            raise ValueError("on purpose")
        return x.cos()


# -- loops -----------------------------------------------------------------------------------------------------------


class Loop(nn.Module):
    """What a turn does is given."""

    def __init__(self, turn: Callable[[Any, Tensor, int], Tensor]) -> None:
        super().__init__()
        self.turn = turn
        self.weight = nn.Parameter(torch.zeros(6, 6))
        self.frozen = nn.Parameter(torch.zeros(6, 6), requires_grad=False)
        self.unused = nn.Parameter(torch.zeros(3))
        self.register_buffer("table", torch.zeros(TURNS, 6))
        self.register_buffer("row", torch.zeros(6))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
        self.cell = nn.GRUCell(6, 6)
        self.norm = nn.LayerNorm(6)
        self.drop = nn.Dropout(0.5)
        self.tied = nn.Linear(6, 6, bias=False)
        self.tied.weight = self.weight
        self.failing = Failing()

    def forward(self, x: Tensor) -> Tensor:
        for number in range(TURNS):
            x = self.turn(self, x, number)
        return x


def _writes(net: Any, x: Tensor, number: int) -> Tensor:
    net.table[number % 5].add_(1)
    x = x.clone()
    x[number % 4] = 0
    return x.mul_(2).add(net.table[number])


def _knows(net: Any, x: Tensor, number: int) -> Tensor:
    """Known contents decide what runs: every third turn is another."""
    net.steps += 1
    places = torch.arange(4) + number
    return x[places % 4] if bool((net.steps % 3 == 0).item()) else x * 2


def _draws(net: Any, x: Tensor, number: int) -> Tensor:
    return net.drop(x) + torch.rand(4, 6) * torch.randn(())


def _keeps(net: Any, x: Tensor, number: int) -> Tensor:
    """What is kept over turns lives longer than what is not."""
    net.kept = [*getattr(net, "kept", []), x * 2][-3:]
    return torch.stack(net.kept).sum(0)


def _tags(net: Any, x: Tensor, number: int) -> Tensor:
    """A new tensor has no attribute that an earlier one was given."""
    made: Any = x * 2
    fresh = not hasattr(made, "number")
    made.number = number
    return made + 1 if fresh else made @ net.weight


def _requires_grad(net: Any, x: Tensor, number: int) -> Tensor:
    """A new tensor requires no gradient, though an earlier one did; products of several axes heed that."""
    made = (x * 2).view(2, 2, 6)
    product = made @ net.frozen
    if number % 3 == 0:
        made.requires_grad_()
    return product.view(4, 6) + (made @ net.frozen).view(4, 6)


def _fails(net: Any, x: Tensor, number: int) -> Tensor:
    """What ran in a module before it failed counts, and what the model does then."""
    try:
        return net.failing(x) if number % 4 == 3 else net.failing(x * 2)
    except ValueError:
        return x + 1


LOOPS: dict[str, Callable[[Any, Tensor, int], Tensor]] = {
    "arithmetic": lambda net, x, number: torch.relu(x @ net.weight).mul(2.0).add(x).tanh() - 1 / (x + 2),
    "same argument twice": lambda net, x, number: x * x + torch.cat([x, x])[:4],
    "grows": lambda net, x, number: torch.cat([x, x[:1]]),
    "a buffer first": lambda net, x, number: (net.row - x) * 2 + net.row @ net.weight / net.row ** x.mean(),
    "a number first": lambda net, x, number: 2 - 3 * x + 1 / (1 + 2**x),
    "other numbers": lambda net, x, number: x * number + float(number),
    "whole or broken or true": lambda net, x, number: x * [1, 1.0, True][number % 3],
    "rows": lambda net, x, number: x + net.table[number] * net.table[number : number + 1, 2:3],
    "views of views": lambda net, x, number: x.view(2, 2, 6).transpose(0, 1).reshape(4, 6).t().contiguous().t() + x,
    "as it came": lambda net, x, number: x.to(torch.float32).contiguous().float() + 1,
    "types": lambda net, x, number: x.double().half().float() + x.to(torch.float64).type_as(x),
    "lists": lambda net, x, number: torch.stack([part.exp() for part in x.chunk(2)]).flatten(0, 1),
    "cell": lambda net, x, number: net.cell(net.norm(x), x),
    "tied weights": lambda net, x, number: net.tied(x) + F.linear(x, net.weight),
    "folded products": lambda net, x, number: (x.view(2, 2, 6) @ [net.weight, net.frozen][number % 2]).view(4, 6),
    "attention": lambda net, x, number: F.scaled_dot_product_attention(*[x.view(1, 2, 2, 6)] * 3).reshape(4, 6),
    "writes": _writes,
    "known contents": _knows,
    "draws": _draws,
    "keeps": _keeps,
    "in place": lambda net, x, number: F.relu(x.clone(), inplace=True).sub_(1),
    "written to": lambda net, x, number: torch.add(x, 1, out=torch.empty(4, 6)),
    "an attribute": _tags,
    "a gradient now and then": _requires_grad,
    "fails now and then": _fails,
    "a turn over modules": lambda net, x, number: net.norm(net.cell(x + 1, x)) * 2,
    "without a gradient": lambda net, x, number: (x.requires_grad_() if number == 20 else x) + 1,
}


@pytest.mark.parametrize("turn", LOOPS.values(), ids=LOOPS)
@pytest.mark.parametrize("mode", ["eval", "train"])
def test_a_loop_costs_what_it_costs_operator_by_operator(turn: Callable[[Any, Tensor, int], Tensor], mode: str) -> None:
    report = assert_same(Loop(turn), torch.zeros(4, 6), mode=mode)
    assert [p.name for p in report.unused if p.name == "unused"] == ["unused"]


def test_switches_inside_of_a_loop_are_heeded() -> None:
    def turn(net: Any, x: Tensor, number: int) -> Tensor:
        with torch.autocast("cpu", enabled=number % 2 == 0):
            x = (x @ net.weight).float()
        with torch.enable_grad():
            y = x * net.weight[0]
        torch.set_default_dtype(torch.float64 if number % 3 else torch.float32)
        q = x.view(1, 2, 2, 6)
        with sdpa_kernel(SDPBackend.MATH if number % 2 else SDPBackend.FLASH_ATTENTION):
            x = x + y + F.scaled_dot_product_attention(q, q, q).reshape(4, 6)
        return torch.func.vmap(lambda row: row * 2 + x[0])(x).to(torch.float32)

    assert_same(Loop(turn), torch.zeros(4, 6))
    assert torch.get_default_dtype() is torch.float32


extents = st.integers(1, 4)
slices = st.builds(slice, *[st.none() | st.integers(-5, 5)] * 2, st.none() | st.integers(1, 3))
indices = st.lists(st.integers(-4, 3) | slices | st.none() | st.just(Ellipsis) | st.booleans(), max_size=4)


@given(shape=st.lists(extents, min_size=0, max_size=3), some=st.lists(indices, min_size=2, max_size=6))
@settings(max_examples=40 if FULL else 20, deadline=None)
def test_which_rows_an_index_takes_does_not_matter_but_how_many(shape: list[int], some: list[list[Any]]) -> None:
    def take(x: Tensor) -> list[Tensor]:
        found = []
        for index in some:
            try:
                found.append(x[index[0]] if len(index) == 1 else x[tuple(index)])
            except (IndexError, ValueError) as fault:
                found.append(x + len(str(fault)) % 7)
        return found

    assert_same(take, torch.zeros(shape))


@pytest.mark.parametrize(
    "name",
    [name for name, kind in vars(helpers_models).items() if isinstance(kind, type) and issubclass(kind, nn.Module)],
)
def test_models_that_change_things_are_counted_alike(name: str) -> None:
    kind = getattr(helpers_models, name)
    try:
        usual = counted(sys.maxsize, kind(), helpers_models.x())
    except (TypeError, opcost.OpcostError):
        pytest.skip("it takes other arguments, or is meant to fail")
    assert to_dict(counted(0, kind(), helpers_models.x())) == to_dict(usual)


@pytest.mark.zoo
@pytest.mark.parametrize(
    "name",
    chosen(
        ["resnet18", "test_vit3", "swin_tiny_patch4_window7_224", "levit_128s", "cait_xxs24_224", "coat_tiny"],
        *("resnet18", "test_vit3", "levit_128s"),
    ),
)
def test_timm_models_are_counted_alike(name: str) -> None:
    import timm

    with torch.device("meta"):
        model = timm.create_model(name).eval()
    size = model.default_cfg["input_size"]
    assert_same(model, torch.zeros(1, *size))


@pytest.mark.zoo
@pytest.mark.parametrize("name", ["Llama", "Mamba", "Bert", "GPT2", "T5Encoder"])
def test_language_models_are_counted_alike(name: str) -> None:
    import transformers

    sizes = {
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "vocab_size": 50,
    }
    own = {"Llama": {"intermediate_size": 32}, "Bert": {"intermediate_size": 32}}.get(name, {})
    if name in ("Mamba", "GPT2", "T5Encoder"):
        own = {
            "Mamba": {"hidden_size": 16, "num_hidden_layers": 2, "vocab_size": 50},
            "GPT2": {"n_embd": 16, "n_layer": 2, "n_head": 2, "vocab_size": 50},
            "T5Encoder": {"d_model": 16, "num_layers": 2, "num_heads": 2, "vocab_size": 50},
        }[name]
        sizes = {}
    config = getattr(transformers, f"{name.removesuffix('Encoder')}Config")(**sizes, **own)
    model = getattr(transformers, f"{name}Model")(config).eval()
    assert_same(model, kwargs={"input_ids": torch.zeros(1, 24, dtype=torch.int64)})


# -- what it is for --------------------------------------------------------------------------------------------------


def graph_of_a_loop(turns: int, after: int = 100) -> Any:
    def loop(x: Tensor) -> Tensor:
        for _ in range(turns):
            x = torch.relu(x @ x).mul(2.0).add(1).tanh()
        return x

    before = recorder.REPLAYS_AFTER
    recorder.REPLAYS_AFTER = after
    try:
        return load(loop, CountOptions(inputs=(torch.zeros(8, 8),)))
    finally:
        recorder.REPLAYS_AFTER = before


def test_turns_that_come_again_are_not_dispatched(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    usual = recorder.DatalessRecorder.__torch_dispatch__
    monkeypatch.setattr(
        recorder.DatalessRecorder,
        "__torch_dispatch__",
        lambda self, func, types, args=(), kwargs=None: seen.append(func) or usual(self, func, types, args, kwargs),
    )
    graph = graph_of_a_loop(1000)
    assert len(graph.ops) == 5 * 1000
    # 100 operators until the run is long, the one that finds that out, and each of the five once more.
    assert len(seen) <= 100 + 1 + 5


class Block(nn.Module):
    """A layer of a language model that keeps what it saw."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor, cache: dict[Any, Tensor]) -> Tensor:
        seen = cache[self] = torch.cat([cache[self], x]) if self in cache else x * 1
        return x + self.second(torch.relu(self.first(x @ seen.t() @ seen)))


class Blocks(nn.Module):
    """Several blocks, for several tokens."""

    def __init__(self, blocks: int, tokens: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block() for _ in range(blocks)])
        self.tokens = tokens

    def forward(self, x: Tensor) -> Tensor:
        cache: dict[Any, Tensor] = {}
        for _ in range(self.tokens):
            for block in self.blocks:
                x = block(x, cache)
        return x


def test_layers_with_a_cache_that_grows_are_counted_alike() -> None:
    model = Blocks(12, 5)
    assert_same(model, torch.zeros(1, 8))
    with patch.object(recorder, "REPLAYS_AFTER", 0):
        graph = load(model, CountOptions(inputs=(torch.zeros(1, 8),)))
    assert [row.op.module for row in opcost.count(model, torch.zeros(1, 8)).rows] == [op.module for op in graph.ops]


def test_memory_hardly_grows_with_repeated_operators() -> None:
    def kept_and_peak(turns: int) -> tuple[int, int]:
        gc.collect()
        tracemalloc.start()
        try:
            report = cost_graph(graph_of_a_loop(turns), default_rules())
            assert len(report.rows) == 5 * turns
            return tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()

    kept_and_peak(800)  # what the first count of a process imports and keeps is not this loop's
    few, many = kept_and_peak(800), kept_and_peak(2000)
    kept, peak = ((after - before) / (5 * 1200) for before, after in zip(few, many, strict=True))
    # As a list of operators, values and rows it is more than 700 bytes for each.
    assert kept < 60
    assert peak < 100


def test_a_graph_of_patterns_costs_what_the_list_of_its_operators_does() -> None:
    graph = graph_of_a_loop(300)
    assert isinstance(graph.ops, PatternedOps)
    assert isinstance(graph.values, PatternedValues)
    listed = dataclasses.replace(graph, ops=tuple(graph.ops), values=tuple(graph.values))
    listed.check()
    assert to_dict(cost_graph(graph, default_rules())) == to_dict(cost_graph(listed, default_rules()))


# -- what it must not touch ------------------------------------------------------------------------------------------


def test_tensors_without_data_are_as_before_afterwards() -> None:
    before = dict(vars(Recorded))

    def fails(x: Tensor) -> Tensor:
        for _ in range(5):
            x = x + 1
        raise ValueError("on purpose")

    counted(0, Loop(LOOPS["arithmetic"]), torch.zeros(4, 6))
    assert dict(vars(Recorded)) == before
    with pytest.raises(opcost.OpcostError, match="on purpose"):
        counted(0, fails, torch.zeros(3))
    assert dict(vars(Recorded)) == before


def test_a_count_inside_of_a_count_leaves_the_outer_one_alone() -> None:
    def outer(x: Tensor) -> tuple[Tensor, Tensor]:
        for number in range(TURNS):
            x = x * 2 + x[number % 3]
            if number == TURNS // 2:
                inner = opcost.count(Loop(LOOPS["arithmetic"]), torch.zeros(4, 6))
        return x, torch.zeros(len(inner.rows))  # what a forward keeps is taken back, its outputs' shapes are reported

    # mm, relu, mul, add, tanh, then 1 / (x + 2) as add, reciprocal and mul, and sub.
    assert assert_same(outer, torch.zeros(3, 3)).outputs[1].shape == (9 * TURNS,)


def test_a_mode_for_functions_sees_every_function() -> None:
    class Listens(TorchFunctionMode):
        def __init__(self) -> None:
            super().__init__()
            self.heard: list[str] = []

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.heard.append(getattr(func, "__name__", str(func)))
            return func(*args, **(kwargs or {}))

    def listened(x: Tensor) -> tuple[Tensor, Tensor]:
        with Listens() as mode:
            for number in range(20):
                x = torch.relu(x @ x)[: x.shape[0]].mul(2.0) + number
        words = " ".join(mode.heard)
        return x, torch.zeros(len(mode.heard), zlib.crc32(words.encode()) % 1000)

    # A product, relu, a shape, a slice, mul and add in each turn.
    assert assert_same(listened, torch.zeros(4, 4)).outputs[1].shape[0] == 6 * 20


def test_errors_in_a_long_run_are_those_of_a_short_one() -> None:
    def wrong(x: Tensor) -> Tensor:
        for _ in range(10):
            x = x + 1
        return x[7]

    said = []
    for after in (sys.maxsize, 0):
        with pytest.raises(opcost.OpcostError) as caught:
            counted(after, wrong, torch.zeros(3))
        said.append(str(caught.value))
    assert said[0] == said[1]
