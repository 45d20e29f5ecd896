from __future__ import annotations

import pytest

from opcost.core.graph import NO_ATTRS, Cost, Memory, Op, TensorSpec
from opcost.core.report import (
    STATS,
    Coverage,
    ModuleCost,
    Parameter,
    Report,
    Row,
    Stats,
    Uncounted,
    stats_of,
)
from opcost.errors import UnknownName

SPEC = TensorSpec((4,))
CONV, NORM = Cost(10, 20, 3, 4), Cost(0, 5, 1, 1)


def row(number: int, kind: str, raw: str, cost: Cost | None, module: str = "", repeat: int = 1) -> Row:
    op = Op(number, kind, raw, (), (), NO_ATTRS, module, repeat)
    return Row(op, (SPEC,), (SPEC,), cost, kind if cost else "", activations=4, activation_bytes=16)


ROWS = (
    row(0, "conv", "lib::conv", CONV, "a"),
    row(1, "norm", "lib::norm", NORM, "a.b"),
    row(2, "conv", "lib::conv_transpose", CONV, "a.b", repeat=3),
    row(3, "unknown", "lib::odd", None, "c"),
)


def module(path: str, kind: str, own: Stats, total: Stats) -> ModuleCost:
    return ModuleCost(path=path, type=kind, depth=path.count(".") + 1 if path else 0, calls=1, own=own, total=total)


OWN = {
    "": Stats(),
    "a": stats_of(ROWS[:1]) + Stats(params=7),
    "a.b": stats_of(ROWS[1:3]),
    "c": stats_of(ROWS[3:]),
}
TOTAL = {
    "": OWN["a"] + OWN["a.b"] + OWN["c"],
    "a": OWN["a"] + OWN["a.b"],
    "a.b": OWN["a.b"],
    "c": OWN["c"],
}
TYPES = {"": "Net", "a": "Block", "a.b": "Block", "c": "Odd"}
WEIGHT = Parameter(names=("a.weight", "c.weight"), spec=TensorSpec((7,)), trainable=True, used=True)
UNUSED = Parameter(names=("c.bias",), spec=TensorSpec((2,)), trainable=True, used=False)
BUFFER = Parameter(names=("c.mean", "c.average"), spec=TensorSpec((2,)), trainable=False, used=False, buffer=True)
REPORT = Report(
    meta={},
    rows=ROWS,
    modules=tuple(module(path, TYPES[path], OWN[path], TOTAL[path]) for path in OWN),
    parameters=(WEIGHT, UNUSED, BUFFER),
    totals=TOTAL[""],
    phases={"forward": TOTAL[""].cost},
    memory=Memory(peak_bytes=0, base_bytes=0, at=0, how="lifetimes"),
    coverage=Coverage(3, (Uncounted("lib::odd", 1, ("c",)),)),
)


def test_stats_add_field_by_field() -> None:
    ones, twos = Stats(**dict.fromkeys(STATS, 1)), Stats(**dict.fromkeys(STATS, 2))
    assert ones + ones == twos
    assert ones + Stats() == ones


def test_a_sum_of_rows_repeats_what_is_repeated_and_counts_what_has_no_cost() -> None:
    assert stats_of(ROWS) == Stats(
        macs=CONV.macs * (1 + 3),
        flops=CONV.flops * (1 + 3) + NORM.flops,
        bytes_read=CONV.bytes_read * (1 + 3) + NORM.bytes_read,
        bytes_written=CONV.bytes_written * (1 + 3) + NORM.bytes_written,
        activations=4 * (1 + 1 + 3 + 1),
        activation_bytes=16 * (1 + 1 + 3 + 1),
        ops=4,
        uncounted=1,
    )


def test_the_cost_part_of_a_sum() -> None:
    assert stats_of(ROWS).cost == CONV + NORM + CONV * 3


def test_rows_are_grouped_by_kind_the_costliest_first() -> None:
    groups = REPORT.by_kind()
    assert [(group.key, group.count) for group in groups] == [("conv", 2), ("norm", 1), ("unknown", 1)]
    assert groups[0].stats.macs == CONV.macs * (1 + 3)


def test_rows_are_grouped_by_the_frameworks_word() -> None:
    assert [group.key for group in REPORT.by_operator()] == [
        "lib::conv_transpose",
        "lib::conv",
        "lib::norm",
        "lib::odd",
    ]


def test_rows_are_grouped_by_any_key() -> None:
    assert {group.key: group.count for group in REPORT.group(lambda r: r.op.module)} == {"a": 1, "a.b": 2, "c": 1}


def test_module_classes_are_summed_with_their_parameters() -> None:
    block = next(group for group in REPORT.by_type() if group.key == "Block")
    assert (block.stats, block.count) == (OWN["a"] + OWN["a.b"], 2)


def test_a_module_is_found_by_its_path() -> None:
    assert REPORT.module("a.b").total == OWN["a.b"]
    assert (REPORT.module("a.b").name, REPORT.module("a.b").parent) == ("b", "a")
    assert (REPORT.module("a").parent, REPORT.module("").parent) == ("", None)


def test_a_misspelt_module_gets_a_suggestion() -> None:
    with pytest.raises(UnknownName, match=r"unknown module 'a\.bb'; did you mean 'a\.b'"):
        REPORT.module("a.bb")


def test_children_are_the_modules_directly_below() -> None:
    assert [m.path for m in REPORT.children()] == ["a", "c"]
    assert [m.path for m in REPORT.children("a")] == ["a.b"]
    assert REPORT.children("c") == ()


def test_a_cut_module_keeps_what_lies_below_it() -> None:
    assert REPORT.by_module() == REPORT.modules
    cut = REPORT.by_module(depth=1)
    assert [m.path for m in cut] == ["", "a", "c"]
    assert [m.own for m in cut] == [Stats(), TOTAL["a"], TOTAL["c"]]


def test_shared_and_unused_parameters_are_found_and_buffers_are_neither() -> None:
    assert REPORT.shared == (WEIGHT,)
    assert REPORT.unused == (UNUSED,)
    assert WEIGHT.name == "a.weight"


def test_a_report_iterates_over_its_rows() -> None:
    assert tuple(REPORT) == ROWS


def test_coverage_is_complete_without_uncounted_operators() -> None:
    assert not REPORT.coverage.complete
    assert Coverage(3).complete
