"""Which reader a trace is for: what makes it one decides, wherever that is and whatever is around it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

import opcost
from opcost.errors import AmbiguousSource, UnknownName, UnknownSource
from opcost.traces.kineto.reader import read_table
from opcost.traces.registry import readers

OPERATOR = {"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": 1, "ts": 5, "dur": 2}
KERNEL = {"ph": "X", "cat": "Kernel", "name": "k", "pid": 0, "tid": 7, "ts": 5, "dur": 2, "args": {"correlation": 3}}
PAIR = [OPERATOR | {"cat": "operator", "ph": phase, "ts": time} for phase, time in (("B", 5), ("E", 7))]
"""As MXNet writes an operator."""
NAMES = [
    {"ph": "M", "name": "process_name", "pid": number, "tid": 0, "ts": 1, "args": {"name": "python"}}
    for number in range(2_000)
]
KINETO = {
    "a profiler among the user's metadata": ({"metadata": {"profiler": {"repeats": 1}}}, [OPERATOR]),
    "a profiler as the first field": ({"profiler": {"repeats": 1}, "schema": "mine"}, [OPERATOR]),
    "a schema as the first field": ({"schema": "mine"}, [OPERATOR]),
    "70 KB of metadata": ({"metadata": "x" * 70_000}, [OPERATOR]),
    "3 MB of metadata": ({"metadata": {"lines": ["x" * 100] * 30_000}}, [OPERATOR]),
    "names of processes first": ({}, [*NAMES[:3], OPERATOR]),
    "200 KB of names of processes first": ({}, [*NAMES, OPERATOR]),
    "kernels alone": ({}, [KERNEL, *NAMES[:3]]),
}


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzipped"])
@pytest.mark.parametrize("name", KINETO)
def test_a_kineto_trace_is_one_whatever_is_before_its_events(tmp_path: Path, name: str, *, packed: bool) -> None:
    fields, events = KINETO[name]
    path = tmp_path / "trace.json"
    content = json.dumps({**fields, "traceEvents": events}).encode()
    path.write_bytes(gzip.compress(content) if packed else content)
    profile = opcost.read_profile(path)
    assert profile.meta["format"] == "kineto"
    assert [row.name for row in profile.rows] + [kernel.name for kernel in profile.unattributed] == [
        event["name"] for event in events if event["ph"] == "X"
    ]
    assert read_table(path).profile.meta == profile.meta


@pytest.fixture
def doubtful(tmp_path: Path) -> Path:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": [OPERATOR, *PAIR]}), encoding="utf-8")
    return path


def test_two_claims_are_an_error_that_says_what_was_seen_and_a_reader_can_be_named(doubtful: Path) -> None:
    with pytest.raises(AmbiguousSource, match=r"kineto and mxnet .*'traceEvents' .*'cpu_op', 'operator'") as caught:
        opcost.read_profile(doubtful)
    assert "--reader kineto" in caught.value.hint
    for reader in ("kineto", "mxnet"):
        profile = opcost.read_profile(doubtful, reader=reader)
        assert profile.meta["format"] == reader
        assert [(row.type, row.host_ns) for row in profile.rows] == [("aten::add", 2000)]
    with pytest.raises(UnknownName, match="did you mean 'kineto'"):
        opcost.read_profile(doubtful, reader="kinetto")


def test_an_unknown_format_is_reported_with_its_fields_and_the_readers(tmp_path: Path) -> None:
    path = tmp_path / "results.json.gz"
    path.write_bytes(gzip.compress(b'{"another-tool": [{"metadata": {"pid": 1}}], "more": 1}'))
    with pytest.raises(UnknownSource, match="gzipped, with the fields 'another-tool', 'more'") as caught:
        opcost.read_profile(path)
    assert all(reader.name in caught.value.hint for reader in readers())


@pytest.mark.parametrize(
    ("schema", "what", "command"),
    [
        ("opcost.report/1", "a report of opcost", "opcost count"),
        ("opcost.answer/1", "what `opcost analyze` found", "the profile itself"),
        ("opcost.scan/1", "what `opcost scan` found", "opcost scan"),
        ("opcost.baseline/1", "a baseline of opcost", "opcost check"),
        ("opcost.calibration/1", "a calibration of opcost", "opcost predict"),
    ],
)
def test_a_file_of_opcost_itself_is_called_what_it_is_and_by_the_command_that_takes_it(
    tmp_path: Path, schema: str, what: str, command: str
) -> None:
    path = tmp_path / "saved.json"
    path.write_text(json.dumps({"schema": schema, "meta": {}}), encoding="utf-8")
    with pytest.raises(UnknownSource, match=what) as caught:
        opcost.read_profile(path)
    assert command in caught.value.hint
