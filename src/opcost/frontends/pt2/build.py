"""The operators of a program, each translated by the table of `frontends.aten`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from opcost.core.checked import LARGEST, Bad, get, instance, objects, short
from opcost.frontends.aten.call import Described
from opcost.frontends.programs import Emitter, ProgramBuilder, ProgramOperator, ProgramTensor, operator_named, stack_of
from opcost.frontends.pt2 import control
from opcost.frontends.pt2.program import Meta, Scope, Subgraph

_ARITHMETIC = ("_operator.", "math.", "torch.sym_", "torch._sym_")
"""What a program may call besides operators: arithmetic on sizes, whose results stand in the file."""
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


class Run:
    """One pass over a graph whose inputs are made; a graph inside another is a pass of its own."""

    def __init__(
        self,
        builder: ProgramBuilder,
        graph: Mapping[str, Any],
        made: dict[str, ProgramTensor],
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

    def __call__(self) -> list[ProgramTensor]:
        """Make the operators; what comes back are the tensors that the graph returns."""
        around = self.module
        for node in objects(self.graph, "nodes"):  # type: ignore[arg-type]
            operator = operator_of(get(node, "target", str))
            if operator is not None:
                stack = stack_of(instance(instance(node.get("metadata", {}), dict).get("nn_module_stack", ""), str))
                self.module = self.builder.modules.enter(stack, len(self.builder.ops)) if stack else around
                self.node(operator, node)
        return [self.tensor(name) for name in self.names(get(self.graph, "outputs", list)) if name in self.made]

    def tensor(self, name: str) -> ProgramTensor:
        if name not in self.made:
            raise Bad(f"the tensor {short(name)} is read before it is made")
        return self.made[name]

    def names(self, arguments: list[Any]) -> Iterator[str]:
        """The names of the tensors in a list of arguments or results."""
        for argument in arguments:
            found: list[str] = []
            self.scope.argument(argument, found.append)
            yield from found

    def inside(self, graph: Subgraph, operands: list[Any], *, turns: int = 1) -> list[ProgramTensor]:
        """The operators of a graph that an operator is given, and what it returns; its inputs are the operands in order."""
        inner = Run(
            self.builder, graph.content, {}, module=self.module, repeat=self.repeat * turns, depth=self.depth + 1
        )
        inputs = get(graph.content, "inputs", list)
        if len(inputs) != len(operands):
            raise Bad(f"a graph takes {len(inputs)} inputs and is given {len(operands)}")
        for given, operand in zip(inputs, operands, strict=True):
            inner.made.update((name, operand) for name in inner.names([given]) if isinstance(operand, ProgramTensor))
        return inner()

    def node(self, operator: ProgramOperator, node: Mapping[str, Any]) -> None:
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

    def plain(self, operator: ProgramOperator, named: dict[str, Any], results: list[str]) -> None:
        """An operator with the results that the file describes."""
        outs = {name: described(self.scope.meta(name)) for name in results}
        made = Emitter(self.builder, self.module, self.repeat).plain(operator, named, outs)
        self.made.update(zip(results, made, strict=True))


def described(meta: Meta) -> Described:
    """A tensor for the table."""
    shape, strides, dtype, device, layout, requires_grad = meta
    return Described(shape, strides, dtype, device, layout, requires_grad=requires_grad)  # type: ignore[arg-type]
