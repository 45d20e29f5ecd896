"""`print_summary`: the layers of a symbol, their output shapes and parameters, in MXNet's layout."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import prod
from typing import Any, NamedTuple

from opcost.compat.mxnet.opening import opened
from opcost.core.harmless import printable
from opcost.frontends.mxnet.load import Worked, work_out
from opcost.frontends.mxnet.symbol import Node

_HEADER = ("Layer (type)", "Output Shape", "Param #", "Previous Layer")


def print_summary(
    symbol: Any,
    shape: Any = None,
    line_length: int = 120,
    positions: Sequence[float] = (0.44, 0.64, 0.74, 1.0),
) -> None:
    """Print the layers of a symbol, their output shapes without the batch, and the parameters that each is the first to read.

    Without a shape there are no output shapes, and a layer whose weights depend on it says `?`.
    """
    source = opened(symbol, shape)
    worked = work_out(source.symbol, source.options, source.saved, complete=shape is not None)
    places = (
        [int(line_length * place) for place in positions] if positions[-1] <= 1 else [int(place) for place in positions]
    )
    print("_" * line_length)
    print(_row(_HEADER, places))
    print("=" * line_length)
    layers = list(_layers(worked))
    for index, layer in enumerate(layers):
        first, *others = layer.previous or ("",)
        params = "?" if layer.params is None else str(layer.params)
        print(_row((layer.name, layer.shape if shape is not None else "", params, first), places))
        for other in others:
            print(_row(("", "", "", other), places))
        print(("=" if index == len(layers) - 1 else "_") * line_length)
    print(f"Total params: {_total([layer.params for layer in layers])}")
    if states := _total([_elements(worked, index) for index in worked.roles.states]):
        print(f"Auxiliary states: {states}")
    print("_" * line_length)


class _Layer(NamedTuple):
    name: str
    shape: str
    params: int | None
    """None where the shape of a weight is not known."""
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
            _sum([_elements(worked, index) for index in own]),
            tuple(previous),
        )


def _shapes(worked: Worked, node: Node) -> str:
    """The shapes of a node's outputs without the batch; the same one only once."""
    found = ("x".join(map(str, shape[1:])) if shape is not None else "?" for shape in worked.inferred.shapes[node.id])
    return ", ".join(dict.fromkeys(found))


def _elements(worked: Worked, index: int) -> int | None:
    shape = worked.inferred.shapes[index][0]
    if shape is None:
        return None
    known = [extent for extent in shape if extent is not None]
    return prod(known) if len(known) == len(shape) else None


def _sum(numbers: list[int | None]) -> int | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if len(known) == len(numbers) else None


def _total(numbers: list[int | None]) -> str:
    """A sum, and of how many numbers nothing is known; empty for none at all."""
    unknown = sum(number is None for number in numbers)
    known = sum(number for number in numbers if number is not None)
    if not unknown:
        return str(known) if numbers else ""
    return f"{known} and {unknown} unknown: give the shape of the input"


def _row(fields: Iterable[str], positions: Sequence[int]) -> str:
    line = ""
    for field, position in zip(fields, positions, strict=True):
        line = f"{line}{printable(field)}"[:position].ljust(position)
    return line
