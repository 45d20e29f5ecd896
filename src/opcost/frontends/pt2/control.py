"""Operators that are given graphs: branches, loops, and wrappers that only say how their graph is to run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from opcost.core.checked import Bad
from opcost.frontends.aten.call import Described, row_major
from opcost.frontends.programs import ProgramBuilder, ProgramTensor
from opcost.frontends.pt2.program import Subgraph


class Outer(Protocol):
    """The pass over the graph in which such an operator stands."""

    builder: ProgramBuilder
    made: dict[str, ProgramTensor]
    module: str
    repeat: int

    def inside(self, graph: Subgraph, operands: list[Any], *, turns: int = 1) -> list[ProgramTensor]:
        """Make the operators of a graph that is given, as often as it runs; what comes back is what it returns."""


def run(outer: Outer, operator: str, arguments: list[Any], results: list[str]) -> bool:
    """Make the operators inside one; False if it is to be taken as it is."""
    handler = _HANDLERS.get(operator.partition("::")[2])
    if handler is None:
        outer.builder.note("control", f"{operator} is not counted: what it runs is not known")
        return False
    return handler(outer, operator, arguments, results)


def _expect(operator: str, arguments: list[Any], *kinds: type) -> list[Any]:
    """The arguments, each of its type; lists at the end may be left away."""
    given = [*arguments, *([] for kind in kinds[len(arguments) :] if kind is list)]
    if len(given) < len(kinds) or not all(map(isinstance, given, kinds)):
        raise Bad(f"{operator} is not given what it needs")
    return given[: len(kinds)]


def _return(outer: Outer, made: list[ProgramTensor], results: list[str]) -> None:
    if len(made) < len(results):
        raise Bad(f"a graph returns {len(made)} tensors where {len(results)} are expected")
    outer.made.update(zip(results, made, strict=False))


def _wrap(outer: Outer, operator: str, arguments: list[Any], results: list[str]) -> bool:
    """One graph, run once on all that follows it."""
    at = next((place for place, argument in enumerate(arguments) if isinstance(argument, Subgraph)), None)
    if at is None:
        raise Bad(f"{operator} has no graph")
    operands = [
        item for argument in arguments[at + 1 :] for item in (argument if isinstance(argument, list) else [argument])
    ]
    _return(outer, outer.inside(arguments[at], operands), results)
    return True


def _cond(outer: Outer, operator: str, arguments: list[Any], results: list[str]) -> bool:
    chosen, true, false, operands = _expect(operator, arguments, object, Subgraph, Subgraph, list)
    if not isinstance(chosen, bool):
        outer.builder.note("branch", "torch.cond depends on data: the true branch is counted")
    _return(outer, outer.inside(false if chosen is False else true, operands), results)
    return True


def _while(outer: Outer, operator: str, arguments: list[Any], results: list[str]) -> bool:
    outer.builder.note("control", f"{operator} is not counted: how often it runs depends on data")
    return False


def _map(outer: Outer, operator: str, arguments: list[Any], results: list[str]) -> bool:
    body, xs, rest = _expect(operator, arguments, Subgraph, list, list)
    turns, steps = _slices(outer, operator, xs)
    made = outer.inside(body, [*steps, *rest], turns=turns)
    _return(outer, _stacked(outer, operator, made, turns), results)
    return True


def _scan(outer: Outer, operator: str, arguments: list[Any], results: list[str]) -> bool:
    body, start, xs, rest = _expect(operator, arguments, Subgraph, list, list, list)
    turns, steps = _slices(outer, operator, xs)
    made = outer.inside(body, [*start, *steps, *rest], turns=turns)
    carried = len(start)
    _return(outer, [*made[:carried], *_stacked(outer, operator, made[carried:], turns)], results)
    return True


def _slices(outer: Outer, operator: str, xs: list[Any]) -> tuple[int, list[ProgramTensor]]:
    """How often a loop runs, and one step of each tensor that it walks along."""
    if not xs or not all(isinstance(x, ProgramTensor) and x.tensor.shape and x.tensor.shape[0] is not None for x in xs):
        raise Bad(f"{operator} has nothing to walk along")
    turns = xs[0].tensor.shape[0]
    steps = []
    for x in xs:
        tensor = Described(tuple(x.tensor.shape[1:]), tuple(x.tensor.stride()[1:]), x.tensor.dtype, x.tensor.device)
        steps.append(outer.builder.made("", tensor, home=x.value))
        outer.builder.op("view", {}, operator, [x.value], [steps[-1].value], outer.module, outer.repeat * turns)
    return turns, steps


def _stacked(outer: Outer, operator: str, made: list[ProgramTensor], turns: int) -> list[ProgramTensor]:
    """The results of all turns, each copied to its place."""
    found = []
    for part in made:
        shape = (turns, *part.tensor.shape)
        found.append(outer.builder.made("", Described(shape, row_major(shape), part.tensor.dtype, part.tensor.device)))
        outer.builder.op("copy", {}, operator, [part.value], [found[-1].value], outer.module, outer.repeat)
    return found


def _flex(outer: Outer, operator: str, arguments: list[Any], results: list[str]) -> bool:
    outer.builder.note(
        "flex", "flex_attention is counted over the full square of queries and keys; its score function is not counted"
    )
    return False


_HANDLERS: dict[str, Callable[[Outer, str, list[Any], list[str]], bool]] = {
    "cond": _cond,
    "while_loop": _while,
    "map": _map,
    "map_impl": _map,
    "scan": _scan,
    "flex_attention": _flex,
    **dict.fromkeys(
        (
            "wrap_with_set_grad_enabled", "wrap_with_autocast", "wrap", "tag_activation_checkpoint", "wrap_activation_checkpoint",
            "strict_mode", "hints_wrapper", "invoke_subgraph", "inductor_compiled_code",
        ),
        _wrap,
    ),
}  # fmt: skip
