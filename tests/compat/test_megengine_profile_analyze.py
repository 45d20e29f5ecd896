"""MegEngine's `profile_analyze`: its text character by character, and an answer where it stops."""

from __future__ import annotations

import gzip
import json
import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from opcost.compat.megengine.profile_analyze import main, pairwise_sum
from opcost.core.graph import Cost, TensorSpec
from opcost.core.profile import Kernel, Profile, ProfileRow

DATA = Path(__file__).resolve().parent.parent / "data" / "megengine"
CASES: dict[str, dict[str, Any]] = json.loads(gzip.decompress((DATA / "profile_analyze.json.gz").read_bytes()))
RESNET = "resnet18_full.json"


def profile(name: str) -> Path:
    return DATA / "profile" / f"{name}.gz"


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """What the tool prints for a profile and options."""

    def call(name: str | Path, *options: str) -> str:
        capsys.readouterr()
        main([str(profile(name) if isinstance(name, str) else name), *options])
        return capsys.readouterr().out

    return call


def raw(name: str) -> dict[str, Any]:
    return json.loads(gzip.decompress(profile(name).read_bytes()))


def changed(tmp_path: Path, name: str, change: Callable[[dict[str, Any]], None]) -> Path:
    data = raw(name)
    change(data)
    path = tmp_path / "changed.json"
    path.write_text(json.dumps(data))
    return path


def names_of(text: str) -> list[str]:
    """First words of the lines that `--dump-only-opr` prints below the summary."""
    return text.split("\n\n", 1)[1].splitlines()


@pytest.mark.parametrize("case", CASES)
def test_the_text_is_that_of_the_real_tool(case: str, printed: Callable[..., str]) -> None:
    expected = CASES[case]
    assert printed(expected["profile"], *expected["options"]) == expected["stdout"]


@pytest.mark.parametrize("case", CASES)
def test_opcost_analyze_prints_the_same_text(case: str, opcost_command: Callable[..., Any]) -> None:
    expected = CASES[case]
    found = opcost_command("analyze", profile(expected["profile"]), *expected["options"])
    assert found.code == 0, found.err
    assert found.out == expected["stdout"]


@pytest.mark.parametrize("column", ["FLOPS", "Flops", "flops"])
def test_a_column_is_known_in_any_capitals(column: str, printed: Callable[..., str]) -> None:
    assert printed(RESNET, "-t", "3", "--order-by", column) == CASES["order_flops.repaired"]["stdout"]


def test_the_running_sum_is_sorted_like_the_time(printed: Callable[..., str]) -> None:
    assert printed(RESNET, "-t", "3", "--order-by", "cumulative") == CASES["order_time"]["stdout"]


@pytest.mark.parametrize("column", ["computation", "flops"])
@pytest.mark.parametrize("sign", ["", "+"])
def test_operators_without_a_value_come_last_in_both_directions(
    column: str, sign: str, printed: Callable[..., str]
) -> None:
    data = raw(RESNET)
    footprints = data["profiler"]["opr_footprint"]
    ids = [
        line.rpartition(" ")[2]
        for line in names_of(printed(RESNET, "-t", "0", "--dump-only-opr", "--order-by", sign + column))
    ]
    known = [bool(footprints[number]["computation"]) for number in ids]
    assert len(ids) == len(data["profiler"]["device"])
    assert known == sorted(known, reverse=True)
    assert not all(known)


def test_shapes_sort_in_both_directions(printed: Callable[..., str]) -> None:
    data = raw(RESNET)
    ids = [
        line.rpartition(" ")[2]
        for line in names_of(printed(RESNET, "-t", "0", "--dump-only-opr", "--order-by", "in_shapes"))
    ]
    shapes = [data["profiler"]["opr_footprint"][number]["in_shapes"] for number in ids]
    assert shapes == sorted(shapes, reverse=True)


def test_aggregating_by_type_alone_is_a_sum(printed: Callable[..., str]) -> None:
    options = ("-t", "5", "--aggregate-by", "type")
    assert printed(RESNET, *options) == printed(RESNET, *options, "--aggregate", "sum")


def test_names_of_aggregated_operators_can_be_printed(printed: Callable[..., str]) -> None:
    operators = raw(RESNET)["graph_exec"]["operator"]
    ran = raw(RESNET)["profiler"]["device"]
    convolutions = sum(operators[number]["type"] == "ConvolutionForward" for number in ran)
    lines = names_of(printed(RESNET, "--dump-only-opr", "-t", "1", "--aggregate-by", "type", "--aggregate", "sum"))
    assert lines == [f"ConvolutionForward {convolutions} N/A"]


def test_a_wiki_table_without_a_row_has_its_header(printed: Callable[..., str]) -> None:
    table = printed(RESNET, "--confluence", "--type", "NoSuchOpr").split("\n\n")[1].splitlines()
    assert len(table) == 2
    assert [word.strip() for word in table[0].strip("|").split("|")][6:9] == ["opr name", "opr type", "opr id"]


def test_strides_are_on_a_line_of_their_own_in_a_wiki_table(tmp_path: Path, printed: Callable[..., str]) -> None:
    def stride(data: dict[str, Any]) -> None:
        operators = data["graph_exec"]["operator"]
        for number, footprint in data["profiler"]["opr_footprint"].items():
            if operators[number]["type"] == "MatrixMul":
                operators[number]["name"] = " padded "
                footprint["in_layouts"] = [[8, 1], None]

    path = changed(tmp_path, "mlp.v2.json", stride)
    lines = printed(path, "--wiki", "--type", "MatrixMul", "-t", "1", "--print-only", "device").splitlines()
    assert len(lines) == 4
    assert len(set(map(len, lines))) == 1
    cells = [[cell[1:-1] for cell in line.strip("|").split("|")] for line in lines[2:]]
    first, second = cells
    assert first[6].rstrip() == "padded"
    left, right = first[-2].rstrip(), second[-2].rstrip()
    assert left.startswith("{")
    assert right.startswith(" -[8,1], {")
    assert not any(cell.strip() for cell in second[:-2] + second[-1:])


def test_copy_times_are_missing_where_nothing_is_copied(printed: Callable[..., str]) -> None:
    lines = printed(RESNET, "--copy-time", "--print-only", "summary").splitlines()
    assert [line.split() for line in lines if line.startswith("copy")] == [
        ["copy", "time", "N/A"],
        ["copy", "wait", "time", "N/A"],
    ]


@pytest.mark.parametrize("word", ["Float32", "float32"])
def test_an_element_type_selects_operators_that_read_it(word: str, printed: Callable[..., str]) -> None:
    data = raw("mlp.v2.json")
    operators = data["graph_exec"]["operator"]
    ran = [operators[number] for number in data["profiler"]["device"]]
    reading = {entry["id"] for entry in ran if entry["input"]}
    ids = {
        line.rpartition(" ")[2]
        for line in names_of(printed("mlp.v2.json", "-t", "0", "--dump-only-opr", "--input-dtype", word))
    }
    # A flattening also reads the constant of its shape; every input of this net is float32 or such a constant.
    assert ids == reading
    assert (
        printed("mlp.v2.json", "-t", "0", "--dump-only-opr", "--input-dtype", "Float16").split("\n\n")[1].strip() == ""
    )


def test_a_profile_whose_device_took_no_time_has_no_shares(tmp_path: Path, printed: Callable[..., str]) -> None:
    def stop_the_clock(data: dict[str, Any]) -> None:
        for places in data["profiler"]["device"].values():
            for times in places.values():
                times["kern"] = times["end"] = times["start"]

    text = printed(changed(tmp_path, "mlp.v2.json", stop_the_clock), "-t", "1")
    assert re.search(r"total device time\s+0\s*\n", text)
    assert "│ N/A " in text


def test_a_wrong_regular_expression_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main([str(profile(RESNET)), "--opr-name", "("])
    assert left.value.code == 2
    assert "'(' is not a regular expression" in capsys.readouterr().err


def test_a_file_that_is_no_profile_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "notes.json"
    path.write_text("[1, 2]")
    with pytest.raises(SystemExit) as left:
        main([str(path)])
    assert left.value.code == 2
    assert str(path) in capsys.readouterr().err


@pytest.mark.parametrize("options", [(), ("-t", "0"), ("-t", "-2")])
def test_top_is_a_slice(options: Sequence[str], printed: Callable[..., str]) -> None:
    every = names_of(printed(RESNET, "-t", "0", "--dump-only-opr"))
    expected = {(): every[:3], ("-t", "0"): every, ("-t", "-2"): every[:-2]}[tuple(options)]
    assert names_of(printed(RESNET, "--dump-only-opr", *options)) == expected


def test_sums_are_those_of_numpy() -> None:
    numpy = pytest.importorskip("numpy")
    generator = numpy.random.default_rng(0)
    for count in (*range(20), 127, 128, 129, 136, 500, 1000, 4097):
        numbers = generator.random(count).tolist()
        assert pairwise_sum(numbers) == float(numpy.sum(numbers))


def test_any_trace_is_answered_in_megengines_text(tmp_path: Path) -> None:
    from opcost.analysis.query import Question
    from opcost.compat.megengine.profile_analyze import analyze

    spec = TensorSpec((2, 3))
    row = ProfileRow(
        id=7,
        name="fc",
        type="Gemm",
        kind="matmul",
        device_ns=2_000_000,
        host_self_ns=1_000_000,
        ins=(spec,),
        outs=(spec,),
        cost=Cost(macs=500, flops=1000, bytes_read=600, bytes_written=424),
    )
    text = analyze(
        Profile(meta={}, rows=(row,), unattributed=(Kernel("k", "gpu", "7", 0, 1_000_000),)), Question(top=0)
    )
    assert "total device time  0.003" in text
    # 1000 FLOP in 2 ms, 1024 bytes in 2 ms.
    assert f"{1000 / 2e-3 / 1000:.2f}" in text
    assert f"{1024 / 2e-3 / 1024:.2f}" in text
    assert "{2,3}" in text
    assert "(unattributed)" in text
    assert math.isclose(0.003, sum((2e-3, 1e-3)))
