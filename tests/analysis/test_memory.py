from __future__ import annotations

from dataclasses import replace

from opcost.analysis.memory import memory, storage_bytes
from opcost.core.graph import NO_ATTRS, Graph, Lifetimes, Module, Op, PeakHolder, TensorSpec, Value

KB = TensorSpec((256,))
SIZE = 4 * 256


def made(roles: list[tuple[str, int]], ops: list[tuple[tuple[int, ...], int]], outputs: tuple[int, ...] = ()) -> Graph:
    """Values of one size given by role and storage; operators given by inputs and output."""
    values = tuple(Value(i, "", KB, role, storage) for i, (role, storage) in enumerate(roles))
    graph = Graph(
        source="",
        framework="",
        values=values,
        ops=tuple(Op(i, "copy", "test::op", inputs, (output,), NO_ATTRS) for i, (inputs, output) in enumerate(ops)),
        modules=(Module(path="", type="Net"),),
        inputs=tuple(i for i, (role, _) in enumerate(roles) if role == "input"),
        outputs=outputs,
    )
    graph.check()
    return graph


INPUT, PARAM = "input", "param"


def peak_bytes(graph: Graph) -> int:
    return memory(graph, storage_bytes(graph)).peak_bytes


def new(storage: int) -> tuple[str, int]:
    return "activation", storage


def test_a_chain_holds_two_activations_at_a_time() -> None:
    chain = made([(INPUT, 0), new(1), new(2), new(3), new(4)], [((0,), 1), ((1,), 2), ((2,), 3), ((3,), 4)], (4,))
    assert peak_bytes(chain) == (1 + 2) * SIZE


def test_a_skip_connection_holds_its_source_until_it_is_added() -> None:
    skip = made([(INPUT, 0), new(1), new(2), new(3), new(4)], [((0,), 1), ((1,), 2), ((2,), 3), ((1, 3), 4)], (4,))
    assert peak_bytes(skip) == (1 + 3) * SIZE


def test_weights_and_inputs_live_throughout_also_unused_ones() -> None:
    assert peak_bytes(made([(INPUT, 0), (PARAM, 1), (PARAM, 2)], [])) == 3 * SIZE


def test_a_view_keeps_its_memory_alive_and_takes_none() -> None:
    # 1 is viewed as 2; while 2 is still needed, 3 is made and then 4.
    viewed = made([(INPUT, 0), new(1), new(1), new(3), new(4)], [((0,), 1), ((1,), 2), ((0,), 3), ((2, 3), 4)], (4,))
    assert peak_bytes(viewed) == (1 + 3) * SIZE


def test_an_in_place_result_takes_no_memory() -> None:
    in_place = made([(INPUT, 0), new(1), new(1), new(1)], [((0,), 1), ((1,), 2), ((2,), 3)], (3,))
    assert peak_bytes(in_place) == (1 + 1) * SIZE


def test_an_output_is_kept_to_the_end() -> None:
    roles = [(INPUT, 0), new(1), new(2), new(3)]
    ops = [((0,), 1), ((0,), 2), ((2,), 3)]
    assert peak_bytes(made(roles, ops, (1, 3))) == (1 + 3) * SIZE
    assert peak_bytes(made(roles, ops, (3,))) == (1 + 2) * SIZE


def test_a_result_that_no_operator_reads_is_freed_at_once() -> None:
    assert peak_bytes(made([(INPUT, 0), new(1), new(2)], [((0,), 1), ((0,), 2)])) == (1 + 1) * SIZE


def test_tied_weights_are_one_piece_of_memory() -> None:
    assert peak_bytes(made([(INPUT, 0), (PARAM, 1), (PARAM, 1)], [])) == 2 * SIZE


def test_a_shape_that_depends_on_data_counts_as_nothing() -> None:
    values = (Value(0, "", KB, INPUT, 0), Value(1, "", TensorSpec((None,)), "activation", 1))
    graph = Graph(
        source="", framework="", values=values, ops=(Op(0, "gather", "test::op", (0,), (1,), NO_ATTRS),),
        modules=(Module(path="", type="Net"),), inputs=(0,),
    )  # fmt: skip
    assert peak_bytes(graph) == SIZE


CHAIN = made([(INPUT, 0), new(1), new(2), new(3), new(4)], [((0,), 1), ((1,), 2), ((2,), 3), ((3,), 4)], (4,))


def test_a_run_says_when_memory_goes_and_its_readers_do_not() -> None:
    # The run holds 1 until 4 is there, although only 2 is made of it; 3 is gone before the last operator has read it.
    run = replace(CHAIN, lifetimes=Lifetimes((2, 3, 1), (3, 3, 4)))
    found = memory(run, storage_bytes(run))
    assert [size // SIZE for size in found.curve] == [2, 3, 4, 3]
    assert (found.peak_bytes, found.base_bytes, found.at, found.how) == (4 * SIZE, SIZE, 2, "lifetimes")
    assert found.parts == {"inputs": SIZE, "temporary": 3 * SIZE}
    assert memory(CHAIN, storage_bytes(CHAIN)).how == "last reader"


def test_the_peak_is_made_of_parts_that_modules_hold() -> None:
    roles = [(INPUT, 0), (PARAM, 1), new(2), new(3), new(4), new(5), new(6)]
    steps = [("forward", "a", (0, 1), 2), ("forward", "b", (2,), 3), ("backward", "b", (3,), 4),
             ("backward", "a", (2, 4), 5), ("update", "", (5,), 6)]  # fmt: skip
    graph = replace(
        made(roles, [], (3,)),
        ops=tuple(
            Op(i, "copy", "test::op", ins, (out,), NO_ATTRS, module, 1, phase)
            for i, (phase, module, ins, out) in enumerate(steps)
        ),
        # 2 is kept for the backward pass, 4 is only passed on, 5 is a gradient, 6 what an optimizer remembers.
        lifetimes=Lifetimes((4, 2), (4, 4), gradients=frozenset({5}), state=frozenset({6})),
    )
    found = memory(graph, storage_bytes(graph))
    assert found.base_bytes == 3 * SIZE
    assert [size // SIZE for size in found.curve] == [4, 5, 6, 7, 5]
    assert found.parts == {
        "weights": SIZE, "inputs": SIZE, "optimizer": SIZE, "gradients": SIZE, "saved": SIZE, "outputs": SIZE,
        "temporary": SIZE,
    }  # fmt: skip
    assert sum(found.parts.values()) == found.peak_bytes
    assert found.holders == (
        PeakHolder(module="a", bytes=2 * SIZE, tensors=2),
        PeakHolder(module="b", bytes=2 * SIZE, tensors=2),
    )
