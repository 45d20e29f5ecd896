"""Damaged and hostile files: one clear message, and with `partial` what is before the damage."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import opcost
from opcost.errors import OpcostError, SourceError
from opcost.traces.kineto import stream

DATA = Path(__file__).parent.parent / "data" / "traces"
TRACES = {
    "kineto": DATA / "kineto" / "cuda_fwd_stack.json.gz",
    "onnxruntime": DATA / "onnxruntime" / "resnet_noopt_seq.json.gz",
    "mxnet": DATA / "mxnet" / "resnet18_hybrid.json.gz",
}


def operator(name: str, ts: float, dur: float, **fields: object) -> dict:
    return {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur, **fields}


def write(path: Path, events: list[dict], **fields: object) -> Path:
    path.write_text(json.dumps({"schemaVersion": 1, **fields, "traceEvents": events}), encoding="utf-8")
    return path


def plain(name: str) -> bytes:
    return gzip.decompress(TRACES[name].read_bytes())


@pytest.mark.parametrize("name", TRACES)
@pytest.mark.parametrize("share", [0.3, 0.6, 0.95])
def test_a_truncated_trace_is_one_error_and_partial_reads_its_beginning(
    tmp_path: Path, name: str, share: float
) -> None:
    content = plain(name)
    path = tmp_path / "cut.json"
    path.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(SourceError, match=r"cut\.json"):
        opcost.read_profile(path)
    whole = opcost.read_profile(TRACES[name])
    part = opcost.read_profile(path, partial=True)
    assert 0 < len(part.rows) <= len(whole.rows)
    assert part.notes[0].code == "partial"
    known = {(row.type, row.host_start_ns, row.host_ns) for row in whole.rows}
    if name != "kineto":  # there, an operator that was cut off no longer joins the one inside it
        assert {(row.type, row.host_start_ns, row.host_ns) for row in part.rows} <= known


@pytest.mark.parametrize("name", TRACES)
def test_a_truncated_gzip_file_is_one_error_and_partial_reads_its_beginning(tmp_path: Path, name: str) -> None:
    packed = TRACES[name].read_bytes()
    path = tmp_path / "cut.json.gz"
    path.write_bytes(packed[: len(packed) * 3 // 4])
    with pytest.raises(SourceError, match=r"cut\.json\.gz"):
        opcost.read_profile(path)
    assert opcost.read_profile(path, partial=True).rows


FAULTS: dict[str, tuple[bytes, bytes, str]] = {
    "an escape": (b'"aten::', rb'"\qten::', r"1 that are damaged \(invalid escape"),
    "a quotation mark": (b'"aten::', b'"aten"::', "1 "),
    "two quotation marks": (b'"aten::', b'"at"e"n::', "1 that are damaged"),
    "a byte": (b'"aten::', b'"\xffaten::', "1 that are not UTF-8 text"),
    "a number as a name": (b'"name": "aten::', b'"name": 3, "x": "aten::', "1 with a wrong value in 'name'"),
    "a duration": (b'"dur": ', b'"dur": NaN, "x": ', "1 with a wrong value in 'dur'"),
    "a text as a duration": (b'"dur": ', b'"dur": "x", "x": ', "1 with a wrong value in 'dur'"),
    "a number beyond floats": (b'"dur": ', b'"dur": 1e400, "x": ', "1 with a wrong value in 'dur'"),
}


@pytest.mark.parametrize("layout", ["native", "compact"])
@pytest.mark.parametrize("name", FAULTS)
def test_a_bad_event_costs_itself_alone_and_is_named(tmp_path: Path, name: str, layout: str) -> None:
    old, new, kind = FAULTS[name]
    content = plain("kineto")
    if layout == "compact":
        content = json.dumps(json.loads(content)).encode()
    path = tmp_path / "bad.json"
    path.write_bytes(content)
    whole = Counter((row.type, row.host_start_ns) for row in opcost.read_profile(path).rows)
    start = content.index(b'"cpu_op"', len(content) // 5)
    place = content.index(old, start)
    path.write_bytes(content[:place] + new + content[place + len(old) :])
    profile = opcost.read_profile(path)
    (said,) = [note.text for note in profile.notes if note.code == "faulty"]
    assert re.search(rf"1 events are left out: {kind}.*at byte \d+ of the unpacked file", said)
    at = int(said.partition("at byte ")[2].split()[0])
    assert content.rindex(b"{", 0, start) == at
    found = Counter((row.type, row.host_start_ns) for row in profile.rows)
    # An operator that is dispatched twice was one row: without the outer dispatch, the inner one is.
    assert sum((whole - found).values()) == 1
    assert sum((found - whole).values()) <= 1


@pytest.mark.parametrize("name", TRACES)
def test_two_traces_in_one_file_are_an_error(tmp_path: Path, name: str) -> None:
    path = tmp_path / "two.json"
    path.write_bytes(plain(name) + b"\n" + plain(name))
    with pytest.raises(SourceError, match=r"second document|Extra data") as caught:
        opcost.read_profile(path)
    assert "separate them" in str(caught.value)
    assert opcost.read_profile(path, partial=True).rows


def test_an_empty_file_a_directory_and_no_file_have_messages_of_their_own(tmp_path: Path) -> None:
    empty = tmp_path / "empty.json"
    empty.touch()
    with pytest.raises(SourceError, match="is an empty file"):
        opcost.read_profile(empty)
    with pytest.raises(SourceError, match="is a directory"):
        opcost.read_profile(tmp_path)
    with pytest.raises(SourceError, match="there is no file"):
        opcost.read_profile(tmp_path / "none.json")


def test_a_file_of_another_kind_is_named(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("nothing to see", encoding="utf-8")
    with pytest.raises(SourceError, match="it is a text file"):
        opcost.read_profile(path)


@pytest.mark.parametrize(
    "event",
    [
        {},
        {"ph": "X"},
        {"ph": "X", "cat": "cpu_op"},
        {"ph": "X", "cat": "cpu_op", "dur": 1},
        {"ph": "X", "cat": "cpu_op", "name": None, "ts": 1, "dur": 1, "args": None},
        {"ph": "X", "cat": "cpu_op", "name": "a", "ts": 1, "dur": 1, "args": {"Input Dims": "no", "Input type": 3}},
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 1, "dur": 1, "args": {"Input Dims": [[2], []]}},
        {"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 1},
        {"ph": "X", "cat": "cuda_runtime", "name": "k", "ts": 1, "dur": 1, "args": {"correlation": "x"}},
    ],
    ids=str,
)
def test_missing_and_strange_fields_lose_nothing_else(tmp_path: Path, event: Any) -> None:
    good = {"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": 1, "ts": 5, "dur": 2}
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": [good, event, good | {"ts": 9}]}), encoding="utf-8")
    assert sum(row.type == "aten::add" for row in opcost.read_profile(path).rows) == 2


@pytest.mark.parametrize("event", ['"text"', "7", '{"ts": "x", "dur": 1}', '{"ts": 1e400}', '{"args": []}'])
def test_an_event_that_is_none_is_one_error(tmp_path: Path, event: str) -> None:
    path = tmp_path / "t.json"
    path.write_text('{"schemaVersion": 1, "traceEvents": [' + event + "]}", encoding="utf-8")
    with pytest.raises(SourceError, match=r"t\.json"):
        opcost.read_profile(path)


@pytest.mark.parametrize("name", TRACES)
def test_a_flipped_byte_never_ends_in_another_error(tmp_path: Path, name: str) -> None:
    content = bytearray(plain(name))
    path = tmp_path / "flipped.json"
    for place in range(1, len(content), len(content) // 23):
        damaged = bytearray(content)
        damaged[place] ^= 0x15
        path.write_bytes(damaged)
        for partial in (False, True):
            try:
                opcost.read_profile(path, partial=partial)
            except OpcostError as exc:
                assert "flipped.json" in str(exc) or "event" in str(exc)  # noqa: PT017


def test_a_list_that_never_closes_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "deep.json"
    path.write_text('{"schemaVersion": 1, "traceEvents": [' + '{"args": ' * 50_000, encoding="utf-8")
    with pytest.raises(SourceError, match=r"deep\.json"):
        opcost.read_profile(path)


def test_without_isal_gzip_still_works(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    for loaded in [key for key in sys.modules if key.partition(".")[0] == "isal"]:
        monkeypatch.setitem(sys.modules, loaded, None)
    monkeypatch.setitem(sys.modules, "isal", None)
    assert opcost.read_profile(TRACES["kineto"]).rows


def test_where_another_library_meets_damage_zlib_reads_what_is_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys
    import zlib
    from types import SimpleNamespace

    class Error(Exception):
        pass

    class Decompressor:  # as that of isal: without copies, and with an error of its own
        eof, unused_data = False, b""

        def __init__(self, wbits: int) -> None:
            self._own = zlib.decompressobj(wbits=wbits)

        def decompress(self, block: bytes) -> bytes:
            try:
                found = self._own.decompress(block)
            except zlib.error as exc:
                raise Error(str(exc)) from exc
            self.eof, self.unused_data = self._own.eof, self._own.unused_data
            return found

    packed = bytearray(TRACES["kineto"].read_bytes())
    path = tmp_path / "flipped.json.gz"
    for place in (len(packed) * 2 // 3, None):
        damaged = bytearray(packed)
        if place is not None:
            damaged[place] ^= 0xFF
        path.write_bytes(damaged)
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, "isal", None)
            expected = opcost.read_profile(path, partial=True).rows
        with monkeypatch.context() as patch:
            library = SimpleNamespace(decompressobj=Decompressor, error=Error)
            patch.setitem(sys.modules, "isal", SimpleNamespace(isal_zlib=library))  # type: ignore[arg-type]
            assert opcost.read_profile(path, partial=True).rows == expected


@pytest.mark.parametrize("word", ["NaN", "nan", "-nan", "Infinity", "-Infinity", "inf", "-inf"])
def test_a_number_that_is_none_among_the_arguments_loses_nothing(tmp_path: Path, word: str) -> None:
    path = write(
        tmp_path / "t.json", [operator("aten::add", n, 1, args={"x": [1, 2], "External id": n}) for n in range(3)]
    )
    text = path.read_text("utf-8")
    path.write_text(text.replace("[1, 2]", f"[{word}, {word}]").replace('"External id": 1', f'"External id": {word}'))
    assert [row.host_start_ns for row in opcost.read_profile(path).rows] == [0, 1000, 2000]


@pytest.mark.parametrize(("ts", "dur"), [(1e300, 1), (2**70, 1), (-(2**70), 1), (1, 2**70), (1, 1e300)])
@pytest.mark.parametrize("category", ["cpu_op", "kernel"])
def test_an_event_with_a_time_beyond_64_bits_is_left_out(tmp_path: Path, ts: float, dur: float, category: str) -> None:
    good = [operator("aten::add", n, 1) for n in range(3)]
    path = write(
        tmp_path / "t.json", [*good, operator("aten::mul", ts, dur, cat=category), operator("aten::sub", 9, 1)]
    )
    profile = opcost.read_profile(path)
    assert [row.type for row in profile.rows] == ["aten::add"] * 3 + ["aten::sub"]
    assert [note.text for note in profile.notes] == [
        "1 events are left out: 1 with a time beyond 64 bits of nanoseconds"
    ]


def test_many_bad_events_are_counted_by_what_is_wrong(tmp_path: Path) -> None:
    events = [operator("aten::add", n, 1) for n in range(5_000)]
    for n in range(0, 5_000, 100):
        events[n]["dur"] = "x"
        events[n + 50]["name"] = n
    profile = opcost.read_profile(write(tmp_path / "t.json", events))
    assert sum(row.count for row in profile.rows) == 4_900
    (said,) = [note.text for note in profile.notes]
    assert "100 events are left out: 50 with a wrong value in 'dur'" in said
    assert ", 50 with a wrong value in 'name'" in said


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ([], r"the list \"traceEvents\" is empty"),
        ([{"ph": "M", "name": "process_name"}], "none of its 1 events is an operator"),
        (
            [operator("aten::add", 1, "x"), 7],
            "2 events are left out: 1 with a wrong value in 'dur'.*1 that are no objects",
        ),
    ],
)
def test_a_trace_in_which_nothing_ran_is_an_error_that_says_so(tmp_path: Path, events: list[Any], said: str) -> None:
    with pytest.raises(SourceError, match=said):
        opcost.read_profile(write(tmp_path / "t.json", events))


def test_of_another_format_in_which_nothing_ran_too(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text('{"traceEvents": [{"ph": "M", "cat": "operator", "name": "cpu/0"}]}', encoding="utf-8")
    with pytest.raises(SourceError, match=r"t\.json: .*mxnet, it has neither an operator nor device work"):
        opcost.read_profile(path)


def test_a_duration_below_zero_counts_as_none_and_a_note_says_so(tmp_path: Path) -> None:
    profile = opcost.read_profile(
        write(tmp_path / "t.json", [operator("aten::add", 5, -2), operator("aten::mul", 9, 3)])
    )
    assert [(row.type, row.host_ns) for row in profile.rows] == [("aten::add", 0), ("aten::mul", 3000)]
    assert [note.code for note in profile.notes] == ["negative"]


@pytest.mark.parametrize("lost", ["ts", "dur"])
@pytest.mark.parametrize("known", [True, False], ids=["all categories known", "an unknown category among them"])
def test_events_without_their_times_are_left_out_with_a_note(tmp_path: Path, lost: str, *, known: bool) -> None:
    events = [operator("aten::add", n, 1) for n in range(3)]
    others = [] if known else [operator("mine", 7, 1, cat="my_own")]
    path = write(tmp_path / "t.json", [*events, *others])
    assert not opcost.read_profile(path).notes
    del events[1][lost]
    profile = opcost.read_profile(write(path, [*events, *others]))
    assert len(profile.rows) == 2
    assert [(note.code, note.text.split()[0]) for note in profile.notes] == [("untimed", "1")]
    for event in (events[0], events[2]):
        del event[lost]
    with pytest.raises(SourceError, match=r"t\.json: none of its 3 operators and kernels has a beginning"):
        opcost.read_profile(write(path, [*events, *others]))


def test_the_last_event_before_the_end_of_a_cut_file_is_kept_if_it_is_whole(tmp_path: Path) -> None:
    path = write(tmp_path / "t.json", [operator("aten::add", n, 1, args={"a": {"b": 1}}) for n in range(5)])
    text = path.read_text("utf-8")
    for lost, kept in ((2, 5), (3, 4), (1, 5)):
        path.write_text(text[:-lost], encoding="utf-8")
        assert len(opcost.read_profile(path, partial=True).rows) == kept


def test_a_list_of_the_same_name_inside_another_field_is_not_taken_for_the_events(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    fields = {"schemaVersion": 1, "note": '"traceEvents": [', "metadata": {"traceEvents": [{"ph": "X"}]}}
    path.write_text(json.dumps({**fields, "traceEvents": [operator("aten::add", 0, 1)]}), encoding="utf-8")
    assert [row.type for row in opcost.read_profile(path).rows] == ["aten::add"]


@pytest.mark.parametrize("isal", [True, False], ids=["isal", "zlib"])
@pytest.mark.parametrize("name", TRACES)
def test_bytes_behind_a_gzip_file_are_an_error_and_partial_reads_all_before_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, isal: bool
) -> None:
    if not isal:
        monkeypatch.setitem(__import__("sys").modules, "isal", None)
    path = tmp_path / "behind.json.gz"
    path.write_bytes(TRACES[name].read_bytes() + b"garbage")
    with pytest.raises(SourceError, match="7 bytes behind its compressed content"):
        opcost.read_profile(path)
    assert opcost.read_profile(path, partial=True).rows == opcost.read_profile(TRACES[name]).rows


@pytest.mark.parametrize("name", TRACES)
def test_a_gzip_file_of_several_members_and_padding_is_one_file(tmp_path: Path, name: str) -> None:
    content = plain(name)
    path = tmp_path / "parts.json.gz"
    path.write_bytes(
        b"".join(gzip.compress(content[n : n + 30_000]) for n in range(0, len(content), 30_000)) + bytes(512)
    )
    assert opcost.read_profile(path).rows == opcost.read_profile(TRACES[name]).rows


def test_a_damaged_byte_in_a_gzip_file_leaves_what_is_before_it(tmp_path: Path) -> None:
    packed = bytearray(TRACES["kineto"].read_bytes())
    packed[len(packed) * 2 // 3] ^= 0xFF
    path = tmp_path / "flipped.json.gz"
    path.write_bytes(packed)
    with pytest.raises(SourceError, match=r"flipped\.json\.gz"):
        opcost.read_profile(path)
    part = opcost.read_profile(path, partial=True)
    assert len(part.rows) > 0.3 * len(opcost.read_profile(TRACES["kineto"]).rows)


def test_brackets_without_an_end_are_not_counted_to_theirs() -> None:
    assert stream._end_of_value(b"[" * 2000 + b"]" * 2000, 0) is None
    assert stream._end_of_value(b"[" * 900 + b"]" * 900, 0) == 1800


def test_a_file_of_nothing_but_bad_events_is_no_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "MOST_FAULTS", 100)
    good = b'{"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": 1, "ts": 5, "dur": 2}'
    path = tmp_path / "trace.json"
    path.write_bytes(b'{"schemaVersion": 1, "traceEvents": [' + good + b",[]" * 100 + b"]}")
    assert len(opcost.read_profile(path).rows) == 1
    path.write_bytes(b'{"schemaVersion": 1, "traceEvents": [' + good + b",[]" * 101 + b"]}")
    with pytest.raises(OpcostError, match="more than 100 of its events are none, the first at byte"):
        opcost.read_profile(path)
