"""Traces that are made to do harm: to fill the memory, to keep a reader busy, to end in an unforeseen error."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest
from peak_memory import needs_peak
from sampling import chosen

import opcost
from opcost.analysis.query import query
from opcost.core.parsing import parse, replace_lone_surrogates
from opcost.core.profile import Profile
from opcost.errors import OpcostError, SourceError
from opcost.traces import file

DATA = Path(__file__).parents[1] / "data"

KINETO = b'{"schemaVersion": 1, "traceEvents": ['
EVENT = b'{"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": 1, "ts": 5, "dur": 2},'
SESSION = b'{"cat": "Session", "name": "model_run", "ts": 0, "dur": 90, "args": {}},'
BEGINNINGS: dict[str, tuple[bytes, bytes]] = {
    "kineto": (KINETO, EVENT),
    "kineto of nothing": (KINETO, b"{},"),
    "kineto text": (KINETO + EVENT + b'{"name": "', b"x"),
    "kineto number": (KINETO + EVENT + b'{"ts": ', b"1"),
    "kineto fields": (b'{"schemaVersion": 1, "x": "', b"x"),
    "kineto trailer": (KINETO + EVENT[:-1] + b'], "x": [', b"[],"),
    "onnxruntime": (b"[" + SESSION, SESSION),
    "onnxruntime list": (b"[" + SESSION, b"[],"),
    "mxnet": (b'{"traceEvents": [{"cat": "operator"},', b'{"cat": "operator", "ph": "B", "ts": 1},'),
    "megengine": (b'{"profiler": {"device": {"1": [', b"{},"),
    "opcost": (b'{"schema": "opcost.profile/1", "texts": [', b'"x",'),
    "tensorrt": (b'[{"count": 1},', b'{"name": "x", "timeMs": 1},'),
}


BLANKS: dict[str, list[int]] = {
    "before the first event": [200 << 20, 1, 1],
    "between two events": [1, 1, 200 << 20, 1],
    "as many between all": [8_000] * 25_000,
    "more between all than is decoded at once": [3 << 20] * 60,
    "seldom as many": [number * 7919 % 16_384 for number in range(24_000)],
    "between very many": [400] * 500_000,
}
"""Blanks before each event of a trace."""


@cache
def noise() -> bytes:
    """What packs badly, so that the rest is believed."""
    return bytes(Random(0).choices(b"0123456789abcdef", k=5_000_000))


@needs_peak
@pytest.mark.parametrize("name", chosen(BLANKS, "before the first event", "more between all than is decoded at once"))
def test_blanks_between_events_take_no_memory(name: str, tmp_path: Path) -> None:
    path, small = tmp_path / "blanks.json.gz", tmp_path / "small.json"
    gaps = BLANKS[name]
    event = EVENT[:-1].replace(b": 5", b": %d")
    small.write_bytes(KINETO + EVENT[:-1] + b"]}")
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(KINETO.replace(b"1,", b'1, "noise": "' + noise() + b'",', 1))
        file.writelines(b"," * bool(place) + b" " * gap + event % (5 * place) for place, gap in enumerate(gaps))
        file.write(b"]}")
    done = subprocess.run(
        [sys.executable, "-c", GROWTH, str(path), str(small)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    said, grown = done.stdout.splitlines()
    assert said == f"read {len(gaps)}"
    assert int(grown) < 300 << 20


def test_a_step_whose_number_has_thousands_of_digits_is_none(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    step = b'{"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#%s", "pid": 1, "tid": 1, "ts": 1, "dur": 9}]}'
    path.write_bytes(KINETO + EVENT + step % (b"9" * 5000))
    rows = opcost.read_profile(path).rows
    assert rows[-1].type == "aten::add"
    assert not any(row.step for row in rows)


GROWTH = """
import sys, opcost
from peak_memory import peak
from opcost.errors import OpcostError
for path in sys.argv[2:]:
    try: opcost.read_profile(path)
    except OpcostError: pass
before = peak()
try:
    print("read", sum(row.count for row in opcost.read_profile(sys.argv[1]).rows))
except OpcostError as exc:
    print(str(exc).partition(chr(10))[0])
print(peak() - before)
"""


SLOW = ("kineto", "kineto text")
"""Of which much is read before they are refused: `kineto of nothing` and `kineto number` are refused in the same way."""


@needs_peak
@pytest.mark.parametrize("name", chosen(BEGINNINGS, *(name for name in BEGINNINGS if name not in SLOW)))
def test_a_gigabyte_in_a_megabyte_is_refused_in_little_memory(name: str, tmp_path: Path) -> None:
    head, filling = BEGINNINGS[name]
    path, small = tmp_path / "bomb.json.gz", tmp_path / "small.json"
    path.write_bytes(gzip.compress(head) + gzip.compress(filling * ((1 << 20) // len(filling))) * 1024)
    small.write_bytes(head + filling * 10)
    done = subprocess.run(
        [sys.executable, "-c", GROWTH, str(path), str(small)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    said, grown = done.stdout.splitlines()
    assert "bomb.json.gz" in said
    assert int(grown) < 300 << 20


@pytest.mark.parametrize("path", sorted(DATA.glob("traces/*/*.json.gz")), ids=lambda path: path.name)
def test_no_real_trace_packs_as_well_as_one_that_is_made_to_fill_the_memory(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file, "SMALL_UNPACKED", 0)
    assert file.TraceFile(path).content() == gzip.decompress(path.read_bytes())


def test_a_plain_file_that_is_too_large_to_be_read_as_a_whole_is_said_to_be(tmp_path: Path) -> None:
    path = tmp_path / "sparse.json"
    with path.open("wb") as stream:
        stream.write(b"[" + SESSION)
        stream.truncate(1 << 40)
    with pytest.raises(SourceError, match="more than 128 MiB"):
        opcost.read_profile(path)


def test_json_of_nothing_but_brackets_is_not_unfolded() -> None:
    with pytest.raises(ValueError, match="which is not plausible"):
        parse("[" + "[]," * 3_000_000 + "1]")
    assert len(parse("[" + "[]," * 1_000_000 + "1]")) == 1_000_001
    assert len(parse("[" + '[1234567890123],"xxxxxxxxxxxx",' * 300_000 + "1]")) == 600_001


@pytest.mark.parametrize("text", ["[" * 200_000, "NaN", "-Infinity", "9" * 5000, ""])
def test_whatever_is_wrong_with_json_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - that it is one is what is tested
        parse(text)


def test_half_a_character_becomes_one_that_can_be_shown() -> None:
    written = r'["\ud800", "\ud83d\ude00", "\\ud800", "\udc00x", "é"]'
    assert parse(replace_lone_surrogates(written)) == ["\ufffd", "\U0001f600", r"\ud800", "\ufffdx", "é"]


def answered(content: Any, folder: Path) -> Profile | None:
    """The profile, queried and shown; None where it is refused. Everything else is a fault."""
    path = folder / "trace.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    try:
        profile = opcost.read_profile(path)
    except OpcostError as exc:
        assert str(exc).isprintable() or "\n" in str(exc)  # noqa: PT017
        return None
    query(profile, aggregate_by=profile.usual_keys).render("table").encode()
    return profile


ODD: tuple[Any, ...] = (
    [], {}, [1], {"a": 1}, None, True, -1, 10**400, -(10**400), 1e300, float("nan"), float("inf"), "", "x", "9" * 400, "\ud800",
)  # fmt: skip


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: repr(odd)[:20])
@pytest.mark.parametrize("key", ["pid", "tid", "ph", "cat", "name", "ts", "dur", "args"])
def test_no_value_of_an_event_ends_in_another_error(key: str, odd: Any, tmp_path: Path) -> None:
    kineto = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 5, "dur": 2, "args": {}}
    mxnet = {
        "ph": "B",
        "cat": "operator",
        "name": "op",
        "pid": 1,
        "tid": 1,
        "ts": 5,
        "dur": 1,
        "args": {"name": "cpu/0"},
    }
    node = {"ph": "X", "cat": "Node", "name": "a_kernel_time", "pid": 1, "tid": 1, "ts": 5, "dur": 1, "args": {}}
    kernel = {**node, "cat": "Kernel", "args": {"parent_name": odd}}
    answered({"schemaVersion": 1, "traceEvents": [kineto, {**kineto, key: odd}]}, tmp_path)
    answered(
        {"traceEvents": [mxnet, {**mxnet, key: odd}, {**mxnet, "ph": "E"}, {**mxnet, "ph": "M", key: odd}]}, tmp_path
    )
    answered([{**node, "cat": "Session", "name": "model_run"}, {**node, key: odd}, kernel], tmp_path)


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: repr(odd)[:20])
@pytest.mark.parametrize("key", ["name", "timeMs", "averageMs", "medianMs", "count"])
def test_no_value_of_a_layer_ends_in_another_error(key: str, odd: Any, tmp_path: Path) -> None:
    layer = {"name": "fc", "timeMs": 1.5, "averageMs": 0.1, "medianMs": 0.1}
    answered([{"count": odd if key == "count" else 3}, {**layer, key: odd}], tmp_path)


def test_types_of_a_kineto_event_that_are_no_words_are_not_known(tmp_path: Path) -> None:
    args = {"Input Dims": [[2, 3], [3, 4]], "Input type": [["float"], {"a": 1}]}
    event = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 5, "dur": 2, "args": args}
    profile = answered({"schemaVersion": 1, "traceEvents": [event]}, tmp_path)
    assert profile is not None
    assert profile.rows[0].ins[0].shape == (2, 3)


def test_a_name_of_half_a_megabyte_is_cut_at_once(tmp_path: Path) -> None:
    event = {"ph": "X", "cat": "cpu_op", "name": "é." * 250_000, "pid": 1, "tid": 1, "ts": 5, "dur": 2}
    assert answered({"schemaVersion": 1, "traceEvents": [event]}, tmp_path) is not None
