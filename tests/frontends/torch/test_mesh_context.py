"""Context parallelism: each rank has 1/cp of the sequence, and attention gets keys and values of the others.

With load balance a rank has the parts r and 2 cp - 1 - r of 2 cp. Attention with its own keys is causal; with those of an earlier
rank all queries see the first half of the keys, with those of a later one the second half of the queries sees all.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from mesh_models import BF16, FLOAT, Decoder, causal_lm, collectives, llama
from torch import Tensor, nn

import opcost
from opcost.core.report import Report
from opcost.errors import InputError

dist = pytest.importorskip("torch.distributed")
if not dist.is_available():
    pytest.skip("PyTorch without torch.distributed", allow_module_level=True)

CP, LAYERS, TEXTS, LENGTH, WIDTH, HEADS, KV = 4, 3, 2, 256, 64, 8, 4
OWN = LENGTH // CP
SIZES: dict[str, Any] = {
    "hidden_size": WIDTH, "num_attention_heads": HEADS, "num_key_value_heads": KV, "intermediate_size": 96, "vocab_size": 256,
}  # fmt: skip
KEYS = TEXTS * OWN * WIDTH // HEADS * KV * 2  # numbers of a rank's keys and values


def count(**options: Any) -> Report:
    return opcost.count(llama(LAYERS, **SIZES), batch=TEXTS, tokens=LENGTH, **{"mesh": f"cp={CP}", **options})


def macs(report: Report, *, attention: bool) -> int:
    rows = [row for row in report.rows if row.cost is not None and (row.op.kind == "attention") is attention]
    return sum(row.cost.macs * row.op.repeat for row in rows if row.cost)


@pytest.mark.zoo
@pytest.mark.parametrize("rank", [0, 1, CP - 1])
@pytest.mark.parametrize("ring", [False, True])
def test_products_are_those_that_no_mask_hides(ring: bool, rank: int) -> None:
    whole, part = count(mesh=None), count(rank=rank, ring=ring)
    assert macs(whole, attention=False) == CP * macs(part, attention=False)
    square = 2 * TEXTS * OWN * OWN * WIDTH  # of queries with keys, and of weights with values
    assert macs(part, attention=True) == LAYERS * (square + (CP - 1) * square // 2)
    assert macs(whole, attention=True) == LAYERS * square * CP * CP
    assert part.totals.params == whole.totals.params


@pytest.mark.zoo
def test_without_masked_products_attention_is_a_share_too() -> None:
    for backward in (False, True):
        whole, part = (count(mesh=mesh, causal="half", backward=backward) for mesh in (None, f"cp={CP}"))
        assert whole.totals.macs == CP * part.totals.macs


@pytest.mark.zoo
def test_keys_and_values_are_gathered_and_their_gradients_passed_on() -> None:
    gathered = (LAYERS, LAYERS * (CP - 1) * KEYS * FLOAT)
    found = collectives(count(backward=True))
    assert found["forward", "cp", "all_gather"] == found["backward", "cp", "all_gather"] == gathered
    assert found["backward", "cp", "all_to_all"] == (LAYERS * CP, LAYERS * CP * KEYS * FLOAT)  # to the neighbour, whole
    assert set(collectives(count())) == {("forward", "cp", "all_gather")}


@pytest.mark.zoo
def test_a_ring_passes_keys_and_values_on() -> None:
    found = collectives(count(backward=True, ring=True))
    assert found["forward", "cp", "all_to_all"] == (LAYERS * (CP - 1), LAYERS * (CP - 1) * KEYS * FLOAT)
    both = LAYERS * (CP - 1) + LAYERS * CP
    assert found["backward", "cp", "all_to_all"] == (both, both * KEYS * FLOAT)


@pytest.mark.zoo
def test_gradients_are_averaged_over_the_parts_or_parameters_sharded() -> None:
    averaged = count(backward=True, mesh=f"replicate=2,cp={CP}")
    params = averaged.totals.params
    assert averaged.totals.params == count(mesh=None).totals.params
    summed = 2 * params * FLOAT * (2 * CP - 1) // (2 * CP)
    assert collectives(averaged)["backward", "replicate_cp", "all_reduce"] == (1, summed)
    for mesh, axis, ranks in ((f"fsdp=2,cp={CP}", "fsdp_cp", 2 * CP), (f"fsdp=1,cp={CP}", "cp", CP)):
        sharded = count(backward=True, mesh=mesh)
        assert sharded.totals.params * ranks == params
        scattered = collectives(sharded)["backward", axis, "reduce_scatter"]
        assert scattered == (LAYERS + 1, params * FLOAT * (ranks - 1) // ranks)


@pytest.mark.zoo
def test_beside_tensor_parallelism_attention_exchanges_the_heads_of_a_rank() -> None:
    mesh = f"fsdp=2,cp={CP},tp=2"
    report = count(backward=True, mesh=mesh, precision="bf16-mixed", sequence_parallel=True, loss_parallel=True)
    assert report.coverage.complete
    found = collectives(report)
    assert found["forward", "cp", "all_gather"] == (LAYERS, LAYERS * (CP - 1) * KEYS // 2 * BF16)
    moved = TEXTS * OWN * WIDTH * BF16 // 2
    assert found["forward", "tp", "all_gather"] == (2 * LAYERS + 1, (2 * LAYERS + 1) * moved)
    alone = count(backward=True, precision="bf16-mixed", mesh=f"fsdp=2,cp={CP}")
    assert report.totals.macs * 2 == alone.totals.macs


@pytest.mark.zoo
def test_inputs_labels_and_positions_are_those_of_the_rank() -> None:
    model = llama(1, **SIZES)
    tokens = torch.zeros(TEXTS, LENGTH, dtype=torch.long)
    report = opcost.count(model, kwargs={"input_ids": tokens, "labels": tokens}, backward=True, mesh=f"cp={CP}", rank=1)
    assert report.meta["loss"] == "its own, from labels"
    assert report.run_on.count(f"{TEXTS}x{OWN}") >= 2
    assert f"position_ids 1x{OWN}" in report.run_on
    assert any(note.code == "context-parallel" for note in report.notes)


def test_positions_are_of_a_part_from_the_beginning_and_one_from_the_end() -> None:
    from opcost.distributed.mesh import Mesh
    from opcost.distributed.sharding import Sharding
    from opcost.frontends.torch.default_inputs.engine import Inputs
    from opcost.frontends.torch.sharding.context_parallel import inputs_of_rank

    given = Inputs((), {"input_ids": torch.arange(12).expand(2, 12)})
    names = ["input_ids", "position_ids"]
    found = inputs_of_rank(given, names, Sharding(mesh=Mesh(cp=3), rank=1)).kwargs
    assert found["input_ids"].tolist() == [[2, 3, 8, 9]] * 2
    assert found["position_ids"].tolist() == [[2, 3, 8, 9]]
    assert given.kwargs["input_ids"].shape == (2, 12)


class Encoder(nn.Module):
    """Attention to all tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, 3 * WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.linear(x).unflatten(-1, (3 * HEADS, -1)).transpose(1, 2).chunk(3, dim=1)
        return nn.functional.scaled_dot_product_attention(q, k, v)


def test_attention_to_all_tokens_is_a_share() -> None:
    x = torch.ones(TEXTS, LENGTH, WIDTH)
    whole, part = opcost.count(Encoder(), x), opcost.count(Encoder(), x, mesh=f"cp={CP}")
    assert macs(whole, attention=True) == CP * macs(part, attention=True) == 2 * TEXTS * LENGTH * LENGTH * WIDTH


TOKENS = torch.zeros(2, 64, dtype=torch.long)


@pytest.mark.parametrize(("precision", "raw"), [("bf16", "flash"), ("float32", "efficient")])
def test_kernels_are_those_of_the_device(precision: str, raw: str) -> None:
    report = opcost.count(
        causal_lm("llama", **{**SIZES, "num_key_value_heads": HEADS, "num_hidden_layers": 1, "attn_implementation": "sdpa"}),
        batch=TEXTS, tokens=2 * LENGTH, mesh=f"cp={CP}", backward=True, device="h100", precision=precision,
    )  # fmt: skip
    kernels = {row.op.raw for row in report.rows if row.op.kind == "attention"}
    assert kernels == {f"aten::_scaled_dot_product_{raw}_attention{end}" for end in ("", "_backward")}
    assert report.coverage.complete


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"inputs": torch.zeros(2, 60, dtype=torch.long)}, "cp=4 cuts the sequence, 60 tokens, into 8 parts"),
        ({"inputs": torch.zeros(60, dtype=torch.long)}, "cuts the sequence, 0 tokens"),
        ({"inputs": TOKENS, "mesh": "fsdp=2", "ring": True}, "the mesh has no axis cp"),
        ({"inputs": TOKENS, "prefill": 8}, "not counted with a cache"),
        ({"inputs": TOKENS, "mesh": "cp=2,tp=2", "backward": True}, "takes no tensor parallelism"),
    ],
)
def test_what_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        opcost.count(Decoder(), **{"mesh": "cp=4", **options})


def test_attention_that_is_not_seen_is_refused() -> None:
    class Masked(Encoder):
        def forward(self, x: Tensor) -> Tensor:
            q, k, v = self.linear(x)[:, None].chunk(3, dim=-1)
            mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool)
            return nn.functional.scaled_dot_product_attention(q, k, v, mask)

    class Own(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return (super().forward(x) @ x.mT).softmax(-1) @ x

    x = torch.ones(2, 64, WIDTH)
    before = nn.functional.scaled_dot_product_attention
    with pytest.raises(InputError, match="takes attention of four axes without a mask"):
        opcost.count(Masked(), x, mesh="cp=4")
    with pytest.raises(InputError, match="scaled_dot_product_attention, and none ran"):
        opcost.count(Own(WIDTH, WIDTH), x, mesh="cp=4")
    assert nn.functional.scaled_dot_product_attention is before


def test_options_of_pytorch_stay_as_they_were() -> None:
    from torch.distributed.tensor.experimental._context_parallel import _attention

    before = dict(vars(_attention._cp_options))
    opcost.count(Decoder(), TOKENS, mesh="cp=4", ring=True, backward=True)
    assert vars(_attention._cp_options) == before
