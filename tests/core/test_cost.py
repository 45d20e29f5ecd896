from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opcost.core.graph import ZERO, Cost

NUMBER = st.integers(0, 10**30)
COSTS = st.builds(Cost, NUMBER, NUMBER, NUMBER, NUMBER)
TIMES = st.integers(0, 1000)


@given(COSTS, COSTS, COSTS)
def test_costs_add_in_any_order_and_grouping(a: Cost, b: Cost, c: Cost) -> None:
    assert a + b == b + a
    assert (a + b) + c == a + (b + c)
    assert a + ZERO == a


@given(COSTS, COSTS, TIMES, TIMES)
def test_repetition_is_repeated_addition(a: Cost, b: Cost, m: int, n: int) -> None:
    assert a * 0 == ZERO
    assert a * 1 == a
    assert a * (m + n) == a * m + a * n
    assert (a + b) * n == a * n + b * n
    assert a * m * n == a * (m * n)


def test_a_cost_is_immutable() -> None:
    cost = Cost(macs=1)
    with pytest.raises(FrozenInstanceError):
        cost.macs = 2  # type: ignore[misc]
    assert hash(cost) == hash(Cost(macs=1))
