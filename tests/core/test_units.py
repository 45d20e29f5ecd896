from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opcost.core.units import (
    BINARY,
    COUNT,
    DECIMAL,
    TIME,
    format_bytes,
    format_count,
    format_time,
    parse_bytes,
    parse_count,
    parse_time,
)
from opcost.errors import OpcostError, UnknownName


def format_decimal_bytes(number: int) -> str:
    return format_bytes(number, binary=False)


FAMILIES = [
    pytest.param(format_count, parse_count, COUNT, 1000, id="count"),
    pytest.param(format_bytes, parse_bytes, BINARY, 1024, id="binary bytes"),
    pytest.param(format_decimal_bytes, parse_bytes, DECIMAL, 1000, id="decimal bytes"),
    pytest.param(format_time, parse_time, TIME, 1000, id="time"),
]
Format = Callable[[int], str]
Parse = Callable[[str], int]


def numbers(units: dict[str, int], limit: int) -> st.SearchStrategy[int]:
    """Integers of every size up to the last one that has a unit, and those next to where a unit changes."""
    largest = max(units.values()) * (limit - 1)
    exponents = st.floats(0, 1).map(lambda part: int(largest**part))
    borders = st.sampled_from([size * factor for size in units.values() for factor in (1, limit)])
    near = st.builds(lambda border, step: border + step, borders, st.integers(-6000, 6000))
    return (exponents | near | st.integers(0, 5000)).filter(lambda n: 0 <= n <= largest)


@pytest.mark.parametrize(("form", "parse", "units", "limit"), FAMILIES)
class TestEveryFamily:
    @given(data=st.data())
    def test_what_is_formatted_is_read_back_within_half_of_its_last_digit(
        self, form: Format, parse: Parse, units: dict[str, int], limit: int, data: st.DataObject
    ) -> None:
        number = data.draw(numbers(units, limit))
        text = form(number)
        unit = units[text.partition(" ")[2]]
        if unit == 1:
            assert parse(text) == number
        else:
            assert (
                abs(parse(text) - number) * 200 <= unit + 200
            )  # half of a hundredth, and reading rounds to an integer

    @given(data=st.data())
    def test_a_larger_number_never_looks_smaller(
        self, form: Format, parse: Parse, units: dict[str, int], limit: int, data: st.DataObject
    ) -> None:
        small, large = sorted(data.draw(st.tuples(numbers(units, limit), numbers(units, limit))))
        assert parse(form(small)) <= parse(form(large))

    @given(data=st.data())
    def test_the_number_stays_below_the_limit_and_above_one_of_its_unit(
        self, form: Format, parse: Parse, units: dict[str, int], limit: int, data: st.DataObject
    ) -> None:
        text = form(data.draw(numbers(units, limit)))
        digits, _, unit = text.partition(" ")
        assert float(digits) < limit
        assert float(digits) >= 1 or units[unit] == 1
        assert len(digits) <= len("1023.99")
        assert len(text) <= len("1023.99 KiB")

    @given(data=st.data())
    def test_a_negative_number_is_the_positive_one_with_a_sign(
        self, form: Format, parse: Parse, units: dict[str, int], limit: int, data: st.DataObject
    ) -> None:
        number = data.draw(numbers(units, limit).filter(bool))
        assert form(-number) == f"-{form(number)}"


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (999, "999"),
        (1000, "1.00 K"),
        (1005, "1.01 K"),
        (999_994, "999.99 K"),
        (999_995, "1.00 M"),
        (4_089_184_256, "4.09 G"),
        (10**33, "1.00e+3 Q"),
        (12.5, "12.50"),
        (0.25, "0.25"),
        (2.5e9, "2.50 G"),
    ],
)
def test_counts_are_exact_below_a_thousand_and_have_two_decimals_above(number: float, text: str) -> None:
    assert format_count(number) == text


def test_bytes_come_in_binary_and_in_decimal_units() -> None:
    assert format_bytes(1023) == "1023 B"
    assert format_bytes(1024 * 1024 - 1) == "1.00 MiB"
    assert format_bytes(1536) == "1.50 KiB"
    assert format_bytes(1500, binary=False) == "1.50 kB"


def test_time_goes_from_nanoseconds_to_hours() -> None:
    assert [format_time(10**power) for power in (2, 5, 8, 11, 12, 14)] == [
        "100 ns",
        "100.00 µs",
        "100.00 ms",
        "100.00 s",
        "16.67 min",
        "27.78 h",
    ]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("4.2G", 4_200_000_000),
        (" 4.2 G ", 4_200_000_000),
        ("7B", 7 * 10**9),
        ("12k", 12_000),
        ("4.1 GMACs", 4_100_000_000),
        ("8.2GFLOPs", 8_200_000_000),
        ("25,557,032", 25_557_032),
        ("1_000", 1000),
        ("1e3", 1000),
        ("0.5", 1),
        ("123456789012345678901234567890", 123456789012345678901234567890),
    ],
)
def test_counts_are_read_as_people_write_them(text: str, number: int) -> None:
    assert parse_count(text) == number


def test_sizes_and_times_are_read_in_every_spelling() -> None:
    assert parse_bytes("512 B") == 512
    assert parse_bytes("0") == 0
    assert parse_bytes("1.5GB") == 1_500_000_000
    assert parse_bytes("4 KiB") == 4096
    assert parse_time("1.5 ms") == parse_time("1500us") == parse_time("1500 µs") == 1_500_000


@pytest.mark.parametrize("text", ["", "x", "1,5", "1.2.3", "--3", "4 2", "1x3x224", "9" * 5000, "1e99999999"])
def test_what_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(OpcostError):
        parse_count(text)


@pytest.mark.parametrize("text", ["24", " 24 ", "1,024", "1.5e3"])
def test_a_size_without_a_unit_is_refused_with_both_that_may_be_meant(text: str) -> None:
    number = text.strip()
    with pytest.raises(OpcostError, match=f"{number} GiB or {number} bytes\\?") as caught:
        parse_bytes(text)
    assert caught.value.hint == f"write {number}GiB, {number}GB or {number}B"
    assert parse_bytes(f"{number}GiB") == parse_bytes(f"{number}B") << 30


def test_an_unclear_unit_is_refused_with_the_ones_that_are_meant() -> None:
    with pytest.raises(UnknownName, match="'GB'"):
        parse_bytes("4G")
    with pytest.raises(UnknownName, match="unit of a count 'm'"):
        parse_count("4.2m")
    with pytest.raises(UnknownName, match="known: h, min, ms, ns, s"):
        parse_time("3")
