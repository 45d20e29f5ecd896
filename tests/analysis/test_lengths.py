"""Sums over many steps from a few: exact where rows lie on lines, split where they do not."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from opcost.analysis.prediction.lengths import MOST, StepRange, pieces
from opcost.core.graph import Cost, Memory, Op, TensorSpec
from opcost.core.report import Coverage, Report, Row, Stats
from opcost.errors import OpcostError

NO_MEMORY = Memory(peak_bytes=0, base_bytes=0, at=0, how="last reader")


def step(tokens: int, seen: Callable[[int], int] = lambda tokens: tokens) -> Report:
    """A product of one row and the keys that a step sees, of eight features each."""
    keys = seen(tokens) + 1
    ins, out = (TensorSpec((1, 8)), TensorSpec((8, keys))), TensorSpec((1, keys))
    macs = 8 * keys
    op = Op(0, "matmul", "aten::mm", (0, 1), (2,), {"depth": 8})
    row = Row(op, ins, (out,), Cost(macs, 2 * macs, 4 * 8 * keys, 4 * keys), "")
    return Report(
        meta={},
        rows=(row,),
        modules=(),
        parameters=(),
        totals=Stats(),
        phases={},
        memory=NO_MEMORY,
        coverage=Coverage(1),
    )


def summed(found: list[StepRange]) -> int:
    """MACs of all steps, from the samples of each piece."""
    total = 0
    for piece in found:
        for tokens, twice in piece.samples(5):
            cost = piece.at(tokens).rows[0].cost
            assert cost
            total += twice * cost.macs
    assert total % 2 == 0
    return total // 2


@pytest.mark.parametrize("last", [10, 11, 12, 13, 400, 501])
def test_steps_on_a_line_are_counted_three_times_and_add_up_exactly(last: int) -> None:
    counted: list[int] = []

    def count(tokens: int) -> Report:
        counted.append(tokens)
        return step(tokens)

    found = pieces(count, 10, last)
    assert sum(piece.steps for piece in found) == last - 9
    assert summed(found) == sum(8 * (tokens + 1) for tokens in range(10, last + 1))
    assert len(counted) <= 3
    assert all(piece.steps == 1 or piece.steps % 2 for piece in found)


@pytest.mark.parametrize("edges", [(), (64,), (63, 64, 65)])
def test_where_a_window_is_full_steps_are_split(edges: tuple[int, ...]) -> None:
    counted: list[int] = []

    def count(tokens: int) -> Report:
        counted.append(tokens)
        return step(tokens, lambda tokens: min(tokens, 64))

    found = pieces(count, 10, 209, edges)
    assert summed(found) == sum(8 * (min(tokens, 64) + 1) for tokens in range(10, 210))
    assert len(counted) <= (30 if not edges else 8)


def test_steps_between_are_interpolated_row_by_row() -> None:
    (piece,) = pieces(step, 10, 20)
    assert piece.at(13).rows == step(13).rows
    assert not piece.holds(13, step(14))


def test_other_operators_at_the_other_end_are_not_on_a_line() -> None:
    def count(tokens: int) -> Report:
        report = step(tokens)
        if tokens < 100:
            return report
        (row,) = report.rows
        object.__setattr__(report, "rows", (row._replace(op=row.op._replace(raw="aten::bmm")),))
        return report

    found = pieces(count, 10, 150)
    assert {piece.first for piece in found} >= {10, 100}
    assert summed(found) == sum(8 * (tokens + 1) for tokens in range(10, 151))


def test_what_follows_no_formula_is_refused() -> None:
    counted: list[int] = []

    def count(tokens: int) -> Report:
        counted.append(tokens)
        return step(tokens, lambda tokens: tokens * tokens % 97)

    with pytest.raises(OpcostError, match=f"{MOST} of them were counted"):
        pieces(count, 10, 5000)
    assert len(counted) == MOST == 120


@pytest.mark.parametrize(
    ("last", "most", "expected"),
    [
        # between two places a and b lie (b - a + 1) / 2 of the one and (b - a - 1) / 2 of the other; the last counts itself
        (18, 2, ((10, 9), (18, 7 + 2))), (18, 3, ((10, 5), (14, 3 + 5), (18, 3 + 2))), (10, 3, ((10, 2),)),
        (12, 9, ((10, 2), (11, 0 + 2), (12, 0 + 2))), (17, 3, ((10, 4), (13, 2 + 5), (17, 3 + 2))),
    ],
)  # fmt: skip
def test_samples_weigh_what_they_stand_for(last: int, most: int, expected: tuple[tuple[int, int], ...]) -> None:
    assert StepRange(10, last, step(10), step(last)).samples(most) == expected
    assert sum(weight for _, weight in expected) == 2 * (last - 9)


def changed(report: Report, **what: Any) -> Report:
    (row,) = report.rows
    op = {name: what[name] for name in ("raw", "kind", "module", "repeat", "attrs") if name in what}
    rows = {name: what[name] for name in ("ins", "outs", "cost") if name in what}
    return replace(report, rows=(row._replace(op=row.op._replace(**op), **rows),))


@pytest.mark.parametrize(
    "what",
    [
        {"raw": "aten::bmm"}, {"kind": "elementwise", "cost": None}, {"module": "m", "cost": None}, {"repeat": 2, "cost": None},
        *({"attrs": {"depth": value}} for value in ("8", None, 8.5, True)), {"attrs": {}},
        {"ins": (TensorSpec((1, 8)),)}, {"outs": ()}, {"outs": (TensorSpec((1, 11), "int64"),)}, {"outs": (TensorSpec((1, 1,
            11)),)},
        {"outs": (TensorSpec(None),)}, {"outs": (TensorSpec((1, 12)),)},
    ],
)  # fmt: skip
def test_what_is_not_on_a_line_is_not_interpolated(what: dict[str, Any]) -> None:
    """Of ends at 10 and 14: an extent of 12 at the end has no whole number at 11."""
    same = step(10)
    for low, high in ((same, changed(same, **what)), (changed(same, **what), same)):
        with pytest.raises(OpcostError, match="not between those of 10 and 14"):
            StepRange(10, 14, low, high).at(11)


def test_rows_between_have_all_their_numbers_between() -> None:
    low, high = changed(step(10), attrs={"depth": 8, "length": 3}), changed(step(14), attrs={"depth": 8, "length": 11})
    (row,) = StepRange(10, 14, low, high).at(11).rows
    assert row.op.attrs == {"depth": 8, "length": 5}
    assert (row.ins, row.outs, row.cost) == (step(11).rows[0].ins, step(11).rows[0].outs, step(11).rows[0].cost)
    (row,) = StepRange(10, 14, low, changed(high, cost=None)).at(11).rows
    assert row.cost is None
    assert StepRange(10, 10, low, low).at(10).rows == low.rows
