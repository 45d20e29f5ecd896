"""Limits as they are written, and what they say."""

from __future__ import annotations

from fractions import Fraction

import pytest

from opcost.core.limits import parse_condition, parse_limit
from opcost.errors import OpcostError, UnknownName


@pytest.mark.parametrize(
    ("text", "relation", "value", "scale"),
    [
        ("macs>+1%", ">", Fraction(1), "percent"),
        ("macs > +1.5 %", ">", Fraction(3, 2), "percent"),
        ("params<-5%", "<", Fraction(-5), "percent"),
        ("params>=+10M", ">=", Fraction(10_000_000), "change"),
        ("flops <= 4.2G", "<=", Fraction(4_200_000_000), "amount"),
        ("peak-bytes>512MiB", ">", Fraction(512 * 2**20), "amount"),
        ("bytes<-1kB", "<", Fraction(-1000), "change"),
    ],
)
def test_a_condition_has_a_name_a_relation_and_a_number(text: str, relation: str, value: Fraction, scale: str) -> None:
    found = parse_condition(text)
    assert (found.relation, found.value, found.scale) == (relation, value, scale)


def test_a_limit_without_a_relation_is_the_most_that_is_allowed() -> None:
    for limit in ("4.2G", "<=4.2G", 4_200_000_000, 4.2e9):
        found = parse_limit("macs", limit)
        assert found.holds(4_200_000_000)
        assert not found.holds(4_200_000_001)
    assert not parse_limit("macs", "<4.2G").holds(4_200_000_000)


@pytest.mark.parametrize(
    ("text", "before", "after", "holds"),
    [
        ("macs>+1%", 1000, 1010, False),  # exactly one percent is not more than one percent
        ("macs>+1%", 1000, 1011, True),
        ("macs>=+1%", 1000, 1010, True),
        ("macs>+1%", 0, 0, False),
        ("macs>+1%", 0, 1, True),  # something in place of nothing is beyond every percentage
        ("macs<-50%", 10, 4, True),
        ("macs<-50%", 10, 5, False),
        ("params>+5", 10, 15, False),
        ("params>+5", 10, 16, True),
        ("params>15", 0, 16, True),
    ],
)
def test_a_change_is_judged_to_the_last_digit(text: str, before: int, after: int, holds: bool) -> None:
    assert parse_condition(text).holds(after, before) is holds


def test_a_percentage_is_exact_where_a_float_would_round() -> None:
    before = 10**18
    assert not parse_condition("macs>+0.1%").holds(before + 10**15, before)
    assert parse_condition("macs>+0.1%").holds(before + 10**15 + 1, before)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("macs", "is not a condition"),
        ("macs=1", "is not a condition"),
        ("macs>", "is not a limit"),
        ("macs>1%", "has no sign"),
        ("macs>+x%", "not a number of percent"),
        ("macs>+1%%", "is not a limit"),
        ("macs>much", "'much' is not a count"),
        ("peak_bytes>1G", "unit of a size in bytes 'G'"),
        ("peak_bytes>200", "200 GiB or 200 bytes"),
        ("peak_bytes>+10", "10 GiB or 10 bytes"),
        ("macs>+1e400%", "not a number of percent"),
    ],
)
def test_what_is_no_condition_is_refused(text: str, said: str) -> None:
    with pytest.raises(OpcostError, match=said.replace("(", r"\(")):
        parse_condition(text)


def test_a_misspelt_quantity_gets_the_nearest_name() -> None:
    with pytest.raises(UnknownName, match="did you mean 'params'"):
        parse_condition("parms>+1%")
    assert parse_condition("peak memory>1GiB").quantity.name == "peak_bytes"


@pytest.mark.parametrize("limit", [True, None, 4.5, [1], float("nan"), float("inf")])
def test_what_is_no_number_is_no_limit(limit: object) -> None:
    with pytest.raises(OpcostError, match="is not a limit of macs"):
        parse_limit("macs", limit)  # type: ignore[arg-type]


def test_a_change_needs_to_know_what_was_before() -> None:
    with pytest.raises(OpcostError, match="no amount from before"):
        parse_condition("macs>+1%").holds(5)
