"""When everything of a large trace ran: the same events as its rows would tell, one by one."""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path

import pytest

import opcost
from opcost.core.timeline import checked_lanes
from opcost.profiles import Profile
from opcost.views.html.profiles import timeline_of

KINETO = Path(__file__).parent.parent / "data" / "traces" / "kineto"
STREAM = "gpu:0 stream 7"


def grouped(path: Path, monkeypatch: pytest.MonkeyPatch, *, timeline: bool) -> Profile:
    """As if the file were large."""
    monkeypatch.setattr("opcost.traces.kineto.reader.MANY", 0)
    return opcost.read_profile(path, timeline=timeline)


def events(timeline: dict, title: str) -> list[tuple[int, int, str]]:
    (lane,) = [lane for lane in timeline["lanes"] if lane["title"] == title]
    names = [timeline["words"][name] for name in lane["name"]]
    return list(zip(accumulate(lane["step"]), lane["length"], names, strict=True))


def test_streams_and_the_host_have_every_event_where_rows_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    path = KINETO / "cuda_fwd_stack.json.gz"
    whole = opcost.read_profile(path)
    by_rows = timeline_of(whole)
    found = grouped(path, monkeypatch, timeline=True)
    assert any(row.count > 1 for row in found.rows)
    timeline = timeline_of(found)
    assert by_rows is not None
    assert timeline is not None
    assert events(timeline, STREAM) == events(by_rows, STREAM)
    assert len(events(timeline, STREAM)) == 92
    assert events(timeline, "host")[0] == (0, whole.rows[0].host_ns, whole.rows[0].name)
    sorts = dict(zip(timeline["words"], timeline["sorts"], strict=True))
    assert "matmul" in sorts.values()
    assert all(sort == "copy" for word, sort in sorts.items() if word.startswith("Memcpy"))


def test_threads_have_lanes_of_their_own_and_nothing_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    path = KINETO / "cpu_resnet18_fwdbwd_stack.json.gz"
    rows = opcost.read_profile(path).rows
    timeline = checked_lanes(grouped(path, monkeypatch, timeline=True).extra["timeline"])
    assert sum(len(lane["step"]) for lane in timeline["lanes"]) == len(rows)
    assert sum(sum(lane["length"]) for lane in timeline["lanes"]) == sum(row.host_ns or 0 for row in rows)


def test_a_timeline_is_read_only_where_it_is_requested(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = KINETO / "cuda_fwd_stack.json.gz"
    assert "timeline" not in grouped(path, monkeypatch, timeline=False).extra
    found = grouped(path, monkeypatch, timeline=True)
    found.save(tmp_path / "kept.json")
    assert timeline_of(opcost.read_profile(tmp_path / "kept.json")) == timeline_of(found)
