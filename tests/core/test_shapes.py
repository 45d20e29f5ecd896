"""Shape arithmetic: values derived by hand."""

from __future__ import annotations

import pytest

from opcost.core.shapes import (
    Mismatch,
    Unknown,
    adaptive_windows,
    axes_of,
    broadcast,
    concat,
    diagonal,
    divided,
    dot,
    einsum,
    even_parts,
    expanded,
    explicit,
    filled,
    flattened,
    gathered,
    inserted,
    known,
    matmul,
    merge,
    padded,
    permuted,
    product,
    reduced,
    repeated,
    replaced,
    reshaped,
    same_windows,
    slice_length,
    spread,
    squeezed,
    stack,
    swapped,
    tensordot,
    text,
    tiled,
    total,
    windows,
)

# -- unknown extents --------------------------------------------------------------------------------------------------


def test_what_follows_from_an_unknown_extent_is_unknown() -> None:
    assert product((2, None, 3)) is None
    assert total((2, None)) is None
    assert windows(None, 3) is None
    assert spread(4, None) is None
    assert slice_length(None, 0, 2) is None
    assert diagonal(None, 3) is None
    assert even_parts(None, 2) == [None, None]
    assert concat([(2, 3), (None, 3)], 0) == (None, 3)


def test_an_axis_without_elements_decides_alone() -> None:
    assert product((2, None, 0)) == 0


def test_what_does_not_depend_on_an_unknown_extent_is_known() -> None:
    assert concat([(2, None), (3, 5)], 0) == (5, 5)
    assert broadcast([(None, 1), (4, None)]) == (4, None)
    assert matmul((None, 2, 3), (3, None)) == (None, 2, None)
    assert reduced((None, 5), (0,)) == (5,)


def test_two_accounts_of_a_shape_complete_each_other() -> None:
    assert merge((2, None), (None, 3)) == (2, 3)
    assert merge(None, (2,)) == (2,)
    with pytest.raises(Mismatch, match=r"^2x\? and 3x4 cannot be the same shape$"):
        merge((2, None), (3, 4))
    with pytest.raises(Mismatch, match=r"^2 and 2x1 cannot be the same shape$"):
        merge((2,), (2, 1))


def test_a_number_that_needs_an_unknown_extent_is_not_made_up() -> None:
    assert known((2, 3)) == (2, 3)
    for shape in (None, (2, None)):
        with pytest.raises(Unknown):
            known(shape)


def test_a_shape_is_written_as_people_write_it() -> None:
    assert [text(shape) for shape in ((1, 3, None), (), None)] == ["1x3x?", "a scalar", "an unknown shape"]


# -- windows ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("extent", "size", "stride", "padding", "last", "count"),
    [
        (7, 3, 2, (0, 0), "whole", 3),  # at 0, 2, 4
        (8, 3, 2, (0, 0), "whole", 3),  # at 0, 2, 4; the one at 6 has two elements
        (8, 3, 2, (0, 0), "begun", 4),
        (8, 3, 2, (1, 1), "begun", 5),  # at -1, 1, 3, 5, 7
        (3, 1, 3, (0, 0), "whole", 1),
        (5, 2, 3, (0, 0), "begun", 2),  # at 0, 3
        (3, 2, 3, (1, 1), "begun", 2),  # at -1, 2
        (2, 1, 3, (1, 1), "any", 2),  # at -1 and at 2, behind the end of 2 elements
        (2, 1, 3, (1, 1), "begun", 1),
        (4, 2, 2, (0, 1), "whole", 2),  # at 0, 2; only three fit behind
        (4, 2, 2, (1, 1), "whole", 3),  # at -1, 1, 3
    ],
)
def test_windows_that_fit_an_axis(
    extent: int, size: int, stride: int, padding: tuple[int, int], last: str, count: int
) -> None:
    assert windows(extent, size, stride=stride, padding=padding, last=last) == count  # type: ignore[arg-type]


def test_a_window_that_is_too_large_is_named_with_what_it_should_fit() -> None:
    # Three elements with one left out between each reach over five.
    with pytest.raises(Mismatch, match=r"^a kernel that reaches 5 does not fit 2 padded by 1$"):
        windows(2, 3, dilation=2, padding=(1, 1))
    with pytest.raises(Mismatch, match=r"^a kernel that reaches 4 does not fit 2 padded by 1 and 0$"):
        windows(2, 4, padding=(1, 0))


@pytest.mark.parametrize(
    ("setting", "fault"), [({"stride": 0}, "its stride is 0"), ({"dilation": 0}, "its dilation is 0")]
)
def test_windows_that_do_not_move_are_refused(setting: dict[str, int], fault: str) -> None:
    with pytest.raises(Mismatch, match=fault):
        windows(4, 2, **setting)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("extent", "size", "stride", "dilation", "padding"),
    [
        (5, 3, 1, 1, (1, 1)),
        (5, 2, 1, 1, (0, 1)),
        (6, 3, 2, 1, (0, 1)),  # windows at 0, 2, 4 reach to 7
        (7, 3, 2, 2, (2, 2)),  # four windows of five, at 0, 2, 4, 6, reach to 11
        (6, 1, 3, 1, (0, 0)),  # more than enough is there
    ],
)
def test_padding_for_same_makes_as_many_windows(
    extent: int, size: int, stride: int, dilation: int, padding: tuple[int, int]
) -> None:
    assert same_windows(extent, stride) == windows(extent, size, stride=stride, dilation=dilation, padding=padding)


def test_a_transposed_convolution_undoes_the_windows() -> None:
    # Four steps of two, and a kernel of three at the end: 0, 2, 4, 6 and 8 elements, and one more for each.
    assert spread(5, 3, stride=2) == 11
    assert spread(5, 3, stride=2, padding=(1, 1), extra=1) == 10
    assert windows(11, 3, stride=2) == 5
    with pytest.raises(Mismatch, match="nothing is left of 1 after removing the padding"):
        spread(1, 2, padding=(1, 1))


def test_adaptive_windows_share_out_every_axis() -> None:
    # 7 to 3: from 0 to 3, 2 to 5, 4 to 7.
    assert adaptive_windows((7, 8), (3, 4)) == ((3, 2), (2, 2))
    assert adaptive_windows((7, None, 5), (0, 2, 5)) == ((1,), (1,))


# -- axes -------------------------------------------------------------------------------------------------------------


def test_an_axis_that_is_not_there_is_named() -> None:
    assert axes_of((-1, 0), 3) == (2, 0)
    assert axes_of(None, 2) == (0, 1)
    with pytest.raises(Mismatch, match=r"^axis 3 is not one of the 3 axes$"):
        axes_of((3,), 3)


def test_axes_are_replaced_added_and_taken_away() -> None:
    assert replaced((2, 3, 4), 1, 7) == (2, 7, 4)
    assert replaced((2, 3, 4), 1) == (2, 4)
    assert inserted((2, 3), -1) == (2, 3, 1)
    assert squeezed((2, 1, 3, 1), (1, -1)) == (2, 3)
    with pytest.raises(Mismatch, match=r"^axis 0 of 2x1 is not of extent 1$"):
        squeezed((2, 1), (0,))


def test_axes_change_their_order() -> None:
    assert permuted((2, 3, 4), (2, 0, 1)) == (4, 2, 3)
    assert permuted((2, 3, 4), ()) == (4, 3, 2)
    assert swapped((2, 3, 4), 0, -1) == (4, 3, 2)
    with pytest.raises(Mismatch, match=r"^the axes \(0, 0\) do not fit 2 axes$"):
        permuted((2, 3), (0, 0))


def test_shapes_that_do_not_broadcast_are_all_named() -> None:
    with pytest.raises(Mismatch, match=r"^2x3 and 1 and 4 do not broadcast$"):
        broadcast([(2, 3), (1,), (4,)])


def test_a_shape_is_stretched_to_another_and_no_further() -> None:
    assert expanded((3, 1), (2, 3, 4)) == (2, 3, 4)
    assert expanded((3, 1, None), (None, None, 4)) == (3, None, 4)
    for target in ((3,), (3, 1)):
        with pytest.raises(Mismatch, match=r"^3x2 cannot be stretched to "):
            expanded((3, 2), target)


def test_a_reshape_keeps_the_elements() -> None:
    assert reshaped((2, 3, 4), (4, -1)) == (4, 6)
    assert reshaped((2, 3, 4), (0, 0, -1), zero_copies=True) == (2, 3, 4)
    assert reshaped((0, 3), (3, -1)) == (3, 0)
    assert reshaped((None, 4), (-1, 2)) == (None, 2)
    with pytest.raises(Mismatch, match=r"^2x3 has 6 elements, the new shape 4x2 has 8$"):
        reshaped((2, 3), (4, 2))
    with pytest.raises(Mismatch, match=r"^6 elements do not divide into 4$"):
        reshaped((2, 3), (4, -1))
    with pytest.raises(Mismatch, match="leaves more than one extent open"):
        reshaped((2, 3), (-1, -1))
    with pytest.raises(Mismatch, match=r"^2x3 has too few axes"):
        reshaped((2, 3), (2, 3, 0), zero_copies=True)


def test_one_extent_follows_from_the_number_of_elements() -> None:
    assert filled((2, None, 3), 24) == (2, 4, 3)
    assert filled((None, None), 24) == (None, None)
    assert filled((None, 0), 0) == (0, 0)
    with pytest.raises(Mismatch, match="5 elements do not divide into 2"):
        filled((None, 2), 5)


def test_flattening_leaves_a_matrix() -> None:
    assert flattened((2, 3, 4)) == (2, 12)
    assert flattened((2, 3, 4), 0) == (1, 24)


def test_elements_are_repeated() -> None:
    assert tiled((2, 3), (2,)) == (2, 6)
    assert tiled((3,), (2, 2)) == (2, 6)
    assert repeated((2, 3), 2, -1) == (2, 6)
    assert repeated((2, 3), 2, None) == (12,)


# -- joined and cut ---------------------------------------------------------------------------------------------------


def test_only_one_axis_may_differ_where_shapes_are_joined() -> None:
    assert concat([(2, 3), (4, 3)], -2) == (6, 3)
    assert stack([(2, 3)] * 4, -1) == (2, 3, 4)
    with pytest.raises(Mismatch, match=r"^\?x3 and \?x2 cannot be the same shape$"):
        concat([(2, 3), (4, 2)], 0)
    with pytest.raises(Mismatch, match=r"^2x3 and 2 cannot be joined$"):
        concat([(2, 3), (2,)], 0)
    for join in (concat, stack):
        with pytest.raises(Mismatch, match=r"^there is nothing to join$"):
            join([], 0)


def test_parts_are_almost_equal_or_exactly() -> None:
    assert even_parts(8, 3) == [3, 3, 2]
    assert divided(8, 4) == 2
    with pytest.raises(Mismatch, match=r"^8 channels cannot be divided among 3 groups$"):
        divided(8, 3, "channels", "groups")


def test_a_slice_has_a_step() -> None:
    assert slice_length(10, 1, -1, 3) == 3  # at 1, 4, 7
    with pytest.raises(Mismatch, match="a slice has the step 0"):
        slice_length(10, 0, 5, 0)


def test_padding_needs_two_numbers_for_every_axis() -> None:
    assert padded((2, 3), [(1, 2), (0, -1)]) == (5, 2)
    with pytest.raises(Mismatch, match=r"^widths for 1 axes do not fit 2x3$"):
        padded((2, 3), [(1, 1)])


def test_indices_stand_in_the_place_of_the_axis_they_pick_from() -> None:
    assert gathered((5, 6, 7), (2, 3), 1) == (5, 2, 3, 7)
    assert gathered((5, 6), (), 0) == (6,)


# -- products ---------------------------------------------------------------------------------------------------------


def test_matrices_may_lie_on_their_side() -> None:
    assert matmul((3, 2), (4, 3), transpose_a=True, transpose_b=True) == (2, 4)
    with pytest.raises(Mismatch, match=r"^rows of 3 elements do not fit columns of 4$"):
        matmul((2, 3), (4, 5))
    with pytest.raises(Mismatch, match="takes no scalars"):
        matmul((), (3,))


def test_a_scalar_in_a_dot_product_multiplies() -> None:
    assert dot((), (2, 3)) == (2, 3)


def test_axes_that_are_summed_together_are_equally_long() -> None:
    assert tensordot((2, 3, 4), (4, 3, 5), (1, 2), (1, 0)) == (2, 5)
    with pytest.raises(Mismatch, match=r"^an axis of extent 4 cannot be summed with one of extent 5$"):
        tensordot((2, 4), (5, 3), (1,), (0,))
    with pytest.raises(Mismatch, match=r"^the two operands do not have the same number of summed axes"):
        tensordot((2, 4), (4, 3), (1,), ())


@pytest.mark.parametrize(
    ("equation", "ranks", "written"),
    [
        ("ij,jk", [2, 2], "ij,jk->ik"),
        ("b i d, b j d -> b i j", [3, 3], "bid,bjd->bij"),
        ("ba", [2], "ba->ab"),
        ("i,i->", [1, 1], "i,i->"),
        ("...d,...d->...", [3, 2], "abd,bd->ab"),
        ("...i", [1], "i->i"),
    ],
)
def test_an_equation_is_written_out(equation: str, ranks: list[int], written: str) -> None:
    assert explicit(equation, ranks) == written


@pytest.mark.parametrize(
    ("equation", "ranks", "fault"),
    [
        ("ij,jk", [2, 3], "the labels 'jk' do not fit 3 axes"),
        ("ij,jk", [2], "the equation 'ij,jk' has 2 operands, not 1"),
        ("...ij", [1], "the labels '...ij' do not fit 1 axes"),
    ],
)
def test_an_equation_that_does_not_fit_its_operands_is_refused(equation: str, ranks: list[int], fault: str) -> None:
    with pytest.raises(Mismatch) as caught:
        explicit(equation, ranks)
    assert str(caught.value) == fault


def test_a_label_is_one_extent() -> None:
    assert einsum("ij,jk->ki", [(2, 1), (3, 4)]) == (4, 2)
    with pytest.raises(Mismatch, match=r"^the label 'j' has the extents 3 and 4$"):
        einsum("ij,jk->ik", [(2, 3), (4, 5)])
    with pytest.raises(Mismatch, match=r"^the output 'iz' has a label that no operand has$"):
        einsum("i->iz", [(2,)])
