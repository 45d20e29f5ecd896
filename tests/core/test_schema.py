from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sampling import FULL

from opcost.analysis.costing import cost_graph
from opcost.core.graph import NO_ATTRS, Attrs, Graph, Module, ModuleCall, Note, Op, TensorSpec, Value
from opcost.core.report import Report
from opcost.core.schema import SCHEMA, dumps, from_dict, load, loads, to_dict
from opcost.errors import SourceError
from opcost.rules.registry import Rules

X, W = TensorSpec((2, 3)), TensorSpec((3, 3), "float16")


def rules() -> Rules:
    found = Rules()
    found.add("matmul", lambda op: op.cost(macs=18, flops=1))
    return found


def small_report(native: tuple[Attrs, ...] = (NO_ATTRS,), notes: tuple[Note, ...] = ()) -> Report:
    """A chain of matrix products, one for each mapping of the framework's own parameters, with an unknown operator at the end."""
    values = [Value(0, "x", X, "input", 0), Value(1, "w", W, "param", 1, trainable=True)]
    ops = []
    for number, own in enumerate(native):
        values.append(Value(number + 2, "", X, "activation", number + 2))
        ops.append(
            Op(
                number,
                "matmul",
                "test::mm",
                (number and number + 1, 1),
                (number + 2,),
                {"depth": 3},
                "fc",
                2,
                native=own,
            )
        )
    last = len(values)
    values.append(Value(last, "", TensorSpec((None, 3)), "activation", last))
    ops.append(Op(len(ops), "unknown", "test::what", (last - 1,), (last,), {}, "", 1, "backward"))
    graph = Graph(
        source="test",
        framework="none",
        values=tuple(values),
        ops=tuple(ops),
        modules=(
            Module(path="", type="Net", calls=1, inputs=(X,)),
            Module(
                path="fc", type="Linear", calls=2, extra="3, 3", parameters=(("weight", 1),), inputs=(X,), outputs=(X,)
            ),
            Module(path="again", type="Linear", same_as="fc", parameters=(("weight", 1),)),
        ),
        calls=(ModuleCall("", (X,), (X,), 0, len(ops)), ModuleCall("fc", (X,), (X,), 0, 1)),
        inputs=(0,),
        outputs=(last,),
        notes=notes,
        meta={"mode": "eval"},
    )
    return cost_graph(graph, rules())


ATTRS = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3).map(tuple),
    max_leaves=6,
)


@given(
    native=st.lists(st.dictionaries(st.text(max_size=5), ATTRS, max_size=3), min_size=1, max_size=5),
    notes=st.lists(st.builds(Note, st.text(max_size=5), st.text(max_size=20), st.text(max_size=5)), max_size=2),
)
def test_reading_what_was_written_is_the_identity(native: list[Attrs], notes: list[Note]) -> None:
    report = small_report(tuple(native), tuple(notes))
    again = loads(dumps(report))
    assert again == report
    read, expected = (
        [(repr(dict(row.op.native)), repr(dict(row.op.attrs))) for row in each.rows] for each in (again, report)
    )
    assert read == expected  # 1, 1.0 and True are equal, but must come back as what they were
    assert dumps(again) == dumps(report)


def test_attributes_that_are_equal_but_not_the_same_stay_apart() -> None:
    report = loads(dumps(small_report(({"a": 1}, {"a": 1.0}, {"a": True}))))
    assert [type(row.op.native["a"]) for row in report.rows if row.op.native] == [int, float, bool]


def test_equal_operators_share_one_mapping_of_attributes_after_reading() -> None:
    report = loads(dumps(small_report(tuple({"mode": 3} for _ in range(5)))))
    for name in ("attrs", "native"):
        assert len({id(getattr(row.op, name)) for row in report.rows if row.op.kind == "matmul"}) == 1


def test_a_file_from_before_a_framework_had_a_place_for_its_own_parameters_is_read() -> None:
    data = json.loads(dumps(small_report()))
    data["operators"][0]["attrs"]["mode"] = "CROSS"
    op = from_dict(data).rows[0].op
    assert (op.attrs, op.native, op.all_attrs) == ({"depth": 3, "mode": "CROSS"}, {}, {"depth": 3, "mode": "CROSS"})


def test_a_row_that_repeats_an_operator_takes_only_its_own_numbers() -> None:
    def size(rows: int) -> int:
        return len(dumps(small_report(({"what": "x" * 200},) * rows)))

    per_row = (size(3000) - size(1000)) / 2000
    assert per_row < 40  # an identifier of up to four digits seven times, with brackets and commas


def test_a_saved_file_is_read_back(tmp_path: Path) -> None:
    report = small_report()
    path = tmp_path / "report.json"
    report.save(str(path))
    assert load(path) == load(str(path)) == report


def test_a_missing_or_unreadable_file_is_a_source_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"nothing\.json"):
        load(tmp_path / "nothing.json")
    with pytest.raises(SourceError):
        load(tmp_path)
    binary = tmp_path / "binary.json"
    binary.write_bytes(b"\x80\x81\x00")
    with pytest.raises(SourceError, match=r"binary\.json"):
        load(binary)
    binary.write_text("{}")
    with pytest.raises(SourceError, match=r"binary\.json.*schema"):
        load(binary)


def test_an_unknown_version_is_named() -> None:
    data = to_dict(small_report())
    assert data["schema"] == SCHEMA == "opcost.report/1"
    data["schema"] = "opcost.report/2"
    with pytest.raises(SourceError, match=r"opcost\.report/2.*opcost\.report/1"):
        from_dict(data)


def test_every_truncation_is_a_source_error() -> None:
    text = dumps(small_report())
    for end in range(len(text)):
        with pytest.raises(SourceError):
            loads(text[:end])


def test_every_missing_field_is_a_source_error() -> None:
    saved = json.loads(dumps(small_report()))
    # What these hold is a mapping of names to values, where a name may be missing; in statistics it then means zero.
    free = ("meta", "attrs", "own", "total", "totals", "parts")
    fields = [place for place in places(saved) if place and isinstance(place[-1], str) and free_of(place, free)]
    # These have a meaning where they are missing: no reason but the usual one, a phase that did not run, a file that was
    # written before memory was recorded, or of no device, and of no pipeline.
    optional = ("reason", "exact", "forward", "backward", "memory", "reserved_bytes", "fixed_bytes")
    fields = [place for place in fields if place[-1] not in optional and place not in (("stages",), ("parts",))]
    assert len(fields) > 60
    for place in fields:
        changed = json.loads(dumps(small_report()))
        del holder(changed, place)[place[-1]]
        with pytest.raises(SourceError, match=f"required field `{place[-1]}`"):
            from_dict(changed)


def free_of(place: tuple[Any, ...], names: tuple[str, ...]) -> bool:
    return place[0] != "schema" and not any(name in names for name in place[:-1])


def holder(data: Any, place: tuple[Any, ...]) -> Any:
    """What holds the value at this place."""
    for key in place[:-1]:
        data = data[key]
    return data


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 10**40) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def places(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [path, *(place for key, value in items for place in places(value, (*path, key)))]


@settings(max_examples=300 if FULL else 100)
@given(data=st.data())
def test_any_change_to_a_saved_report_is_refused_or_can_still_be_shown(data: st.DataObject) -> None:
    saved = json.loads(dumps(small_report()))
    place = data.draw(st.sampled_from(places(saved)[1:]))
    holder(saved, place)[place[-1]] = data.draw(JUNK)
    try:
        report = from_dict(saved)
    except SourceError:
        return
    for view in ("table", "text", "arch", "csv", "md", "json"):
        report.render(view)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        '"opcost.report/1"',
        '{"schema": 1}',
        '{"schema": "opcost.report/1"}',
        '{"schema": "opcost.report/1", "specs": NaN}',
        "[" * 100_000,
        '{"schema": "opcost.report/1", "peak_bytes": ' + "9" * 10_000 + "}",
    ],
)
def test_text_that_is_no_report_is_a_source_error(text: str) -> None:
    with pytest.raises(SourceError):
        loads(text)


def test_sums_that_do_not_add_up_are_refused() -> None:
    data = to_dict(small_report())
    data["modules"][1]["own"]["macs"] += 1
    with pytest.raises(SourceError, match="'fc' is not the sum"):
        from_dict(data)


@pytest.mark.parametrize("half", ["\udcff", "a\\\ud800"])
def test_half_a_character_in_a_name_comes_back(half: str) -> None:
    report = small_report()
    root, *others = report.modules
    odd = replace(report, modules=(replace(root, type=half), *others))
    text = dumps(odd)
    assert text.isascii()
    assert loads(text) == odd


def test_a_tree_without_a_parent_is_refused() -> None:
    data = json.loads(dumps(small_report()))
    data["modules"][2]["path"] = "missing.again"
    with pytest.raises(SourceError, match=r"missing\.again"):
        from_dict(data)
