"""An operator that a program names, translated by the table of `frontends.aten` and put into the graph."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from opcost.core.checked import Bad
from opcost.frontends.aten import Plan, Translation, plan_of, plan_without_schema, translate
from opcost.frontends.aten.call import Call, flat
from opcost.frontends.aten.composite import Step as Part
from opcost.frontends.aten.composite import taken_apart
from opcost.frontends.aten.resolve import is_view
from opcost.frontends.aten.schema import Schema, shipped
from opcost.frontends.aten.tensor import Described, layout_name
from opcost.frontends.programs.builder import Builder, Made, made_in

_FLAWS = (
    ArithmeticError, AssertionError, AttributeError, LookupError, NotImplementedError, StopIteration, TypeError, ValueError,
)  # fmt: skip
"""What a handler raises where arguments are not those of such an operator."""


class Operator(NamedTuple):
    """An operator that the program names."""

    name: str
    plan: Plan
    schema: Schema | None


@lru_cache(maxsize=4096)  # a file may name any number of operators
def operator_named(name: str, overload: str) -> Operator:
    """The operator of this name, `aten::add`, and overload."""
    schema = shipped(name, overload)
    return Operator(name, plan_of(schema) if schema is not None else plan_without_schema(name, overload), schema)


class Step(NamedTuple):
    """One operator of the graph to be."""

    operator: Operator
    arguments: dict[str, Any]
    outs: tuple[Any, ...]
    found: Translation | None


class Emitter:
    """Puts operators into a graph; `module` and `repeat` say where and how often they run."""

    def __init__(self, builder: Builder, module: str = "", repeat: int = 1) -> None:
        self.builder = builder
        self.module = module
        self.repeat = repeat

    def plain(self, operator: Operator, named: Mapping[str, Any], outs: Mapping[str, Described]) -> list[Made]:
        """An operator as the table knows it, or those that it consists of; `outs` are its results by their names."""
        known = {id(given.tensor): given.value for given in made_in(named.values())}
        arguments = {**dict(operator.plan.parameters), **{name: tensors_of(value) for name, value in named.items()}}
        names = {id(tensor): name for name, tensor in outs.items()}
        for step in self._steps(operator, arguments, tuple(outs.values())):
            self._step(step, known, names)
        if any(id(tensor) not in known for tensor in outs.values()):
            raise Bad(f"{operator.name} has {len(outs)} results, more than it makes")
        return [Made(tensor, known[id(tensor)]) for tensor in outs.values()]

    def _steps(self, operator: Operator, arguments: dict[str, Any], outs: tuple[Described, ...]) -> list[Step]:
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
            return [self._part(part) for part in parts]
        except _FLAWS:
            self.builder.note("unknown", f"{operator.name} is not counted: its arguments do not fit it")
            return [whole._replace(found=Translation("unknown", {}))]

    def _part(self, part: Part) -> Step:
        """One of the operators that another consists of."""
        base, _, overload = part.operator.partition(".")
        operator = operator_named(f"aten::{base}", overload)
        arguments = {**dict(operator.plan.parameters), **part.args}
        plan = operator.plan
        call = Call(plan.name, plan.overload, arguments, part.outs, in_place=plan.in_place)
        return Step(operator, arguments, part.outs, translate(plan, call))

    def _step(self, step: Step, known: dict[int, int], names: Mapping[int, str]) -> None:
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


def tensors_of(value: Any) -> Any:
    """An argument with tensors in the place of what was made."""
    if isinstance(value, Made):
        return value.tensor
    if isinstance(value, list):
        return [tensors_of(item) for item in value]
    if isinstance(value, dict):
        return {name: tensors_of(item) for name, item in value.items()}
    return value
