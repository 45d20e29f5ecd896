"""What ranks send each other, in every format: a table beside the modules, a total, and a listing of its own."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace

import pytest

import opcost
from opcost.analysis.costing import cost_graph
from opcost.core import schema
from opcost.core.graph import Attrs, Graph, Module, Op, Phase, TensorSpec, Value
from opcost.core.report import Report
from opcost.core.units import short_bytes
from opcost.errors import BudgetExceeded
from opcost.rules import add
from opcost.rules.registry import Rules
from opcost.views.html.reports import report_page
from opcost.views.view import ViewOptions

SHARDS, PARTS = 8, 4
WEIGHTS, ACTIVATIONS = 1 << 20, 1 << 16  # elements
LAYERS = 3
GATHERED = LAYERS * WEIGHTS * 2 * (SHARDS - 1) // SHARDS  # bfloat16
SCATTERED = LAYERS * WEIGHTS * 4 * (SHARDS - 1) // SHARDS  # float32
SUMMED = LAYERS * 2 * ACTIVATIONS * 2 * (PARTS - 1) // PARTS  # bfloat16
SENT = GATHERED + SCATTERED + SUMMED


def graph(*calls: tuple[str, int, int, Attrs, str, Phase]) -> Graph:
    """Calls of collectives, each of a tensor of this many elements into one of that many, `LAYERS` times."""
    values: list[Value] = []
    ops: list[Op] = []
    for number, (fn, before, after, attrs, dtype, phase) in enumerate(calls):
        x, y = 2 * number, 2 * number + 1
        values += [
            Value(x, f"x{number}", TensorSpec((before,), dtype), "input", x),
            Value(y, "", TensorSpec((after,), dtype), "activation", y),
        ]
        ops.append(Op(number, "collective", f"c10d::{fn}", (x,), (y,), {"fn": fn, **attrs}, "", LAYERS, phase))
    return Graph(
        source="net", framework="none", values=values, ops=ops, modules=(Module(path="", type="Net", calls=1),)
    )


@pytest.fixture(scope="module")
def sharded() -> Report:
    fsdp, tp = {"group": SHARDS, "axis": "fsdp"}, {"group": PARTS, "axis": "tp"}
    return cost_graph(
        graph(
            ("all_gather", WEIGHTS // SHARDS, WEIGHTS, fsdp, "bfloat16", "forward"),
            ("all_reduce", ACTIVATIONS, ACTIVATIONS, tp, "bfloat16", "forward"),
            ("reduce_scatter", WEIGHTS, WEIGHTS // SHARDS, fsdp, "float32", "backward"),
        ),
        add(Rules()),
    )


@pytest.fixture(scope="module")
def alone() -> Report:
    return cost_graph(graph(("wait", 4, 4, {}, "float32", "forward")), add(Rules()))


@pytest.mark.parametrize("width", [80, 200])
def test_the_table_is_below_the_modules_and_a_total_below_it(sharded: Report, width: int) -> None:
    lines = sharded.render("table", width=width).splitlines()
    assert max(map(len, lines)) <= width
    begin = lines.index("collectives")
    assert lines[begin + 1].split()[:4] == ["collective", "axis", "phase", "ranks"]
    found = [line.split()[:2] for line in lines[begin + 3 : begin + 6]]
    assert found == [["reduce_scatter", "fsdp"], ["all_gather", "fsdp"], ["all_reduce", "tp"]]
    (total,) = [line for line in lines[begin:] if line.startswith("on the wire")]
    assert f"{SENT:,}" in total


def test_the_listing_has_every_column_and_adds_up(sharded: Report) -> None:
    rows = list(csv.DictReader(io.StringIO(sharded.render("csv", by="collective"))))
    assert rows[0] == {
        "collective": "reduce_scatter", "axis": "fsdp", "phase": "backward", "ranks": str(SHARDS), "dtype": "float32",
        "calls": str(LAYERS), "payload_bytes": str(LAYERS * WEIGHTS * 4), "wire_bytes": str(SCATTERED),
        "tree_bytes": str(SCATTERED), "overlap_flops": "0", "uncounted": "0",
    }  # fmt: skip
    assert [int(row["wire_bytes"]) for row in rows] == [SCATTERED, GATHERED, SUMMED]
    assert sharded.wire_bytes == SENT
    columns = sharded.to_dict(by="collective", columns="axis,calls")
    assert columns == {"axis": ["fsdp", "fsdp", "tp"], "calls": [LAYERS] * 3}
    text = sharded.render("table", by="collective", sort="+wire_bytes", width=100)
    assert text.index("all_reduce") < text.index("all_gather") < text.index("reduce_scatter")
    assert "collectives\n" not in text  # not once more


def test_what_may_run_beside_collectives_is_shown_and_not_added_up() -> None:
    """A gather of parameters beside a product that does not read them."""
    net = graph(("all_gather", 4, 32, {"group": 8, "axis": "fsdp"}, "float32", "forward"))
    values = [*net.values]
    values += [Value(at, "", TensorSpec((16, 16)), "input" if at < 4 else "activation", at) for at in (2, 3, 4)]
    values.append(Value(5, "", TensorSpec((16, 16)), "activation", 5))
    product = Op(1, "matmul", "aten::mm", (2, 3), (4,), {"depth": 16}, "", 1)
    reader = Op(2, "elementwise", "aten::relu", (1,), (5,), {"fn": "relu"}, "", 1)
    values = [value._replace(role="param") if value.id == 0 else value for value in values]
    report = cost_graph(replace(net, values=values, ops=[net.ops[0], product, reader], inputs=(2, 3)), add(Rules()))
    (found,) = report.collectives
    assert found.overlap_flops == 2 * 16**3
    lines = report.render("table", by="collective", width=160).splitlines()
    header = next(line for line in lines if "FLOPs beside" in line)
    total = next(line for line in lines if line.startswith("total"))
    assert total[header.index("FLOPs beside") :].split() == []
    assert json.loads(report.render("json"))["collectives"][0]["overlap_flops"] == 2 * 16**3
    assert "FLOPs beside" in report.render("md")


def test_formats_for_people_have_the_table(sharded: Report) -> None:
    assert "**collectives**" in sharded.render("md")
    assert "collectives" in sharded.render("latex")
    assert "collectives" in sharded.render("notebook")


def test_the_page_has_the_total_in_its_heading_and_the_table(sharded: Report, alone: Report) -> None:
    page = report_page(sharded, ViewOptions())
    (sent,) = [total for total in page["totals"] if total["label"] == "on the wire"]
    assert (sent["value"], sent["unit"], sent["large"]) == (SENT, "bytes", True)
    (table,) = page["tables"]
    assert (table["title"], table["count"], table["roles"]) == ("collectives", 4, [[3, "total"]])
    assert report_page(alone, ViewOptions())["tables"] == []


def test_a_saved_report_has_them_and_is_read_back(sharded: Report) -> None:
    text = sharded.render("json")
    saved = json.loads(text)["collectives"]
    assert [line["wire_bytes"] for line in saved] == [SCATTERED, GATHERED, SUMMED]
    assert saved[2] == {
        "collective": "all_reduce", "axis": "tp", "phase": "forward", "ranks": PARTS, "dtype": "bfloat16", "calls": LAYERS,
        "payload_bytes": LAYERS * ACTIVATIONS * 2, "wire_bytes": SUMMED, "tree_bytes": LAYERS * 2 * ACTIVATIONS * 2,
        "overlap_flops": 0, "uncounted": 0,
    }  # fmt: skip
    assert schema.loads(text).collectives == sharded.collectives


def test_a_model_on_one_rank_says_nothing_of_it(alone: Report) -> None:
    assert alone.collectives == ()
    assert "collectives" not in json.loads(alone.render("json"))
    text = alone.render("table")
    assert "on the wire" not in text
    assert "collectives" not in text


def test_the_answer_says_how_much_is_sent(sharded: Report, alone: Report) -> None:
    assert f"{short_bytes(SENT)} on the wire" in sharded.answer
    assert "on the wire" not in alone.answer


def test_layouts_are_compared_and_limited_by_what_they_send(sharded: Report, alone: Report) -> None:
    compared = opcost.compare(alone, sharded)
    (sent,) = [entry for entry in compared.of_part("total") if entry.quantity.name == "wire_bytes"]
    assert sent.amounts == (0, SENT)
    assert opcost.compare(alone, sharded, changes=True).render("table", width=120).count("on the wire") == 1
    assert "on the wire" not in opcost.compare(alone, alone).render("table", width=120)
    assert opcost.check(sharded, wire_bytes=f"<={SENT}B")
    with pytest.raises(BudgetExceeded, match="on the wire"):
        opcost.check(sharded, wire_bytes=f"<{SENT}B")
