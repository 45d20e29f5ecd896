"""What an operator of a trace did, in our words: as the table of `frontends.aten` translates the same call in a count."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias

from opcost.core.graph import NO_ATTRS, Attrs, TensorSpec
from opcost.frontends.aten import plan_of, translate
from opcost.frontends.aten.call import flat
from opcost.frontends.aten.known import FLAWS, known
from opcost.frontends.aten.outputs import outputs_of
from opcost.frontends.aten.outputs.table import like
from opcost.frontends.aten.schema import Schema, is_implicit, is_of_library, overloads
from opcost.frontends.aten.tensor import Described, Tensor, type_name
from opcost.frontends.aten.told import UNTOLD, NotTold, PartlyTold, Unplaced
from opcost.traces.kineto.arguments import TENSOR, Entry, entries_of, named
from opcost.traces.kineto.by_kernel import Hint


class Meaning(NamedTuple):
    """An operator in our words; without results, only its kind and its tensors are known, or the latter alone."""

    kind: str
    ins: tuple[TensorSpec, ...]
    outs: tuple[TensorSpec, ...] = ()
    attrs: Attrs = NO_ATTRS
    is_own: bool = False
    """It has a price, and a count shows it whole, whatever it calls on its way: PyTorch does not take it apart."""


def meaning(name: str, dims: bytes, types: bytes, concrete: bytes, strides: bytes, hint: Hint | None = None) -> Meaning:
    """What an operator did, as far as the trace tells; what it does not tell is not guessed."""
    entries = entries_of(dims, types, concrete, strides)
    if hint is not None and hint.dtype:
        entries = [entry._replace(tensors=tuple(_of_type(x, hint.dtype) for x in entry.tensors)) for entry in entries]
    tensors = tuple(_spec(tensor) for entry in entries for tensor in entry.tensors)
    found = []
    for read in _readings(name, entries):
        if hint is not None and hint.approximate is not None:
            read[1]["approximate"] = hint.approximate
        try:
            found.append(_translated(*read))
        except FLAWS:  # not enough is told, or it is an operator of another version
            return Meaning(known(name).kind, tensors)
    if not found or any(reading[:-1] != found[0][:-1] for reading in found):
        return Meaning(known(name).kind, tensors)
    return found[0]._replace(is_own=any(reading.is_own for reading in found))


_Reading: TypeAlias = tuple[Schema, dict[str, Any], tuple[Tensor, ...]]
"""An overload, the arguments by name, and where results are written if that is told."""


def _readings(name: str, entries: list[Entry]) -> list[_Reading]:
    """The overloads that take such arguments; where none does, those that took them before they got more."""
    schemas = overloads(name) if entries else ()
    if schemas and is_of_library(name):
        entries = entries[: len(schemas[0].arguments)]
    return [*_fitting(schemas, entries)] or [*_older(schemas, entries)]


def _fitting(schemas: Iterable[Schema], entries: list[Entry]) -> Iterator[_Reading]:
    """An overload that is told takes what the one that returns its results takes, and then a tensor for each of them."""
    for schema in schemas:
        taken = len(schema.arguments)
        places = entries[taken:]
        fits = len(entries) == taken or (
            len(places) == len(schema.returns) and not schema.writes and all(each.holds == TENSOR for each in places)
        )
        arguments = named(schema, entries[:taken]) if fits else None
        if arguments is not None:
            yield schema, arguments, tuple(tensor for each in places for tensor in each.tensors)


def _older(schemas: Iterable[Schema], entries: list[Entry]) -> Iterator[_Reading]:
    """A version of PyTorch that wrote the trace knew fewer arguments: those added later, at the end, have their defaults."""
    for schema in schemas:
        added = schema.arguments[len(entries) :]
        if added and all(each.default is not None or "?" in each.type for each in added):
            before = schema._replace(arguments=schema.arguments[: len(entries)])
            if (arguments := named(before, entries)) is not None:
                yield schema, arguments | {each.name: each.default for each in added}, ()


def _translated(schema: Schema, arguments: dict[str, Any], places: tuple[Tensor, ...]) -> Meaning:
    plan = plan_of(schema)
    call = PartlyTold(plan.name, plan.overload, arguments, (), in_place=plan.in_place)
    call.outs = outputs_of(schema, plan, call)
    if places:  # these may get their shape only while the operator runs, but have their type before
        call.outs = tuple(like(y, type_name(place)) for y, place in zip(call.outs, places, strict=True))
    found = translate(plan, call)
    if found.kind == "unknown":
        raise NotTold("what it does")
    if found.ins is None and any(arguments[each.name] is UNTOLD for each in schema.arguments if each.is_tensor):
        raise NotTold("all that is read")
    ins = flat(arguments.values()) if found.ins is None else found.ins
    outs = call.outs if found.outs is None else found.outs
    is_own = (bool(outs) or found.kind == "view") and not is_implicit(schema)
    return Meaning(found.kind, tuple(map(_spec, ins)), tuple(map(_spec, outs)), found.attrs, is_own)


def _of_type(tensor: Tensor, dtype: str) -> Tensor:
    """The same, where its type was not told."""
    if type_name(tensor):
        return tensor
    shape = tuple(tensor.shape)
    return Unplaced(shape, dtype) if isinstance(tensor, Unplaced) else Described(shape, tensor.stride(), dtype)


def _spec(tensor: Tensor) -> TensorSpec:
    return TensorSpec(tuple(tensor.shape), type_name(tensor))
