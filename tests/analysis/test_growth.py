"""Numbers that grow with a size: exact on polynomials, and a search that rests on counts alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opcost.analysis.growth import FARTHEST, Sample, largest, over_grid, weights

Curve = Callable[[int], Sequence[int]]


def search(
    curve: Curve, limit: int, *, refused: Callable[[int], bool] = lambda size: False
) -> tuple[object, list[int]]:
    """The answer, and the sizes that were counted for it."""
    counted: list[int] = []

    def count(size: int) -> Sample | None:
        counted.append(size)
        assert size not in counted[:-1]
        return None if refused(size) else Sample(max(curve(size)), curve(size))

    first = count(1)
    assert first is not None
    return largest(count, limit, {1: first}), counted


@given(st.lists(st.integers(-50, 50), min_size=1, max_size=3), st.integers(1, 1000))
def test_a_polynomial_is_exact_from_as_many_points_as_it_has_coefficients(factors: list[int], size: int) -> None:
    def at(x: int) -> int:
        return sum(factor * x**power for power, factor in enumerate(factors))

    sizes = [3, 8, 17][: len(factors)]
    assert weights(sizes, size).of([at(x) for x in sizes]) == at(size)


def test_what_is_not_whole_is_not_on_the_polynomial() -> None:
    assert weights([0, 2], 1).of([0, 1]) is None
    assert weights([0, 2], 1).near([0, 1]) == 0


def test_a_line_takes_four_counts() -> None:
    # 100 + 7 n <= 1000 up to 128.
    found, counted = search(lambda n: [100 + 7 * n], 1000)
    assert found == (128, 129)
    assert counted == [1, 2, 128, 129]


def test_a_peak_that_moves_to_another_operator_takes_no_more() -> None:
    # At small sizes the update holds most; at 40 and above it is the activations: 20 n <= 1,000,000.
    found, counted = search(lambda n: [800, 20 * n, 3 * n + 700], 1_000_000)
    assert found == (50_000, 50_001)
    assert counted == [1, 2, 50_000, 50_001]


def test_a_square_takes_one_more_round() -> None:
    found, counted = search(lambda n: [50 + n * n, 9 * n], 10_050)
    assert found == (100, 101)
    assert len(counted) <= 6


@given(st.integers(1, 500), st.integers(0, 300), st.integers(0, 4), st.integers(600, 10**7))
def test_the_answer_is_true_of_whatever_grows(line: int, step: int, square: int, limit: int) -> None:
    def curve(n: int) -> Sequence[int]:
        return [line * n + n // 7 * step + square * n * n, 600 + n]

    if max(curve(1)) > limit:
        return
    found, counted = search(curve, limit)
    assert isinstance(found, tuple)
    assert max(curve(found[0])) <= limit < max(curve(found[1]))
    assert found[1] == found[0] + 1
    assert len(counted) <= 70


def test_runs_that_get_longer_are_known_by_their_peaks_and_in_small_steps() -> None:
    found, counted = search(lambda n: [10 * n] * n, 5_000)
    assert found == (500, 501)
    assert all(after <= 4 * before for before, after in pairwise(counted))


def test_one_size_at_which_other_operators_run_is_left_out() -> None:
    found, counted = search(lambda n: [9 * n, 5] if n > 1 else [2], 9_000)
    assert found == (1000, 1001)
    assert counted == [1, 2, 8, 1000, 1001]


def test_a_model_that_does_not_run_at_a_size_ends_there() -> None:
    found, counted = search(lambda n: [n], 10**9, refused=lambda n: n > 77)
    assert found == (77, 78)
    assert len(counted) < 20


def test_what_does_not_grow_has_no_largest() -> None:
    found, counted = search(lambda n: [5, 4], 10)
    assert found is None
    assert counted == [1, 2, FARTHEST]


def test_sizes_that_are_known_are_not_counted_again() -> None:
    def count(size: int) -> Sample:
        counted.append(size)
        return Sample(7 * size, [7 * size])

    counted: list[int] = []
    assert largest(count, 700, {8: Sample(56, [56]), 16: Sample(112, [112])}, 8) == (100, 101)
    assert counted == [100, 101]


def test_where_runs_differ_the_next_size_follows_from_what_grows() -> None:
    def count(size: int) -> Sample:
        counted.append(size)
        return Sample(1000 + 50 * size, [1000 + 50 * size, 900], fixed_bytes=1000)

    # At 1 another operator ran, and the peak was higher. Of 1310 bytes 310 are there for 50 of each size.
    counted: list[int] = []
    one = Sample(1190, [1190, 0, 0], fixed_bytes=1000)
    assert largest(count, 1310, {1: one, 2: Sample(1100, [1100, 900], fixed_bytes=1000)}) == (6, 7)
    assert counted == [6, 7]


@pytest.mark.parametrize("limit", [7, 13, 14])
def test_the_lowest_may_be_the_answer(limit: int) -> None:
    found, counted = search(lambda n: [7 * n], limit)
    assert found == (limit // 7, limit // 7 + 1)
    assert len(counted) <= 3


# -- many sizes ----------------------------------------------------------------------------------------------------------


def over(axes: Sequence[Sequence[int]], numbers: Callable[..., list[int] | None]) -> tuple[list[object], int]:
    """The numbers of each combination, and how many were counted."""
    counted: list[tuple[int, ...]] = []

    def count(sizes: tuple[int, ...]) -> list[int] | None:
        counted.append(sizes)
        assert sizes not in counted[:-1]
        return numbers(*sizes)

    return list(over_grid(axes, count)), len(counted)


BATCHES, TOKENS = [1, 2, 4, 8, 16, 32, 64, 128, 256], [128, 256, 512, 1024, 2048, 4096, 8192]


def test_of_one_size_three_and_a_check_are_counted() -> None:
    found, counted = over([BATCHES], lambda batch: [7 * batch + 1, batch * batch])
    assert found == [((batch,), [7 * batch + 1, batch * batch]) for batch in BATCHES]
    assert counted == 3 + 1


def test_of_two_sizes_three_by_three_and_three_checks_are_counted() -> None:
    def numbers(batch: int, tokens: int) -> list[int]:
        return [batch * tokens * (tokens + 1) // 2, 5 * batch + 3]

    found, counted = over([BATCHES, TOKENS], numbers)
    assert found == [((batch, tokens), numbers(batch, tokens)) for batch in BATCHES for tokens in TOKENS]
    assert counted == 3 * 3 + 3


def test_what_is_no_polynomial_is_counted_everywhere() -> None:
    def numbers(batch: int, tokens: int) -> list[int]:
        return [min(batch * tokens, 1000)]

    found, counted = over([BATCHES, TOKENS], numbers)
    assert found == [((batch, tokens), numbers(batch, tokens)) for batch in BATCHES for tokens in TOKENS]
    assert counted == len(BATCHES) * len(TOKENS)


def test_runs_of_other_lengths_and_sizes_that_do_not_run_are_counted_everywhere() -> None:
    found, counted = over([BATCHES], lambda batch: [1] * batch)
    assert [len(numbers) for _, numbers in found] == BATCHES  # type: ignore[misc, attr-defined]
    assert counted == len(BATCHES)
    found, counted = over([BATCHES], lambda batch: None if batch > 100 else [batch])
    assert found[-2:] == [((128,), None), ((256,), None)]
    assert counted == len(BATCHES)


def test_of_few_sizes_there_is_nothing_to_save() -> None:
    assert over([[1, 2, 3, 4]], lambda batch: [batch])[1] == 4
    assert over([[5], [6]], lambda batch, tokens: [batch]) == ([((5, 6), [5])], 1)
