"""Memory over a run of tensors of different sizes, worked out by hand: the curve, its parts, and what a device hands out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opcost.analysis import memory as analysis
from opcost.analysis.memory import DeviceMemory, memory, storage_bytes
from opcost.core.devices import LIBRARY_BYTES, PROCESS_BYTES
from opcost.core.graph import NO_ATTRS, Graph, Lifetimes, Memory, Module, Op, TensorSpec, Value
from opcost.core.report import Row

MIB = 1 << 20
SIZES = {"x": 3, "w": 5, "a": 7, "b": 11, "c": 13, "g": 17, "s": 19}
"""Elements of four bytes: an input, a weight, what the forward pass makes, a gradient and an optimizer's state."""
STEPS = [
    ("forward", "xw", "a"), ("forward", "a", "b"), ("forward", "b", "c"), ("backward", "ac", "g"), ("update", "gw", "s"),
]  # fmt: skip


def run(lifetimes: Lifetimes | None = None, steps: list[tuple[str, str, str]] = STEPS, factor: int = 1) -> Graph:
    names = list(SIZES)
    roles = {"x": "input", "w": "param"}
    values = tuple(
        Value(i, name, TensorSpec((size * factor,)), roles.get(name, "activation"), i)  # type: ignore[arg-type]
        for i, (name, size) in enumerate(SIZES.items())
    )
    ops = tuple(
        Op(
            i,
            "copy",
            "test::op",
            tuple(map(names.index, ins)),
            tuple(map(names.index, outs)),
            NO_ATTRS,
            "m",
            phase=phase,
        )  # type: ignore[arg-type]
        for i, (phase, ins, outs) in enumerate(steps)
    )
    return Graph(
        source="", framework="", values=values, ops=ops, modules=(Module(path="", type="Net"),), inputs=(0,), outputs=(4,),
        lifetimes=lifetimes,
    )  # fmt: skip


def units(sizes: object) -> list[int]:
    assert isinstance(sizes, (list, tuple)) or hasattr(sizes, "tolist")
    return [size // 4 for size in sizes]  # type: ignore[union-attr]


def found_of(graph: Graph) -> Memory:
    return memory(graph, storage_bytes(graph))


def test_numbers_of_more_than_32_bits_are_added_up() -> None:
    found = found_of(run(factor=1 << 30))
    assert [size >> 32 for size in found.curve] == [15, 26, 39, 45, 57]
    assert [size >> 32 for size in found.layers["temporary"]] == [0, 11, 11, 17, 36]


def test_without_a_run_each_tensor_lives_to_its_last_reader() -> None:
    found = found_of(run())
    # x and w throughout (8); a is read by the fourth, b by the third; c is an output; what no operator reads is freed at once
    assert units(found.curve) == [8 + 7, 8 + 7 + 11, 8 + 7 + 11 + 13, 8 + 7 + 13 + 17, 8 + 13 + 17 + 19]
    assert (found.peak_bytes, found.base_bytes, found.at) == (4 * 57, 4 * 8, 4)
    assert found.parts == {"inputs": 12, "weights": 20, "temporary": 4 * (17 + 19), "outputs": 4 * 13}
    assert {part: units(curve) for part, curve in found.layers.items()} == {
        "temporary": [0, 11, 11, 17, 17 + 19],
        "saved": [7, 7, 7, 7, 0],
        "outputs": [0, 0, 13, 13, 13],
    }
    assert [(holder.module, holder.bytes, holder.tensors) for holder in found.holders] == [("m", 4 * (13 + 17 + 19), 3)]


def test_a_gradient_that_is_there_before_is_carried_and_a_state_stays() -> None:
    """The gradient was made by an earlier step: it is in the curve from the start, and in no base."""
    lifetimes = Lifetimes((2, 3, 4), (4, 3, 5), gradients=frozenset({5}), state=frozenset({6}), carried=frozenset({5}))
    graph = run(lifetimes, [(phase, ins, outs.replace("g", "")) for phase, ins, outs in STEPS])
    values = list(graph.values)
    values[5] = values[5]._replace(role="buffer")
    found = found_of(replace(graph, values=tuple(values)))
    base = 3 + 5 + 19
    assert found.base_bytes == 4 * base
    assert units(found.curve) == [base + 17 + more for more in (7, 7 + 11, 7 + 11 + 13, 7 + 13, 13)]
    assert {part: units(curve) for part, curve in found.layers.items()} == {
        "gradients": [17] * 5, "saved": [7, 7, 7, 7, 0], "temporary": [0, 11, 11, 0, 0], "outputs": [0, 0, 13, 13, 13],
    }  # fmt: skip
    assert found.parts == {
        "inputs": 12, "weights": 20, "optimizer": 4 * 19, "gradients": 4 * 17, "saved": 28, "temporary": 44, "outputs": 52,
    }  # fmt: skip


def test_what_a_run_lets_go_before_it_is_read_is_there_for_one_operator() -> None:
    found = found_of(run(Lifetimes((2, 3, 4, 5, 6), (0, 1, 5, 4, 0))))
    assert units(found.curve) == [8 + 7, 8 + 11, 8 + 13, 8 + 13 + 17, 8 + 13 + 19]
    assert (found.at, found.parts["temporary"]) == (4, 4 * 19)
    assert {part: units(curve) for part, curve in found.layers.items()} == {
        "temporary": [7, 11, 0, 17, 19], "outputs": [0, 0, 13, 13, 13],
    }  # fmt: skip


def test_gathered_memory_that_is_freed_and_allocated_again_lives_in_pieces() -> None:
    """a is freed before the second operator and is there again for the fourth; b and c are away from the next one on."""
    away = {2: [(1, 3)], 3: [(2, 2)], 4: []}
    lifetimes = Lifetimes((3, 4), (2, 3), gathered=frozenset(away), away=away)
    found = found_of(run(lifetimes))
    assert units(found.curve) == [8 + 7, 8 + 11, 8 + 13, 8 + 7 + 17, 8 + 7 + 17 + 19]
    assert found.parts == {"inputs": 12, "weights": 20, "gathered": 28, "temporary": 4 * (17 + 19)}
    assert {part: units(curve) for part, curve in found.layers.items()} == {
        "gathered": [7, 11, 13, 7, 7], "temporary": [0, 0, 0, 17, 17 + 19],
    }  # fmt: skip
    lives = on_device(run(lifetimes), {}).lives
    assert lives is not None
    assert list(zip(lives.sizes, lives.births, lives.deaths, strict=True)) == [
        (28, 0, 1), (44, 1, 2), (52, 2, 3), (68, 3, 5), (28, 3, 5), (76, 4, 5),
    ]  # fmt: skip


def test_a_storage_is_as_large_as_the_value_that_made_it() -> None:
    graph = run()
    values = list(graph.values)
    values[2] = values[2]._replace(
        storage=3
    )  # a lies in the memory of b, of which it shows a part, and comes before it
    values[4] = values[4]._replace(storage=3)  # c too, after it
    found = storage_bytes(replace(graph, values=tuple(values)))
    assert {place: size // 4 for place, size in found.items()} == {0: 3, 1: 5, 3: 11, 5: 17, 6: 19}
    views = [Value(i, "", TensorSpec((size,)), "activation", 9) for i, size in enumerate((2, 4, 6))]
    assert storage_bytes(replace(graph, values=tuple(views))) == {9: 8}  # none of them made it: the first


def test_an_operator_that_writes_into_a_weight_or_is_never_run_makes_nothing() -> None:
    graph = run(steps=[("forward", "x", "w"), ("forward", "x", "a"), ("forward", "w", "b")])
    ops = (graph.ops[0], graph.ops[1]._replace(repeat=0), graph.ops[2])
    found = found_of(replace(graph, ops=ops))
    assert units(found.curve) == [8, 8, 8 + 11]
    assert found.base_bytes == 4 * 8


def test_a_long_run_has_parts_at_its_peak_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert analysis.LONG_RUN == 10**5
    monkeypatch.setattr(analysis, "LONG_RUN", len(STEPS))
    assert found_of(run()).layers
    monkeypatch.setattr(analysis, "LONG_RUN", len(STEPS) - 1)
    assert not found_of(run()).layers


def test_without_operators_memory_is_only_the_base() -> None:
    found = found_of(run(steps=[]))
    assert (found.peak_bytes, found.at, list(found.curve), found.layers) == (4 * 8, 0, [], {})


def on_device(graph: Graph, workspaces: dict[int, int]) -> Memory:
    rows = [Row(op, (), (), None, "") for op in graph.ops]
    taken = DeviceMemory("gpu", lambda row: workspaces.get(row.op.id, 1))
    return memory(graph, storage_bytes(graph), taken, rows)


def test_a_device_hands_out_blocks_and_operators_take_workspaces() -> None:
    """Elements of a megabyte: 4 MiB each in blocks of their own; beside them are the libraries."""
    found = on_device(run(factor=MIB), {0: 0, 1: 4 * 2300 * MIB, 2: 0, 3: 0, 4: 0})
    assert [size // (4 * MIB) for size in found.curve] == [15, 26 + 2300, 39, 45, 57]
    assert (found.device, found.fixed_bytes, found.base_bytes) == ("gpu", PROCESS_BYTES, 4 * 8 * MIB)
    lives = found.lives
    assert lives is not None
    assert list(lives.lasting) == [LIBRARY_BYTES, 4 * 5 * MIB]
    assert list(lives.inputs) == [4 * 3 * MIB]
    assert [size // (4 * MIB) for size in lives.sizes] == [7, 11, 13, 17, 19]
    assert (list(lives.births), list(lives.deaths)) == ([0, 1, 2, 3, 4], [4, 3, 5, 5, 5])
    assert list(lives.workspaces) == [0, 4 * 2300 * MIB, 0, 0, 0]
    # where the workspace was there is room for all that comes after it
    assert found.reserved_bytes == LIBRARY_BYTES + 4 * (5 + 3 + 7 + 11 + 2300) * MIB


def test_small_tensors_take_whole_blocks_and_an_operator_that_is_never_run_takes_none() -> None:
    graph = run()
    ops = tuple(op._replace(repeat=int(place != 1)) for place, op in enumerate(graph.ops))
    found = on_device(replace(graph, ops=ops), {})
    # x, w and the libraries' are there before; b is not made; each workspace of one byte is a block of 512
    assert [size // 512 for size in found.curve] == [2 + 1 + 1, 2 + 1, 2 + 2 + 1, 2 + 3 + 1, 2 + 3 + 1]
    assert found.parts["workspace"] == 512
    assert list(found.lives.workspaces) == [1, 0, 1, 1, 1]  # type: ignore[union-attr]


def test_what_is_freed_before_it_is_read_and_what_is_empty_is_allocated_as_such() -> None:
    graph = run(Lifetimes((2, 3), (0, 3)))
    values = list(graph.values)
    values[4] = values[4]._replace(spec=TensorSpec((0,)))
    values[1] = values[1]._replace(spec=TensorSpec((0,)))
    found = on_device(replace(graph, values=tuple(values)), {})
    lives = found.lives
    assert lives is not None
    assert (list(lives.lasting), list(lives.inputs)) == ([LIBRARY_BYTES], [12])
    assert (list(lives.births), list(lives.deaths), list(lives.sizes)) == ([0, 1, 3, 4], [1, 3, 5, 5], [28, 44, 68, 76])
    assert [size // 512 for size in found.curve] == [1 + 1 + 1, 1 + 1 + 1, 1 + 1 + 1, 1 + 1 + 1, 1 + 2 + 1]
    assert all(size % 512 == 0 for size in found.curve)


def test_what_fsdp_gathers_and_sums_is_allocated_in_streams_of_its_own() -> None:
    graph = run()
    raws = {0: ("c10d::_allgather_base_", "all_gather"), 1: ("c10d::_reduce_scatter_base_", "reduce_scatter"),
            2: ("_c10d_functional::all_gather_into_tensor", "all_gather")}  # fmt: skip
    ops = tuple(
        op._replace(kind="collective", raw=raws[place][0], attrs={"fn": raws[place][1]}) if place in raws else op
        for place, op in enumerate(graph.ops)
    )
    lives = on_device(replace(graph, ops=ops), {}).lives
    assert lives is not None
    assert list(lives.streams) == [1, 2, 0, 0, 0]  # what the third makes is made by an operator of the model
    assert list(on_device(run(), {}).lives.streams) == []  # type: ignore[union-attr]
