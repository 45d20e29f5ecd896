from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opcost.core.graph import BITS, COMPLEX, INTEGER, TensorSpec, UnknownExtent, bits, nbytes
from opcost.errors import OpcostError


def test_the_name_of_a_type_says_its_bits() -> None:
    for name in ("int8", "uint16", "int4", "uint3", "float16", "bfloat16", "float64", "complex64", "qint32", "quint8"):
        digits = int("".join(c for c in name if c.isdigit()))
        assert bits(name) == digits


def test_small_types_are_packed_and_the_last_byte_is_rounded_up() -> None:
    assert [nbytes(n, "int4") for n in (0, 1, 2, 3)] == [0, 1, 1, 2]
    assert nbytes(8, "uint1") == 1
    assert nbytes(9, "uint1") == 2
    assert nbytes(4, "float6_e2m3fn") == 4 * 6 // 8


@given(numel=st.integers(0, 10**15), dtype=st.sampled_from(sorted(BITS)))
def test_bytes_hold_all_bits_and_waste_less_than_one_byte(numel: int, dtype: str) -> None:
    wasted = nbytes(numel, dtype) * 8 - numel * bits(dtype)
    assert 0 <= wasted < 8


def test_an_unknown_type_is_an_error_and_never_four_bytes() -> None:
    with pytest.raises(OpcostError, match="'float3'"):
        nbytes(1, "float3")


def test_families_of_types() -> None:
    assert {"int8", "bool", "qint8", "quint4x2", "uint1"} <= INTEGER
    assert INTEGER.isdisjoint({"float32", "bfloat16", "complex64", "float8_e5m2"})
    assert {"complex32", "complex64", "complex128"} == COMPLEX


def test_a_tensor_counts_its_elements_and_bytes() -> None:
    spec = TensorSpec((2, 3, 5), "float16")
    assert (spec.numel, spec.nbytes, str(spec)) == (2 * 3 * 5, 2 * 2 * 3 * 5, "2x3x5")


def test_a_scalar_has_one_element_and_an_empty_tensor_none() -> None:
    assert (TensorSpec(()).numel, TensorSpec((3, 0)).numel) == (1, 0)
    assert str(TensorSpec(())) == "scalar"


@pytest.mark.parametrize(("shape", "shown"), [((2, None), "2x?"), (None, "?")])
def test_an_extent_that_depends_on_data_cannot_be_counted(shape: tuple[int | None, ...] | None, shown: str) -> None:
    spec = TensorSpec(shape)
    assert not spec.known
    assert str(spec) == shown
    with pytest.raises(UnknownExtent, match="depends on data"):
        _ = spec.numel
