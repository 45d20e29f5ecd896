"""From an operator to its handler, by its name and schema."""

from __future__ import annotations

from typing import Any, NamedTuple

from opcost.frontends.aten.call import HANDLERS, Call, Handler, Tensor, Translation, flat
from opcost.frontends.aten.schema import Schema
from opcost.frontends.aten.strides import layout


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
