"""Blocks and segments of PyTorch's caching allocator, each worked out by hand from its rules."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opcost.core.graph import Lives
from opcost.devices.allocator import Allocator, OutOfMemory, allocated_blocks, least_capacity, reserved

KIB, MIB = 1 << 10, 1 << 20


def passing(*tensors: tuple[int, int, int], steps: int = 4, lasting: tuple[int, ...] = ()) -> Lives:
    """Tensors by the operator that makes them, the one before which they are gone, and their bytes."""
    births, deaths, sizes = zip(*tensors, strict=True) if tensors else ((), (), ())
    return Lives(lasting, (), births, deaths, sizes, [0] * steps)


@pytest.mark.parametrize(
    ("wanted", "block"),
    [
        # multiples of 512 bytes, cut out of 2 MiB
        (1, 512), (512, 512), (513, 1024), (MIB - 511, MIB), (MIB, MIB),
        # cut out of 20 MiB, or of steps of 2 MiB: a rest of 1 MiB stays with the block, a larger one does not
        (MIB + 1, MIB + 512), (10 * MIB - 512, 10 * MIB - 512), (10 * MIB, 10 * MIB), (11 * MIB, 12 * MIB), (11 * MIB - 512,
        11 * MIB - 512),
        (10 * MIB + 512, 10 * MIB + 512), (12 * MIB, 12 * MIB),
    ],
)  # fmt: skip
def test_a_tensor_gets_a_block_of_this_size(wanted: int, block: int) -> None:
    assert Allocator().take(wanted).size == block
    assert allocated_blocks(passing((0, 4, wanted))).sizes == [block]
    assert allocated_blocks(Lives((wanted,), (), (), (), (), [])).lasting == [block]
    assert allocated_blocks(Lives((), (wanted,), (), (), (), [])).inputs == [block]
    assert allocated_blocks(Lives((), (), (), (), (), [wanted])).workspaces == [block]


@pytest.mark.parametrize(
    ("wanted", "segment"),
    [
        (MIB, 2 * MIB),
        (MIB + 1, 20 * MIB),
        (10 * MIB - 512, 20 * MIB),
        (10 * MIB - 511, 10 * MIB),
        (12 * MIB + 1, 14 * MIB),
    ],
)
def test_a_segment_has_this_size(wanted: int, segment: int) -> None:
    allocator = Allocator()
    allocator.take(wanted)
    assert (allocator.reserved, allocator.most_reserved) == (segment, segment)


def test_blocks_of_a_segment_lie_one_after_the_other() -> None:
    allocator = Allocator()
    blocks = [allocator.take(size) for size in (512, 1024, 512)]
    assert [block.address for block in blocks] == [0, 512, 1536]
    assert blocks[1].before is blocks[0]
    assert blocks[1].after is blocks[2]
    other = allocator.take(3 * MIB)
    assert (other.address, other.before) == (2 * MIB, None)  # behind the first segment


def test_free_blocks_side_by_side_become_one() -> None:
    for order in ((0, 1, 2), (0, 2, 1), (2, 1, 0), (1, 0, 2), (1, 2, 0)):
        allocator = Allocator()
        blocks = [allocator.take(600 * KIB) for _ in range(3)]  # 1,800 KiB of 2,048
        for place in order:
            allocator.give(blocks[place])
        assert [(size, block.address) for size, _, block in allocator._free[0, True]] == [(2 * MIB, 0)]
        assert not allocator._free[0, False]


def test_what_lies_between_two_that_are_in_use_is_joined_with_neither() -> None:
    allocator = Allocator()
    first, middle, last = (allocator.take(600 * KIB) for _ in range(3))
    allocator.give(middle)
    assert [size for size, _, _ in allocator._free[0, True]] == [(2048 - 1800) * KIB, 600 * KIB]
    again = allocator.take(500 * KIB)  # in the middle; what is left of it is split off, and found by the next
    assert (again.address, again.size, again.before, again.after.after) == (600 * KIB, 500 * KIB, first, last)
    assert last.before is again.after
    assert allocator.take(100 * KIB).address == 1100 * KIB
    assert allocator.reserved == 2 * MIB


def test_of_equal_blocks_the_first_is_taken() -> None:
    allocator = Allocator()
    blocks = [allocator.take(512) for _ in range(4)]
    allocator.give(blocks[2])
    allocator.give(blocks[0])
    assert allocator.take(512).address == 0
    assert allocator.take(512).address == 1024


def test_small_and_large_tensors_do_not_share_segments() -> None:
    allocator = Allocator()
    allocator.give(allocator.take(5 * MIB))
    allocator.take(512)
    assert allocator.reserved == (20 + 2) * MIB


def test_unused_segments_of_both_kinds_go_back_when_the_device_is_full() -> None:
    allocator = Allocator(42 * MIB)
    kept = allocator.take(512)
    allocator.give(allocator.take(30 * MIB))
    used = allocator.take(MIB)
    allocator.give(used)  # beside the one that is in use
    block = allocator.take(40 * MIB)  # 2 + 30 + 40 are too many, 2 + 40 are not
    assert (allocator.reserved, allocator.most_reserved, block.size) == (42 * MIB, 42 * MIB, 40 * MIB)
    with pytest.raises(OutOfMemory):
        allocator.take(2 * MIB)
    allocator.give(kept)
    allocator.give(block)
    assert allocator.take(42 * MIB).size == 42 * MIB


def test_a_tensor_is_gone_before_the_operator_of_its_end_makes_its_own() -> None:
    assert reserved(passing((0, 1, 30 * MIB), (1, 2, 30 * MIB))) == 30 * MIB
    assert reserved(passing((0, 2, 30 * MIB), (1, 2, 30 * MIB))) == 60 * MIB
    assert reserved(passing((0, 9, 30 * MIB), (3, 9, 30 * MIB))) == 60 * MIB  # till the end of the pass


def test_a_workspace_is_taken_beside_what_lives_and_counts_by_its_block() -> None:
    found = allocated_blocks(Lives((), (), (0,), (1,), (30 * MIB,), [40 * MIB + 1, 0, 513]))
    assert (found.workspaces, found.reserved) == ([40 * MIB + 512, 0, 1024], (30 + 42 + 2) * MIB)


def test_the_second_pass_finds_what_the_first_left() -> None:
    # First 40 in a segment of 40, then 30 of its own; from the second pass on the 30 come before the 40, and take its segment.
    order = passing((0, 3, 30 * MIB), (1, 2, 40 * MIB))
    assert reserved(order) == 70 * MIB
    # What is left over from 40 when 30 take it is lost to the next 40.
    lasting = passing((0, 1, 40 * MIB), (1, 9, 30 * MIB))
    assert reserved(lasting) == 40 * MIB
    grown = passing((0, 2, 11 * MIB), (1, 9, 40 * MIB), (2, 9, 12 * MIB))
    assert allocated_blocks(grown).sizes == [12 * MIB, 40 * MIB, 12 * MIB]


TENSORS = st.tuples(st.integers(0, 5), st.integers(1, 6), st.integers(1, 90).map(lambda size: size * MIB // 2))


@given(st.lists(TENSORS, max_size=12), st.lists(st.integers(0, 40), min_size=6, max_size=6), st.integers(0, 50))
def test_a_pass_that_takes_no_segment_is_the_last(
    tensors: list[tuple[int, int, int]], workspaces: list[int], weight: int
) -> None:
    """Three passes, written down plainly, hand out the same blocks."""
    made = sorted((born, born + lasts, size) for born, lasts, size in tensors)
    births, deaths, sizes = zip(*made, strict=True) if made else ((), (), ())
    lives = Lives((weight * MIB,), (3 * MIB,), births, deaths, sizes, [size * MIB for size in workspaces])
    allocator = Allocator()
    allocator.take(weight * MIB)
    for _ in range(3):
        batch, blocks = allocator.take(3 * MIB), {}
        found, taken = [0] * len(made), [0] * 6
        for step in range(6):
            for at in [at for at in blocks if deaths[at] == step]:
                allocator.give(blocks.pop(at))
            for at in [at for at, born in enumerate(births) if born == step]:
                blocks[at] = allocator.take(sizes[at])
                found[at] = blocks[at].size
            if workspaces[step]:
                block = allocator.take(workspaces[step] * MIB)
                taken[step] = block.size
                allocator.give(block)
        for block in (*blocks.values(), batch):
            allocator.give(block)
    handed = allocated_blocks(lives)
    assert (handed.sizes, handed.workspaces, handed.reserved) == (found, taken, allocator.most_reserved)


def test_a_rest_of_exactly_one_mebibyte_stays_with_its_block() -> None:
    whole, split = passing((0, 1, 40 * MIB), (1, 9, 39 * MIB)), passing((0, 1, 40 * MIB), (1, 9, 39 * MIB - 512))
    assert allocated_blocks(whole).sizes == [40 * MIB, 40 * MIB]
    assert allocated_blocks(split).sizes == [40 * MIB, 39 * MIB - 512]


PINNED = passing((0, 1, 50 * MIB), (1, 4, 12 * MIB), (2, 4, 60 * MIB))
"""Where the 50 were, 12 are allocated; 60 then need a segment of their own: 110, though at most 72 are allocated at once."""


def test_the_least_capacity_is_found_by_seven_halvings() -> None:
    # Of 72 to 400 the half that contains 110, seven times: 400 is more than is ever taken, so that is the answer.
    assert least_capacity(PINNED, 400 * MIB, 72 * MIB) == 110 * MIB
    low, high = 80 * MIB, 110 * MIB  # below the limit it fails; what is ever taken is enough
    assert least_capacity(PINNED, low, 72 * MIB) == high
    unused = passing((0, 1, 50 * MIB), (2, 4, 60 * MIB))  # 110 are taken, 60 suffice
    low, high = 50 * MIB, 97 * MIB
    for _ in range(7):
        middle = (low + high) // 2
        low, high = (low, middle) if middle >= 60 * MIB else (middle, high)
    assert least_capacity(unused, 97 * MIB, 50 * MIB) == high
    assert least_capacity(unused, 110 * MIB, 50 * MIB) == 110 * MIB  # what is taken at most is within the limit


def test_nothing_goes_back_while_the_device_has_just_enough() -> None:
    allocator = Allocator(32 * MIB)
    allocator.give(allocator.take(30 * MIB))
    allocator.take(512)
    assert allocator.reserved == 32 * MIB


def test_memory_that_one_stream_has_used_is_not_given_to_another() -> None:
    one_after_the_other = passing((0, 1, 30 * MIB), (1, 2, 30 * MIB), (2, 3, 600), (3, 4, 700))
    assert reserved(one_after_the_other) == (30 + 2) * MIB
    apart = replace(one_after_the_other, streams=[0, 1, 0, 1])
    assert reserved(apart) == 2 * (30 + 2) * MIB
    assert allocated_blocks(apart).sizes == [30 * MIB, 30 * MIB, 1024, 1024]


def test_expandable_segments_grow_at_their_end_and_split_every_rest() -> None:
    """30 MiB take two pages of 20; the 10 left and one more page hold the next 25, of which 5 are left, and hold 5."""
    first = passing((0, 4, 30 * MIB), (1, 4, 25 * MIB), (2, 4, 5 * MIB))
    assert reserved(first) == (30 + 26 + 20) * MIB
    assert reserved(replace(first, expandable=True)) == 60 * MIB
    # Where 30 were, 11 and 19 find room; without, the rest of a block of 12 stays with it, and 19 need 20 of their own.
    again = passing((0, 1, 30 * MIB), (1, 4, 11 * MIB), (1, 4, 19 * MIB))
    assert reserved(replace(again, expandable=True)) == 40 * MIB
    small = passing((0, 4, 600), (1, 4, MIB), (1, 2, MIB), lasting=(5 * MIB,))
    assert reserved(replace(small, expandable=True)) == (20 + 4) * MIB
    apart = replace(first, expandable=True, streams=[0, 1, 1])
    assert reserved(apart) == (40 + 40) * MIB


def test_free_pages_of_expandable_segments_are_released() -> None:
    pinned = replace(passing((0, 1, 50 * MIB), (1, 4, 12 * MIB), (2, 4, 60 * MIB)), expandable=True)
    assert reserved(pinned) == 80 * MIB  # 60 for the first; 48 of these are free behind the second, and 20 more
    assert reserved(pinned, 72 * MIB) is None
    hole = replace(passing((0, 1, 50 * MIB), (0, 4, 10 * MIB), (2, 4, 60 * MIB)), expandable=True)
    assert reserved(hole) == 120 * MIB
    assert reserved(hole, 80 * MIB) == (10 + 60) * MIB  # the 50 are given back
