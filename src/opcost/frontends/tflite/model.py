"""A TensorFlow Lite model as data: its graphs, and the signatures by which they are called.

The words of the schema are in `format.json`: element types and operators by their numbers, and fields of operators' options.
"""

import struct
from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

from opcost.core.parsing import Bad, packaged_table
from opcost.frontends.flatbuffer import F32, I8, I32, U8, U32, U64, Buffer, FlatTable, Pages
from opcost.frontends.nodes import MOST_AXES, MOST_CONTENT
from opcost.frontends.nodes.meaning import Content, DeclaredValue, GraphNode, NodeGraph, StoredValue

_FORMAT = packaged_table("opcost.frontends.tflite", "format.json")
DTYPES = dict(enumerate(" ".join(_FORMAT["types"]).split()))
OPERATORS = dict(enumerate(" ".join(_FORMAT["operators"]).split()))
_BYTES = ("padding", "fused", "format", "kernel", "combiner", "from", "to", "merge_outputs", "time_major")
"""Numbers of one byte."""
_NUMBERS = {"?": U8, "b": I8, "i": I32, "l": struct.Struct("<q")}


def _field(word: str) -> tuple[str, str, int]:
    """Name, form and default of a field: `name` is a number, `name?` a flag, `name/form` something else."""
    described, _, default = word.partition("=")
    name, _, form = described.partition("/")
    form = "?" if name.endswith("?") else form or ("b" if name in _BYTES else "i")
    return name.rstrip("?"), form, int(default or 0)


FIELDS: dict[str, list[tuple[str, str, int]]] = {}  # Of operators' options in the order of their slots
for _line in _FORMAT["options"]:
    _ops, _, _words = _line.partition(":")
    for _op in _ops.split():
        FIELDS.setdefault(_op, []).extend(map(_field, _words.split()))


def _options(op: str, table: FlatTable | None) -> dict[str, Any]:
    """What the options of an operator say; where a field is not stored, its default."""
    found: dict[str, Any] = {}
    for slot, (name, form, default) in enumerate(FIELDS.get(op, ())):
        if form in _NUMBERS:
            number = default if table is None else table.number(slot, _NUMBERS[form], default)
            found[name] = bool(number) if form == "?" else number
        elif table is not None and form in "IL":
            found[name] = table.numbers(slot, "i" if form == "I" else "q", 4 if form == "I" else 8)
        elif table is not None:
            found[name] = table.text(slot) if form == "s" else table.number(slot, F32, default)
    return found


# -- the model -----------------------------------------------------------------------------------------------------------

IDENTIFIER = b"TFL3"


class LiteTensor(NamedTuple):
    """What the file declares of one tensor."""

    shape: tuple[int | None, ...] | None
    dtype: str
    quantized: bool
    variable: bool
    now: tuple[int, ...]  # The shape with which the file was written, where some of its extents are open


class LiteGraph(NamedTuple):
    """One graph, and the tensors in it by their names, in the order of their numbers."""

    graph: NodeGraph
    tensors: dict[str, LiteTensor]


class LiteSignature(NamedTuple):
    """A name by which a graph is called, and what it calls the graph's inputs."""

    name: str
    graph: int
    inputs: dict[str, str]  # The name of the tensor, by the name of the input


class LiteModel(NamedTuple):
    """Graphs, the first of which is the model's own, and signatures."""

    graphs: tuple[LiteGraph, ...]
    signatures: tuple[LiteSignature, ...]
    version: int
    description: str


def read_model(pages: Pages) -> LiteModel:
    """The model in these bytes."""
    root = Buffer(pages, 0, pages.size, pages.what).root(IDENTIFIER)
    codes = []
    for code in root.tables(1):
        number = max(code.number(0, I8), code.number(3, I32))
        name = OPERATORS.get(number, f"BUILTIN_{number}")
        codes.append(("custom", code.text(1) or "unnamed") if name == "CUSTOM" else ("", name))
    buffers = list(root.positions(4))
    graphs = tuple(_graph(table, codes, buffers) for table in root.tables(2))
    if not graphs:
        raise Bad("there is no graph in it")
    signatures = []
    for each in root.tables(7):
        place = each.number(4, U32)
        if place >= len(graphs):
            raise Bad(f"a signature calls the graph {place}, and there are {len(graphs)}")
        order = tuple(graphs[place].tensors)
        inputs = {entry.text(0): _named(order, [entry.number(1, U32)])[0] for entry in each.tables(0)}
        signatures.append(LiteSignature(each.text(2), place, inputs))
    return LiteModel(graphs, tuple(signatures), root.number(0, U32), root.text(3))


def _graph(table: FlatTable, codes: Sequence[tuple[str, str]], buffers: Sequence[int]) -> LiteGraph:
    tensors: dict[str, LiteTensor] = {}
    stored: dict[str, StoredValue] = {}
    for place, each in enumerate(table.tables(0)):
        label = each.text(3)
        name = label if label and label not in tensors else f"{label}#{place}"
        at, length = _data(table.buffer, buffers, each.number(2, U32))
        tensor = tensors[name] = _tensor(each, name, has_data=length > 0)
        if length or tensor.variable:  # what keeps its data from call to call
            shape = tuple(extent for extent in tensor.now or tensor.shape or () if extent is not None)
            if len(shape) != len(tensor.now or tensor.shape or ()):
                raise Bad(f"the stored tensor {name!r} has an open shape")
            content = None
            if each.table(6) is None and prod(shape) <= MOST_CONTENT and length <= 8 * MOST_CONTENT:  # it is not sparse
                raw = table.buffer.data.piece(table.buffer.check(at, length), length)
                content = Content.stored(shape, tensor.dtype, raw)
            stored[name] = StoredValue(name, shape, tensor.dtype, content)
    order = tuple(tensors)
    nodes = []
    for each in table.tables(3):
        place = each.number(0, U32)
        if place >= len(codes):
            raise Bad(f"an operator is of the kind {place}, and there are {len(codes)}")
        domain, op = codes[place]
        ins, outs = (_named(order, each.numbers(slot, "i", 4), left_out=-1) for slot in (1, 2))
        options = _options(op, each.table(4) or each.table(12))
        nodes.append(GraphNode(op, domain, outs[0] if outs else "", ins, outs, options))
    declared = {name: DeclaredValue(name, tensor.dtype, tensor.shape) for name, tensor in tensors.items()}
    ends = [tuple(declared[name] for name in _named(order, table.numbers(slot, "i", 4))) for slot in (1, 2)]
    made = {each.name for each in ends[0]}.union(*(node.outputs for node in nodes))
    for name, tensor in tensors.items():
        if 0 in tensor.now and name not in made:  # nothing is stored of a tensor without elements
            stored[name] = StoredValue(name, tensor.now, tensor.dtype, Content(tensor.now, ()))
    kept = {name: tensor for name, tensor in stored.items() if name not in made}
    _name_by_readers(nodes, kept)
    return LiteGraph(NodeGraph(table.text(4), tuple(nodes), kept, ends[0], ends[1], declared), tensors)


def _name_by_readers(nodes: list[GraphNode], stored: Mapping[str, StoredValue]) -> None:
    """Give nodes that widen a stored weight the name of the layer that reads it."""
    widening = [
        (place, node)
        for place, node in enumerate(nodes)
        if node.op == "DEQUANTIZE" and node.outputs and node.inputs[:1] and node.inputs[0] in stored
    ]
    widened = {node.outputs[0]: node.inputs[0] for _, node in widening}
    readers = {name: node for node in reversed(nodes) for name in node.inputs if name in widened}
    for place, node in widening:
        if (reader := readers.get(node.outputs[0])) is not None:
            read = (widened.get(name, name) for name in reader.inputs)
            names = (reader.name, *(name for name in read if name in stored))
            nodes[place] = node._replace(name=next((name for name in names if "/" in name), node.name))


def _tensor(table: FlatTable, name: str, *, has_data: bool) -> LiteTensor:
    written = table.numbers(0, "i", 4)
    signature = table.numbers(7, "i", 4) or written
    if len(written) > MOST_AXES or any(extent < -1 for extent in (*written, *signature)):
        raise Bad(f"the tensor {name!r} has the shape {written[:MOST_AXES]}")
    number = table.number(1, I8)
    if number not in DTYPES:
        raise Bad(f"the tensor {name!r} has an element type of the number {number}")
    variable, quantization = bool(table.number(5, U8)), table.table(4)
    # A shape without axes is that of a scalar, or of a tensor of which nothing is known.
    ranked = bool(written) or has_data or variable or bool(table.number(8, U8))
    shape = tuple(None if extent < 0 else extent for extent in signature) if ranked else None
    now = written if -1 not in written and len(written) == len(signature) else ()
    quantized = quantization is not None and bool(quantization.vector(2, 4))
    return LiteTensor(shape, DTYPES[number], quantized, variable, now)


def _data(buffer: Buffer, buffers: Sequence[int], place: int) -> tuple[int, int]:
    """Place and length of the data of a tensor; zeros: none of it is in the file."""
    if not 0 < place < len(buffers):
        return 0, 0
    table = FlatTable(buffer, buffers[place])
    at, length = table.data(0)
    if length:
        return at, length
    at, length = table.number(1, U64), table.number(2, U64)  # behind the graph, in files of more than two gigabytes
    if at > 1 and length and at + length > buffer.end:
        raise Bad(f"the data of a tensor is at byte {at:,}, behind the end of the file")
    return (at, length) if at > 1 else (0, 0)


def _named(order: Sequence[str], numbers: Iterable[int], left_out: int | None = None) -> tuple[str, ...]:
    """The names of tensors by their numbers."""
    found = []
    for at in numbers:
        if at != left_out and not 0 <= at < len(order):
            raise Bad(f"the tensor {at} is named, and there are {len(order)}")
        found.append("" if at == left_out else order[at])
    return tuple(found)
