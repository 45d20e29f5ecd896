"""From an operator to its handler, by its name and schema; worked out once per overload."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from opcost.frontends.torch.aten.call import HANDLERS, Call, Handler, Translation, flat


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

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any], outs: tuple[torch.Tensor, ...]) -> Call:
        if not self.parameters:
            named = {str(i): value for i, value in enumerate(args)}
        else:
            given = len(args)
            named = {
                name: args[i] if i < given else kwargs.get(name, default)
                for i, (name, default) in enumerate(self.parameters)
            }
        return Call(self.name, self.overload, named, outs, in_place=self.in_place)


_OWN_LIBRARIES = frozenset({"aten", "mkldnn", "prims", "profiler", "quantized"})
"""PyTorch's libraries whose questions are known to be only that; anybody else's operator might do anything."""

_PLANS: dict[Any, Plan] = {}


def plan_of(func: Any) -> Plan:
    """The plan of an operator overload or a higher-order operator."""
    plan = _PLANS.get(func)
    if plan is None:
        plan = _PLANS[func] = _plan(func)
    return plan


def _plan(func: Any) -> Plan:
    schema = getattr(func, "_schema", None)
    if schema is None:
        name = f"higher_order::{func.name()}"
        return Plan(name, "", HANDLERS.get(name, _unknown), (), None, None)
    arguments = schema.arguments
    name, handler = find_handler(schema)
    written_only = {argument.name for argument in arguments if argument.is_out}
    written = tuple(argument.name for argument in arguments if argument.alias_info and argument.alias_info.is_write)
    return Plan(
        name,
        schema.overload_name,
        handler,
        tuple((argument.name, argument.default_value) for argument in arguments),
        tuple(argument.name for argument in arguments if argument.name not in written_only) if written_only else None,
        written if written and not returns_tensor(schema) else None,
        in_place=bool(written) and not written_only,
    )


def find_handler(schema: Any) -> tuple[str, Handler]:
    """The handler of an operator and the name it stands under: its own entry, else what its name or schema says."""
    library, _, base = schema.name.partition("::")
    for spelling in _spellings(base):
        for name in (f"{library}::{spelling}.{schema.overload_name}", f"{library}::{spelling}"):
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


def is_view(schema: Any) -> bool:
    """Whether every result is a look at an argument's memory that the operator does not write."""
    returns = schema.returns
    return bool(returns) and all(
        returned.alias_info is not None and not returned.alias_info.is_write for returned in returns
    )


def is_question(schema: Any) -> bool:
    """Whether the operator neither returns nor writes a tensor: it asks for metadata, or checks something."""
    return not returns_tensor(schema) and not schema.is_mutable


def returns_tensor(schema: Any) -> bool:
    """Whether a tensor is among what comes back."""
    return any("Tensor" in str(returned.type) for returned in schema.returns)


def complete(plan: Plan, call: Call, found: Translation) -> Translation:
    """Fill in what the schema tells and the handler left open: inputs without `out=`, outputs of in-place lists."""
    if found.ins is None and plan.reads is not None:
        found = found._replace(ins=call.tensors(*plan.reads))
    if found.outs is None and plan.writes is not None and not call.outs:
        found = found._replace(outs=tuple(flat(call[name] for name in plan.writes)))
    return found


def _unknown(call: Call) -> Translation:
    return Translation("unknown", {})


def _view(call: Call) -> Translation:
    return Translation("view", {})


def _copy(call: Call) -> Translation:
    return Translation("copy", {})
