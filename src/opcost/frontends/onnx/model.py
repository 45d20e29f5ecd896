"""An ONNX model as data: its graph, the functions it calls, and the versions of its operators."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple, TypeAlias

from opcost.core.parsing import Bad
from opcost.frontends.nodes import MOST_AXES, MOST_CONTENT, MOST_DEPTH
from opcost.frontends.nodes.meaning import Content, DeclaredValue, GraphNode, NodeGraph, StoredValue
from opcost.frontends.protobuf import FilePiece, MessageFields, Piece, fields, floats, long_text, piece, text

DTYPES = dict(
    enumerate(
        """
        undefined float32 uint8 int8 uint16 int16 int32 int64 string bool float16 float64 uint32 uint64 complex64 complex128
        bfloat16 float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz uint4 int4 float4_e2m1fn float8_e8m0fnu uint2 int2
        """.split()
    )
)

MOST_NOTED = 1 << 24  # Bytes of what an exporter notes of a graph: PyTorch's lists all parameters
MOST_METADATA = 1024  # Bytes of an entry of a file's metadata; what is longer is no size
_DOMAINS = {"ai.onnx": "", "ai.onnx.ml": "ml"}  # What nodes call the domains of ONNX itself


class Function(NamedTuple):
    """An operator that the model itself defines by others."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    defaults: Mapping[str, Any]
    nodes: tuple[GraphNode, ...]


class AttributeReference(NamedTuple):
    """In a function: the attribute of the call that has this name."""

    name: str


Attributes: TypeAlias = "dict[Piece, tuple[str, Any]]"  # Attributes that were read, by their bytes
_FIELDS = {2: 3, 1: 2, 3: 4, 7: 8, 6: 7}  # Of plain kinds, which field has the value


@dataclass(frozen=True, slots=True)
class OnnxModel:
    """A graph, the functions it calls, and the versions of the operators."""

    graph: NodeGraph
    functions: Mapping[tuple[str, str], Function]
    opsets: Mapping[str, int]
    producer: str
    ir: int
    metadata: Mapping[str, str]  # What else the file notes of the model


def read_model(message: Piece) -> OnnxModel:
    """The model in these bytes."""
    parts = MessageFields.of(message)
    if 7 not in parts.found:
        raise Bad("there is no graph in it")
    opsets = {each.text(1) or "ai.onnx": each.whole(2) for each in parts.messages(8)}
    seen: Attributes = {}
    functions = {}
    for each in parts.messages(25):
        defaults = dict(_attribute(piece(one), 0, seen) for one in each.all(11))
        nodes = tuple(_node(piece(one), 0, seen) for one in each.all(7))
        names = [tuple(map(text, each.all(number))) for number in (4, 5)]
        functions[each.text(10), each.text(1)] = Function(names[0], names[1], defaults, nodes)
    producer = " ".join(filter(None, (parts.text(2), parts.text(3))))
    metadata = {
        each.text(1): long_text(each.all(2)[-1], MOST_METADATA) for each in parts.messages(14) if 2 in each.found
    }
    return OnnxModel(_graph(piece(parts.all(7)[-1]), 0, seen), functions, opsets, producer, parts.whole(1), metadata)


def _graph(message: Piece, depth: int, seen: Attributes) -> NodeGraph:
    if depth > MOST_DEPTH:
        raise Bad(f"graphs are nested, more than {MOST_DEPTH} deep")
    nodes: list[GraphNode] = []
    stored: dict[str, StoredValue] = {}
    inputs: list[DeclaredValue] = []
    outputs: list[DeclaredValue] = []
    inside = _Declarations()
    props: dict[str, str] = {}
    name = ""
    for number, value in fields(message):
        if number == 1:
            nodes.append(_node(piece(value), depth, seen))
        elif number in (5, 15):
            tensor = _tensor(piece(value)) if number == 5 else _sparse(piece(value))
            stored[tensor.name] = tensor
        elif number == 13:
            declaration = MessageFields.of(piece(value))
            inside[declaration.text(1)] = declaration
        elif number in (11, 12):
            (inputs if number == 11 else outputs).append(_declared(MessageFields.of(piece(value))))
        elif number == 2:
            name = text(value)
        elif number == 16:
            pair = MessageFields.of(piece(value))
            props[pair.text(1)] = long_text(pair.all(2)[-1], MOST_NOTED) if 2 in pair.found else ""
    inside.update((each.name, each) for each in outputs)
    # The first versions list what is stored among the inputs, too, of which it is none.
    given = tuple([declared for declared in inputs if depth or declared.name not in stored])
    return NodeGraph(name, tuple(nodes), stored, given, tuple(outputs), inside, props)


class _Declarations(dict[str, Any]):
    """What the file declares of values inside, read by `get` when needed: mostly it is not, since shapes are worked out."""

    def get(self, name: str, default: Any = None) -> Any:
        found = super().get(name, default)
        if isinstance(found, MessageFields):
            found = self[name] = _declared(found)
        return found


def _node(message: Piece, depth: int, seen: Attributes) -> GraphNode:
    op = domain = name = ""
    inputs, outputs, attrs, props = [], [], {}, {}
    for number, value in fields(message):
        if number == 1:
            inputs.append(text(value))
        elif number == 2:
            outputs.append(text(value))
        elif number == 5:
            key, given = _attribute(piece(value), depth, seen)
            attrs[key] = given
        elif number == 4:
            op = text(value)
        elif number == 3:
            name = text(value)
        elif number == 7:
            domain = text(value)
        elif number == 9:
            pair = MessageFields.of(piece(value))
            props[pair.text(1)] = pair.text(2)
    return GraphNode(op, _DOMAINS.get(domain, domain), name, tuple(inputs), tuple(outputs), attrs, props)


def _attribute(message: Piece, depth: int, seen: Attributes) -> tuple[str, Any]:
    """Name and value; the same bytes come again and again in a model, and mean the same unless they hold graphs."""
    found = seen.get(message)
    if found is not None:
        return found
    parts = MessageFields.of(message)
    name = parts.text(1)
    if 21 in parts.found:
        return name, AttributeReference(parts.text(21))
    kind = parts.whole(20)
    if kind not in _PLAIN and kind not in _GRAPHS:  # in the first versions it follows from the fields
        kind = next((kind for kind, number in _FIELDS.items() if number in parts.found), 0)
    if kind in _GRAPHS:
        graphs = tuple(_graph(piece(each), depth + 1, seen) for each in parts.all(_GRAPHS[kind]))
        return name, graphs if kind == 10 else graphs[-1] if graphs else None
    read = _PLAIN.get(kind)
    value = read(parts) if read is not None else None
    if read is not None:
        seen[message] = name, value
    return name, value


_GRAPHS = {5: 6, 10: 11}  # Kinds of attributes that are a graph and several, and their fields
_PLAIN: dict[int, Callable[[MessageFields], Any]] = {
    1: lambda parts: floats(parts.all(2)[-1])[0] if 2 in parts.found else 0.0,
    2: lambda parts: parts.whole(3),
    3: lambda parts: parts.text(4),
    4: lambda parts: _tensor(piece(parts.all(5)[-1])) if 5 in parts.found else None,
    6: lambda parts: tuple(value for each in parts.all(7) for value in floats(each)),
    7: lambda parts: tuple(parts.integers(8)),
    8: lambda parts: tuple(map(text, parts.all(9))),
    11: lambda parts: _sparse(piece(parts.all(22)[-1])) if 22 in parts.found else None,
}
"""Kinds that are numbers, texts and tensors."""


def _tensor(message: Piece) -> StoredValue:
    parts = MessageFields.of(message)
    found = parts.found
    shape = tuple(parts.integers(1)) if 1 in found else ()
    if shape and (len(shape) > MOST_AXES or min(shape) < 0):
        raise Bad(f"a stored tensor has the shape {shape[:MOST_AXES]}")
    dtype, content = _dtype(parts.whole(2)), None
    elements = prod(shape)
    # Elements are kept where they are of a type that shapes and scales are made of; the data may be in another file.
    if elements <= MOST_CONTENT and (14 not in found or parts.whole(14) != 1):
        if 9 in found:
            raw = piece(found[9][-1])
            content = None if isinstance(raw, FilePiece) else Content.stored(shape, dtype, raw)
        else:
            items: list[Any] = parts.integers(_NUMBERS[dtype]) if dtype in _NUMBERS else []
            if dtype in _FLOATS:
                items = [value for each in parts.all(_FLOATS[dtype][0]) for value in floats(each, _FLOATS[dtype][1])]
            content = Content(shape, tuple(items)) if len(items) == elements else None
    return StoredValue(parts.text(8), shape, dtype, content)


_FLOATS = {"float32": (4, "f"), "float64": (10, "d")}
_NUMBERS = {
    "int64": 7, **dict.fromkeys(("int32", "int16", "int8", "uint16", "uint8", "bool"), 5), "uint32": 11, "uint64": 11,
}  # fmt: skip
"""The fields of numbers that are not stored as bytes."""


def _sparse(message: Piece) -> StoredValue:
    parts = MessageFields.of(message)
    values = _tensor(piece(parts.all(1)[-1])) if 1 in parts.found else StoredValue("", (0,), "float32")
    return StoredValue(values.name, tuple(parts.integers(3)), values.dtype)


def _declared(parts: MessageFields) -> DeclaredValue:
    """What is declared of a value; only a tensor has a shape."""
    for kind in parts.messages(2):
        for tensor in (*kind.messages(1), *kind.messages(8)):
            shape = None
            for dims in tensor.messages(2)[-1:]:
                extents = [each.whole(1) if 1 in each.found else each.text(2) or None for each in dims.messages(1)]
                shape = tuple(None if isinstance(n, int) and n < 0 else n for n in extents)
            return DeclaredValue(parts.text(1), _dtype(tensor.whole(1)), shape)
        if kind.found:
            return DeclaredValue(parts.text(1), "float32", None, tensor=False)
    return DeclaredValue(parts.text(1), "float32", None)


def _dtype(number: int) -> str:
    if number not in DTYPES:
        raise Bad(f"an element type has the number {number}")
    return DTYPES[number]
