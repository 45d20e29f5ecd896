"""Reports and profiles whose every text is hostile: no view, command or message lets it steer a terminal or leave its cell."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from html_page import HtmlPage

import opcost
from opcost.core.escaping import csv_cell, json_text, markdown_text, printable
from opcost.core.graph import Cost, Note, TensorSpec
from opcost.core.profile import Answer, Kernel, ProfileRow
from opcost.core.report import Report
from opcost.core.schema import from_dict, to_dict
from opcost.profiles import Profile

DUMP = Path(__file__).resolve().parents[1] / "data/megengine/mge/mlp.v2.mge"
EVIL = (
    "=1+1|`<b onclick=x>'[red][/][/red]![i](u)\x1b]0;title\x07\x1b[2J\x9b31m\u202etxt\u2066\n| new | row |\n# head\r\t\x00"
    '\x7f\x85\u2028\ud800z\udcff",;\\|\ufeff&amp;'
)
TAME = printable(EVIL)
OURS = re.compile(r"\x1b\[[0-9;]*m")
"""The colours of the table itself."""


def assert_escaped(text: str, keep: str = "\n") -> None:
    assert text
    raw = {letter for letter in text if not letter.isprintable()} - set(keep)
    assert not raw, raw
    text.encode("utf-8")


def spoil(data: Any, word: str) -> Any:
    """The dictionaries of a report with the word in every text that is not one of a fixed few."""
    known = {path: ".".join(f"{part}{word}" for part in path.split(".")) for path in paths(data) if path}

    def name(text: str) -> str:
        path, dot, last = text.rpartition(".")
        return f"{known.get(path, path)}{dot}{last}{word}"

    data = json.loads(json.dumps(data))
    data["meta"] = {key: f"{value}{word}" for key, value in data["meta"].items()} | {f"x{word}": word, "device": word}
    for module in data["modules"]:
        module["path"] = known.get(module["path"], "")
        module["type"] = f"{word}{module['type']}"
        module["extra"] = f"{word}{module['extra']}"
        module["parameters"] = [name(each) for each in module["parameters"]]
    for parameter in data["parameters"]:
        parameter["names"] = [name(each) for each in parameter["names"]]
    for operator in data["operators"]:
        for field in ("kind", "raw", "rule"):
            operator[field] = f"{word}{operator[field]}"
        operator["attrs"] = {f"{key}{word}": word for key in operator["attrs"]} | {"mode": word}
    for given in data["inputs"]:
        given["name"] = f"{word}{given['name']}"
    data["operators"][0]["cost"] = None
    data["coverage"]["uncounted"] = [
        {
            "raw": f"{word}{place}",
            "count": place,
            "modules": [known.get(path, "") for path in paths(data)],
            "reason": word,
        }
        for place in (1, 2)
    ]
    data["notes"] = [{"code": word, "text": f"{word} note", "where": word}]
    return data


def paths(data: Any) -> list[str]:
    return [module["path"] for module in data["modules"]]


@pytest.fixture(scope="module")
def saved() -> dict[str, Any]:
    report = opcost.count(DUMP)
    used = replace(report.parameters[0], used=False, names=(*report.parameters[0].names, "other.name"))
    return to_dict(replace(report, parameters=(used, *report.parameters[1:])))


@pytest.fixture(scope="module")
def evil(saved: dict[str, Any]) -> Report:
    return from_dict(spoil(saved, EVIL))


@pytest.fixture(scope="module")
def tame(saved: dict[str, Any]) -> Report:
    return from_dict(spoil(saved, TAME))


def profile_with(word: str) -> Profile:
    spec = TensorSpec((2, 3), "float32")
    rows = tuple(
        ProfileRow(
            id=number, name=f"{word}{number}", type=f"{word}t{number % 2}", kind=word, module=f"{word}.{word}",
            device=f"{word}gpu", stream=word, provider=word, host_start_ns=number, host_ns=9, host_self_ns=9, device_ns=7,
            device_total_ns=7, kernels=(Kernel(f"{word}k", f"{word}gpu", word, 10 * number, 7, launched_ns=number),),
            ins=(spec,), outs=(spec,), attrs={word: word}, cost=Cost(1, 2, 3, 4), step=0,
        )
        for number in range(3)
    )  # fmt: skip
    return Profile(
        meta={"source": word, "format": word, word: word, "steps": "1", "overhead": word},
        rows=rows,
        unattributed=(Kernel(f"{word}lost", f"{word}gpu", word, 100, 5),),
        wall_ns=1000,
        timed_ns=(5, 6),
        notes=(Note(word, f"{word} said", word),),
    )


@pytest.fixture(scope="module")
def evil_profile() -> Profile:
    return profile_with(EVIL)


# -- the functions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "letter", ["\x00", "\x07", "\x1b", "\x7f", "\x9b", "\u202e", "\u2066", "\u200b", "\ufeff", "\udcff"]
)
def test_a_letter_that_steers_is_replaced(letter: str) -> None:
    assert printable(f"a{letter}b") == "a\ufffdb"


@pytest.mark.parametrize("letter", ["\n", "\r", "\t", "\x0b", "\x85", "\u2028", "\u00a0"])
def test_every_kind_of_space_is_a_blank_unless_it_is_kept(letter: str) -> None:
    assert printable(f"a{letter}b") == "a b"
    assert printable(f"a{letter}b\x1b", keep=letter) == f"a{letter}b\ufffd"


@pytest.mark.parametrize(
    "text",
    [
        "=1+1",
        "+1",
        "-1",
        "-2+3",
        "@SUM(A1)",
        "\t=1",
        "\r=1",
        "\n=1",
        "  =1",
        "'=1",
        '"=1',
        " ' \"=1",
        "＝1",
        "＋1",
        "－1",
        "＠x",
    ],
)
def test_a_cell_that_would_be_a_formula_is_marked_as_text(text: str) -> None:
    assert csv_cell(text) == f"'{printable(text)}"


@pytest.mark.parametrize("text", ["", "conv1", "a=1", "1x3x224x224", "1-2", "'quoted'", "über"])
def test_any_other_cell_stays(text: str) -> None:
    assert csv_cell(text) == text


def test_markup_has_no_meaning_in_markdown() -> None:
    assert markdown_text("a|b\\c*d_e`f<g>[h]#i~j&k") == r"a\|b\\c\*d\_e\`f&lt;g\>\[h\]\#i\~j\&k"


def test_json_keeps_what_it_escapes() -> None:
    data = {EVIL: [EVIL, "é–💡", "\U000e0041", "\x7f"]}
    text = json_text(data, indent=1)
    assert_escaped(text)
    assert json.loads(text) == data
    assert "é–💡" in text
    assert json_text({"a": 1}, separators=(",", ":")) == '{"a":1}'


# -- reports -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["module", "op", "kind", "type"])
@pytest.mark.parametrize("view", ["table", "text", "md"])
def test_a_report_of_hostile_names_is_drawn_as_one_of_tame_ones(evil: Report, tame: Report, view: str, by: str) -> None:
    text = evil.render(view, by=by)
    assert_escaped(text)
    assert text == tame.render(view, by=by)


def test_the_architecture_keeps_its_lines(evil: Report, tame: Report) -> None:
    text = evil.arch()
    assert_escaped(text)
    # What a module was made with may have lines of its own; nothing else may.
    lines = [replace(module, extra="") for module in evil.modules]
    assert len(replace(evil, modules=tuple(lines)).arch().splitlines()) == len(
        replace(tame, modules=tuple(replace(module, extra="") for module in tame.modules)).arch().splitlines()
    )


def test_markup_of_the_terminal_library_is_printed_as_it_is(evil: Report) -> None:
    text = evil.render("table", color=True, width=400)
    assert "[red][/][/red]" in text
    assert_escaped(OURS.sub("", text))


@pytest.mark.parametrize("by", ["module", "op", "kind", "type"])
def test_a_table_in_markdown_keeps_its_cells(evil: Report, by: str) -> None:
    tables = [part.splitlines() for part in evil.render("md", by=by).split("\n\n") if part.startswith("|")]
    assert len(tables) == 2
    for table in tables:
        assert len({len(re.findall(r"(?:\\.|[^|\\])*\|", line)) for line in table}) == 1
        assert not any("<b" in line or "![i](" in line for line in table)


@pytest.mark.parametrize("by", ["module", "op", "kind", "type"])
def test_a_spreadsheet_gets_texts_and_whole_rows(evil: Report, by: str) -> None:
    text = evil.render("csv", by=by)
    assert_escaped(text)
    head, *rows = csv.reader(io.StringIO(text))
    assert rows
    assert {len(row) for row in rows} == {len(head)}
    assert not [cell for row in rows for cell in row if cell.lstrip(" '\"")[:1] in tuple("=+-@") and cell[:1] != "'"]
    assert any(cell.startswith("'=1+1") for row in rows for cell in row)


@pytest.mark.parametrize("indent", [None, 2])
def test_json_has_the_true_names_and_reads_back(evil: Report, tmp_path: Path, indent: int | None) -> None:
    evil.save(tmp_path / "evil.json", indent=indent)
    assert_escaped((tmp_path / "evil.json").read_text(encoding="utf-8"))
    assert opcost.load_report(tmp_path / "evil.json") == evil
    assert EVIL in evil.modules[1].path


def test_a_log_for_tensorboard_can_be_read(evil: Report, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    file = evil.to_tensorboard(str(tmp_path))
    graph = EventAccumulator(file).Reload().Graph()
    texts = [node.name + node.op + node.device for node in graph.node]
    texts += [value.s.decode() for node in graph.node for value in node.attr.values()]
    assert any(TAME in text for text in texts)
    assert_escaped("".join(texts))
    assert_escaped(evil.render("tensorboard"))


# -- profiles ----------------------------------------------------------------------------------------------------------

QUESTIONS: dict[str, dict[str, Any]] = {
    "operators": {},
    "types": {"aggregate_by": ("type",)},
    "groups": {"group_by": ("module",), "aggregate_by": ("kernel",), "percentiles": (50,)},
}


def answers(profile: Profile) -> Iterator[Answer]:
    for options in QUESTIONS.values():
        yield profile.query(**options)


@pytest.mark.parametrize("view", ["table", "md"])
def test_a_profile_of_hostile_names_is_drawn_as_one_of_tame_ones(evil_profile: Profile, view: str) -> None:
    for evil, tame in zip(answers(evil_profile), answers(profile_with(TAME)), strict=True):
        text = evil.render(view)
        assert_escaped(text)
        assert text == tame.render(view)


def test_the_page_of_a_profile_holds_no_markup_but_its_own(evil_profile: Profile) -> None:
    for answer in answers(evil_profile):
        text = answer.render("html")
        assert_escaped(text, keep="\n\u00a0")
        assert "<b " not in text
        assert TAME in HtmlPage(text).data["title"]


def test_a_profile_in_a_spreadsheet_has_texts_and_whole_rows(evil_profile: Profile) -> None:
    for answer in answers(evil_profile):
        text = answer.render("csv")
        assert_escaped(text)
        head, *rows = csv.reader(io.StringIO(text))
        assert {len(row) for row in rows} == {len(head)}
        assert any(cell.startswith("'=1+1") for row in rows for cell in row)
        assert not [cell for row in rows for cell in row if cell[:1] in tuple("=+-@")]


def test_a_profile_as_json_has_the_true_names_and_reads_back(evil_profile: Profile, tmp_path: Path) -> None:
    evil_profile.save(tmp_path / "evil.json")
    assert_escaped((tmp_path / "evil.json").read_text(encoding="utf-8"))
    assert opcost.read_profile(tmp_path / "evil.json") == evil_profile
    for answer in answers(evil_profile):
        text = answer.render("json")
        assert_escaped(text)
        assert EVIL in json.loads(text)["meta"]


def test_ranks_of_hostile_names_are_read_and_kept(
    evil_profile: Profile, tmp_path: Path, opcost_command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("polars")
    monkeypatch.setattr("os.cpu_count", lambda: 1)  # no pool of processes
    traces, kept = tmp_path / "traces", tmp_path / "kept"
    traces.mkdir()
    for rank in range(2):
        evil_profile.save(traces / f"rank{rank}.json")
    first, again = (opcost_command("analyze", traces, "--rank-cache", kept) for _ in range(2))
    assert first.code == 0, first.err
    assert_escaped(first.out)
    assert first == again
    assert len(list(traces.iterdir())) == 2
    assert len(list(kept.iterdir())) == 1  # both have the same content


@pytest.mark.parametrize("layout", ["opcost", "megengine", "chrome"])
def test_every_layout_of_a_recording_can_be_written_and_read_back(
    layout: str,
    evil_profile: Profile,
    tmp_path: Path,
    opcost_command: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("opcost.cli.profile._recorded", lambda *args, **options: evil_profile)
    done = opcost_command("profile", "net.py:Net", "-o", tmp_path / "p.json", "--layout", layout)
    assert done.code == 0, done.err
    assert_escaped(done.out)
    text = (tmp_path / "p.json").read_text(encoding="utf-8")
    assert_escaped(text)
    names = [row.name for row in opcost.read_profile(tmp_path / "p.json").rows]
    expected = f"{EVIL}0"
    if layout == "chrome":  # which others read, who refuse half a character
        names = [event["name"] for event in json.loads(text)["traceEvents"]]
    if layout != "opcost":  # the formats of others are read with half a character replaced
        expected = re.sub("[\ud800-\udfff]", "\ufffd", expected)
    assert expected in names


# -- commands ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def files(evil: Report, evil_profile: Profile, saved: dict[str, Any], tmp_path: Path) -> dict[str, Path]:
    evil.save(tmp_path / "report.json")
    evil_profile.save(tmp_path / "profile.json")
    from_dict(saved).save(tmp_path / "plain.json")
    profile_with("x").save(tmp_path / "other.json")
    return {name.upper(): tmp_path / f"{name}.json" for name in ("report", "profile", "plain", "other")}


@pytest.mark.parametrize(
    "line",
    [
        *(f"count REPORT --format {view}" for view in ("table", "text", "arch", "json", "csv", "md", "tensorboard")),
        *(f"count REPORT --by {by}" for by in ("op", "kind", "type")),
        "count REPORT --top 2",
        *(f"check REPORT PLAIN --max-macs 1K --format {view}" for view in ("table", "md", "csv", "json", "html")),
        *(f"compare --changes REPORT PLAIN --format {view}" for view in ("table", "md", "csv", "json", "html")),
        *(f"compare PROFILE OTHER --format {view}" for view in ("table", "md", "csv", "json", "html")),
        *(f"compare REPORT PLAIN --by {by} --depth all" for by in ("kind", "module")),
        *(f"compare REPORT PLAIN --by module --format {view}" for view in ("md", "csv", "json", "html")),
        "visualize REPORT --all --log_path LOG",
        "analyze PROFILE",
        *(f"analyze PROFILE --format {name}" for name in ("table", "json", "csv", "md", "megengine")),
        "analyze PROFILE --show-host --aggregate-by type",
        "analyze PROFILE --print-only summary",
        "analyze PROFILE --format megengine --confluence",
        "analyze PROFILE --format megengine --dump-only-opr",
        "analyze PROFILE --format megengine --aggregate-by type",
        "analyze PROFILE --model REPORT",
        "doctor",
        "rules",
    ],
)
def test_no_command_prints_what_steers_a_terminal(
    line: str,
    files: dict[str, Path],
    tmp_path: Path,
    opcost_command: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("opcost.installed.LIBRARIES", ("rich",))  # a new process imports each of them
    files["LOG"] = tmp_path / "log"
    done = opcost_command(*(files.get(word, word) for word in line.split()))
    assert done.code in (0, 1), done.err
    # An amount keeps its unit on a page, and a terminal gets ordinary spaces.
    assert_escaped(done.out, keep="\n\u00a0" if "html" in line else "\n")
    assert_escaped(f"{done.err}\n")


@pytest.mark.parametrize(
    "words", ["--format megengine --confluence", "--format megengine --confluence --aggregate-by type"]
)
def test_a_table_for_a_wiki_keeps_its_cells(
    words: str, files: dict[str, Path], opcost_command: Callable[..., Any]
) -> None:
    done = opcost_command("analyze", files["PROFILE"], "--print-only", "device", *words.split())
    lines = done.out.splitlines()
    rows = [line for line in lines if line.startswith("| ")]
    assert len({len(re.findall(r"(?<!\\)\|", line)) for line in rows}) == 1


@pytest.mark.parametrize("command", ["count", "analyze", "compare", "check", "profile", "visualize", "rules", "bad"])
def test_no_message_steers_a_terminal(command: str, tmp_path: Path, opcost_command: Callable[..., Any]) -> None:
    name = EVIL.replace("\x00", "").replace("/", "").replace("\ud800", "")
    words = {"compare": (name, name), "check": (name, "--max-macs", "1"), "profile": (name, "-o", tmp_path / "x.json")}
    done = opcost_command(command, *words.get(command, (name,)))
    assert done.code == 2, done.err
    assert_escaped(done.err)
    (tmp_path / name).write_text(json.dumps({"schema": EVIL}))
    done = opcost_command(command, *(tmp_path / word if word == name else word for word in words.get(command, (name,))))
    assert done.code == 2, done.err
    assert_escaped(done.err)
    done = opcost_command("count", tmp_path / name, "-o", tmp_path / f"{name}.{name}")
    assert done.code == 2
    assert_escaped(done.err)


def test_a_plug_in_cannot_steer_the_terminal(
    opcost_command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = EntryPoint(EVIL, f"nothing{EVIL}", "opcost.views")
    monkeypatch.setattr("opcost.installed.find", lambda group: {EVIL: entry})
    monkeypatch.setattr("opcost.installed.LIBRARIES", ())
    done = opcost_command("doctor")
    assert done.code == 2
    assert_escaped(done.out)
    assert "CANNOT BE LOADED" in done.out
