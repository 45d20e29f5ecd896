"""A Core ML model as data: its declared inputs, and its programs or its neural network as graphs of nodes.

In a program, constants become stored tensors, or attributes of the nodes that read them.
"""

from collections.abc import Mapping
from math import log2, prod
from typing import Any, NamedTuple

from opcost.core.parsing import Bad, packaged_table
from opcost.errors import SourceError
from opcost.frontends.coreml.network import network_graph
from opcost.frontends.nodes import MOST_AXES, MOST_CONTENT, MOST_DEPTH
from opcost.frontends.nodes.meaning import Content, DeclaredValue, GraphNode, NodeGraph, StoredValue
from opcost.frontends.protobuf import FilePiece, MessageFields, Piece, fields, floats, integers, piece, text

_FORMAT: dict[str, dict[str, str]] = packaged_table("opcost.frontends.coreml", "format.json")
"""What Core ML's numbers mean; and of weights in fewer bits, made whole when a model is loaded, which argument holds them."""
DTYPES, _ARRAYS, _OTHERS = (
    {int(number): name for number, name in _FORMAT[part].items()}
    for part in ("types", "types of arrays", "other models")
)


def program_graphs(message: Piece) -> dict[str, NodeGraph]:
    """The functions of a program."""
    found: dict[str, NodeGraph] = {}
    for entry in (MessageFields.of(piece(value)) for number, value in fields(message) if number == 2):
        name = entry.text(1)
        for function in entry.messages(2):
            blocks = {each.text(1): each.all(2)[-1] for each in function.messages(3) if each.all(2)}
            chosen = blocks.get(function.text(2), next(iter(blocks.values()), None))
            if chosen is None:
                raise Bad(f"the function {name!r} has no block")
            inputs = tuple(_declared(each) for each in function.messages(1))
            found[name] = _Block(inputs, {}, 0).graph(piece(chosen), name)
    if not found:
        raise Bad("the program has no function")
    return found


class _Block:
    """Reads a block: its constants, its nodes, and what it declares. Blocks inside it see its texts."""

    def __init__(self, inputs: tuple[DeclaredValue, ...], texts: Mapping[str, list[str]], depth: int) -> None:
        if depth > MOST_DEPTH:
            raise Bad(f"blocks are nested, more than {MOST_DEPTH} deep")
        self.inputs, self.texts, self.depth = inputs, dict(texts), depth
        self.stored: dict[str, StoredValue] = {}
        self.nodes: list[GraphNode] = []
        self.declared = {each.name: each for each in inputs}

    def graph(self, message: Piece, name: str) -> NodeGraph:
        outputs: list[str] = []
        for number, value in fields(message):
            match number:
                case 1:
                    each = _declared(MessageFields.of(piece(value)))
                    self.declared[each.name] = each
                    self.inputs = (*self.inputs, each)
                case 2:
                    outputs.append(text(value))
                case 3:
                    self._operation(MessageFields.of(piece(value)))
        ends = tuple(self.declared.get(each, DeclaredValue(each, "float32", None)) for each in outputs)
        return NodeGraph(name, tuple(self.nodes), self.stored, self.inputs, ends, self.declared)

    def _operation(self, parts: MessageFields) -> None:
        op, outs = parts.text(1), [_declared(each) for each in parts.messages(3)]
        name = outs[0].name if outs else op
        self.declared.update({each.name: each for each in outs})
        attrs = {entry.text(1): _value(piece(value)) for entry in parts.messages(5) for value in entry.all(2)}
        if op == "const" and outs:
            if "val" not in attrs:
                raise Bad(f"the constant {name!r} has no value")
            self._keep(name, attrs["val"])
            return
        label = attrs.pop("name", None)
        names: list[str] = []
        places: dict[str, tuple[int, ...]] = {}
        texts: dict[str, Any] = {}
        for entry in parts.messages(2):
            key = entry.text(1)
            bindings = [binding for argument in entry.messages(2) for binding in argument.messages(1)]
            bound = [self._bound(each, f"{name}:{key}") for each in bindings]
            if bound and all(each in self.texts for each in bound):
                texts[key] = self.texts[bound[0]][0]
                continue
            places[key] = tuple(range(len(names), len(names) + len(bound)))
            names += bound
        for key, given in attrs.items():  # what older versions have beside their inputs
            if isinstance(given, StoredValue):
                places[key] = (len(names),)
                names.append(self._keep(f"{name}:{key}", given))
        inner = enumerate(parts.all(4))
        blocks = tuple(_Block((), self.texts, self.depth + 1).graph(piece(each), f"{op}.{at}") for at, each in inner)
        made, all_attrs = tuple(each.name for each in outs), {**texts, "@": places, "@blocks": blocks}
        node = GraphNode(op, "", label[0] if isinstance(label, list) else "", tuple(names), made, all_attrs)
        if op.startswith("constexpr_") and outs:
            self.stored[name] = _whole_weight(node, outs[0], self.stored)
        else:
            self.nodes.append(node)

    def _bound(self, parts: MessageFields, name: str) -> str:
        """The name that an argument is bound to; a value that is written out is stored under one."""
        if 1 in parts.found:
            return parts.text(1)
        for value in parts.all(2):
            given = _value(piece(value))
            if isinstance(given, StoredValue):
                return self._keep(f"{name}.{len(self.stored)}" if name in self.stored else name, given)
            self._keep(name, given)
        return name

    def _keep(self, name: str, value: StoredValue | list[str]) -> str:
        if isinstance(value, StoredValue):
            self.stored[name] = value._replace(name=name)
        else:
            self.texts[name] = value
        return name


def _whole_weight(node: GraphNode, out: DeclaredValue, stored: Mapping[str, StoredValue]) -> StoredValue:
    """A weight as it is meant: all its elements, in the bits of those that are stored."""
    places = node.attrs["@"]

    def given(name: str) -> StoredValue | None:
        return stored.get(node.inputs[places[name][0]]) if places.get(name) else None

    shape = tuple(extent for extent in out.shape or () if isinstance(extent, int))
    packed = given(_FORMAT["packed"].get(node.op, "nonzero_data"))
    dtype = packed.dtype if packed is not None else out.dtype
    table = given("lut")
    if table is not None and table.shape:
        # Older tables are a row of numbers; newer ones have an axis for the numbers and one for vectors of them.
        count = table.shape[0] if len(table.shape) == 1 else table.shape[-2]
        bits = int(log2(count)) if count > 0 and count & (count - 1) == 0 and count <= 256 else 8
        dtype = f"uint{max(bits, 1)}"
    return StoredValue(out.name, shape, dtype)


def _declared(parts: MessageFields) -> DeclaredValue:
    for kind in parts.messages(2):
        states = [inner for state in kind.messages(5) for inner in state.messages(1)]  # each holds a tensor
        for tensor in (*kind.messages(1), *(tensor for state in states for tensor in state.messages(1))):
            return DeclaredValue(parts.text(1), _dtype(tensor), _shape(tensor))
        return DeclaredValue(parts.text(1), "float32", None, tensor=False)
    return DeclaredValue(parts.text(1), "float32", None)


def _dtype(parts: MessageFields) -> str:
    number = parts.whole(1)
    if number not in DTYPES:
        raise Bad(f"an element type has the number {number}")
    return DTYPES[number]


def _shape(parts: MessageFields) -> tuple[int | None, ...] | None:
    found: list[int | None] = []
    for each in parts.messages(3):
        sizes = each.messages(1)
        found.append(sizes[-1].whole(1) if sizes else None)
        if any(inner.whole(1) for inner in each.messages(2)):  # any number of axes
            return None
    if len(found) > MOST_AXES or any(extent is not None and extent < 0 for extent in found):
        raise Bad(f"a tensor has the shape {found[:MOST_AXES]}")
    return tuple(found)


def _value(message: Piece) -> StoredValue | list[str]:
    """A constant: texts, or a tensor."""
    parts = MessageFields.of(message)
    kinds = [tensor for kind in parts.messages(2) for tensor in kind.messages(1)]
    if not kinds:
        return StoredValue("", (), "uint8")
    dtype, shape = _dtype(kinds[-1]), tuple(extent for extent in _shape(kinds[-1]) or () if extent is not None)
    given = [tensor for immediate in parts.messages(3) for tensor in immediate.messages(1)]
    if not given:
        return StoredValue("", shape, dtype)
    if dtype == "string":
        return [text(each) for row in given[0].messages(4) for each in row.all(1)] or [""]
    elements, items = prod(shape), list[Any]()
    if elements <= MOST_CONTENT:
        for number, rows in ((1, "f"), (6, "d")):
            items += [value for row in given[0].messages(number) for each in row.all(1) for value in floats(each, rows)]
        for number in (2, 3, 5):
            items += [value for row in given[0].messages(number) for each in row.all(1) for value in integers(each)]
        for row in given[0].messages(7):
            raw = piece(row.all(1)[-1]) if row.all(1) else b""
            found = None if isinstance(raw, FilePiece) else Content.stored(shape, dtype, raw)
            items += found.items if found is not None else ()
    if dtype == "bool":
        items = [bool(item) for item in items]
    return StoredValue("", shape, dtype, Content(shape, tuple(items)) if len(items) == elements else None)


# -- the model -----------------------------------------------------------------------------------------------------------

PROGRAM, NETWORKS = 502, (500, 403, 303)  # Plain networks, classifiers and regressors


class CoremlModel(NamedTuple):
    """Inputs as the model declares them, and its graphs by the names of functions."""

    inputs: Mapping[str, DeclaredValue]
    graphs: Mapping[str, NodeGraph]
    main: str
    version: int


def read_model(message: Piece) -> CoremlModel:
    """The model in these bytes."""
    parts = MessageFields.of(message)
    version = parts.whole(1)
    described = parts.messages(2)
    description = described[-1] if described else MessageFields()
    inputs = {each.name: each for each in map(_feature, description.messages(1))}
    for function in description.messages(20):
        inputs.update({each.name: each for each in map(_feature, function.messages(2))})
    if PROGRAM in parts.found:
        graphs = program_graphs(piece(parts.all(PROGRAM)[-1]))
        main = description.text(21) or ("main" if "main" in graphs else next(iter(graphs)))
        if main not in graphs:
            raise Bad(f"its main function {main!r} is not there")
        return CoremlModel(inputs, graphs, main, version)
    for number in NETWORKS:
        if number in parts.found:
            outputs = [each.text(1) for each in description.messages(10)]
            features = [(each.text(1), each.messages(3)) for each in description.messages(1)]
            images = {name for name, kinds in features if any(4 in kind.found for kind in kinds)}
            graph = network_graph(piece(parts.all(number)[-1]), list(inputs.values()), images, outputs)
            return CoremlModel(inputs, {"": graph}, "", version)
    for number, words in _OTHERS.items():
        if number in parts.found:
            hint = "count the parts of a pipeline one by one"
            raise SourceError(f"it is {words}, and only programs and neural networks are counted", hint=hint)
    raise Bad("there is neither a program nor a neural network in it")


def _feature(parts: MessageFields) -> DeclaredValue:
    """What a model declares of an input: an array, or an image as (channels, height, width)."""
    name = parts.text(1)
    for kind in parts.messages(3):
        for image in kind.messages(4):
            channels = 1 if image.whole(3) in (10, 40) else 3
            return DeclaredValue(name, "float32", (channels, *_sizes(image.whole(2), image.whole(1))))
        for array in (*kind.messages(5), *(inner for state in kind.messages(8) for inner in state.messages(1))):
            # Of shapes that are listed, the first; of ranges, their lower ends
            listed = [shape.integers(1) for several in array.messages(21) for shape in several.messages(1)]
            listed += [[max(each.whole(1), 1) for each in ranges.messages(1)] for ranges in array.messages(31)]
            shape = array.integers(1) or next(iter(listed), [])
            return DeclaredValue(name, _ARRAYS.get(array.whole(2), "float32"), _sizes(*shape) if shape else None)
        if 1 in kind.found or 2 in kind.found:
            return DeclaredValue(name, "int64" if 1 in kind.found else "float64", (1,))
    return DeclaredValue(name, "float32", None)


def _sizes(*extents: int) -> tuple[int, ...]:
    if len(extents) > 64 or any(not 0 <= extent < 1 << 40 for extent in extents):
        raise Bad(f"an input has the shape {extents[:64]}")
    return extents
