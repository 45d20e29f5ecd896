"""`print_summary`: the layers of a symbol, their output shapes and parameters, in MXNet's layout."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import prod
from typing import Any, NamedTuple

from opcost.compat.mxnet.opening import opened
from opcost.core.harmless import printable
from opcost.errors import InputError
from opcost.frontends.mxnet.load import Worked, work_out
from opcost.frontends.mxnet.symbol import Node

_HEADER = ("Layer (type)", "Output Shape", "Param #", "Previous Layer")


def print_summary(
    symbol: Any,
    shape: Any = None,
    line_length: int = 120,
    positions: Sequence[float] = (0.44, 0.64, 0.74, 1.0),
) -> None:
    """Print the layers of a symbol, their output shapes without the batch, and the parameters that each is the first to read."""
    source = opened(symbol, shape)
    worked = work_out(source.symbol, source.options, source.saved)
    places = (
        [int(line_length * place) for place in positions] if positions[-1] <= 1 else [int(place) for place in positions]
    )
    print("_" * line_length)
    print(_row(_HEADER, places))
    print("=" * line_length)
    layers = list(_layers(worked))
    for index, layer in enumerate(layers):
        first, *others = layer.previous or ("",)
        print(_row((layer.name, layer.shape, str(layer.params), first), places))
        for other in others:
            print(_row(("", "", "", other), places))
        print(("=" if index == len(layers) - 1 else "_") * line_length)
    print(f"Total params: {sum(layer.params for layer in layers)}")
    if states := sum(_elements(worked, index) for index in worked.roles.states):
        print(f"Auxiliary states: {states}")
    print("_" * line_length)


class _Layer(NamedTuple):
    name: str
    shape: str
    params: int
    previous: tuple[str, ...]


def _layers(worked: Worked) -> Iterator[_Layer]:
    """The inputs, but for labels and states, and the operators; a shared weight belongs to its first reader."""
    roles = worked.roles
    inputs = set(roles.inputs) - roles.side or set(roles.inputs)
    weights = set(roles.weights)
    counted: set[int] = set()
    for node in worked.symbol.nodes:
        if node.is_variable and node.id not in inputs:
            continue
        own = dict.fromkeys(source for source, _ in node.inputs if source in weights and source not in counted)
        counted.update(own)
        previous = [
            worked.symbol.nodes[source].name
            for source, _ in node.inputs
            if source in inputs or not worked.symbol.nodes[source].is_variable
        ]
        yield _Layer(
            f"{node.name}({node.op})",
            _shapes(worked, node),
            sum(_elements(worked, index) for index in own),
            tuple(previous),
        )


def _shapes(worked: Worked, node: Node) -> str:
    """The shapes of a node's outputs without the batch; the same one only once."""
    found = ("x".join(map(str, shape[1:])) if shape is not None else "?" for shape in worked.inferred.shapes[node.id])
    return ", ".join(dict.fromkeys(found))


def _elements(worked: Worked, index: int) -> int:
    shape = worked.inferred.shapes[index][0]
    known = [extent for extent in shape if extent is not None] if shape is not None else None
    if known is None or shape is None or len(known) != len(shape):
        raise InputError(
            f"the shape of {worked.symbol.nodes[index].name!r} is not known",
            hint="give the shapes of the inputs: shape={...}",
        )
    return prod(known)


def _row(fields: Iterable[str], positions: Sequence[int]) -> str:
    line = ""
    for field, position in zip(fields, positions, strict=True):
        line = f"{line}{printable(field)}"[:position].ljust(position)
    return line
