"""Shallow copies of everything changeable that can be reached; what holds what is known from the copies themselves.

No code of the user's classes runs here: what a subclass of a container or tensor makes of its methods, of its length, attributes,
comparison or hash, may raise or change something. So methods are those of Python's own classes, and keys are identities.
"""

from __future__ import annotations

import functools
import logging
import threading
import types
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from operator import is_
from typing import Any

import torch
from torch import nn

from opcost.core.progress import is_only_thread
from opcost.errors import StateError
from opcost.frontends.torch.ledger.tensor import Recorded
from opcost.frontends.torch.tree import ABSENT, dictionary_of, slot_value, slots_of
from opcost.frontends.torch.unchanged.caches import KeptCache
from opcost.frontends.torch.unchanged.code import Code
from opcost.frontends.torch.unchanged.path import path_to
from opcost.frontends.torch.unchanged.plain import SUSPENDED, copied_types, keeper_of, position, twin
from opcost.frontends.torch.unchanged.tensors import KeptTensor, Layout, set_versions

_UNCHANGEABLE = frozenset(
    {
        int, float, complex, bool, str, bytes, range, slice, type(None), type(Ellipsis),
        types.GenericAlias, types.GetSetDescriptorType, types.MemberDescriptorType, types.MethodWrapperType, types.ModuleType,
        types.UnionType, torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size, torch.ScriptObject,
    }
)  # fmt: skip
_FIXED = frozenset(map(id, _UNCHANGEABLE))
_EMPTY = frozenset(map(id, (dict, OrderedDict, set)))
_LOCKS = (type(threading.Lock()), type(threading.RLock()), threading.Condition, threading.Event, threading.Thread)

_TUPLE = id(tuple)
_OF_ERRORS: tuple[Any, ...] = tuple(
    vars(BaseException)[f"__{name}__"] for name in ("traceback", "context", "cause", "suppress_context")
)
"""In the order in which they are put back: setting a cause sets the last."""
_ARGUMENTS: Any = vars(BaseException)["args"]

_Take = Callable[["Snapshot", Any], None]


class Snapshot:
    """What some objects, and all that is reached from them, are now."""

    def __init__(self, roots: Iterable[Any]) -> None:
        self._roots = tuple(roots)
        self._seen: dict[int, Any] = {}
        """Everything visited, held so that its id stays its own."""
        self._todo: list[Any] = []
        self._kinds: dict[int, _Take | None] = dict.fromkeys(_FIXED)
        """How objects are kept, by the identity of their class."""
        self._copied = copied_types()
        self._alone = is_only_thread()
        self._classes: list[tuple[Any, type]] = []
        self._mappings: list[tuple[Any, type[dict[Any, Any]], list[Any], list[Any]]] = []
        self._empty: list[Any] = []
        self._lists: list[tuple[Any, Any, list[Any]]] = []
        self._sets: list[tuple[set[Any], frozenset[Any]]] = []
        self._slots: list[tuple[Any, types.MemberDescriptorType, Any]] = []
        self._cells: list[tuple[Any, Any]] = []
        self._twins: dict[int, Any] = {}
        self._suspended: list[tuple[Any, tuple[Any, ...]]] = []
        self._errors: list[tuple[Any, ...]] = []
        self._others: list[Callable[[], Any]] = []
        self._caches: list[KeptCache] = []
        self._code = Code(self._push)
        self.tensors: list[KeptTensor] = []
        """All tensors that were reached."""
        self._layouts: dict[Layout, Layout] = {}
        self._todo += self._roots
        with torch._C.DisableTorchFunctionSubclass():
            self._walk()

    # -- taking -------------------------------------------------------------------------------------------------

    def _push(self, value: Any) -> None:
        self._todo.append(value)

    def _walk(self) -> None:
        todo, seen, kinds = self._todo, self._seen, self._kinds
        while todo:
            value = todo.pop()
            cls = type(value)
            try:
                take = kinds[id(cls)]
            except KeyError:
                take = kinds[id(cls)] = None if id(cls) in self._copied else _taker(cls)
            if take is None or id(value) in seen:
                continue
            seen[id(value)] = value
            take(self, value)

    def _follow(self, values: list[Any]) -> None:
        """Go on with those among some values that can change."""
        kinds = {*map(id, map(type, values))} - _FIXED
        if kinds:
            self._todo += values if len(kinds) == 1 and len(values) < 8 else [v for v in values if id(type(v)) in kinds]

    def take_mapping(self, mapping: dict[Any, Any], exact: type[dict[Any, Any]]) -> None:
        """`exact` is the class whose own methods show what a mapping holds, where a subclass changed what they do."""
        keys, values = list(exact.keys(mapping)), list(exact.values(mapping))
        self._mappings.append((mapping, exact, keys, values))
        kinds = {*map(id, map(type, values))} - _FIXED
        if not kinds:
            pass
        elif kinds & self._copied:
            for key, value in zip(keys, values, strict=True):
                exact.__setitem__(mapping, key, self._stand_in(value))
            self._todo += values
        else:
            self._todo += [value for value in values if id(type(value)) in kinds]
        if {*map(id, map(type, keys))} - _FIXED:
            self._todo += keys

    def _stand_in(self, value: Any) -> Any:
        """For the time of the run, a copy in place of an iterator, which could not be wound back."""
        if id(type(value)) not in self._copied:
            return value
        made = self._twins.get(id(value))
        if made is None:
            made = self._twins[id(value)] = twin(value) or value
        return made

    def _take_module(self, module: nn.Module) -> None:
        attributes = dictionary_of(module)
        if attributes is None:
            return
        keys, values = list(attributes), list(attributes.values())
        self._mappings.append((attributes, dict, keys, values))
        for key, value in attributes.items():
            kind = id(type(value))
            if kind in _FIXED:
                continue
            if kind in _EMPTY and not value:
                self._empty.append(value)  # every module has a dozen of these, for its hooks
            elif kind == _TUPLE and _FIXED.issuperset(map(id, map(type, value))):  # strides, paddings
                continue
            elif kind in self._copied:
                attributes[key] = self._stand_in(value)
            else:
                self._todo.append(value)
        self._classes.append((module, type(module)))
        self._code.take_class(type(module))

    def _take_dict(self, mapping: dict[Any, Any]) -> None:
        self.take_mapping(mapping, dict)
        if type(mapping) is not dict:
            self._take_attributes(mapping)

    def _take_ordered(self, mapping: OrderedDict[Any, Any]) -> None:
        self.take_mapping(mapping, OrderedDict)
        if type(mapping) is not OrderedDict:
            self._take_attributes(mapping)

    def _take_list(self, sequence: Any) -> None:
        exact: Any = list if issubclass(type(sequence), list) else deque
        content = list(exact.__iter__(sequence))
        self._lists.append((sequence, exact, content))
        for index, value in enumerate(content):
            if id(type(value)) in self._copied:
                exact.__setitem__(sequence, index, self._stand_in(value))
        self._follow(content)
        if type(sequence) is not exact:
            self._take_attributes(sequence)

    def _take_set(self, group: set[Any]) -> None:
        self._sets.append((group, frozenset(group)))  # which copies the hashes too
        self._follow(list(set.__iter__(group)))
        if type(group) is not set:
            self._take_attributes(group)

    def _take_members(self, members: Any) -> None:
        exact: Any = tuple if issubclass(type(members), tuple) else frozenset
        self._follow(list(exact.__iter__(members)))
        if type(members) is not exact:
            self._take_attributes(members)

    def _take_object(self, value: Any) -> None:
        if not self._alone and _is_shared(value):
            return  # it is guarded by a lock, so other threads may be at work on it right now
        self._take_attributes(value)
        self._classes.append((value, type(value)))
        self._code.take_class(type(value))

    def _take_attributes(self, value: Any) -> None:
        if (attributes := dictionary_of(value)) is not None:
            self.take_mapping(attributes, dict)
        for slot in slots_of(type(value)).values():
            held = slot_value(slot, value)
            if id(type(held)) in self._copied:
                slot.__set__(value, self._stand_in(held))
            self._slots.append((value, slot, held))
            self._todo.append(held)

    def _take_tensor(self, tensor: torch.Tensor) -> None:
        kept = KeptTensor.of(tensor, self._layouts)
        self.tensors.append(kept)
        if kept.grad is not None:
            self._todo.append(kept.grad)
        if kept.hooks is not None:
            self._todo.append(kept.hooks)
        if kept.attributes:
            self.take_mapping(dictionary_of(tensor) or {}, dict)

    def _take_function(self, function: types.FunctionType) -> None:
        if _is_ours(function.__module__):
            return
        for cell in function.__closure__ or ():
            self._todo.append(cell)
        self._code.take_function(function)

    def _take_cell(self, cell: Any) -> None:
        held = _held(cell)
        self._cells.append((cell, held))
        if id(type(held)) in self._copied:
            cell.cell_contents = self._stand_in(held)
        else:
            self._todo.append(held)

    def _take_method(self, method: types.MethodType) -> None:
        self._todo += (method.__self__, method.__func__)

    def _take_builtin(self, method: Any) -> None:
        self._todo.append(method.__self__)  # of `some_list.append`, and not of a module's function

    def _take_partial(self, part: functools.partial[Any]) -> None:
        exact: Any = functools.partial
        self._todo += (exact.func.__get__(part), exact.args.__get__(part), exact.keywords.__get__(part))
        self._take_attributes(part)

    def _take_cache(self, cache: Any) -> None:
        self._caches.append(KeptCache(cache))
        self._todo.append(cache.__wrapped__)

    def _take_class(self, cls: type) -> None:
        self._code.take_class(cls)

    def _take_suspended(self, generator: Any) -> None:
        self._suspended.append((generator, position(generator)))

    def _take_error(self, error: BaseException) -> None:
        """Raising an error that the model keeps gives it a traceback, whose frames hold the tensors of the run."""
        self._take_object(error)
        self._errors.append((error, *(part.__get__(error) for part in _OF_ERRORS)))
        self._todo += _ARGUMENTS.__get__(error)

    def _take_view(self, view: memoryview) -> None:
        self._todo.append(view.obj)

    # -- putting back -------------------------------------------------------------------------------------------

    def put_back(self) -> None:
        """Make everything what it was. What cannot be put back is named in an error, after all the rest is done."""
        with torch._C.DisableTorchFunctionSubclass():
            lost = self._put_back()
        if lost:
            raise StateError(
                f"the model changed {lost[0]}, which cannot be put back",
                hint="count a copy of the model that may be thrown away: copy.deepcopy(model)",
            )

    def _put_back(self) -> list[str]:
        lost = []
        self._code.put_back()
        for owner, cls in self._classes:
            if type(owner) is not cls:  # parametrizations change it
                object.__setattr__(owner, "__class__", cls)
        for container in self._empty:
            if container:
                container.clear()
        for mapping, exact, keys, values in self._mappings:
            if not _put_back_mapping(mapping, exact, keys, values):
                lost.append(f"a {type(mapping).__name__} whose keys raise when they are asked for their hash")
        for sequence, exact, content in self._lists:
            if exact.__len__(sequence) != len(content) or not all(map(is_, exact.__iter__(sequence), content)):
                exact.clear(sequence)
                exact.extend(sequence, content)
        for group, members in self._sets:
            now = set.__iter__(group)
            if set.__len__(group) != len(members) or {*map(id, now)} != {*map(id, members)}:
                set.clear(group)
                set.update(group, members)
        for owner, slot, held in self._slots:
            if slot_value(slot, owner) is not held:
                if held is ABSENT:
                    slot.__delete__(owner)
                else:
                    slot.__set__(owner, held)
        for cell, held in self._cells:
            if _held(cell) is not held:
                if held is ABSENT:
                    del cell.cell_contents
                else:
                    cell.cell_contents = held
        for error, *parts in self._errors:
            for part, was in zip(_OF_ERRORS, parts, strict=True):
                part.__set__(error, was)
        for cache in self._caches:
            cache.put_back()
        for put_back in self._others:
            put_back()
        set_versions([kept for kept in self.tensors if kept.put_back()])
        moved = [generator for generator, before in self._suspended if position(generator) != before]
        return lost + [f"a suspended generator that it keeps ({path_to(one, self._roots)})" for one in moved]


def _held(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not yet assigned
        return ABSENT


def _put_back_mapping(mapping: Any, exact: type[dict[Any, Any]], keys: list[Any], values: list[Any]) -> bool:
    """Make a mapping what it was; False where a key does not let itself be put in."""
    same_keys = exact.__len__(mapping) == len(keys) and all(map(is_, exact.keys(mapping), keys))
    if same_keys and all(map(is_, exact.values(mapping), values)):
        return True
    try:
        kept = dict(zip(keys, values, strict=True))
    except Exception:  # the hash of a key is code of a user
        return False
    if not same_keys:  # also where only the order is another
        exact.clear(mapping)
    if exact is dict:
        dict.update(mapping, kept)  # with the hashes that are known by now
    else:
        for key, value in kept.items():
            exact.__setitem__(mapping, key, value)
    return True


def _is_shared(value: Any) -> bool:
    attributes = dictionary_of(value)
    return attributes is not None and any(issubclass(type(held), _LOCKS) for held in list(attributes.values()))


_TAKERS: tuple[tuple[Any, _Take | None], ...] = (
    (Recorded, None),  # of a count around this one
    (nn.parameter.UninitializedTensorMixin, None),  # lazy models run as a copy
    ((logging.Logger, logging.StreamHandler, *_LOCKS), None),  # they belong to the whole process
    (torch.Tensor, Snapshot._take_tensor),
    (nn.Module, Snapshot._take_module),
    (OrderedDict, Snapshot._take_ordered),
    (dict, Snapshot._take_dict),
    ((list, deque), Snapshot._take_list),
    (set, Snapshot._take_set),
    ((tuple, frozenset), Snapshot._take_members),
    (type, Snapshot._take_class),
    (types.FunctionType, Snapshot._take_function),
    (types.CellType, Snapshot._take_cell),
    (types.MethodType, Snapshot._take_method),
    (types.BuiltinFunctionType, Snapshot._take_builtin),
    (functools.partial, Snapshot._take_partial),
    (functools._lru_cache_wrapper, Snapshot._take_cache),
    (SUSPENDED, Snapshot._take_suspended),
    (memoryview, Snapshot._take_view),
    (BaseException, Snapshot._take_error),
)


def _taker(cls: type) -> _Take | None:
    """How an object of this class is kept; None: not at all, nor what of ours listens to the model."""
    if _is_ours(type.__getattribute__(cls, "__module__")) and not issubclass(cls, nn.Module):
        return None
    for known, take in _TAKERS:
        if issubclass(cls, known):
            return take
    if (keep := keeper_of(cls)) is not None:
        return functools.partial(_take_plain, keep)
    return Snapshot._take_object


def _is_ours(module: Any) -> bool:
    return isinstance(module, str) and module.startswith("opcost.")


def _take_plain(keep: Callable[[Any], Callable[[], Any] | None], snapshot: Snapshot, value: Any) -> None:
    if (put_back := keep(value)) is not None:
        snapshot._others.append(put_back)
    snapshot._take_attributes(value)
