"""The walk over a Core ML model: branches and loops."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from opcost.errors import SourceError
from opcost.frontends.building import GraphBuilder
from opcost.frontends.coreml import operators as _families  # noqa: F401 - entering them in the table is what it is for
from opcost.frontends.coreml.scopes import CoremlScopes
from opcost.frontends.coreml.table import TABLE
from opcost.frontends.nodes.call import Made
from opcost.frontends.nodes.loops import MOST_TURNS, first_of
from opcost.frontends.nodes.model import Node, NodeGraph, Number
from opcost.frontends.nodes.walk import Walk


class CoremlWalk(Walk):
    """Makes the values and operators of a graph, and of the blocks inside it."""

    format = "coreml"
    table = TABLE
    typed = True

    def __init__(self, maker: GraphBuilder, *, trusted: bool) -> None:
        super().__init__(maker, CoremlScopes(), trusted=trusted)

    def special(self, node: Node, graph: NodeGraph, env: dict[str, Made]) -> bool:
        match node.op:
            case "branch_layer":
                self._branch_layer(node, graph, env)
                return True
            case "loop_layer":
                self._loop_layer(node, graph, env)
                return True
            case "leave_turn":
                self.maker.note("loop", f"{node}: a turn that data may end before is counted whole", node.name)
                return True
            case "cond" | "while_loop":
                pass
            case _:
                return False
        blocks: tuple[NodeGraph, ...] = node.attrs["@blocks"]
        if len(blocks) != 2:
            raise SourceError(f"{node}: it has {len(blocks)} blocks, and needs two")
        found = [self.found(name, graph, env) for name in node.inputs]
        if node.op == "cond":
            ways = [partial(self.graph, block, self.nested(graph, env)) for block in blocks]
            results = self._chosen(node, first_of(found), ways)
        else:
            cond, body = (self._block(block, graph, env) for block in blocks)
            results = self.looped(node, found, cond, body)
        env.update(zip(node.outputs, results, strict=False))
        return True

    def _chosen(self, node: Node, answer: Number, ways: Sequence[Callable[[], list[Made]]]) -> list[Made]:
        """What comes out of a branch: of the one that is taken, where that is known, else of both."""
        return self.either(node, ways) if answer is None else ways[0 if answer else 1]()

    # -- layers of neural networks: the networks that they run see all names around them, and change what these stand for --

    def _branch_layer(self, node: Node, graph: NodeGraph, env: dict[str, Made]) -> None:
        blocks: tuple[NodeGraph, ...] = node.attrs["@blocks"]
        answer = first_of([self.found(name, graph, env) for name in node.inputs])
        first, second = ([*_made_in(block)] for block in blocks)
        if answer is not None:
            names = first if answer else second
        else:  # what only one of them makes stands for nothing after the other
            names = [name for name in first if name in second or env.get(name) is not None]
            names += [name for name in second if name not in first and env.get(name) is not None]
        ways = [partial(self._after, block, names, graph, env) for block in blocks]
        env.update(zip(names, self._chosen(node, answer, ways), strict=True))

    def _loop_layer(self, node: Node, graph: NodeGraph, env: dict[str, Made]) -> None:
        """Turns as often as its input or its own number says, or as long as a network says."""
        cond, body = node.attrs["@blocks"]
        made = _made_in(body)
        start = {name: found for name in made if (found := env.get(name)) is not None}
        names = [*start, *[name for name in made if name not in start]]

        def run(block: NodeGraph, wanted: Sequence[str]) -> Callable[[list[Made]], list[Made]]:
            return lambda given: self._after(block, wanted, graph, env, dict(zip(start, given, strict=True)))

        limit = first_of([self.found(name, graph, env) for name in node.inputs]) if node.inputs else node.attrs["most"]
        asked = node.attrs["cond"]
        if not limit and asked and not node.inputs:
            limit = None  # no number is written as zero
        most = int(limit) if limit is not None and 0 <= limit < MOST_TURNS else None
        turns = self.looped(node, [*start.values()], run(cond, [asked]) if asked else None, run(body, names), most)
        env.update(zip(names, turns, strict=False))

    def _after(
        self,
        block: NodeGraph,
        names: Sequence[str],
        graph: NodeGraph,
        env: dict[str, Made],
        given: Mapping[str, Made] | None = None,
    ) -> list[Made]:
        """What names stand for after a network has run."""
        inner = self.nested(graph, env, given)
        for each in block.nodes:
            self.node(each, block, inner)
        return [inner.get(name) or self._nothing() for name in names]

    def _nothing(self) -> Made:
        """What a name stands for that is only given where data have it so."""
        return Made(self.maker.value("", self.maker.spec(None, "float32"), "const"), None, "float32")

    def _block(self, block: NodeGraph, graph: NodeGraph, env: dict[str, Made]) -> Callable[[list[Made]], list[Made]]:
        names = [declared.name for declared in block.inputs]

        def run(given: list[Made]) -> list[Made]:
            return self.graph(block, self.nested(graph, env, dict(zip(names, given, strict=False))))

        return run


def _made_in(block: NodeGraph) -> dict[str, None]:
    """The names that a network gives, its own networks' among them."""
    found: dict[str, None] = {}
    for node in block.nodes:
        found.update(dict.fromkeys(node.outputs))
        if node.op in ("branch_layer", "loop_layer"):
            for inner in node.attrs["@blocks"]:
                found.update(_made_in(inner))
    return found
