"""The language of conditions."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opcost.analysis.part import fields as all_fields
from opcost.analysis.where import DEEPEST, LONGEST, QueryField, compile_where
from opcost.errors import OpcostError

FIELDS = {
    "time": QueryField("time", lambda line: line.get("time")),
    "memory": QueryField("bytes", lambda line: line.get("memory")),
    "count": QueryField("count", lambda line: line.get("count")),
    "share": QueryField("ratio", lambda line: line.get("share")),
    "kind": QueryField("text", lambda line: line.get("kind", "")),
    "kernel": QueryField("text", lambda line: line.get("kernel", ())),
}


def holds(text: str, **line: Any) -> bool:
    return compile_where(text, FIELDS)(line)


def answered_or_refused(text: str) -> bool:
    """Whether a condition gives yes or no, or an error that says something."""
    try:
        return compile_where(text, FIELDS)({"time": 1, "count": 1, "kind": "a"}) in (True, False)
    except OpcostError as fault:
        return bool(fault.message)


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("1ns", 1),
        ("1us", 10**3),
        ("1µs", 10**3),
        ("1.5 ms", 1_500_000),
        ("2s", 2 * 10**9),
        ("1min", 60 * 10**9),
        ("0", 0),
    ],
)
def test_times_have_units(text: str, ns: int) -> None:
    assert holds(f"time == {text}", time=ns)
    assert not holds(f"time > {text}", time=ns)
    assert holds(f"time >= {text}", time=ns)


@pytest.mark.parametrize(
    ("text", "size"), [("4KiB", 4096), ("4 kB", 4000), ("1MiB", 2**20), ("3B", 3), ("2GB/s", 2 * 10**9)]
)
def test_sizes_have_units(text: str, size: int) -> None:
    assert holds(f"memory == {text}", memory=size)


@pytest.mark.parametrize(
    ("text", "number"), [("7", 7), ("2K", 2000), ("1.5G", 15 * 10**8), ("3TFLOPS", 3 * 10**12), ("1e3", 1000)]
)
def test_counts_may_have_units(text: str, number: int) -> None:
    assert holds(f"count == {text}", count=number)


def test_shares_are_percent_or_plain() -> None:
    assert holds("share > 5%", share=0.06)
    assert not holds("share > 5%", share=0.05)
    assert holds("share == 0.5", share=0.5)


@pytest.mark.parametrize("quote", ['"', "'"])
def test_texts_stand_in_quotes(quote: str) -> None:
    assert holds(f"kind == {quote}conv{quote}", kind="conv")
    assert holds(f"kind != {quote}conv{quote}", kind="norm")
    assert holds(f"kind in ({quote}a{quote}, {quote}conv{quote})", kind="conv")
    assert not holds(f"kind in ({quote}a{quote})", kind="conv")


def test_regular_expressions_are_searched() -> None:
    assert holds(r'kind =~ "^co.v\d$"', kind="conv2")
    assert holds('kind !~ "x"', kind="conv")
    assert holds('kernel =~ "gemm"', kernel=("splitk", "sgemm_128"))
    assert not holds('kernel !~ "gemm"', kernel=("splitk", "sgemm_128"))


def test_patterns_cover_the_whole_text() -> None:
    assert holds('kind like "co*"', kind="conv")
    assert not holds('kind like "co"', kind="conv")
    assert holds('kind like "c[ao]n?"', kind="conv")
    assert holds('kind not like "*x*"', kind="conv")
    assert not holds('kernel not like "s*"', kernel=("splitk", "gemm"))


def test_a_list_can_be_refused() -> None:
    assert holds('kind not in ("a", "b")', kind="conv")
    assert not holds('kind not in ("a", "conv")', kind="conv")
    assert holds('not kind in ("a") and not count == 2', kind="conv", count=1)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("time > 1parsec", 7),
        ("count == 1 and colour == 1", 15),
        ("time > 1ms kind", 11),
        ('kind like "a" or time like "b"', 27),
    ],
)
def test_a_mistake_is_pointed_at(text: str, place: int) -> None:
    with pytest.raises(OpcostError) as fault:
        compile_where(text, FIELDS)
    shown, pointer = fault.value.message.splitlines()[1:]
    assert shown.strip() == text
    assert pointer.index("^") - (len(shown) - len(shown.lstrip())) == place


def test_not_binds_tighter_than_and_which_binds_tighter_than_or() -> None:
    line = {"count": 1, "kind": "x"}
    for a in (0, 1):
        for b in (0, 1):
            for c in (0, 1):
                text = f"not count == {2 - a} and count == {2 - b} or count == {2 - c}"
                wanted = (not a and bool(b)) or bool(c)
                assert compile_where(text, FIELDS)(line) == wanted
                text = f"not (count == {2 - a} or count == {2 - b}) and count == {2 - c}"
                assert compile_where(text, FIELDS)(line) == (not (a or b) and bool(c))


def test_comparisons_may_be_chained() -> None:
    assert holds("1us < time <= 2us", time=2000)
    assert not holds("1us < time < 2us", time=2000)


def test_the_word_after_a_number_is_no_unit() -> None:
    assert holds('count == 1 and kind == "a"', count=1, kind="a")
    assert holds('count == 2 or kind == "a"', count=1, kind="a")


def test_what_is_not_known_differs_from_everything() -> None:
    for mark in ("==", "<", "<=", ">", ">="):
        assert not holds(f"time {mark} 1ms", time=None)
    assert holds("time != 1ms", time=None)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "expected a field"),
        ("time", "comparison is missing"),
        ("time >", "expected a field"),
        ("time > 1", "cannot be compared"),
        ("time > 1KiB", "cannot be compared"),
        ('time > "1ms"', "cannot be compared"),
        ("kind == conv", "unknown field 'conv'"),
        ("colour == 1", "unknown field"),
        ("time > 1parsec", "unit 'parsec'"),
        ('kind == "open', "not understood"),
        ("(time > 1ms", "bracket"),
        ("time > 1ms)", "expected and, or"),
        ("time > 1ms kind", "expected and, or"),
        ('kind =~ "("', "regular expression"),
        ('time =~ "1"', "text field"),
        ("kind in 'a'", "list in brackets"),
        ("__import__('os')", "unknown field"),
        ("time > 1ms; count == 1", "not understood"),
        ("count == 1 + 1", "not understood"),
    ],
)
def test_mistakes_are_named(text: str, said: str) -> None:
    with pytest.raises(OpcostError, match=said):
        compile_where(text, FIELDS)


def test_endless_conditions_are_refused() -> None:
    with pytest.raises(OpcostError, match="characters"):
        compile_where("count == 1" + " " * LONGEST, FIELDS)
    with pytest.raises(OpcostError, match="levels"):
        compile_where("(" * (DEEPEST + 1) + "count == 1" + ")" * (DEEPEST + 1), FIELDS)
    deep = DEEPEST - 1
    assert compile_where("(" * deep + "count == 1" + ")" * deep, FIELDS)({"count": 1})


@given(st.text(max_size=60))
def test_any_text_is_a_condition_or_a_clear_error(text: str) -> None:
    assert answered_or_refused(text)


@given(
    st.lists(
        st.sampled_from(
            ["time", "count", ">", "==", "1ms", "1", '"a"', "kind", "and", "or", "not", "(", ")", "in", "like", ","]
        )
    )
)
def test_any_row_of_words_is_a_condition_or_a_clear_error(words: list[str]) -> None:
    assert answered_or_refused(" ".join(words))


def test_all_documented_fields_exist() -> None:
    documented = {
        "time",
        "host",
        "wait",
        "count",
        "name",
        "type",
        "kind",
        "module",
        "kernel",
        "share",
        "rank",
        "step",
        "memory",
    }
    assert documented <= set(all_fields(1.0))
