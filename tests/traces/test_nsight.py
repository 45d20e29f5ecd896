"""Exports of Nsight Systems: real ones against what `nsys stats` says of them, and ones made to do harm."""

from __future__ import annotations

import csv
import gzip
import re
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

import opcost
from opcost.core.profile import ProfileRow
from opcost.errors import SourceError

DATA = Path(__file__).parent.parent / "data" / "traces" / "nsight"


def table(report: str) -> Iterator[dict[str, str]]:
    with (DATA / f"operators.{report}.csv").open(encoding="utf-8") as file:
        yield from csv.DictReader(line for line in file if line.strip())


@pytest.fixture(scope="module")
def operators() -> opcost.Profile:
    return opcost.read_profile(DATA / "operators.sqlite.gz")


def launched(rows: tuple[ProfileRow, ...]) -> list[tuple[str, int]]:
    return [(kernel.name, kernel.duration_ns) for row in rows for kernel in row.kernels]


def test_kernels_are_those_of_the_tool_s_own_summary(operators: opcost.Profile) -> None:
    spent: defaultdict[str, list[int]] = defaultdict(list)
    for name, duration in launched(operators.rows):
        if not name.startswith("Mem"):
            spent[name].append(duration)
    expected = {row["Name"]: (int(row["Total Time (ns)"]), int(row["Instances"])) for row in table("cuda_gpu_kern_sum")}
    assert {name: (sum(times), len(times)) for name, times in spent.items()} == expected
    assert not operators.unattributed


def test_copies_move_what_the_tool_says(operators: opcost.Profile) -> None:
    expected = {
        row["Operation"]: (int(row["Count"]), float(row["Total (MB)"])) for row in table("cuda_gpu_mem_size_sum")
    }
    words = {"HtoD": "memcpy Host-to-Device", "DtoD": "memcpy Device-to-Device", "Memset": "memset"}
    copies = [(copy, next(word for word in words if word in copy["name"])) for copy in operators.extra["copies"]]
    assert len(copies) == len(expected)
    for copy, word in copies:
        assert (copy["number"], round(copy["bytes"] / 1e6, 3)) == expected[f"[CUDA {words[word]}]"]
    assert next(copy["bytes"] for copy, word in copies if word == "HtoD") == 3 * 4 * (
        4 * 3 * 32 * 32
    )  # float32, 3 steps


def test_ranges_have_the_times_and_the_device_work_that_the_tool_gives_them(operators: opcost.Profile) -> None:
    def bare(text: str) -> str:
        return re.sub(r"(, seq = \d+)?, op_id = .*", "", text.removeprefix(":"))

    times: Counter[str] = Counter()
    for row in table("nvtx_sum"):
        times[bare(row["Range"])] += int(row["Total Time (ns)"])
    ours: Counter[str] = Counter()
    for row in operators.rows:
        if row.provider == "nvtx":
            ours[row.type] += row.host_ns or 0
    twice = {"aten::div", "aten::mean", "aten::mul"}  # dispatched twice under one name, which is one execution
    assert {name for name in times if ours[name] != times[name]} == twice
    assert set(ours) == set(times)
    with_work = {bare(row["Range"]) for row in table("nvtx_gpu_proj_sum")}
    assert {row.type for row in operators.rows if row.device_total_ns and row.provider == "nvtx"} == with_work


def test_gradients_are_of_the_backward_pass_and_devices_have_names(operators: opcost.Profile) -> None:
    phases = {row.type: row.phase for row in operators.rows}
    assert phases["aten::convolution_backward"] == "backward"
    assert phases["aten::cudnn_convolution"] == "forward"
    assert operators.meta["device"] == "NVIDIA H200"
    assert operators.meta["format"] == "nsight"
    kinds = {row.type: row.kind for row in operators.rows}
    assert kinds["aten::addmm"] == "matmul"


def test_ranges_that_repeat_are_steps(operators: opcost.Profile) -> None:
    device = operators.extra["devices"][0]
    times = sorted(int(row["Total Time (ns)"]) for row in table("nvtx_sum") if row["Range"].startswith(":step "))
    assert (device["steps"], device["first_step_ns"]) == (3, times[-1])  # the first one took longest
    assert (device["least_step_ns"], device["most_step_ns"]) == (times[0], times[1])


def test_a_graph_belongs_to_the_range_that_launched_it_whole_or_node_by_node() -> None:
    for name, each in (("graph", 1), ("graph_nodes", 3)):  # two products and a relu
        profile = opcost.read_profile(DATA / f"{name}.sqlite.gz")
        assert {row.type: len(row.kernels) for row in profile.rows if row.kernels} == {
            f"replay {number}": each for number in range(3)
        }


def test_an_unpacked_export_is_the_same_and_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "a#b %20?.bin"
    path.write_bytes(content := gzip.decompress((DATA / "steps.sqlite.gz").read_bytes()))
    packed = opcost.read_profile(DATA / "steps.sqlite.gz")
    assert opcost.read_profile(path).rows == packed.rows
    assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


KERNELS = "start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER, correlationId INTEGER, shortName INTEGER"


def export(path: Path, *rows: tuple[object, ...], kernels: str = KERNELS) -> Path:
    with sqlite3.connect(path) as base:
        base.execute("PRAGMA page_size = 512")
        base.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)")
        base.execute("INSERT INTO StringIds VALUES (1, 'gemm')")
        base.execute(f"CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL ({kernels})")
        marks = ",".join("?" * len(kernels.split(",")))
        base.executemany(f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({marks})", rows)
    base.close()
    return path


def test_blocks_for_each_multiprocessor_are_those_of_the_grid(tmp_path: Path) -> None:
    row = (10, 30, 0, 7, 1, 1)
    path = export(
        tmp_path / "a.sqlite",
        (*row, 33, 2, 4),
        (*row, 33, None, 4),
        kernels=f"{KERNELS}, gridX INT, gridY INT, gridZ INT",
    )
    assert {kernel.blocks_per_sm for kernel in opcost.read_profile(path).unattributed} == {None}
    with sqlite3.connect(path) as base:
        base.execute("CREATE TABLE TARGET_INFO_GPU (name TEXT, cuDevice INT, smCount INT)")
        base.execute("INSERT INTO TARGET_INFO_GPU VALUES ('GPU', 0, 132)")
    base.close()
    blocks = [kernel.blocks_per_sm for kernel in opcost.read_profile(path).unattributed]
    assert blocks == [33 * 2 * 4 / 132, None]


def test_times_that_are_none_are_left_out_and_counted(tmp_path: Path) -> None:
    good, late = (10, 30, 0, 7, 1, 1), (2**61, 2**61 + 5, 0, 7, 1, 1)
    wrong = [("x", 5, 0, 7, 1, 1), (9, 5, 0, 7, 1, 1), (None, 5, 0, 7, 1, 1), (1.5, 5, 0, 7, 1, 1), late]
    profile = opcost.read_profile(export(tmp_path / "a.sqlite", good, *wrong))
    assert [(kernel.name, kernel.start_ns, kernel.duration_ns) for kernel in profile.unattributed] == [("gemm", 10, 20)]
    assert [note.text for note in profile.notes if note.code == "faulty"] == [
        "5 events without valid times are left out"
    ]


def test_an_export_without_device_work_or_without_a_column_says_so(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no call and no device work"):
        opcost.read_profile(export(tmp_path / "a.sqlite"))
    with pytest.raises(SourceError, match="CUPTI_ACTIVITY_KIND_KERNEL has no column 'deviceId'"):
        opcost.read_profile(export(tmp_path / "b.sqlite", (1, 2), kernels="start INTEGER, end INTEGER"))


def test_nothing_in_a_file_is_carried_out(tmp_path: Path) -> None:
    path = export(tmp_path / "a.sqlite", (10, 30, 0, 7, 1, 1))
    with sqlite3.connect(path) as base:
        endless = (
            "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x AS start, x + 1 AS end FROM n"
        )
        base.execute(f"CREATE VIEW NVTX_EVENTS AS {endless}")
        base.execute(f"CREATE VIEW CUPTI_ACTIVITY_KIND_MEMCPY AS SELECT start, end, 0 AS deviceId FROM ({endless})")
        base.execute(
            "CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET (start INTEGER, end AS (length(hex(zeroblob(400000000)))), deviceId)"
        )
        base.execute("INSERT INTO CUPTI_ACTIVITY_KIND_MEMSET (start, deviceId) VALUES (1, 0)")
    base.close()
    with pytest.raises(SourceError, match="has no column 'end'"):  # a column that would be computed is none
        opcost.read_profile(path)
    with sqlite3.connect(path) as base:
        base.execute("DROP TABLE CUPTI_ACTIVITY_KIND_MEMSET")
    base.close()
    assert len(opcost.read_profile(path).unattributed) == 1


def test_pages_that_lead_to_one_another_again_and_again_are_not_followed_for_ever(tmp_path: Path) -> None:
    """Each of ten levels of the tree leads to the next by all its links: some 40 ** 10 rows in 2 MB."""
    path = export(tmp_path / "a.sqlite", *((10 * n, 10 * n + 5, 0, 7, n, 1) for n in range(20_000)))
    with sqlite3.connect(path) as base:
        ((root,),) = base.execute("SELECT rootpage FROM sqlite_master WHERE name = 'CUPTI_ACTIVITY_KIND_KERNEL'")
    base.close()
    content = bytearray(path.read_bytes())
    kinds = {number: content[(number - 1) * 512] for number in range(2, len(content) // 512 + 1)}
    inner = [number for number, kind in kinds.items() if kind == 5 and number != root]
    leaf = next(number for number, kind in kinds.items() if kind == 13)
    levels = [root, *inner[:9], leaf]
    for number, child in pairwise(levels):
        page = (number - 1) * 512
        cells = int.from_bytes(content[page + 3 : page + 5], "big")
        places = [int.from_bytes(content[page + 12 + 2 * n : page + 14 + 2 * n], "big") for n in range(cells)]
        for place in (8, *places):
            content[page + place : page + place + 4] = child.to_bytes(4, "big")
    path.write_bytes(content)
    with pytest.raises(SourceError, match="more rows, or longer texts, than its bytes can hold"):
        opcost.read_profile(path)
