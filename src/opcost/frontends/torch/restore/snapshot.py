"""Shallow copies of everything changeable that can be reached from some objects, and restoring what differs.

No code of the user's classes runs here: the methods of a subclass of a container or tensor, its length, attributes, comparison
or hash, may raise or change something. So methods are those of Python's own classes, and keys are identities.
"""

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
from opcost.frontends.torch import private
from opcost.frontends.torch.ledger.tensors import Recorded
from opcost.frontends.torch.restore.code import Code, restorer_of
from opcost.frontends.torch.restore.values import SUSPENDED, Keeper, copied_types, keeper_of, position, twin
from opcost.frontends.torch.tree import ABSENT, dictionary_of, slot_value, slots_of

_FIXED = frozenset(map(id, (
    int, float, complex, bool, str, bytes, range, slice, type(None), type(Ellipsis),
    types.GenericAlias, types.GetSetDescriptorType, types.MemberDescriptorType, types.MethodWrapperType, types.ModuleType,
    types.UnionType, torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size, torch.ScriptObject,
)))  # fmt: skip
"""The types of objects that cannot change, by identity."""
_EMPTY = frozenset(map(id, (dict, OrderedDict, set)))
_LOCKS = (type(threading.Lock()), type(threading.RLock()), threading.Condition, threading.Event, threading.Thread)

_TUPLE = id(tuple)
_PARTS_OF_ERRORS = ("traceback", "context", "cause", "suppress_context")
_OF_ERRORS: tuple[Any, ...] = tuple(vars(BaseException)[f"__{name}__"] for name in _PARTS_OF_ERRORS)
"""In the order in which they are restored: setting a cause sets the last."""
_CLASS: Any = vars(object)["__class__"]
_CELL: Any = vars(types.CellType)["cell_contents"]
_DEFAULTS: tuple[Any, ...] = tuple(vars(types.FunctionType)[f"__{name}__"] for name in ("defaults", "kwdefaults"))
_ARGUMENTS: Any = vars(BaseException)["args"]
_OPERATORS = frozenset({"aten", "prim", "prims", "quantized"})  # Namespaces of torch.ops without operators of a user's

_Take = Callable[["Snapshot", Any], None]


class Snapshot:
    """The present state of some objects, and of all that is reached from them."""

    def __init__(self, roots: Iterable[Any]) -> None:
        self._seen: dict[int, Any] = {}
        """Everything visited, referenced so that its id stays its own."""
        self._todo: list[Any] = [*roots]
        self._kinds: dict[int, _Take | None] = dict.fromkeys(_FIXED)
        """How objects are kept, by the identity of their class."""
        self._copied = copied_types()
        self._alone = is_only_thread()
        self._kept: list[tuple[Any, ...]] = []
        """What restores a piece of state, one of the functions below, and its arguments."""
        self._empty: list[Any] = []
        self._twins: dict[int, Any] = {}
        self._code = Code(self._todo.append, self._kept.append)
        self.tensors: list[KeptTensor] = []
        """All tensors that were reached."""
        with private.NoFunctionSubclass():
            self._walk()

    # -- taking --------------------------------------------------------------------------------------------------------

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

    def _follow(self, values: Iterable[Any]) -> None:
        """Visit those among some values that can change, also in tuples such as strides and paddings."""
        for value in values:
            kind = id(type(value))
            if kind in _FIXED or (kind == _TUPLE and _FIXED.issuperset(map(id, map(type, value)))):
                continue
            if kind in _EMPTY and not value:
                self._empty.append(value)  # every module has a dozen of these, for its hooks
            else:
                self._todo.append(value)

    def _take_mapping(self, mapping: dict[Any, Any], exact: type[dict[Any, Any]]) -> None:
        """`exact` is the class whose own methods are used, where a subclass changed what they do."""
        keys, values = list(exact.keys(mapping)), list(exact.values(mapping))
        self._kept.append((_restore_mapping, mapping, exact, keys, values))
        self._replace_iterators(mapping, exact, keys, values)
        self._follow(values)
        if not _FIXED.issuperset(map(id, map(type, keys))):  # names of attributes, nearly always
            self._follow(keys)
        if type(mapping) is not exact:
            self._take_attributes(mapping)

    def _replace_iterators(self, container: Any, exact: Any, keys: Iterable[Any], values: list[Any]) -> None:
        """During the run, copies in place of iterators, which could not be rewound."""
        if not self._copied.isdisjoint(map(id, map(type, values))):
            for key, value in zip(keys, values, strict=True):
                if id(type(value)) in self._copied:
                    exact.__setitem__(container, key, self._copy_of(value))

    def _copy_of(self, iterator: Any) -> Any:
        if id(iterator) not in self._twins:
            self._twins[id(iterator)] = twin(iterator) or iterator
        return self._twins[id(iterator)]

    def _keep(self, place: Any, owner: Any) -> None:
        """Keep the value of a descriptor."""
        value = slot_value(place, owner)
        self._kept.append((_restore_place, place, owner, value))
        if id(type(value)) in self._copied:
            place.__set__(owner, self._copy_of(value))
        else:
            self._todo.append(value)

    def _take_sequence(self, sequence: Any, exact: Any) -> None:
        """A list or deque, which can change, or a tuple or frozenset, of which only the items can."""
        content = list(exact.__iter__(sequence))
        if exact is list or exact is deque:
            self._kept.append((_restore_sequence, sequence, exact, content))
            self._replace_iterators(sequence, exact, range(len(content)), content)
        self._follow(content)
        if type(sequence) is not exact:
            self._take_attributes(sequence)

    def _take_set(self, group: set[Any]) -> None:
        self._kept.append((_restore_set, group, frozenset(group)))  # which copies the hashes too
        self._follow(list(set.__iter__(group)))
        if type(group) is not set:
            self._take_attributes(group)

    def _take_object(self, value: Any) -> None:
        attributes = None if self._alone else dictionary_of(value)
        if attributes is not None and any(issubclass(type(one), _LOCKS) for one in list(attributes.values())):
            return  # it is guarded by a lock, so other threads may be at work on it right now
        self._take_module(value)

    def _take_module(self, value: Any) -> None:
        self._keep(_CLASS, value)  # before its slots, which are the class's; parametrizations change that of a module
        self._take_attributes(value)

    def _take_attributes(self, value: Any) -> None:
        if (attributes := dictionary_of(value)) is not None:
            self._take_mapping(attributes, dict)
        for slot in slots_of(type(value)).values():
            self._keep(slot, value)

    def _take_operators(self, namespace: Any) -> None:
        """A namespace of `torch.ops`; its operators may keep something only where they are the user's."""
        if namespace.name not in _OPERATORS:
            self._take_object(namespace)

    def _take_tensor(self, tensor: torch.Tensor) -> None:
        kept = KeptTensor(tensor)
        self.tensors.append(kept)
        self._todo += [one for one in (kept.grad, kept.hooks) if one is not None]
        if kept.has_attributes:
            self._take_mapping(dictionary_of(tensor) or {}, dict)

    def _take_function(self, function: types.FunctionType) -> None:
        if _is_ours(function.__module__):
            return
        self._todo += function.__closure__ or ()
        for place, value in zip(_DEFAULTS, (function.__defaults__, function.__kwdefaults__), strict=True):
            self._kept.append((_restore_place, place, function, value))
            if value is not None:
                self._todo.append(value)
        self._follow([function.__dict__])
        self._code.take_function(function)

    def _take_partial(self, part: functools.partial[Any]) -> None:
        exact: Any = functools.partial
        self._todo += (exact.func.__get__(part), exact.args.__get__(part), exact.keywords.__get__(part))
        self._take_attributes(part)

    def _take_cache(self, cache: Any) -> None:
        self._kept.append((restorer_of(cache),))
        self._todo.append(cache.__wrapped__)

    def _take_error(self, error: BaseException) -> None:
        """Raising an error that the model keeps gives it a traceback, whose frames refer to the tensors of the run."""
        self._take_object(error)
        self._kept += [(_restore_place, part, error, part.__get__(error)) for part in _OF_ERRORS]
        self._todo += _ARGUMENTS.__get__(error)

    def _take_value(self, value: Any, keeper: Keeper) -> None:
        """An object that is restored as a whole."""
        read, write = keeper
        if (state := read(value)) is not None:
            self._kept.append((write, value, state))
        self._take_attributes(value)

    # -- restoring -----------------------------------------------------------------------------------------------------

    def restore(self) -> None:
        """Make everything what it was. What cannot be restored is named in an error, after all the rest is done."""
        with private.NoFunctionSubclass():
            for container in self._empty:
                if container:
                    container.clear()
            lost = [fault for restore, *state in self._kept if type(fault := restore(*state)) is str]
            # In-place operators count up a tensor's version before they reach the recorder, which then does not write.
            changed = [kept for kept in self.tensors if kept.restore()]
            private.set_version(tuple(kept.tensor for kept in changed), tuple(kept.version for kept in changed))
        if lost:
            fault = f"the model changed {lost[0]}, which cannot be put back"
            raise StateError(fault, hint="count a copy of the model that may be thrown away: copy.deepcopy(model)")


# -- making each piece of state what it was; a text is returned by what cannot be restored ---------------------------------


def _restore_place(place: Any, owner: Any, value: Any) -> None:
    """The value of a descriptor: of a slot, a cell, a class, a default."""
    if slot_value(place, owner) is not value:
        if value is ABSENT:
            place.__delete__(owner)
        else:
            place.__set__(owner, value)


def _restore_sequence(sequence: Any, exact: Any, content: list[Any]) -> None:
    if exact.__len__(sequence) != len(content) or not all(map(is_, exact.__iter__(sequence), content)):
        exact.clear(sequence)
        exact.extend(sequence, content)


def _restore_set(group: set[Any], members: frozenset[Any]) -> None:
    if set.__len__(group) != len(members) or {*map(id, set.__iter__(group))} != {*map(id, members)}:
        set.clear(group)
        set.update(group, members)


def _restore_mapping(mapping: Any, exact: type[dict[Any, Any]], keys: list[Any], values: list[Any]) -> str | None:
    same_keys = exact.__len__(mapping) == len(keys) and all(map(is_, exact.keys(mapping), keys))
    if same_keys and all(map(is_, exact.values(mapping), values)):
        return None
    try:
        kept = dict(zip(keys, values, strict=True))
    except Exception:  # the hash of a key is code of a user
        return f"a {type(mapping).__name__} whose keys raise when they are hashed"
    if not same_keys:  # also where only the order is another
        exact.clear(mapping)
    if exact is dict:
        dict.update(mapping, kept)  # with the hashes that are known by now
    else:
        for key, value in kept.items():
            exact.__setitem__(mapping, key, value)
    return None


def _compare_position(generator: Any, before: tuple[Any, ...]) -> str | None:
    return f"a suspended generator of {generator.__qualname__} that it keeps" if position(generator) != before else None


_TAKERS: tuple[tuple[Any, _Take | None], ...] = (
    (Recorded, None),  # of a count around this one
    (nn.parameter.UninitializedTensorMixin, None),  # lazy models run as a copy
    ((logging.Logger, logging.StreamHandler, *_LOCKS), None),  # they belong to the whole process
    (type(torch.ops.aten), Snapshot._take_operators),
    (torch.Tensor, Snapshot._take_tensor),
    (nn.Module, Snapshot._take_module),
    *((base, functools.partial(Snapshot._take_mapping, exact=base)) for base in (OrderedDict, dict)),
    *((base, functools.partial(Snapshot._take_sequence, exact=base)) for base in (list, deque, tuple, frozenset)),
    (set, Snapshot._take_set),
    (type, lambda snapshot, cls: snapshot._code.take_class(cls)),
    (types.FunctionType, Snapshot._take_function),
    (types.CellType, lambda snapshot, cell: snapshot._keep(_CELL, cell)),
    (types.MethodType, lambda snapshot, method: snapshot._todo.extend((method.__self__, method.__func__))),
    (types.BuiltinFunctionType, lambda snapshot, method: snapshot._todo.append(method.__self__)),  # `some_list.append`
    (functools.partial, Snapshot._take_partial),
    (functools._lru_cache_wrapper, Snapshot._take_cache),
    (SUSPENDED, lambda snapshot, generator: snapshot._kept.append((_compare_position, generator, position(generator)))),
    (memoryview, lambda snapshot, view: snapshot._todo.append(view.obj)),
    (BaseException, Snapshot._take_error),
)


def _taker(cls: type) -> _Take | None:
    """How an object of this class is kept; None: not at all, as objects of opcost that observe the model."""
    if _is_ours(type.__getattribute__(cls, "__module__")) and not issubclass(cls, nn.Module):
        return None
    for known, take in _TAKERS:
        if issubclass(cls, known):
            return take
    if (keeper := keeper_of(cls)) is not None:
        return functools.partial(Snapshot._take_value, keeper=keeper)
    return Snapshot._take_object


def _is_ours(module: Any) -> bool:
    return isinstance(module, str) and module.startswith("opcost.")


# -- tensors: what can change besides their content --------------------------------------------------------------------

Layout = tuple[torch.dtype, int, tuple[int, ...], tuple[int, ...]]
"""The view of memory that a tensor is: element type, offset, shape, strides."""

_BASE = torch.Tensor
_data, _grad, _hooks, _is_leaf, _requires_grad, _dtype, _shape, _layout, _version, _is_nested = (
    getattr(_BASE, name).__get__
    for name in "data grad _backward_hooks is_leaf requires_grad dtype shape layout _version is_nested".split()
)
"""Those of the base class, which a subclass may override."""
_NUMBERS = frozenset({
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.int16, torch.int32, torch.int64,
    torch.uint8, torch.bool,
})  # fmt: skip
"""Element types of tensors that are plain views of memory: others are scaled, or conjugated."""


class KeptTensor:
    """A tensor as it was."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor, self.leaf, self.version = tensor, _has_no_history(tensor), version_of(tensor)
        ordinary = type(tensor) in (torch.Tensor, nn.Parameter) and _dtype(tensor) in _NUMBERS and self.version >= 0
        view: tuple[Any, Any] = (_view_of(tensor) if ordinary else None) or (_data(tensor), None)
        self.memory, self.layout = view
        """Its storage, because `.data = ...` replaces it; where the storage is not enough, another tensor of the same data."""
        self.grad, self.hooks = _grad(tensor) if self.leaf else None, _hooks(tensor)
        self.requires_grad, self.has_attributes = _requires_grad(tensor), bool(dictionary_of(tensor))

    def is_in_place(self) -> bool:
        """Whether the tensor still is the same view of the same memory."""
        tensor, kept = self.tensor, self.memory
        before: Any = kept, self.layout
        if self.layout is None:
            if _layout(kept) is not torch.strided or _is_nested(kept):  # these have no strides to compare
                return bool(_layout(tensor) is _layout(kept))
            before = _view_of(kept)
        now = _view_of(tensor)
        return now is not None and before is not None and now[1] == before[1] and now[0]._cdata == before[0]._cdata

    def restore(self) -> bool:
        """Restore everything but the version counter, and return whether that one has moved."""
        tensor = self.tensor
        if not self.is_in_place():
            before: Any = self.memory
            if self.layout is not None:  # a tensor that is the same view of memory as this one was
                dtype, *view = self.layout
                with torch.inference_mode(mode=False), torch.no_grad():
                    before = torch.empty(0, dtype=dtype, device=before.device).set_(before, *view)
            _BASE.data.__set__(tensor, before)  # type: ignore[attr-defined]
        if self.leaf:
            if not _is_leaf(tensor):  # written to, in place, by something that has a gradient
                _BASE.detach_(tensor)
            if _requires_grad(tensor) != self.requires_grad:
                _BASE.requires_grad_(tensor, self.requires_grad)
            if _grad(tensor) is not self.grad:
                _BASE.grad.__set__(tensor, self.grad)  # type: ignore[attr-defined]
        if _hooks(tensor) is not self.hooks:
            _BASE._backward_hooks.__set__(tensor, self.hooks)  # type: ignore[attr-defined]
        if not self.has_attributes and (added := dictionary_of(tensor)):
            added.clear()
        return self.version >= 0 and version_of(tensor) != self.version


def _view_of(tensor: torch.Tensor) -> tuple[torch.UntypedStorage, Layout] | None:
    """The memory of a tensor and its view of it; None for one that is sparse, nested or opaque."""
    try:
        layout = _dtype(tensor), _BASE.storage_offset(tensor), _shape(tensor), _BASE.stride(tensor)
        return _BASE.untyped_storage(tensor), layout
    except (RuntimeError, NotImplementedError):
        return None


def _has_no_history(tensor: torch.Tensor) -> bool:
    """Whether a tensor is a leaf; a view of one that has been replaced in place has a history that cannot be worked out."""
    try:
        return bool(_is_leaf(tensor))
    except RuntimeError:
        return False


def version_of(tensor: torch.Tensor) -> int:
    """How often a tensor was written to, as autograd counts; -1 for tensors of inference mode, which have no counter."""
    try:
        return int(_version(tensor))
    except RuntimeError:
        return -1
