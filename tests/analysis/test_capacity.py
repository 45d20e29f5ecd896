"""The largest size on a device, estimated from few counts: checked with the allocator at every size."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opcost.analysis.capacity import estimated_largest, follows_lines, reached, sample_between
from opcost.analysis.growth import Sample, largest
from opcost.core.graph import Lives, Op, TensorSpec
from opcost.core.report import Row
from opcost.devices.allocator import reserved

MIB = 1 << 20


def lives_at(size: int) -> Lives:
    """A chain of three results, of which two are there at once, a workspace that grows in steps, and weights of 5 MiB."""
    return Lives(
        lasting=[5 * MIB], inputs=[3000 * size], births=[0, 1, 2], deaths=[2, 3, 3],
        sizes=[70_000 * size, 5_000 * size + 12, 300 * size * size], workspaces=[0, MIB * (size // 100), 0],
    )  # fmt: skip


def sample_at(size: int, limit: int) -> Sample:
    lives = lives_at(size)
    fits = reserved(lives, limit) is not None
    most = reserved(lives)
    assert most is not None
    return Sample(min(most, limit) if fits else most, [0, 0, 0], lives)


@pytest.mark.parametrize("limit", [64 * MIB, 500 * MIB, 4000 * MIB])
@pytest.mark.parametrize("both", [True, False])
def test_the_answer_is_a_border_and_takes_few_counts(limit: int, *, both: bool) -> None:
    counted: list[int] = []

    def count(size: int) -> Sample:
        counted.append(size)
        return sample_at(size, limit)

    found = largest(count, limit, {1: sample_at(1, limit)}, 1, estimated_largest, both=both)
    assert found is not None
    assert reserved(lives_at(found.largest), limit) is not None
    assert reserved(lives_at(found.following), limit) is None
    assert found.following == found.largest + 1
    assert found.largest in counted
    assert (found.following in counted) is both
    # By counts alone, each size that is tried is one: with the losses of an allocator they are dozens.
    assert len(counted) <= 7
    assert len(counted) <= len(by_counts_alone(limit))


def by_counts_alone(limit: int) -> list[int]:
    counted: list[int] = []

    def count(size: int) -> Sample:
        counted.append(size)
        return sample_at(size, limit)

    largest(count, limit, {1: sample_at(1, limit)})
    return counted


def test_without_a_device_the_polynomials_are_the_estimate() -> None:
    def tensors(size: int) -> Sample:
        return Sample(100 + 7 * size, [100, 100 + 7 * size])

    samples = {1: tensors(1), 2: tensors(2)}
    assert estimated_largest(samples, 1000, 2, None) == (128, 129)  # 100 + 7 n <= 1000
    assert estimated_largest(samples, 1000, 2, 100) == (99, 100)
    assert estimated_largest({1: tensors(1)}, 1000, 1, None) is None
    assert estimated_largest({1: Sample(5, [5]), 2: Sample(5, [5])}, 10, 2, None) is None  # it does not grow


def test_sizes_at_which_other_operators_run_say_nothing() -> None:
    other = Sample(9, [9, 9, 9])
    assert estimated_largest({1: other, 2: Sample(107, [107])}, 1000, 2, None) is None


# -- a size between two counted ones


def in_steps(row: Row) -> int:
    """A workspace of one MiB for each 100 elements."""
    return MIB * (row.outs[0].numel // 100)


def line_at(size: int) -> Sample:
    """Weights, inputs, two results and a workspace of `in_steps`, all of whole blocks and in segments of their own."""
    rows = [
        Row(Op(at, "conv", "conv", (), (at,), {}), (), (TensorSpec((size * wide,)),), None, "")
        for at, wide in ((0, 0), (1, 1))
    ]
    lives = Lives(
        lasting=[2 * MIB, 20 * MIB], inputs=[2 * MIB * size], births=[0, 1], deaths=[2, 2],
        sizes=[4 * MIB * size, 6 * MIB * size], workspaces=[in_steps(row) for row in rows],
    )  # fmt: skip
    # Whole blocks, the first of which libraries have: weights, input, the first result, then the second and the workspace
    curve = [(20 + 6 * size) * MIB, (20 + 12 * size) * MIB + lives.workspaces[1]]
    return Sample(max(curve), curve, lives, fixed_bytes=20 * MIB, rows=rows)


@pytest.mark.parametrize("size", [250, 299, 301, 777])
def test_a_size_between_is_what_would_be_counted(size: int) -> None:
    found = sample_between({120: line_at(120), 930: line_at(930)}, size, in_steps)
    there = line_at(size)
    assert found is not None
    assert found.lives == there.lives
    assert list(found.curve) == there.curve
    assert found.peak_bytes == there.peak_bytes


def test_only_shapes_on_a_line_say_what_workspaces_are() -> None:
    other = line_at(300)
    odd = [row._replace(outs=(TensorSpec((7,), "int8"),)) for row in other.rows]
    samples = {100: line_at(100), 300: other._replace(rows=odd)}
    assert sample_between(samples, 200, in_steps) is None
    found = sample_between(samples, 200)
    assert found is not None
    assert found.lives is not None
    assert found.lives.workspaces == [0, 2 * MIB]  # the mean of one and three


def test_without_a_device_each_operator_is_between() -> None:
    samples = {2: Sample(20, [20, 8], fixed_bytes=3), 6: Sample(60, [60, 10], fixed_bytes=3)}
    assert sample_between(samples, 3) == Sample(30, [30, 8], None, 3)  # half of a byte is none
    assert sample_between({2: samples[2]}, 3) is None


@pytest.mark.parametrize(
    ("powers", "follows"),
    [((5,), True), ((5, 7), True), ((0, 7), True), ((5, 7, 1), False), ((0, 0, 1), False), ((-3, 7), False)],
)
@pytest.mark.parametrize("sizes", [(8, 9), (1, 2, 9), (2, 800, 801)])
def test_squares_follow_no_line(powers: tuple[int, ...], follows: bool, sizes: tuple[int, ...]) -> None:
    def tensor(size: int) -> int:
        return sum(factor * size**power for power, factor in enumerate(powers))

    samples = {size: Sample(0, [100, tensor(size)]) for size in sizes}
    assert follows_lines(samples) is follows
    of_device = {
        size: Sample(0, [0, 0], replace(lives_at(1), sizes=[tensor(size), 1, 1], workspaces=[0, size**3, 0]))
        for size in sizes
    }
    assert follows_lines(of_device) is follows  # whatever workspaces do
    assert not follows_lines({1: samples[sizes[0]]})
    assert not follows_lines({})


def test_the_size_that_is_reached_grows_by_what_is_freed_before_the_update() -> None:
    # During operator 1 there are 20 of weights, 5 of a gradient that the update reads, and 4 + 6 that grow; 2 in the update
    lives = Lives([20], [6], [0, 1, 2], [2, 9, 3], [4, 5, 2], [0, 0, 0])
    sample = Sample(33, [30, 35, 33], lives, fixed_bytes=25, update=2)
    assert reached(sample, 10, 25 + 10 * 8) == 80
    assert reached(sample, 10, 36) == 11  # less than what there is: the next size
    # At inference all but the weights grows: 15 of 35 during operator 1
    assert reached(sample._replace(update=None), 10, 20 + 15 * 8) == 80
    # Without a device the peak and its fixed bytes say it: 35 - 25
    assert reached(sample._replace(lives=None), 10, 25 + 10 * 8) == 80
