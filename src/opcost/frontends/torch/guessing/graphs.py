"""Models of torch-geometric, and nets built of its layers: features of nodes, edges between them, and what goes with both."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from opcost.frontends.torch.guessing.guess import Guess, Maker, Other, arguments, cannot, comes_from, needed

_NODES, _EDGES = 1000, 5000
"""Of a graph: about what a small citation graph has."""
_SPACE = 3
"""Numbers that say where a point is."""
_DATA = ("data", "graph")
"""What a net calls its argument that holds the whole graph."""
_WIDTHS = ("in_channels", "channels", "in_features", "input_size")
"""What layers call the width of what they read."""


def torch_geometric(model: nn.Module, maker: Maker) -> Guess | None:
    """A graph, of which no node has a place of its own, in arguments or in the one object that a net takes."""
    if not any(comes_from(module, "torch_geometric") for module in model.modules()):
        return None
    reader = _reader(model)
    wanted = needed(reader)
    whole = wanted[0] if len(wanted) == 1 and wanted[0] in _DATA else None
    if not wanted or (whole is None and wanted[0] not in _MAKERS):
        return None
    graphs = [_Graph(reader, maker, width) for width in _widths(reader)]
    made = [{whole: graph.as_data()} if whole else graph.as_arguments() for graph in graphs]
    if not made:
        return None
    source = f"a graph of {graphs[0].nodes} nodes and {_EDGES * graphs[0].copies} edges"
    return Guess((), made[0], source, tuple(Other(kwargs) for kwargs in made[1:]))


def _reader(model: nn.Module) -> nn.Module:
    """Whoever says what it takes: the encoder, where the model hands everything on to one."""
    encoder = getattr(model, "encoder", None)
    return encoder if isinstance(encoder, nn.Module) and not arguments(model) else model


Width = int | tuple[int, int]


def _widths(model: nn.Module) -> Iterator[Width]:
    """How many numbers a node has, the likeliest first: what the model says, or what its first layer reads.

    A layer of edges reads both ends of one, and one of points where they are besides.
    """
    own = _width(model)
    if own is not None:
        yield own
        return
    first = next((width for module in model.modules() if (width := _width(module)) is not None), None)
    if first is None:
        if "x" not in needed(model):  # it has a table of nodes, or reads where they are
            yield 1
    elif isinstance(first, tuple):
        yield first
    else:
        yield from dict.fromkeys(width for width in (first, first // 2, first - _SPACE) if width > 0)


def _width(module: nn.Module) -> Width | None:
    for name in _WIDTHS:
        width = getattr(module, name, None)
        if isinstance(width, int) and width > 0:
            return width
        if isinstance(width, (list, tuple)) and len(width) == 2 and all(isinstance(w, int) and w > 0 for w in width):
            return width[0], width[1]
    return None


class _Graph:
    """As many copies of one graph as the batch has, without an edge between them."""

    def __init__(self, model: nn.Module, maker: Maker, width: Width) -> None:
        self.model = model
        self.maker = maker
        self.width = width
        fixed = getattr(model, "num_nodes", None)
        self.copies = 1 if isinstance(fixed, int) else maker.batch
        self.each = fixed if isinstance(fixed, int) else _NODES
        self.nodes = self.each * self.copies

    def as_arguments(self) -> dict[str, Any]:
        wanted = needed(self.model)
        for name in wanted:
            if name not in _MAKERS:
                raise cannot(self.model, name)
        may = {"edge_attr": self._edge_width(), "edge_type": self._entry("num_relations")}
        told = [name for name, known in may.items() if known is not None and name in arguments(self.model)]
        return {name: _MAKERS[name](self) for name in dict.fromkeys((*wanted, *told))}

    def as_data(self) -> Any:
        from torch_geometric.data import Data

        return Data(**{name: _MAKERS[name](self) for name in ("x", "edge_index", "edge_attr", "pos", "batch")})

    def _entry(self, *names: str) -> int | None:
        """The first number of such a name that the model or a layer of it has."""
        found = (getattr(module, name, None) for module in self.model.modules() for name in names)
        return next((value for value in found if isinstance(value, int) and value > 0), None)

    def features(self) -> Any:
        if isinstance(self.width, tuple):
            return tuple(self.maker.empty(self.nodes, width) for width in self.width)
        if "adj" in arguments(self.model):
            return self.maker.floats(_NODES, self.width)
        return self.maker.empty(self.nodes, self.width)

    def edges(self) -> torch.Tensor:
        ends = torch.arange(_EDGES)
        one = torch.stack([ends % self.each, (ends * 7 + 1) % self.each])
        return torch.cat([one + copy * self.each for copy in range(self.copies)], dim=1)

    def of_edges(self) -> torch.Tensor:
        """Numbers that an edge has: one, where nothing says how many."""
        return self.maker.empty(_EDGES * self.copies, self._edge_width() or 1)

    def _edge_width(self) -> int | None:
        """What the model says of its edges, or what the net reads that makes a layer's weights of them."""
        said = self._entry("edge_dim", "dim")
        net = getattr(self.model, "nn", None)
        if said is not None or not isinstance(net, nn.Module):
            return said
        read = next((width for module in net.modules() if (width := _width(module)) is not None), None)
        return read if isinstance(read, int) else None

    def places(self) -> torch.Tensor:
        """Points in space, with their content: models look at which are near."""
        steps = torch.arange(self.nodes * _SPACE, dtype=torch.float64) * 0.6180339887498949
        return steps.frac().reshape(self.nodes, _SPACE).to(self.maker.dtype)

    def zeros(self, count: int) -> torch.Tensor:
        return torch.zeros(count, dtype=torch.int64)


_MAKERS: dict[str, Callable[[_Graph], Any]] = {
    "x": _Graph.features,
    "x_0": _Graph.features,
    "edge_index": _Graph.edges,
    "hyperedge_index": _Graph.edges,
    "pos_edge_index": _Graph.edges,
    "neg_edge_index": _Graph.edges,
    "edge_attr": _Graph.of_edges,
    "edge_weight": lambda graph: graph.maker.empty(_EDGES * graph.copies),
    "edge_type": lambda graph: graph.zeros(_EDGES * graph.copies),
    "adj": lambda graph: graph.maker.floats(_NODES, _NODES),
    "pos": _Graph.places,
    "z": lambda graph: graph.zeros(graph.nodes) + 1,
    "batch": lambda graph: torch.arange(graph.copies).repeat_interleave(graph.each),
}
"""What is made for an argument of this name."""
