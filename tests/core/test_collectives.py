"""Collectives are added up by type, axis, phase, ranks and element type."""

from __future__ import annotations

from typing import Any

import pytest

from opcost.core.collectives import CollectiveCost, collectives_of
from opcost.core.graph import Cost, Op, Phase, TensorSpec
from opcost.core.report import Row
from opcost.rules import add
from opcost.rules.registry import OpView, Rules

N, G, FLOAT = 24, 4, 4
WHOLE, PART = (N * G,), (N,)


def row(
    fn: str, ins: tuple[int | None, ...], outs: tuple[int | None, ...], *, axis: str | None = "fsdp", dtype: str = "float32",
    phase: Phase = "forward", repeat: int = 1, group: int | None = G,
) -> Row:  # fmt: skip
    attrs: dict[str, Any] = {"fn": fn, "group": group, "axis": axis}
    attrs = {name: value for name, value in attrs.items() if value is not None}
    specs = (TensorSpec(ins, dtype),), (TensorSpec(outs, dtype),)
    op = Op(0, "collective", f"c10d::{fn}", (), (), attrs, "", repeat, phase)
    known = all(spec.known for side in specs for spec in side)
    return Row(op, *specs, RULE(OpView("collective", op.raw, *specs, attrs)) if known else None, "collective")


RULE = add(Rules())["collective"]


def test_the_larger_side_is_the_payload_and_the_ring_passes_on_the_others_parts() -> None:
    gathered, scattered = collectives_of([row("all_gather", PART, WHOLE), row("reduce_scatter", WHOLE, PART)])
    for found in (gathered, scattered):
        assert (found.calls, found.payload_bytes, found.wire_bytes) == (1, N * G * FLOAT, N * (G - 1) * FLOAT)
        assert found.tree_bytes == found.wire_bytes  # only sums for all use trees
    assert (gathered.collective, scattered.collective) == ("all_gather", "reduce_scatter")


def test_trees_send_a_sum_up_and_down_whole() -> None:
    (found,) = collectives_of([row("all_reduce", WHOLE, WHOLE)])
    size = N * G * FLOAT
    assert (found.payload_bytes, found.wire_bytes, found.tree_bytes) == (size, 2 * size * (G - 1) // G, 2 * size)
    (alone,) = collectives_of([row("all_reduce", WHOLE, WHOLE, group=1)])
    assert (alone.payload_bytes, alone.wire_bytes, alone.tree_bytes) == (size, 0, 0)


def test_what_one_rank_sends_another_receives() -> None:
    sent, received = collectives_of([row("send", PART, PART, axis="pp"), row("recv", PART, PART, axis="pp")])
    assert (sent.payload_bytes, sent.wire_bytes) == (N * FLOAT, N * FLOAT)
    assert (received.payload_bytes, received.wire_bytes) == (N * FLOAT, 0)


def test_repetitions_are_calls_and_what_waits_or_never_runs_is_none() -> None:
    rows = [row("all_gather", PART, WHOLE, repeat=3), row("all_gather", PART, WHOLE), row("wait", WHOLE, WHOLE)]
    (found,) = collectives_of([*rows, row("broadcast", PART, PART, repeat=0)])
    assert (found.calls, found.payload_bytes, found.wire_bytes) == (4, 4 * N * G * FLOAT, 4 * N * (G - 1) * FLOAT)


@pytest.mark.parametrize(
    "other",
    [{"axis": "tp"}, {"axis": None}, {"phase": "backward"}, {"dtype": "bfloat16"}, {"group": 2}, {"group": None}],
)
def test_what_differs_is_apart(other: dict[str, Any]) -> None:
    first, second = row("all_reduce", WHOLE, WHOLE), row("all_reduce", WHOLE, WHOLE, **other)
    found = collectives_of([first, second, first])
    assert sorted(line.calls for line in found) == [1, 2]


def test_the_lines_that_send_most_are_first() -> None:
    found = collectives_of(
        [row("broadcast", PART, PART), row("all_reduce", WHOLE, WHOLE), row("all_gather", PART, WHOLE)]
    )
    assert [line.collective for line in found] == ["all_reduce", "all_gather", "broadcast"]


def test_shapes_that_depend_on_data_are_counted_as_unknown() -> None:
    (found,) = collectives_of([row("all_to_all", (None,), PART), row("all_to_all", PART, PART)])
    assert (found.calls, found.uncounted, found.payload_bytes) == (2, 1, N * FLOAT)


def test_other_operators_are_none() -> None:
    other = Row(
        Op(0, "copy", "aten::copy", (), (), {}), (TensorSpec(PART),), (TensorSpec(PART),), Cost(0, 0, 1, 1), "copy"
    )
    assert collectives_of([other]) == ()


def test_a_line_shows_itself_in_short() -> None:
    (found,) = collectives_of([row("all_gather", PART, WHOLE)])
    assert isinstance(found, CollectiveCost)
    assert repr(found) == "<CollectiveCost all_gather: fsdp 4, forward, float32, 1 call, 288 B sent>"
