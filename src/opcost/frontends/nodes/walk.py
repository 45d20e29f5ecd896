"""The walk over a model's nodes, in the order in which they run: shapes, contents and operators are found in one pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any, TypeAlias

from opcost.core.graph import NO_ATTRS, Attrs, Graph
from opcost.core.progress import sharing
from opcost.core.report import DATA
from opcost.core.shapes import Mismatch, Shape, Unknown, complete, merge, text
from opcost.errors import InputError, SourceError, some
from opcost.frontends.building import GraphBuilder, check_extents
from opcost.frontends.inputs import Usual
from opcost.frontends.nodes import MOST_AXES
from opcost.frontends.nodes.inputs import Scopes, given_inputs
from opcost.frontends.nodes.meaning import (
    Content,
    DeclaredValue,
    GraphNode,
    Names,
    NodeGraph,
    Number,
    Operand,
    Operands,
    OperatorMeaning,
    OperatorTable,
    Out,
    StoredValue,
    plain,
)
from opcost.frontends.options import CountOptions

MOST_STEPS = 1 << 16
"""Nodes that are walked beside 64 times those that there are: graphs that run each other may never end."""
MOST_KNOWN = 1 << 20  # Elements of all small tensors that are worked out; a model computes some thousand sizes
MOST_TURNS = 1 << 40  # A loop with a counter that turns more often ends by something else

FAULTS = (IndexError, KeyError, TypeError, ValueError, ZeroDivisionError, OverflowError, AttributeError)
"""What handlers raise for nodes of damaged files."""


Block: TypeAlias = "Callable[[list[Operand]], list[Operand]]"  # A graph inside a node, as a function of its inputs


class Walk:
    """Makes the values and operators of a graph, and of the graphs inside it; each format adds its own control flow."""

    format: str  # The word before the names of its operators
    typed = False  # The file declares the element type of every value
    table: OperatorTable

    def __init__(self, scopes: Scopes, *, trusted: bool = True) -> None:
        self.maker = GraphBuilder()
        self.scopes = scopes
        self.sizes: Mapping[str, int] = {}  # The sizes of names in declared shapes
        self.trusted = trusted  # Declared shapes hold: the inputs are as the file declares them
        self.repeat = 1
        self._steps = self._known = 0
        self._walked: set[tuple[str, ...]] = set()
        self._possible: set[Shape] = set()  # Shapes that passed the check; a model has few
        self._stored: dict[int, Operand] = {}
        """Tensors of the file that were read, by the identity of what was read of them."""

    def special(self, node: GraphNode, ins: Operands, graph: NodeGraph, env: Names) -> Sequence[Operand] | None:
        """The results of a node that runs graphs or holds a constant; None: it is none of these."""
        return None

    def version(self, node: GraphNode) -> int:
        """Of the operators of a node's domain."""
        return 1

    def free(self, node: GraphNode) -> bool:
        """Whether a node that has no handler moves elements at most."""
        return False

    # -- graphs ---------------------------------------------------------------------------------------------------------

    def graph(self, graph: NodeGraph, env: Names) -> list[Operand]:
        """Run a graph and give what it returns; the tensors that it stores become values when they are first read."""
        with sharing(lambda: (self._steps, len(graph.nodes))):
            for node in graph.nodes:
                self.node(node, graph, env)
        return [self.found(declared.name, graph, env) for declared in graph.outputs]

    def called(self, graph: NodeGraph, given: Sequence[Operand]) -> list[Operand]:
        """Run a graph that sees no other, with values for its inputs."""
        names = [declared.name for declared in graph.inputs]
        return self.graph(graph, dict(zip(names, given, strict=True)))

    def counted(
        self, inputs: Sequence[DeclaredValue], options: CountOptions, run: Block, source: str, name: str, version: str,
        producer: str = "", usual: Usual | None = None,
    ) -> Graph:  # fmt: skip
        """The graph of the model that `run` walks, on the requested inputs."""
        made, self.sizes, self.trusted = given_inputs(inputs, options, self.maker, usual)
        meta = {"version": version, "mode": "eval", **({"producer": producer} if producer else {})}
        return self.finished(source, meta, name, made, run(made))

    def found(self, name: str, graph: NodeGraph, env: Names) -> Operand:
        found = env.get(name)
        if found is None:
            stored = graph.stored.get(name)
            if stored is None:
                raise SourceError(f"the value {name!r} is read and never made", hint="the file is damaged")
            found = self.stored(stored)
        return found

    def stored(self, tensor: StoredValue) -> Operand:
        """A tensor of the file, one however many graphs read it."""
        found = self._stored.get(id(tensor))
        if found is None:
            found = self._stored[id(tensor)] = self.stored_value(tensor, constant=False)
        return found

    def stored_value(self, tensor: StoredValue, *, constant: bool) -> Operand:
        """A new value for a tensor of the file; its role follows from the nodes that read it."""
        spec = self.maker.spec(tensor.shape, plain(tensor.dtype))
        value = self.maker.value(tensor.name, spec, "const")
        self.scopes.stored[value] = constant
        return Operand(value, tensor.shape, spec.dtype, tensor.content, stored=True)

    def finished(
        self, source: str, meta: Mapping[str, str], name: str, inputs: Sequence[Operand], outputs: Sequence[Operand]
    ) -> Graph:
        """The graph of all that was made; `name` is the type of the root of its modules."""
        self.scopes.settle(self.maker)
        if self.scopes.shared:
            names = [self.maker.values[value].name for value in sorted(self.scopes.shared)]
            self.maker.note("shared-weights", f"stored once and read by several modules: {', '.join(some(names))}")
        ends = {"inputs": [each.value for each in inputs], "outputs": [each.value for each in outputs]}
        modules = self.scopes.modules(self.maker, name or source)
        return self.maker.graph(source, self.format, meta, modules=modules, choices=self.maker.choices, **ends)

    # -- nodes ----------------------------------------------------------------------------------------------------------

    def node(self, node: GraphNode, graph: NodeGraph, env: Names) -> None:
        """Make the operators of one node."""
        self._steps += 1
        self._walked.add(node.outputs)
        if self._steps > MOST_STEPS + 64 * len(self._walked):
            raise SourceError(f"its graphs run each other: more than {self._steps - 1:,} operators would be made")
        try:
            ins = [(env.get(name) or self.found(name, graph, env)) if name else None for name in node.inputs]
            made = self.special(node, ins, graph, env)
            env.update(zip(node.outputs, self._made(node, ins, graph) if made is None else made, strict=False))
        except FAULTS as exc:
            raise SourceError(f"{node}: it is not what such a node must be ({type(exc).__name__}: {exc})") from exc

    def _made(self, node: GraphNode, ins: Operands, graph: NodeGraph) -> list[Operand]:
        path = self.scopes.path(node, ins, self.maker)
        kind, attrs, outs, reads = self._meaning(node, ins, path, graph)
        named = node.outputs
        if self.typed or len(outs) != len(named) or not all(complete(out.shape) for out in outs):
            outs = [self._declared(out, name, graph) for out, name in zip(outs, named, strict=False)]
            outs += [self._declared(Out(None, "float32"), name, graph) for name in named[len(outs) :]]
        self.scopes.read(node, path, ins, self.maker)
        return self.emit(node, path, kind, attrs, ins if reads is None else reads, outs, named)

    def _meaning(self, node: GraphNode, ins: Operands, path: str, graph: NodeGraph) -> OperatorMeaning:
        operator = self.table.get((node.domain, node.op))
        if operator is None:
            return _unknown(ins, "copy" if self.free(node) else "unknown", NO_ATTRS)
        try:
            found = operator.handler(operator.call(node, ins, path, graph, self))
            return found if found.kind != "unknown" else found._replace(attrs={"reason": DATA})
        except Unknown as exc:
            return _unknown(ins, "unknown", {"reason": str(exc) or DATA})
        except Mismatch as exc:
            raise InputError(f"{node}: {exc}", hint=_shapes(ins)) from exc
        except FAULTS as exc:
            raise SourceError(f"{node}: its attributes do not fit its inputs ({exc})", hint=_shapes(ins)) from exc

    def _declared(self, out: Out, name: str, graph: NodeGraph) -> Out:
        """What the file declares of a value, where nothing better is known."""
        declared = graph.declared.get(name)
        if declared is not None and self.typed:
            out = out._replace(dtype=declared.dtype)
        if declared is None or not self.trusted or complete(out.shape):
            return out
        try:
            extents = [self.sizes.get(n) if isinstance(n, str) else n for n in declared.shape or ()]
            return out._replace(shape=merge(out.shape, None if declared.shape is None else tuple(extents)))
        except Mismatch:
            return out

    def emit(
        self, node: GraphNode, path: str, kind: str, attrs: Attrs, reads: Operands, outs: Sequence[Out],
        names: Sequence[str],
    ) -> list[Operand]:  # fmt: skip
        """Make an operator of a node, and a value for each of its results."""
        made, maker = [], self.maker
        for out, name in zip(outs, names, strict=False):
            shape, dtype, content, home, items = out
            if shape not in self._possible:
                check_extents(shape, node, MOST_AXES)
                self._possible.add(shape)
            if content is not None or items is not None:
                self._known += len(content.items if content else items or ())
                if self._known > MOST_KNOWN:
                    content = items = None
                elif content:  # numbers of more than 64 bits are not known
                    wide = {n for n in content.items if isinstance(n, int) and not -(1 << 63) <= n < 1 << 64}
                    if wide:
                        content = Content(content.shape, tuple([None if n in wide else n for n in content.items]))
            spec = maker.spec(shape, plain(dtype))
            value = maker.value(name, spec, home=None if home is None else home.value)
            made.append(Operand(value, shape, spec.dtype, content, items))
        inputs = [each.value for each in reads if each is not None]
        raw = f"{node.domain or self.format}::{node.op}"
        maker.op(kind, attrs, raw, inputs, [each.value for each in made], path, self.repeat)
        return made

    def step(self, node: GraphNode, kind: str, reads: Operands, out: Out, name: str = "") -> Operand:
        """Make an operator with one result that is a part of what a node does."""
        return self.emit(node, self.scopes.path(node, [], self.maker), kind, NO_ATTRS, reads, [out], [name])[0]

    # -- graphs inside nodes --------------------------------------------------------------------------------------------

    def inner(self, block: NodeGraph, graph: NodeGraph, env: Names, given: Sequence[Operand] = ()) -> list[Operand]:
        """Run a graph inside a node of another one, with values for its inputs."""
        names = [declared.name for declared in block.inputs]
        return self.graph(block, NestedNames(self, graph, env, zip(names, given, strict=False)))

    def choose(self, node: GraphNode, place: Number, branches: Sequence[Callable[[], list[Operand]]]) -> list[Operand]:
        """The results of the branch with this number; where that depends on data, of all: the most expensive one counts."""
        if place is not None and 0 <= int(place) < len(branches):
            return branches[int(place)]()
        ranges, found, faults = [], [], []
        for branch in branches:
            mark = self.mark()
            try:
                found.append(branch())
                ranges.append((mark[1], len(self.maker.ops)))
            except (InputError, SourceError) as exc:  # what does not fit these inputs is not what they are for
                faults.append(exc)
                self.forget(mark)
        if not found:
            raise faults[0]
        if faults:
            self.maker.note("branch", f"{node}: a branch does not fit these inputs, so the other is counted", node.name)
            return found[0]
        self.maker.choices.append(tuple(ranges))
        text = "depends on data: of its branches the one that costs more is counted"
        self.maker.note("branch", f"{node} {text}", node.name)
        if len({len(results) for results in found}) > 1 or len(found[0]) < len(node.outputs):
            raise SourceError(f"{node}: its branches do not return all of its {len(node.outputs)} results")

        def wider(one: Operand, other: Operand) -> Operand:
            """A tensor that may be the one or the other: what differs in their shapes is not known."""
            return other if one.shape == other.shape else self._seen_as(node, one, _common(one, other))

        return [reduce(wider, results) for results in zip(*found, strict=True)]

    def turned(self, node: GraphNode, start: list[Operand], turns: int, body: Block, skip: int = 0) -> list[Operand]:
        """All that a loop's body gives; what its next turn takes comes after the first `skip` results."""
        while True:  # until no shape changes from turn to turn; in every round, less is taken to be known
            mark = self.mark()
            if self.repeat * turns >= 1 << 63:
                raise SourceError(f"{node}: with the loops around it, it would turn more than 2**63 times")
            before, self.repeat = self.repeat, self.repeat * turns
            try:
                results = body(start)
            finally:
                self.repeat = before
            kept = results[skip : skip + len(start)]
            if len(kept) < len(start):
                raise SourceError(f"{node}: its body does not return all that the next turn takes")
            shapes = [_common(one, other) for one, other in zip(start, kept, strict=True)]
            if all(made.shape == shape for made, shape in zip(start, shapes, strict=True)):
                return results
            self.forget(mark)
            start = [self._seen_as(node, made, shape) for made, shape in zip(start, shapes, strict=True)]

    def looped(
        self, node: GraphNode, ins: list[Operand], cond: Block | None, body: Block, most: int | None = None
    ) -> list[Operand]:
        """The results of a loop that turns while a condition holds: as often as its counter allows, or once.

        `most`: it turns no more often; without a condition it turns as often as that.
        """
        mark, notes = self.mark(), dict(self.maker.notes)
        pairs = [*zip(ins, body(ins), strict=False)]
        counters = [_counter(before, after) for before, after in pairs]
        # What the loop takes, without the contents that change from turn to turn
        start = [one if one.content == other.content else replace(one, content=None) for one, other in pairs]

        def holds(turn: int) -> bool | None:
            both = zip(start, counters, strict=True)
            given = [kept if counter is None else replace(kept, content=counter(turn)) for kept, counter in both]
            answer = next((each.first for each in cond(given)), None) if cond is not None else None
            return None if answer is None else bool(answer)

        turns = _first_false(holds)
        self.forget(mark)
        self.maker.notes = notes
        if most is not None:
            if turns is None and cond is not None:
                self.ends_early(node, most)
            turns = most if turns is None else min(turns, most)
        if turns == 0:
            return ins
        return self.turned(node, start, self.once(node) if turns is None else turns, body)

    def ends_early(self, node: GraphNode, turns: int) -> None:
        """Note that a loop may end before its last turn."""
        self.maker.note("loop", f"{node}: all its {turns} turns are counted; data may end it before", node.name)

    def once(self, node: GraphNode) -> int:
        """One turn, where the number of turns is not known."""
        self.maker.note("loop", f"{node}: how often it runs depends on data; one turn is counted", node.name)
        return 1

    def mark(self) -> tuple[int, int, int]:
        return len(self.maker.values), len(self.maker.ops), len(self.maker.choices)

    def forget(self, mark: tuple[int, int, int]) -> None:
        """Unmake all that was made since."""
        values, ops, choices = mark
        del self.maker.values[values:], self.maker.ops[ops:], self.maker.choices[choices:]
        self.scopes.forget(values)
        self._stored = {key: made for key, made in self._stored.items() if made.value < values}

    def _seen_as(self, node: GraphNode, made: Operand, shape: Shape) -> Operand:
        return made if shape == made.shape else self.step(node, "view", [made], Out(shape, made.dtype, home=made))


class NestedNames(dict[str, Operand]):
    """The names of a graph inside a node: it sees those around it, and its own do not leave it."""

    def __init__(self, walk: Walk, outer: NodeGraph, env: Names, given: Iterable[tuple[str, Operand]] = ()) -> None:
        super().__init__(given)
        self._walk, self._outer, self._env = walk, outer, env

    def get(self, name: str, default: Any = None) -> Any:
        found = super().get(name)
        if found is None:
            found = self._env.get(name)
        if found is None and name in self._outer.stored:
            found = self._walk.stored(self._outer.stored[name])
        return default if found is None else found


def _common(one: Operand, other: Operand) -> Shape:
    """What two shapes have in common."""
    if one.shape is None or other.shape is None or len(one.shape) != len(other.shape):
        return None
    return tuple(a if a == b else None for a, b in zip(one.shape, other.shape, strict=True))


def _unknown(ins: Operands, kind: str, attrs: Attrs) -> OperatorMeaning:
    """The meaning of a node of which only the inputs are known."""
    dtype = next((each.dtype for each in ins if each is not None), "float32")
    return OperatorMeaning(kind, attrs, [Out(None, dtype)])


def _shapes(ins: Operands) -> str:
    return f"its inputs are {', '.join(text(each.shape) if each else 'left out' for each in ins) or 'none'}"


# -- loops whose condition looks at a counter ----------------------------------------------------------------------------


def _counter(before: Operand, after: Operand) -> Callable[[int], Content] | None:
    """What a counter is at a turn, by what it is in the first two; None: it is no counter."""
    one, other = before.content, after.content
    if one is None or other is None or one == other or len(one.items) != 1 or len(other.items) != 1:
        return None
    both = (one.items[0], other.items[0])
    first, second = (int(item) if isinstance(item, float) and item.is_integer() else item for item in both)
    if not isinstance(first, int) or not isinstance(second, int):
        return None
    shape, step = one.shape, second - first
    return lambda turn: Content(shape, (first + turn * step,))


def _first_false(holds: Callable[[int], bool | None]) -> int | None:
    """The first turn at which a condition no longer holds; None: that depends on data.

    It is found by doubling and halving, since a counter grows evenly.
    """
    if not (answer := holds(0)):
        return None if answer is None else 0
    low, high = 0, 1
    while holds(high):
        low, high = high, 2 * high
        if high > MOST_TURNS:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return high
