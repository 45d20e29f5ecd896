"""The operators of a program, each translated by the table of `frontends.aten`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from opcost.core.checked import LARGEST, Bad, get, instance, objects, short
from opcost.frontends.aten import Plan, Translation, plan_of, plan_without_schema, translate
from opcost.frontends.aten.call import Call, flat
from opcost.frontends.aten.composite import Step as Part
from opcost.frontends.aten.composite import taken_apart
from opcost.frontends.aten.resolve import is_view
from opcost.frontends.aten.schema import Schema, shipped
from opcost.frontends.aten.tensor import Described, layout_name
from opcost.frontends.pt2 import control
from opcost.frontends.pt2.builder import Builder, Made, described
from opcost.frontends.pt2.modules import stack_of
from opcost.frontends.pt2.program import Scope, Subgraph

_ARITHMETIC = ("_operator.", "math.", "torch.sym_", "torch._sym_")
"""What a program may call besides operators: arithmetic on sizes, whose results stand in the file."""
_FLAWS = (
    ArithmeticError, AssertionError, AttributeError, LookupError, NotImplementedError, StopIteration, TypeError, ValueError,
)  # fmt: skip
"""What a handler raises where arguments are not those of such an operator."""
DEEPEST = 16


class Operator(NamedTuple):
    """An operator that the program names."""

    name: str
    plan: Plan
    schema: Schema | None


@lru_cache(maxsize=4096)  # a file may name any number of operators
def operator_of(target: str) -> Operator | None:
    """The operator of a target such as `torch.ops.aten.add.Tensor`; None for arithmetic on sizes."""
    if target.startswith("torch.ops."):
        library, _, rest = target.removeprefix("torch.ops.").partition(".")
        base, _, overload = rest.partition(".")
        name = f"{library}::{base}"
        schema = shipped(name, "" if overload == "default" else overload)
        plan = plan_of(schema) if schema is not None else plan_without_schema(name, overload)
        return Operator(name, plan, schema)
    if target.startswith(_ARITHMETIC):
        return None
    raise Bad(f"it calls {short(target)}, which is not an operator")


class Run:
    """One pass over a graph whose inputs are made; a graph inside another is a pass of its own."""

    def __init__(
        self,
        builder: Builder,
        graph: Mapping[str, Any],
        made: dict[str, Made],
        *,
        module: str = "",
        repeat: int = 1,
        depth: int = 0,
    ) -> None:
        if depth > DEEPEST or repeat > LARGEST:
            raise Bad(f"its graphs are nested more than {DEEPEST} deep, or run too often")
        self.builder = builder
        self.graph = graph
        self.scope = Scope(graph, builder.symbols)
        self.made = made
        self.module = module
        self.repeat = repeat
        self.depth = depth

    def __call__(self) -> list[Made]:
        """Make the operators; what comes back are the tensors that the graph returns."""
        around = self.module
        for node in objects(self.graph, "nodes"):  # type: ignore[arg-type]
            operator = operator_of(get(node, "target", str))
            if operator is not None:
                stack = stack_of(instance(instance(node.get("metadata", {}), dict).get("nn_module_stack", ""), str))
                self.module = self.builder.modules.enter(stack, len(self.builder.ops)) if stack else around
                self.node(operator, node)
        return [self.tensor(name) for name in self.names(get(self.graph, "outputs", list)) if name in self.made]

    def tensor(self, name: str) -> Made:
        if name not in self.made:
            raise Bad(f"the tensor {short(name)} is read before it is made")
        return self.made[name]

    def names(self, arguments: list[Any]) -> Iterator[str]:
        """The names of the tensors in a list of arguments or results."""
        for argument in arguments:
            found: list[str] = []
            self.scope.argument(argument, found.append)
            yield from found

    def inside(self, graph: Subgraph, operands: list[Any], *, turns: int = 1) -> list[Made]:
        """The operators of a graph that an operator is given, and what it returns; its inputs are the operands in order."""
        inner = Run(
            self.builder, graph.content, {}, module=self.module, repeat=self.repeat * turns, depth=self.depth + 1
        )
        inputs = get(graph.content, "inputs", list)
        if len(inputs) != len(operands):
            raise Bad(f"a graph takes {len(inputs)} inputs and is given {len(operands)}")
        for given, operand in zip(inputs, operands, strict=True):
            inner.made.update((name, operand) for name in inner.names([given]) if isinstance(operand, Made))
        return inner()

    def node(self, operator: Operator, node: Mapping[str, Any]) -> None:
        named = {}
        for place, argument in enumerate(objects(node, "inputs")):  # type: ignore[arg-type]
            name = get(argument, "name", str) or str(place)
            named[name] = self.scope.argument(argument.get("arg"), self.tensor)
        results = list(self.names(get(node, "outputs", list)))
        if operator.name.startswith("higher_order::") and control.run(
            self, operator.name, list(named.values()), results
        ):
            return
        self.plain(operator, named, results)

    def plain(self, operator: Operator, named: dict[str, Any], results: list[str]) -> None:
        """An operator as the table knows it, or those that it consists of."""
        known = {id(given.tensor): given.value for given in made_in(named.values())}
        arguments = {**dict(operator.plan.parameters), **{name: _tensors(value) for name, value in named.items()}}
        outs = tuple(described(self.scope.meta(name)) for name in results)
        names = {id(tensor): name for name, tensor in zip(results, outs, strict=True)}
        for step in self.steps(operator, arguments, outs):
            self.step(step, known, names)
        for name, tensor in zip(results, outs, strict=True):
            if id(tensor) not in known:
                raise Bad(f"{operator.name} has {len(results)} results, more than it makes")
            self.made[name] = Made(tensor, known[id(tensor)])

    def steps(self, operator: Operator, arguments: dict[str, Any], outs: tuple[Described, ...]) -> list[Step]:
        whole = Step(operator, arguments, outs, None)
        plan = operator.plan
        call = Call(plan.name, plan.overload, arguments, outs, in_place=plan.in_place)
        tensors = [*flat(arguments.values()), *outs]
        if any(None in tensor.shape or None in tensor.stride() for tensor in tensors):
            looks = operator.schema is not None and is_view(operator.schema)
            return [whole._replace(found=Translation("view" if looks else "unknown", {}))]
        if any(layout_name(tensor) != "strided" for tensor in tensors):
            return [whole._replace(found=Translation("unknown", {}))]
        try:
            parts = taken_apart(call)
            if parts is None:
                return [whole._replace(found=translate(plan, call))]
            return [self.part(part) for part in parts]
        except _FLAWS:
            self.builder.note("unknown", f"{operator.name} is not counted: its arguments do not fit it")
            return [whole._replace(found=Translation("unknown", {}))]

    def part(self, part: Part) -> Step:
        """One of the operators that another consists of."""
        operator = operator_of(f"torch.ops.aten.{part.operator}")
        assert operator is not None
        arguments = {**dict(operator.plan.parameters), **part.args}
        plan = operator.plan
        call = Call(plan.name, plan.overload, arguments, part.outs, in_place=plan.in_place)
        return Step(operator, arguments, part.outs, translate(plan, call))

    def step(self, step: Step, known: dict[int, int], names: Mapping[int, str]) -> None:
        found = step.found
        assert found is not None
        builder = self.builder
        given = [known[id(tensor)] for tensor in flat(step.arguments.values())]
        reads = given if found.ins is None else [known[id(tensor)] for tensor in found.ins]
        writes = []
        for place, tensor in enumerate(step.outs):
            home = _home(step, place)
            if home is not None:  # a look at a weight takes its gradients too
                tensor.requires_grad |= home.requires_grad
            lies = None if home is None else known[id(home)]
            known[id(tensor)] = builder.made(names.get(id(tensor), ""), tensor, home=lies).value
            writes.append(known[id(tensor)])
        if not writes and found.outs:
            writes = [known[id(tensor)] for tensor in found.outs]
        builder.op(found.kind, found.attrs, step.operator.name, reads, writes, self.module, self.repeat)


class Step(NamedTuple):
    """One operator of the graph to be."""

    operator: Operator
    arguments: dict[str, Any]
    outs: tuple[Any, ...]
    found: Translation | None


def _home(step: Step, place: int) -> Any:
    """The tensor in whose memory a result lies: the one that the schema names, or for a view the first; None: in its own."""
    schema, found = step.operator.schema, step.found
    assert found is not None
    if schema is None or not schema.returns:
        return None
    returned = schema.returns[min(place, len(schema.returns) - 1)]
    if returned.alias and (returned.writes or found.kind == "view"):
        shared = list(flat(step.arguments[a.name] for a in schema.arguments if a.alias == returned.alias))
        if shared:
            return shared[min(place, len(shared) - 1)]
    if found.kind != "view" or "empty" in schema.name:
        return None
    return next(flat(step.arguments.values()), None)


def _tensors(value: Any) -> Any:
    """An argument with tensors in the place of what was made."""
    if isinstance(value, Made):
        return value.tensor
    if isinstance(value, list):
        return [_tensors(item) for item in value]
    if isinstance(value, dict):
        return {name: _tensors(item) for name, item in value.items()}
    return value


def made_in(values: Iterable[Any]) -> Iterator[Made]:
    """What was made among nested arguments, in order."""
    for value in values:
        if isinstance(value, Made):
            yield value
        elif isinstance(value, list):
            yield from made_in(value)
        elif isinstance(value, dict):
            yield from made_in(value.values())
