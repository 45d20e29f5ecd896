"""`opcost analyze` and `opcost diff` of profiles."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from html_page import HtmlPage, column

import opcost

DATA = Path(__file__).resolve().parent.parent / "data" / "megengine" / "profile"
RESNET = DATA / "resnet18_full.json.gz"
TIMELINE = DATA / "timeline.json.gz"


def answer(text: str) -> dict[str, Any]:
    return json.loads(text)


@pytest.fixture
def analyzed(opcost_command: Callable[..., Any]) -> Callable[..., dict[str, Any]]:
    """The answer as data."""

    def call(path: Path, *words: str) -> dict[str, Any]:
        found = opcost_command("analyze", path, "--format", "json", *words)
        assert found.code == 0, found.err
        return answer(found.out)

    return call


def rows(data: dict[str, Any]) -> list[dict[str, Any]]:
    return [line for line in data["lines"] if line["role"] == "row"]


def test_lines_add_up_to_the_device_time_of_the_file(analyzed: Callable[..., dict[str, Any]]) -> None:
    raw = json.loads(gzip.decompress(RESNET.read_bytes()))
    spans = [times for places in raw["profiler"]["device"].values() for times in places.values()]
    total = sum(round((times["end"] - times["start"]) * 1e6) * 1000 for times in spans)
    for key in ("type", "kind", "module", "shape", "kernel", "device", "phase"):
        data = analyzed(RESNET, "--aggregate-by", key, "-t", "0")
        assert sum(line["time_ns"] for line in rows(data)) == total == data["total_ns"]


def test_several_keys_may_be_one_word_or_several_options(analyzed: Callable[..., dict[str, Any]]) -> None:
    together = analyzed(RESNET, "--aggregate-by", "type,kind", "-t", "0")
    apart = analyzed(RESNET, "--aggregate-by", "type", "--aggregate-by", "kind", "-t", "0")
    assert together == apart
    assert together["keys"] == ["type", "kind"]


def test_a_bound_without_a_unit_is_in_seconds(analyzed: Callable[..., dict[str, Any]]) -> None:
    bare = analyzed(RESNET, "--min-time", "0.01", "-t", "0")
    assert bare == analyzed(RESNET, "--min-time", "10ms", "-t", "0")
    assert rows(bare)
    assert all(line["time_ns"] >= 10_000_000 for line in rows(bare))


KINETO = DATA.parents[1] / "traces" / "kineto" / "cuda_fwd_stack.json.gz"


def test_operators_without_names_are_one_line_per_type_unless_executions_are_requested(
    analyzed: Callable[..., dict[str, Any]], opcost_command: Callable[..., Any]
) -> None:
    by_operator, by_execution = analyzed(KINETO, "-t", "0"), analyzed(KINETO, "-t", "0", "--executions")
    assert by_operator["keys"] == ["type"]
    assert by_execution["keys"] == []
    assert len(rows(by_operator)) < len(rows(by_execution))
    assert by_operator["lines"][-1]["time_ns"] == by_execution["lines"][-1]["time_ns"]
    assert {line["type"] for line in rows(by_operator)} == {line["type"] for line in rows(by_execution)}
    said = opcost_command("analyze", KINETO).out.splitlines()
    assert any(line.startswith("gpu:0: busy") for line in said[: said.index("")])
    summary = opcost_command("analyze", KINETO, "--print-only", "summary", "--width", "60").out
    assert "gpu:0: busy" in summary
    assert max(map(len, summary.splitlines())) <= 60


def test_where_and_the_options_say_the_same(analyzed: Callable[..., dict[str, Any]]) -> None:
    by_options = analyzed(RESNET, "--kind", "conv", "--min-time", "10ms", "-t", "0")
    by_condition = analyzed(RESNET, "--where", 'kind == "conv" and time >= 10ms', "-t", "0")
    assert rows(by_options) == rows(by_condition)


def test_megengines_words_work_on_another_trace(
    opcost_command: Callable[..., Any], analyzed: Callable[..., Any]
) -> None:
    for words in (
        ("--order-by", "+FLOPS"),
        ("--order-by", "cumulative"),
        ("--opr-name", "layers"),
        ("--type", "Convolution"),
        ("--top-end-key", "kern"),
        ("--input-dtype", "Float32"),
    ):
        assert rows(analyzed(TIMELINE, *words)), words
    for words in (
        ("--confluence",),
        ("--dump-only-opr",),
        ("--copy-time",),
        ("--show-host",),
        ("--print-only", "summary"),
    ):
        found = opcost_command("analyze", TIMELINE, *words)
        assert found.code == 0, found.err
        assert found.out.strip()


def test_show_host_adds_the_hosts_table_and_print_only_leaves_the_rest_out(opcost_command: Callable[..., Any]) -> None:
    both = opcost_command("analyze", TIMELINE, "--show-host").out
    assert ("device time" in both, "host time  " in both) == (True, True)
    sides = answer(opcost_command("analyze", TIMELINE, "--show-host", "--format", "json").out)
    assert [side["side"] for side in sides] == ["device", "host"]
    host = opcost_command("analyze", TIMELINE, "--print-only", "host", "--format", "json").out
    assert answer(host)["side"] == "host"


def test_the_suffix_of_the_output_chooses_the_format(tmp_path: Path, opcost_command: Callable[..., Any]) -> None:
    for suffix in ("json", "csv", "md", "txt"):
        path = tmp_path / f"answer.{suffix}"
        found = opcost_command("analyze", RESNET, "--aggregate-by", "kind", "-o", path)
        assert (found.code, found.out) == (0, "")
        assert path.read_text(encoding="utf-8")
    assert answer((tmp_path / "answer.json").read_text(encoding="utf-8"))["keys"] == ["kind"]
    records = list(csv.DictReader(io.StringIO((tmp_path / "answer.csv").read_text(encoding="utf-8"))))
    assert records[-1]["role"] == "total"
    assert (
        (tmp_path / "answer.md").read_text(encoding="utf-8").startswith("**resnet18\\_full.json.gz: 216 ms, busy 96 %")
    )


def test_measured_peaks_take_the_place_of_published_ones(analyzed: Callable[..., dict[str, Any]]) -> None:
    data = analyzed(RESNET, "--aggregate-by", "kind", "--peak-flops", "1G", "--peak-bandwidth", "1TB")
    (conv,) = [line for line in rows(data) if line["kind"] == "conv"]
    assert conv["of_peak_flops"] == conv["flops"] / 1e9
    assert conv["above_peak"]
    assert "above_peak" in {note["code"] for note in data["notes"]}


def test_a_saved_report_gives_its_modules(
    tmp_path: Path, opcost_command: Callable[..., Any], analyzed: Callable[..., Any]
) -> None:
    source = tmp_path / "net.py"
    source.write_text(
        "from torch import nn\n"
        "def net():\n"
        "    return nn.Sequential(nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False))\n"
    )
    report = tmp_path / "report.json"
    assert opcost_command("count", f"{source}:net", "-i", "1x3x224x224", "-o", report, "-q").code == 0
    for words in (("--model", str(report)), ("--model", f"{source}:net", "-i", "1x3x224x224")):
        data = analyzed(TIMELINE, "--aggregate-by", "module", "--kind", "conv", "-t", "0", *words)
        # The first convolution of the trace has the shapes of the model's only one.
        assert "0" in {line["module"] for line in rows(data)}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--aggregate-by", "colour"), "colour"),
        (("--order-by", "colour"), "colour"),
        (("--where", "time > 1"), "cannot be compared"),
        (("--kind", "convolution"), "conv"),
        (("--device", "abacus"), "abacus"),
        (("--percentiles", "many"), "percentiles"),
        (("--min-time", "soon"), "soon"),
        (("--format", "megengine", "--kind", "conv"), "--kind"),
        (("--format", "megengine", "--aggregate-by", "module"), "module"),
        (("--columns", "colour", "--format", "table"), "colour"),
        (("--device", "h200", "--peak-flops", "1T"), "both"),
        (("--opr-name", "("), "regular expression"),
    ],
)
def test_what_is_not_understood_is_one_message(
    words: tuple[str, ...], said: str, opcost_command: Callable[..., Any]
) -> None:
    found = opcost_command("analyze", RESNET, *words)
    assert (found.code, found.out) == (2, "")
    assert said in found.err
    assert "Traceback" not in found.err


def test_without_a_file_or_with_a_missing_one_there_is_one_message(
    tmp_path: Path, opcost_command: Callable[..., Any]
) -> None:
    assert opcost_command("analyze").code == 2
    found = opcost_command("analyze", tmp_path / "nothing.json")
    assert found.code == 2
    assert "nothing.json" in found.err


def test_diff_compares_two_profiles(opcost_command: Callable[..., Any]) -> None:
    same = opcost_command("compare", "--changes", RESNET, RESNET)
    assert same.code == 0
    assert "no difference" in same.out.split("\n")[0]
    both = (DATA / "resnet18_slim.v2.json.gz", DATA / "lite_resnet18_slim.v2.json.gz")
    found = opcost_command("compare", "--changes", *both, "--top", "2", "--width", "100", "--by", "shape")
    assert found.code == 0
    lines = found.out.splitlines()
    (total,) = [line for line in lines if line.startswith("device time")]
    assert total.count("ms") == 3
    begin = next(place for place, line in enumerate(lines) if line.startswith("module  "))
    end = next(place for place, line in enumerate(lines) if line.startswith("and "))
    assert end - begin == len(("heads", "rule")) + 2
    assert lines[end + 2].startswith("the 3 largest changes are ")
    assert all(len(line) <= 100 for line in lines)


def test_a_diff_of_profiles_fails_only_with_fail_if(opcost_command: Callable[..., Any]) -> None:
    both = (DATA / "resnet18_slim.v2.json.gz", DATA / "lite_resnet18_slim.v2.json.gz")
    found = opcost_command("compare", "--changes", *both, "--format", "json")
    assert found.code == 0
    total, *_ = [line for line in json.loads(found.out)["lines"] if line["part"] == "total"]
    before, after = total["amounts"]
    assert before != after
    assert sum(line["difference"] for line in json.loads(found.out)["lines"] if line["quantity"] == "time") == (
        2 * (after - before)  # the whole, and the sum of all changes
    )
    assert opcost_command("compare", "--changes", *both, "--fail-if", f"time>{after - 1}ns").code == 1
    assert opcost_command("compare", "--changes", *both, "--fail-if", f"time>{after}ns").code == 0
    wrong = opcost_command("compare", "--changes", *both, "--fail-if", "tiem>1ns")
    assert (wrong.code, "did you mean 'time'" in wrong.err) == (2, True)


def test_several_files_are_ranks(tmp_path: Path, opcost_command: Callable[..., Any]) -> None:
    pytest.importorskip("polars")
    for rank in (0, 1):
        (tmp_path / f"rank{rank}.json.gz").write_bytes(TIMELINE.read_bytes())
    one = answer(opcost_command("analyze", TIMELINE, "--format", "json", "--aggregate-by", "kind", "-t", "0").out)
    found = opcost_command("analyze", tmp_path, "--format", "json", "--aggregate-by", "rank", "-t", "0", "-q")
    assert found.code == 0, found.err
    both = answer(found.out)
    assert {line["rank"]: line["time_ns"] for line in rows(both)} == {"0": one["total_ns"], "1": one["total_ns"]}
    assert both["total_ns"] == 2 * one["total_ns"]


def test_a_large_trace_is_added_up_while_it_is_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, analyzed: Callable[..., dict[str, Any]]
) -> None:
    from opcost.traces.kineto import reader

    events = [
        {
            "ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 10.0 * place, "dur": 4.0,
            "args": {"External id": place, "Input Dims": [[16, 32], [32, 8]], "Input type": ["float", "float"]},
        }
        for place in range(5)
    ]  # fmt: skip
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    whole = analyzed(path, "--aggregate-by", "type")
    monkeypatch.setattr(reader, "LARGE_BYTES", 0)
    quick = analyzed(path, "--aggregate-by", "type")
    (line,) = rows(quick)
    assert (line["count"], line["time_ns"], line["computation"]) == (5, 5 * 4000, 5 * 2 * 16 * 32 * 8)
    assert rows(whole) == rows(quick)
    assert [row.count for row in opcost.read_profile(path).rows] == [5], "Python and the command read alike"


@pytest.mark.parametrize("words", [("--format", "html"), ("-o", "page.html")])
def test_a_page_shows_every_operator(
    words: tuple[str, ...], tmp_path: Path, opcost_command: Callable[..., Any]
) -> None:
    wanted = [str(tmp_path / word) if word.endswith(".html") else word for word in words]
    found = opcost_command("analyze", RESNET, *wanted)
    assert found.code == 0, found.err
    text = found.out or (tmp_path / "page.html").read_text()
    ran = json.loads(gzip.decompress(RESNET.read_bytes()))["profiler"]["device"]
    assert text.startswith("<!DOCTYPE html>")
    data = HtmlPage(text).data
    table, *_ = data["tables"]  # others tell of devices as a whole
    assert table["count"] - len(table["roles"]) == len(ran)
    assert sum(column(data["ops"], "repeat")) == len(ran)


def test_what_is_before_the_damage_is_reported_beside_megengines_text(
    tmp_path: Path, opcost_command: Callable[..., Any]
) -> None:
    whole = gzip.decompress(RESNET.read_bytes())
    path = tmp_path / "cut.json"
    path.write_bytes(whole[: len(whole) // 2])
    refused = opcost_command("analyze", path)
    assert refused.code == 2
    assert "--partial" in refused.err
    found = opcost_command("analyze", path, "--partial", "--print-only", "summary")
    assert found.code == 0
    assert "total device time  0.207685" in found.out
    assert "this is what is before it" in found.err


def test_a_profile_is_not_compared_with_a_model(opcost_command: Callable[..., Any]) -> None:
    found = opcost_command("compare", "--changes", RESNET, "timm:resnet18")
    assert found.code == 2
    assert f"{RESNET} is a profile, which is compared with one other profile" in found.err


def test_an_unknown_column_is_reported_with_the_known_ones(opcost_command: Callable[..., Any]) -> None:
    done = opcost_command("analyze", RESNET, "--columns", "shar", "--executions")
    assert done.code == 2
    assert "did you mean 'share'?" in done.err
    assert "columns: " in done.err
    assert "computation" in done.err
