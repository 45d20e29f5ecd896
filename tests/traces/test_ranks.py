from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from opcost.analysis.query import query
from opcost.cli.main import run
from opcost.errors import SourceError
from opcost.traces import ranks
from opcost.traces.ranks import columns, read_ranks, reduce_ranks, usual_folder

DATA = Path(__file__).parent.parent / "data" / "traces"
ARRIVALS = {0: (10, 40), 1: (25, 42), 2: (18, 60)}
"""When each rank enters the two collectives, in microseconds; each ends 5 µs after the last one has come."""


def trace(rank: int, *, rank_known: bool = True) -> dict:
    ends = [max(arrivals[place] for arrivals in ARRIVALS.values()) + 5 for place in range(2)]
    events = []
    for place, (start, end) in enumerate(zip(ARRIVALS[rank], ends, strict=True)):
        args = {
            "device": rank,
            "stream": 20,
            "correlation": place,
            "Collective name": "allreduce",
            "Process Group Name": "0",
        }
        events += [
            {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": place * 30, "dur": 5},
            {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce", "pid": rank, "tid": 20, "ts": start,
             "dur": end - start, "args": args},
        ]  # fmt: skip
    info = {"distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 3}} if rank_known else {}
    return {"schemaVersion": 1, **info, "traceEvents": events}


@pytest.fixture(autouse=True)
def caches(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the user's caches."""
    home = tmp_path_factory.mktemp("home")
    for name in ("XDG_CACHE_HOME", "LOCALAPPDATA", "HOME"):
        monkeypatch.setenv(name, str(home))
    return usual_folder()


@pytest.fixture
def one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine with one processor; others test that a pool of processes gives the same."""
    monkeypatch.setattr("os.cpu_count", lambda: 1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for rank in ARRIVALS:
        (tmp_path / f"worker{9 - rank}.json").write_text(json.dumps(trace(rank)), encoding="utf-8")
    return tmp_path


def test_waits_and_stragglers_follow_from_the_shortest_stay(folder: Path) -> None:
    found = reduce_ranks([folder], workers=1)
    waits = {(row["rank"], row["place"]): row["wait_ns"] for row in found.collectives().to_dicts()}
    last = [max(arrivals[place] for arrivals in ARRIVALS.values()) for place in range(2)]
    expected = {(rank, place): (last[place] - ARRIVALS[rank][place]) * 1000 for rank in ARRIVALS for place in range(2)}
    assert waits == expected
    waited_for = {row["rank"]: row["waited_for_ns"] for row in found.stragglers().to_dicts()}
    assert waited_for == {1: (15 + 7) * 1000, 2: (20 + 18) * 1000}
    assert [row["rank"] for row in found.stragglers().to_dicts()] == [2, 1]  # the worst first


def test_each_rank_has_its_own_idle_time(folder: Path) -> None:
    for row in reduce_ranks([folder], workers=1).summary().to_dicts():
        first, second = ARRIVALS[row["rank"]]
        assert row["span_ns"] == (65 - first) * 1000
        assert row["busy_ns"] == (30 - first + 65 - second) * 1000
        assert row["idle_ns"] == (second - 30) * 1000


@pytest.mark.usefixtures("one_process")
def test_the_rank_is_what_the_trace_says_and_rows_carry_it(folder: Path) -> None:
    profile = read_ranks([folder])
    assert {row.rank for row in profile.rows} == {0, 1, 2}
    assert {(row.rank, row.device_ns, row.count) for row in profile.rows} == {(rank, 0, 2) for rank in ARRIVALS}
    # The launches of the collectives are not in these traces.
    stays = {rank: 1000 * (30 - first + 65 - second) for rank, (first, second) in ARRIVALS.items()}
    assert {(kernel.rank, kernel.count, kernel.duration_ns) for kernel in profile.unattributed} == {
        (rank, 2, stay) for rank, stay in stays.items()
    }
    answer = query(profile, aggregate_by=("rank",), side="device")
    assert {line.labels["name"].split()[0]: line.time_ns for line in answer.lines if line.role == "unattributed"} == {
        str(rank): stay for rank, stay in stays.items()
    }


@pytest.mark.usefixtures("one_process")
def test_the_use_of_each_rank_s_device_is_answered(folder: Path) -> None:
    found = {use.rank: use for use in query(read_ranks([folder])).devices}
    for rank, (first, second) in ARRIVALS.items():
        use = found[rank]
        assert (use.device, use.kernels) == (f"gpu:{rank}", 2)
        assert (use.span_ns, use.idle_ns) == ((65 - first) * 1000, (second - 30) * 1000)
        assert use.median_ns == (30 - first + 65 - second) * 1000 / 2


def test_names_give_ranks_where_traces_do_not_and_ten_comes_after_nine(tmp_path: Path) -> None:
    for rank in (9, 10):
        (tmp_path / f"run_rank{rank}.json").write_text(json.dumps(trace(0, rank_known=False)), encoding="utf-8")
    found = reduce_ranks([tmp_path], workers=1)
    assert found.frame["rank"].unique().sort().to_list() == [9, 10]
    assert found.notes == ()
    for name in ("b", "a"):
        (tmp_path / "other").mkdir(exist_ok=True)
        (tmp_path / "other" / f"{name}.json").write_text(json.dumps(trace(0, rank_known=False)), encoding="utf-8")
    numbered = reduce_ranks([tmp_path / "other"], workers=1)
    assert numbered.frame["rank"].unique().sort().to_list() == [0, 1]
    assert [note.code for note in numbered.notes] == ["ranks"]


def test_a_cache_is_used_until_the_content_changes_and_lies_with_those_of_the_user(
    folder: Path, caches: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = sorted(folder.iterdir())
    path = folder / "worker9.json"
    first = reduce_ranks([path]).frame
    assert len(list(caches.iterdir())) == 1
    assert sorted(folder.iterdir()) == before  # nothing is written beside the user's files
    monkeypatch.setattr(ranks, "reduce_file", lambda path, **_: pytest.fail("the cache was not used"))
    assert reduce_ranks([path]).frame.equals(first)
    moved = folder / "elsewhere.json"
    path.rename(moved)
    assert set(reduce_ranks([moved]).frame["source"]) == {"elsewhere.json"}
    monkeypatch.setattr(ranks, "reduce_file", columns.reduce_file)
    changed = trace(0)
    changed["traceEvents"][0]["dur"] = 6
    moved.write_text(json.dumps(changed), encoding="utf-8")
    assert not reduce_ranks([moved]).frame.equals(first)


def test_a_broken_cache_is_made_anew(folder: Path, caches: Path) -> None:
    path = folder / "worker9.json"
    first = reduce_ranks([path]).frame
    for kept in caches.iterdir():
        kept.write_bytes(b"PAR1 and nothing more")
    assert reduce_ranks([path]).frame.equals(first)


@pytest.mark.parametrize(
    "changed",
    [
        lambda kept: kept.drop("stream"),
        lambda kept: kept.with_columns(more=pl.lit(1)),
        lambda kept: kept.with_columns(rank=pl.lit("0")),
        lambda kept: kept.with_columns(type=pl.lit(7)),
        lambda kept: kept.with_columns(host_ns=pl.lit(0.5)),
        lambda _: pl.DataFrame({"x": [1]}),
    ],
    ids=["a column less", "one more", "a text for a number", "a number for a text", "a fraction", "another table"],
)
def test_a_cache_with_other_columns_or_types_is_made_anew(folder: Path, caches: Path, changed: Any) -> None:
    wanted = reduce_ranks([folder / "worker9.json"], workers=1).collectives()
    (kept,) = caches.iterdir()
    whole = pl.read_parquet(kept)
    changed(whole).write_parquet(kept)
    assert reduce_ranks([folder / "worker9.json"], workers=1).collectives().equals(wanted)
    assert pl.read_parquet(kept).equals(whole)


def test_caches_lie_where_the_user_wants_them_or_nowhere(folder: Path, caches: Path, tmp_path: Path) -> None:
    reduce_ranks([folder], workers=1, cache="none")
    assert not caches.exists()
    reduce_ranks([folder], workers=1, cache=tmp_path / "kept")
    assert len(list((tmp_path / "kept").iterdir())) == len(ARRIVALS)
    assert not caches.exists()
    with pytest.raises(SourceError, match="is a file, and caches are kept in a folder"):
        reduce_ranks([folder], cache=folder / "worker9.json")


def test_of_caches_what_was_not_used_for_longest_goes(
    folder: Path, caches: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reduce_ranks([folder / "worker9.json"])
    (old,) = caches.iterdir()
    os.utime(old, (0, 0))
    monkeypatch.setattr(ranks, "LARGEST", old.stat().st_size * 2)
    reduce_ranks([folder / "worker8.json", folder / "worker7.json"], workers=1)
    assert len(list(caches.iterdir())) == 2
    assert not old.exists()


def test_a_run_that_was_stopped_goes_on_where_it_was(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    def counted(path: str, **options: object) -> object:
        done.append(path)
        if len(done) == 3:
            raise KeyboardInterrupt
        return columns.reduce_file(path, **options)

    monkeypatch.setattr(ranks, "reduce_file", counted)
    with pytest.raises(KeyboardInterrupt):
        reduce_ranks([folder], workers=1)
    assert len(reduce_ranks([folder], workers=1).frame["rank"].unique()) == 3
    assert len(done) == 4  # two of three were kept; the third was begun twice
    assert done[2] == done[3]


def test_processes_give_the_same_as_one_and_report_their_progress(folder: Path) -> None:
    alone = reduce_ranks([folder], workers=1, cache="none").frame
    reported: list[tuple[int, int]] = []
    together = reduce_ranks(
        [folder], workers=2, cache="none", progress=lambda done, total: reported.append((done, total))
    )
    assert together.frame.equals(alone)
    total = sum(file.stat().st_size for file in folder.iterdir())
    assert [of for _, of in reported] == [total] * 3
    assert [done for done, _ in reported] == sorted({done for done, _ in reported})
    assert reported[-1] == (total, total)  # bytes, so that a large file counts for more than a small one


@pytest.mark.usefixtures("one_process")
def test_all_that_was_read_is_a_parquet_file_for_other_tools(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "results.parquet"
    files = [str(path) for path in sorted(folder.glob("*.json"))]
    assert run(["analyze", *files, "-o", str(target)]) == 0
    collectives = (
        pl.scan_parquet(target).filter(pl.col("what") == "collective").group_by("rank").agg(pl.col("device_ns").sum())
    )
    stays = {rank: 1000 * (30 - first + 65 - second) for rank, (first, second) in ARRIVALS.items()}
    assert dict(collectives.collect().iter_rows()) == stays
    duckdb = pytest.importorskip("duckdb")
    query = f"SELECT rank, sum(device_ns) FROM '{target}' WHERE what = 'collective' GROUP BY rank"
    assert {rank: int(spent) for rank, spent in duckdb.sql(query).fetchall()} == stays


def test_a_parquet_file_holds_all_and_so_options_that_choose_are_refused(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "results.parquet"
    assert run(["analyze", str(folder), "-o", str(target), "--top", "3"]) == 2
    assert "has no place for --top" in capsys.readouterr().err
    assert not target.exists()


@pytest.mark.slow
def test_a_dask_cluster_gives_the_same(folder: Path) -> None:
    alone = reduce_ranks([folder], workers=1).frame
    assert reduce_ranks([folder], scheduler="local", cache="none").frame.equals(alone)


@pytest.mark.slow
def test_a_running_scheduler_is_used_by_its_address(folder: Path) -> None:
    from distributed import LocalCluster

    alone = reduce_ranks([folder], workers=1).frame
    with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster:
        assert reduce_ranks([folder], scheduler=cluster.scheduler_address, cache="none").frame.equals(alone)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("partial", [False, True])
def test_one_damaged_rank_costs_itself_alone(folder: Path, workers: int, *, partial: bool) -> None:
    path = folder / "worker8.json"  # rank 1
    whole = path.read_text("utf-8")
    path.write_text(whole[: whole.rindex("ncclDevKernel")], encoding="utf-8")
    found = reduce_ranks([folder], workers=workers, partial=partial)
    last = [max(ARRIVALS[rank][place] for rank in (0, 2)) for place in range(2)]
    expected = {(rank, place): (last[place] - ARRIVALS[rank][place]) * 1000 for rank in (0, 2) for place in range(2)}
    assert {(row["rank"], row["place"]): row["wait_ns"] for row in found.collectives().to_dicts()} == expected
    waits = {row["rank"]: row["wait_ns"] for row in found.summary().to_dicts()}
    assert waits == {0: 8_000 + 20_000, 2: 0} | ({1: None} if partial else {})
    (said,) = [note for note in found.profile().notes if note.code in ("unread", "partial")]
    assert said.code == ("partial" if partial else "unread")
    assert ("rank 1" if partial else str(path)) in said.text


def test_a_second_file_of_a_rank_changes_no_number(folder: Path) -> None:
    alone = reduce_ranks([folder], workers=1)
    shutil.copy(folder / "worker9.json", folder / "copy of rank 0.json")
    copied = reduce_ranks([folder], workers=1)
    # Of two that are the same, the first by name is kept.
    assert copied.frame.drop("source").sort(pl.all()).equals(alone.frame.drop("source").sort(pl.all()))
    assert [(note.code, str(folder / "worker9.json") in note.text) for note in copied.notes] == [("copy", True)]
    another = trace(0)
    another["traceEvents"][0]["dur"] = 6
    (folder / "copy of rank 0.json").write_text(json.dumps(another), encoding="utf-8")
    found = reduce_ranks([folder / "worker7.json", folder / "worker8.json", folder / "worker9.json",
                          folder / "copy of rank 0.json"], workers=1)  # fmt: skip
    assert found.frame["rank"].unique().sort().to_list() == [0, 1, 2, 3]
    assert found.collectives().equals(alone.collectives())
    assert [note.code for note in found.notes] == ["ranks"]


@pytest.mark.usefixtures("one_process")
def test_if_no_file_can_be_read_the_first_fault_is_the_error(folder: Path) -> None:
    for path in folder.glob("*.json"):
        path.write_text('{"schemaVersion": 1, "traceEvents": [{"ph"', encoding="utf-8")
    for count in (1, 2):
        with pytest.raises(SourceError, match=r"worker7\.json") as caught:
            reduce_ranks([folder], workers=count)
        assert "--partial" in caught.value.hint


@pytest.mark.usefixtures("one_process")
def test_of_a_damaged_rank_partial_reads_the_beginning_and_keeps_no_cache(folder: Path, caches: Path) -> None:
    path = folder / "worker8.json"
    whole = path.read_text("utf-8")
    path.write_text(whole[: whole.index('"aten::mm"', whole.index('"aten::mm"') + 1)], encoding="utf-8")
    profile = read_ranks([folder], partial=True)
    executions = {rank: sum(row.count for row in profile.rows if row.rank == rank) for rank in ARRIVALS}
    assert sum(executions.values()) == 2 * 3 - 1
    assert [note.code for note in profile.notes if note.code == "partial"] == ["partial"]
    assert len(list(caches.iterdir())) == len(ARRIVALS) - 1
    assert {row.rank for row in read_ranks([folder]).rows} == {0, 2}


def test_nothing_to_read_is_said(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no trace"):
        reduce_ranks([tmp_path])
    with pytest.raises(SourceError, match="no file or directory"):
        reduce_ranks([tmp_path / "none"])


@pytest.mark.usefixtures("one_process")
def test_other_formats_are_ranks_too(tmp_path: Path) -> None:
    for rank in range(2):
        shutil.copy(DATA / "onnxruntime" / "resnet_noopt_seq.json.gz", tmp_path / f"rank{rank}.json.gz")
    profile = read_ranks([tmp_path])
    assert sorted({row.rank for row in profile.rows}) == [0, 1]
    assert len({sum(row.host_ns for row in profile.rows if row.rank == rank) for rank in (0, 1)}) == 1
