"""Leaving the user's model and inputs as they were: attributes, containers, objects they hold, and tensors.

A forward pass does change modules: caches, counters, buffers assigned anew, lists appended to. Without this, tensors
without data would stay behind in the user's model. Everything is compared by identity and put back only where it differs.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from operator import is_
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
        self._kinds: dict[type, type | None] = {}
        self._mappings: list[tuple[Any, type[dict[Any, Any]], list[Any], list[Any]]] = []
        self._empty: list[dict[Any, Any]] = []
        self._lists: list[tuple[Any, list[Any]]] = []
        self._sets: list[tuple[set[Any], frozenset[Any]]] = []
        self._slots: list[tuple[Any, dict[str, Any]]] = []
        self._tensors: list[_Tensor] = []
        self._generators: list[tuple[torch.Generator, torch.Tensor]] = []

    def take(self, value: Any, depth: int) -> None:
        if id(value) in self._seen:
            return
        cls = type(value)
        if cls not in self._kinds:
            self._kinds[cls] = _kind(cls)
        kind = self._kinds[cls]
        if kind is None:
            return
        self._seen[id(value)] = value
        if kind is torch.Tensor:
            self._take_tensor(value, depth)
        elif kind is nn.Module:
            self._take_mapping(value.__dict__, dict, _DEPTH)
        elif kind is torch.Generator:
            self._generators.append((value, value.get_state()))
        elif not depth:
            return
        elif kind is dict or kind is OrderedDict:
            self._take_mapping(value, kind, depth - 1)
        elif kind is list:
            self._lists.append((value, list(value)))
            self._take_all(value, depth - 1)
        elif kind is set:
            self._sets.append((value, frozenset(value)))
        elif kind is tuple:
            self._take_all(value, depth - 1)
        else:
            self._take_object(value, depth - 1)

    def _take_all(self, values: Any, depth: int) -> None:
        for value in values:
            if type(value) not in _UNCHANGEABLE:
                self.take(value, depth)

    def _take_mapping(self, mapping: dict[Any, Any], exact: type[dict[Any, Any]], depth: int) -> None:
        """`exact` is the class whose own methods show what a mapping holds, where a subclass changed what they do."""
        values = list(exact.values(mapping))
        self._mappings.append((mapping, exact, list(exact.keys(mapping)), values))
        for value in values:
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
            self._take_mapping(attributes, dict, depth)
        if slots := slots_of(value):
            self._slots.append((value, slots))
            self._take_all(slots.values(), depth)

    def _take_tensor(self, tensor: torch.Tensor, depth: int) -> None:
        kept = _Tensor.of(tensor)
        self._tensors.append(kept)
        for held in (kept.grad, kept.hooks, tensor.__dict__ if kept.attributes else None):
            if held is not None:
                self.take(held, depth)

    def put_back(self) -> None:
        for mapping in self._empty:
            if mapping:
                mapping.clear()
        for mapping, exact, keys, values in self._mappings:
            _put_back_mapping(mapping, exact, keys, values)
        for sequence, content in self._lists:
            if len(sequence) != len(content) or not all(map(is_, sequence, content)):
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
        try:
            version = tensor._version
        except RuntimeError:  # tensors of inference mode have none
            version = -1
        return cls(
            tensor,
            tensor.data,
            version,
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


_KINDS = (torch.Tensor, nn.Module, torch.Generator, OrderedDict, dict, set, tuple)


def _kind(cls: type) -> type | None:
    """How an object of this class is kept; None: not at all."""
    if cls in _UNCHANGEABLE or issubclass(
        cls, (nn.parameter.UninitializedTensorMixin, type)
    ):  # lazy models run as a copy
        return None
    if issubclass(cls, (list, deque)):
        return list
    return next((kind for kind in _KINDS if issubclass(cls, kind)), object)


def _put_back_mapping(mapping: Any, exact: type[dict[Any, Any]], keys: list[Any], values: list[Any]) -> None:
    same_keys = list(exact.keys(mapping)) == keys
    if same_keys and all(map(is_, exact.values(mapping), values)):
        return
    if not same_keys:  # also where only the order is another
        exact.clear(mapping)
    for key, value in zip(keys, values, strict=True):
        exact.__setitem__(mapping, key, value)
