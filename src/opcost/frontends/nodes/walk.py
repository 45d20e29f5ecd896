"""The walk over a model's nodes, in the order in which they run: shapes, contents and operators are found in one go."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from opcost.core.graph import NO_ATTRS, Attrs, Graph
from opcost.core.progress import sharing
from opcost.core.report import DATA
from opcost.core.shapes import Mismatch, Shape, Unknown, complete, merge, text
from opcost.errors import InputError, SourceError
from opcost.frontends.building import GraphBuilder, check_extents
from opcost.frontends.nodes.call import Call, Made, Meaning, Out, Table
from opcost.frontends.nodes.loops import first_of, turns_of, without_changes
from opcost.frontends.nodes.model import MOST_AXES, Content, Node, NodeGraph, Stored, known_shape, plain
from opcost.frontends.nodes.scopes import Scopes
from opcost.wording import some

MOST_STEPS = 1 << 16
"""Nodes that are walked beside 64 times those that there are: graphs that run graphs may do so without an end in sight."""
MOST_KNOWN = 1 << 20
"""Elements of all small tensors that are worked out; a model computes some thousand sizes."""

FAULTS = (IndexError, KeyError, TypeError, ValueError, ZeroDivisionError, OverflowError, AttributeError)
"""What handlers raise for nodes of damaged files."""


class Walk:
    """Makes the values and operators of a graph, and of the graphs inside it; what steers others is each format's own."""

    format: str
    """The word before the names of its operators."""
    typed = False
    """Every value's element type is declared, and holds."""
    table: Table

    def __init__(
        self, maker: GraphBuilder, scopes: Scopes, sizes: Mapping[str, int] | None = None, *, trusted: bool
    ) -> None:
        self.maker = maker
        self.scopes = scopes
        self.sizes = sizes or {}
        """What the names in declared shapes stand for."""
        self.trusted = trusted
        """Declared shapes hold: the inputs are as the file declares them."""
        self.repeat = 1
        self._steps = self._known = 0
        self._walked: set[tuple[str, ...]] = set()
        self._possible: set[Shape] = set()
        """Shapes that were found to be those of a tensor; a model has few."""
        self._stored: dict[int, Made] = {}
        """Tensors of the file that somebody has read, by the identity of what was read of them."""

    def special(self, node: Node, graph: NodeGraph, env: dict[str, Made]) -> bool:
        """Run a node that runs graphs or holds a constant; False: it is none of these."""
        return False

    def version(self, node: Node) -> int:
        """Of the operators of a node's domain."""
        return 1

    def free(self, node: Node) -> bool:
        """Whether a node that has no handler moves elements at most."""
        return False

    # -- graphs ---------------------------------------------------------------------------------------------------------

    def graph(self, graph: NodeGraph, env: dict[str, Made]) -> list[Made]:
        """Run a graph; what it stores is made when somebody first reads it. What comes back is what it returns."""
        with sharing(lambda: (self._steps, len(graph.nodes))):
            for node in graph.nodes:
                self.node(node, graph, env)
        return [self.found(declared.name, graph, env) for declared in graph.outputs]

    def found(self, name: str, graph: NodeGraph, env: dict[str, Made]) -> Made:
        found = env.get(name)
        if found is None:
            stored = graph.stored.get(name)
            if stored is None:
                raise SourceError(f"the value {name!r} is read and never made", hint="the file is damaged")
            found = self.stored(stored)
        return found

    def stored(self, tensor: Stored) -> Made:
        """A tensor of the file, one however many graphs read it."""
        found = self._stored.get(id(tensor))
        if found is None:
            found = self._stored[id(tensor)] = self.held(tensor, constant=False)
        return found

    def held(self, tensor: Stored, *, constant: bool) -> Made:
        """A new value that the file holds; which part it plays is decided by who reads it."""
        spec = self.maker.spec(tensor.shape, plain(tensor.dtype))
        value = self.maker.value(tensor.name, spec, "const")
        self.scopes.held[value] = constant
        return Made(value, tensor.shape, spec.dtype, tensor.content, stored=True)

    def finished(
        self, source: str, meta: Mapping[str, str], name: str, inputs: Sequence[Made], outputs: Sequence[Made]
    ) -> Graph:
        """The graph of all that was made; `name` is what the root of its modules is called."""
        self.scopes.settle(self.maker)
        if self.scopes.shared:
            names = [self.maker.values[value].name for value in sorted(self.scopes.shared)]
            self.maker.note("shared-weights", f"stored once and read by several modules: {', '.join(some(names))}")
        return self.maker.graph(
            source,
            self.format,
            meta,
            modules=self.scopes.modules(self.maker, name or source),
            inputs=[made.value for made in inputs],
            outputs=[made.value for made in outputs],
            choices=self.maker.choices,
        )

    # -- nodes ----------------------------------------------------------------------------------------------------------

    def node(self, node: Node, graph: NodeGraph, env: dict[str, Made]) -> None:
        """Make the operators of one node."""
        self._steps += 1
        self._walked.add(node.outputs)
        if self._steps > MOST_STEPS + 64 * len(self._walked):
            raise SourceError(f"its graphs run each other: more than {self._steps - 1:,} operators would be made")
        try:
            if self.special(node, graph, env):
                return
            ins = [(env.get(name) or self.found(name, graph, env)) if name else None for name in node.inputs]
            env.update(zip(node.outputs, self._made(node, ins, graph), strict=False))
        except FAULTS as exc:
            raise SourceError(f"{node}: it is not what such a node must be ({type(exc).__name__}: {exc})") from exc

    def _made(self, node: Node, ins: list[Made | None], graph: NodeGraph) -> list[Made]:
        path = self.scopes.path(node, ins, self.maker)
        call = Call(node, ins, node.attrs, path, graph, self)
        kind, attrs, outs, reads = self._meaning(node, call)
        named = node.outputs
        if self.typed or len(outs) != len(named) or not all(complete(out.shape) for out in outs):
            outs = [self._declared(out, name, graph) for out, name in zip(outs, named, strict=False)]
            outs += [self._declared(Out(None, "float32"), name, graph) for name in named[len(outs) :]]
        self.scopes.read(node, path, ins, self.maker)
        return self.emit(node, path, kind, attrs, ins if reads is None else reads, outs, named)

    def _meaning(self, node: Node, call: Call) -> Meaning:
        handler = self.table.get((node.domain, node.op))
        if handler is None:
            return _unknown(call, "copy" if self.free(node) else "unknown")
        try:
            found = handler(call)
            return found if found.kind != "unknown" else found._replace(attrs={"reason": DATA})
        except Unknown as exc:
            return _unknown(call)._replace(attrs={"reason": str(exc) or DATA})
        except Mismatch as exc:
            raise InputError(f"{node}: {exc}", hint=_seen(call)) from exc
        except FAULTS as exc:
            raise SourceError(f"{node}: its attributes do not fit its inputs ({exc})", hint=_seen(call)) from exc

    def _declared(self, out: Out, name: str, graph: NodeGraph) -> Out:
        """What the file declares of a value, where nothing better is known."""
        declared = graph.declared.get(name)
        if declared is not None and self.typed:
            out = out._replace(dtype=declared.dtype)
        if declared is None or not self.trusted or complete(out.shape):
            return out
        try:
            return out._replace(shape=merge(out.shape, known_shape(declared, self.sizes)))
        except Mismatch:
            return out

    def emit(
        self,
        node: Node,
        path: str,
        kind: str,
        attrs: Attrs,
        reads: Sequence[Made | None],
        outs: Sequence[Out],
        names: Sequence[str],
    ) -> list[Made]:
        made, maker = [], self.maker
        for (shape, dtype, content, home, items), name in zip(outs, names, strict=False):
            if shape not in self._possible:
                check_extents(shape, node, MOST_AXES)
                self._possible.add(shape)
            spec = maker.spec(shape, plain(dtype))
            value = maker.value(name, spec, home=None if home is None else home.value)
            made.append(Made(value, shape, spec.dtype, *self._bounded(content, items)))
        inputs = [each.value for each in reads if each is not None]
        raw = f"{node.domain or self.format}::{node.op}"
        maker.op(kind, attrs, raw, inputs, [each.value for each in made], path, self.repeat)
        return made

    def _bounded(self, content: Content | None, items: list[Made] | None) -> tuple[Content | None, list[Made] | None]:
        """What is known of a result: integers have 64 bits, and where nodes compute very many numbers, no more are kept."""
        if content is None and items is None:
            return None, None
        self._known += len(content.items) if content else len(items or ())
        if self._known > MOST_KNOWN:
            return None, None
        if content and any(isinstance(n, int) and not -(1 << 63) <= n < 1 << 64 for n in content.items):
            wide = [n if not isinstance(n, int) or -(1 << 63) <= n < 1 << 64 else None for n in content.items]
            content = Content(content.shape, tuple(wide))
        return content, items

    # -- graphs inside nodes --------------------------------------------------------------------------------------------

    def nested(
        self, graph: NodeGraph, env: dict[str, Made], given: Mapping[str, Made] | None = None
    ) -> dict[str, Made]:
        """The names of a graph inside a node: it sees those around it, and its own do not leave it."""
        inner = _Nested(self, graph, env)
        inner.update(given or {})
        return inner

    def either(self, node: Node, branches: Sequence[Callable[[], list[Made]]]) -> list[Made]:
        """What comes out of a node that takes one of two ways, which data decide: both are walked, the dearer counts."""
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
        self.maker.note(
            "branch", f"{node} depends on data: of its branches the one that costs more is counted", node.name
        )
        if len({len(results) for results in found}) > 1 or len(found[0]) < len(node.outputs):
            raise SourceError(f"{node}: its branches do not return all of its {len(node.outputs)} results")
        return [self._wider(node, *results) for results in zip(*found, strict=True)]

    def turned(
        self, node: Node, start: list[Made], turns: int, body: Callable[[list[Made]], list[Made]], skip: int = 0
    ) -> list[Made]:
        """All that a loop's body gives; what it hands to its next turn stands behind so many other results."""
        while True:  # until no shape changes from turn to turn; every time round, less is taken to be known
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
        self,
        node: Node,
        ins: list[Made],
        cond: Callable[[list[Made]], list[Made]] | None,
        body: Callable[[list[Made]], list[Made]],
        most: int | None = None,
    ) -> list[Made]:
        """What comes out of a loop that turns as long as a condition holds: as often as a counter tells, or once.

        `most`: it turns no more often; without a condition it turns as often as that.
        """
        mark, notes = self.mark(), dict(self.maker.notes)
        after = body(ins)

        def holds(given: list[Made]) -> bool | None:
            answer = first_of(cond(given)) if cond is not None else None
            return None if answer is None else bool(answer)

        turns, start = turns_of(holds, ins, after), without_changes(ins, after)
        self.forget(mark)
        self.maker.notes = notes
        if most is not None:
            if turns is None and cond is not None:
                self.ends_early(node, most)
            turns = most if turns is None else min(turns, most)
        if turns == 0:
            return ins
        return self.turned(node, start, self.once(node) if turns is None else turns, body)

    def ends_early(self, node: Node, turns: int) -> None:
        """Say that a loop may end before its last turn."""
        self.maker.note("loop", f"{node}: all its {turns} turns are counted; data may end it before", node.name)

    def once(self, node: Node) -> int:
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

    def _wider(self, node: Node, one: Made, other: Made) -> Made:
        """A tensor that may be the one or the other: what differs in their shapes is not known."""
        return other if one.shape == other.shape else self._seen_as(node, one, _common(one, other))

    def _seen_as(self, node: Node, made: Made, shape: Shape) -> Made:
        if shape == made.shape:
            return made
        path = self.scopes.path(node, [], self.maker)
        return self.emit(node, path, "view", NO_ATTRS, [made], [Out(shape, made.dtype, home=made)], [""])[0]


class _Nested(dict[str, Made]):
    """The names of a graph inside a node: its own, and those around it."""

    def __init__(self, walk: Walk, outer: NodeGraph, env: dict[str, Made]) -> None:
        super().__init__()
        self._walk, self._outer, self._env = walk, outer, env

    def get(self, name: str, default: Any = None) -> Any:
        found = super().get(name)
        if found is None:
            found = self._env.get(name)
        if found is None and name in self._outer.stored:
            found = self._walk.stored(self._outer.stored[name])
        return default if found is None else found


def _common(one: Made, other: Made) -> Shape:
    """What two shapes have in common."""
    if one.shape is None or other.shape is None or len(one.shape) != len(other.shape):
        return None
    return tuple(a if a == b else None for a, b in zip(one.shape, other.shape, strict=True))


def _unknown(call: Call, kind: str = "unknown") -> Meaning:
    """What is said of a node of which nothing more is known than its inputs."""
    return Meaning(kind, NO_ATTRS, [Out(None, call.given[0].dtype if call.given else "float32")])


def _seen(call: Call) -> str:
    return f"its inputs are {', '.join(text(made.shape) if made else 'left out' for made in call.ins) or 'none'}"
