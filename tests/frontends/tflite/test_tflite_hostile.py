"""Damaged and hostile TensorFlow Lite files: each is one clear error."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
import tflite_making as making
from tflite_making import Net, Op, Tensor, integers, weight

import opcost
from opcost.errors import OpcostError, SourceError

X, Y = Tensor("x", (2, 6)), Tensor("y", (2, 4))


def refused(folder: Path, data: bytes, match: str) -> None:
    path = folder / "net.tflite"
    path.write_bytes(data)
    with pytest.raises(OpcostError, match=match):
        opcost.count(path)


def test_a_file_that_is_cut_anywhere_is_refused_or_counted_never_more(tmp_path: Path) -> None:
    data = making.model(Net([X, Y, weight("w", 4, 6)], [Op("FULLY_CONNECTED", [0, 2], [1])], [0], [1]))
    path = tmp_path / "net.tflite"
    for length in range(8, len(data) - 8, 7):
        path.write_bytes(data[:length])
        with pytest.raises(SourceError):
            opcost.count(path)


def test_graphs_that_call_each_other_without_end(tmp_path: Path) -> None:
    one = Net([X, Y], [Op("CALL", [0], [1], {"subgraph": 1})], [0], [1])
    other = Net([X, Y], [Op("CALL", [0], [1], {"subgraph": 0})], [0], [1])
    refused(tmp_path, making.model(one, other), "call each other without end")


def test_graphs_that_call_twice_what_calls_twice(tmp_path: Path) -> None:
    """Thirty levels of two calls each would be a thousand million operators."""
    x, y, z = (Tensor(name, (2, 6)) for name in "xyz")
    nets = [
        Net(
            [x, y, z],
            [Op("CALL", [0], [1], {"subgraph": at + 1}), Op("CALL", [1], [2], {"subgraph": at + 1})],
            [0],
            [2],
        )
        for at in range(30)
    ]
    refused(tmp_path, making.model(*nets, Net([x, y], [Op("RELU", [0], [1])], [0], [1])), "run each other")


def test_a_graph_or_a_tensor_that_is_not_there(tmp_path: Path) -> None:
    refused(tmp_path, making.model(Net([X, Y], [Op("CALL", [0], [1], {"subgraph": 7})], [0], [1])), "graph 7 is called")
    refused(tmp_path, making.model(Net([X, Y], [Op("RELU", [9], [1])], [0], [1])), "tensor 9 is named")
    refused(tmp_path, making.model(Net([X, Y, X], [Op("ADD", [0, 2], [1])], [0], [1])), "read and never made")


def test_shapes_that_no_tensor_has(tmp_path: Path) -> None:
    refused(
        tmp_path, making.model(Net([Tensor("x", (-7, 6)), Y], [Op("RELU", [0], [1])], [0], [1])), r"shape \(-7, 6\)"
    )
    huge = Net([X, Y, integers("times", 2**31 - 1, 2**31 - 1)], [Op("TILE", [0, 2], [1])] * 1, [0], [1])
    refused(tmp_path, making.model(huge), "more than memory can address")


def test_a_list_longer_than_the_file(tmp_path: Path) -> None:
    data = bytearray(making.model(Net([X, Y], [Op("RELU", [0], [1])], [0], [1])))
    at = bytes(data).index(struct.pack("<III", 2, 2, 6))  # the shape of x: its length, then its extents
    struct.pack_into("<I", data, at, 2**31)
    refused(tmp_path, bytes(data), "more than the file holds")


def test_a_loop_whose_condition_is_always_true_is_noted(tmp_path: Path) -> None:
    flag = Tensor("true", (1,), "bool", [1])
    loop = Net([X, Y], [Op("WHILE", [0], [1], {"cond": 1, "body": 2})], [0], [1])
    cond, body = Net([X, flag], [], [0], [1]), Net([X, Y], [Op("RELU", [0], [1])], [0], [1])
    path = tmp_path / "net.tflite"
    path.write_bytes(making.model(loop, cond, body))
    assert any("one turn is counted" in note.text for note in opcost.count(path).notes)


def test_an_operator_without_its_inputs(tmp_path: Path) -> None:
    refused(tmp_path, making.model(Net([X, Y], [Op("CONV_2D", [0], [1])], [0], [1])), "argument .weight. is missing")


def test_a_slice_of_more_entries_than_a_tensor_has_axes(tmp_path: Path) -> None:
    """A begin of a thousand million entries once became a list of as many."""
    begin = Tensor("begin", (1 << 30,), "int32", "zeros")
    net = Net([X, Y, begin], [Op("STRIDED_SLICE", [0, 2, 2, 2], [1])], [0], [1])
    refused(tmp_path, making.model(net), "1073741824 entries")
