"""MegEngine's recordings as profiles."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from opcost.analysis.join import with_costs
from opcost.core.profile import Profile
from opcost.errors import SourceError
from opcost.rules import default_rules
from opcost.traces.registry import read

DATA = Path(__file__).resolve().parent.parent / "data" / "megengine" / "profile"
GRAPHS = ("resnet18_full", "resnet18_slim.v2", "lite_resnet18_slim.v2", "dwnet_nogn.v2", "mlp.v2")


def raw(name: str) -> dict[str, Any]:
    return json.loads(gzip.decompress((DATA / f"{name}.json.gz").read_bytes()))


@pytest.mark.parametrize("name", GRAPHS)
def test_every_operator_that_ran_is_a_row_in_the_order_of_execution(name: str) -> None:
    data = raw(name)
    ran = [number for number in data["graph_exec"]["comp_seq"] if number in data["profiler"]["device"]]
    assert [str(row.id) for row in read(DATA / f"{name}.json.gz").rows] == ran


@pytest.mark.parametrize("name", GRAPHS)
def test_times_are_whole_nanoseconds_of_the_written_seconds(name: str) -> None:
    data = raw(name)
    for row in read(DATA / f"{name}.json.gz").rows:
        (device,) = data["profiler"]["device"][str(row.id)].values()
        (host,) = data["profiler"]["host"][str(row.id)].values()
        # The tool writes microseconds.
        assert row.device_ns == 1000 * (round(device["end"] * 1e6) - round(device["start"] * 1e6))
        assert row.attrs["wait_ns"] == 1000 * (round(device["kern"] * 1e6) - round(device["start"] * 1e6))
        assert row.host_ns == 1000 * (round(host["end"] * 1e6) - round(host["start"] * 1e6))


@pytest.mark.parametrize("name", GRAPHS)
def test_the_bytes_of_the_tensors_are_those_of_megengines_footprint(name: str) -> None:
    """Shapes and element types together: MegEngine's own sum over inputs and outputs."""
    footprints = raw(name)["profiler"]["opr_footprint"]
    compared = 0
    for row in read(DATA / f"{name}.json.gz").rows:
        if row.kind and row.kind != "view":
            compared += 1
            assert sum(spec.nbytes for spec in (*row.ins, *row.outs)) == footprints[str(row.id)]["memory"], row.name
    assert compared


@pytest.mark.parametrize("name", GRAPHS)
def test_the_cost_of_products_is_megengines_own(name: str) -> None:
    footprints = raw(name)["profiler"]["opr_footprint"]
    products = [
        row
        for row in with_costs(read(DATA / f"{name}.json.gz"), default_rules()).rows
        if row.kind in ("conv", "matmul")
    ]
    assert products
    for row in products:
        assert row.cost is not None
        assert row.cost.flops == footprints[str(row.id)]["computation"], row.name


def test_modules_are_read_from_the_names_of_variables() -> None:
    rows = read(DATA / "resnet18_full.json.gz").rows
    assert {row.module.split(".")[0] for row in rows} >= {"layer1", "layer2", "layer3", "layer4", "fc"}
    (product,) = [row for row in rows if row.type == "MatrixMul"]
    assert product.module == "fc"


def test_an_operator_on_two_devices_takes_as_long_as_on_the_slower_one() -> None:
    places = {number: found for number, found in raw("SYNTHETIC_edges")["profiler"]["device"].items() if len(found) > 1}
    rows = {str(row.id): row for row in read(DATA / "SYNTHETIC_edges.json.gz").rows}
    assert places
    for number, found in places.items():
        durations = [round((times["end"] - times["start"]) * 1e9) for times in found.values()]
        assert rows[number].device_ns == max(durations)
        assert sorted(kernel.duration_ns for kernel in rows[number].kernels) == sorted(durations)


def test_a_profile_of_the_host_alone_has_no_device_times() -> None:
    profile = read(DATA / "SYNTHETIC_hostonly.json.gz")
    assert profile.rows
    assert all(row.device_ns is None and row.host_ns is not None for row in profile.rows)


def test_the_graph_may_stand_inside_the_profiler_as_the_documentation_shows_it(tmp_path: Path) -> None:
    data = raw("mlp.v2")
    inside = tmp_path / "inside.json"
    inside.write_text(json.dumps({"profiler": {**data["profiler"], "graph_exec": data["graph_exec"]}}))
    assert read(inside).rows == read(DATA / "mlp.v2.json.gz").rows


def test_an_operator_whose_number_has_thousands_of_digits_is_numbered_by_its_place(tmp_path: Path) -> None:
    data = raw("mlp.v2")
    whole = read(DATA / "mlp.v2.json.gz").rows
    operators = data["graph_exec"]["operator"]
    key = next(key for place, key in enumerate(operators) if any(str(row.id) == key for row in whole))
    operators[key]["id"] = "9" * 5000
    path = tmp_path / "long.json"
    path.write_text(json.dumps(data))
    assert list(operators).index(key) in {row.id for row in read(path).rows}


# -- the timeline ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def timeline() -> Profile:
    return read(DATA / "timeline.json.gz")


def test_every_kernel_of_the_timeline_belongs_to_an_operator(timeline: Profile) -> None:
    events = raw("timeline")["traceEvents"]
    kernels = [event for event in events if event.get("cat") == "Kernel" and event["ph"] == "E"]
    assert len(timeline.rows) == len(kernels)
    assert not timeline.unattributed
    assert not timeline.notes
    assert Counter(row.type for row in timeline.rows) == Counter(event["args"]["__name__"] for event in kernels)


def test_device_time_of_the_timeline_is_the_sum_of_its_kernels(timeline: Profile) -> None:
    begun: dict[str, float] = {}
    total = 0
    for event in raw("timeline")["traceEvents"]:
        if event.get("cat") == "Kernel":
            if event["ph"] == "B":
                begun[event["name"]] = event["ts"]
            else:
                total += round(event["ts"] * 1000) - round(begun.pop(event["name"]) * 1000)
    assert sum(row.device_ns or 0 for row in timeline.rows) == total


def test_operators_of_the_timeline_know_module_shapes_and_kind(timeline: Profile) -> None:
    first = timeline.rows[0]
    assert (first.type, first.kind, first.module) == ("Convolution", "conv", "conv1")
    assert [spec.shape for spec in first.ins] == [(1, 3, 224, 224), (64, 3, 7, 7)]
    assert [spec.shape for spec in first.outs] == [(1, 64, 112, 112)]
    added = timeline.rows[-1]
    assert (added.type, added.kind, added.module) == ("ADD", "elementwise", "fc")


def test_an_end_without_a_begin_is_left_out_and_said(tmp_path: Path) -> None:
    data = raw("timeline")
    data["traceEvents"].append({"name": "lost", "ph": "E", "pid": 0, "tid": 99, "ts": 1.0})
    path = tmp_path / "timeline.json"
    path.write_text(json.dumps(data))
    (note,) = read(path).notes
    assert note.code == "unpaired"


def test_of_a_timeline_that_was_cut_off_the_beginning_can_be_read(tmp_path: Path, timeline: Profile) -> None:
    whole = gzip.decompress((DATA / "timeline.json.gz").read_bytes())
    path = tmp_path / "cut.json"
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(SourceError, match="damaged"):
        read(path)
    part = read(path, partial=True)
    assert 0 < len(part.rows) < len(timeline.rows)
    assert [row.name for row in part.rows] == [row.name for row in timeline.rows[: len(part.rows)]]
    assert "partial" in {note.code for note in part.notes}


@pytest.mark.parametrize("name", ["mlp.v2.json.gz", "resnet18_full.json.gz"])
@pytest.mark.parametrize("packed", [False, True])
def test_of_a_graph_profile_that_was_cut_off_the_beginning_can_be_read(
    tmp_path: Path, name: str, *, packed: bool
) -> None:
    whole = gzip.decompress((DATA / name).read_bytes())
    complete = {row.id: row for row in read(DATA / name).rows}
    path = tmp_path / "cut.json"
    found = []
    for tenth in range(3, 10):
        cut = whole[: len(whole) * tenth // 10]
        path.write_bytes(gzip.compress(cut)[:-9] if packed else cut)
        with pytest.raises(SourceError, match="--partial"):
            read(path)
        part = read(path, partial=True)
        assert part.rows
        for row in part.rows:
            known = complete[row.id]
            assert (row.host_ns, row.device_ns) in ((known.host_ns, known.device_ns), (known.host_ns, None))
            assert row.name in (known.name, f"operator {row.id}")
        assert "partial" in {note.code for note in part.notes}
        found.append(sum(row.name == complete[row.id].name for row in part.rows))
    # Names stand at the end of the file: the more of it there is, the more operators have theirs.
    assert found == sorted(found)
    assert found[0] == 0 < found[-1]


def test_a_record_that_was_cut_is_left_out(tmp_path: Path) -> None:
    whole = gzip.decompress((DATA / "mlp.v2.json.gz").read_bytes())
    text = whole.decode()
    footprints = json.loads(text)["profiler"]["opr_footprint"]
    place = text.index('"out_shapes"', text.index('"opr_footprint"') + len(text) // 40)
    path = tmp_path / "cut.json"
    path.write_text(text[:place])
    read_shapes = {row.id: [list(spec.shape or ()) for spec in row.ins] for row in read(path, partial=True).rows}
    assert any(read_shapes.values())
    for number, shapes in read_shapes.items():
        assert shapes in ([], footprints[str(number)]["in_shapes"])


@pytest.mark.parametrize("length", [0.0, 0.002])
def test_a_graph_profile_without_any_time_is_refused(tmp_path: Path, length: float) -> None:
    whole = gzip.decompress((DATA / "mlp.v2.json.gz").read_bytes())
    path = tmp_path / "cut.json"
    path.write_bytes(whole[: 20 + int(length * len(whole))])
    with pytest.raises(SourceError, match="is before the damage"):
        read(path, partial=True)


# -- damage ------------------------------------------------------------------------------------------------------------


def _without(key: str) -> Callable[[dict[str, Any]], None]:
    return lambda data: data.pop(key)


def _wrong_time(data: dict[str, Any]) -> None:
    number = next(iter(data["profiler"]["device"]))
    data["profiler"]["device"][number] = {"cpu": {"start": 0, "kern": "soon", "end": 1}}


def _wrong_shapes(data: dict[str, Any]) -> None:
    number = next(iter(data["profiler"]["device"]))
    data["profiler"]["opr_footprint"][number]["in_shapes"] = [["wide"]]


def _list_of_operators(data: dict[str, Any]) -> None:
    data["graph_exec"]["operator"] = []


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (_without("graph_exec"), "graph_exec"),
        (_wrong_time, "soon"),
        (_wrong_shapes, "in_shapes"),
        (_list_of_operators, "operator is list"),
    ],
)
def test_damage_is_named(tmp_path: Path, damage: Callable[[dict[str, Any]], None], said: str) -> None:
    data = raw("mlp.v2")
    damage(data)
    path = tmp_path / "damaged.json"
    path.write_text(json.dumps(data))
    with pytest.raises(SourceError, match=said):
        read(path)
