"""What the name of an operator says before any call of it is seen: its kind, and what else its translation reads.

This is found out by translating calls that are generated from the operator's schemas.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from typing import Any, NamedTuple

from opcost.frontends.aten.call import UNKNOWN_VALUE
from opcost.frontends.aten.results import outputs_of
from opcost.frontends.aten.schema import Argument, Plan, Schema, overloads, plan_of, translate
from opcost.frontends.aten.tensor import AtenTensor, Described, NotKnown, Unplaced, row_major

_RANKS = (4, 3, 2, 1, 5, 0)
_EXTENT = 2
FLAWS = (NotKnown, ArithmeticError, AttributeError, LookupError, StopIteration, TypeError, ValueError)
"""What a translation may fail with where the call is not one that PyTorch would take, or not all of it is known."""


class NameFacts(NamedTuple):
    """What a name says."""

    kind: str  # Empty where it depends on the call, or where the operator is unknown
    asks_values: bool  # Whether the values of plain arguments decide what a call means or makes
    asks_strides: bool


@lru_cache(maxsize=4096)
def known(name: str) -> NameFacts:
    """What the name of one of PyTorch's own operators tells."""
    schemas = [(schema, plan_of(schema)) for schema in overloads(name)]
    kinds = {kind for schema, plan in schemas for kind in _kinds(schema, plan)}
    kind = kinds.pop() if len(kinds) == 1 else ""
    asks_values = asks_strides = False
    for schema, plan in schemas:
        plain = {argument.name for argument in schema.arguments if not argument.is_tensor}
        for rank in _RANKS:
            unplaced = Unplaced((_EXTENT,) * rank, "float32")
            asks_values = asks_values or bool(plain & _missing(schema, plan, _tensor(rank), plain))
            asks_strides = asks_strides or "strides" in _missing(schema, plan, unplaced, set())
    return NameFacts("" if kind == "unknown" else kind, asks_values, asks_strides)


def _kinds(schema: Schema, plan: Plan) -> Iterator[str]:
    """The kinds of calls whose results lie as the arguments do, and otherwise."""
    for turned in (False, True):
        for rank in _RANKS:
            x, y = _tensor(rank, turned=turned), _tensor(rank)
            y = Described((x.numel(),), (1,), "float64") if turned else y
            arguments = {argument.name: _argument(argument, x) for argument in schema.arguments}
            with suppress(*FLAWS):
                yield translate(plan, plan.call(arguments, (y,) * len(schema.returns))).kind
                break


def _missing(schema: Schema, plan: Plan, x: AtenTensor, unknown: set[str]) -> set[str]:
    """What a generated call reads although it is unknown."""
    arguments = {each.name: UNKNOWN_VALUE if each.name in unknown else _argument(each, x) for each in schema.arguments}
    call = plan.call(arguments)
    found = set()
    for generated in (False, True):
        try:
            call.outs = (x,) * len(schema.returns) if generated else outputs_of(plan, call)
            translate(plan, call)
        except NotKnown as exc:
            found.add(str(exc))
        except FLAWS:
            continue
    return found


def _tensor(rank: int, *, turned: bool = False) -> Described:
    shape = (_EXTENT,) * rank
    strides = row_major(shape)
    return Described(shape, strides[::-1] if turned else strides, "float32")


def _argument(argument: Argument, x: AtenTensor) -> Any:
    """Something of the argument's type."""
    if argument.is_tensor:
        return [x, x] if "[" in argument.type else x
    if "[" in argument.type:
        return [1] * max(x.dim(), 1)
    return argument.default if argument.default is not None else 1
