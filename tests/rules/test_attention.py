from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opcost.core.graph import TensorSpec
from opcost.rules.contractions import attention
from opcost.rules.registry import Convention, OpView

HALF = Convention(causal="half")
SOFTMAX, SCALE, MASK = 5, 1, 1


def test_attention_counts_scores_and_values(cost: Any) -> None:
    b, h, length, source, e, ev = 2, 4, 6, 9, 8, 5
    result = cost("attention", [(b, h, length, e), (b, h, source, e), (b, h, source, ev)], [(b, h, length, ev)])
    scores = b * h * length * source
    assert result.macs == scores * (e + ev)
    assert result.flops == 2 * result.macs + scores * (SCALE + SOFTMAX)


def test_a_mask_adds_one_operation_per_score(cost: Any) -> None:
    b, h, n, e = 2, 4, 6, 8
    qkv = [(b, h, n, e)] * 3
    plain, masked = cost("attention", qkv, [qkv[0]]), cost("attention", [*qkv, (n, n)], [qkv[0]])
    assert masked.macs == plain.macs
    assert masked.flops - plain.flops == MASK * b * h * n * n


def test_grouped_keys_are_counted_for_every_query_head(cost: Any) -> None:
    b, heads, groups, n, e = 2, 8, 2, 6, 4
    result = cost("attention", [(b, heads, n, e), (b, groups, n, e), (b, groups, n, e)], [(b, heads, n, e)])
    assert result.macs == b * heads * n * n * 2 * e


def test_a_decode_step_meets_the_whole_cache(cost: Any) -> None:
    b, h, cache, e = 1, 4, 100, 16
    result = cost("attention", [(b, h, 1, e), (b, h, cache, e), (b, h, cache, e)], [(b, h, 1, e)])
    assert result.macs == b * h * cache * 2 * e


def test_causal_attention_counts_the_whole_square_by_default(cost: Any) -> None:
    qkv = [(1, 2, 8, 4)] * 3
    assert cost("attention", qkv, [qkv[0]], causal=True) == cost("attention", qkv, [qkv[0]])


def test_the_half_convention_changes_only_causal_attention(cost: Any) -> None:
    qkv = [(1, 2, 8, 4)] * 3
    assert cost("attention", qkv, [qkv[0]], convention=HALF) == cost("attention", qkv, [qkv[0]])


@given(h=st.integers(1, 4), length=st.integers(1, 12), source=st.integers(1, 12), e=st.integers(1, 6))
def test_the_causal_half_counts_the_pairs_that_the_mask_lets_through(h: int, length: int, source: int, e: int) -> None:
    q, k = TensorSpec((h, length, e)), TensorSpec((h, source, e))
    result = attention(OpView("attention", ins=(q, k, k), outs=(q,), attrs={"causal": True}, convention=HALF))
    allowed = sum(1 for i in range(length) for j in range(source) if j <= i)
    assert result.macs == h * allowed * 2 * e
    assert result.flops == 2 * result.macs + h * allowed * (SCALE + SOFTMAX)


def test_heads_that_come_last_are_no_length(cost: Any) -> None:
    b, h, length, source, e = 2, 4, 6, 9, 8
    result = cost(
        "attention", [(b, length, h, e), (b, source, h, e), (b, source, h, e)], [(b, length, h, e)], heads_last=True
    )
    assert result.macs == b * h * length * source * 2 * e


def test_packed_sequences_do_not_meet_each_other(cost: Any) -> None:
    sequences, each, h, e = 3, 5, 2, 4
    packed = (sequences * each, h, e)
    result = cost("attention", [packed] * 3, [packed], heads_last=True, sequences=sequences)
    assert result.macs == sequences * h * each * each * 2 * e


def test_nothing_attends_in_an_empty_sequence(cost: Any) -> None:
    assert cost("attention", [(2, 4, 0, 8), (2, 4, 3, 8), (2, 4, 3, 8)], [(2, 4, 0, 8)]).macs == 0


@pytest.mark.parametrize(("products", "with_e"), [(5, 3), (4, 2)])
def test_the_gradient_has_four_products_and_recomputes_the_scores(cost: Any, products: int, with_e: int) -> None:
    b, h, length, source, e, ev = 2, 4, 6, 9, 8, 5
    q, k, v, y = (b, h, length, e), (b, h, source, e), (b, h, source, ev), (b, h, length, ev)
    result = cost("attention", [y, q, k, v], [q, k, v], grad=True, products=products)
    # dQ and dK (and the scores again) sum over E or keep it, dV and dP have Ev
    assert result.macs == b * h * length * source * (with_e * e + 2 * ev)
    if products == 5:
        assert result == cost("attention", [y, q, k, v], [q, k, v], grad=True)
