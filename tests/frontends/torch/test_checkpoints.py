"""Activation checkpoints around modules of the user's choice: `checkpoint="blocks.*"`."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from functools import partial
from itertools import count
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from helpers_live import Live, work
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

import opcost
from opcost.errors import ForwardError, InputError, UnknownName

pytestmark = pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")
N, K, M, DEEP = 64, 16, 64, 4
"""Rows, features of a block and inside of it, and the number of blocks."""


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(K, M), nn.Linear(M, K)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(F.gelu(self.up(x)))


class Net(nn.Module):
    """Blocks, with checkpoints of its own if `own` is set, and a loss."""

    def __init__(self, *, own: bool = False) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(DEEP))
        self.own = own

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.own else block(x)
        return x.square().mean()


def rows() -> Tensor:
    return torch.randn(N, K)


@pytest.mark.parametrize("mixed", [False, True], ids=["float32", "mixed"])
def test_it_is_what_a_real_step_with_checkpoints_runs_and_holds(mixed: bool) -> None:
    model, x = Net(own=True), rows()
    with Live() as live:
        with torch.autocast("cpu", torch.bfloat16) if mixed else nullcontext():
            loss = model(x)
        loss.backward()
    precision = "bf16-mixed" if mixed else None
    report = opcost.count(Net(), x, backward=True, checkpoint="blocks.*", precision=precision)
    if mixed:  # the order of casts depends on the compiler that built PyTorch: see test_precision
        assert sorted(work(report)) == sorted(live.work)
    else:
        assert work(report) == live.work
    seed = 4  # a loss begins with one number, which a count lets go when it was read
    assert live.peak - (report.memory.peak_bytes - report.memory.base_bytes) in (0, seed)


def test_it_is_what_the_model_would_do_itself() -> None:
    requested, own = (
        opcost.count(Net(own=own), rows(), optimizer="adamw", checkpoint=pattern)
        for own, pattern in ((False, "blocks.*"), (True, ()))
    )
    assert requested.rows == own.rows
    assert requested.memory == own.memory


def test_a_block_keeps_its_input_and_runs_again() -> None:
    plain, requested = (
        opcost.count(Net(), rows(), backward=True, checkpoint=pattern, real=False) for pattern in ((), "blocks.*")
    )
    product = N * K * M
    assert plain.totals.macs == DEEP * (2 * product + 4 * product) - product  # the first input needs no gradient
    # All but the last product of a block, after which everything is there that the backward pass needs.
    assert requested.totals.macs - plain.totals.macs == DEEP * product
    assert requested.phases["forward"] == plain.phases["forward"]
    assert requested.module("blocks.0").calls == 2
    # Of every block but its input (the first is the user's) the inner features are kept twice, or not at all.
    inner, between = N * M * 4, N * K * 4
    assert plain.memory.parts["saved"] > DEEP * inner
    last = sum(row.op.phase == "forward" for row in requested.rows) - 1
    kept = requested.memory.curve[last] - requested.memory.base_bytes
    assert DEEP * between <= kept < DEEP * between + inner


@pytest.mark.parametrize(
    ("pattern", "called"),
    [
        ("blocks.*", ["blocks.0", "blocks.1", "blocks.2", "blocks.3"]),
        ("blocks.[12]", ["blocks.1", "blocks.2"]),
        (["blocks.0", "blocks.3"], ["blocks.0", "blocks.3"]),
        ("up", ["blocks.0.up", "blocks.1.up", "blocks.2.up", "blocks.3.up"]),
    ],
    ids=str,
)
def test_a_pattern_is_the_end_of_a_path_and_a_star_one_name(pattern: Any, called: list[str]) -> None:
    report = opcost.count(Net(), rows(), backward=True, checkpoint=pattern)
    modules = {module.path: module.calls for module in report.modules}
    again = {path for path, calls in modules.items() if calls == 2}
    assert sorted(path for path in again if path.rpartition(".")[0] not in again) == called


def test_weights_without_memory_are_recomputed_with() -> None:
    with torch.device("meta"):
        nowhere, own = Net(), Net(own=True)
    there = opcost.count(Net(), rows(), backward=True, checkpoint="blocks.*")
    assert opcost.count(nowhere, rows(), backward=True, checkpoint="blocks.*").memory == there.memory
    assert opcost.count(own, rows(), backward=True).memory == there.memory


def test_layers_of_transformers_write_to_no_cache_when_they_run_twice() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        hidden_size=K, intermediate_size=M, num_hidden_layers=2, num_attention_heads=2, vocab_size=8
    )
    model, tokens = transformers.LlamaForCausalLM(config).train(), torch.zeros(1, 8, dtype=torch.int64)
    requested = opcost.count(model, tokens, backward=True, checkpoint="layers.*")
    model.gradient_checkpointing_enable()
    own = opcost.count(model, tokens, backward=True)
    for path in ("model.layers.0", "model.layers.1"):
        assert requested.module(path).total == own.module(path).total
    assert requested.totals.macs == own.totals.macs


def test_nothing_about_the_model_changes_also_if_it_fails_or_is_interrupted() -> None:
    class Stops(nn.Module):
        def __init__(self, error: BaseException) -> None:
            super().__init__()
            self.layer, self.error = nn.Linear(K, K), error

        def forward(self, x: Tensor) -> Tensor:
            if torch._C._current_autograd_node() is not None:  # in the backward pass
                raise self.error
            return self.layer(x).sin()

    for error, raised in ((ValueError("as it pleases"), ForwardError), (KeyboardInterrupt(), KeyboardInterrupt)):
        model = nn.Sequential(Stops(error), nn.Linear(K, K))
        before = [(module, dict(vars(module))) for module in model.modules()]
        with pytest.raises(raised):
            opcost.count(model, rows(), backward=True, checkpoint="0")
        assert [(module, dict(vars(module))) for module in model.modules()] == before
        assert opcost.count(model, rows()).totals.macs == 2 * N * K * K


def test_a_pattern_that_means_nothing_is_an_error() -> None:
    with pytest.raises(UnknownName, match=r"unknown module path 'block.\*'; did you mean 'blocks.\*'"):
        opcost.count(Net(), rows(), backward=True, checkpoint="block.*")
    with pytest.raises(UnknownName, match=r"known: blocks, blocks.\*, blocks.\*.down, blocks.\*.up"):
        opcost.count(Net(), rows(), backward=True, checkpoint=["blocks.*", "transformer.h.*"])
    with pytest.raises(InputError, match=r"is called: blocks \(ModuleList\)") as caught:
        opcost.count(Net(), rows(), backward=True, checkpoint="blocks")
    assert caught.value.hint == "mean the modules in it: blocks.*"
    with pytest.raises(InputError, match="checkpoint is about a training step"):
        opcost.count(Net(), rows(), checkpoint="blocks.*")


class Attending(nn.Module):
    """Products and attention, the last product not the last operator: M, K and N as above."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(K, K, bias=False) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (each(x).view(1, N, 2, K // 2).transpose(1, 2) for each in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.out(y.transpose(1, 2).reshape(N, K)).relu()


class Kept(nn.Module):
    """Blocks that keep, if they are `own`, the results of attention and of every product, or every second."""

    def __init__(self, every: int = 0) -> None:
        super().__init__()
        self.blocks, self.every = nn.ModuleList(Attending() for _ in range(DEEP)), every

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            if not self.every:
                x = block(x)
                continue
            numbers = {False: count(), True: count()}

            def policy(context: Any, func: Any, *_: Any, numbers: Any = numbers, **__: Any) -> bool:
                if func is torch.ops.aten.mm.default:
                    return next(numbers[context.is_recompute]) % self.every == 0
                return func is torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default

            contexts = partial(create_selective_checkpoint_contexts, policy)
            x = checkpoint(block, x, use_reentrant=False, context_fn=contexts)
        return x.square().mean()


@pytest.mark.parametrize(("keep", "every"), [("products", 1), ("alternate", 2)])
def test_results_that_are_kept_are_not_computed_again_as_in_a_real_step(keep: str, every: int) -> None:
    model, x = Kept(every), rows()
    with Live() as live:
        model(x).backward()
    report = opcost.count(Kept(), x, backward=True, checkpoint="blocks.*", checkpoint_keep=keep)
    assert [name for name, _ in work(report)] == [name for name, _ in live.work]
    assert live.peak - (report.memory.peak_bytes - report.memory.base_bytes) in (0, 4)  # of the loss, as above
    names = Counter((row.op.phase, row.op.raw.rpartition("::")[2]) for row in report.rows)
    again = DEEP * {1: 0, 2: 2}[every]  # of four products of a block the second and the last
    # each product has two in its backward pass, but those of the input, which has no gradient, have one
    assert names["backward", "mm"] == DEEP * 8 - 3 + again
    assert names["backward", "_scaled_dot_product_flash_attention_for_cpu"] == 0


def test_what_is_kept_belongs_to_checkpoints() -> None:
    with pytest.raises(InputError, match="none is named"):
        opcost.count(Kept(), rows(), backward=True, checkpoint_keep="products")
    with pytest.raises(UnknownName, match="alternate"):
        opcost.count(Kept(), rows(), backward=True, checkpoint="blocks.*", checkpoint_keep="alternating")
