"""Operators that no converter at hand writes: each is written by hand, and its cost derived."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tflite_making as making
from tflite_making import Net, Op, Tensor, integers, weight

import opcost


def counted(folder: Path, *nets: Net, **given: Any) -> Any:
    path = folder / "net.tflite"
    path.write_bytes(making.model(*nets))
    return opcost.count(path, **given)


def one(op: str, x: Tensor, y: Tensor, *others: Tensor | None, **options: Any) -> Net:
    """A graph of one operator that reads x and these."""
    there = [tensor for tensor in others if tensor is not None]
    places = iter(range(2, 2 + len(there)))
    reads = [0, *(-1 if tensor is None else next(places) for tensor in others)]
    return Net([x, y, *there], [Op(op, reads, [1], options)], [0], [1])


BATCH, TIME, WIDTH, CELLS, OUT = 2, 5, 3, 6, 4


def lstm_inputs(*, coupled: bool = False, projected: bool = False) -> list[Tensor | None]:
    """The inputs of an LSTM behind its first: weights, weights of the state, peepholes, biases, projection, states."""
    out = OUT if projected else CELLS
    gates = [None if coupled and not at else weight(f"w{at}", CELLS, WIDTH) for at in range(4)]
    states = [None if coupled and not at else weight(f"r{at}", CELLS, out) for at in range(4)]
    biases = [None if coupled and not at else weight(f"b{at}", CELLS) for at in range(4)]
    kept = [Tensor("h", (BATCH, out), variable=True), Tensor("c", (BATCH, CELLS), variable=True)]
    projection = weight("p", OUT, CELLS) if projected else None
    return [*gates, *states, None, None, None, *biases, projection, None, *kept]


@pytest.mark.parametrize("projected", [False, True])
def test_a_sequence_through_an_lstm(tmp_path: Path, projected: bool) -> None:
    out = OUT if projected else CELLS
    net = one(
        "UNIDIRECTIONAL_SEQUENCE_LSTM",
        Tensor("x", (BATCH, TIME, WIDTH)),
        Tensor("y", (BATCH, TIME, out)),
        *lstm_inputs(projected=projected),
        fused=4,
    )
    report = counted(tmp_path, net)
    macs = BATCH * TIME * (4 * CELLS * (WIDTH + out) + (CELLS * OUT if projected else 0))
    assert report.totals.macs == macs
    assert report.totals.params == 4 * CELLS * (WIDTH + out + 1) + (CELLS * OUT if projected else 0)
    assert report.totals.buffers == BATCH * (out + CELLS)
    # One step of a cell costs 9 + 3 × 4 operations (three sigmoids, two tanhs, two products, a sum), as `lstm_cell` says;
    # beside it every gate has one bias.
    bias = BATCH * TIME * 4 * CELLS
    assert sum(row.cost.flops for row in report.rows if row.op.kind == "elementwise") == bias


def test_an_lstm_whose_input_gate_is_the_rest_of_its_forget_gate_has_three_gates(tmp_path: Path) -> None:
    net = one("LSTM", Tensor("x", (BATCH, WIDTH)), Tensor("y", (BATCH, CELLS)), *lstm_inputs(coupled=True), fused=4)
    assert counted(tmp_path, net).totals.macs == BATCH * 3 * CELLS * (WIDTH + CELLS)


def test_a_sequence_both_ways(tmp_path: Path) -> None:
    ways = [one_way for _ in range(2) for one_way in lstm_inputs()[:17]]
    x, y = Tensor("x", (BATCH, TIME, WIDTH)), Tensor("y", (BATCH, TIME, 2 * CELLS))
    report = counted(tmp_path, one("BIDIRECTIONAL_SEQUENCE_LSTM", x, y, *ways, merge_outputs=1, fused=4))
    assert report.totals.macs == 2 * BATCH * TIME * 4 * CELLS * (WIDTH + CELLS)
    assert report.outputs[0].shape == (BATCH, TIME, 2 * CELLS)


def test_plain_recurrent_layers(tmp_path: Path) -> None:
    parts = [weight("w", CELLS, WIDTH), weight("r", CELLS, CELLS), weight("b", CELLS)]
    state = Tensor("h", (BATCH, CELLS), variable=True)
    step = one("RNN", Tensor("x", (BATCH, WIDTH)), Tensor("y", (BATCH, CELLS)), *parts, state, fused=1)
    assert counted(tmp_path, step).totals.macs == BATCH * CELLS * (WIDTH + CELLS)
    x, y = Tensor("x", (BATCH, TIME, WIDTH)), Tensor("y", (BATCH, TIME, CELLS))
    whole = one("UNIDIRECTIONAL_SEQUENCE_RNN", x, y, *parts, state, fused=1)
    assert counted(tmp_path, whole).totals.macs == BATCH * TIME * CELLS * (WIDTH + CELLS)


def test_a_filter_of_rank_two_is_a_product_along_features_and_one_along_time(tmp_path: Path) -> None:
    filters, memory = 8, 10
    parts = [weight("f", filters, WIDTH), weight("t", filters, memory), None]
    state = Tensor("s", (BATCH, memory * filters), variable=True)
    net = one("SVDF", Tensor("x", (BATCH, WIDTH)), Tensor("y", (BATCH, filters // 2)), *parts, state, rank=2)
    report = counted(tmp_path, net)
    assert report.totals.macs == BATCH * filters * (WIDTH + memory)
    assert report.outputs[0].shape == (BATCH, filters // 2)


def test_rows_of_a_quantized_table(tmp_path: Path) -> None:
    table = weight("table", 100, 8, dtype="int8", scale=[0.5])
    report = counted(tmp_path, one("EMBEDDING_LOOKUP", Tensor("x", (3,), "int32"), Tensor("y", (3, 8), "int8"), table))
    assert report.totals.params == 100 * 8
    assert report.outputs[0].shape == (3, 8)


def test_four_bits_of_a_weight_take_half_a_byte(tmp_path: Path) -> None:
    net = one("FULLY_CONNECTED", Tensor("x", (2, 6)), Tensor("y", (2, 4)), weight("w", 4, 6, dtype="int4", scale=[1.0]))
    report = counted(tmp_path, net)
    assert report.totals.params == 24
    assert report.totals.param_bytes == 12
    assert report.totals.macs == 2 * 6 * 4


def test_shapes_and_axes_are_no_parameters(tmp_path: Path) -> None:
    report = counted(tmp_path, one("RESHAPE", Tensor("x", (2, 6)), Tensor("y", (3, 4)), integers("to", 3, -1)))
    assert report.totals.params == 0
    assert report.outputs[0].shape == (3, 4)


def test_a_custom_operator_is_unknown_and_never_zero(tmp_path: Path) -> None:
    net = one("MyOp", Tensor("x", (2, 6)), Tensor("y", (2, 6)))
    report = counted(tmp_path, net)
    assert [uncounted.raw for uncounted in report.coverage.uncounted] == ["custom::MyOp"]
    assert report.outputs[0].shape == (2, 6)  # as the file says


def test_an_operator_that_is_not_in_the_schema_is_unknown(tmp_path: Path) -> None:
    making.OPERATORS[1000] = "FROM_THE_FUTURE"
    try:
        data = making.model(one("FROM_THE_FUTURE", Tensor("x", (2, 6)), Tensor("y", (2, 6))))
    finally:
        del making.OPERATORS[1000]
    (tmp_path / "net.tflite").write_bytes(data)
    assert opcost.count(tmp_path / "net.tflite").coverage.uncounted[0].raw == "tflite::BUILTIN_1000"


def test_a_variable_is_filled_once_and_kept(tmp_path: Path) -> None:
    """A ring of features: read, moved on by one, put back."""
    ring = Tensor("handle", (), "resource")
    main = Net(
        [
            Tensor("x", (1, 1, 4)), ring, Tensor("old", (1, 3, 4)), Tensor("all", (1, 4, 4)), integers("begin", 0, 1, 0),
            integers("size", -1, -1, -1), Tensor("new", (1, 3, 4)),
        ],
        [
            Op("CALL_ONCE", [], [], {"init": 1}), Op("VAR_HANDLE", [], [1], {"shared_name": "ring"}),
            Op("READ_VARIABLE", [1], [2]), Op("CONCATENATION", [2, 0], [3], {"axis": 1}), Op("SLICE", [3, 4, 5], [6]),
            Op("ASSIGN_VARIABLE", [1, 6], []),
        ],
        [0],
        [3],
    )  # fmt: skip
    once = Net(
        [ring, weight("zeros", 1, 3, 4)],
        [Op("VAR_HANDLE", [], [0], {"shared_name": "ring"}), Op("ASSIGN_VARIABLE", [0, 1], [])],
        [],
        [],
    )
    report = counted(tmp_path, main, once)
    assert report.totals.buffers == 1 * 3 * 4
    assert report.totals.params == 0
    assert [row.op.raw for row in report.rows].count("tflite::ASSIGN_VARIABLE") == 1
    assert report.outputs[0].shape == (1, 4, 4)


def test_a_composite_is_what_its_graph_does(tmp_path: Path) -> None:
    inner = one("FULLY_CONNECTED", Tensor("x", (2, 6)), Tensor("y", (2, 4)), weight("w", 4, 6))
    outer = one("STABLEHLO_COMPOSITE", Tensor("a", (2, 6)), Tensor("b", (2, 4)), name="odml.linear", subgraph=1)
    report = counted(tmp_path, outer, inner)
    assert report.totals.macs == 2 * 6 * 4
    assert report.totals.params == 24


def test_general_products(tmp_path: Path) -> None:
    dot = one(
        "STABLEHLO_DOT_GENERAL", Tensor("x", (2, 3, 5)), Tensor("y", (2, 3, 7)), weight("w", 2, 7, 5),
        batch_a=(0,), batch_b=(0,), summed_a=(2,), summed_b=(2,),
    )  # fmt: skip
    report = counted(tmp_path, dot)
    assert report.totals.macs == 2 * 3 * 7 * 5
    assert report.outputs[0].shape == (2, 3, 7)
    conv = one(
        "STABLEHLO_CONVOLUTION", Tensor("x", (1, 8, 8, 4)), Tensor("y", (1, 4, 4, 6)), weight("w", 3, 3, 2, 6),
        strides=(2, 2), padding=(1, 0, 1, 0), in_batch=0, in_channels=3, in_space=(1, 2), kernel_in=2, kernel_out=3,
        kernel_space=(0, 1), out_batch=0, out_channels=3, out_space=(1, 2), groups=2,
    )  # fmt: skip
    report = counted(tmp_path, conv)
    assert report.totals.macs == 4 * 4 * 6 * 3 * 3 * 2
    assert report.outputs[0].shape == (1, 4, 4, 6)


def test_a_fused_activation_costs_what_it_would_alone(tmp_path: Path) -> None:
    x, y, w = Tensor("x", (2, 6)), Tensor("y", (2, 4)), weight("w", 4, 6)
    plain = counted(tmp_path, one("FULLY_CONNECTED", x, y, w))
    fused = counted(tmp_path, one("FULLY_CONNECTED", x, y, w, fused=3))
    assert fused.totals.flops - plain.totals.flops == 2 * 4 * 2  # a maximum and a minimum for each element
    assert fused.totals.activations == plain.totals.activations
    pool = one(
        "MAX_POOL_2D",
        Tensor("x", (1, 4, 4, 2)),
        Tensor("y", (1, 2, 2, 2)),
        stride_w=2,
        stride_h=2,
        filter_w=2,
        filter_h=2,
    )
    pooled = one(
        "MAX_POOL_2D", Tensor("x", (1, 4, 4, 2)), Tensor("y", (1, 2, 2, 2)),
        stride_w=2, stride_h=2, filter_w=2, filter_h=2, fused=1,
    )  # fmt: skip
    difference = counted(tmp_path, pooled).totals.flops - counted(tmp_path, pool).totals.flops
    assert difference == 2 * 2 * 2
