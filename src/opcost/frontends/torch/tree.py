"""Tensors inside nested arguments: lists, tuples, named tuples, mappings, dataclasses, and objects that hold them."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from inspect import getattr_static
from types import MemberDescriptorType
from typing import Any
from weakref import WeakKeyDictionary

import torch

_LEAVES = (int, float, complex, str, bytes, bool, type(None), torch.dtype, torch.device, torch.Size)

_PLAIN = frozenset(_LEAVES)

_CLOSED = (*_LEAVES, torch.nn.Module, type)
"""What holds no input of the model's."""


def map_tensors(tree: Any, change: Callable[[torch.Tensor], Any]) -> Any:
    """The same structure with every tensor changed; the original is never written to."""
    return _map(tree, change, {})


def _map(tree: Any, change: Callable[[torch.Tensor], Any], done: dict[int, Any]) -> Any:
    if isinstance(tree, _LEAVES):
        return tree
    if id(tree) in done:
        return done[id(tree)]
    if isinstance(tree, torch.Tensor):
        result = change(tree)
    elif isinstance(tree, tuple):
        items = [_map(item, change, done) for item in tree]
        result = type(tree)(*items) if hasattr(tree, "_fields") else tuple(items)
    elif type(tree) is list:
        result = [_map(item, change, done) for item in tree]
    elif type(tree) is dict:
        result = {key: _map(value, change, done) for key, value in tree.items()}
    elif isinstance(tree, (torch.nn.Module, type)):
        return tree
    else:
        result = _map_object(tree, change, done)
    done[id(tree)] = result
    return result


def _map_object(tree: Any, change: Callable[[torch.Tensor], Any], done: dict[int, Any]) -> Any:
    """A copy of an object with its tensors changed; objects without tensors are passed as they are."""
    if not tensors_in(tree):
        return tree
    result = copy.copy(tree)
    done[id(tree)] = result
    if isinstance(tree, dict):
        for key, value in tree.items():
            result[key] = _map(value, change, done)
    elif isinstance(tree, (list, deque)):
        result.clear()
        result.extend([_map(item, change, done) for item in tree])
    for name, value in _attributes(tree).items():
        object.__setattr__(result, name, _map(value, change, done))
    return result


def _attributes(tree: Any) -> dict[str, Any]:
    """What an object holds, in its dictionary and in its slots."""
    return {**slots_of(tree), **getattr(tree, "__dict__", {})}


def slots_of(tree: Any) -> dict[str, Any]:
    """What an object holds in slots of its class and the classes above."""
    return {name: getattr(tree, name) for name in slot_names(type(tree)) if hasattr(tree, name)}


def slot_names(kind: type) -> list[str]:
    """The slots of a class and of the classes above, set or not, but for those that a property covers."""
    found = _SLOTS.get(kind)
    if found is None:
        found = _SLOTS[kind] = _slot_names(kind)
    return found


_SLOTS: WeakKeyDictionary[type, list[str]] = WeakKeyDictionary()


def _slot_names(kind: type) -> list[str]:
    return [
        name
        for cls in kind.__mro__
        if (names := cls.__dict__.get("__slots__"))
        for name in (_spelled(name, cls) for name in ((names,) if isinstance(names, str) else names))
        if isinstance(getattr_static(kind, name, None), MemberDescriptorType)
    ]


def _spelled(name: str, cls: type) -> str:
    """A slot's name as Python spells private ones."""
    return f"_{cls.__name__.lstrip('_')}{name}" if name.startswith("__") and not name.endswith("__") else name


def tensors_in(tree: Any) -> list[torch.Tensor]:
    """Every tensor in a structure, once and in order, also inside objects."""
    found: list[torch.Tensor] = []
    _find(tree, found, set())
    return found


def _find(tree: Any, found: list[torch.Tensor], seen: set[int]) -> None:
    if isinstance(tree, _CLOSED) or id(tree) in seen:
        return
    seen.add(id(tree))
    if isinstance(tree, torch.Tensor):
        found.append(tree)
        return
    for item in _items(tree):
        _find(item, found, seen)
    if type(tree) not in (list, tuple, dict):
        for item in _attributes(tree).values():
            _find(item, found, seen)


def tensors_passed(tree: Any, found: list[torch.Tensor]) -> list[torch.Tensor]:
    """The tensors that stand openly in arguments or results, in order; objects are not opened, so this is quick."""
    kind = type(tree)
    if kind in _PLAIN:
        return found
    if kind is tuple or kind is list:
        for item in tree:
            tensors_passed(item, found)
    elif kind is dict:
        for item in tree.values():
            tensors_passed(item, found)
    elif isinstance(tree, torch.Tensor):
        found.append(tree)
    else:
        for item in _items(tree):
            tensors_passed(item, found)
    return found


def _items(tree: Any) -> Iterable[Any]:
    if isinstance(tree, (tuple, list, deque)):
        return tree
    return tree.values() if isinstance(tree, Mapping) else ()
