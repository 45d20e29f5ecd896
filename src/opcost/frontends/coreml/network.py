"""A neural network as a graph of nodes: its layers in the words of ML programs, whose handlers know what they do.

Layers of the first versions see a tensor as (..., channels, height, width), whatever axes it has in front.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from math import prod
from typing import Any

from opcost.core.parsing import Bad, packaged_table
from opcost.frontends.nodes import MOST_CONTENT, MOST_DEPTH
from opcost.frontends.nodes.meaning import Content, DeclaredValue, GraphNode, NodeGraph, StoredValue
from opcost.frontends.protobuf import MessageFields, Piece, fields, floats, piece, size_of, text

_FIXED: dict[int, str] = {
    int(number): row
    for numbers, row in packaged_table("opcost.frontends.coreml", "layers.json").items()
    for number in numbers.split()
}
"""Plain layers: the operator (of several, field 1 has the number), its inputs, then attributes and weights by their fields.

`k=2i` is the number in field 2, `k=2n` the same, 1 unless given, `k=2I` a list of numbers, `k=2B` the borders of an image, `k=-3`
always -3, `k=2I|3,3` the list or else these numbers; `y=bias@2:5i` is the weight in field 2, whose name is `bias` and whose
extent is in field 5; `pads` are the fields that `_padding` takes.
"""

_ACTIVATIONS: dict[str, str] = packaged_table("opcost.frontends.coreml", "format.json")["activations"]
_REDUCED = ("sum", "mean", "prod", "log_sum", "sum_square", "l1_norm", "l2_norm", "max", "min", "argmax")
_REDUCED_AXES = ((-3, -2, -1), (-2, -1), (-3,), (-2,), (-1,))

_LSTM = ((1, 2, 3, 4), (20, 21, 22, 23), (40, 41, 42, 43))
"""Fields of the weights of an LSTM's gates: of its input, of its state, its biases."""


class _NetworkReader:
    """Makes the nodes of a network, and keeps the weights that its layers hold."""

    def __init__(self, depth: int = 0) -> None:
        self.depth = depth
        self.nodes: list[GraphNode] = []
        self.stored: dict[str, StoredValue] = {}

    def layer(self, message: Piece) -> None:
        parts = MessageFields.of(message)
        name, ins, outs = parts.text(1), [text(each) for each in parts.all(2)], [text(each) for each in parts.all(3)]
        number = next((number for number in parts.found if number >= 100), 0)
        layer = parts.messages(number)[-1] if number else MessageFields()
        self.name, self.outs = name or (outs[0] if outs else ""), outs
        special = self.special.get(number)
        if special is None and number not in _FIXED:
            custom = number == 500
            name = (layer.text(10) or "custom") if custom else f"layer_{number}"
            self.node(name, ins, domain="custom" if custom else "")
            return
        try:
            if special is not None:
                special(self, layer, ins)
            else:
                self._fixed(_FIXED[number].split(), layer, ins)
        except (LookupError, ArithmeticError, ValueError) as exc:
            raise Bad(f"the layer {self.name!r} is not what such a layer must be ({exc})") from exc

    def node(
        self, op: str, ins: Sequence[str], names: Sequence[str] = (), outs: Sequence[str] = (), domain: str = "", **attrs: Any
    ) -> None:  # fmt: skip
        """A node whose inputs have these names; what is left out is an empty text."""
        called = names or [f"in{place}" for place in range(len(ins))]
        places: dict[str, tuple[int, ...]] = {}
        for place, (label, given) in enumerate(zip(called, ins, strict=False)):
            if given:
                places[label] = (*places.get(label, ()), place)
        attrs["@"] = places
        self.nodes.append(GraphNode(op, domain, self.name, tuple(ins), tuple(outs or self.outs), attrs))

    def _fixed(self, words: Sequence[str], layer: MessageFields, ins: Sequence[str]) -> None:
        ops, *rest = words
        op = ops.split("|")[layer.whole(1) % (ops.count("|") + 1) if "|" in ops else 0]
        names = [word for word in rest if "=" not in word]
        if names and names[0].startswith("*"):
            names = [names[0][1:]] * len(ins)
        if "@" in " ".join(rest):  # weights come behind the inputs
            ins = [ins[0], *ins[1 : len(names)]] if names else ()
        names, reads, attrs = names[: len(ins)], [*ins], dict[str, Any]()
        for label, _, field in (word.partition("=") for word in rest if "=" in word):
            stored, at, place = field.partition("@")
            if at:
                number, _, extents = place.partition(":")
                names.append(label)
                reads.append(self.weight(layer, int(number), stored, *_numbers(layer, extents)))
            elif label == "pads":
                attrs |= _padding(layer, *_numbers(layer, field))
            elif found := _numbers(layer, field):
                attrs[label] = tuple(found) if field[-1] in "IB" or "," in field else found[0]
        if op.startswith("reduce_arg"):
            attrs["keep_dims"] = not layer.whole(2)
        if op.startswith("reduce_") and layer.whole(3):
            attrs.pop("axes", None)
        if op == "resize_bilinear" and (sizes := layer.integers(1)):
            attrs |= {"target_size_height": sizes[0], "target_size_width": sizes[-1]}
        if op == "batch_norm" and layer.whole(6):
            op = "instance_norm"
        self.node(op, reads, names, **attrs)

    def weight(self, layer: MessageFields, field: int, label: str, *shape: int) -> str:
        """A tensor that a layer holds; an empty text: it holds none."""
        if field not in layer.found:
            return ""
        parts = layer.messages(field)[-1]
        if not parts.found:
            return ""
        dtype, content = "float32", None
        if 2 in parts.found:
            dtype = "float16"
        elif 30 in parts.found or 31 in parts.found:
            bits = sum(each.whole(1) for each in parts.messages(40)) or 8
            dtype = "int8" if 31 in parts.found else f"uint{bits if bits in range(1, 9) else 8}"
        elif prod(shape) <= MOST_CONTENT and sum(size_of(piece(each)) for each in parts.all(1)) == 4 * prod(shape):
            content = Content(shape, tuple(value for each in parts.all(1) for value in floats(each)))
        if any(extent < 0 for extent in shape):
            raise Bad(f"the layer {self.name!r} has a weight of the shape {shape}")
        name = f"{self.name}.{label}"
        self.stored[name] = StoredValue(name, shape, dtype, content)
        return name

    # -- layers with weights --------------------------------------------------------------------------------------------

    def _conv(
        self, layer: MessageFields, ins: Sequence[str], words: str, pads: Sequence[int], turned: int, weight: int, target: int = 0
    ) -> None:  # fmt: skip
        """`words`: where kernel, strides and dilations are; in two dimensions there is a `target`, the shape of the result."""
        out, channels, groups = layer.whole(1), layer.whole(2), layer.whole(10, 1) or 1
        kernel, strides, dilations = (tuple(_numbers(layer, word)) for word in words.split())
        kernel = tuple(extent or 3 for extent in kernel) or (3, 3)
        attrs = {**_padding(layer, *pads), "strides": strides, "dilations": dilations, "groups": groups}
        shape, op = (out, channels if target else channels // groups, *kernel), "conv"
        if layer.whole(turned):
            shape, op = (channels, out // groups, *kernel), "conv_transpose"
            attrs |= {"output_shape": tuple(found)} if (found := layer.integers(target)) else {}
        kernels = self.weight(layer, weight, "weight", *shape) or (ins[1] if len(ins) > 1 else "")
        self.node(op, (ins[0], kernels, self.weight(layer, weight + 1, "bias", out)), ("x", "weight", "bias"), **attrs)

    def _scaled(self, layer: MessageFields, ins: Sequence[str]) -> None:
        """A factor for some axes, and maybe a summand."""
        scale = self.weight(layer, 2, "scale", *layer.integers(1))
        if not layer.whole(3):
            self.node("mul", (ins[0], scale), ("x", "y"))
            return
        middle = f"{self.name}:scaled"
        self.node("mul", (ins[0], scale), ("x", "y"), outs=(middle,))
        self.node("add", (middle, self.weight(layer, 5, "bias", *layer.integers(4))), ("x", "y"))

    def _recurrent(
        self, layer: MessageFields, ins: Sequence[str], op: str, fields: Sequence[Sequence[int]], directions: int = 1
    ) -> None:
        """The gates' weights are separate; together they are those of a program's layer."""
        width, hidden = layer.whole(1), layer.whole(2)
        gates = len(fields[0])
        inner = layer.messages(20) if op == "lstm" else [layer]
        reads, names = [ins[0]], ["x"]
        described = layer.messages(15)[-1] if op == "lstm" and layer.messages(15) else layer
        sequence = described.whole(10 if op == "lstm" else 15)
        for suffix, weights in zip(("", "_back")[:directions], inner, strict=False):
            shapes = ((gates * hidden, width), (gates * hidden, hidden), (gates * hidden,))
            for label, numbers, shape in zip(("weight_ih", "weight_hh", "bias"), fields, shapes, strict=True):
                if all(number in weights.found for number in numbers):
                    found = self.weight(weights, numbers[0], f"{label}{suffix}", *shape)
                    stored = self.stored[found]
                    self.stored[found] = StoredValue(found, shape, stored.dtype)
                    reads.append(found)
                    names.append(f"{label}{suffix}")
        direction = "bidirectional" if directions > 1 else "forward"
        self.node(op, reads, names, direction=direction, output_sequence=sequence)

    # -- layers without -------------------------------------------------------------------------------------------------

    def _activation(self, layer: MessageFields, ins: Sequence[str]) -> None:
        number = next(iter(layer.found), 0)
        op = _ACTIVATIONS.get(str(number), f"activation_{number}")
        reads = [*ins[:1]]
        if op == "prelu":
            inner = layer.messages(25)[-1]
            count = sum(len(floats(each)) for weights in inner.messages(1) for each in weights.all(1)) or 1
            reads.append(self.weight(inner, 1, "alpha", count))
        self.node(op, reads, ("x", "alpha"))

    def _chain(self, layer: MessageFields, ins: Sequence[str], op: str) -> None:
        """Two tensors, then the next, and so on; one alone meets a number."""
        if len(ins) == 1:
            number, name = floats(layer.all(1)[-1])[0] if 1 in layer.found else 0.0, f"{self.name}.alpha"
            self.stored[name] = StoredValue(name, (), "float32", Content((), (number,)))
            ins = (*ins, name)
        last = ins[0]
        for place, other in enumerate(ins[1:]):
            out = self.outs if place == len(ins) - 2 else (f"{self.name}:{place}",)
            self.node(op, (last, other), ("x", "y"), outs=out)
            last = out[0] if out else ""

    def _reduce(self, layer: MessageFields, ins: Sequence[str]) -> None:
        op = f"reduce_{_REDUCED[layer.whole(1) % 10]}"
        axes = _REDUCED_AXES[layer.whole(3) % 5]
        self.node(op, ins[:1], ("x",), axes=axes, axis=axes[0], keep_dims=1)

    def _permute(self, layer: MessageFields, ins: Sequence[str]) -> None:
        """Of four axes, the first of which is that of sequences."""
        order = [axis - 1 for axis in layer.integers(1)]
        moved = sorted(order) == [-1, 0, 1, 2] and order[0] == -1
        self.node("transpose_image" if moved else "permute_sequences", ins[:1], ("x",), perm=tuple(order[1:]))

    def _upsample(self, layer: MessageFields, ins: Sequence[str]) -> None:
        scales: list[Any] = [*layer.integers(1)] or [value for each in layer.all(7) for value in floats(each)] or [1, 1]
        op = "upsample_bilinear" if layer.whole(5) else "upsample_nearest_neighbor"
        self.node(op, ins[:1], ("x",), scale_factor_height=(scales[0],), scale_factor_width=(scales[-1],))

    # -- layers that run networks, whose names are those of the network around them --------------------------------------

    def _inner(self, layer: MessageFields, number: int) -> NodeGraph:
        if self.depth >= MOST_DEPTH:
            raise Bad(f"networks are nested, more than {MOST_DEPTH} deep")
        reader = _NetworkReader(self.depth + 1)
        for message in layer.all(number):
            for inside, value in fields(piece(message)):
                if inside == 1:
                    reader.layer(piece(value))
        return NodeGraph(self.name, tuple(reader.nodes), reader.stored, (), (), {})

    def _branch(self, layer: MessageFields, ins: Sequence[str]) -> None:
        blocks: Any = (self._inner(layer, 1), self._inner(layer, 2))
        self.node("branch_layer", ins[:1], ("cond",), **{"@blocks": blocks})

    def _loop(self, layer: MessageFields, ins: Sequence[str]) -> None:
        attrs: dict[str, Any] = {"@blocks": (self._inner(layer, 3), self._inner(layer, 4)), "most": layer.whole(1)}
        self.node("loop_layer", ins[:1], ("most",), cond=layer.text(2) if 3 in layer.found else "", **attrs)

    special: dict[int, Callable[[_NetworkReader, MessageFields, Sequence[str]], None]] = {  # noqa: RUF012 - filled here and read only
        100: partial(_conv, words="20I 30I 40I", pads=(50, 51), turned=60, weight=90, target=100),
        1471: partial(_conv, words="20i,21i,22i 31n,32n,33n 40n,41n,42n", pads=(70, *range(80, 86)), turned=86, weight=60),
        245: _scaled, 130: _activation, 280: _reduce, 310: _permute, 210: _upsample, 605: _branch, 615: _loop,
        230: partial(_chain, op="add"), 231: partial(_chain, op="mul"), 240: partial(_chain, op="add"),
        260: partial(_chain, op="maximum"), 261: partial(_chain, op="minimum"), 270: partial(_chain, op="mul"),
        400: partial(_recurrent, op="rnn", fields=((30,), (31,), (32,))),
        410: partial(_recurrent, op="gru", fields=((30, 31, 32), (50, 51, 52), (70, 71, 72))),
        420: partial(_recurrent, op="lstm", fields=_LSTM), 430: partial(_recurrent, op="lstm", fields=_LSTM, directions=2),
    }  # fmt: skip


def _numbers(layer: MessageFields, words: str) -> list[int]:
    """The numbers that the words of a row mean."""
    found: list[int] = []
    words, _, default = words.partition("|")
    for word in words.split(","):
        match word[-1]:
            case "I":
                found += layer.integers(int(word[:-1]))
            case "B":
                found += _borders(layer, int(word[:-1])) or (0, 0, 0, 0)
            case "i":
                found.append(layer.whole(int(word[:-1])))
            case "n":
                found.append(layer.whole(int(word[:-1]), 1) or 1)
            case _:
                found.append(int(word))
    return found or [int(word) for word in default.split(",") if word]


def _borders(parts: MessageFields, number: int) -> tuple[int, ...]:
    """What is added or cut before and behind each axis."""
    edges = [edge for each in parts.messages(number) for edge in each.messages(10)]
    return tuple(size for edge in edges for size in (edge.whole(1), edge.whole(2)))


def _padding(layer: MessageFields, first: int, second: int, *others: int) -> dict[str, Any]:
    """What is put around an image, from the fields that say it.

    In three dimensions these are a mode and six numbers; in two, borders, then one that is there where only the stride shortens
    the axes, and one that is there where the last window may reach over the end.
    """
    if len(others) > 1:
        edges = tuple(layer.whole(at) for at in (second, *others))
        mode = layer.whole(first)
        return {"pad_type": "same" if mode == 2 else "valid"} if mode else {"pad_type": "custom", "pad": edges}
    for each in layer.messages(others[0]) if others else ():
        high, wide = (*each.integers(10), 0, 0)[:2]
        return {"pad_type": "custom", "pad": (high, high, wide, wide), "ceil_mode": 1}
    if second in layer.found:
        return {"pad_type": "same"}
    edges = tuple(size for each in layer.messages(first) for size in _borders(each, 1))
    return {"pad_type": "custom", "pad": edges} if edges else {"pad_type": "valid"}


def network_graph(
    message: Piece, inputs: Sequence[DeclaredValue], images: Collection[str], outputs: Sequence[str]
) -> NodeGraph:
    """The graph of a neural network with these inputs; images have one axis more in front where the network has it so."""
    reader, mapping = _NetworkReader(), 0
    for number, value in fields(message):
        if number == 1:
            reader.layer(piece(value))
        elif number == 6 and isinstance(value, int):
            mapping = value
    if mapping == 1:
        inputs = [each._replace(shape=(1, *(each.shape or ()))) if each.name in images else each for each in inputs]
    made = {name for node in reader.nodes for name in node.outputs}
    ends = tuple(DeclaredValue(name, "float32", None) for name in outputs if name in made)
    return NodeGraph("", tuple(reader.nodes), reader.stored, tuple(inputs), ends, {})
