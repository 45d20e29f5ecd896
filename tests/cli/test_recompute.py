"""`opcost.fit` with a given batch: the modules to recompute, compared with every other choice."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import partial
from itertools import chain, combinations, product
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import opcost
from opcost.core.names import matches, patterns_for
from opcost.errors import BudgetExceeded

BATCH, WIDTH = 64, 16


class Block(nn.Module):
    """Keeps its hidden layer for the backward pass, twice."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.up = nn.Parameter(torch.randn(WIDTH, hidden))
        self.down = nn.Parameter(torch.randn(hidden, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.nn.functional.gelu(x @ self.up) @ self.down


class Pair(nn.Module):
    """Two blocks that can be recomputed each by itself, or together."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__()
        self.first, self.second = Block(first), Block(second)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.second(torch.sin(self.first(x))))


def trained(model: nn.Module, chosen: Iterable[str] = (), **more: Any) -> opcost.Report:
    return opcost.count(model, shapes=(BATCH, WIDTH), checkpoint=[*chosen], **(more or {"optimizer": "sgd"}))


def peak_of(report: opcost.Report) -> int:
    assert report.memory is not None
    return report.memory.peak_bytes


def subsets(paths: Iterable[str]) -> Iterable[tuple[str, ...]]:
    paths = [*paths]
    return chain.from_iterable(combinations(paths, count) for count in range(len(paths) + 1))


def limits(least: int, most: int) -> list[int]:
    return [least + (most - least) * part // 7 for part in range(7)]


def check_with_every_choice(model: nn.Module, choices: Iterable[tuple[str, ...]], **more: Any) -> None:
    """At several limits, no choice that fits adds less work than the one that is found."""
    counted = [(peak_of(report), report.totals.flops) for each in choices for report in [trained(model, each, **more)]]
    peaks = [peak for peak, _ in counted]
    for limit in limits(min(peaks), max(peaks)):
        found = opcost.fit(model, shapes=(2, WIDTH), batch=BATCH, memory=limit, **(more or {"optimizer": "sgd"}))
        assert isinstance(found, opcost.Recomputation)
        assert (found.before.peak_bytes, found.before.flops) == counted[0]
        assert found.after.peak_bytes <= limit
        assert found.after.flops == min(flops for peak, flops in counted if peak <= limit)
        again = trained(model, found.checkpoint, **more)
        assert (peak_of(again), again.totals.flops) == (found.after.peak_bytes, found.after.flops)


@pytest.mark.slow
def test_no_subset_of_six_blocks_is_cheaper() -> None:
    model = nn.Sequential(*map(Block, (300, 50, 110, 20, 190, 75)))
    check_with_every_choice(model, subsets(f".{place}" for place in range(6)))


@pytest.mark.slow
def test_parts_and_wholes_are_weighed_against_each_other() -> None:
    """Of each pair one part, the other, both one by one, or the pair as one module."""
    model = nn.Sequential(Pair(40, 200), Pair(90, 30), Pair(120, 160))
    each = [[*subsets((f".{place}.first", f".{place}.second")), (f".{place}",)] for place in range(3)]
    check_with_every_choice(model, [tuple(chain(*choice)) for choice in product(*each)])


def test_equal_blocks_are_recomputed_from_the_first_on() -> None:
    """Each keeps its hidden layer before and after the activation; what is freed early is free for longest."""
    model = nn.Sequential(*[Block(100) for _ in range(12)])
    limit = peak_of(trained(model)) - 3 * 2 * 4 * BATCH * 100
    found = opcost.fit(model, shapes=(BATCH, WIDTH), batch=BATCH, memory=limit, optimizer="sgd")
    assert isinstance(found, opcost.Recomputation)
    assert (found.after.peak_bytes, found.checkpoint) == (limit, ("[0-2]",))
    assert found.modules == ("0", "1", "2")


@pytest.mark.parametrize("given", [{"shapes": (2, WIDTH)}, {"inputs": torch.ones(2, WIDTH)}], ids=["shape", "tensor"])
def test_what_fits_is_not_recomputed(given: dict[str, Any]) -> None:
    model = nn.Sequential(Block(100), Block(100))
    plain = trained(model)
    found = opcost.fit(model, batch=BATCH, memory=peak_of(plain), optimizer="sgd", **given)
    assert isinstance(found, opcost.Recomputation)
    assert (found.modules, found.checkpoint, found.before) == ((), (), found.after)
    assert (found.after.peak_bytes, found.after.flops) == (peak_of(plain), plain.totals.flops)
    assert found.recomputed_share == 0
    assert "nothing has to be recomputed" in found.answer


def test_pytorch_recomputes_what_was_found() -> None:
    """With `torch.utils.checkpoint` around the modules, as the documentation says."""
    model = nn.Sequential(*[Block(100) for _ in range(5)])
    limit = (peak_of(trained(model)) + peak_of(trained(model, [".*"]))) // 2
    found = opcost.fit(model, shapes=(BATCH, WIDTH), batch=BATCH, memory=limit, optimizer="sgd")
    assert isinstance(found, opcost.Recomputation)
    for path in found.modules:
        module = model.get_submodule(path)
        module.forward = partial(checkpoint, module.forward, use_reentrant=False)  # type: ignore[method-assign]
    wrapped = trained(model)
    assert (peak_of(wrapped), wrapped.totals.flops) == (found.after.peak_bytes, found.after.flops)


class Shifts(nn.Module):
    """Changes its argument in place: called again, it would get another one."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Block(400)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x.mul_(2)).sin().cos()


class Offset(Block):
    """Does not keep its argument."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x + 1)


class Around(nn.Module):
    """The residual is added in place to what the block was given."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Offset(400)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.sin(x)
        x += self.inner(x)
        return x


def test_a_module_whose_argument_changes_is_not_recomputed() -> None:
    model = nn.Sequential(Block(10), Shifts(), Around(), Block(10))
    for limit in limits(peak_of(trained(model)) // 2, peak_of(trained(model))):
        try:
            found = opcost.fit(model, shapes=(2, WIDTH), batch=BATCH, memory=limit, optimizer="sgd", advise=False)
        except BudgetExceeded:
            continue
        assert isinstance(found, opcost.Recomputation)
        assert not {"1", "2.inner"}.intersection(found.modules)


class Unsteady(nn.Module):
    """Keeps another number of tensors each time."""

    calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        for _ in range(2 + self.calls % 2):
            x = torch.sin(x)
        return x.clone()


def test_a_module_that_fails_when_it_is_recomputed_is_left_out() -> None:
    model = nn.Sequential(Block(10), Unsteady(), Block(60))
    most = peak_of(trained(model))
    found = opcost.fit(model, shapes=(2, WIDTH), batch=BATCH, memory=most - 100, optimizer="sgd")
    assert isinstance(found, opcost.Recomputation)
    assert "1" not in found.modules
    assert found.modules
    assert found.notes == ("Unsteady is not recomputed: called again, it fails",)


class Layer(nn.Module):
    """Takes a list, which its caller extends."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.inner = nn.Linear(count * WIDTH, 100)
        self.outer = nn.Linear(100, WIDTH)

    def forward(self, found: list[torch.Tensor]) -> torch.Tensor:
        return self.outer(torch.tanh(self.inner(torch.cat(found, 1))))


class Dense(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(map(Layer, (1, 2, 3)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = [x]
        for layer in self.layers:
            found.append(layer(found))
        return torch.sin(found[-1])


def test_of_modules_that_fail_those_around_them_are_still_offered() -> None:
    model = nn.Sequential(Dense(), Dense())
    limit = peak_of(trained(model)) - 4 * BATCH * 100
    found = opcost.fit(model, shapes=(2, WIDTH), batch=BATCH, memory=limit, optimizer="sgd")
    assert isinstance(found, opcost.Recomputation)
    assert not any("layers" in path.split(".")[-2:-1] for path in found.modules)
    assert found.after.peak_bytes <= limit
    assert "Layer is not recomputed: called again, it fails" in found.notes


def test_where_all_is_not_enough_the_error_says_what_is() -> None:
    model = nn.Sequential(Block(100), Block(100))
    limit = peak_of(opcost.count(model, shapes=(20, WIDTH), optimizer="sgd"))
    with pytest.raises(BudgetExceeded, match=r"batch 64 needs .* modules recomputed, .* too much") as caught:
        opcost.fit(model, shapes=(2, WIDTH), batch=BATCH, memory=limit, optimizer="sgd", advise=False)
    size = int(caught.value.hint.removeprefix("batch ").removesuffix(" fits with these recomputed"))
    assert size >= 20
    found = opcost.fit(model, shapes=(2, WIDTH), batch=size, memory=limit, optimizer="sgd")
    assert isinstance(found, opcost.Recomputation)
    assert found.modules
    with pytest.raises(BudgetExceeded):
        opcost.fit(model, shapes=(2, WIDTH), batch=size + 1, memory=limit, optimizer="sgd", advise=False)


def test_without_a_backward_pass_nothing_can_be_recomputed() -> None:
    model = nn.Sequential(Block(100))
    need = peak_of(opcost.count(model, shapes=(BATCH, WIDTH)))
    found = opcost.fit(model, shapes=(2, WIDTH), batch=BATCH, memory=need)
    assert isinstance(found, opcost.Recomputation)
    assert found.after.peak_bytes == need
    with pytest.raises(BudgetExceeded, match="batch 64 needs"):
        opcost.fit(model, shapes=(2, WIDTH), batch=BATCH, memory=need - 1, advise=False)


def test_modules_that_are_recomputed_anyway_stay_so() -> None:
    model = nn.Sequential(*map(Block, (100, 200, 300)))
    given, all_of_them = trained(model, [".0"]), trained(model, [".*"])
    limit = (peak_of(given) + peak_of(all_of_them)) // 2
    found = opcost.fit(model, shapes=(2, WIDTH), batch=BATCH, memory=limit, optimizer="sgd", checkpoint=".0")
    assert isinstance(found, opcost.Recomputation)
    assert found.before.flops == given.totals.flops
    assert "0" not in found.modules
    assert found.checkpoint[0] == ".0"
    assert peak_of(trained(model, found.checkpoint)) == found.after.peak_bytes <= limit


class Normed(nn.Sequential):
    """A batch norm between two activations, so that something is kept inside."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH), nn.GELU())


def test_batch_norms_that_run_twice_are_named() -> None:
    model = nn.Sequential(Normed(), Normed())
    limit = peak_of(trained(model, [".*"]))
    found = opcost.fit(model, shapes=(2, WIDTH), batch=BATCH, memory=limit, optimizer="sgd")
    assert isinstance(found, opcost.Recomputation)
    recomputed = sum(any(f"{path}.".startswith(f"{each}.") for each in found.modules) for path in ("0.1", "1.1"))
    assert [note for note in found.notes if "running statistics" in note] == [
        f"{recomputed} batch norms are recomputed, so that each step updates their running statistics twice"
    ]


def test_on_a_device_reserved_memory_and_predicted_time_decide() -> None:
    model = nn.Sequential(*[Block(4096) for _ in range(4)])
    sizes: Any = {"shapes": (2, 512, WIDTH), "optimizer": "sgd", "device": "h200"}
    large = opcost.fit(model, batch=BATCH, **sizes)
    assert isinstance(large, opcost.Recomputation)
    assert large.modules == ()
    assert large.before.reserved_bytes is not None
    limit = large.before.reserved_bytes * 3 // 4
    found = opcost.fit(model, batch=BATCH, memory=limit, **sizes)
    assert isinstance(found, opcost.Recomputation)
    assert found.modules
    assert found.after.reserved_bytes is not None
    assert found.after.peak_bytes <= found.after.reserved_bytes <= limit
    for cost, report in ((found.before, large.before), (found.after, found.after)):
        assert cost.latency_ns is not None
        assert cost.band_ns is not None
        assert cost.band_ns[0] <= cost.latency_ns <= cost.band_ns[1]
        assert cost.flops == report.flops
    assert found.before.latency_ns is not None
    assert found.after.latency_ns is not None
    assert found.before.latency_ns < found.after.latency_ns
    counted = opcost.count(
        model, shapes=(BATCH, 512, WIDTH), optimizer="sgd", device="h200", checkpoint=found.checkpoint
    )
    assert opcost.predict(counted, device="h200").latency_ns == found.after.latency_ns


def test_on_a_device_that_cannot_be_predicted_work_decides() -> None:
    model = nn.Sequential(*[Block(4096) for _ in range(3)])
    sizes: Any = {"shapes": (2, 64, WIDTH), "optimizer": "sgd", "device": "m2-max", "batch": BATCH}
    large = opcost.fit(model, memory="100GiB", **sizes)
    assert isinstance(large, opcost.Recomputation)
    assert large.before.reserved_bytes is not None
    found = opcost.fit(model, memory=large.before.reserved_bytes * 3 // 4, **sizes)
    assert isinstance(found, opcost.Recomputation)
    assert found.modules
    assert (found.before.latency_ns, found.after.latency_ns) == (None, None)
    assert [note.partition(":")[0] for note in found.notes] == ["without a time"]


class Shared(nn.Module):
    """One block four times, as ALBERT has one layer for all."""

    def __init__(self) -> None:
        super().__init__()
        self.block, self.head = Block(100), Block(60)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(4):
            x = self.block(x)
        return self.head(x)


def test_a_module_that_is_called_often_is_recomputed_in_every_call() -> None:
    check_with_every_choice(Shared(), subsets(("block", "head")))


class Remembers(Block):
    """Keeps what no backward pass needs, which recomputing does not free."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen = x.repeat(1, 40)
        return super().forward(x)


@pytest.mark.parametrize(
    "more",
    [{"backward": True}, {"optimizer": "adamw", "accumulate": 3}, {"optimizer": "sgd", "zero_grad": "zero"}],
    ids=["backward", "accumulate", "zero"],
)
def test_other_steps_than_the_usual_one(more: dict[str, Any]) -> None:
    model = nn.Sequential(Block(60), Remembers(25), Block(90), Remembers(70))
    check_with_every_choice(model, subsets(f".{place}" for place in range(4)), **more)


@pytest.mark.zoo
def test_tokens_can_be_given_as_well_as_a_batch() -> None:
    """The size that varies is the one that must fit, and the batch an option of the count."""
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 64, "intermediate_size": 256, "num_hidden_layers": 3, "num_attention_heads": 4}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=50, **sizes))
    plain = opcost.count(model, batch=3, tokens=48, optimizer="sgd")
    every = opcost.count(model, batch=3, tokens=48, optimizer="sgd", checkpoint="layers.*")
    limit = (peak_of(plain) + peak_of(every)) // 2
    found = opcost.fit(model, vary="tokens", tokens=48, batch=3, memory=limit, optimizer="sgd")
    assert isinstance(found, opcost.Recomputation)
    assert (found.vary, found.size, found.options) == ("tokens", 48, {"batch": "3", "optimizer": "sgd"})
    assert found.inputs.startswith("input_ids 3x48 ")
    assert found.before.flops == plain.totals.flops < found.after.flops < every.totals.flops
    assert found.after.peak_bytes <= limit


# -- patterns ------------------------------------------------------------------------------------------------------------

PATHS = ["", "0", "1", "0.0", "0.1", "1.0", "dec.layers.3", "head", "dec.head"]
PATHS += [f"layers.{i}{part}" for i in range(24) for part in ("", ".mlp")]


@pytest.mark.parametrize(
    ("chosen", "patterns"),
    [
        ([f"layers.{i}.mlp" for i in range(24)], ("layers.*.mlp",)),
        ([f"layers.{i}.mlp" for i in range(13)], ("layers.[0-9].mlp", "layers.1[0-2].mlp")),
        ([f"layers.{i}" for i in range(4)], (".layers.[0-3]",)),  # dec.layers.3 ends so, too
        (["layers.5", "layers.7", "layers.8", "layers.20"], ("layers.[57-8]", "layers.20")),
        (["0", "1"], (".[0-1]",)),
        (["0"], (".0",)),
        (["0.1", "1.0"], ("0.1", "1.0")),
        (["head"], (".head",)),
        (["dec.head"], ("dec.head",)),
    ],
)
def test_patterns_match_what_they_stand_for(chosen: list[str], patterns: tuple[str, ...]) -> None:
    assert patterns_for(chosen, {path: path for path in PATHS}) == patterns
    assert {path for path in PATHS if any(matches(path, each) for each in patterns)} == set(chosen)


def test_two_names_of_one_module_are_one() -> None:
    every = {"": "", "a": "a", "b.a": "a"}
    assert patterns_for(["a"], every) == ("a",)


# -- the command -----------------------------------------------------------------------------------------------------------

SOURCE = """
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Parameter(torch.randn(16, 100)), nn.Parameter(torch.randn(100, 16))

    def forward(self, x):
        return x + torch.nn.functional.gelu(x @ self.up) @ self.down


def net():
    return nn.Sequential(*[Block() for _ in range(12)])
"""


@pytest.fixture
def source(tmp_path: Path) -> str:
    (tmp_path / "net.py").write_text(SOURCE)
    return f"{tmp_path / 'net.py'}:net"


def test_the_command_says_the_same_in_every_form(opcost_command: Callable[..., Any], source: str) -> None:
    options = ("-i", "1x16", "--batch", "512", "--optimizer", "adamw")
    plain = json.loads(opcost_command("count", source, "-i", "512x16", "--optimizer", "adamw", "--format", "json").out)
    limit = plain["peak_bytes"] * 2 // 3
    words = ("fit", source, *options, "--memory", str(limit) + "B")
    done = opcost_command(*words)
    assert done.code == 0, done.err
    assert max(map(len, done.out.splitlines())) <= 80
    data = json.loads(opcost_command(*words, "--format", "json").out)
    assert data["schema"] == "opcost.recomputation/1"
    assert data["before"]["peak_bytes"] == plain["peak_bytes"]
    assert data["after"]["peak_bytes"] <= limit
    for pattern in data["checkpoint"]:
        assert pattern in done.out
    flags = [word for pattern in data["checkpoint"] for word in ("--checkpoint", pattern)]
    same = opcost_command("count", source, "-i", "512x16", "--optimizer", "adamw", *flags, "--format", "json").out
    assert json.loads(same)["peak_bytes"] == data["after"]["peak_bytes"]
    rows = opcost_command(*words, "--format", "csv").out.splitlines()
    assert [row.split(",")[1] for row in rows[3:]] == data["modules"]
    failed = opcost_command("fit", source, *options, "--memory", f"{limit // 100}B", "--no-advise")
    assert failed.code == 1
    assert "batch 512 needs" in failed.err
