"""The arguments of an operator call in the order of its schema, defaults filled in, as the jit writes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import torch

from opcost.core.graph import TensorSpec

_Slot = tuple[str, Any]
"""Where an argument comes from: ("at", position), ("named", keyword) or ("default", value)."""


def in_schema_order(name: str, args: Sequence[object], kwargs: Mapping[str, object]) -> tuple[object, ...]:
    """The arguments by position; calls that fit no overload (sizes given one by one) keep the order they came in."""
    slots = _slots(name, tuple(map(_sort, args)), tuple(kwargs))
    if slots is None:
        return (*args, *kwargs.values())
    return tuple(args[key] if source == "at" else kwargs[key] if source == "named" else key for source, key in slots)


def _sort(argument: object) -> str:
    """The little that choosing an overload needs to know of an argument."""
    if isinstance(argument, TensorSpec):
        return "tensor"
    if isinstance(argument, (list, tuple)):
        return "tensors" if any(isinstance(item, TensorSpec) for item in argument) else "list"
    return "none" if argument is None else "text" if isinstance(argument, str) else "scalar"


_FITS: dict[str, Callable[[str], bool]] = {
    "tensor": lambda kind: kind in ("Tensor", "Optional[Tensor]"),
    "tensors": lambda kind: "Tensor]" in kind and "List" in kind,
    "list": lambda kind: "List[" in kind and "Tensor" not in kind,
    "none": lambda kind: kind.startswith("Optional["),
    "text": lambda kind: kind in ("str", "Optional[str]"),
    "scalar": lambda kind: "Tensor" not in kind and kind not in ("str", "Optional[str]"),
}


@cache
def _slots(name: str, sorts: tuple[str, ...], keywords: tuple[str, ...]) -> tuple[_Slot, ...] | None:
    packet = getattr(torch.ops.aten, name, None)
    for overload in packet.overloads() if packet is not None else ():
        arguments = getattr(packet, overload)._schema.arguments  # noqa: SLF001 - torch has no other door to it
        if len(sorts) <= len(arguments) and (slots := _bind(arguments, sorts, keywords)) is not None:
            return slots
    return None


def _bind(arguments: Any, sorts: tuple[str, ...], keywords: tuple[str, ...]) -> tuple[_Slot, ...] | None:
    slots: list[_Slot] = []
    for position, argument in enumerate(arguments):
        if position < len(sorts):
            if argument.kwarg_only or not _FITS[sorts[position]](str(argument.type)):
                return None
            slots.append(("at", position))
        elif argument.name in keywords:
            slots.append(("named", argument.name))
        elif argument.has_default_value():
            slots.append(("default", argument.default_value))
        else:
            return None
    bound = {key for source, key in slots if source == "named"}
    return tuple(slots) if bound.issuperset(keywords) else None
