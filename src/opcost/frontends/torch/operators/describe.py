"""What a call was, told from a trial of it: its kind and attributes, and the signatures and memory of its outputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from opcost.frontends.torch.ledger.entry import Entry, Out
from opcost.frontends.torch.operators.call import Call, Trial
from opcost.frontends.torch.operators.translate import translate

_untyped_storage = torch.Tensor.untyped_storage  # itself, not what replaces it during a count


def record(call: Call, trial: Trial, result: Any, contents: list[torch.Tensor | None] | None = None) -> Any:
    """Write a call down whose trial gave `result`, and make its outputs."""
    return call.ledger.emit(describe(call, trial, result), call.states, contents)


def describe(call: Call, trial: Trial, result: Any, device: torch.device | None = None) -> Entry:
    """The entry for a call whose trial gave `result`; `device` is where the result lies if the call does not tell."""
    ledger, func, states = call.ledger, call.func, call.states
    device = call.device if device is None else device
    tensors = trial.tensors
    flat: list[torch.Tensor] = []
    pack = _packer(result, flat)
    position = {id(tensor): index for index, tensor in reversed(list(enumerate(tensors)))}
    memory = {key: index for index, tensor in reversed(list(enumerate(tensors))) if (key := _storage(tensor))}
    outs = []
    for tensor in flat:
        index = position.get(id(tensor))
        if index is not None:  # in place, where the shape may change as well
            outs.append(Out(ledger.signatures.of(tensor, states[index].sig.device), index, same=True))
        else:
            base = memory.get(_storage(tensor), -1)
            outs.append(Out(ledger.signatures.of(tensor, device), base, same=False))
    translation = translate(func, trial.args, trial.kwargs, tuple(flat))
    if not flat and translation.outs:  # it returns nothing and writes into its arguments
        outs = [
            Out(states[at].sig, at, same=True)
            for tensor in translation.outs
            if (at := position.get(id(tensor))) is not None
        ]
    order = None
    if translation.ins is not None:
        order = tuple([position[id(tensor)] for tensor in translation.ins])
    return Entry(
        translation.kind,
        name_of(func),
        translation.attrs,
        order,
        tuple(outs),
        pack,
        _written(func, trial.args, trial.kwargs, position),
    )


def name_of(func: Any) -> str:
    """The operator's name as traces and schemas write it, without the overload."""
    schema = getattr(func, "_schema", None)
    return (
        str(schema.name) if schema is not None else f"higher_order::{func.name() if callable(func.name) else func.name}"
    )


def _written(func: Any, args: Any, kwargs: dict[str, Any], position: dict[int, int]) -> tuple[int, ...]:
    """The tensor arguments that the schema says are written."""
    schema = getattr(func, "_schema", None)
    if schema is None or not schema.is_mutable:
        return ()
    found: list[int] = []
    for index, argument in enumerate(schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            given = args[index] if index < len(args) else kwargs.get(argument.name)
            for tensor in given if isinstance(given, (list, tuple)) else (given,):
                found += [position[id(tensor)]] if isinstance(tensor, torch.Tensor) else []
    return tuple(found)


def _storage(tensor: torch.Tensor) -> int:
    if tensor.layout is not torch.strided:
        return 0
    return int(_untyped_storage(tensor)._cdata)


def _packer(result: Any, flat: list[torch.Tensor]) -> Callable[[list[Any]], Any] | None:
    """Collect the tensors of a result into `flat`; the function returned rebuilds the result around new ones."""
    if isinstance(result, torch.Tensor):
        flat.append(result)
        return None
    if type(result) in (tuple, list) and all(isinstance(item, torch.Tensor) for item in result):
        flat.extend(result)
        return type(result)
    template = _template(result, flat)
    return lambda outputs: _fill(template, outputs)


class _Slot(int):
    """The place of an output in a template."""


def _template(result: Any, flat: list[torch.Tensor]) -> Any:
    if isinstance(result, torch.Tensor):
        flat.append(result)
        return _Slot(len(flat) - 1)
    if isinstance(result, (tuple, list)):
        return type(result)([_template(item, flat) for item in result])
    return result


def _fill(template: Any, outputs: list[Any]) -> Any:
    if type(template) is _Slot:
        return outputs[template]
    if isinstance(template, (tuple, list)):
        return type(template)([_fill(item, outputs) for item in template])
    return template
