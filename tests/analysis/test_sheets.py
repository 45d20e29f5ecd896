"""Tables about a whole profile: where devices' time went, what copies moved, what ranks exchanged; every number by hand."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

import opcost
from opcost.core.alike import alike_ranks
from opcost.core.names import algorithm_of, bus_factor, collective_kind
from opcost.core.profile import Busy, Profile
from opcost.distributed.clusters import Cluster
from opcost.distributed.collectives import collective_ns
from opcost.errors import OpcostError, SourceError, UnknownName
from opcost.profiles import askable
from opcost.traces.kineto.reader import read_table
from opcost.traces.ranks import read_ranks

US = 1000


def device(
    name: str, start: int, end: int, stream: int = 7, category: str = "kernel", **args: object
) -> dict[str, Any]:
    fields = {"device": 0, "stream": stream, **args}
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": 0,
        "tid": stream,
        "ts": start,
        "dur": end - start,
        "args": fields,
    }


def host(name: str, start: int, end: int, category: str = "cpu_op", **args: object) -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": 1, "ts": start, "dur": end - start, "args": args}


def said(collective: str, ins: int, outs: int, ranks: int = 4, dtype: str = "Float") -> dict[str, Any]:
    return {
        "Collective name": collective, "In msg nelems": ins, "Out msg nelems": outs, "Group size": ranks, "dtype": dtype,
        "Process Group Name": "0",
    }  # fmt: skip


def read(path: Path, *events: dict[str, Any], **fields: object) -> opcost.Profile:
    path.write_text(json.dumps({"schemaVersion": 1, **fields, "traceEvents": events}), encoding="utf-8")
    found = opcost.read_profile(path)
    large = askable(read_table(path).profile)
    for name in ("breakdown", "communication", "allocations"):  # the form for large files has the same numbers
        assert getattr(found, name)().tables == getattr(large, name)().tables
    return found


MIXED = (
    host("ProfilerStep#1", 0, 50, "user_annotation"),
    host("ProfilerStep#2", 50, 100, "user_annotation"),
    device("gemm", 0, 20),
    device("ncclDevKernel_AllReduce", 10, 40, 20),
    device("Memcpy HtoD (Pinned -> Device)", 30, 60, 21, "gpu_memcpy", bytes=3000),
    device("Memset (Device)", 60, 65, 21, "gpu_memset", bytes=500),
    device("Memcpy HtoD (Pinned -> Device)", 70, 72, 21, "gpu_memcpy", bytes=200),
    device("gemm", 90, 100),
)


def test_the_parts_of_a_device_s_time_add_up_to_it(tmp_path: Path) -> None:
    sheet = read(tmp_path / "t.json", *MIXED).breakdown()
    parts = {line["part"]: line["time"] for line in sheet["time of each device"]}
    assert parts == {
        "compute": 30 * US,
        "communication, exposed": 20 * US,  # 20 to 40
        "transfers, exposed": 22 * US,  # 40 to 60, 70 to 72
        "other copies, exposed": 5 * US,
        "idle: not known why": 23 * US,  # 65 to 70, 72 to 90
    }
    assert sum(parts.values()) == 100 * US
    first = sheet["time of each device"][0]
    assert (first["share"], first["per_step"]) == (0.3, 10 * US)  # of the second step: the first is left out
    beside = {line["what"]: (line["time"], line["share"]) for line in sheet["beside other work"]}
    assert beside == {
        "communication, overlapped": (10 * US, 10 / 30),
        "copies, overlapped": (10 * US, 10 / 37),
        "kernels side by side": (20 * US, 20 / 97),
    }


def test_copies_are_listed_by_direction_with_their_rates(tmp_path: Path) -> None:
    rate = 10**9 * 3200 / (32 * US)
    assert read(tmp_path / "t.json", *MIXED).breakdown()["copies"] == [
        {"rank": 0, "device": "gpu:0", "copy": "Memcpy HtoD (Pinned -> Device)", "calls": 2, "time": 32 * US, "bytes": 3200,
         "bandwidth": rate},
        {"rank": 0, "device": "gpu:0", "copy": "Memset (Device)", "calls": 1, "time": 5 * US, "bytes": 500, "bandwidth": 1e8},
    ]  # fmt: skip
    (unknown,) = read(tmp_path / "u.json", device("Memcpy DtoH", 0, 5)).breakdown()["copies"]
    assert (unknown["bytes"], unknown["bandwidth"]) == (None, None)


def test_collectives_are_listed_by_operation_and_size_with_the_rates_of_nccl_tests(tmp_path: Path) -> None:
    events = [
        device("ncclDevKernel_AllReduce_Sum_f32_RING_LL(nccl)", 0, 10, **said("allreduce", 1000, 1000)),
        device("ncclDevKernel_AllReduce_Sum_f32_RING_LL(nccl)", 20, 60, **said("allreduce", 1000, 1000)),
        device("ncclDevKernel_AllGather_RING_LL(nccl)", 70, 90, **said("_allgather_base", 100, 400, dtype="BFloat16")),
        # Its kernel says nothing; the operator that launched it does.
        host("record_param_comms", 0, 5, **said("reduce_scatter", 800, 200)),
        host("cudaLaunchKernel", 1, 2, "cuda_runtime", correlation=7),
        device("ncclDevKernel_ReduceScatter", 100, 108, correlation=7),
        device("ncclKernel_Broadcast_TREE_SIMPLE_Sum_int8_t", 110, 111),
    ]
    lines = {line["collective"]: line for line in read(tmp_path / "t.json", *events).communication()["collectives"]}
    assert list(lines) == ["all_reduce", "all_gather", "reduce_scatter", "broadcast"]  # by time
    reduced = lines["all_reduce"]
    assert (reduced["bytes"], reduced["calls"], reduced["time"], reduced["median"]) == (4000, 2, 50 * US, 25 * US)
    assert (reduced["ranks"], reduced["group"], reduced["dtype"], reduced["algorithm"]) == (4, "0", "Float", "RING_LL")
    assert reduced["algorithm_bandwidth"] == 4000 * 10**9 / (10 * US)
    assert reduced["bus_bandwidth"] == 4000 * 10**9 / (10 * US) * 2 * 3 / 4
    assert (lines["all_gather"]["bytes"], lines["all_gather"]["bus_bandwidth"]) == (
        800,
        800 * 10**9 / (20 * US) * 3 / 4,
    )
    assert (lines["reduce_scatter"]["bytes"], lines["reduce_scatter"]["bus_bandwidth"]) == (3200, 0.4e9 * 3 / 4)
    assert (lines["broadcast"]["bytes"], lines["broadcast"]["algorithm"]) == (None, "TREE_SIMPLE")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("allreduce", "all_reduce"), ("_allgather_base", "all_gather"), ("allgather_into_tensor_coalesced", "all_gather"),
        ("_reduce_scatter_base", "reduce_scatter"), ("all_to_allv", "all_to_all"), ("broadcast", "broadcast"),
        ("reduce", "reduce"),
        ("ncclDevKernel_SendRecv", "send_recv"), ("recv", "recv"), ("gather", "gather"), ("ncclDevKernel_Generic", ""),
    ],
)  # fmt: skip
def test_a_collective_has_one_name(name: str, kind: str) -> None:
    assert collective_kind(name) == kind


def test_what_a_collective_uses_of_a_link() -> None:
    kinds = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send_recv", "barrier")
    assert [bus_factor(kind, 8) for kind in kinds] == [1.75, 0.875, 0.875, 0.875, 1, 1, None]
    assert bus_factor("all_reduce", None) is None
    assert algorithm_of("ncclDevKernel_AllReduce_Sum_bf16_TREE_LL128(ncclDevKernelArgs)") == "TREE_LL128"


# -- what collectives should take, and what of them nothing hides

GROUPS = [
    {"pg_name": "0", "pg_desc": "default_pg", "pg_size": 16, "ranks": [*range(16)]},
    {"pg_name": "7", "pg_desc": "mesh_fsdp", "pg_size": 2, "ranks": [3, 11]},
    {"pg_name": "9", "pg_desc": "mesh_pp", "pg_size": 2, "ranks": [3, 11]},
]
H100 = {"deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}]}


def of_group(name: str, ranks: int, ins: int, outs: int, collective: str = "_allgather_base") -> dict[str, Any]:
    return said(collective, ins, outs, ranks, "BFloat16") | {"Process Group Name": name}


def test_collectives_are_beside_what_the_links_could_do(tmp_path: Path) -> None:
    """Rank 3 of 16 on nodes of 8: all gathers in its node, one over the network, a message to the other node."""
    tp = of_group("5", 8, 1 << 20, 1 << 23) | {
        "Process Group Description": "mesh_tp",
        "Process Group Ranks": "[0, 1, 2, 3, 4, 5, 6, 7]",
    }
    events = [
        host("ProfilerStep#1", 0, 1000, "user_annotation"),
        device("gemm", 0, 100),
        device("ncclDevKernel_AllGather_RING_LL(nccl)", 50, 150, 20, **tp),
        device("ncclDevKernel_AllGather_RING_LL(nccl)", 200, 260, 20, **tp),
        device("gemm", 240, 300),
        device("ncclDevKernel_AllGather_RING_LL(nccl)", 400, 900, 20, **of_group("7", 2, 1 << 22, 1 << 23)),
        device("ncclDevKernel_SendRecv(nccl)", 900, 990, 20, **of_group("9", 2, 1 << 20, 1 << 20, "recv")),
        device("ncclDevKernel_SendRecv(nccl)", 990, 1000, 20, **of_group("0", 16, 1 << 20, 1 << 20, "all_to_allv")),
    ]  # fmt: skip
    info = {"distributedInfo": {"rank": 3, "world_size": 16, "pg_config": GROUPS}}
    found = read(tmp_path / "t.json", *events, **info, **H100)
    sheet = found.communication()
    lines = {(line["collective"], line["group"]): line for line in sheet["collectives"]}
    assert list(lines) == [("all_gather", "fsdp"), ("all_gather", "tp"), ("recv", "pp"), ("all_to_all", "0")]
    moved = 2 << 23  # bytes of bfloat16
    cluster = Cluster.of("dgx-h100")
    inside, between = lines["all_gather", "tp"], lines["all_gather", "fsdp"]
    assert inside["predicted"] == collective_ns("all_gather", moved, 8, 1, cluster)
    assert between["predicted"] == collective_ns("all_gather", moved, 2, 2, cluster)
    assert inside["of_link"] == pytest.approx(moved / 60e-6 * 7 / 8 / 450e9)  # the shorter of its two
    assert between["of_link"] == pytest.approx(moved / 500e-6 / 2 / 50e9)  # one network card of each node
    assert lines["recv", "pp"]["predicted"] == collective_ns("recv", 2 << 20, 2, 2, cluster)
    # To eight ranks of the other node each sends over its own card
    assert lines["all_to_all", "0"]["of_link"] == pytest.approx((2 << 20) / 10e-6 * 15 / 16 / 50e9)
    assert (inside["exposed"], between["exposed"]) == ((50 + 40) * US, 500 * US)
    assert sheet.table("collectives").remarks[1] == (
        "predicted, of_link: dgx-h100, 450 GB/s within a node of 8, 50 between, the usual one of h100; --cluster names another"
    )
    # By group; the device was there for 1000 µs
    assert [(line["group"], line["calls"], line["exposed"], line["share"]) for line in sheet["groups"]] == [
        ("fsdp", 1, 500 * US, 0.5), ("tp", 2, 90 * US, 0.09), ("pp", 1, 90 * US, 0.09), ("0", 1, 10 * US, 0.01),
    ]  # fmt: skip
    (tp_line,) = [line for line in sheet["groups"] if line["group"] == "tp"]
    assert tp_line["predicted"] == 2 * inside["predicted"]
    # Messages between stages are the bubble of a pipeline, other collectives are not
    parts = {line["part"]: line["time"] for line in found.breakdown()["time of each device"]}
    assert parts == {
        "compute": (100 + 60) * US, "communication, exposed": (50 + 40 + 500 + 10) * US, "pipeline bubble": 90 * US,
        "idle: not known why": (50 + 100) * US,
    }  # fmt: skip
    assert "pipeline bubble 9.0 %" in " ".join(str(found).split())


def test_another_cluster_is_named_and_without_one_nothing_is_predicted(tmp_path: Path) -> None:
    events = [device("ncclDevKernel_AllReduce", 0, 100, **said("allreduce", 1 << 20, 1 << 20, ranks=8))]
    found = read(tmp_path / "t.json", *events)
    (line,) = found.communication()["collectives"]
    assert (line["predicted"], line["of_link"]) == (None, None)
    assert "predicted" not in str(found.communication())
    (line,) = found.communication(cluster="4 per node, nvlink 100GB/s, network 25GB/s per gpu")["collectives"]
    # Eight ranks on two nodes: the four cards of a node are as fast as its links
    assert line["of_link"] == pytest.approx((4 << 20) / 100e-6 * 2 * 7 / 8 / 100e9)
    (line,) = found.communication(cluster="2 per node, nvlink 100GB/s, network 25GB/s per gpu")["collectives"]
    assert line["of_link"] == pytest.approx((4 << 20) / 100e-6 * 2 * 7 / 8 / 50e9)
    with pytest.raises(UnknownName, match="dgx-h100"):
        found.communication(cluster="dgx-h10")


def test_ranks_of_a_group_are_compared_though_another_has_its_name(tmp_path: Path) -> None:
    """Ranks 0 and 1, and 2 and 3: each pair gathers twice in a group of one name, with ranks of its own."""
    stays = {0: (30, 10), 1: (10, 25), 2: (10, 10), 3: (70, 10)}
    for rank, times in stays.items():
        pair = [rank // 2 * 2, rank // 2 * 2 + 1]
        group = of_group("3", 2, 10, 20) | {"Process Group Ranks": str(pair), "Process Group Description": "mesh_fsdp"}
        events = [device("gemm", 0, 5)]
        events += [
            device("ncclDevKernel_AllGather", 100 * i, 100 * i + time, 20, **group) for i, time in enumerate(times)
        ]
        content = {"schemaVersion": 1, "distributedInfo": {"rank": rank}, "traceEvents": events}
        (tmp_path / f"rank{rank}.json").write_text(json.dumps(content), encoding="utf-8")
    sheet = askable(read_ranks([tmp_path], cache="none")).communication()
    waits = {line["rank"]: (line["waiting"], line["waited_for"]) for line in sheet["ranks"]}
    assert waits == {0: (20 * US, 15 * US), 1: (15 * US, 20 * US), 2: (0, 60 * US), 3: (60 * US, 0)}
    assert [line["calls"] for line in sheet["collectives"]] == [8]


ARRIVALS = {0: (10, 40), 1: (25, 42), 2: (18, 60)}


@pytest.fixture(autouse=True)
def one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine with one processor, which reads ranks without a pool of processes."""
    monkeypatch.setattr("os.cpu_count", lambda: 1)


def ranks_in(folder: Path) -> Profile:
    """Three ranks that enter two collectives; each ends 5 µs after the last one has come."""
    for rank, arrivals in ARRIVALS.items():
        events = [device("gemm", 0, 5)]
        for place, start in enumerate(arrivals):
            end = max(each[place] for each in ARRIVALS.values()) + 5
            events.append(device("ncclDevKernel_AllReduce", start, end, 20, **said("allreduce", 10, 10, ranks=3)))
        content = {"schemaVersion": 1, "distributedInfo": {"rank": rank}, "traceEvents": events}
        (folder / f"rank{rank}.json").write_text(json.dumps(content), encoding="utf-8")
    return read_ranks([folder])


def test_ranks_that_others_waited_for_are_named(tmp_path: Path) -> None:
    profile = askable(ranks_in(tmp_path))
    sheet = profile.communication()
    (collective,) = sheet["collectives"]
    assert (collective["calls"], collective["bytes"]) == (6, 40)
    assert collective["bus_bandwidth"] == pytest.approx(40 / (5 * US) * 1e9 * 2 * 2 / 3)  # 5 µs where no rank waits
    assert sheet["ranks"] == [
        {"rank": 2, "collectives": (12 + 5) * US, "waiting": 7 * US, "waited_for": 38 * US, "last": 1},
        {"rank": 1, "collectives": (5 + 23) * US, "waiting": 18 * US, "waited_for": 22 * US, "last": 1},
        {"rank": 0, "collectives": (20 + 25) * US, "waiting": 35 * US, "waited_for": 0, "last": 0},
    ]
    assert sheet.table("ranks").remarks == (
        "rank 2 came last in 1 collective: others waited 38.00 µs for it, 63 % of all waiting",
    )
    spans = [65, 65, 65]
    gains = {gain.what: gain.share for gain in profile.query().gains}
    assert gains["unbalanced ranks: 2 comes last most"] == pytest.approx(
        sum(wait / span for wait, span in zip((35, 18, 7), spans, strict=True)) / 3
    )
    # What remains of the collectives is hidden behind computing as far as there is some: 5 µs of each 10.
    assert gains["communication that nothing hides"] == pytest.approx(5 / 65)
    assert len(profile.breakdown()["time of each device"]) == 3 * 3  # computing, communication, idle


def rank_trace(folder: Path, rank: int, computing: int, ranks: int) -> None:
    """Four steps of 1000 µs: computing, then a collective that ends 720 µs after the step began."""
    events = []
    for step in range(4):
        start = 1000 * step
        events.append(host(f"ProfilerStep#{step}", start, start + 1000, "user_annotation"))
        events.append(device("gemm", start + 10, start + 10 + computing))
        exchanged = said("allreduce", 10, 10, ranks=ranks)
        events.append(device("ncclDevKernel_AllReduce", start + 10 + computing, start + 720, 20, **exchanged))
    content = {"schemaVersion": 1, "distributedInfo": {"rank": rank}, "traceEvents": events}
    (folder / f"rank{rank}.json").write_text(json.dumps(content), encoding="utf-8")


def test_the_first_lines_say_how_ranks_differ_and_which_is_late(tmp_path: Path) -> None:
    for rank in range(8):
        rank_trace(tmp_path, rank, 600 if rank == 5 else 400 + rank % 2, ranks=8)
    answer = askable(read_ranks([tmp_path], cache="none")).query()
    lines = answer.render(width=400).replace("\u00a0", " ").splitlines()
    # Of 3710 µs from the first kernel to the last, rank 5 only communicates in 4 x 110, the others in 4 x 310 or 309.
    assert (
        lines[3]
        == f"8 ranks: they differ in communication alone {44000 / 3710:.1f} % (rank 5) to {124000 / 3710:.1f} % (rank 6)"
    )
    waited = 4 * (4 * 200 + 3 * 199)
    assert lines[2].startswith(
        f"late: rank 5: 7 ranks waited {waited / 7:.2f} µs each for it in 4 collectives, 100.0 % of all waiting"
    )
    assert lines[4].startswith("rank 5 gpu:0: busy 2.84 ms of 3.71 ms")
    assert lines[5].startswith("ranks 0-4, 6, 7 gpu:0 (the median of 7 alike): busy 2.84 ms of 3.71 ms")
    assert not lines[6].startswith("rank")
    assert [each.waited_for_ns for each in answer.waited if each.rank == 5] == [waited * US]
    assert f": 1.00 ms a step, busy {2840 / 37.1:.0f} %" in answer.answer
    assert f", 7 ranks waited {waited / 7:.0f} µs each for rank 5" in answer.answer


def test_people_read_one_line_for_ranks_that_are_alike_and_programs_one_for_each(tmp_path: Path) -> None:
    for rank in range(8):
        rank_trace(tmp_path, rank, 600 if rank == 5 else 400, ranks=8)
    found = askable(read_ranks([tmp_path], cache="none"))
    sheet = found.communication()
    text = str(sheet).replace("\u00a0", " ").splitlines()
    assert text[0] == "rank0.json to rank7.json (ranks): communication"
    lines = text[text.index("ranks") + 3 :]
    # Of 710 µs rank 5 computes in 600 and exchanges in 110, all others wait 200 longer.
    assert lines[0].split() == ["5", "440.00", "µs", "0", "ns", "5.60", "ms", "4"]
    assert lines[1].split() == ["0-4,", "6,", "7", "1.24", "ms", "800.00", "µs", "0", "ns", "0"]
    assert len(sheet["ranks"]) == 8
    every = csv.DictReader(sheet.render("csv").splitlines())
    assert [line["rank"] for line in every if line["table"] == "ranks"] == ["5", *"0123467"]
    # Sums of all ranks are not beside lines of single ones, and the late rank comes first.
    times = found.breakdown().shown[0]
    assert (times.total, times.rows[0][0], times.rows[-1][0]) == (None, "5", "0-4, 6, 7")


def test_without_collectives_the_rank_with_the_longest_step_is_late() -> None:
    times = [10.0, 20.0, 20.0, 10.0, 10.0]
    steps = [Busy("gpu:0", rank, 100, 90, 90, 1, 90.0, steps=3, step_ns=time) for rank, time in enumerate(times)]
    assert list(alike_ranks(steps, ()).values()) == ["1, 2", "0, 3, 4"]


def test_ranks_that_are_all_alike_are_one_line(tmp_path: Path) -> None:
    for rank in range(3):
        rank_trace(tmp_path, rank, 400, ranks=3)
    lines = askable(read_ranks([tmp_path], cache="none")).query().render(width=400).splitlines()
    assert lines[2] == "3 ranks: all alike"
    assert lines[3] == "no rank is late: in collectives they hardly wait for each other"
    assert lines[4].startswith("ranks 0-2 gpu:0 (the median of 3 alike)")
    assert not lines[5].startswith("rank")


def change(
    time: int, moved: int, address: int, allocated: int | None = None, reserved: int = 0, **more: object
) -> dict[str, Any]:
    args = {"Addr": address, "Bytes": moved, "Device Id": 0, "Device Type": 1} | more
    if allocated is not None:
        args |= {"Total Allocated": allocated, "Total Reserved": reserved}
    event = {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": 1, "tid": 1}
    return {**event, "ts": time, "args": args}


MEMORY = (
    host("nn.Module: Net_0", 0, 90, "python_function"),
    host("aten::mm", 10, 20),
    host("aten::add", 30, 60),
    host("aten::empty", 40, 50),
    host("cudaMalloc", 44, 46, "cuda_runtime"),
    change(15, 100, 0xA, 1100, 4000),
    change(45, 30, 0xB, 1130, 4000),
    change(50, 7, 0xC, 1137, 5000),  # `empty` has just ended
    change(55, -100, 0xA, 1037, 5000),
    change(70, 50, 0xD, 1087, 5000),
    change(80, 8, 0xE, **{"Device Type": 0, "Device Id": -1}),
)


def test_the_peak_of_memory_and_what_is_live_at_it(tmp_path: Path) -> None:
    sheet = read(tmp_path / "t.json", *MEMORY).allocations()
    gpu, cpu = sheet["peak of each device"]
    assert gpu == {
        "rank": 0, "device": "gpu:0", "peak": 1137, "at": 35 * US, "reserved": 5000, "first": 1000, "last": 1087,
        "growth_per_step": None, "changes": 5,
    }  # fmt: skip
    assert (cpu["device"], cpu["peak"], cpu["reserved"]) == ("cpu", 8, None)
    live = [
        (line["operator"], line["module"], line["tensors"], line["bytes"])
        for line in sheet["live at the peak"]
        if line["device"] == "gpu:0"
    ]
    assert live == [
        ("(before the trace)", "", 0, 1000),
        ("aten::mm", "Net_0", 1, 100),
        ("aten::empty", "Net_0", 1, 30),
        ("aten::add", "Net_0", 1, 7),
    ]
    assert sheet["live at the peak"][0]["share"] == 1000 / 1137
    parts = [line for line in sheet["over time"] if line["device"] == "gpu:0"]
    assert [line["part"] for line in parts] == [f"{tenth}/10" for tenth in range(1, 11)]
    assert [line["peak"] for line in parts][:6] == [1100, 1100, 1100, 1100, 1100, 1130]  # 55 µs in tenths
    assert (max(line["peak"] for line in parts), parts[-1]["last"]) == (1137, 1087)


def test_memory_that_is_not_given_back_after_steps(tmp_path: Path) -> None:
    levels = (500, 10, 12, 10)  # the first step keeps what stays
    events = [
        host(f"ProfilerStep#{number}", 100 * number, 100 * number + 100, "user_annotation") for number in range(4)
    ]
    kept = 0
    for number, level in enumerate(levels):
        kept += level
        events += [
            change(100 * number + 10, level, number, kept, kept),
            change(100 * number + 20, 1000, 99, kept + 1000, kept),
            change(100 * number + 30, -1000, 99, kept, kept),
        ]
    sheet = read(tmp_path / "t.json", *events, device("k", 0, 1)).allocations()
    assert sheet["peak of each device"][0]["growth_per_step"] == 11  # of 12 and 10; 10 came after the first step
    assert [(line["part"], line["peak"], line["last"]) for line in sheet["over time"]] == [
        ("step 0", 1500, 500),
        ("step 1", 1510, 510),
        ("step 2", 1522, 522),
        ("step 3", 1532, 532),
    ]
    assert "gpu:0 keeps 11 B more after each step" in str(sheet)


def test_memory_without_totals_is_the_sum_of_its_changes(tmp_path: Path) -> None:
    events = (host("aten::mm", 0, 9), change(1, 5, 1), change(2, 6, 2), change(3, -5, 1), change(4, 1, "odd"))  # type: ignore[arg-type]
    (peak,) = read(tmp_path / "t.json", *events).allocations()["peak of each device"]
    assert (peak["peak"], peak["last"], peak["first"], peak["reserved"]) == (11, 7, 0, None)


def test_memory_of_a_large_file_is_read_if_it_is_requested(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from opcost.traces.kineto import reader

    path = tmp_path / "t.json"
    read(path, *MEMORY)
    monkeypatch.setattr(reader, "LARGE_BYTES", 0)
    assert "the profile has no memory events" in str(opcost.read_profile(path).allocations())
    assert opcost.read_profile(path, memory=True).allocations()["peak of each device"][0]["peak"] == 1137


def test_a_sheet_in_every_form(tmp_path: Path) -> None:
    sheet = read(tmp_path / "t.json", *MIXED).breakdown()
    assert "other copies, exposed" in str(sheet)
    chosen = sheet.select(["part", "Time"]).sort("+time")
    head, *lines = csv.reader(io.StringIO(chosen.render("csv")))
    assert head == ["table", "part", "time"]
    assert lines[0] == ["time of each device", "other copies, exposed", "5000"]
    data = json.loads(chosen.render("json"))
    assert (data["schema"], data["sheet"]) == ("opcost.sheet/1", "breakdown")
    assert data["tables"][0]["lines"][0] == {"part": "other copies, exposed", "time": 5000}
    for view in ("md", "html"):
        assert "other copies, exposed" in sheet.render(view)
    with pytest.raises(UnknownName, match="colour"):
        sheet.select(["colour"])
    with pytest.raises(UnknownName, match="colour"):
        sheet.sort("colour")


@pytest.mark.parametrize("damage", ["text", [1], [{"device": "gpu:0"}], [{"rank": 0, "more": 1}]])
@pytest.mark.parametrize("key", ["copies", "collectives", "ranks", "memory", "holders", "memory_over_time"])
def test_what_a_damaged_profile_says_is_one_clear_error(key: str, damage: object) -> None:
    profile = askable(Profile(meta={}, rows=(), extra={key: damage}))
    ask = {"copies": profile.breakdown, "collectives": profile.communication, "ranks": profile.communication}
    with pytest.raises(SourceError, match=key):
        ask.get(key, profile.allocations)()


def test_a_profile_without_kernels_of_known_sorts_is_busy_or_idle(profile: Profile) -> None:
    parts = {line["part"] for line in askable(profile).breakdown()["time of each device"]}
    assert parts == {"busy", "idle: not known why"}
    assert "no collectives" in str(askable(profile).communication())


@pytest.mark.parametrize("view", ["breakdown", "communication", "memory"])
def test_a_sheet_on_the_command_line(view: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from opcost.cli.main import run

    path, written = str(tmp_path / "t.json"), tmp_path / "t.csv"
    read(tmp_path / "t.json", *MIXED)
    assert run(["analyze", path, "--view", view, "--width", "80"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"t.json (kineto): {view}\n")
    assert all(len(line) <= 80 for line in out.splitlines())
    assert run(["analyze", path, "--view", view, "-o", str(written)]) == 0
    assert written.read_text(encoding="utf-8").startswith("table,")


def test_an_option_about_operators_has_no_place_beside_a_sheet(tmp_path: Path) -> None:
    from opcost.cli.analyze import analyze

    with pytest.raises(OpcostError, match="--kind"):
        analyze(tmp_path, flags={"view": "breakdown", "kind": ("conv",)})
