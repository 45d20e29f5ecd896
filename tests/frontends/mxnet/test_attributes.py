"""Attributes as all versions of MXNet, and all Pythons that called it, have written them."""

from __future__ import annotations

import pytest

from opcost.errors import SourceError
from opcost.frontends.mxnet.symbol import Attributes


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("(3, 3)", (3, 3)), ("(3,3)", (3, 3)), ("[3,3]", (3, 3)), ("(3L, 3L)", (3, 3)), ("(3,)", (3,)), ("3", (3,)),
        ("-1", (-1,)), ("()", ()), ("[]", ()), (" (1, -2) ", (1, -2)), ("(2.0, 1.0)", (2, 1)),
    ],
)  # fmt: skip
def test_tuples(text: str, value: tuple[int, ...]) -> None:
    assert Attributes({"kernel": text}).integers("kernel") == value


def test_members_of_a_slice_may_be_none() -> None:
    assert Attributes({"begin": "(None, 1, None)"}).items("begin") == (None, 1, None)
    with pytest.raises(SourceError, match="not a tuple of whole numbers"):
        Attributes({"kernel": "(None, 1)"}).integers("kernel")


@pytest.mark.parametrize(
    ("text", "value"), [("True", True), ("true", True), ("1", True), ("False", False), ("0", False)]
)
def test_truth_values(text: str, value: bool) -> None:
    assert Attributes({"no_bias": text}).flag("no_bias") is value


@pytest.mark.parametrize("text", ["maybe", "", "2"])
def test_what_is_no_truth_value_is_refused(text: str) -> None:
    with pytest.raises(SourceError, match="neither true nor false"):
        Attributes({"no_bias": text}).flag("no_bias")


@pytest.mark.parametrize(("text", "value"), [("7", 7), ("7L", 7), ("-3", -3), ("8.0", 8), ("True", 1), ("1e3", 1000)])
def test_whole_numbers(text: str, value: int) -> None:
    assert Attributes({"num_filter": text}).integer("num_filter") == value


@pytest.mark.parametrize("text", ["x", "", "1.5", "nan", "inf", "1" * 30, "(3,)", "0x10"])
def test_what_is_no_whole_number_is_refused(text: str) -> None:
    with pytest.raises(SourceError, match="num_filter"):
        Attributes({"num_filter": text}).integer("num_filter")


def test_an_absent_attribute_is_its_default_and_none_is_absent() -> None:
    attrs = Attributes({"axis": "None"})
    assert attrs.integer("axis", 1) == 1
    assert attrs.maybe_integer("axis") is None
    assert attrs.text("layout", "NCHW") == "NCHW"
    assert attrs.flag("no_bias", default=True)
    with pytest.raises(SourceError, match="'kernel' is missing"):
        attrs.integers("kernel")


@pytest.mark.parametrize(
    ("text", "value"), [("float16", "float16"), ("0", "float32"), ("12", "bfloat16"), ("-1", "int8")]
)
def test_element_types_by_name_and_by_code(text: str, value: str) -> None:
    assert Attributes({"dtype": text}).dtype("dtype", "int8") == value


def test_an_element_type_that_mxnet_does_not_have_is_refused() -> None:
    with pytest.raises(SourceError, match="not an element type"):
        Attributes({"dtype": "float12"}).dtype()


def test_a_list_longer_than_any_operators_is_refused() -> None:
    with pytest.raises(SourceError, match="more than any operator takes"):
        Attributes({"shape": ",".join(["1"] * 5000)}).integers("shape")
