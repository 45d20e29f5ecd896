"""Tensors inside nested arguments: lists, tuples, named tuples, mappings, dataclasses, and objects that hold them."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

_LEAVES = (int, float, complex, str, bytes, bool, type(None), torch.dtype, torch.device, torch.Size)


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
    elif isinstance(tree, torch.nn.Module) or not hasattr(tree, "__dict__") and not isinstance(tree, (Mapping, list)):
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
    if isinstance(tree, Mapping):
        for key, value in tree.items():
            result[key] = _map(value, change, done)
    elif isinstance(tree, list):
        result[:] = [_map(item, change, done) for item in tree]
    attributes = getattr(result, "__dict__", {})
    for name, value in list(attributes.items()):
        attributes[name] = _map(value, change, done)
    if dataclasses.is_dataclass(tree) and not attributes:  # slotted
        for field in dataclasses.fields(tree):
            object.__setattr__(result, field.name, _map(getattr(tree, field.name), change, done))
    return result


def tensors_in(tree: Any) -> list[torch.Tensor]:
    """Every tensor in a structure, in order, also inside objects."""
    found: list[torch.Tensor] = []
    _find(tree, found, set())
    return found


def _find(tree: Any, found: list[torch.Tensor], seen: set[int]) -> None:
    if isinstance(tree, torch.Tensor):
        found.append(tree)
    elif isinstance(tree, (*_LEAVES, torch.nn.Module, type)) or id(tree) in seen:
        return
    else:
        seen.add(id(tree))
        for item in _items(tree):
            _find(item, found, seen)
        if dataclasses.is_dataclass(tree):
            for field in dataclasses.fields(tree):
                _find(getattr(tree, field.name, None), found, seen)
        elif type(tree) not in (list, tuple, dict):
            for item in getattr(tree, "__dict__", {}).values():
                _find(item, found, seen)


def tensors_passed(tree: Any, found: list[torch.Tensor]) -> list[torch.Tensor]:
    """The tensors that stand openly in arguments or results, in order; objects are not opened, so this is quick."""
    if isinstance(tree, torch.Tensor):
        found.append(tree)
    else:
        for item in _items(tree):
            tensors_passed(item, found)
    return found


def _items(tree: Any) -> Iterable[Any]:
    if isinstance(tree, (tuple, list)):
        return tree
    return tree.values() if isinstance(tree, Mapping) else ()
