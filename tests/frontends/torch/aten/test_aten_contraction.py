from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch

aten = torch.ops.aten
M, K, N, B = 3, 5, 7, 2


def test_addmm_has_its_factors_first_and_what_is_added_last(record: Any, meta: Any) -> None:
    (seen,) = record(lambda: torch.addmm(meta(N), meta(M, K), meta(K, N)))
    assert (seen.kind, seen.attrs) == ("matmul", {"depth": K, "bias": True})
    assert seen.ins == ((M, K), (K, N), (N,))
    assert seen.cost.macs == M * K * N
    assert seen.cost.flops == 2 * M * K * N + M * N


@pytest.mark.parametrize(
    ("name", "shapes", "macs"),
    [
        ("mm", [(M, K), (K, N)], M * K * N),
        ("bmm", [(B, M, K), (B, K, N)], B * M * K * N),
        ("mv", [(M, K), (K,)], M * K),
        ("dot", [(K,), (K,)], K),
        ("vdot", [(K,), (K,)], K),
        ("baddbmm", [(B, M, N), (B, M, K), (B, K, N)], B * M * K * N),
        ("addbmm", [(M, N), (B, M, K), (B, K, N)], B * M * K * N),
        ("addmv", [(M,), (M, K), (K,)], M * K),
    ],
)
def test_a_matrix_product_has_the_macs_of_its_shapes(
    name: str, shapes: list[tuple[int, ...]], macs: int, record: Any, meta: Any
) -> None:
    (seen,) = record(lambda: getattr(torch, name)(*(meta(*shape) for shape in shapes)))
    assert (seen.name, seen.kind, seen.cost.macs) == (f"aten::{name}", "matmul", macs)
    assert ("bias" in seen.attrs) == (len(shapes) == 3)


def test_in_place_and_out_forms_count_as_the_plain_ones(record: Any, meta: Any) -> None:
    a, b, c = meta(M, K), meta(K, N), meta(M, N)
    (in_place,) = record(lambda: c.addmm_(a, b))
    (to_out,) = record(lambda: torch.mm(a, b, out=c))
    assert in_place.attrs == {"depth": K, "bias": True}
    assert in_place.ins == ((M, K), (K, N), (M, N))
    assert to_out.attrs == {"depth": K}
    assert to_out.ins == ((M, K), (K, N)), "the destination is not read"


def test_a_linear_layers_gradient_is_two_products_of_the_same_size(record: Any) -> None:
    x = torch.randn(B, M, K, requires_grad=True)
    layer = torch.nn.Linear(K, N)
    seen = record(lambda: layer(x).sum().backward())
    assert sum(s.cost.macs for s in seen) == 3 * B * M * K * N


@pytest.mark.parametrize("mask", [(True, True, True), (False, True, True), (True, False, False)])
def test_linear_backward_counts_what_the_mask_requests(mask: tuple[bool, ...], translated: Any, meta: Any) -> None:
    for operator in (aten.linear_backward.default, aten.mkldnn_linear_backward.default):
        seen = translated(operator, meta(B, K), meta(B, N), meta(N, K), mask, outs=((B, K), (N, K), (N,)))
        assert seen.kind == "matmul"
        assert seen.cost.macs == (mask[0] + mask[1]) * B * K * N


def test_matmul_and_linear_are_known_where_a_trace_names_them(translated: Any, meta: Any) -> None:
    assert translated(aten.matmul.default, meta(B, M, K), meta(K, N), outs=((B, M, N),)).cost.macs == B * M * K * N
    linear = translated(aten.linear.default, meta(B, M, K), meta(N, K), meta(N), outs=((B, M, N),))
    assert linear.cost.macs == B * M * K * N
    assert linear.attrs["bias"]
    tensordot = translated(aten.tensordot.default, meta(B, M, K), meta(K, M, N), [1, 2], [1, 0], outs=((B, N),))
    assert tensordot.cost.macs == B * M * K * N


def test_einsum_gets_an_explicit_equation(translated: Any, meta: Any) -> None:
    seen = translated(aten.einsum.default, "...i, ij", [meta(B, M, K), meta(K, N)], outs=((B, M, N),))
    left, output = seen.attrs["equation"].split("->")
    first, second = left.split(",")
    assert (len(first), second, output) == (3, "ij", first[:2] + "j")
    assert seen.cost.macs == B * M * K * N


def test_outer_products_sum_nothing_and_are_elementwise(record: Any, translated: Any, meta: Any) -> None:
    (seen,) = record(lambda: torch.addr(meta(M, N), meta(M), meta(N)))
    assert (seen.kind, seen.cost.macs) == ("elementwise", 0)
    assert translated(aten.outer.default, meta(M), meta(N), outs=((M, N),)).cost.flops == M * N


@pytest.mark.parametrize("products", [2, 4])
def test_chained_products_count_from_left_to_right(products: int, translated: Any, meta: Any) -> None:
    extents = [2, 3, 5, 7, 11][: products + 1]
    matrices = [meta(a, b) for a, b in pairwise(extents)]
    seen = translated(aten.chain_matmul.default, matrices, outs=((extents[0], extents[-1]),))
    assert seen.cost.macs == sum(extents[0] * a * b for a, b in pairwise(extents[1:]))


# -- packed and scaled types ------------------------------------------------------------------------------------------


def test_integer_products_are_products(record: Any, meta: Any) -> None:
    (seen,) = record(lambda: torch._int_mm(meta(32, 16, dtype=torch.int8), meta(16, 8, dtype=torch.int8)))
    assert seen.cost.macs == 32 * 16 * 8


def test_scaled_products_of_eight_bit_floats(translated: Any, meta: Any) -> None:
    eight = torch.float8_e4m3fn
    seen = translated(
        aten._scaled_mm.default, meta(32, 64, dtype=eight), meta(64, 16, dtype=eight), meta(1), meta(1), meta(16),
        outs=((32, 16),),
    )  # fmt: skip
    assert seen.cost.macs == 32 * 64 * 16
    assert seen.ins == ((32, 64), (64, 16), (16,), (1,), (1,))


def test_four_bit_floats_are_stored_two_to_an_element(translated: Any, meta: Any) -> None:
    four = torch.float4_e2m1fn_x2
    seen = translated(
        aten._scaled_mm.default, meta(32, 64, dtype=four), meta(64, 16, dtype=four), meta(1), meta(1), outs=((32, 16),)
    )
    assert seen.cost.macs == 32 * (2 * 64) * 16


@pytest.mark.parametrize(
    ("a", "b", "out", "macs"),
    [
        ((24, 16), (4, 16, 8), (24, 8), 24 * 16 * 8),
        ((4, 24, 16), (16, 32), (24, 32), 24 * 16 * 32),
        ((24, 64), (64, 8), (4, 24, 8), 24 * 64 * 8),
        ((4, 24, 16), (4, 16, 8), (4, 24, 8), 4 * 24 * 16 * 8),
    ],
)
def test_a_grouped_product_counts_every_row_once(
    a: tuple[int, ...], b: tuple[int, ...], out: tuple[int, ...], macs: int, record: Any, meta: Any
) -> None:
    half = torch.bfloat16
    offsets = None if len(a) == len(b) == 3 else meta(4, dtype=torch.int32)
    (seen,) = record(lambda: torch._grouped_mm(meta(*a, dtype=half), meta(*b, dtype=half), offsets))
    assert seen.outs == (out,)
    assert seen.cost.macs == macs


def test_packed_integer_weights_have_the_depth_of_the_input(translated: Any, meta: Any) -> None:
    x, out = meta(M, 64), ((M, 32),)
    packed = meta(4, 4, 32, 4, dtype=torch.int32)
    scales = meta(2, 32, 2)
    for operator in (aten._weight_int4pack_mm.default, aten._weight_int4pack_mm_for_cpu.default):
        assert translated(operator, x, packed, 32, scales, outs=out).cost.macs == M * 64 * 32
    eight = translated(aten._weight_int8pack_mm.default, x, meta(32, 64, dtype=torch.int8), meta(32), outs=out)
    assert eight.cost.macs == M * 64 * 32
    dynamic = translated(aten._dyn_quant_matmul_4bit.default, x, meta(999), 32, 64, 32, outs=out)
    assert dynamic.cost.macs == M * 64 * 32


# -- sparse -----------------------------------------------------------------------------------------------------------


def test_two_of_four_weights_execute_half_of_the_products(translated: Any, meta: Any) -> None:
    rows, inner, outer = 8, 64, 32
    compressed, marks = meta(outer, inner // 2), meta(outer, inner // 16, dtype=torch.int16)
    linear = translated(
        aten._sparse_semi_structured_linear.default, meta(rows, inner), compressed, marks, activation="relu",
        outs=((rows, outer),),
    )  # fmt: skip
    assert linear.cost.macs == rows * inner * outer // 2
    assert linear.attrs["then"] == ("relu",)
    mm = translated(
        aten._sparse_semi_structured_mm.default, compressed, marks, meta(inner, rows), outs=((outer, rows),)
    )
    assert mm.cost.macs == rows * inner * outer // 2
    cslt = translated(aten._cslt_sparse_mm.default, meta(1234), meta(inner, rows), outs=((outer, rows),))
    assert cslt.cost.macs == rows * inner * outer // 2


@pytest.mark.parametrize("layout", ["coo", "csr"])
def test_a_sparse_operand_counts_its_stored_values(layout: str, record: Any) -> None:
    dense = torch.zeros(M, K)
    dense[0, 1] = dense[2, 3] = dense[2, 4] = 1.0
    sparse = dense.to_sparse() if layout == "coo" else dense.to_sparse_csr()
    other = torch.ones(K, N)
    products = [s for s in record(lambda: sparse @ other) if s.kind == "matmul"]
    assert [s.cost.macs for s in products] == [3 * N]


def test_a_sampled_product_is_computed_where_values_are_stored(record: Any) -> None:
    sparse = torch.eye(4).to_sparse_csr()
    products = [
        s for s in record(lambda: torch.sparse.sampled_addmm(sparse, torch.ones(4, K), torch.ones(K, 4))) if s.cost.macs
    ]
    assert [s.cost.macs for s in products] == [4 * K]


# -- bilinear forms ---------------------------------------------------------------------------------------------------


def test_a_bilinear_layer_is_one_operator_with_its_weight_last(record: Any, meta: Any) -> None:
    layer = torch.nn.Bilinear(K, N, M, device="meta")
    seen = [s for s in record(lambda: layer(meta(B, K), meta(B, N))) if s.cost.macs]
    assert [s.kind for s in seen] == ["bilinear"]
    assert seen[0].ins == ((B, K), (B, N), (M, K, N))
    assert seen[0].cost.macs == B * M * K * N


def test_a_bilinear_layers_gradients_contract_the_weight_again(record: Any) -> None:
    layer = torch.nn.Bilinear(K, N, M, bias=False)
    x1, x2 = torch.randn(B, K, requires_grad=True), torch.randn(B, N, requires_grad=True)
    seen = [s for s in record(lambda: layer(x1, x2).sum().backward()) if s.kind == "einsum"]
    assert len(seen) == 3
    assert all(s.cost.macs >= B * M * K * N for s in seen)


# -- products in disguise ---------------------------------------------------------------------------------------------


def test_an_affine_grid_is_a_product_with_homogeneous_positions(record: Any, meta: Any) -> None:
    (seen,) = record(lambda: torch.nn.functional.affine_grid(meta(B, 2, 3), [B, 1, 4, 6], align_corners=False))
    assert seen.cost.macs == B * 4 * 6 * 2 * 3


def test_a_fused_activation_is_named(translated: Any, meta: Any) -> None:
    for use_gelu, fn in ((True, "gelu"), (False, "relu")):
        seen = translated(
            aten._addmm_activation.default, meta(N), meta(M, K), meta(K, N), use_gelu=use_gelu, outs=((M, N),)
        )
        assert seen.attrs == {"depth": K, "bias": True, "then": (fn,)}


def test_a_linear_layer_with_cross_entropy_counts_logits_and_gradients(record: Any) -> None:
    import torch.nn.functional as F

    tokens, features, classes = 6, 8, 16
    x = torch.randn(tokens, features, requires_grad=True)
    weight = torch.randn(classes, features, requires_grad=True)
    target = torch.zeros(tokens, dtype=torch.long)
    if not hasattr(F, "linear_cross_entropy"):
        pytest.skip("this torch has no linear_cross_entropy")
    from torch.nn.modules import linear_cross_entropy as module

    seen = record(
        lambda: module._linear_cross_entropy_batch_chunked(
            x.detach(), weight.detach(), target, None, None, "mean", -100, 0.0, 4, "inplace", torch.float32, False, True,
            True, False,
        )
    )  # fmt: skip
    fused = [s for s in seen if s.name.startswith("torch_nn::")]
    assert [s.cost.macs for s in fused] == [3 * tokens * features * classes]


def test_a_chain_that_begins_with_a_vector_has_one_row(translated: Any, meta: Any) -> None:
    seen = translated(aten.linalg_multi_dot.default, [meta(M), meta(M, K), meta(K, N)], outs=((N,),))
    assert (seen.kind, seen.attrs["depth"], seen.cost.macs) == ("matmul", K, M * K + K * N)
