"""Sequence and loss parallelism beside tensor parallelism: parts of the sequence between layers, of the vocabulary in the loss.

A ring sends (g - 1) / g of what it gathers or scatters, and twice that of a sum that all get: so an all_reduce is exactly one
all_gather and one reduce_scatter, and what is sent stays the same where each layer is gathered for once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from mesh_models import BF16, FLOAT, HIDDEN, TOKENS, VOCABULARY, B, D, Decoder, S, causal_lm, collectives, llama
from torch import Tensor, nn

import opcost
from opcost.core.report import Report
from opcost.errors import InputError

dist = pytest.importorskip("torch.distributed")
if not dist.is_available():
    pytest.skip("PyTorch without torch.distributed", allow_module_level=True)

LAYERS, TP, TEXTS, LENGTH, WIDTH, WORDS = 3, 4, 2, 128, 64, 256
LLAMA: dict[str, Any] = {
    "hidden_size": WIDTH, "num_attention_heads": 8, "num_key_value_heads": 4, "intermediate_size": 96, "vocab_size": WORDS,
}  # fmt: skip
PASS: dict[str, Any] = {"batch": TEXTS, "tokens": LENGTH, "backward": True, "mesh": f"tp={TP}"}
ACTIVATION = TEXTS * LENGTH * WIDTH * FLOAT
MOVED = ACTIVATION * (TP - 1) // TP  # to gather an activation, or to scatter a sum
LOGITS = TEXTS * LENGTH * WORDS * FLOAT * (TP - 1) // TP
TOKEN_SUM = 2 * TEXTS * LENGTH * FLOAT * (TP - 1) // TP  # one number of each token, summed

Collectives = Mapping[tuple[str, str, str], tuple[int, int]]


def tp(**expected: tuple[int, int]) -> Collectives:
    """Calls and bytes of collectives by phase and type: `forward_all_gather=(9, 1024)`."""
    split = {name.partition("_")[::2]: found for name, found in expected.items()}
    return {(phase, "tp", fn): found for (phase, fn), found in split.items()}


SEQUENCE = tp(
    forward_reduce_scatter=(2 * LAYERS + 1, (2 * LAYERS + 1) * MOVED),  # behind attention, the rest, and the embedding
    forward_all_gather=(2 * LAYERS + 1, (2 * LAYERS + 1) * MOVED),  # before attention, the rest, and the head
    backward_reduce_scatter=(2 * LAYERS + 1, (2 * LAYERS + 1) * MOVED),  # each is the gradient of the other
    backward_all_gather=(2 * LAYERS + 1, (2 * LAYERS + 1) * MOVED),
)
"""Per layer and pass two of each."""


@pytest.mark.zoo
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            {},
            tp(
                forward_all_reduce=(2 * LAYERS + 1, (2 * LAYERS + 1) * 2 * MOVED),
                backward_all_reduce=(
                    5 * LAYERS + 1,
                    (5 * LAYERS + 1) * 2 * MOVED,
                ),  # q, k, v, gate, up of each, and the head
                forward_all_gather=(1, LOGITS),
            ),
        ),
        (
            {"sequence_parallel": True},
            {**SEQUENCE, **tp(forward_all_gather=(2 * LAYERS + 2, (2 * LAYERS + 1) * MOVED + LOGITS))},
        ),
        (
            {"sequence_parallel": True, "loss_parallel": True},
            # the largest logit of each token, the sum of exponentials, and the logit of its label
            {**SEQUENCE, **tp(forward_all_reduce=(3, 3 * TOKEN_SUM))},
        ),
    ],
)
def test_collectives_of_a_llama(options: dict[str, Any], expected: Collectives) -> None:
    report = opcost.count(llama(LAYERS, **LLAMA), **PASS, **options)
    assert report.coverage.complete
    assert collectives(report) == expected


@pytest.mark.zoo
def test_products_stay_and_activations_between_them_are_parts() -> None:
    model = llama(LAYERS, **LLAMA)
    plain, parts = (opcost.count(model, **PASS, sequence_parallel=on, loss_parallel=on) for on in (False, True))
    assert plain.totals.macs == parts.totals.macs
    assert plain.totals.params == parts.totals.params
    for module in ("model.norm", "model.layers.1.input_layernorm", "model.layers.1.post_attention_layernorm"):
        assert shapes(plain, module) == {(TEXTS, LENGTH, WIDTH)}
        assert shapes(parts, module) == {(TEXTS, LENGTH // TP, WIDTH)}
    assert shapes(parts, "model.layers.1", "aten::add") == {(TEXTS, LENGTH // TP, WIDTH)}  # the residuals
    assert shapes(plain, "", "aten::_log_softmax", "aten::log_softmax") == {(TEXTS * LENGTH, WORDS)}
    assert parts.peak_bytes is not None
    assert plain.peak_bytes is not None
    assert parts.peak_bytes < plain.peak_bytes


def shapes(report: Report, module: str, *raw: str) -> set[tuple[Any, ...]]:
    """Of what the forward pass makes in a module, and computes with its features; of some operators."""
    rows = [
        row for row in report.rows if row.op.module == module and row.op.phase == "forward" and row.op.kind != "view"
    ]
    found = {row.outs[0].shape for row in rows if row.op.kind != "collective" and (not raw or row.op.raw in raw)}
    return {shape for shape in found if shape[-1:] != (1,)}


@pytest.mark.zoo
def test_with_fsdp_gradients_of_norms_are_summed_over_the_parts() -> None:
    report = opcost.count(llama(LAYERS, **LLAMA), **{**PASS, "mesh": f"fsdp=2,tp={TP}"}, sequence_parallel=True)
    norms = 2 * LAYERS + 1
    sums = collectives(report)["backward", "tp", "all_reduce"]
    assert sums == (norms, norms * 2 * WIDTH * FLOAT * (TP - 1) // TP)


@pytest.mark.zoo
def test_norms_of_heads_are_no_norms_of_the_sequence() -> None:
    """Those of Qwen 3 have each rank's heads of all tokens; transformers sums the gradients of their weights."""
    model, heads = causal_lm("qwen3", **LLAMA, num_hidden_layers=LAYERS, head_dim=8), LLAMA["num_attention_heads"]
    report = opcost.count(model, **PASS, sequence_parallel=True, loss_parallel=True)
    assert shapes(report, "model.layers.0.self_attn.q_norm") == {(TEXTS, LENGTH, heads // TP, 8)}
    weights = 2 * LAYERS
    summed = tp(
        forward_all_reduce=(3, 3 * TOKEN_SUM), backward_all_reduce=(weights, weights * 2 * 8 * FLOAT * (TP - 1) // TP)
    )
    assert collectives(report) == {**SEQUENCE, **summed}


@pytest.mark.zoo
def test_experts_get_the_whole_sequence() -> None:
    """A block of experts sums partial results as without; its input is gathered, and its output is cut without sending."""
    sizes: dict[str, Any] = {**LLAMA, "num_local_experts": 8, "num_experts_per_tok": 2, "num_hidden_layers": LAYERS}
    report = opcost.count(causal_lm("mixtral", **sizes), **PASS, sequence_parallel=True, loss_parallel=True)
    found = collectives(report)
    attention_and_ends = (LAYERS + 1, (LAYERS + 1) * MOVED)
    assert found["forward", "tp", "reduce_scatter"] == found["backward", "tp", "reduce_scatter"] == attention_and_ends
    all_layers = SEQUENCE["forward", "tp", "all_gather"]
    assert found["forward", "tp", "all_gather"] == found["backward", "tp", "all_gather"] == all_layers
    assert found["forward", "tp", "all_reduce"] == (LAYERS + 3, LAYERS * 2 * MOVED + 3 * TOKEN_SUM)


# -- any model ------------------------------------------------------------------------------------------------------------

WHOLE = B * S * D * FLOAT * (TP - 1) // TP


def test_layers_with_usual_names() -> None:
    """Weights of norms that a block itself has meet parts as well; `output` is in no plan and gets the whole sequence."""
    plain, parts = (
        opcost.count(Decoder(), TOKENS, backward=True, mesh="tp=4", sequence_parallel=on) for on in (False, True)
    )
    assert plain.totals.macs == parts.totals.macs
    each = (2 * 3 + 1, (2 * 3 + 1) * WHOLE)
    # The gradient of the whole sequence at `output` is on every rank, so its parts are cut without sending.
    assert collectives(parts) == tp(
        forward_reduce_scatter=each, forward_all_gather=each,
        backward_all_gather=each, backward_reduce_scatter=(2 * 3, 2 * 3 * WHOLE),
    )  # fmt: skip


@pytest.mark.parametrize(("mesh", "scheme"), [("tp=4", "fp8"), ("fsdp=2,tp=4", "fp8"), ("fsdp=2,tp=4", "fp8-gather")])
def test_layers_in_float8_gather_parts_that_are_converted_before(mesh: str, scheme: Any) -> None:
    """As torchao's: what a product reads is sent with a byte for each element, sums of products in bfloat16."""
    options: dict[str, Any] = {"backward": True, "mesh": mesh, "precision": "bf16-mixed", "sequence_parallel": True}
    plain, float8 = (opcost.count(Decoder(), TOKENS, **options, quantize=each) for each in (None, scheme))
    assert float8.totals.macs == plain.totals.macs
    assert float8.coverage.complete
    one, before, found = WHOLE // FLOAT, collectives(plain), collectives(float8)
    # Two of each of three layers; the embedding and `output` are outside. Norms under autocast make float32.
    for phase, size in (("forward", FLOAT if mesh == "tp=4" else BF16), ("backward", BF16)):
        calls, sent = before[phase, "tp", "all_gather"]
        assert found[phase, "tp", "all_gather"] == (calls, sent - 6 * (size - 1) * one)
    scattered = [each["forward", "tp", "reduce_scatter"] for each in (before, found)]
    assert scattered[0] == scattered[1]


class Scaled(nn.Module):
    """A norm whose class does not say that it is one, dropout, and layers in one module with it."""

    class Scale(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(D))

        def forward(self, x: Tensor) -> Tensor:
            return x * self.weight

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.drop = self.Scale(), nn.Dropout(0.5)
        self.first, self.second = nn.Linear(D, HIDDEN, bias=False), nn.Linear(HIDDEN, D, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.drop(self.second(torch.relu(self.first(self.scale(x)))))


SCALED = {"scale": "sequence_parallel", "first": "colwise", "second": "rowwise"}


def test_a_plan_names_what_has_parts_of_the_sequence() -> None:
    x = torch.ones(B, S, D)
    report = opcost.count(Scaled(), x, mode="train", mesh="tp=4", tp_plan=SCALED)
    assert collectives(report) == tp(forward_all_gather=(1, WHOLE), forward_reduce_scatter=(1, WHOLE))
    assert shapes(report, "scale") == shapes(report, "drop") == {(B, S // TP, D)}
    assert report.totals.macs == 2 * B * S * D * HIDDEN // TP


def test_logits_stay_in_parts_where_a_plan_says_so() -> None:
    class WithLoss(Decoder):
        def forward(self, tokens: Tensor) -> dict[str, Tensor]:  # type: ignore[override]
            logits = super().forward(tokens)
            return {"loss": nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())}

    plan = {
        "output": "loss_parallel",
        "layers.*.feed.w1": "colwise",
        "layers.*.feed.w3": "colwise",
        "layers.*.feed.w2": "rowwise",
    }
    report = opcost.count(WithLoss(), TOKENS, backward=True, mesh="tp=4", tp_plan=plan)
    found = collectives(report)
    moved, of_tokens = 2 * WHOLE, 2 * B * S * FLOAT * (TP - 1) // TP
    assert found["forward", "tp", "all_reduce"] == (3 + 3, 3 * moved + 3 * of_tokens)
    assert {fn for _, _, fn in found} == {"all_reduce"}
    assert VOCABULARY // TP in {row.outs[0].shape[-1] for row in report.rows if row.op.module == "output"}


def test_a_loss_in_parts_needs_a_head() -> None:
    with pytest.raises(
        InputError, match="loss parallelism needs a layer of Decoder whose output is gathered"
    ) as caught:
        opcost.count(Decoder(), TOKENS, mesh="tp=4", loss_parallel=True)
    assert '"output": "loss_parallel"' in caught.value.hint


@pytest.mark.parametrize("option", ["sequence_parallel", "loss_parallel"])
def test_both_need_tensor_parallelism(option: str) -> None:
    with pytest.raises(InputError, match="parallelism is given, and the mesh has no axis tp"):
        opcost.count(Decoder(), TOKENS, mesh="fsdp=4", **{option: True})
    with pytest.raises(InputError, match=f"{option} is about one rank of a mesh"):
        opcost.count(Decoder(), TOKENS, **{option: True})


def test_errors_leave_the_functions_of_losses_as_they_were() -> None:
    from torch.distributed.tensor import DTensor

    class Fails(Decoder):
        def forward(self, tokens: Tensor) -> Tensor:
            raise ValueError("not today")

    before = dict(DTensor._op_dispatcher._custom_op_handlers)
    plan = {"output": "loss_parallel"}
    for model in (Decoder(), Fails()):
        try:
            opcost.count(model, TOKENS, mesh="tp=4", tp_plan=plan)
        except opcost.OpcostError as exc:
            assert "not today" in str(exc)  # noqa: PT017 - of one of them
        assert before == DTensor._op_dispatcher._custom_op_handlers
