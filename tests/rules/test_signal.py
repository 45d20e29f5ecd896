from __future__ import annotations

from typing import Any

import pytest

from opcost.core.graph import Cost, TensorSpec
from opcost.rules.elementwise import LOSSES

LERP = 2 + 1  # two products, one addition


@pytest.mark.parametrize(
    ("fn", "per_output"),
    [("nearest", 0), ("linear", LERP), ("bilinear", 3 * LERP), ("trilinear", 7 * LERP), ("bicubic", 5 * (4 + 3))],
)
def test_resizing_interpolates_axis_by_axis(cost: Any, fn: str, per_output: int) -> None:
    assert cost("resize", [(2, 3, 4, 4)], [(2, 3, 8, 8)], fn=fn).flops == 2 * 3 * 8 * 8 * per_output


def test_resizing_by_area_is_a_mean(cost: Any) -> None:
    x, y = 2 * 3 * 8 * 8, 2 * 3 * 4 * 4
    assert cost("resize", [(2, 3, 8, 8)], [(2, 3, 4, 4)], fn="area").flops == x + y


def test_an_antialiased_filter_counts_its_taps(cost: Any) -> None:
    taps = 6 * 6
    assert cost("resize", [(2, 3, 9, 9)], [(2, 3, 4, 4)], fn="bilinear", taps=taps).flops == 2 * 3 * 4 * 4 * taps * 2


@pytest.mark.parametrize(("fn", "taps"), [("linear", 2), ("bilinear", 4), ("trilinear", 8), ("bicubic", 16)])
def test_the_gradient_of_resizing_reaches_every_source_element(cost: Any, fn: str, taps: int) -> None:
    small, large = (2, 3, 4, 4), (2, 3, 8, 8)
    assert cost("resize", [large], [small], fn=fn, grad=True).flops == 2 * 3 * 8 * 8 * taps * 2


def test_the_gradient_of_the_nearest_element_is_added_to_it(cost: Any) -> None:
    assert cost("resize", [(2, 3, 8, 8)], [(2, 3, 4, 4)], fn="nearest", grad=True).flops == 2 * 3 * 8 * 8


def test_the_gradient_of_an_antialiased_filter_reaches_its_taps(cost: Any) -> None:
    small, large, taps = (2, 3, 4, 4), (2, 3, 9, 9), 6 * 6
    assert cost("resize", [small], [large], fn="bilinear", taps=taps, grad=True).flops == 2 * 3 * 4 * 4 * taps * 2


def test_sampling_takes_the_four_corners_by_default(cost: Any) -> None:
    corners = 2 * 2
    assert cost("sample", [(1, 3, 9, 9), (1, 5, 5, 2)], [(1, 3, 5, 5)]).flops == 3 * 5 * 5 * corners * 2


def test_sampling_weighs_and_adds_its_taps(cost: Any) -> None:
    n, c, h, out = 2, 3, 16, 5
    x, grid, y = (n, c, h, h), (n, out, out, 2), (n, c, out, out)
    assert cost("sample", [x, grid], [y], taps=4) == Cost(
        flops=n * c * out * out * 4 * 2,
        bytes_read=4 * (n * c * out * out * 4 + n * out * out * 2),  # fewer than x has
        bytes_written=4 * n * c * out * out,
    )


def test_sampling_never_reads_more_than_there_is(cost: Any) -> None:
    n, c, h, out = 2, 3, 4, 32
    x, grid, y = (n, c, h, h), (n, out, out, 2), (n, c, out, out)
    assert cost("sample", [x, grid], [y]).bytes_read == 4 * (n * c * h * h + n * out * out * 2)


def test_the_gradient_of_sampling_is_for_values_and_positions(cost: Any) -> None:
    n, c, h, out = 2, 3, 16, 5
    x, grid, y = (n, c, h, h), (n, out, out, 2), (n, c, out, out)
    forward = cost("sample", [x, grid], [y], taps=4).flops
    assert cost("sample", [y, x, grid], [x, grid], taps=4, grad=True).flops == 2 * forward


def test_a_loss_per_element_and_its_sum(cost: Any) -> None:
    n, m = 6, 10
    subtract, square, add = 1, 1, 1
    assert cost("loss", [(n, m), (n, m)], [()], fn="mse").flops == n * m * (subtract + square + add)
    assert cost("loss", [(n, m), (n, m)], [(n, m)], fn="mse").flops == n * m * (subtract + square)


def test_nll_looks_only_at_the_target_class(cost: Any) -> None:
    n, classes = 6, 1000
    target = TensorSpec((n,), "int64")
    negate, weigh, add = 1, 1, 1
    assert cost("loss", [(n, classes), target], [()], fn="nll").flops == n * (negate + weigh + add)
    assert cost("loss", [(), (n, classes), target], [(n, classes)], fn="nll", grad=True).flops == n


def test_ctc_counts_time_steps_and_states(cost: Any) -> None:
    time, batch, classes, length = 50, 4, 20, 7
    target = TensorSpec((batch, length), "int64")
    states = batch * (2 * length + 1)
    forward, reduced = LOSSES["ctc"][0], 1
    assert cost("loss", [(time, batch, classes), target], [(batch,)], fn="ctc").flops == time * states * (
        forward + reduced
    )
    joined = TensorSpec((batch * length,), "int64")
    assert cost("loss", [(time, batch, classes), joined], [(batch,)], fn="ctc").flops == time * states * (
        forward + reduced
    )


def test_multilabel_margin_compares_all_pairs_of_classes(cost: Any) -> None:
    n, classes = 6, 10
    target = TensorSpec((n, classes), "int64")
    subtract, add, maximum, total = 1, 1, 1, 1
    result = cost("loss", [(n, classes), target], [()], fn="multilabel_margin")
    assert result.flops == n * classes * classes * (subtract + add + maximum + total)


@pytest.mark.parametrize("fn", sorted(LOSSES))
def test_every_loss_and_its_gradient_cost_something(cost: Any, fn: str) -> None:
    n, classes = 6, 10
    x, target = (3, n, classes), TensorSpec((3, n, classes))
    assert cost("loss", [x, target], [()], fn=fn).flops > 0
    assert cost("loss", [(), x, target], [x], fn=fn, grad=True).flops > 0


def test_a_distance_subtracts_squares_and_adds_every_feature(cost: Any) -> None:
    b, p, r, m = 2, 5, 7, 3
    assert cost("distance", [(b, p, m), (b, r, m)], [(b, p, r)]).flops == b * p * r * (3 * m + 1)


def test_the_gradient_of_a_distance_is_four_operations_per_feature(cost: Any) -> None:
    b, p, r, m = 2, 5, 7, 3
    assert cost("distance", [(b, p, r), (b, p, m), (b, r, m)], [(b, p, m)], grad=True).flops == b * p * r * 4 * m


def test_distances_within_one_set_are_those_of_its_pairs(cost: Any) -> None:
    p, m = 5, 3
    pairs = p * (p - 1) // 2
    subtract_square_add, root = 3, 1
    assert cost("distance", [(p, m)], [(pairs,)]).flops == pairs * (subtract_square_add * m + root)
    subtract_divide_multiply_add = 4
    gradient = cost("distance", [(pairs,), (p, m)], [(p, m)], grad=True)
    assert gradient.flops == pairs * subtract_divide_multiply_add * m


def test_a_complex_transform_is_five_n_log_n(cost: Any) -> None:
    rows, n, levels = 3, 16, 4
    z = TensorSpec((rows, n), "complex64")
    assert cost("fft", [z], [z], lengths=(n,)).flops == rows * 5 * n * levels


def test_a_real_transform_is_half_of_it_in_both_directions(cost: Any) -> None:
    rows, n, levels = 3, 16, 4
    real, half = TensorSpec((rows, n)), TensorSpec((rows, n // 2 + 1), "complex64")
    assert cost("fft", [real], [half], lengths=(n,), real=True).flops == rows * 5 * n * levels // 2
    assert cost("fft", [half], [real], lengths=(n,), real=True).flops == rows * 5 * n * levels // 2


def test_the_shortest_transform_has_one_level(cost: Any) -> None:
    z = TensorSpec((3, 2), "complex64")
    assert cost("fft", [z], [z], lengths=(2,)).flops == 3 * 5 * 2 * 1


def test_a_transform_of_two_axes_is_one_after_the_other(cost: Any) -> None:
    n, m = 8, 32
    z = TensorSpec((n, m), "complex64")
    rows, columns = n * (5 * m * 5), m * (5 * n * 3)
    assert cost("fft", [z], [z], lengths=(n, m)).flops == rows + columns


def test_a_transform_of_length_one_is_nothing(cost: Any) -> None:
    z = TensorSpec((3, 1), "complex64")
    assert cost("fft", [z], [z], lengths=(1,)).flops == 0


@pytest.mark.parametrize(("length", "comparisons"), [(1, 0), (2, 1), (8, 3), (9, 4), (1000, 10)])
def test_sorting_is_n_log_n_comparisons(cost: Any, length: int, comparisons: int) -> None:
    rows = 3
    indices = TensorSpec((rows, length), "int64")
    result = cost("sort", [(rows, length)], [(rows, length), indices], length=length)
    assert result.flops == rows * length * comparisons


@pytest.mark.parametrize(("selected", "comparisons"), [(1, 1), (2, 1), (5, 3), (1000, 10)])
def test_keeping_the_best_costs_the_logarithm_of_their_number(cost: Any, selected: int, comparisons: int) -> None:
    rows, length = 3, 1000
    result = cost("sort", [(rows, length)], [(rows, selected)], length=length, selected=selected)
    assert result.flops == rows * length * comparisons


class TestLinalg:
    N, B = 6, 4

    @pytest.mark.parametrize(
        ("fn", "flops"),
        [
            ("cholesky", N**3 // 3),
            ("lu", 2 * N**3 // 3),
            ("det", 2 * N**3 // 3),
            ("inverse", 2 * N**3),
            ("matrix_exp", 10 * N**3),
        ],
    )
    def test_square_matrices(self, cost: Any, fn: str, flops: int) -> None:
        n, b = self.N, self.B
        assert cost("linalg", [(b, n, n)], [(b, n, n)], fn=fn).flops == b * flops

    @pytest.mark.parametrize(("shape", "tall", "thin"), [((9, 6), 9, 6), ((6, 9), 9, 6)])
    def test_the_smaller_side_counts_twice(self, cost: Any, shape: tuple[int, int], tall: int, thin: int) -> None:
        for fn in ("qr", "householder"):
            assert cost("linalg", [shape], [shape], fn=fn).flops == 2 * tall * thin**2 - 2 * thin**3 // 3
        assert cost("linalg", [shape], [shape], fn="lu").flops == tall * thin**2 - thin**3 // 3

    def test_singular_values_are_cheaper_than_their_vectors(self, cost: Any) -> None:
        m, n = 9, 6
        assert cost("linalg", [(m, n)], [(m, n), (n,), (n, n)], fn="svd").flops == 14 * m * n**2 + 8 * n**3
        assert cost("linalg", [(m, n)], [(n,)], fn="svd").flops == 4 * m * n**2 - 4 * n**3 // 3
        assert cost("linalg", [(m, n)], [(0,), (n,), (0, 0)], fn="svd").flops == 4 * m * n**2 - 4 * n**3 // 3

    def test_eigenvalues_are_cheaper_than_their_vectors(self, cost: Any) -> None:
        n = self.N
        assert cost("linalg", [(n, n)], [(n,), (n, n)], fn="eig").flops == 25 * n**3
        assert cost("linalg", [(n, n)], [(n,)], fn="eig").flops == 10 * n**3
        assert cost("linalg", [(n, n)], [(n,), (n, n)], fn="eigh").flops == 9 * n**3
        assert cost("linalg", [(n, n)], [(n,)], fn="eigh").flops == 4 * n**3 // 3

    def test_the_vector_of_a_single_number_is_a_vector_too(self, cost: Any) -> None:
        assert cost("linalg", [(1, 1)], [(1,), (1, 1)], fn="eig").flops == 25

    def test_solving_costs_two_n_squared_for_each_right_hand_side(self, cost: Any) -> None:
        n, k, b = self.N, 5, self.B
        assert cost("linalg", [(b, n, n), (b, n, k)], [(b, n, k)], fn="solve").flops == b * (
            2 * n**3 // 3 + 2 * n**2 * k
        )
        assert cost("linalg", [(n, n), (n,)], [(n,)], fn="solve").flops == 2 * n**3 // 3 + 2 * n**2
        assert cost("linalg", [(b, n, n), (b, n, k)], [(b, n, k)], fn="triangular_solve").flops == b * n**2 * k

    def test_a_factored_matrix_is_solved_by_two_triangles(self, cost: Any) -> None:
        ins, outs = [(self.B, self.N, self.N), (self.B, self.N, 5)], [(self.B, self.N, 5)]
        one = cost("linalg", ins, outs, fn="triangular_solve").flops
        assert cost("linalg", ins, outs, fn="factored_solve").flops == 2 * one

    def test_least_squares_factorizes_and_applies(self, cost: Any) -> None:
        m, n, k = 9, 6, 5
        factorize = 2 * m * n**2 - 2 * n**3 // 3
        assert cost("linalg", [(m, n), (m, k)], [(n, k)], fn="lstsq").flops == factorize + 4 * m * n * k

    def test_complex_matrices_cost_four_times_as_much(self, cost: Any) -> None:
        n = self.N
        z = TensorSpec((n, n), "complex64")
        assert cost("linalg", [z], [z], fn="inverse").flops == 4 * 2 * n**3
