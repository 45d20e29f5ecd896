"""Expert parallelism: experts on the ranks of `ep`, to which tokens are sent and from which they come back.

Routing is balanced by force: of R rows, one for each token and each of its experts, a rank sends R / ep to each rank, and gets as
many. So a rank runs as many products as without, and has 1/ep of the experts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from mesh_models import FLOAT, causal_lm, collectives
from torch import Tensor, nn

import opcost
from opcost.core.report import Report
from opcost.errors import InputError

dist = pytest.importorskip("torch.distributed")
if not dist.is_available():
    pytest.skip("PyTorch without torch.distributed", allow_module_level=True)

LAYERS, TEXTS, LENGTH, WIDTH, WORDS, HEADS, KV = 3, 2, 128, 64, 256, 8, 4
EXPERTS, USES, HIDDEN = 64, 2, 32
ROWS = TEXTS * LENGTH * USES
EXPERT = 3 * WIDTH * HIDDEN  # weights of one
MIXTRAL: dict[str, Any] = {
    "hidden_size": WIDTH, "num_attention_heads": HEADS, "num_key_value_heads": KV, "intermediate_size": HIDDEN,
    "vocab_size": WORDS, "num_local_experts": EXPERTS, "num_experts_per_tok": USES, "num_hidden_layers": LAYERS,
    "attn_implementation": "sdpa",
}  # fmt: skip
PASS: dict[str, Any] = {"batch": TEXTS, "tokens": LENGTH}


def moved(ranks: int) -> int:
    """What a rank sends of its rows: all but those of its own experts."""
    return ROWS * WIDTH * FLOAT * (ranks - 1) // ranks


def exchanges(report: Report, axis: str = "ep") -> dict[tuple[str, str], tuple[int, int]]:
    """Calls and bytes of exchanges of tokens, by phase and element type."""
    found = [line for line in report.collectives if (line.collective, line.axis) == ("all_to_all", axis)]
    return {(line.phase, line.dtype): (line.calls, line.wire_bytes) for line in found}


# -- models of transformers ------------------------------------------------------------------------------------------------


@pytest.mark.zoo
def test_64_experts_over_8_ranks() -> None:
    """Four exchanges of tokens per layer and step, and one of how many there are for each expert."""
    model = causal_lm("mixtral", **MIXTRAL)
    alone, report = (opcost.count(model, **PASS, backward=True, mesh=mesh) for mesh in (None, "ep=8"))
    assert report.coverage.complete
    assert report.totals.macs == alone.totals.macs
    assert alone.totals.params - report.totals.params == LAYERS * EXPERTS * EXPERT * 7 // 8
    tokens = (2 * LAYERS, 2 * LAYERS * moved(8))
    numbers = EXPERTS * 8 * 7 // 8
    assert exchanges(report) == {
        ("forward", "float32"): tokens, ("backward", "float32"): tokens, ("forward", "int64"): (LAYERS, LAYERS * numbers),
    }  # fmt: skip
    assert any("balanced by force" in note.text for note in report.notes)


@pytest.mark.zoo
@pytest.mark.parametrize("tokens", [24, 1 << 17])
def test_few_and_very_many_tokens(tokens: int) -> None:
    """Not equally many for all experts: the first ones have one more; and more than are followed one by one."""
    model = causal_lm("mixtral", **{**MIXTRAL, "num_hidden_layers": 1})
    report = opcost.count(model, batch=2, tokens=tokens, mesh="ep=8", rank=7)
    rows, each = 2 * tokens * USES, EXPERTS // 8
    counts = [rows // EXPERTS + (expert < rows % EXPERTS) for expert in range(EXPERTS)]
    own = sum(counts[-each:])
    sent, came = rows - own, 7 * own  # every rank sends this one as many
    assert exchanges(report)["forward", "float32"] == (2, (sent + came) * WIDTH * FLOAT)
    products = sum(row.cost.macs for row in report.rows if row.op.raw == "aten::_grouped_mm" and row.cost)
    assert products == 8 * own * EXPERT


@pytest.mark.zoo
@pytest.mark.parametrize("name", ["qwen3_moe", "deepseek_v3", "gpt_oss", "granitemoe"])
def test_families_of_transformers_send_tokens(name: str) -> None:
    sizes: dict[str, Any] = {
        **MIXTRAL, "num_experts": EXPERTS, "n_routed_experts": EXPERTS, "moe_intermediate_size": HIDDEN, "n_group": 2,
        "topk_group": 1, "first_k_dense_replace": 1, "q_lora_rank": 32, "kv_lora_rank": 16, "qk_rope_head_dim": 8,
        "qk_nope_head_dim": 8,
        "v_head_dim": 8, "head_dim": 8,
    }  # fmt: skip
    if name == "gpt_oss":
        sizes["attn_implementation"] = "eager"
    if name == "deepseek_v3":
        sizes["num_key_value_heads"] = HEADS
    report = opcost.count(causal_lm(name, **sizes), **PASS, backward=True, mesh="ep=8")
    layers = LAYERS - (name == "deepseek_v3")  # the first of which is dense
    assert report.coverage.complete
    found = exchanges(report)
    assert found["forward", "float32"] == found["backward", "float32"] == (2 * layers, 2 * layers * moved(8))


@pytest.mark.zoo
@pytest.mark.parametrize(
    ("mesh", "dense", "experts"),
    [("fsdp=2,ep=4", ("fsdp_ep", 8), ("fsdp", 2)), ("fsdp=1,ep=4", ("ep", 4), ("fsdp", 1)),
     ("fsdp=2,cp=2,ep=4", ("fsdp_cp_ep", 16), ("fsdp_cp", 4))],
)  # fmt: skip
def test_experts_are_sharded_over_ranks_with_the_same_ones(
    mesh: str, dense: tuple[str, int], experts: tuple[str, int]
) -> None:
    """All ranks have other tokens, so the rest of the model is sharded over all of them."""
    model = causal_lm("mixtral", **MIXTRAL)
    whole = opcost.count(model, **PASS).totals.params
    report = opcost.count(model, **PASS, backward=True, mesh=mesh)
    of_experts = LAYERS * EXPERTS * EXPERT
    assert report.totals.params == (whole - of_experts) // dense[1] + of_experts // 4 // experts[1]
    found = collectives(report)
    scattered = {
        axis: calls for (phase, axis, fn), (calls, _) in found.items() if (phase, fn) == ("backward", "reduce_scatter")
    }
    assert scattered == {dense[0]: LAYERS + 1, **({experts[0]: LAYERS} if experts[1] > 1 else {})}
    gathered = (of_experts // 4) * FLOAT * (experts[1] - 1) // experts[1]
    assert found.get(("forward", experts[0], "all_gather"), (0, 0))[1] == (gathered if experts[1] > 1 else 0)


@pytest.mark.zoo
def test_gradients_are_averaged_without_those_of_experts() -> None:
    model = causal_lm("mixtral", **MIXTRAL)
    report = opcost.count(model, **PASS, backward=True, mesh="ep=8")
    others = report.totals.params - LAYERS * EXPERTS // 8 * EXPERT
    assert collectives(report)["backward", "ep", "all_reduce"] == (1, 2 * others * FLOAT * 7 // 8)
    with pytest.raises(InputError, match="over other ranks than those of the rest") as caught:
        opcost.count(model, **PASS, backward=True, mesh="replicate=2,ep=4")
    assert "fsdp=1" in caught.value.hint


@pytest.mark.zoo
def test_with_tensor_parallelism_experts_are_spread_over_its_ranks_too() -> None:
    """Ranks with the same tokens send a part of them each, and gather the results."""
    model = causal_lm("mixtral", **MIXTRAL)
    alone, report = (
        opcost.count(model, **PASS, backward=True, mesh=mesh) for mesh in ("fsdp=2,tp=2", "fsdp=2,ep=4,tp=2")
    )
    assert report.coverage.complete
    found = exchanges(report, "ep_tp")
    assert found["forward", "float32"] == found["backward", "float32"] == (2 * LAYERS, 2 * LAYERS * moved(8) // 2)
    results = collectives(report)["forward", "tp", "all_gather"]
    logits = TEXTS * LENGTH * WORDS * FLOAT // 2
    assert results == (LAYERS + 1, LAYERS * TEXTS * LENGTH * WIDTH * FLOAT // 2 + logits)
    assert report.totals.macs == alone.totals.macs  # half of all tokens each, instead of half of each expert


@pytest.mark.zoo
def test_a_plan_that_sums_partial_results() -> None:
    """Every rank has all tokens: a rank has 1/ep of the products of experts, and all others."""
    sizes: dict[str, Any] = {
        **MIXTRAL, "n_routed_experts": EXPERTS, "moe_intermediate_size": HIDDEN, "n_group": 1, "topk_group": 1, "v_head_dim": 8,
        "head_dim": 8, "attn_implementation": "eager", "pad_token_id": 0,
    }  # fmt: skip
    model = causal_lm("mimo_v2_flash", **sizes)
    alone, report = (opcost.count(model, **PASS, mesh=mesh) for mesh in (None, "ep=4"))
    layers = sum(type(module).__name__.endswith("Experts") for module in model.modules())
    assert layers
    assert alone.totals.macs - report.totals.macs == layers * ROWS * EXPERT * 3 // 4
    summed = 2 * TEXTS * LENGTH * WIDTH * FLOAT * 3 // 4
    assert collectives(report) == {("forward", "ep", "all_reduce"): (layers, layers * summed)}
    assert any("partial results are summed" in note.text for note in report.notes)
    sharded = opcost.count(model, **PASS, mesh="fsdp=2,ep=4")
    assert {axis for _, axis, _ in collectives(sharded)} == {"fsdp", "ep"}  # ranks of ep are no ranks of data
    sending = opcost.count(model, **PASS, mesh="ep=4", experts="model.layers.*.mlp.experts")
    assert exchanges(sending)["forward", "float32"] == (2 * layers, 2 * layers * moved(4))
    assert sending.totals.macs == alone.totals.macs
    with pytest.raises(InputError, match="so ep and tp are one") as caught:
        opcost.count(model, **PASS, mesh="ep=2,tp=2")
    assert "experts='model.layers.*.mlp.experts'" in caught.value.hint


# -- other models ----------------------------------------------------------------------------------------------------------


class Expert(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w1, self.w3 = (nn.Linear(WIDTH, HIDDEN, bias=False) for _ in range(2))
        self.w2 = nn.Linear(HIDDEN, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.w2(nn.functional.silu(self.w1(x)) * self.w3(x))


class Listed(nn.Module):
    """Experts in a list, each of which is called with the rows of its tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(WIDTH, EXPERTS, bias=False)
        self.experts = nn.ModuleList(Expert() for _ in range(EXPERTS))

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.flatten(0, -2)
        weights, chosen = self.gate(tokens).softmax(-1).topk(USES)
        made = torch.zeros_like(tokens)
        for number, expert in enumerate(self.experts):
            token, place = torch.where(chosen == number)
            made.index_add_(0, token, expert(tokens[token]) * weights[token, place, None])
        return made.view(x.shape)


class Stacked(nn.Module):
    """Experts with stacked weights, called with sorted rows and how many there are of each expert."""

    class Experts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.number = EXPERTS
            self.up = nn.Parameter(torch.empty(EXPERTS, WIDTH, 2 * HIDDEN))
            self.down = nn.Parameter(torch.empty(EXPERTS, HIDDEN, WIDTH))

        def forward(self, rows: Tensor, counts: Tensor) -> Tensor:
            groups = rows.view(self.number, -1, WIDTH)
            assert len(counts) == self.number
            gate, up = torch.bmm(groups, self.up).chunk(2, dim=-1)
            return torch.bmm(nn.functional.silu(gate) * up, self.down).flatten(0, 1)

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.experts = nn.Linear(WIDTH, EXPERTS, bias=False), self.Experts()

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.flatten(0, -2)
        weights, chosen = self.gate(tokens).softmax(-1).topk(USES)
        order = chosen.flatten().argsort()
        made = self.experts(tokens[order // USES], chosen.flatten().bincount(minlength=EXPERTS))
        return torch.zeros_like(tokens).index_add(0, order // USES, made * weights.flatten()[order, None]).view(x.shape)


class Net(nn.Module):
    def __init__(self, block: Callable[[], nn.Module], layers: int = LAYERS) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH, bias=False)
        self.layers = nn.ModuleList(block() for _ in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for layer in self.layers:
            x = x + layer(x)
        return x


X = torch.ones(TEXTS, LENGTH, WIDTH)


@pytest.mark.parametrize("block", [Listed, Stacked])
def test_experts_of_any_model(block: Callable[[], nn.Module]) -> None:
    """Four exchanges per layer and step, and nothing else is sent for the experts."""
    model = Net(block)
    alone, report = (opcost.count(model, X, backward=True, mesh=mesh) for mesh in (None, "ep=8"))
    assert report.coverage.complete
    assert report.totals.macs == alone.totals.macs
    assert report.totals.params == alone.totals.params - LAYERS * EXPERTS * EXPERT * 7 // 8
    tokens = (2 * LAYERS, 2 * LAYERS * moved(8))
    assert exchanges(report) == {("forward", "float32"): tokens, ("backward", "float32"): tokens}
    others = WIDTH * WIDTH + LAYERS * WIDTH * EXPERTS
    assert collectives(report)["backward", "ep", "all_reduce"] == (1, 2 * others * FLOAT * 7 // 8)
    assert opcost.count(model, X, backward=True).totals == alone.totals  # the model is as it was


@pytest.mark.parametrize("block", [Listed, Stacked])
def test_experts_of_a_layer_are_gathered_together(block: Callable[[], nn.Module]) -> None:
    report = opcost.count(Net(block), X, backward=True, mesh="fsdp=2,ep=4")
    of_layer = EXPERTS // 4 * EXPERT * FLOAT // 2
    found = collectives(report)
    for phase, fn in (("forward", "all_gather"), ("backward", "all_gather"), ("backward", "reduce_scatter")):
        assert found[phase, "fsdp", fn] == (LAYERS, LAYERS * of_layer)


def test_each_rank_has_its_own_experts_of_a_list() -> None:
    report = opcost.count(Net(Listed), X, mesh="ep=8", rank=3)
    of_rank = {row.op.module for row in report.rows if row.op.kind == "matmul" and ".experts." in row.op.module}
    names = ("w1", "w2", "w3")
    assert of_rank == {
        f"layers.{layer}.experts.{n}.{w}" for layer in range(LAYERS) for n in range(24, 32) for w in names
    }
    rows = {
        row.ins[0].shape for row in report.rows if row.op.module == "layers.0.experts.24.w1" and row.op.kind == "matmul"
    }
    assert rows == {(8 * ROWS // EXPERTS, WIDTH)}  # of all ranks


def test_experts_of_a_list_are_split_by_tensor_parallelism() -> None:
    alone, report = (opcost.count(Net(Listed), X, mesh=mesh) for mesh in ("ep=4", "ep=4,tp=2"))
    gates, first = LAYERS * TEXTS * LENGTH * WIDTH * EXPERTS, TEXTS * LENGTH * WIDTH * WIDTH
    assert report.totals.macs == (alone.totals.macs - gates - first) // 2 + gates + first
    assert exchanges(report) == exchanges(alone)


def test_names_of_ones_own() -> None:
    class Named(Net):
        def __init__(self) -> None:
            super().__init__(Stacked)
            for layer in self.layers:
                layer.mixture = layer.experts
                del layer.experts

    with pytest.raises(InputError, match="Named has no experts to spread") as caught:
        opcost.count(Named(), X, mesh="ep=8")
    assert "experts='layers.*.moe.experts'" in caught.value.hint
    with pytest.raises(InputError, match=r"no experts to spread: layers\.\*\.expert"):
        opcost.count(Named(), X, mesh="ep=8", experts="layers.*.expert")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mesh": "ep=3"}, r"ep=3 does not divide the 64 experts of layers\.0\.experts"),
        ({"mesh": "fsdp=8", "experts": "layers.*.experts"}, "the mesh has no axis ep"),
    ],
)
def test_what_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        opcost.count(Net(Listed), X, **options)


def test_stacked_experts_that_get_no_sorted_rows_are_refused() -> None:
    class Dense(Stacked):
        def forward(self, x: Tensor) -> Tensor:
            return self.experts(x.flatten(0, -2).repeat(EXPERTS, 1))

    with pytest.raises(InputError, match=r"layers\.0\.experts is not called with rows of tokens sorted by expert"):
        opcost.count(Net(Dense), X, mesh="ep=8")


def test_a_routing_that_is_not_balanced_is_refused() -> None:
    class Fixed(Listed):
        def forward(self, x: Tensor) -> Tensor:
            tokens = x.flatten(0, -2)
            return self.experts[0](tokens[:10]).sum() + self.experts[1](tokens).view(x.shape)

    with pytest.raises(InputError, match="expert 0 is called with 10 rows, and a balanced routing has 8"):
        opcost.count(Net(Fixed), X, mesh="ep=8")
