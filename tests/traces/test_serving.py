"""Fused operators of libraries that serve language models, with the arguments that real traces record: kind, FLOPs and bytes."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from opcost.analysis.join import with_costs
from opcost.core.graph import Cost
from opcost.core.profile import Profile, ProfileRow
from opcost.rules import default_rules
from opcost.traces.kineto.operators import traced_operator

BF16, FP8 = "c10::BFloat16", "c10::Float8_e4m3fn"
S = "Scalar"


def kind_and_cost(
    name: str, dims: Sequence[object], types: Sequence[str], values: Sequence[str] = ()
) -> tuple[str, Cost | None]:
    """Kind and cost of a call."""
    spelled = [json.dumps(part).encode() for part in (dims, types, values or [""] * len(dims))]
    operator = traced_operator(name, *spelled, b"")
    row = ProfileRow(
        0, name, name, kind=operator.kind, ins=operator.ins, outs=operator.outs, attrs=operator.attrs, device_ns=1
    )
    return operator.kind, with_costs(Profile(meta={}, rows=(row,)), default_rules()).rows[0].cost


N, H = 32, 4096
X, W, ROW = [N, H], [H], 2 * N * H  # bytes of a tensor of 16 bits


@pytest.mark.parametrize("name", ["_C::rms_norm", "sgl_kernel::rmsnorm", "aiter::rmsnorm", "aiter::rmsnorm2d_fwd_ck"])
@pytest.mark.parametrize("more", [0, 2])  # newer versions have more arguments behind
def test_a_norm_with_an_out_tensor(name: str, more: int) -> None:
    found = kind_and_cost(
        name, [X, X, W, [], *[[]] * more], [BF16] * 3 + [S] * (1 + more), ["", "", "", "1e-06", *["0"] * more]
    )
    # square, add to the sum, multiply by its root, multiply by the weight
    assert found == ("norm", Cost(flops=4 * N * H, bytes_read=ROW + 2 * H, bytes_written=ROW))


@pytest.mark.parametrize(
    ("name", "dims"),
    [
        ("_C::fused_add_rms_norm", [X, X, W, []]),
        ("sgl_kernel::fused_add_rmsnorm", [X, X, W, []]),
        ("aiter::add_rmsnorm", [X, X, X, X, W, []]),
        ("aiter::rmsnorm2d_fwd_with_add", [X, X, X, X, W, []]),
        ("aiter::rmsnorm2d_fwd_with_add_ck", [X, X, X, X, W, [], []]),
    ],
)
def test_a_norm_with_its_residual_adds_and_keeps_the_sum(name: str, dims: list[object]) -> None:
    types = [BF16 if dim else S for dim in dims]
    found = kind_and_cost(name, dims, types, ["" if dim else "1" for dim in dims])
    # one addition more; reads x, the residual and the weight, writes the result and the sum
    assert found == ("norm", Cost(flops=5 * N * H, bytes_read=2 * ROW + 2 * H, bytes_written=2 * ROW))


@pytest.mark.parametrize(("name", "flops"), [("silu_and_mul", 6), ("gelu_and_mul", 6), ("gelu_tanh_and_mul", 14)])
@pytest.mark.parametrize("library", ["_C", "sgl_kernel"])
def test_a_gate(library: str, name: str, flops: int) -> None:
    found = kind_and_cost(f"{library}::{name}", [[N, H], [N, 2 * H]], [BF16] * 2)
    assert found == ("elementwise", Cost(flops=flops * N * H, bytes_read=2 * ROW, bytes_written=ROW))


@pytest.mark.parametrize("name", ["_C::rotary_embedding", "sgl_kernel::rotary_embedding"])
def test_only_the_part_of_a_head_that_the_table_is_made_for_is_rotated(name: str) -> None:
    dims = [[N], [N, 4096], [N, 512], [], [131072, 32], []]
    types = ["long int", BF16, BF16, S, BF16, S]
    # heads of 64, of which 32 are rotated: half of all elements, three FLOPs each
    moved = 2 * N * (4096 + 512)
    expected = Cost(flops=3 * N * (4096 + 512) // 2, bytes_read=moved + 8 * N, bytes_written=moved)
    assert kind_and_cost(name, dims, types, ["", "", "", "64", "", "True"]) == ("elementwise", expected)


def test_of_a_cache_only_what_is_stored_is_touched() -> None:
    dims = [[N, 8, 64], [N, 8, 64], [9999, 16, 8, 64], [9999, 16, 8, 64], [N], [], [], []]
    types = [BF16, BF16, "unsigned char", "unsigned char", "long int", "", "float", "float"]
    found = kind_and_cost("_C_cache_ops::reshape_and_cache_flash", dims, types)
    new = 2 * N * 8 * 64
    assert found == ("copy", Cost(bytes_read=2 * new, bytes_written=new))  # 16 bits in, 8 bits out


def test_fewer_bits_and_products_of_them() -> None:
    m, n, k = 32, 512, 256
    kind, cost = kind_and_cost("_C::static_scaled_fp8_quant", [[m, k], [m, k], []], [FP8, BF16, "float"])
    assert (kind, cost) == ("quantize", Cost(flops=5 * m * k, bytes_read=2 * m * k, bytes_written=m * k))
    dims = [[m, n], [m, k], [k, n], [m, 1], [1, n], []]
    kind, cost = kind_and_cost("_C::cutlass_scaled_mm", dims, [BF16, FP8, FP8, "float", "float", ""])
    assert kind == "matmul"
    assert cost is not None
    assert (cost.macs, cost.bytes_written) == (m * n * k, 2 * m * n)
    assert cost.bytes_read == m * k + k * n + 4 * (m + n)
    dims = [[m, k], [k, n], [m, 1], [1, n], [], []]
    made = kind_and_cost(
        "sgl_kernel::fp8_scaled_mm", dims, [FP8, FP8, "float", "float", S, ""], ["", "", "", "", "15", ""]
    )
    assert made == (kind, cost)  # 15 is bfloat16


@pytest.mark.parametrize("name", ["vllm::inplace_fused_experts", "sglang::outplace_fused_experts"])
def test_every_token_meets_its_experts_and_no_others_are_read(name: str) -> None:
    tokens, hidden, inner, experts, chosen = 3, 64, 48, 16, 2
    dims = [
        [tokens, hidden],
        [experts, 2 * inner, hidden],
        [experts, hidden, inner],
        [tokens, chosen],
        [tokens, chosen],
    ]
    kind, cost = kind_and_cost(name, dims, [BF16, BF16, BF16, "float", "long int"])
    assert kind == "matmul"
    assert cost is not None
    each = 2 * inner * hidden + hidden * inner
    assert cost.macs == tokens * chosen * each
    assert cost.bytes_read == 2 * (tokens * hidden + tokens * chosen * each)  # six of sixteen experts
    dims[1] = [experts, 2 * inner, hidden // 2]  # two weights in one element
    assert kind_and_cost(name, dims, [BF16, "unsigned char", BF16, "float", "long int"])[1] is None


def test_attention_of_flash_attn_and_aiter() -> None:
    batch, length, heads, size = 2, 128, 8, 64
    dims = [[batch, length, heads, size]] * 3 + [[]] * 3
    square = batch * heads * length * length
    for name in ("flash_attn::_flash_attn_forward", "aiter::mha_fwd", "aiter::fmha_v3_fwd"):
        kind, cost = kind_and_cost(name, dims, [BF16] * 3 + [S] * 3, ["", "", "", "0.", "0.125", "False"])
        assert kind == "attention"
        assert cost is not None
        assert cost.macs == square * 2 * size


def test_pages_of_a_cache_tell_lengths_only_where_all_are_the_longest() -> None:
    count, length = 15, 1024
    dims = [
        [count * length, 32, 128],
        [835874, 8, 128],
        [835874, 8, 128],
        [count + 1],
        [count + 1],
        [15616],
        *[[]] * 24,
    ]
    types = [BF16] * 3 + ["int"] * 3 + [S] * 12 + [""] * 12
    values = [*[""] * 6, str(length), str(length), "0.", "0.088", "0.", "False", "True", *["-1"] * 5, *[""] * 12]
    kind, cost = kind_and_cost("aiter::mha_batch_prefill", dims, types, values)
    assert kind == "attention"
    assert cost is not None
    assert cost.macs == count * 32 * length * length * 2 * 128
    assert cost.bytes_read == 2 * (count * length * 128) * (32 + 8 + 8)
    values[6] = str(2 * length)  # some are shorter, and the trace does not say which
    assert kind_and_cost("aiter::mha_batch_prefill", dims, types, values)[1] is None


@pytest.mark.parametrize(
    ("name", "dims", "types"),
    [
        ("vllm::moe_forward", [[32, 3072], [32, 128], []], [BF16, BF16, ""]),
        ("vllm::unified_attention_with_output", [[32, 64, 64], [32, 8, 64], [32, 8, 64], [32, 64, 64]], [BF16] * 4),
    ],
)
def test_what_depends_on_data_stays_unknown(name: str, dims: list[object], types: list[str]) -> None:
    assert kind_and_cost(name, dims, types)[1] is None
