"""Sizes as people write them."""

from __future__ import annotations

import pytest

from opcost.core.limits import MOST, check_sizes, parse_sizes
from opcost.errors import InputError


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("8", [8]),
        ("1,3,7", [1, 3, 7]),
        ("1,2,4..64", [1, 2, 4, 8, 16, 32, 64]),
        ("128..8192", [128, 256, 512, 1024, 2048, 4096, 8192]),
        ("1..8", [1, 2, 4, 8]),
        ("3..20", [3, 6, 12]),  # the next would be above the last
        ("10,20..50", [10, 20, 30, 40, 50]),
        ("32,64..128", [32, 64, 96, 128]),  # two of them are steps that are added
        ("1,2,3..6", [1, 2, 3, 4, 5, 6]),
        ("5,1,10,100..10000".removeprefix("5,"), [1, 10, 100, 1000, 10000]),
        (" 1 .. 4 , 6", [1, 2, 4, 6]),
        ("1..4,10..40", [1, 2, 4, 10, 20, 40]),
    ],
)
def test_sizes_go_on_as_they_began(text: str, sizes: list[int]) -> None:
    assert list(parse_sizes(text)) == sizes


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "are not sizes"),
        ("1,,2", "are not sizes"),
        ("a..b", "are not sizes"),
        ("1..", "are not sizes"),
        ("-1..4", "are not sizes"),
        ("1.5", "are not sizes"),
        ("1...4", "are not sizes"),
        ("0..8", "do not rise"),
        ("0", "above zero"),
        ("4,2", "do not rise"),
        ("2,2", "do not rise"),
        ("8..4", "not above"),
        ("8..8", "not above"),
        ("4,2..1", "not above"),
        ("4,2..9", "do not rise"),
        ("1,2,5..64", "neither by adding nor by multiplying"),
        ("2,3,4,7..64", "3, 4, 7 go on neither"),
        ("1,2..999999999999", "more than 1,000"),
        ("9" * 30, "are not sizes"),
    ],
)
def test_nonsense_is_refused_with_what_is_wrong(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        parse_sizes(text)


@pytest.mark.parametrize("sizes", [(), (0, 1), (2, 1), (1, 1), (True, 2), (1.0, 2), tuple(range(1, MOST + 2))])
def test_numbers_have_the_same_limits(sizes: tuple[int, ...]) -> None:
    with pytest.raises(InputError):
        check_sizes(sizes, sizes)
