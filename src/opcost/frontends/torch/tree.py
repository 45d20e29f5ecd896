"""Tensors inside nested arguments: lists, tuples, named tuples, mappings, dataclasses, and objects that hold them."""

import copy
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping
from operator import is_
from threading import local
from types import GetSetDescriptorType, MemberDescriptorType
from typing import Any
from weakref import ref

import torch

_LEAVES = (int, float, complex, str, bytes, bool, type(None), torch.dtype, torch.device, torch.Size)
_PLAIN = frozenset(_LEAVES)
PLAIN = _PLAIN - {bytes, torch.Size} | {torch.layout, torch.memory_format}  # Arguments that are compared by their value
_CLOSED = (*_LEAVES, torch.nn.Module, type)  # What contains no input of the model's


def map_tensors(tree: Any, change: Callable[[torch.Tensor], Any]) -> Any:
    """The same structure with every tensor changed; the original is never written to."""
    return _map(tree, change, {})


def _map(tree: Any, change: Callable[[torch.Tensor], Any], done: dict[int, Any]) -> Any:
    if issubclass(type(tree), _LEAVES):
        return tree
    if id(tree) in done:
        return done[id(tree)]
    if issubclass(type(tree), torch.Tensor):
        result = change(tree)
    elif issubclass(type(tree), tuple):
        items = [_map(item, change, done) for item in tuple.__iter__(tree)]
        if type(tree) is tuple:
            result = tuple(items)
        elif all(map(is_, items, tuple.__iter__(tree))):
            result = tree
        else:
            result = type(tree)(*items) if hasattr(type(tree), "_fields") else tuple(items)
    elif type(tree) is list:
        result = [_map(item, change, done) for item in tree]
    elif type(tree) is dict:
        result = {key: _map(value, change, done) for key, value in tree.items()}
    elif issubclass(type(tree), (torch.nn.Module, type)) or not tensors_in(tree):
        result = tree
    else:
        return _map_object(tree, change, done)
    done[id(tree)] = result
    return result


def _map_object(tree: Any, change: Callable[[torch.Tensor], Any], done: dict[int, Any]) -> Any:
    """A copy of an object with its tensors changed."""
    result = done[id(tree)] = copy.copy(tree)
    kind = type(tree)
    if issubclass(kind, dict):
        base: Any = OrderedDict if issubclass(kind, OrderedDict) else dict
        for key, value in base.items(tree):
            base.__setitem__(result, key, _map(value, change, done))
    elif issubclass(kind, (list, deque)):
        base = list if issubclass(kind, list) else deque
        base.clear(result)
        base.extend(result, [_map(item, change, done) for item in base.__iter__(tree)])
    for name, value in vars_of(tree).items():
        object.__setattr__(result, name, _map(value, change, done))
    return result


ABSENT: Any = object()  # In the place of a slot that is not set
_type_attribute = type.__getattribute__


def vars_of(tree: Any) -> dict[str, Any]:
    """The attributes of an object, in its dictionary and in its slots."""
    slots = {name: slot_value(slot, tree) for name, slot in slots_of(type(tree)).items()}
    return {**{name: value for name, value in slots.items() if value is not ABSENT}, **(dictionary_of(tree) or {})}


def dictionary_of(owner: Any) -> dict[str, Any] | None:
    """An object's own dictionary, found without running code of its class; None where it has none."""
    get = _layout(type(owner))[1]
    found = None if get is None else get(owner)
    return found if type(found) is dict else None


def slot_value(slot: Any, owner: Any) -> Any:
    """What a slot holds, or another such descriptor; `ABSENT` where it is not set."""
    try:
        return slot.__get__(owner)
    except (AttributeError, ValueError):  # ValueError is of a cell
        return ABSENT


def slots_of(kind: type) -> dict[str, MemberDescriptorType]:
    """The slots of a class and of the classes above, set or not, but for those that a property covers."""
    return _layout(kind)[2]


_Layout = tuple["ref[type]", "Callable[[Any], Any] | None", dict[str, MemberDescriptorType]]
"""A class, what finds the dictionary of its objects, and their slots."""
_LAYOUTS: dict[int, _Layout] = {}  # By the identity of the class, whose own hash may be code of a user's


def _layout(kind: type) -> _Layout:
    found = _LAYOUTS.get(id(kind))
    if found is not None and found[0]() is kind:
        return found
    get: Callable[[Any], Any] | None = None
    if issubclass(kind, local):
        get = lambda owner: local.__getattribute__(owner, "__dict__")  # noqa: E731 - that of this thread
    slots: dict[str, Any] = {}
    for cls in _type_attribute(kind, "__mro__"):
        space = _type_attribute(cls, "__dict__")
        dictionary = space.get("__dict__")
        if get is None and type(dictionary) in (GetSetDescriptorType, MemberDescriptorType):
            get = dictionary.__get__
        for name, value in space.items():
            is_slot = type(value) is MemberDescriptorType and "__slots__" in space
            slots.setdefault(name, value if is_slot else None)  # None: it covers a slot of a class above
    found = ref(kind), get, {name: slot for name, slot in slots.items() if slot is not None}
    _LAYOUTS[id(kind)] = found
    return found


def tensors_in(tree: Any) -> list[torch.Tensor]:
    """Every tensor in a structure, once and in order, also inside objects."""
    found: list[torch.Tensor] = []
    _find(tree, found, set())
    return found


def _find(tree: Any, found: list[torch.Tensor], seen: set[int]) -> None:
    if issubclass(type(tree), _CLOSED) or id(tree) in seen:
        return
    seen.add(id(tree))
    if issubclass(type(tree), torch.Tensor):
        found.append(tree)
        return
    for item in _items(tree):
        _find(item, found, seen)
    if type(tree) not in (list, tuple, dict):
        for item in vars_of(tree).values():
            _find(item, found, seen)


def tensors_passed(tree: Any, found: list[torch.Tensor]) -> list[torch.Tensor]:
    """The tensors that are openly in arguments or results, in order; objects are not opened, so this is quick."""
    kind = type(tree)
    if kind in _PLAIN:
        return found
    if issubclass(kind, torch.Tensor):
        found.append(tree)
        return found
    for item in tree if kind is tuple or kind is list else _items(tree):
        tensors_passed(item, found)
    return found


def _items(tree: Any) -> Iterable[Any]:
    """What a container holds, by the methods of Python's own class where it is one of those."""
    for cls, items in _ITEMS:
        if issubclass(type(tree), cls):
            return items(tree)
    try:
        return list(tree.values()) if isinstance(tree, Mapping) else ()
    except Exception:  # a mapping of a user's own: what it does not show cannot be looked at
        return ()


_ITEMS: tuple[tuple[type, Callable[[Any], Iterable[Any]]], ...] = (
    (tuple, tuple.__iter__), (list, list.__iter__), (deque, deque.__iter__), (OrderedDict, OrderedDict.values),
    (dict, dict.values),
)  # fmt: skip
