"""Kernels over many tensors at once: how many there are, and how long each takes."""

import pytest

from opcost.analysis.prediction.predict import multi_tensor_launches, multi_tensor_ns

BANDWIDTH = 4.8e12
CHUNK = 65_536


def reached(share: float) -> float:
    return share * BANDWIDTH


def test_a_kernel_has_room_for_so_many_tensors() -> None:
    # EfficientNet-B0 has 213 parameters; on a GPU its lists were seen to take 2, 4 and 5 kernels.
    small = [64] * 213
    assert [len(list(multi_tensor_launches(small, lists))) for lists in (1, 2, 3)] == [2, 4, 5]


def test_a_kernel_has_room_for_320_chunks() -> None:
    # BERT-base: 109,482,240 elements are 1,671 chunks if they are one tensor, and 6 kernels.
    assert [elements // CHUNK for elements, _ in multi_tensor_launches([109_482_240], 2)] == [320] * 5 + [70]


def test_what_is_left_of_a_tensor_counts_as_one_in_the_next_kernel() -> None:
    sizes = [330 * CHUNK] + [1] * 109
    assert list(multi_tensor_launches(sizes, 1)) == [(320 * CHUNK, CHUNK), (10 * CHUNK + 109, CHUNK)]


def test_a_kernel_takes_as_long_as_its_largest_chunk() -> None:
    few = multi_tensor_ns("aten::_foreach_mul_", [CHUNK], 1, 2 * 4 * CHUNK, 4, reached)
    more = multi_tensor_ns("aten::_foreach_mul_", [CHUNK] * 10, 1, 2 * 4 * CHUNK * 10, 4, reached)
    assert few == more == 2_500 + 15_000


def test_many_elements_take_as_long_as_their_bytes() -> None:
    sizes = [320 * CHUNK]
    moved = 3 * 4 * sum(sizes)
    taken = multi_tensor_ns("aten::_foreach_lerp_", sizes, 2, moved, 4, reached)
    assert taken == pytest.approx(moved / (0.8 * BANDWIDTH) * 1e9)
    # A root in two bytes reaches half of that.
    assert multi_tensor_ns("aten::_foreach_sqrt", sizes, 2, moved, 2, reached) == pytest.approx(2 * taken)
