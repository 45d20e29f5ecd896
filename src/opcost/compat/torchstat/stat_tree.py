"""The tree of a model's layers, and the cut through it that a table shows."""

from __future__ import annotations

from collections.abc import Iterator

from opcost.compat.torchstat.layer_cost import LayerCost


class StatNode:
    """A layer, or a module that holds layers; its numbers are those of everything below it."""

    def __init__(self, name: str = "", parent: StatNode | None = None) -> None:
        self.name = name
        self.parent = parent
        self.children: list[StatNode] = []
        self.granularity = 1
        self.parameter_quantity = 0
        """The node's own; `total_parameters` adds what lies below."""
        self.cost = LayerCost()
        self._input_shape: list[int] = []
        self._output_shape: list[int] = []

    @property
    def depth(self) -> int:
        """How many levels there are from here down: 1 for a layer."""
        return 1 + max((child.depth for child in self.children), default=0)

    def add_child(self, node: StatNode) -> None:
        self.children.append(node)

    def layers(self) -> Iterator[StatNode]:
        """This node and all below it."""
        yield self
        for child in self.children:
            yield from child.layers()
