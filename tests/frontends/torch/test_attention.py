"""Attention on every kernel that PyTorch has for it, in layers, and with caches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import opcost

sdpa = F.scaled_dot_product_attention

B, H, L, S, E = 2, 4, 6, 10, 8
"""Batch, heads, queries, keys, features of a head."""
PAIRS = B * H * L * S
MACS = PAIRS * (E + E)
PER_SCORE = 5 + 1
"""FLOPs of softmax, and of scaling."""


def t(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def qkv(
    queries: int = L, keys: int = S, heads: int = H, value: int = E, **kwargs: Any
) -> tuple[Tensor, Tensor, Tensor]:
    return t(B, H, queries, E, **kwargs), t(B, heads, keys, E, **kwargs), t(B, heads, keys, value, **kwargs)


def math(*args: Any, **kwargs: Any) -> Tensor:
    with sdpa_kernel(SDPBackend.MATH):
        return sdpa(*args, **kwargs)


BACKENDS = pytest.mark.parametrize("function", [sdpa, math], ids=["fused", "math"])


def triangle(queries: int, keys: int) -> int:
    """Pairs that a causal mask aligned at the top left lets through."""
    return sum(min(i + 1, keys) for i in range(queries))


# -- the function, on the CPU ----------------------------------------------------------------------------------------


def test_the_fused_kernel_is_one_operator_with_both_products(count: Any) -> None:
    report = count(sdpa, *qkv())
    (row,) = (row for row in report.rows if row.op.kind != "view")
    assert row.op.kind == "attention"
    assert row.op.raw == "aten::_scaled_dot_product_flash_attention_for_cpu"
    assert report.totals.macs == MACS
    assert report.totals.flops == 2 * MACS + PER_SCORE * PAIRS


def test_the_math_kernel_shows_its_products(count: Any) -> None:
    report = count(math, *qkv())
    products = [row.cost.macs for row in report.rows if row.op.kind == "matmul"]
    assert products == [PAIRS * E, PAIRS * E]
    # softmax for each score; both sides of the first product are scaled beforehand
    assert report.totals.flops == 2 * MACS + 5 * PAIRS + B * H * (L + S) * E


@BACKENDS
def test_cross_attention_counts_queries_times_keys(function: Any, count: Any) -> None:
    assert count(function, *qkv(queries=3, keys=17)).totals.macs == B * H * 3 * 17 * (E + E)


@BACKENDS
def test_values_may_be_wider_than_keys(function: Any, count: Any) -> None:
    assert count(function, *qkv(value=5)).totals.macs == PAIRS * (E + 5)


@BACKENDS
def test_grouped_queries_meet_every_key_of_their_group(function: Any, count: Any) -> None:
    report = count(lambda q, k, v: function(q, k, v, enable_gqa=True), *qkv(heads=2))
    assert report.totals.macs == MACS


@BACKENDS
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_the_element_type_changes_no_count(function: Any, dtype: torch.dtype, count: Any) -> None:
    assert count(function, *qkv(dtype=dtype)).totals.macs == MACS


@BACKENDS
def test_attention_without_a_batch_is_counted(function: Any, count: Any) -> None:
    assert count(function, t(H, L, E), t(H, S, E), t(H, S, E)).totals.macs == H * L * S * (E + E)


@pytest.mark.parametrize("mask", [torch.zeros(L, S), torch.ones(L, S, dtype=torch.bool)], ids=["added", "boolean"])
@BACKENDS
def test_a_mask_leaves_the_products_whole(function: Any, mask: Tensor, count: Any) -> None:
    report = count(function, *qkv(), mask)
    plain = count(function, *qkv())
    assert report.totals.macs == MACS
    converted = L * S if mask.dtype is torch.bool else 0  # true and false become zero and minus infinity
    assert report.totals.flops - plain.totals.flops == PAIRS + converted


def test_dropout_leaves_the_products_whole(count: Any) -> None:
    assert count(lambda q, k, v: sdpa(q, k, v, dropout_p=0.1), *qkv()).totals.macs == MACS


# -- causal attention ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("queries", "keys"), [(S, S), (L, S), (S, L)])
def test_causal_attention_is_the_full_square_unless_half_is_requested(queries: int, keys: int, count: Any) -> None:
    def causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return sdpa(q, k, v, is_causal=True)

    full = count(causal, *qkv(queries, keys))
    half = count(causal, *qkv(queries, keys), causal="half")
    assert full.totals.macs == B * H * queries * keys * (E + E)
    assert half.totals.macs == B * H * triangle(queries, keys) * (E + E)
    assert half.totals.flops == 2 * half.totals.macs + PER_SCORE * B * H * triangle(queries, keys)
    assert (full.meta["causal"], half.meta["causal"]) == ("full", "half")


def test_half_changes_nothing_without_a_causal_kernel(count: Any) -> None:
    assert count(sdpa, *qkv(), causal="half").totals.macs == MACS
    # The math kernel computes every score and masks afterwards.
    report = count(lambda q, k, v: math(q, k, v, is_causal=True), *qkv(S, S), causal="half")
    assert report.totals.macs == B * H * S * S * (E + E)


# -- the kernels of other devices, which accept tensors without data --------------------------------------------------

FUSED: dict[str, Callable[..., Any]] = {
    "flash": lambda q, k, v, *, causal: torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, 0.0, causal),
    "efficient": lambda q, k, v, *, causal: torch.ops.aten._scaled_dot_product_efficient_attention(
        q, k, v, None, False, 0.0, causal
    ),
    "cudnn": lambda q, k, v, *, causal: torch.ops.aten._scaled_dot_product_cudnn_attention(
        q, k, v, None, True, 0.0, causal
    ),
    "overrideable": lambda q, k, v, *, causal: torch.ops.aten._scaled_dot_product_fused_attention_overrideable(
        q, k, v, None, 0.0, causal
    ),
    "cpu": lambda q, k, v, *, causal: torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, causal),
}


@pytest.mark.parametrize("kernel", FUSED)
def test_every_fused_kernel_counts_the_same(kernel: str, count: Any) -> None:
    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return FUSED[kernel](q, k, v, causal=False)[0]

    def run_causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return FUSED[kernel](q, k, v, causal=True)[0]

    half = qkv(16, 32, dtype=torch.float16)
    assert count(run, *half).totals.macs == B * H * 16 * 32 * (E + E)
    assert count(run_causal, *half).totals.macs == B * H * 16 * 32 * (E + E)
    assert count(run_causal, *half, causal="half").totals.macs == B * H * triangle(16, 32) * (E + E)


def test_an_added_bias_of_the_efficient_kernel_is_one_flop_for_each_score(count: Any) -> None:
    q, k, v = qkv(16, 32, dtype=torch.float16)
    bias = t(B, H, 16, 32, dtype=torch.float16)
    plain = count(
        lambda q, k, v: torch.ops.aten._scaled_dot_product_efficient_attention(q, k, v, None, False)[0], q, k, v
    )
    biased = count(
        lambda q, k, v, b: torch.ops.aten._scaled_dot_product_efficient_attention(q, k, v, b, False)[0], q, k, v, bias
    )
    assert biased.totals.macs == plain.totals.macs
    assert biased.totals.flops - plain.totals.flops == bias.numel()


HEADS_LAST: dict[str, Callable[..., Any]] = {
    "flash": lambda q, k, v: torch.ops.aten._flash_attention_forward(q, k, v, None, None, 16, 32, 0.0, False, False),
    "efficient": lambda q, k, v: torch.ops.aten._efficient_attention_forward(
        q, k, v, None, None, None, None, None, 0.0, 0
    ),
}


@pytest.mark.parametrize("kernel", HEADS_LAST)
def test_kernels_with_the_heads_last_do_not_take_heads_for_positions(kernel: str, count: Any) -> None:
    half = torch.float16
    q, k, v = t(B, 16, H, E, dtype=half), t(B, 32, H, E, dtype=half), t(B, 32, H, E, dtype=half)
    report = count(lambda q, k, v: HEADS_LAST[kernel](q, k, v)[0], q, k, v)
    assert report.totals.macs == B * H * 16 * 32 * (E + E)


def test_packed_sequences_attend_only_to_themselves(count: Any) -> None:
    sequences, length = 3, 8
    starts = torch.arange(sequences + 1, dtype=torch.int32) * length
    packed = t(sequences * length, H, E, dtype=torch.float16)

    def run(q: Tensor, k: Tensor, v: Tensor, starts: Tensor) -> Tensor:
        return torch.ops.aten._flash_attention_forward(q, k, v, starts, starts, length, length, 0.0, False, False)[0]

    assert count(run, packed, packed, packed, starts).totals.macs == sequences * H * length * length * (E + E)


# -- flex attention --------------------------------------------------------------------------------------------------


def attention_macs(report: Any) -> int:
    return sum(row.cost.macs for row in report.rows if row.op.kind == "attention")


def test_flex_attention_is_the_full_square(count: Any) -> None:
    length = 128
    macs = B * H * length * length * (E + E)
    scored = count(
        lambda q, k, v: flex_attention(q, k, v, score_mod=lambda score, b, h, i, j: score + (i - j)),
        *qkv(length, length),
    )
    assert scored.totals.macs == attention_macs(scored) == macs
    assert "flex" in {note.code for note in scored.notes}
    grouped = count(lambda q, k, v: flex_attention(q, k, v, enable_gqa=True), *qkv(length, length, heads=2))
    assert grouped.totals.macs == macs


@pytest.mark.filterwarnings("ignore:flex_attention called without")
def test_flex_attention_is_recorded_as_it_runs() -> None:
    q = torch.randn(B, H, L, E)
    with opcost.recording() as recorded:
        result = flex_attention(q, q, q)
    assert recorded.report.totals.macs == 2 * B * H * L * L * E
    assert torch.allclose(result, sdpa(q, q, q), atol=1e-5)


def causal(_b: Any, _h: Any, i: Tensor, j: Tensor) -> Tensor:
    return i >= j


class Flexible(nn.Module):
    """Flex attention on projected queries under a mask that is made by its constructor, or by each run for the given starts."""

    def __init__(self, *, compiled: bool = False, fixed: bool = True, length: int = 512) -> None:
        super().__init__()
        self.project = nn.Linear(E, E)
        self.attend = torch.compile(flex_attention) if compiled else flex_attention
        self.mask = create_block_mask(causal, None, None, length, length, device="cpu") if fixed else None

    def forward(self, q: Tensor, k: Tensor, v: Tensor, start: Tensor | None = None) -> Tensor:
        mask = self.mask
        if mask is None:
            behind = causal if start is None else lambda b, h, i, j: (i >= j) & (j >= start[b])
            mask = create_block_mask(behind, None if start is None else B, None, q.shape[2], k.shape[2], device="cpu")
        return self.attend(self.project(q), k, v, score_mod=lambda score, b, h, i, j: score + i - j, block_mask=mask)


@pytest.mark.parametrize("made", [{"compiled": False}, {"compiled": True}, {"fixed": False}], ids=str)
def test_flex_attention_is_counted_over_the_blocks_that_its_mask_leaves(made: Any) -> None:
    """Of 4 x 4 blocks of 128 queries and keys 10 are not above the diagonal."""
    report = opcost.count(Flexible(**made), qkv(512, 512))
    assert attention_macs(report) == B * H * 512 * 512 * (E + E) * 10 // 16
    note = next(note.text for note in report.notes if note.code == "flex")
    assert "62% of the square" in note


def test_the_last_blocks_of_flex_attention_may_be_begun() -> None:
    """Of 3 x 3 blocks 6 are on or below the diagonal, the last of which have 44 of 128 queries or keys."""
    report = opcost.count(Flexible(length=300), qkv(300, 300))
    assert attention_macs(report) == B * H * 300 * 300 * 6 // 9 * (E + E)


def test_a_mask_of_flex_attention_that_depends_on_data_skips_nothing() -> None:
    report = opcost.count(Flexible(fixed=False), (*qkv(512, 512), t(B, dtype=torch.int64)))
    assert attention_macs(report) == B * H * 512 * 512 * (E + E)
    assert "its mask is not known" in next(note.text for note in report.notes if note.code == "flex")


def test_flex_attention_is_trained_without_its_scores_in_memory() -> None:
    """Backward has five products for two; the scores of a sequence alone would be larger than all that is kept."""
    length, model = 4096, Flexible(length=4096)
    blocks = length // 128
    report = opcost.count(model, qkv(length, length), optimizer="SGD")
    square = B * H * length * length * (E + E)
    assert 2 * attention_macs(report) == (2 + 5) * square * (blocks + 1) // (2 * blocks)
    assert report.memory is not None
    assert report.memory.peak_bytes < B * H * length * length * 4
    assert any(row.op.phase == "update" for row in report.rows)  # the projection has a gradient


# -- layers ----------------------------------------------------------------------------------------------------------

D, FF = 16, 32
"""Features of a layer (H heads), and inside its feed-forward part."""


def projections(queries: int, keys: int, kdim: int = D, vdim: int = D) -> int:
    """Of query, key and value, and of the output."""
    return B * (queries * D * D + keys * (kdim + vdim) * D + queries * D * D)


def products(queries: int, keys: int) -> int:
    return 2 * B * queries * keys * D


def self_attention(length: int) -> int:
    return projections(length, length) + products(length, length)


def encoder_layer(length: int) -> int:
    return self_attention(length) + B * length * 2 * D * FF


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("training", [True, False])
def test_multi_head_attention_hides_nothing(need_weights: bool, training: bool, count: Any) -> None:
    layer = nn.MultiheadAttention(D, H, batch_first=True).train(training)
    x, memory = t(B, L, D), t(B, S, D)
    own = count(layer, x, x, x, kwargs={"need_weights": need_weights})
    cross = count(layer, x, memory, memory, kwargs={"need_weights": need_weights})
    assert own.totals.macs == self_attention(L)
    assert cross.totals.macs == projections(L, S) + products(L, S)
    assert own.totals.params == 3 * D * D + 3 * D + D * D + D
    assert own.totals.unused_params == 0


def test_the_first_axis_is_the_length_unless_the_batch_comes_first(count: Any) -> None:
    layer = nn.MultiheadAttention(D, H)
    x = t(L, B, D)
    assert count(layer, x, x, x).totals.macs == self_attention(L)


def test_attention_without_a_batch_axis_in_a_layer(count: Any) -> None:
    x = t(L, D)
    assert count(nn.MultiheadAttention(D, H), x, x, x).totals.macs * B == self_attention(L)


def test_keys_and_values_of_other_sizes_have_their_own_projections(count: Any) -> None:
    layer = nn.MultiheadAttention(D, H, kdim=12, vdim=20, batch_first=True)
    report = count(layer, t(B, L, D), t(B, S, 12), t(B, S, 20))
    assert report.totals.macs == projections(L, S, 12, 20) + products(L, S)


def test_extra_keys_are_attended_but_not_projected(count: Any) -> None:
    layer = nn.MultiheadAttention(D, H, add_bias_kv=True, add_zero_attn=True, batch_first=True)
    report = count(layer, t(B, L, D), t(B, S, D), t(B, S, D))
    assert report.totals.macs == projections(L, S) + products(L, S + 2)


@pytest.mark.parametrize("training", [True, False])
def test_an_encoder_layer_hides_nothing(training: bool, count: Any) -> None:
    layer = nn.TransformerEncoderLayer(D, H, FF, batch_first=True).train(training)
    report = count(layer, t(B, L, D))
    assert report.totals.macs == encoder_layer(L)
    assert report.module("self_attn").total.macs == self_attention(L)
    assert report.module("linear1").total.macs == report.module("linear2").total.macs == B * L * D * FF


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("nested", [True, False])
def test_padded_positions_of_an_encoder_count(training: bool, nested: bool, count: Any) -> None:
    layer = nn.TransformerEncoderLayer(D, H, FF, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 3, enable_nested_tensor=nested).train(training)
    padding = torch.zeros(B, L, dtype=torch.bool)
    padding[1, 4:] = True
    report = count(encoder, t(B, L, D), kwargs={"src_key_padding_mask": padding})
    assert report.totals.macs == 3 * encoder_layer(L)


def test_a_causal_encoder_takes_the_convention(count: Any) -> None:
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(D, H, FF, batch_first=True), 2).eval()
    mask = nn.Transformer.generate_square_subsequent_mask(L)
    options = {"kwargs": {"mask": mask, "is_causal": True}}
    assert count(encoder, t(B, L, D), **options).totals.macs == 2 * encoder_layer(L)
    half = count(encoder, t(B, L, D), causal="half", **options)
    assert 2 * encoder_layer(L) - half.totals.macs == 2 * 2 * B * (L * L - triangle(L, L)) * D


@pytest.mark.parametrize("training", [True, False])
def test_encoder_and_decoder_together(training: bool, count: Any) -> None:
    layers = 2
    model = nn.Transformer(D, H, layers, layers, FF, batch_first=True).train(training)
    report = count(model, t(B, S, D), t(B, L, D))
    cross = projections(L, S) + products(L, S)
    decoder_layer = self_attention(L) + cross + B * L * 2 * D * FF
    assert report.totals.macs == layers * (encoder_layer(S) + decoder_layer)
    assert report.module("encoder").total.macs == layers * encoder_layer(S)
    assert report.module("decoder.layers.0.multihead_attn").total.macs == cross


def test_the_fast_path_is_switched_on_again_after_a_count(count: Any) -> None:
    count(nn.TransformerEncoderLayer(D, H, FF, batch_first=True).eval(), t(B, L, D))
    assert torch.backends.mha.get_fastpath_enabled()


class Decoder(nn.Module):
    """One causal layer with a cache of keys and values."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(D, 3 * D, bias=False)
        self.out = nn.Linear(D, D, bias=False)

    def forward(self, x: Tensor, cache: tuple[Tensor, Tensor] | None = None) -> Any:
        q, k, v = (part.unflatten(-1, (H, D // H)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        if cache is not None:
            k, v = (torch.cat((old, new), dim=2) for old, new in zip(cache, (k, v), strict=True))
        y = sdpa(q, k, v, is_causal=cache is None)
        return self.out(y.transpose(1, 2).flatten(2)), (k, v)


def test_a_decode_step_with_a_cache_projects_one_token_and_attends_to_all(count: Any) -> None:
    past = 31
    cache = (t(B, H, past, D // H), t(B, H, past, D // H))
    prefill = count(Decoder(), t(B, past, D))
    step = count(Decoder(), t(B, 1, D), cache)
    assert prefill.totals.macs == self_attention(past)
    assert step.totals.macs == B * 4 * D * D + products(1, past + 1)
    assert [spec.shape for spec in step.outputs] == [(B, 1, D), *[(B, H, past + 1, D // H)] * 2]
