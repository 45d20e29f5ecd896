"""The operators of a program, each translated by the table of `frontends.aten`, and those that are given graphs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from opcost.core.parsing import LARGEST, Bad, get, instance, objects, short
from opcost.frontends.aten.call import Described, row_major
from opcost.frontends.programs import ProgramBuilder, ProgramOperator, operator_named, stack_of
from opcost.frontends.pt2.program import Scope, Subgraph

_ARITHMETIC = ("_operator.", "math.", "torch.sym_", "torch._sym_")
"""What a program may call besides operators: arithmetic on sizes, whose results are in the file."""
DEEPEST = 16


def operator_of(target: str) -> ProgramOperator | None:
    """The operator of a target such as `torch.ops.aten.add.Tensor`; None for arithmetic on sizes."""
    if target.startswith("torch.ops."):
        library, _, rest = target.removeprefix("torch.ops.").partition(".")
        base, _, overload = rest.partition(".")
        return operator_named(f"{library}::{base}", "" if overload == "default" else overload)
    if target.startswith(_ARITHMETIC):
        return None
    raise Bad(f"it calls {short(target)}, which is not an operator")


class GraphPass:
    """One pass over a graph whose inputs are made; a graph inside another is a pass of its own."""

    def __init__(
        self, builder: ProgramBuilder, graph: Mapping[str, Any], made: dict[str, Described],
        *, module: str = "", repeat: int = 1, depth: int = 0,
    ) -> None:  # fmt: skip
        if depth > DEEPEST or repeat > LARGEST:
            raise Bad(f"its graphs are nested more than {DEEPEST} deep, or run too often")
        self.builder, self.graph, self.made = builder, graph, made
        self.scope = Scope(graph, builder.symbols)
        self.module, self.repeat, self.depth = module, repeat, depth

    def __call__(self) -> list[Described]:
        """Make the operators; what comes back are the tensors that the graph returns."""
        around = self.module
        for node in objects(self.graph, "nodes"):  # type: ignore[arg-type]
            operator = operator_of(get(node, "target", str))
            if operator is not None:
                stack = stack_of(instance(instance(node.get("metadata", {}), dict).get("nn_module_stack", ""), str))
                self.module = self.builder.modules.enter(stack, len(self.builder.ops)) if stack else around
                self.node(operator, node)
        return [self.tensor(name) for name in self.names(get(self.graph, "outputs", list)) if name in self.made]

    def tensor(self, name: str) -> Described:
        if name not in self.made:
            raise Bad(f"the tensor {short(name)} is read before it is made")
        return self.made[name]

    def names(self, arguments: list[Any]) -> Iterator[str]:
        """The names of the tensors in a list of arguments or results."""
        for argument in arguments:
            found: list[str] = []
            self.scope.argument(argument, found.append)
            yield from found

    def inside(self, graph: Subgraph, operands: list[Any], *, turns: int = 1) -> list[Described]:
        """The operators of a graph that an operator is given, and what it returns; its inputs are the operands in order."""
        inner = GraphPass(
            self.builder, graph.content, {}, module=self.module, repeat=self.repeat * turns, depth=self.depth + 1
        )
        inputs = get(graph.content, "inputs", list)
        if len(inputs) != len(operands):
            raise Bad(f"a graph takes {len(inputs)} inputs and is given {len(operands)}")
        for given, operand in zip(inputs, operands, strict=True):
            inner.made.update((name, operand) for name in inner.names([given]) if isinstance(operand, Described))
        return inner()

    def node(self, operator: ProgramOperator, node: Mapping[str, Any]) -> None:
        named = {}
        for place, argument in enumerate(objects(node, "inputs")):  # type: ignore[arg-type]
            name = get(argument, "name", str) or str(place)
            named[name] = self.scope.argument(argument.get("arg"), self.tensor)
        results = list(self.names(get(node, "outputs", list)))
        if operator.name.startswith("higher_order::"):
            base = operator.name.partition("::")[2]
            if base in _HANDLERS:
                returned = _HANDLERS[base](self, operator.name, list(named.values()))
                if len(returned) < len(results):
                    raise Bad(f"a graph returns {len(returned)} tensors where {len(results)} are expected")
                self.made.update(zip(results, returned, strict=False))
                return
            unknown = f"{operator.name} is not counted: what it runs is not known"
            self.builder.note(*_NOTES.get(base, ("control", unknown)))
        # The results are those that the file describes.
        outs = {name: self.scope.described(name) for name in results}
        self.builder.emit(operator, named, outs, self.module, self.repeat)
        self.made.update(outs)


# -- operators that are given graphs: branches, loops, and wrappers that only say how their graph is to run


def _expect(operator: str, arguments: list[Any], *kinds: type) -> list[Any]:
    """The arguments, each of its type; lists at the end may be left away."""
    given = [*arguments, *([] for kind in kinds[len(arguments) :] if kind is list)]
    if len(given) < len(kinds) or not all(map(isinstance, given, kinds)):
        raise Bad(f"{operator} is not given what it needs")
    return given[: len(kinds)]


def _wrap(outer: GraphPass, operator: str, arguments: list[Any]) -> list[Described]:
    """One graph, run once on all that follows it."""
    at = next((place for place, argument in enumerate(arguments) if isinstance(argument, Subgraph)), None)
    if at is None:
        raise Bad(f"{operator} has no graph")
    rest = arguments[at + 1 :]
    return outer.inside(arguments[at], [item for each in rest for item in (each if isinstance(each, list) else [each])])


def _cond(outer: GraphPass, operator: str, arguments: list[Any]) -> list[Described]:
    chosen, true, false, operands = _expect(operator, arguments, object, Subgraph, Subgraph, list)
    if not isinstance(chosen, bool):
        outer.builder.note("branch", "torch.cond depends on data: the true branch is counted")
    return outer.inside(false if chosen is False else true, operands)


def _scan(outer: GraphPass, operator: str, arguments: list[Any]) -> list[Described]:
    """A graph that is run for each step of some tensors, with what the step before carries; `map` carries nothing."""
    if operator.endswith("scan"):
        body, start, xs, rest = _expect(operator, arguments, Subgraph, list, list, list)
    else:
        body, xs, rest = _expect(operator, arguments, Subgraph, list, list)
        start = []
    if not xs or not all(isinstance(x, Described) and x.shape and x.shape[0] is not None for x in xs):
        raise Bad(f"{operator} has nothing to walk along")
    turns = xs[0].shape[0]
    steps = []
    for x in xs:
        tensor = Described(x.shape[1:], x.strides[1:], x.dtype, x.device)
        steps.append(outer.builder.made("", tensor, home=x.value))
        outer.builder.op("view", {}, operator, [x.value], [steps[-1].value], outer.module, outer.repeat * turns)
    made = outer.inside(body, [*start, *steps, *rest], turns=turns)
    found = made[: len(start)]
    for part in made[len(start) :]:  # the results of all turns, each copied to its place
        shape = (turns, *part.shape)
        found.append(outer.builder.made("", Described(shape, row_major(shape), part.dtype, part.device)))
        outer.builder.op("copy", {}, operator, [part.value], [found[-1].value], outer.module, outer.repeat)
    return found


_WRAPPERS = (
    "wrap_with_set_grad_enabled", "wrap_with_autocast", "wrap", "tag_activation_checkpoint", "wrap_activation_checkpoint",
    "strict_mode", "hints_wrapper", "invoke_subgraph", "inductor_compiled_code",
)  # fmt: skip
_HANDLERS: dict[str, Callable[[GraphPass, str, list[Any]], list[Described]]] = {
    "cond": _cond, "map": _scan, "map_impl": _scan, "scan": _scan, **dict.fromkeys(_WRAPPERS, _wrap),
}  # fmt: skip
_NOTES = {
    "while_loop": ("control", "higher_order::while_loop is not counted: how often it runs depends on data"),
    "flex_attention": (
        "flex", "flex_attention is counted over the full square of queries and keys; its score function is not counted",
    ),
}  # fmt: skip
"""What a report says of operators that are taken as they are."""
