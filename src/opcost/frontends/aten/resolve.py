"""From an operator to its handler, by its name and schema."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

from opcost.frontends.aten.call import (
    HANDLERS,
    UNKNOWN_VALUE,
    Call,
    Described,
    Handler,
    NotKnown,
    PartlyKnown,
    Tensor,
    Translation,
    Unplaced,
    flat,
)
from opcost.frontends.aten.outputs import outputs_of
from opcost.frontends.aten.schema import Argument, Schema, overloads
from opcost.frontends.aten.views import layout, row_major


class Plan(NamedTuple):
    """How calls of one overload are translated."""

    name: str
    overload: str
    handler: Handler
    parameters: tuple[tuple[str, Any], ...]
    """Names and defaults of the arguments in order; empty for operators without a schema."""
    reads: tuple[str, ...] | None
    """The arguments that are read, where some are only written (`out=`)."""
    writes: tuple[str, ...] | None
    """The arguments that are written, where the operator returns no tensor."""
    in_place: bool = False

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any], outs: tuple[Tensor, ...]) -> Call:
        if not self.parameters:
            named = {str(i): value for i, value in enumerate(args)}
        else:
            given = len(args)
            named = {
                name: args[i] if i < given else kwargs.get(name, default)
                for i, (name, default) in enumerate(self.parameters)
            }
        return Call(self.name, self.overload, named, outs, in_place=self.in_place)


_BY_LAYOUT = frozenset({"elementwise", "norm"})
"""Kinds whose kernels read in vectors where all tensors lie alike, and element by element, or after a copy, elsewhere."""
_OWN_LIBRARIES = frozenset({"aten", "mkldnn", "prims", "profiler", "quantized"})
"""PyTorch's libraries whose questions are known to be only that; anybody else's operator might do anything."""


def plan_of(schema: Schema) -> Plan:
    """The plan of an operator with a schema."""
    name, handler = find_handler(schema)
    written = schema.writes
    outs = {argument.name for argument in schema.arguments if argument.out}
    return Plan(
        name,
        schema.overload,
        handler,
        tuple((argument.name, argument.default) for argument in schema.arguments),
        tuple(argument.name for argument in schema.arguments if argument.name not in outs) if outs else None,
        written if written and not schema.returns_tensor else None,
        in_place=bool(written) and not outs,
    )


def plan_without_schema(name: str, overload: str = "") -> Plan:
    """The plan of an operator of which only the name is known: a higher-order one, or one of somebody else's library."""
    handler = HANDLERS.get(f"{name}.{overload}") or HANDLERS.get(name, _unknown)
    return Plan(name, overload, handler, (), None, None)


def find_handler(schema: Schema) -> tuple[str, Handler]:
    """The handler of an operator and the name it stands under: its own entry, else what its name or schema says."""
    library, _, base = schema.name.partition("::")
    for spelling in _spellings(base):
        for name in (f"{library}::{spelling}.{schema.overload}", f"{library}::{spelling}"):
            if name in HANDLERS:
                return f"{library}::{spelling}", HANDLERS[name]
    if library == "aten" and base.endswith("_copy"):
        return schema.name, _copy
    if is_view(schema) or (library in _OWN_LIBRARIES and is_question(schema)):
        return schema.name, _view
    return schema.name, _unknown


def _spellings(base: str) -> tuple[str, ...]:
    """The names under which an operator may be registered, its own first."""
    plain = base[:-1] if base.endswith("_") and not base.endswith("__") else base
    repeated = [
        plain.removeprefix(prefix) for prefix in ("_foreach_", "_unsafe_", "special_") if plain.startswith(prefix)
    ]
    return (base, plain, *repeated)


def is_view(schema: Schema) -> bool:
    """Whether every result is a look at an argument's memory that the operator does not write."""
    return bool(schema.returns) and all(returned.alias and not returned.writes for returned in schema.returns)


def is_question(schema: Schema) -> bool:
    """Whether the operator neither returns nor writes a tensor: it asks for metadata, or checks something."""
    return not schema.returns_tensor and not schema.writes


def translate(plan: Plan, call: Call) -> Translation:
    """What this call computes: kind, attributes, and its tensors in the order of the kind.

    The handler says it; the schema fills in what it leaves open: inputs without `out=`, outputs of in-place lists.
    """
    found = plan.handler(call)
    if found.ins is None and plan.reads is not None:
        found = found._replace(ins=call.tensors(*plan.reads))
    if found.outs is None and plan.writes is not None and not call.outs:
        found = found._replace(outs=tuple(flat(call[name] for name in plan.writes)))
    if found.kind in _BY_LAYOUT and call.outs:
        given = (argument for argument in call.args.values() if isinstance(argument, Tensor))
        if apart := layout(given, call.outs[0]):
            found = found._replace(attrs={**found.attrs, **apart})
    return found


def _unknown(call: Call) -> Translation:
    return Translation("unknown", {})


def _view(call: Call) -> Translation:
    return Translation("view", {})


def _copy(call: Call) -> Translation:
    return Translation("copy", {})


# -- what the name of an operator tells before any call of it is seen: its kind, and what else its translation asks for
#
# This is found out by translating calls that are made up after the operator's schemas.

_RANKS = (4, 3, 2, 1, 5, 0)
_EXTENT = 2
FLAWS = (NotKnown, ArithmeticError, AttributeError, LookupError, StopIteration, TypeError, ValueError)
"""What a translation may fail with where the call is not one that PyTorch would take, or not all of it is known."""


class Known(NamedTuple):
    """What a name tells."""

    kind: str
    """Empty where it depends on the call, or where nobody knows the operator."""
    asks_values: bool
    """Whether the values of plain arguments decide what a call means or makes."""
    asks_strides: bool


@lru_cache(maxsize=4096)
def known(name: str) -> Known:
    """What the name of one of PyTorch's own operators tells."""
    made = [(schema, plan_of(schema)) for schema in overloads(name)]
    kinds = {kind for schema, plan in made for kind in _kinds(schema, plan)}
    kind = kinds.pop() if len(kinds) == 1 else ""
    return Known(
        "" if kind == "unknown" else kind,
        asks_values=any(_asks_values(schema, plan) for schema, plan in made),
        asks_strides=any(_asks_strides(schema, plan) for schema, plan in made),
    )


def _kinds(schema: Schema, plan: Plan) -> Iterator[str]:
    """The kinds of calls whose results lie as the arguments do, and otherwise."""
    for turned in (False, True):
        for rank in _RANKS:
            x, y = _tensor(rank, turned=turned), _tensor(rank)
            y = Described((x.numel(),), (1,), "float64") if turned else y
            arguments = {argument.name: _argument(argument, x) for argument in schema.arguments}
            made = Call(plan.name, plan.overload, arguments, (y,) * len(schema.returns), in_place=plan.in_place)
            try:
                yield translate(plan, made).kind
            except FLAWS:
                continue
            break


def _asks_values(schema: Schema, plan: Plan) -> bool:
    """Whether a plain argument is looked at."""
    plain = {argument.name for argument in schema.arguments if not argument.is_tensor}
    return any(plain & _asked(schema, plan, _tensor(rank), plain) for rank in _RANKS)


def _asks_strides(schema: Schema, plan: Plan) -> bool:
    return any("strides" in _asked(schema, plan, Unplaced((_EXTENT,) * rank, "float32"), set()) for rank in _RANKS)


def _asked(schema: Schema, plan: Plan, x: Tensor, untold: set[str]) -> set[str]:
    """What a made-up call asks for and is not told."""
    arguments = {
        argument.name: UNKNOWN_VALUE if argument.name in untold else _argument(argument, x)
        for argument in schema.arguments
    }
    made = PartlyKnown(plan.name, plan.overload, arguments, (), in_place=plan.in_place)
    found = set()
    asks: tuple[Callable[[], tuple[Tensor, ...]], ...] = (
        lambda: outputs_of(schema, plan, made),
        lambda: (x,) * len(schema.returns),
    )
    for ask in asks:
        try:
            made.outs = ask()
            translate(plan, made)
        except NotKnown as exc:
            found.add(str(exc))
        except FLAWS:
            continue
    return found


def _tensor(rank: int, *, turned: bool = False) -> Described:
    shape = (_EXTENT,) * rank
    strides = row_major(shape)
    return Described(shape, strides[::-1] if turned else strides, "float32")


def _argument(argument: Argument, x: Tensor) -> Any:
    """Something of the argument's type."""
    if argument.is_tensor:
        return [x, x] if "[" in argument.type else x
    if "[" in argument.type:
        return [1] * max(x.dim(), 1)
    return argument.default if argument.default is not None else 1
