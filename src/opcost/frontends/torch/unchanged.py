"""Leaving the user's model and inputs as they were: attributes, containers, objects they hold, and tensors.

A forward pass does change modules: caches, counters, buffers assigned anew, lists appended to. Without this, tensors
without data would stay behind in the user's model. Everything is compared by identity and put back only where it differs.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

import torch
from torch import nn

from opcost.frontends.torch.tree import slots_of

_UNCHANGEABLE = frozenset(
    {
        int, float, complex, bool, str, bytes, range, slice, type, type(None), type(Ellipsis), FunctionType,
        BuiltinFunctionType, MethodType, ModuleType, torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size,
        torch.ScriptObject,
    }
)  # fmt: skip
_DEPTH = 4
"""How many objects deep, below a module or an argument, something may lie that a forward pass changes."""


@contextmanager
def unchanged(*roots: Any) -> Iterator[None]:
    """Put modules, and whatever else is given, back to what they were, whatever happens inside."""
    before = _Snapshot()
    for root in roots:
        before.take(root, _DEPTH)
    try:
        yield
    finally:
        before.put_back()


class _Snapshot:
    """Shallow copies of everything changeable that can be reached; what holds what is known from the copies themselves."""

    def __init__(self) -> None:
        self._seen: dict[int, Any] = {}
        """Everything visited, held so that its id stays its own."""
        self._mappings: list[tuple[Any, list[tuple[Any, Any]]]] = []
        self._empty: list[dict[Any, Any]] = []
        self._lists: list[tuple[Any, list[Any]]] = []
        self._sets: list[tuple[set[Any], frozenset[Any]]] = []
        self._slots: list[tuple[Any, dict[str, Any]]] = []
        self._tensors: list[_Tensor] = []
        self._generators: list[tuple[torch.Generator, torch.Tensor]] = []

    def take(self, value: Any, depth: int) -> None:
        if type(value) in _UNCHANGEABLE or id(value) in self._seen:
            return
        self._seen[id(value)] = value
        if isinstance(value, torch.Tensor):
            if not isinstance(value, nn.parameter.UninitializedTensorMixin):  # lazy models run as a copy
                self._take_tensor(value, depth)
        elif isinstance(value, nn.Module):
            self._take_mapping(value.__dict__, _DEPTH)
        elif isinstance(value, torch.Generator):
            self._generators.append((value, value.get_state()))
        elif not depth:
            return
        elif isinstance(value, dict):
            self._take_mapping(value, depth - 1)
        elif isinstance(value, (list, deque)):
            self._lists.append((value, list(value)))
            self._take_all(value, depth - 1)
        elif isinstance(value, set):
            self._sets.append((value, frozenset(value)))
        elif isinstance(value, tuple):
            self._take_all(value, depth - 1)
        else:
            self._take_object(value, depth - 1)

    def _take_all(self, values: Any, depth: int) -> None:
        for value in values:
            if type(value) not in _UNCHANGEABLE:
                self.take(value, depth)

    def _take_mapping(self, mapping: dict[Any, Any], depth: int) -> None:
        items = list(_kind(mapping).items(mapping))
        self._mappings.append((mapping, items))
        for _, value in items:
            kind = type(value)
            if kind in _UNCHANGEABLE:
                continue
            if (kind is OrderedDict or kind is dict) and not value:
                self._empty.append(value)  # every module has a dozen of these, for its hooks
            else:
                self.take(value, depth)

    def _take_object(self, value: Any, depth: int) -> None:
        attributes = getattr(value, "__dict__", None)
        if type(attributes) is dict:
            self._take_mapping(attributes, depth)
        if slots := slots_of(value):
            self._slots.append((value, slots))
            self._take_all(slots.values(), depth)

    def _take_tensor(self, tensor: torch.Tensor, depth: int) -> None:
        self._tensors.append(_Tensor.of(tensor))
        for held in (tensor.grad if tensor.is_leaf else None, tensor._backward_hooks):
            if held is not None:
                self.take(held, depth)
        if attributes := getattr(tensor, "__dict__", None):
            self.take(attributes, depth)

    def put_back(self) -> None:
        for mapping in self._empty:
            if mapping:
                mapping.clear()
        for mapping, items in self._mappings:
            _put_back_mapping(mapping, items)
        for sequence, content in self._lists:
            if len(sequence) != len(content) or any(a is not b for a, b in zip(sequence, content, strict=True)):
                sequence.clear()
                sequence.extend(content)
        for group, members in self._sets:
            if group != members:
                group.clear()
                group.update(members)
        for owner, slots in self._slots:
            for name, value in slots.items():
                if getattr(owner, name, None) is not value:
                    object.__setattr__(owner, name, value)
        for generator, state in self._generators:
            generator.set_state(state)
        moved = [kept for kept in self._tensors if kept.put_back()]
        _set_versions([kept.tensor for kept in moved], [kept.version for kept in moved])


class _Tensor(NamedTuple):
    """What can change about a tensor besides its content."""

    tensor: torch.Tensor
    data: torch.Tensor
    """The same memory under another name: `.data = ...` gives a tensor other memory."""
    version: int
    grad: torch.Tensor | None
    hooks: Any
    attributes: bool
    leaf: bool
    requires_grad: bool

    @classmethod
    def of(cls, tensor: torch.Tensor) -> _Tensor:
        leaf = tensor.is_leaf
        return cls(
            tensor,
            tensor.data,
            -1 if tensor.is_inference() else tensor._version,
            tensor.grad if leaf else None,
            tensor._backward_hooks,
            bool(getattr(tensor, "__dict__", None)),
            leaf,
            tensor.requires_grad,
        )

    def put_back(self) -> bool:
        """Put everything but the version counter back, and say whether that one has moved."""
        tensor = self.tensor
        if not _same_memory(tensor, self.data):
            tensor.data = self.data
        if self.leaf:
            if not tensor.is_leaf:  # written to, in place, by something that has a gradient
                tensor.detach_()
            if tensor.requires_grad != self.requires_grad:
                tensor.requires_grad_(self.requires_grad)
            if tensor.grad is not self.grad:
                tensor.grad = self.grad
        if tensor._backward_hooks is not self.hooks:
            tensor._backward_hooks = self.hooks
        if not self.attributes and (added := getattr(tensor, "__dict__", None)):
            added.clear()
        return self.version >= 0 and tensor._version != self.version


def _same_memory(tensor: torch.Tensor, kept: torch.Tensor) -> bool:
    if kept.layout is not torch.strided:
        return tensor.layout is kept.layout
    return (
        tensor.untyped_storage()._cdata == kept.untyped_storage()._cdata
        and tensor.storage_offset() == kept.storage_offset()
        and tensor.stride() == kept.stride()
        and tensor.shape == kept.shape
    )


def _set_versions(tensors: list[torch.Tensor], versions: list[int]) -> None:
    """In-place operators count up a tensor's version before they reach the recorder, which then does not write."""
    if not tensors:
        return
    put = torch._C._autograd._unsafe_set_version_counter
    try:
        put(tuple(tensors), tuple(versions))
    except TypeError:  # before torch 2.6 it took one tensor
        for tensor, version in zip(tensors, versions, strict=True):
            put(tensor, version)  # type: ignore[arg-type]


def _kind(mapping: dict[Any, Any]) -> type[dict[Any, Any]]:
    """The class whose own methods show what a mapping holds, where a subclass changed what they do."""
    return OrderedDict if isinstance(mapping, OrderedDict) else dict


def _put_back_mapping(mapping: dict[Any, Any], items: list[tuple[Any, Any]]) -> None:
    kind = _kind(mapping)
    now = kind.items(mapping)
    if len(now) == len(items) and all(k is a and v is b for (k, v), (a, b) in zip(now, items, strict=True)):
        return
    if list(kind.keys(mapping)) != [key for key, _ in items]:  # also where only the order is another
        kind.clear(mapping)
    for key, value in items:
        kind.__setitem__(mapping, key, value)
