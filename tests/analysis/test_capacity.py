"""The largest size on a device, estimated from few counts: checked with the allocator at every size."""

from __future__ import annotations

import pytest

from opcost.analysis.capacity import estimated_largest
from opcost.analysis.growth import Sample, largest
from opcost.core.graph import Lives
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
