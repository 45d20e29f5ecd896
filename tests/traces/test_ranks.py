from __future__ import annotations

import json
import shutil
from pathlib import Path

import polars as pl
import pytest

from opcost.analysis.query import query
from opcost.errors import SourceError
from opcost.traces.ranks import columns, read_ranks, reduce, reduce_rank, reduce_ranks

DATA = Path(__file__).parent.parent / "data" / "traces"
ARRIVALS = {0: (10, 40), 1: (25, 42), 2: (18, 60)}
"""When each rank enters the two collectives, in microseconds; each ends 5 µs after the last one has come."""


def trace(rank: int, *, told: bool = True) -> dict:
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
    info = {"distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 3}} if told else {}
    return {"schemaVersion": 1, **info, "traceEvents": events}


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
    held_up = {row["rank"]: row["held_up_ns"] for row in found.stragglers().to_dicts()}
    assert held_up == {1: (15 + 7) * 1000, 2: (20 + 18) * 1000}
    assert [row["rank"] for row in found.stragglers().to_dicts()] == [2, 1]  # the worst first


def test_each_rank_has_its_own_idle_time(folder: Path) -> None:
    for row in reduce_ranks([folder], workers=1).summary().to_dicts():
        first, second = ARRIVALS[row["rank"]]
        assert row["span_ns"] == (65 - first) * 1000
        assert row["busy_ns"] == (30 - first + 65 - second) * 1000
        assert row["idle_ns"] == (second - 30) * 1000


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


def test_the_use_of_each_rank_s_device_is_answered(folder: Path) -> None:
    found = {use.rank: use for use in query(read_ranks([folder])).devices}
    for rank, (first, second) in ARRIVALS.items():
        use = found[rank]
        assert (use.device, use.kernels) == (f"gpu:{rank}", 2)
        assert (use.span_ns, use.idle_ns) == ((65 - first) * 1000, (second - 30) * 1000)
        assert use.median_ns == (30 - first + 65 - second) * 1000 / 2


def test_names_give_ranks_where_traces_do_not_and_ten_comes_after_nine(tmp_path: Path) -> None:
    for rank in (9, 10):
        (tmp_path / f"run_rank{rank}.json").write_text(json.dumps(trace(0, told=False)), encoding="utf-8")
    found = reduce_ranks([tmp_path], workers=1)
    assert found.frame["rank"].unique().sort().to_list() == [9, 10]
    assert found.notes == ()
    for name in ("b", "a"):
        (tmp_path / "other").mkdir(exist_ok=True)
        (tmp_path / "other" / f"{name}.json").write_text(json.dumps(trace(0, told=False)), encoding="utf-8")
    numbered = reduce_ranks([tmp_path / "other"], workers=1)
    assert numbered.frame["rank"].unique().sort().to_list() == [0, 1]
    assert [note.code for note in numbered.notes] == ["ranks"]


def test_a_cache_is_used_until_the_content_changes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder / "worker9.json"
    first = reduce_rank(str(path))
    assert (folder / "worker9.json.opcost.parquet").is_file()
    monkeypatch.setattr(reduce, "reduce_file", lambda path, **_: pytest.fail("the cache was not used"))
    assert reduce_rank(str(path)) == first
    monkeypatch.setattr(reduce, "reduce_file", columns.reduce_file)
    changed = trace(0)
    changed["traceEvents"][0]["dur"] = 6
    path.write_text(json.dumps(changed), encoding="utf-8")
    assert reduce_rank(str(path)) != first


def test_a_broken_cache_is_made_anew(folder: Path) -> None:
    path = folder / "worker9.json"
    first = reduce_rank(str(path))
    (folder / "worker9.json.opcost.parquet").write_bytes(b"PAR1 and nothing more")
    assert reduce_rank(str(path)) == first


def test_processes_give_the_same_as_one_and_tell_how_far_they_are(folder: Path) -> None:
    alone = reduce_ranks([folder], workers=1).frame
    for cache in folder.glob("*.parquet"):
        cache.unlink()
    told = []
    together = reduce_ranks([folder], workers=2, progress=lambda done, total: told.append((done, total)))
    assert together.frame.equals(alone)
    assert told == [(1, 3), (2, 3), (3, 3)]


@pytest.mark.slow
def test_a_dask_cluster_gives_the_same(folder: Path) -> None:
    alone = reduce_ranks([folder], workers=1).frame
    for cache in folder.glob("*.parquet"):
        cache.unlink()
    assert reduce_ranks([folder], cluster="local").frame.equals(alone)


@pytest.mark.slow
def test_a_running_scheduler_is_used_by_its_address(folder: Path) -> None:
    from distributed import LocalCluster

    alone = reduce_ranks([folder], workers=1).frame
    for cache in folder.glob("*.parquet"):
        cache.unlink()
    with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster:
        assert reduce_ranks([folder], cluster=cluster.scheduler_address).frame.equals(alone)


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


def test_if_no_file_can_be_read_the_first_fault_is_the_error(folder: Path) -> None:
    for path in folder.glob("*.json"):
        path.write_text('{"schemaVersion": 1, "traceEvents": [{"ph"', encoding="utf-8")
    for workers in (1, 2):
        with pytest.raises(SourceError, match=r"worker7\.json") as caught:
            reduce_ranks([folder], workers=workers)
        assert "--partial" in caught.value.hint


def test_of_a_damaged_rank_partial_reads_the_beginning_and_keeps_no_cache(folder: Path) -> None:
    path = folder / "worker8.json"
    whole = path.read_text("utf-8")
    path.write_text(whole[: whole.index('"aten::mm"', whole.index('"aten::mm"') + 1)], encoding="utf-8")
    profile = read_ranks([folder], partial=True)
    executions = {rank: sum(row.count for row in profile.rows if row.rank == rank) for rank in ARRIVALS}
    assert sum(executions.values()) == 2 * 3 - 1
    assert [note.code for note in profile.notes if note.code == "partial"] == ["partial"]
    assert not (folder / "worker8.json.opcost.parquet").exists()
    assert {row.rank for row in read_ranks([folder]).rows} == {0, 2}


def test_nothing_to_read_is_said(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no trace"):
        reduce_ranks([tmp_path])
    with pytest.raises(SourceError, match="no file or directory"):
        reduce_ranks([tmp_path / "none"])


def test_other_formats_are_ranks_too(tmp_path: Path) -> None:
    for rank in range(2):
        shutil.copy(DATA / "onnxruntime" / "resnet_noopt_seq.json.gz", tmp_path / f"rank{rank}.json.gz")
    profile = read_ranks([tmp_path])
    assert sorted({row.rank for row in profile.rows}) == [0, 1]
    assert len({sum(row.host_ns for row in profile.rows if row.rank == rank) for rank in (0, 1)}) == 1
