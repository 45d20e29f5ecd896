"""From a Core ML model to a graph: packages, functions, the roles of stored tensors, branches and loops."""

from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path, PurePosixPath

from opcost.core.files import length_of, opened, read_whole
from opcost.core.graph import Graph, Role
from opcost.core.parsing import parse
from opcost.errors import SourceError, UnknownName
from opcost.frontends.coreml import MANIFEST, operators
from opcost.frontends.coreml.model import CoremlModel, read_model
from opcost.frontends.nodes.inputs import Scopes
from opcost.frontends.nodes.meaning import GraphNode, Names, NodeGraph, Operand, Operands
from opcost.frontends.nodes.operators import operator_table
from opcost.frontends.nodes.walk import MOST_TURNS, Block, NestedNames, Walk
from opcost.frontends.options import CountOptions
from opcost.frontends.protobuf import FilePiece

TABLE = operator_table("opcost.frontends.coreml", operators)


def load(path: Path, options: CountOptions) -> Graph:
    """Read a model and work out all its shapes."""
    name = next((part for part in reversed(path.parts) if part.endswith(".mlpackage")), path.name)
    with opened(model_of(path) if path.name == MANIFEST else path) as file:
        model = read_model(FilePiece(file, 0, length_of(file)))
    return graph_of(model, options, name)


def graph_of(model: CoremlModel, options: CountOptions, source: str) -> Graph:
    """The graph of one function of a model on the requested inputs."""
    function = str(options.own.get("function", "") or model.main)
    if function not in model.graphs:
        raise UnknownName("function", function, model.graphs)
    graph = model.graphs[function]
    inputs = []
    for declared in graph.inputs:  # with the sizes of the model's description where it has such
        described = model.inputs.get(declared.name, declared).shape
        fits = described is not None and (declared.shape is None or len(declared.shape) == len(described))
        inputs.append(declared._replace(shape=described) if fits else declared)
    walk = CoremlWalk(CoremlScopes())
    version = f"specification {model.version}"
    return walk.counted(inputs, options, partial(walk.called, graph), source, function, version)


LARGEST_MANIFEST = 1 << 20  # Bytes of a manifest that is read; real ones have a thousand


def model_of(manifest: Path) -> Path:
    """The model's file that the manifest of a package names, which must be in the package."""
    try:
        content = parse(read_whole(manifest, LARGEST_MANIFEST, "manifest").decode("utf-8-sig"))
        entry = str(content["itemInfoEntries"][content["rootModelIdentifier"]]["path"])
    except (ValueError, KeyError, TypeError) as exc:
        raise SourceError(f"{manifest} is not the manifest of a Core ML package") from exc
    package = manifest.parent
    found = package / "Data" / PurePosixPath(entry)
    if "\0" in entry or not found.resolve().is_relative_to(package.resolve()):
        raise SourceError(f"{package} names a model outside of itself: {entry!r}")
    if not found.is_file():
        raise SourceError(f"{package} has no model: {entry!r} is not there", hint="the package was copied in part")
    return found


_STATISTICS = ("mean", "variance")
_WEIGHTS = ("weight", "bias", "weight_ih", "weight_hh", "x", "y", "gamma", "beta", "input", "alpha", "values")
"""Arguments whose constants are weights, unless they are whole numbers of many bits."""


class CoremlScopes(Scopes):
    """Modules as the names of nodes have them; those of weights have underscores where modules had dots."""

    def path_of_weight(self, name: str) -> str | None:
        return None

    def role(self, node: GraphNode, place: int, made: Operand) -> Role:
        name = next((key for key, places in node.attrs["@"].items() if place in places), "")
        if name in _STATISTICS and "norm" in node.op:
            return "buffer"
        weights = name.removesuffix("_back") in _WEIGHTS and made.dtype not in ("int32", "int64", "bool")
        return "param" if weights and made.shape else "const"


_STEERING = frozenset(("leave_turn", "cond", "while_loop", "branch_layer", "loop_layer"))


class CoremlWalk(Walk):
    """Makes the values and operators of a graph, and of the blocks inside it."""

    format = "coreml"
    table = TABLE
    typed = True

    def special(self, node: GraphNode, ins: Operands, graph: NodeGraph, env: Names) -> Sequence[Operand] | None:
        if node.op not in _STEERING:
            return None
        given = [made for made in ins if made is not None]
        answer = given[0].first if given else None
        place = None if answer is None else 0 if answer else 1  # the first branch where the condition holds
        match node.op:
            case "leave_turn":
                self.maker.note("loop", f"{node}: a turn that data may end before is counted whole", node.name)
                return ()
            case "cond" | "while_loop":
                blocks: tuple[NodeGraph, ...] = node.attrs["@blocks"]
                if len(blocks) != 2:
                    raise SourceError(f"{node}: it has {len(blocks)} blocks, and needs two")
                first, second = (partial(self.inner, block, graph, env) for block in blocks)
                if node.op == "cond":
                    return self.choose(node, place, [partial(first, []), partial(second, [])])
                return self.looped(node, given, first, second)
            case "branch_layer":
                return self._branch_layer(node, place, graph, env)
        return self._loop_layer(node, given, graph, env)

    # -- layers of neural networks: the networks that they run see and change the values of all names around them -----------

    def _branch_layer(self, node: GraphNode, place: int | None, graph: NodeGraph, env: Names) -> Sequence[Operand]:
        blocks: tuple[NodeGraph, ...] = node.attrs["@blocks"]
        first, second = ([*_made_in(block)] for block in blocks)
        if place is not None:
            names = second if place else first
        else:  # what only one of them makes has no value after the other
            names = [name for name in first if name in second or env.get(name) is not None]
            names += [name for name in second if name not in first and env.get(name) is not None]
        branches = [partial(self._after, block, names, graph, env) for block in blocks]
        env.update(zip(names, self.choose(node, place, branches), strict=True))
        return ()

    def _loop_layer(self, node: GraphNode, ins: list[Operand], graph: NodeGraph, env: Names) -> Sequence[Operand]:
        """Turns as often as its input or its own number, or while the result of a network holds."""
        cond, body = node.attrs["@blocks"]
        made = _made_in(body)
        start = {name: found for name in made if (found := env.get(name)) is not None}
        names = [*start, *[name for name in made if name not in start]]

        def run(block: NodeGraph, wanted: Sequence[str]) -> Block:
            return lambda given: self._after(block, wanted, graph, env, zip(start, given, strict=True))

        limit = ins[0].first if ins else node.attrs["most"]
        condition = node.attrs["cond"]
        if not limit and condition and not ins:
            limit = None  # no number is written as zero
        most = int(limit) if limit is not None and 0 <= limit < MOST_TURNS else None
        holds = run(cond, [condition]) if condition else None
        turns = self.looped(node, [*start.values()], holds, run(body, names), most)
        env.update(zip(names, turns, strict=False))
        return ()

    def _after(
        self, block: NodeGraph, names: Sequence[str], graph: NodeGraph, env: Names,
        given: Iterable[tuple[str, Operand]] = (),
    ) -> list[Operand]:  # fmt: skip
        """The values of names after a network has run; what gets one only where data have it so is unknown."""
        inner = NestedNames(self, graph, env, given)
        for each in block.nodes:
            self.node(each, block, inner)
        unknown = self.maker.spec(None, "float32")
        return [inner.get(name) or Operand(self.maker.value("", unknown, "const"), None, "float32") for name in names]


def _made_in(block: NodeGraph) -> dict[str, None]:
    """The names that a network gives, its own networks' among them."""
    found: dict[str, None] = {}
    for node in block.nodes:
        found.update(dict.fromkeys(node.outputs))
        if node.op in ("branch_layer", "loop_layer"):
            for inner in node.attrs["@blocks"]:
                found.update(_made_in(inner))
    return found
