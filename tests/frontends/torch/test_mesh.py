"""`mesh=` counts one rank of a layout that does not exist, exactly as the same layout made by hand.

Numbers are derived below: the parameters, products and collectives of a decoder spread by FSDP2 and tensor parallelism.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from math import ceil, prod
from pathlib import Path
from typing import Any

import pytest
import torch
from mesh_models import (
    BF16,
    BLOCK,
    FLOAT,
    HIDDEN,
    LLAMA_70B,
    TOKENS,
    VOCABULARY,
    B,
    D,
    Decoder,
    S,
    collectives,
    llama,
)
from torch import Tensor, nn

import opcost
from opcost.core.overlap import is_sent
from opcost.core.report import Report
from opcost.core.several import several_counts
from opcost.errors import InputError
from opcost.frontends.torch.recording import sharded

dist = pytest.importorskip("torch.distributed")
if not dist.is_available():
    pytest.skip("PyTorch without torch.distributed", allow_module_level=True)


def state_of_process() -> tuple[Any, ...]:
    return dist.is_initialized(), sys.excepthook, torch.get_default_dtype(), torch.is_grad_enabled()


# -- Llama 3 70B ----------------------------------------------------------------------------------------------------------


class Llama:
    """What one rank of a Llama has and does, by its configuration."""

    width, heads, kv, hidden, vocabulary, *_ = LLAMA_70B.values()

    def __init__(self, layers: int, tokens: int, fsdp: int, tp: int) -> None:
        self.layers, self.tokens, self.fsdp, self.tp = layers, tokens, fsdp, tp
        width, kv = self.width, self.kv * self.width // self.heads
        self.products = [(width, width), (kv, width), (kv, width), (width, width)] + [(self.hidden, width)] * 3
        """Outputs and inputs of the linear layers of a block; the last of each two groups has them the other way round."""

    def params(self) -> int:
        """FSDP gives each rank whole rows: ceil(rows / ranks) of what tensor parallelism leaves, a bit more than its share."""

        def share(rows: int, columns: int) -> int:
            return ceil(rows / self.fsdp) * columns

        by_rows = [self.products[i] for i in (0, 1, 2, 4, 5)]  # colwise: rows of the weight are spread
        by_columns = [(self.width, self.width), (self.width, self.hidden)]  # rowwise: columns are
        block = sum(share(rows // self.tp, columns) for rows, columns in by_rows)
        block += sum(share(rows, columns // self.tp) for rows, columns in by_columns)
        block += 2 * share(self.width, 1)  # norms are on every rank of tp
        return self.layers * block + 2 * share(self.vocabulary // self.tp, self.width) + share(self.width, 1)

    def forward_flops(self) -> int:
        """Two for each multiplication and addition of the linear layers, the head, and attention over the full square."""
        linear = self.layers * sum(map(prod, self.products)) + self.vocabulary * self.width
        attention = self.layers * 2 * self.tokens * self.width
        return 2 * self.tokens * (linear + attention) // self.tp

    def gathered(self) -> tuple[int, int]:
        """Elements of a block and of the rest, as FSDP gathers them: rows filled up to a multiple of the ranks."""
        one_block = (
            Llama(1, self.tokens, self.fsdp, self.tp).params() - Llama(0, self.tokens, self.fsdp, self.tp).params()
        )
        rest = Llama(0, self.tokens, self.fsdp, self.tp).params()
        return one_block * self.fsdp, rest * self.fsdp

    def collectives(self) -> dict[tuple[str, str, str], tuple[int, int]]:
        """A ring moves (g - 1) / g of what is gathered or scattered, and twice that of what is summed."""
        block, rest = self.gathered()
        around = self.fsdp - 1
        summed = 2 * (self.tp - 1) * self.tokens * self.width * BF16 // self.tp
        logits = (self.tp - 1) * self.tokens * self.vocabulary * BF16 // self.tp
        forward_sums = 1 + 2 * self.layers  # the embedding, and of each block what attention and the rest put out
        # Backward sums the gradient of the input of each layer whose outputs are spread: q, k, v, gate, up, and the head.
        backward_sums = 5 * self.layers + 1
        return {
            ("forward", "fsdp", "all_gather"): (
                self.layers + 1,
                (self.layers * block + rest) * BF16 * around // self.fsdp,
            ),
            ("backward", "fsdp", "all_gather"): (self.layers, self.layers * block * BF16 * around // self.fsdp),
            ("backward", "fsdp", "reduce_scatter"): (
                self.layers + 1,
                (self.layers * block + rest) * FLOAT * around // self.fsdp,
            ),
            ("forward", "tp", "all_reduce"): (forward_sums, forward_sums * summed),
            ("backward", "tp", "all_reduce"): (backward_sums, backward_sums * summed),
            ("forward", "tp", "all_gather"): (1, logits),
        }


LLAMA_TOKENS = {"input_ids": torch.zeros(1, 8192, dtype=torch.long), "use_cache": False}


def test_the_closed_forms_of_80_layers() -> None:
    whole = Llama(80, 8192, fsdp=128, tp=8)
    assert whole.params() == 68_921_408
    assert whole.forward_flops() == pytest.approx(1.64330e14, rel=1e-5)
    found = whole.collectives()
    gathers, scatters = (
        [found[key] for key in found if key[1:] == ("fsdp", "all_gather")],
        found["backward", "fsdp", "reduce_scatter"],
    )
    sums = [found[key] for key in found if key[2] == "all_reduce"]
    assert sum(calls for calls, _ in gathers) == 161
    assert sum(wire for _, wire in gathers) / 2**30 == pytest.approx(32.1, abs=0.05)
    assert (scatters[0], scatters[1] / 2**30) == (81, pytest.approx(32.6, abs=0.05))
    assert sum(calls for calls, _ in sums) == 562
    assert sum(wire for _, wire in sums) / 2**30 == pytest.approx(122.9, abs=0.05)


@pytest.mark.zoo
def test_a_step_of_llama_70b_on_1024_ranks() -> None:
    """Two of its 80 layers: all figures are linear in their number."""
    expected = Llama(2, 8192, fsdp=128, tp=8)
    report = opcost.count(llama(2), kwargs=LLAMA_TOKENS, mesh="dp=128,tp=8", backward=True, precision="bf16-mixed")
    assert report.coverage.complete
    assert report.totals.params == expected.params()
    forward = sum(row.cost.macs for row in report.rows if row.op.phase == "forward" and row.cost)
    assert 2 * forward == expected.forward_flops()
    assert collectives(report) == expected.collectives()
    assert {key: report.meta[key] for key in ("mesh", "rank", "mixed_precision")} == {
        "mesh": "fsdp=128,tp=8", "rank": "0", "mixed_precision": "bfloat16",
    }  # fmt: skip


@pytest.mark.zoo
def test_the_plan_of_transformers_spreads_the_products_evenly() -> None:
    model = llama(1)
    one = opcost.count(model, kwargs=LLAMA_TOKENS)
    eighth = opcost.count(model, kwargs=LLAMA_TOKENS, mesh=opcost.Mesh(tp=8))
    assert one.totals.macs == 8 * eighth.totals.macs
    found = {key: calls for key, (calls, _) in collectives(eighth).items()}
    assert found == {("forward", "tp", "all_reduce"): 1 + 2 * 1, ("forward", "tp", "all_gather"): 1}


@pytest.mark.zoo
def test_16384_ranks_make_only_the_groups_of_one() -> None:
    report = opcost.count(llama(1), kwargs=LLAMA_TOKENS, mesh=opcost.Mesh(fsdp=2048, tp=8))
    assert report.totals.params == Llama(1, 8192, fsdp=2048, tp=8).params()
    assert report.totals.macs * 2 == Llama(1, 8192, fsdp=2048, tp=8).forward_flops()


@pytest.mark.zoo
def test_a_rank_has_the_cache_of_its_own_heads() -> None:
    """A step of decoding reads keys and values of the heads of this rank: half of them, and of their products, for two ranks."""
    model = llama(1, hidden_size=64, num_attention_heads=8, num_key_value_heads=4, intermediate_size=96, vocab_size=256)
    options: dict[str, Any] = {"decode": 1, "cache": 64}
    alone, half = opcost.count(model, **options), opcost.count(model, **options, mesh="tp=2")
    assert alone.totals.macs == 2 * half.totals.macs
    assert int(alone.meta["cache_bytes"]) == 2 * (64 + 1) * 4 * 8 * FLOAT == 2 * int(half.meta["cache_bytes"])
    assert opcost.count(model, **options).totals == alone.totals


@pytest.mark.zoo
def test_tied_embeddings_stay_one_tensor() -> None:
    tied, apart = (
        opcost.count(llama(0, tie_word_embeddings=tie), kwargs=LLAMA_TOKENS, mesh="tp=8").totals.params
        for tie in (True, False)
    )
    assert apart - tied == Llama.vocabulary * Llama.width // 8


@pytest.mark.zoo
def test_heads_that_do_not_divide() -> None:
    with pytest.raises(InputError, match="tp=16 does not divide num_key_value_heads of LlamaForCausalLM, 8") as caught:
        opcost.count(llama(1), kwargs=LLAMA_TOKENS, mesh="tp=16")
    assert caught.value.hint == "sizes that do: 1, 2, 4, 8"


# -- any model ------------------------------------------------------------------------------------------------------------


def test_layers_are_spread_by_their_usual_names() -> None:
    report = opcost.count(Decoder(), TOKENS, mesh="tp=4")
    attention = 2 * B * S * S * D
    assert (
        report.totals.macs == 3 * (B * S * BLOCK + attention) // 4 + B * S * D * VOCABULARY
    )  # output is no usual name
    assert report.totals.params == 3 * (BLOCK // 4 + 2 * D) + VOCABULARY * D // 4 + VOCABULARY * D


def test_a_plan_of_ones_own() -> None:
    plan = {"layers.*.feed.w1": "colwise", "layers.*.feed.w3": "colwise", "layers.*.feed.w2": "rowwise"}
    report = opcost.count(Decoder(), TOKENS, mesh="tp=3", tp_plan=plan)
    assert report.totals.params == opcost.count(Decoder(), TOKENS).totals.params - 3 * 3 * D * HIDDEN * 2 // 3
    assert {key: calls for key, (calls, _) in collectives(report).items()} == {("forward", "tp", "all_reduce"): 3}
    with pytest.raises(InputError, match=r"matches no module of Decoder: 'layers\.\*\.w1'"):
        opcost.count(Decoder(), TOKENS, mesh="tp=2", tp_plan={"layers.*.w1": "colwise"})
    with pytest.raises(InputError, match=r"tp=5 does not divide the outputs of layers\.0\.feed\.w1, 96"):
        opcost.count(Decoder(), TOKENS, mesh="tp=5", tp_plan=plan)


def test_a_model_without_known_layers_says_what_is_needed() -> None:
    with pytest.raises(InputError, match="Sequential has no plan of tensor parallelism") as caught:
        opcost.count(nn.Sequential(nn.Linear(4, 4)), torch.ones(1, 4), mesh="tp=2")
    assert "tp_plan=" in caught.value.hint


def test_a_mesh_is_the_layout_made_by_hand() -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.testing._internal.distributed.fake_pg import FakeStore

    report = opcost.count(Decoder(), TOKENS, mesh="fsdp=8", rank=3, optimizer="adamw")
    dist.init_process_group("fake", store=FakeStore(), rank=3, world_size=8)
    try:
        mesh, model = init_device_mesh("cpu", (8,), mesh_dim_names=("fsdp",)), Decoder()
        for layer in model.layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        by_hand = opcost.count(model, TOKENS, optimizer="adamw")
    finally:
        dist.destroy_process_group()
    assert report.totals._replace(ops=0) == by_hand.totals._replace(ops=0)  # they differ in views, which are free
    assert report.memory.peak_bytes == by_hand.memory.peak_bytes
    assert {key: made for (phase, _, fn), made in collectives(report).items() for key in [(phase, fn)]} == {
        key: made for (phase, _, fn), made in collectives(by_hand).items() for key in [(phase, fn)]
    }


def test_a_model_that_is_itself_a_list_of_blocks() -> None:
    """Eighths of each block, three blocks gathered at once, and the input and output of one."""
    block = 2 * 64 * 256 * FLOAT
    net = nn.Sequential(
        *(nn.Sequential(nn.Linear(64, 256, bias=False), nn.ReLU(), nn.Linear(256, 64, bias=False)) for _ in range(24))
    )
    report = opcost.count(net, torch.ones(8, 64), mesh=opcost.Mesh(fsdp=8))
    (gathered,) = report.collectives
    assert (gathered.axis, gathered.calls, gathered.payload_bytes) == ("fsdp", 24, 24 * block)
    assert gathered.overlap_flops == 23 * (
        2 * 2 * 8 * 64 * 256 + 8 * 256
    )  # of the block before: two products, and ReLU
    activations = 2 * 8 * 64 * FLOAT
    assert report.peak_bytes == 24 * block // 8 + 3 * block + activations == 790_528


def test_counts_of_one_model_on_several_meshes_keep_their_groups_apart() -> None:
    """PyTorch numbers the groups of each mesh from the start."""
    with several_counts():
        groups = {
            tp: {
                row.op.attrs["group"]
                for row in opcost.count(Decoder(), TOKENS, mesh={"tp": tp}).rows
                if is_sent(row.op)
            }
            for tp in (2, 4)
        }
    assert groups == {2: {2}, 4: {4}}


def test_copies_of_the_shards_sum_their_gradients() -> None:
    """Eight ranks shard, and four such groups hold copies: each part of a gradient is summed over four."""
    found = collectives(opcost.count(Decoder(), TOKENS, mesh="replicate=4,fsdp=8", backward=True))
    alone = collectives(opcost.count(Decoder(), TOKENS, mesh="fsdp=8", backward=True))
    shards = alone["backward", "fsdp", "reduce_scatter"][1] // 7  # a ring moves 7 parts of eight
    assert found.pop(("backward", "replicate", "all_reduce")) == (3 + 1, 2 * 3 * shards // 4)
    assert found == alone


def test_copies_of_a_model_that_is_larger_than_any_memory() -> None:
    size = 400_000
    with torch.device("meta"):
        model = nn.Linear(size, size, bias=False)
    report = opcost.count(model, torch.ones(1, size), mesh="replicate=4", backward=True)
    (summed,) = report.collectives
    assert (summed.collective, summed.payload_bytes) == ("all_reduce", size * size * FLOAT)


def test_copies_of_the_whole_model_average_their_gradients() -> None:
    """DistributedDataParallel sums buckets: a first one of 1 MiB, which is more than this model has."""
    report = opcost.count(Decoder(), TOKENS, mesh="replicate=8", backward=True)
    alone = opcost.count(Decoder(), TOKENS, backward=True)
    params = alone.totals.params
    assert (report.totals.params, report.totals.macs) == (params, alone.totals.macs)
    assert params * FLOAT < 2**20
    assert collectives(report) == {("backward", "replicate", "all_reduce"): (1, 2 * 7 * params * FLOAT // 8)}
    assert collectives(opcost.count(Decoder(), TOKENS, mesh="replicate=8")) == {}


def test_without_reshard_nothing_is_gathered_again() -> None:
    found = {
        key: calls
        for key, (calls, _) in collectives(opcost.count(Decoder(), TOKENS, mesh="fsdp=8", backward=True)).items()
    }
    kept = collectives(opcost.count(Decoder(), TOKENS, mesh="fsdp=8", backward=True, reshard=False))
    assert found["forward", "fsdp", "all_gather"] == 3 + 1
    assert found["backward", "fsdp", "all_gather"] == 3
    assert {key: calls for key, (calls, _) in kept.items()} == {
        ("forward", "fsdp", "all_gather"): 3 + 1, ("backward", "fsdp", "reduce_scatter"): 3 + 1,
    }  # fmt: skip


def test_gradients_are_summed_in_the_type_that_is_given() -> None:
    sums = {
        dtype: collectives(
            opcost.count(Decoder(), TOKENS, mesh="fsdp=8", backward=True, precision="bf16-mixed", reduce_dtype=dtype)
        )["backward", "fsdp", "reduce_scatter"][1]
        for dtype in (None, "float32", "bf16")
    }
    assert sums[None] == sums["float32"] == 2 * sums["bf16"]


def test_equal_tensors_of_one_operator_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """AdamW updates all parameters in one operator; the layouts of its results are those that PyTorch finds one by one."""
    model = llama(
        6, hidden_size=64, intermediate_size=128, num_attention_heads=8, num_key_value_heads=4, vocab_size=256
    )
    longest: list[int] = []

    def counted(find: Callable[..., Any]) -> Report:
        def noted(propagate: Callable[..., Any], propagator: Any, schema: Any) -> Any:
            longest[-1] = max(
                longest[-1], *(len(arg) for arg in schema.args_schema if isinstance(arg, (list, tuple))), 0
            )
            return propagate(propagator, schema)

        longest.append(0)
        stand_in = lambda propagate, *args: find(partial(noted, propagate), *args)
        monkeypatch.setattr(sharded, "once_for_equal_tensors", stand_in)
        return opcost.count(model, tokens=16, mesh="fsdp=2,tp=2", optimizer="adamw", device="h100")

    once, each = counted(sharded.once_for_equal_tensors), counted(lambda propagate, *args: propagate(*args))
    assert once == each
    # four of attention, three of the products and two norms of each block, beside the last norm, embedding and head;
    # alike are the norms, k and v, gate and up, embedding and head, and the same of all blocks
    assert longest == [7, 6 * 9 + 3]


def test_all_ranks_of_equal_shards_do_the_same() -> None:
    first, last = (opcost.count(Decoder(), TOKENS, mesh="fsdp=4,tp=2", rank=rank, backward=True) for rank in (0, 7))
    assert first.totals == last.totals
    assert collectives(first) == collectives(last)


def test_what_pytorch_remembers_of_a_mesh_is_not_taken_for_another() -> None:
    """Of as many ranks, with the same neighbours: only the names of groups differ, by which collectives find theirs."""
    for mesh, axes in (("fsdp=8,tp=2", {"fsdp", "tp"}), ("replicate=2,fsdp=4,tp=2", {"fsdp", "tp"})):
        assert {axis for _, axis, _ in collectives(opcost.count(Decoder(), TOKENS, mesh=mesh))} == axes


def test_a_mesh_of_one_rank_is_the_model_alone() -> None:
    assert opcost.count(Decoder(), TOKENS, mesh="tp=1").totals == opcost.count(Decoder(), TOKENS).totals


# -- what stays as it was -------------------------------------------------------------------------------------------------


def test_the_model_and_the_process_stay_as_they_were() -> None:
    model = Decoder()
    parameters, before = [*model.parameters()], state_of_process()
    contents = [p.detach().clone() for p in parameters]
    opcost.count(model, TOKENS, mesh="fsdp=2,tp=2", optimizer="adamw")
    assert state_of_process() == before
    assert all(a is b for a, b in zip(parameters, model.parameters(), strict=True))
    assert all(torch.equal(a, b) for a, b in zip(parameters, contents, strict=True))
    assert type(model) is Decoder
    assert all(p.grad is None for p in parameters)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_an_error_leaves_the_process_as_it_was_too() -> None:
    class Fails(Decoder):
        def forward(self, tokens: Tensor) -> Tensor:
            raise ValueError("not today")

    before = state_of_process()
    with pytest.raises(opcost.OpcostError, match="not today"):
        opcost.count(Fails(), TOKENS, mesh="fsdp=2")
    assert state_of_process() == before


def test_counts_in_several_threads_take_turns() -> None:
    with ThreadPoolExecutor(2) as pool:
        found = [*pool.map(lambda ranks: opcost.count(Decoder(), TOKENS, mesh=f"fsdp={ranks}").totals.params, (2, 4))]
    assert found[0] == 2 * found[1]


def test_a_process_that_has_a_group_cannot_be_another_rank() -> None:
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=1, world_size=4)
    try:
        group = dist.group.WORLD
        with pytest.raises(InputError, match="already rank 1 of 4"):
            opcost.count(Decoder(), TOKENS, mesh="fsdp=2")
        assert dist.group.WORLD is group
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rank": 1}, "rank is about one rank of a mesh"),
        ({"reshard": False}, "reshard is about one rank of a mesh"),
        ({"mesh": "fsdp=4", "rank": 4}, "the mesh has 4 ranks"),
        ({"mesh": "fsdp=4", "real": True}, "no data to run on"),
        ({"mesh": "fsdp=4", "quantize": "int8"}, "not spread over ranks"),
    ],
)
def test_options_that_do_not_go_together(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        opcost.count(Decoder(), TOKENS, **options)


def test_a_file_has_no_mesh(tmp_path: Path) -> None:
    file = tmp_path / "net.pt2"
    torch.export.save(torch.export.export(nn.Linear(4, 4), (torch.ones(1, 4),)), file)
    with pytest.raises(InputError, match="a mesh needs a model in PyTorch"):
        opcost.count(file, mesh="fsdp=2")
