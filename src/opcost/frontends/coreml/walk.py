"""The walk over a Core ML model: branches and loops."""

from __future__ import annotations

from collections.abc import Callable

from opcost.errors import SourceError
from opcost.frontends.building import GraphBuilder
from opcost.frontends.coreml import operators as _families  # noqa: F401 - entering them in the table is what it is for
from opcost.frontends.coreml.scopes import CoremlScopes
from opcost.frontends.coreml.table import TABLE
from opcost.frontends.nodes.call import Made
from opcost.frontends.nodes.model import Node, NodeGraph
from opcost.frontends.nodes.walk import Walk


class CoremlWalk(Walk):
    """Makes the values and operators of a graph, and of the blocks inside it."""

    format = "coreml"
    table = TABLE
    typed = True

    def __init__(self, maker: GraphBuilder, *, trusted: bool) -> None:
        super().__init__(maker, CoremlScopes(), trusted=trusted)

    def special(self, node: Node, graph: NodeGraph, env: dict[str, Made]) -> bool:
        if node.op not in ("cond", "while_loop"):
            return False
        blocks: tuple[NodeGraph, ...] = node.attrs["@blocks"]
        if len(blocks) != 2:
            raise SourceError(f"{node}: it has {len(blocks)} blocks, and needs two")
        found = [self.found(name, graph, env) for name in node.inputs]
        if node.op == "cond":
            content = found[0].content if found else None
            chosen = content.items[0] if content and content.items else None
            if chosen is not None:
                results = self.graph(blocks[0] if chosen else blocks[1], self.nested(graph, env))
            else:
                results = self.either(node, [lambda b=b: self.graph(b, self.nested(graph, env)) for b in blocks])  # type: ignore[misc]
        else:
            cond, body = (self._block(block, graph, env) for block in blocks)
            results = self.looped(node, found, cond, body)
        env.update(zip(node.outputs, results, strict=False))
        return True

    def _block(self, block: NodeGraph, graph: NodeGraph, env: dict[str, Made]) -> Callable[[list[Made]], list[Made]]:
        names = [declared.name for declared in block.inputs]

        def run(given: list[Made]) -> list[Made]:
            return self.graph(block, self.nested(graph, env, dict(zip(names, given, strict=False))))

        return run
