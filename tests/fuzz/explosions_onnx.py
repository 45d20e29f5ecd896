"""Small ONNX files whose meaning is large, written field by field."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

ONNX: dict[str, Callable[[Path], list[str]]] = {}


def varint(number: int) -> bytes:
    found = b""
    number &= (1 << 64) - 1
    while number >= 0x80:
        found += bytes([number & 0x7F | 0x80])
        number >>= 7
    return found + bytes([number])


def field(number: int, value: int | bytes | str) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    content = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(content)) + content


def tensor(name: str, numbers: list[int], shape: list[int] | None = None, floats: bool = False) -> bytes:
    dims = b"".join(field(1, n) for n in ([len(numbers)] if shape is None else shape))
    raw = struct.pack(f"<{len(numbers)}{'f' if floats else 'q'}", *numbers)
    return dims + field(2, 1 if floats else 7) + field(8, name) + field(9, raw)


def attribute(name: str, value: int | bytes) -> bytes:
    return field(1, name) + (
        field(3, value) + field(20, 2) if isinstance(value, int) else field(6, value) + field(20, 5)
    )


def node(op: str, ins: str, outs: str, domain: str = "", **attrs: int | bytes) -> bytes:
    found = b"".join(field(1, name) for name in ins.split()) + b"".join(field(2, name) for name in outs.split())
    found += field(4, op) + b"".join(field(5, attribute(*pair)) for pair in attrs.items())
    return found + (field(7, domain) if domain else b"")


def value(name: str, shape: list[int], kind: int = 1) -> bytes:
    dims = b"".join(field(1, field(1, n)) for n in shape)
    return field(1, name) + field(2, field(1, field(1, kind) + field(2, dims)))


def graph(nodes: list[bytes], stored: list[bytes] = (), ins: list[bytes] = (), outs: list[bytes] = ()) -> bytes:  # type: ignore[assignment]
    found = b"".join(field(1, each) for each in nodes) + field(2, "g") + b"".join(field(5, each) for each in stored)
    return found + b"".join(field(11, each) for each in ins) + b"".join(field(12, each) for each in outs)


def onnx(name: str, nodes: list[bytes], stored: list[bytes], out: str, functions: list[bytes] = ()) -> None:  # type: ignore[assignment]
    def make(folder: Path) -> list[str]:
        nets = graph(nodes, stored, [value("x", [2, 4])], [value(out, [2, 4])])
        opsets = field(8, field(1, "") + field(2, 18)) + field(8, field(1, "own") + field(2, 1))
        content = field(1, 8) + field(7, nets) + opsets + b"".join(field(25, each) for each in functions)
        (folder / "net.onnx").write_bytes(content)
        return ["count", "net.onnx"]

    ONNX[f"onnx_{name}"] = make


def chain(op: str, times: int, **attrs: int) -> list[bytes]:
    """c0 and itself make c1, and so on."""
    return [node(op, f"c{i} c{i}", f"c{i + 1}", **attrs) for i in range(times)]


_SMALL, _LARGE = [tensor("c0", [3])], [tensor("c0", list(range(1024)))]
onnx("squares", [*chain("Mul", 60), node("Expand", "x c60", "y")], _SMALL, "y")
onnx("many_squares", [*chain("Mul", 3000), node("Expand", "x c3000", "y")], _SMALL, "y")
onnx("powers", [*chain("Pow", 9), node("Expand", "x c9", "y")], [tensor("c0", [9])], "y")
onnx("powers_of_floats", [*chain("Pow", 9), node("Expand", "x c9", "y")], [tensor("c0", [9], floats=True)], "y")
onnx("sums", [*chain("Add", 3000), node("Expand", "x c3000", "y")], _SMALL, "y")
onnx("sums_of_many", [*chain("Add", 3000), node("Expand", "x c3000", "y")], _LARGE, "y")
onnx(
    "copies_of_many",
    [node("Concat", f"c{i}", f"c{i + 1}", axis=0) for i in range(5000)],
    [tensor("c0", list(range(4096)))],
    "c5000",
)
onnx("split_into_many", [node("Split", "x", "a b", axis=0, num_outputs=10**9)], [], "a")
onnx("split_by_lengths", [node("Split", "c0 s", "a b", axis=0)], [tensor("c0", [3, 4]), tensor("s", [10**9, 1])], "a")
onnx(
    "sequence_of_many",
    [node("Expand", "x s", "z"), node("SplitToSequence", "z", "a", axis=0)],
    [tensor("s", [10**9, 1, 1])],
    "a",
)
onnx(
    "sequence_that_grows",
    [node("SequenceConstruct", "x", "c0"), *(node("SequenceInsert", f"c{i} x", f"c{i + 1}") for i in range(5000))],
    [],
    "c5000",
)
onnx("doubling", [*chain("Concat", 60, axis=0), node("Concat", "x x", "y", axis=0)], _SMALL, "y")
onnx("doubling_inputs", [node("Concat", "x x", "c0", axis=0), *chain("Concat", 3000, axis=0)], [], "c3000")
onnx(
    "nothing_that_is_large",
    [node("Expand", "e s", "c0"), *chain("Concat", 3, axis=1), *chain("Add", 3), node("Transpose", "c3", "y")],
    [tensor("e", [], [1, 0]), tensor("s", [10**9, 0])],
    "y",
)
onnx("shape_of_many_axes", [node("ConstantOfShape", "s", "y")], [tensor("s", [1] * 4096)], "y")
onnx(
    "range_of_many",
    [node("Range", "a b s", "y")],
    [tensor("a", [0], []), tensor("b", [1 << 62], []), tensor("s", [1], [])],
    "y",
)
onnx("tiles", [node("Tile", "x s", "y")], [tensor("s", [1 << 62, 1 << 62])], "y")


def loops(depth: int, turns: str) -> bytes:
    inner = loops(depth - 1, turns) if depth else node("Relu", "x", "r")
    body = graph(
        [node("Identity", "k", "k2"), node("Identity", "v", "v2"), inner],
        [],
        [value("i", [], 7), value("k", [], 9), value("v", [2, 4])],
        [value("k2", [], 9), value("v2", [2, 4])],
    )
    return node("Loop", f"{turns} t x", f"o{depth}", body=body)


onnx(
    "loops_in_loops",
    [loops(28, "n")],
    [tensor("n", [1 << 39], []), field(2, 9) + field(8, "t") + field(9, b"\1")],
    "o28",
)
onnx(
    "functions_that_call_twice",
    [node("f0", "x", "y", domain="own")],
    [],
    "y",
    [
        field(1, f"f{i}") + field(4, "a") + field(5, "c") + field(10, "own")
        + field(7, node(f"f{i + 1}", "a", "b", domain="own")) + field(7, node(f"f{i + 1}", "b", "c", domain="own"))
        for i in range(50)
    ] + [field(1, "f50") + field(4, "a") + field(5, "c") + field(10, "own") + field(7, node("Relu", "a", "c"))],
)  # fmt: skip
onnx(
    "functions_that_add_twice",
    [node("f0", "c0", "y", domain="own")],
    _LARGE,
    "y",
    [
        field(1, f"f{i}") + field(4, "a") + field(5, "c") + field(10, "own")
        + field(7, node(f"f{i + 1}", "a", "b", domain="own")) + field(7, node(f"f{i + 1}", "b", "c", domain="own"))
        for i in range(50)
    ] + [field(1, "f50") + field(4, "a") + field(5, "c") + field(10, "own") + field(7, node("Add", "a a", "c"))],
)  # fmt: skip
