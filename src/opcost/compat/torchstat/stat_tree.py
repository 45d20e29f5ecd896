"""The tree of a model's layers, and the cut through it that a table shows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from opcost.compat.torchstat.layer_cost import LayerCost


class StatNode:
    """A layer, or a module that holds layers; what it is asked for includes everything below it."""

    def __init__(self, name: str = "", parent: StatNode | None = None) -> None:
        self.name = name
        self.parent = parent
        self.children: list[StatNode] = []
        self.mark = ""
        """What the name in the table is followed by."""
        self.input_shape: Sequence[int] = (0, 0, 0)
        self.output_shape: Sequence[int] = (0, 0, 0)
        self.own_parameters = 0
        self.own_memory_bytes = 0
        self.own_cost = LayerCost()
        self.own_seconds = 0.0

    @property
    def depth(self) -> int:
        """How many levels there are from here down: 1 for a layer."""
        return 1 + max((child.depth for child in self.children), default=0)

    @property
    def granularity(self) -> int:
        """The depth of the deepest node beside this one; 0 for the root."""
        return max(child.depth for child in self.parent.children) if self.parent is not None else 0

    @property
    def parameter_quantity(self) -> int:
        return sum(node.own_parameters for node in self.nodes())

    @property
    def inference_memory(self) -> float:
        """Mebibytes of the outputs."""
        return sum(node.own_memory_bytes for node in self.nodes()) / 1024**2

    @property
    def MAdd(self) -> int:
        return sum(node.own_cost.madd for node in self.nodes())

    @property
    def Flops(self) -> int:
        return sum(node.own_cost.flops for node in self.nodes())

    @property
    def Memory(self) -> tuple[int, int]:
        """Bytes read and written."""
        nodes = list(self.nodes())
        return sum(node.own_cost.read for node in nodes), sum(node.own_cost.written for node in nodes)

    @property
    def duration(self) -> float:
        """Seconds."""
        return sum(node.own_seconds for node in self.nodes())

    def find_child_index(self, child_name: str) -> int:
        """Where the child of this name stands, or -1."""
        names = [child.name for child in self.children]
        return names.index(child_name) if child_name in names else -1

    def add_child(self, node: StatNode) -> None:
        if self.find_child_index(node.name) == -1:
            self.children.append(node)

    def nodes(self) -> Iterator[StatNode]:
        """This node and all below it, in the order of the model."""
        yield self
        for child in self.children:
            yield from child.nodes()


class StatTree:
    """All layers of a model under one root."""

    def __init__(self, root_node: StatNode) -> None:
        self.root_node = root_node

    def get_collected_stat_nodes(self, query_granularity: int) -> list[StatNode]:
        """The nodes of this depth, and the shallower ones beside deeper ones: together they hold every layer once.

        1 is the layers themselves; a number beyond the depth of the model is the model in one row.
        """
        deepest = self.root_node.depth
        wanted = min(query_granularity, deepest)
        return [
            node for node in self.root_node.nodes() if node.depth == wanted or node.depth < wanted <= node.granularity
        ]
