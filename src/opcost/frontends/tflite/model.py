"""A TensorFlow Lite model as data: its graphs, and the signatures by which they are called."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from math import prod
from typing import NamedTuple

from opcost.core.checked import Bad
from opcost.frontends.flatbuffer import I8, I32, U8, U32, U64, Buffer, Table
from opcost.frontends.nodes.model import MOST_AXES, MOST_CONTENT, Content, Declared, Node, NodeGraph, Stored
from opcost.frontends.pages import Pages
from opcost.frontends.tflite.schema import DTYPES, OPERATORS, options_of

IDENTIFIER = b"TFL3"

_FORMS = {
    "float32": "f", "float16": "e", "int32": "i", "uint8": "B", "int64": "q", "bool": "?", "int16": "h", "int8": "b",
    "float64": "d", "uint64": "Q", "uint32": "I", "uint16": "H",
}  # fmt: skip


class Tensor(NamedTuple):
    """What the file says of one tensor; `held`: it has data in the file, or keeps its data from call to call."""

    name: str
    shape: tuple[int | None, ...] | None
    dtype: str
    held: bool
    quantized: bool = False
    variable: bool = False
    sparse: bool = False
    now: tuple[int, ...] = ()
    """The shape with which the file was written, where some of its extents are open."""


class LiteGraph(NamedTuple):
    """One graph, and the tensors in it by their names."""

    graph: NodeGraph
    tensors: dict[str, Tensor]
    order: tuple[str, ...]
    """The names of tensors by their numbers."""


class Signature(NamedTuple):
    """A name by which a graph is called, and what it calls the graph's inputs."""

    name: str
    graph: int
    inputs: dict[str, str]
    """The name of the tensor, by the name of the input."""


class Model(NamedTuple):
    """Graphs, the first of which is the model's own, and signatures."""

    graphs: tuple[LiteGraph, ...]
    signatures: tuple[Signature, ...]
    version: int
    description: str


def read_model(pages: Pages) -> Model:
    """The model in these bytes."""
    root = Buffer(pages, 0, pages.size, pages.what).root(IDENTIFIER)
    codes = [_operator(code) for code in root.tables(1)]
    buffers = list(root.positions(4))
    graphs = tuple(_graph(table, codes, root.buffer, buffers) for table in root.tables(2))
    if not graphs:
        raise Bad("there is no graph in it")
    signatures = []
    for each in root.tables(7):
        place = each.number(4, U32)
        if place >= len(graphs):
            raise Bad(f"a signature calls the graph {place}, and there are {len(graphs)}")
        order = graphs[place].order
        inputs = {entry.text(0): _named(order, entry.number(1, U32)) for entry in each.tables(0)}
        signatures.append(Signature(each.text(2), place, inputs))
    return Model(graphs, tuple(signatures), root.number(0, U32), root.text(3))


def _operator(code: Table) -> tuple[str, str]:
    """Domain and name of an operator."""
    number = max(code.number(0, I8), code.number(3, I32))
    name = OPERATORS.get(number, f"BUILTIN_{number}")
    return ("custom", code.text(1) or "unnamed") if name == "CUSTOM" else ("", name)


def _graph(table: Table, codes: Sequence[tuple[str, str]], buffer: Buffer, buffers: Sequence[int]) -> LiteGraph:
    tensors: dict[str, Tensor] = {}
    stored: dict[str, Stored] = {}
    for place, each in enumerate(table.tables(0)):
        label = each.text(3)
        name = label if label and label not in tensors else f"{label}#{place}"
        where = _data(buffer, buffers, each.number(2, U32))
        tensor = tensors[name] = _tensor(each, name, held=where[1] > 0)
        if tensor.held:
            shape = _whole_shape(tensor)
            content = None if tensor.sparse else _content(buffer, where, shape, tensor.dtype)
            stored[name] = Stored(name, shape, tensor.dtype, content)
    order = tuple(tensors)
    nodes = tuple(_node(each, codes, order) for each in table.tables(3))
    declared = {name: Declared(name, tensor.dtype, tensor.shape) for name, tensor in tensors.items()}
    ends = [tuple(declared[_named(order, at)] for at in table.numbers(slot, "i", 4)) for slot in (1, 2)]
    made = {each.name for each in ends[0]}.union(*(node.outputs for node in nodes))
    for name, tensor in tensors.items():
        if 0 in tensor.now and name not in made:  # nothing is stored of a tensor without elements
            stored[name] = Stored(name, tensor.now, tensor.dtype, Content(tensor.now, ()))
    kept = {name: tensor for name, tensor in stored.items() if name not in made}
    return LiteGraph(
        NodeGraph(table.text(4), _named_by_readers(nodes, kept), kept, ends[0], ends[1], declared), tensors, order
    )


def _named_by_readers(nodes: Sequence[Node], stored: Mapping[str, Stored]) -> tuple[Node, ...]:
    """Nodes, where those that widen a stored weight have the name that tells the layer which reads it."""
    widened = {node.outputs[0]: node.inputs[0] for node in nodes if _widens(node, stored)}
    readers = {name: node for node in reversed(nodes) for name in node.inputs if name in widened}

    def name_of(node: Node) -> str:
        reader = readers.get(node.outputs[0]) if _widens(node, stored) else None
        if reader is None:
            return node.name
        read = (widened.get(name, name) for name in reader.inputs)
        names = (reader.name, *(name for name in read if name in stored))
        return next((name for name in names if "/" in name), node.name)

    return tuple(node._replace(name=name_of(node)) if node.op == "DEQUANTIZE" else node for node in nodes)


def _widens(node: Node, stored: Mapping[str, Stored]) -> bool:
    return node.op == "DEQUANTIZE" and bool(node.inputs and node.outputs) and node.inputs[0] in stored


def _whole_shape(tensor: Tensor) -> tuple[int, ...]:
    shape = tensor.now or tensor.shape or ()
    if None in shape:
        raise Bad(f"the stored tensor {tensor.name!r} has an open shape")
    return shape  # type: ignore[return-value]


def _tensor(table: Table, name: str, *, held: bool) -> Tensor:
    written = table.numbers(0, "i", 4)
    signature = table.numbers(7, "i", 4) or written
    if len(written) > MOST_AXES or any(extent < -1 for extent in (*written, *signature)):
        raise Bad(f"the tensor {name!r} has the shape {written[:MOST_AXES]}")
    number = table.number(1, I8)
    if number not in DTYPES:
        raise Bad(f"the tensor {name!r} has an element type of the number {number}")
    variable = bool(table.number(5, U8))
    quantization = table.table(4)
    # A shape without axes is that of a scalar, or of a tensor of which nothing is known.
    known = bool(written) or held or variable or bool(table.number(8, U8))
    shape: tuple[int | None, ...] = tuple(None if extent < 0 else extent for extent in signature)
    whole = tuple(extent for extent in written if extent >= 0)
    return Tensor(
        name,
        shape if known else None,
        DTYPES[number],
        held or variable,
        quantization is not None and bool(quantization.vector(2, 4)),
        variable,
        table.table(6) is not None,
        whole if len(whole) == len(written) == len(signature) else (),
    )


def _data(buffer: Buffer, buffers: Sequence[int], place: int) -> tuple[int, int]:
    """Where the data of a tensor lies and how long it is; nothing: none of it is in the file."""
    if not 0 < place < len(buffers):
        return 0, 0
    table = Table(buffer, buffers[place])
    at, length = table.data(0)
    if length:
        return at, length
    at, length = table.number(1, U64), table.number(2, U64)  # behind the graph, in files of more than two gigabytes
    if at > 1 and length and at + length > buffer.end:
        raise Bad(f"the data of a tensor lies at byte {at:,}, behind the end of the file")
    return (at, length) if at > 1 else (0, 0)


def _content(buffer: Buffer, where: tuple[int, int], shape: tuple[int, ...], dtype: str) -> Content | None:
    form, elements = _FORMS.get(dtype), prod(shape)
    if form is None or elements > MOST_CONTENT or where[1] != elements * struct.calcsize(form):
        return None
    at = buffer.check(*where)
    return Content(shape, buffer.data.piece(at, where[1]), f"<{elements}{form}")


def _node(table: Table, codes: Sequence[tuple[str, str]], order: Sequence[str]) -> Node:
    place = table.number(0, U32)
    if place >= len(codes):
        raise Bad(f"an operator is of the kind {place}, and there are {len(codes)}")
    domain, op = codes[place]
    ins = tuple("" if at == -1 else _named(order, at) for at in table.numbers(1, "i", 4))
    outs = tuple("" if at == -1 else _named(order, at) for at in table.numbers(2, "i", 4))
    return Node(op, domain, outs[0] if outs else "", ins, outs, options_of(op, table.table(4) or table.table(12)))


def _named(order: Sequence[str], at: int) -> str:
    if not 0 <= at < len(order):
        raise Bad(f"the tensor {at} is named, and there are {len(order)}")
    return order[at]
