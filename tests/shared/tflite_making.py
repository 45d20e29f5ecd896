"""TensorFlow Lite files that tests write, table by table: what no converter makes."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from opcost.frontends.tflite.model import DTYPES, FIELDS, OPERATORS

_WIDTHS = {"b": 1, "?": 1, "i": 4, "I": 4, "f": 4, "q": 8, "Q": 8}
NUMBERS = {name: number for number, name in DTYPES.items()}


class Number(NamedTuple):
    """A field that is stored in its table."""

    form: str
    value: float


class Numbers(NamedTuple):
    """A vector of numbers."""

    form: str
    values: Sequence[float]


class _Writer:
    """Writes what refers before what is referred to, as offsets lead forward."""

    def __init__(self) -> None:
        self.out = bytearray(8)

    def table(self, fields: Mapping[int, Any]) -> int:
        slots = range(max(fields, default=-1) + 1)
        self._align()
        description = len(self.out)
        inside = {slot: 8 + 8 * place for place, slot in enumerate(sorted(fields))}
        self.out += struct.pack("<HH", 4 + 2 * len(slots), 8 + 8 * len(fields))
        self.out += struct.pack(f"<{len(slots)}H", *(inside.get(slot, 0) for slot in slots))
        self._align()
        at = len(self.out)
        self.out += struct.pack("<ii", at - description, 0) + bytes(8 * len(fields))
        for slot, value in fields.items():
            place = at + inside[slot]
            if isinstance(value, Number):
                struct.pack_into(f"<{value.form}", self.out, place, value.value)
            else:
                target = self.piece(value)
                struct.pack_into("<I", self.out, place, target - place)
        return at

    def piece(self, value: Any) -> int:
        if isinstance(value, Mapping):
            return self.table(value)
        self._align()
        at = len(self.out)
        if isinstance(value, Numbers):
            # The length is before the elements, which begin where their width divides.
            self.out += struct.pack("<I", len(value.values)) + struct.pack(
                f"<{len(value.values)}{value.form}", *value.values
            )
        elif isinstance(value, (str, bytes)):
            data = value.encode() if isinstance(value, str) else value
            self.out += struct.pack("<I", len(data)) + data + b"\0"
        else:
            self.out += struct.pack("<I", len(value)) + bytes(4 * len(value))
            for place, each in enumerate(value):
                where = at + 4 + 4 * place
                target = self.piece(each)
                struct.pack_into("<I", self.out, where, target - where)
        return at

    def _align(self) -> None:
        self.out += bytes(-len(self.out) % 8)


def written(root: Mapping[int, Any]) -> bytes:
    """A flatbuffer with this outermost table."""
    writer = _Writer()
    at = writer.table(root)
    struct.pack_into("<I4s", writer.out, 0, at, b"TFL3")
    return bytes(writer.out)


class Tensor(NamedTuple):
    """A tensor; `data`: it is stored with this number of zero bytes, or with these numbers."""

    name: str
    shape: Sequence[int]
    dtype: str = "float32"
    data: Any = None
    scale: Sequence[float] = ()
    variable: bool = False
    open: Sequence[int] = ()


class Op(NamedTuple):
    """An operator by its name, or by the name of a custom one."""

    name: str
    inputs: Sequence[int]
    outputs: Sequence[int]
    options: Mapping[str, Any] = {}


class Net(NamedTuple):
    """A graph: tensors are named by their numbers."""

    tensors: Sequence[Tensor]
    ops: Sequence[Op]
    inputs: Sequence[int]
    outputs: Sequence[int]


def weight(name: str, *shape: int, dtype: str = "float32", scale: Sequence[float] = ()) -> Tensor:
    """A stored tensor."""
    return Tensor(name, shape, dtype, "zeros", scale)


def integers(name: str, *values: int) -> Tensor:
    """A stored tensor of these numbers."""
    return Tensor(name, (len(values),), "int32", values)


def model(*nets: Net) -> bytes:
    """A file with these graphs, the first of which is the model's own."""
    codes: dict[str, int] = {}
    buffers: list[dict[int, Any]] = [{}]
    graphs = []
    for net in nets:
        tensors = [_tensor(each, buffers) for each in net.tensors]
        ops = [_op(each, codes) for each in net.ops]
        graphs.append({0: tensors, 1: Numbers("i", net.inputs), 2: Numbers("i", net.outputs), 3: ops, 4: "main"})
    known = {name: number for number, name in OPERATORS.items()}
    listed = [
        {0: Number("b", min(known[name], 127)), 3: Number("i", known[name])}
        if name in known
        else {0: Number("b", 32), 1: name, 3: Number("i", 32)}
        for name in codes
    ]
    return written({0: Number("I", 3), 1: listed, 2: graphs, 3: "by hand", 4: buffers})


def _tensor(tensor: Tensor, buffers: list[dict[int, Any]]) -> dict[int, Any]:
    found: dict[int, Any] = {0: Numbers("i", tensor.shape), 1: Number("b", NUMBERS[tensor.dtype]), 3: tensor.name}
    if tensor.data is not None:
        count = 1
        for extent in tensor.shape:
            count *= extent
        form = {"int32": "i", "int64": "q", "bool": "?"}.get(tensor.dtype)
        data = (
            bytes(min(max(count, 1), 1 << 16))
            if tensor.data == "zeros"
            else struct.pack(f"<{count}{form}", *tensor.data)
        )
        found[2] = Number("I", len(buffers))
        buffers.append({0: data})
    if tensor.scale:
        found[4] = {2: Numbers("f", tensor.scale)}
    if tensor.variable:
        found[5] = Number("b", 1)
    if tensor.open:
        found[7] = Numbers("i", tensor.open)
    return found


def _op(op: Op, codes: dict[str, int]) -> dict[int, Any]:
    place = codes.setdefault(op.name, len(codes))
    fields: dict[int, Any] = {}
    for slot, (name, form, _) in enumerate(FIELDS.get(op.name, ())):
        if name in op.options:
            fields[slot] = _option(form, op.options[name])
    return {
        0: Number("I", place),
        1: Numbers("i", op.inputs),
        2: Numbers("i", op.outputs),
        3: Number("b", 1),
        4: fields,
    }


def _option(form: str, value: Any) -> Any:
    match form:
        case "s":
            return value
        case "I" | "L":
            return Numbers("i" if form == "I" else "q", value)
    return Number({"l": "q"}.get(form, form), value)
