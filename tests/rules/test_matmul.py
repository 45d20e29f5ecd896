from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opcost.core.graph import Cost, TensorSpec
from opcost.errors import RuleError
from opcost.rules.contractions import einsum, matmul
from opcost.rules.registry import OpView

SIZE = st.integers(1, 9)


def test_a_product_of_matrices_has_m_k_n_macs(cost: Any) -> None:
    m, k, n = 5, 7, 11
    assert cost("matmul", [(m, k), (k, n)], [(m, n)], depth=k) == Cost(
        macs=m * k * n, flops=2 * m * k * n, bytes_read=4 * (m * k + k * n), bytes_written=4 * m * n
    )


def test_a_batch_of_products_counts_every_product(cost: Any) -> None:
    b, m, k, n = 3, 5, 7, 11
    assert cost("matmul", [(b, m, k), (b, k, n)], [(b, m, n)], depth=k).macs == b * m * k * n


def test_something_added_is_flops_and_not_macs(cost: Any) -> None:
    m, k, n = 5, 7, 11
    result = cost("matmul", [(m, k), (k, n), (n,)], [(m, n)], depth=k, bias=True)
    assert (result.macs, result.flops) == (m * k * n, 2 * m * k * n + m * n)


def test_groups_that_share_the_depth_have_its_part_each(cost: Any) -> None:
    groups, m, k_each, n = 4, 5, 3, 7
    depth = groups * k_each
    result = cost("matmul", [(m, depth), (depth, n)], [(groups, m, n)], depth=depth, groups=groups)
    assert result.macs == groups * m * k_each * n


def test_a_sparse_product_brings_its_own_number(cost: Any) -> None:
    m, k, n, stored = 5, 7, 11, 4
    result = cost("matmul", [(m, k), (k, n)], [(m, n)], depth=k, macs=stored * n)
    assert (result.macs, result.flops) == (stored * n, 2 * stored * n)


def test_a_fused_activation_adds_its_flops(cost: Any) -> None:
    m, k, n, relu = 5, 7, 11, 1
    result = cost("matmul", [(m, k), (k, n), (n,)], [(m, n)], depth=k, bias=True, then=("relu",))
    assert result.flops == 2 * m * k * n + m * n + relu * m * n


def test_a_complex_product_has_eight_flops_per_mac(cost: Any) -> None:
    m, k, n = 2, 3, 4
    a, b, y = (TensorSpec(shape, "complex64") for shape in ((m, k), (k, n), (m, n)))
    assert cost("matmul", [a, b], [y], depth=k).flops == 8 * m * k * n
    bias = TensorSpec((n,), "complex64")
    assert cost("matmul", [a, b, bias], [y], depth=k, bias=True).flops == 8 * m * k * n + 2 * m * n


def test_packed_four_bit_weights_move_half_a_byte_each(cost: Any) -> None:
    m, k, n = 2, 3, 5
    weight = TensorSpec((n, k), "int4")
    result = cost("matmul", [(m, k), weight], [(m, n)], depth=k)
    assert result.bytes_read == 4 * m * k + (n * k + 1) // 2


def test_a_bilinear_form_contracts_its_weight_for_every_output(cost: Any) -> None:
    rows, in1, in2, out = 6, 3, 4, 5
    shapes = [(rows, in1), (rows, in2), (out, in1, in2)]
    outer = 2 * rows * out * in2  # (x1 W) . x2
    result = cost("bilinear", shapes, [(rows, out)])
    assert (result.macs, result.flops) == (rows * out * in1 * in2, 2 * rows * out * in1 * in2 + outer)
    assert cost("bilinear", [*shapes, (out,)], [(rows, out)]).flops == result.flops + rows * out


def test_a_complex_bilinear_form_does_its_outer_sum_in_complex_numbers(cost: Any) -> None:
    rows, in1, in2, out = 6, 3, 4, 5
    ins = [TensorSpec(shape, "complex64") for shape in ((rows, in1), (rows, in2), (out, in1, in2), (out,))]
    multiply_and_add = 6 + 2
    macs = rows * out * in1 * in2
    result = cost("bilinear", ins, [TensorSpec((rows, out), "complex64")])
    assert result.flops == multiply_and_add * (macs + rows * out * in2) + 2 * rows * out


class TestEinsum:
    def test_two_operands_are_a_matrix_product(self, cost: Any) -> None:
        b, i, j, k = 2, 3, 5, 7
        result = cost("einsum", [(b, i, j), (b, j, k)], [(b, i, k)], equation="bij,bjk->bik")
        assert (result.macs, result.flops) == (b * i * j * k, 2 * b * i * j * k)

    def test_three_operands_are_contracted_from_left_to_right(self, cost: Any) -> None:
        i, j, k, m = 3, 5, 7, 2
        result = cost("einsum", [(i, j), (j, k), (k, m)], [(i, m)], equation="ij,jk,km->im")
        assert result.macs == i * j * k + i * k * m

    def test_a_label_that_a_later_operand_needs_is_kept(self, cost: Any) -> None:
        i, j, k = 3, 5, 7
        # ij,jk keeps j for the third operand: an elementwise product; then j is summed against it.
        result = cost("einsum", [(i, j), (j, k), (j,)], [(i, k)], equation="ij,jk,j->ik")
        assert (result.macs, result.flops) == (i * j * k, i * j * k + 2 * i * j * k)

    def test_a_product_without_a_sum_is_elementwise(self, cost: Any) -> None:
        i, j = 3, 5
        result = cost("einsum", [(i,), (j,)], [(i, j)], equation="i,j->ij")
        assert (result.macs, result.flops) == (0, i * j)

    def test_a_complex_product_without_a_sum_is_four_products_and_two_additions(self, cost: Any) -> None:
        i, j = 3, 5
        ins, outs = ([TensorSpec(dims, "complex64") for dims in shapes] for shapes in ([(i,), (j,)], [(i, j)]))
        result = cost("einsum", ins, outs, equation="i,j->ij")
        assert (result.macs, result.flops) == (0, (4 + 2) * i * j)

    def test_a_label_of_one_operand_alone_is_summed_first(self, cost: Any) -> None:
        i, j, k, lonely = 3, 5, 7, 4
        result = cost("einsum", [(i, j, lonely), (j, k)], [(i, k)], equation="ijl,jk->ik")
        assert (result.macs, result.flops) == (i * j * k, i * j * lonely + 2 * i * j * k)

    def test_one_operand_is_summed_without_macs(self, cost: Any) -> None:
        i, j = 3, 5
        assert cost("einsum", [(i, j)], [(i,)], equation="ij->i").flops == i * j
        assert cost("einsum", [(i, j)], [(j, i)], equation="ij->ji").flops == 0
        assert cost("einsum", [(i, i)], [()], equation="ii->").flops == i
        assert cost("einsum", [(i, j)], [(i,)], equation="ij->i").macs == 0

    def test_an_axis_of_extent_one_is_broadcast(self, cost: Any) -> None:
        b, i, j, k = 4, 3, 5, 7
        result = cost("einsum", [(1, i, j), (b, j, k)], [(b, i, k)], equation="bij,bjk->bik")
        assert result.macs == b * i * j * k

    @pytest.mark.parametrize("equation", ["ij,jk", "ijk,jk->ik", "ij->ij", "ij,jk->iz"])
    def test_an_equation_that_does_not_fit_is_an_error(self, cost: Any, equation: str) -> None:
        with pytest.raises(RuleError, match="does not fit"):
            cost("einsum", [(2, 3), (3, 4)], [(2, 4)], equation=equation)

    def test_extents_that_contradict_each_other_are_an_error(self, cost: Any) -> None:
        with pytest.raises(RuleError, match="'j' has the extents 3 and 5"):
            cost("einsum", [(2, 3), (5, 4)], [(2, 4)], equation="ij,jk->ik")

    @given(b=SIZE, m=SIZE, k=SIZE, n=SIZE)
    def test_a_matrix_product_costs_the_same_written_as_einsum(self, b: int, m: int, k: int, n: int) -> None:
        ins, outs = (TensorSpec((b, m, k)), TensorSpec((b, k, n))), (TensorSpec((b, m, n)),)
        assert einsum(OpView("einsum", ins=ins, outs=outs, attrs={"equation": "zmk,zkn->zmn"})) == matmul(
            OpView("matmul", ins=ins, outs=outs, attrs={"depth": k})
        )
