"""The tensors that an operator makes, worked out from its arguments: for calls of which only these are known.

Each file holds one family, as the files of handlers do, and registers a function for each operator that makes something
else than its name's default. An operator that is not here, or whose results depend on data, has unknown results.
"""

from __future__ import annotations

from opcost.frontends.aten.call import AtenCall, AtenTensor, Constant, NotKnown, flat
from opcost.frontends.aten.outputs import (  # noqa: F401  (imported for their entries in the table)
    contraction,
    layer,
    table,
)
from opcost.frontends.aten.outputs.table import OUTPUTS, elementwise, made_by
from opcost.frontends.aten.schema import Plan, Schema, is_view

__all__ = ["outputs_of"]


def outputs_of(schema: Schema, plan: Plan, call: AtenCall) -> tuple[AtenTensor, ...]:
    """What a call returns; of views nothing, because they make nothing. `NotKnown` where the arguments do not say it."""
    if schema.returns and all(returned.writes for returned in schema.returns):
        written = {argument.alias: argument.name for argument in schema.arguments if argument.writes}
        return tuple(flat(call[written[returned.alias]] for returned in schema.returns))
    if is_view(schema) or not schema.returns_tensor:
        return ()
    if (found := made_by(OUTPUTS, call)) is not None:
        return found
    if isinstance(plan.handler, Constant):
        if plan.handler.kind == "view":
            return ()
        if plan.handler.kind == "elementwise":
            return (elementwise(call, str(plan.handler.attrs["fn"])),)
    raise NotKnown(f"results of {plan.name}")
