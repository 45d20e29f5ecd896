"""Traces of XLA: real ones of JAX on a processor and on a GPU in both forms, and the work in them derived by hand."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path

import pytest

import opcost
from opcost.errors import SourceError
from opcost.traces.xla.hlo import place_of

DATA = Path(__file__).parent.parent / "data" / "traces" / "xla"
STEPS = 3


@pytest.mark.parametrize("where", ["cpu", "gpu"])
def test_both_forms_have_the_same_executions(where: str) -> None:
    planes, chart = (opcost.read_profile(DATA / f"{where}.{form}.gz") for form in ("xplane.pb", "trace.json"))

    def executions(profile: opcost.Profile) -> list[tuple[object, ...]]:
        return sorted((row.name, row.host_ns, row.device_ns, row.device, row.step) for row in profile.rows)

    assert executions(planes) == executions(chart)
    assert planes.wall_ns == chart.wall_ns
    assert planes.extra == chart.extra


def test_times_are_those_of_the_file() -> None:
    events = json.loads(gzip.decompress((DATA / "cpu.trace.json.gz").read_bytes()))["traceEvents"]
    spent = sum(round(1000 * event["dur"]) for event in events if "hlo_op" in event.get("args", {}))
    profile = opcost.read_profile(DATA / "cpu.xplane.pb.gz")
    assert sum(row.host_ns or 0 for row in profile.rows) == spent
    assert {row.step for row in profile.rows} == set(range(STEPS))


def test_products_have_the_work_that_follows_from_their_shapes() -> None:
    """The net: x (4, 128) @ a (128, 512), @ b (512, 256), then a convolution of 4 pictures 16 x 16 with 8 filters 3 x 3."""
    rows = opcost.read_profile(DATA / "cpu.xplane.pb.gz").rows
    first, second, picture = 4 * 128 * 512, 4 * 512 * 256, 4 * 16 * 16 * 8 * 3 * 3
    products = Counter(row.attrs["macs"] for row in rows if row.kind == "matmul")
    # Forward both, backward the gradient of each weight, and that of the second one's input.
    assert products == {first: 2 * STEPS, second: 3 * STEPS}
    # Forward, and the gradients of the filters and of the pictures, which are convolutions again.
    assert Counter(row.attrs["macs"] for row in rows if row.kind == "conv") == {picture: 3 * STEPS}
    found = next(row for row in rows if row.attrs.get("macs") == first and row.phase == "forward")
    assert [spec.shape for spec in found.ins] == [(4, 128), (128, 512)]
    assert ([spec.shape for spec in found.outs], found.outs[0].dtype) == ([(4, 512)], "float32")


def test_modules_and_passes_are_those_of_the_program() -> None:
    rows = opcost.read_profile(DATA / "cpu.xplane.pb.gz").rows
    products = [row for row in rows if row.kind == "matmul" and row.type == "dot_general"]
    assert {row.module for row in products} == {"mlp"}
    assert {row.phase for row in products} == {"forward", "backward"}


@pytest.mark.parametrize(
    ("scope", "place"),
    [
        ("jit(f)/jvp(Net)/blk0/attn/dot_general", ("dot_general", "Net.blk0.attn", "forward")),
        ("jit(f)/transpose(jvp(jit(f)))/mlp/mul", ("mul", "mlp", "backward")),
        ("jit(f)/jvp(checkpoint)/rematted_computation/tanh", ("tanh", "", "recompute")),
        ("", ("", "", "forward")),
    ],
)
def test_what_wraps_functions_is_no_module(scope: str, place: tuple[str, str, str]) -> None:
    assert tuple(place_of(scope)) == place


def test_kernels_of_a_captured_graph_belong_to_the_instructions_that_they_were_made_of() -> None:
    profile = opcost.read_profile(DATA / "gpu.xplane.pb.gz")
    assert profile.meta["device"] == "NVIDIA H200"
    assert not profile.unattributed
    assert Counter(row.type for row in profile.rows if row.name.startswith("gemm_fusion"))["dot_general"]
    (device,) = profile.extra["devices"]
    assert (device["device"], device["kernels"]) == ("gpu:0", len(profile.rows))
    assert device["work_ns"] == sum(row.device_ns for row in profile.rows)


def varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*found, value))


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def inside(field: int, content: bytes | str) -> bytes:
    content = content.encode() if isinstance(content, str) else content
    return varint(field << 3 | 2) + varint(len(content)) + content


def plane(name: str, *lines: bytes, texts: tuple[str, ...]) -> bytes:
    """A plane in which event number n has text n, and statistic 1 is called hlo_op and points to a text too."""
    entries = [
        inside(4, number(1, place) + inside(2, number(1, place) + inside(2, text))) for place, text in enumerate(texts)
    ]
    names = [
        inside(5, number(1, place) + inside(2, number(1, place) + inside(2, text)))
        for place, text in enumerate(("", "hlo_op", *texts))
    ]
    return inside(1, b"".join((inside(2, name), *(inside(3, line) for line in lines), *entries, *names)))


def line(name: str, *events: tuple[int, int, int]) -> bytes:
    """Events by number, beginning and duration in picoseconds, each of the operator of its own name; the line begins at 7 ns."""
    parts = [
        inside(
            4, number(1, which) + number(2, start) + number(3, spent) + inside(4, number(1, 1) + number(7, which + 2))
        )
        for which, start, spent in events
    ]
    return inside(2, name) + number(3, 7) + b"".join(parts)


def test_on_a_tpu_a_loop_holds_what_it_repeats_and_other_lines_are_made_of_the_same_work(tmp_path: Path) -> None:
    ops = line("XLA Ops", (0, 1_000, 9_000), (1, 2_000, 3_000), (1, 6_000, 3_000))
    content = plane("/device:TPU:1", ops, line("XLA Modules", (2, 0, 99_000)), texts=("while.1", "fusion.2", "jit_f"))
    path = tmp_path / "a.xplane.pb"
    path.write_bytes(content)
    rows = opcost.read_profile(path).rows
    # Nine nanoseconds, of which six are those of the two executions inside.
    assert [
        (row.name, row.type, row.device, row.host_start_ns, row.device_total_ns, row.device_ns) for row in rows
    ] == [
        ("while.1", "while", "tpu:1", 8, 9, 3),
        ("fusion.2", "fusion", "tpu:1", 9, 3, 3),
        ("fusion.2", "fusion", "tpu:1", 13, 3, 3),
    ]


def test_a_file_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    content = gzip.decompress((DATA / "cpu.xplane.pb.gz").read_bytes())
    path = tmp_path / "a.xplane.pb"
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(SourceError, match="not a whole file of XLA's profiler"):
        opcost.read_profile(path)
    path.write_bytes(plane("/host:CPU", texts=()))
    with pytest.raises(SourceError, match="neither an operator nor device work"):
        opcost.read_profile(path)
