"""Inputs written as text."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opcost.core.graph import BITS
from opcost.errors import InputError, OpcostError, UnknownName
from opcost.frontends.inputs import ALIASES, InputSpec, parse_dtype, parse_input


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1x3x224x224", InputSpec((1, 3, 224, 224))),
        ("5", InputSpec((5,))),
        ("0x4", InputSpec((0, 4))),
        ("x:1x3", InputSpec((1, 3), "x")),
        ("1x128:int64", InputSpec((1, 128), "", "int64")),
        ("input_ids:1x128:int64", InputSpec((1, 128), "input_ids", "int64")),
        ("1x3:bf16", InputSpec((1, 3), "", "bfloat16")),
        ("scalar", InputSpec(())),
        ("t:scalar:int64", InputSpec((), "t", "int64")),
        ("1,3,8", InputSpec((1, 3, 8))),
    ],
)
def test_an_input_is_a_shape_with_an_optional_name_and_type(text: str, expected: InputSpec) -> None:
    assert parse_input(text) == expected


@pytest.mark.parametrize(
    "text", ["", ":", "x", "1x", "x1", "1x-3", "1x2.5", "a:b:1x3", "1x3:int64:x", "9a:1x3", "1x3x:f32"]
)
def test_anything_else_is_refused_with_the_grammar(text: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_input(text)
    assert "1x3x224x224" in caught.value.hint


@given(
    st.lists(st.integers(0, 10**6), min_size=1, max_size=6),
    st.sampled_from(["", "x", "input_ids"]),
    st.sampled_from(["", *BITS]),
)
def test_what_is_written_in_the_grammar_is_read_back(shape: list[int], name: str, dtype: str) -> None:
    text = ":".join(part for part in (name, "x".join(map(str, shape)), dtype) if part)
    assert parse_input(text) == InputSpec(tuple(shape), name, dtype)


@given(st.text(max_size=20))
def test_no_text_raises_anything_but_our_errors(text: str) -> None:
    with contextlib.suppress(OpcostError):
        parse_input(text)


def test_every_short_name_of_a_type_is_a_known_type() -> None:
    assert {parse_dtype(short) for short in ALIASES} <= set(BITS)


def test_a_misspelt_type_is_answered_with_the_nearest() -> None:
    with pytest.raises(UnknownName) as caught:
        parse_input("1x3:flaot16")
    assert "float16" in caught.value.near
