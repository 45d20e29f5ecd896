from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import pytest
from sampling import sampled

import opcost
from opcost.analysis.breakdown import devices
from opcost.analysis.join import with_costs
from opcost.cli.main import run
from opcost.core.profile import Profile
from opcost.errors import SourceError
from opcost.rules import default_rules
from opcost.traces.kineto import reader
from opcost.traces.kineto.reader import read_table
from opcost.traces.ranks.columns import _spread

DATA = Path(__file__).parent.parent / "data" / "traces"
TRACES = sorted(path for path in (DATA / "kineto").glob("*.json.gz") if "key_averages" not in path.name)


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.name)
def test_groups_are_the_rows_of_the_profile_put_together(path: Path) -> None:
    expected = defaultdict(list)
    for row in opcost.read_profile(path).rows:
        key = (row.type, row.ins, row.module, row.phase, row.step)
        expected[key].append((row.host_ns, row.host_self_ns, row.device_ns or 0))
    found = defaultdict(list)
    table = read_table(path)
    for row, host in zip(table.profile.rows, table.host, strict=True):
        own, device = row.spread or ([row.host_self_ns], [row.device_ns or 0])
        found[row.type, row.ins, row.module, row.phase, row.step] += zip(host, own, device, strict=True)
    assert {key: sorted(times) for key, times in found.items()} == {
        key: sorted(times) for key, times in expected.items()
    }


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.name)
def test_a_large_trace_is_a_profile_of_groups_with_the_same_sums(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = opcost.read_profile(path)
    monkeypatch.setattr(reader, "LARGE_PACKED_BYTES", 0)
    groups = opcost.read_profile(path)
    assert len(groups.rows) <= len(rows.rows)
    assert sum(row.count for row in groups.rows) == len(rows.rows)
    for field in ("host_ns", "host_self_ns", "device_ns"):
        assert sum(getattr(row, field) or 0 for row in groups.rows) == sum(
            getattr(row, field) or 0 for row in rows.rows
        )
    assert sum(k.duration_ns for k in groups.unattributed) == sum(k.duration_ns for k in rows.unattributed)
    assert groups.wall_ns == rows.wall_ns
    assert "grouped" in {note.code for note in groups.notes}


def test_above_many_executions_rows_are_groups_of_equal_ones_unless_each_is_requested(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = DATA / "kineto" / "cuda_fwd_stack.json.gz"
    whole = opcost.read_profile(path)
    monkeypatch.setattr("opcost.traces.kineto.reader.MANY", len(whole.rows) - 1)
    grouped = opcost.read_profile(path)
    assert len(grouped.rows) < len(whole.rows) == sum(row.count for row in grouped.rows)
    assert opcost.read_profile(path, executions=True).rows == whole.rows
    for options in (["--executions"], ["--min-time", "0"], ["--where", "time >= 0"], ["--view", "launches"]):
        assert run(["analyze", str(path), *options]) == 0
        assert "is a group of all executions" not in capsys.readouterr().out
    assert run(["analyze", str(path)]) == 0
    assert "is a group of all executions" in " ".join(capsys.readouterr().out.split())


def test_operators_without_a_cost_are_counted_by_executions(monkeypatch: pytest.MonkeyPatch) -> None:
    path = DATA / "kineto" / "cpu_gpt_fwd_shapes_flops.json.gz"  # on the host no kernel shows what `gelu` is

    def notes() -> list[str]:
        return [
            note.text
            for note in with_costs(opcost.read_profile(path), default_rules()).notes
            if note.code == "uncosted"
        ]

    each = notes()
    monkeypatch.setattr("opcost.traces.kineto.reader.MANY", 0)
    assert each
    assert notes() == each


def test_busy_and_idle_time_are_those_of_tracelens() -> None:
    stated = {}
    for line in (DATA / "kineto" / "tracelens" / "gpu_timeline.csv").read_text("utf-8").splitlines()[1:]:
        name, milliseconds, _ = line.split(",")
        stated[name] = float(milliseconds) * 1e6
    (use,) = devices(read_table(DATA / "kineto" / "cuda_fwd_stack.json.gz").profile)
    span, busy = use.span_ns, use.busy_ns
    # It works with floats that have steps of half a nanosecond.
    assert abs(busy - stated["busy_time"]) < 92
    assert abs(span - stated["total_time"]) <= 1
    assert abs(span - busy - stated["idle_time"]) < 92


def test_percentiles_are_durations_that_occurred() -> None:
    for durations, expected in (
        ([50, 10, 40, 20, 30], (10, 30, 50, 50)),
        ([7], (7, 7, 7, 7)),
        (range(200), (0, 99, 197, 199)),
    ):
        assert tuple(_spread(durations).values()) == expected


def test_overlapping_work_is_busy_once(tmp_path: Path) -> None:
    events = [
        {
            "ph": "X",
            "cat": "kernel",
            "name": "k",
            "pid": 0,
            "tid": stream,
            "ts": start,
            "dur": duration,
            "args": {"device": 0},
        }
        for stream, start, duration in ((7, 0, 10), (8, 5, 10), (8, 6, 2), (7, 20, 5))
    ]
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}), encoding="utf-8")
    (use,) = devices(read_table(path).profile)
    assert (use.device, use.span_ns, use.busy_ns) == ("gpu:0", 25_000, 20_000)


def test_only_kineto_traces_are_tabulated() -> None:
    with pytest.raises(SourceError, match="not a Kineto trace"):
        read_table(DATA / "onnxruntime" / "resnet_noopt_seq.json.gz")


KEYS = ("type", "kind", "module", "phase", "shape", "dtype", "provider", "rank", "step", "kernel", "device", "stream")


def sums(profile: Profile, **options: object) -> dict:
    """Of each line its executions, times, launches, costs and kernels."""
    answer = opcost.query(profile, top=0, **options)
    return {
        (line.role, tuple(line.labels.items())): (
            line.count,
            line.time_ns,
            line.host_ns,
            line.device_ns,
            line.computation,
            line.memory,
            line.launches,
            sorted(line.kernels),
            line.percentiles,
        )
        for line in answer.lines
    }


@pytest.mark.parametrize("path", sampled(TRACES, every=3), ids=lambda path: path.name)
@pytest.mark.parametrize("side", ["device", "host"])
def test_questions_have_the_same_answer_whether_executions_are_added_up_or_not(path: Path, side: str) -> None:
    rows, groups = opcost.read_profile(path), read_table(path).profile
    if side == "device" and not any(row.device_ns is not None for row in rows.rows):
        pytest.skip("nothing ran on a device")
    for key in KEYS:
        options = {"side": side, "aggregate_by": (key,), "percentiles": (10, 50, 99)}
        assert sums(groups, **options) == sums(rows, **options), key
    for how in ("mean", "max", "min", "median", "p90"):
        options = {"side": side, "aggregate_by": ("type",), "aggregate": how}
        assert sums(groups, **options) == sums(rows, **options), how


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.name)
def test_the_use_of_devices_is_the_same_whether_executions_are_added_up_or_not(path: Path) -> None:
    rows, groups = (opcost.query(profile).devices for profile in (opcost.read_profile(path), read_table(path).profile))
    assert len(rows) == len(groups) == ("cuda" in path.name)
    for one, other in zip(rows, groups, strict=True):
        assert one._replace(delay_p90_ns=None) == other._replace(delay_p90_ns=None)
        assert one.kernels > 50
        if one.delay_p90_ns is not None:
            assert other.delay_p90_ns == pytest.approx(one.delay_p90_ns, rel=1e-12)
