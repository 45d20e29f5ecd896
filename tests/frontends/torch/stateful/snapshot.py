"""A deep snapshot: everything that can be reached from a model and its file, and the process, to be compared later.

Objects are distinguished by identity, so that one that is replaced by an equal one is seen as well. The snapshot holds
everything it has met, so that an identity never passes on to another object.
"""

from __future__ import annotations

import array
import contextvars
import ctypes
import functools
import gc
import inspect
import io
import itertools
import operator
import queue
import random
import sys
import threading
import types
import warnings
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Any

import numpy as np
import torch
from stateful import process
from stateful.registry import Made
from torch import Tensor, nn

from opcost.frontends.torch.ledger.tensors import Recorded

_PLAIN = (
    int,
    float,
    complex,
    str,
    bytes,
    bool,
    type(None),
    range,
    type(Ellipsis),
    torch.dtype,
    torch.device,
    torch.Size,
)
_CLOSED = (
    types.GetSetDescriptorType, types.MemberDescriptorType, types.WrapperDescriptorType,
    types.MethodDescriptorType, types.CodeType, types.FrameType, threading.Thread,
)  # fmt: skip
_NOT_WALKED = ("logging.Manager", "logging.RootLogger", "logging.Logger")
_SKIPPED = frozenset(
    {
        "__builtins__",
        "__spec__",
        "__loader__",
        "__cached__",
        "__dict__",
        "__weakref__",
        "_abc_impl",
        "__abstractmethods__",
    }
)


class Snapshot:
    """What was found, by the path at which it was found."""

    def __init__(self, made: Made) -> None:
        self.found: dict[str, Any] = {}
        self._kept: list[Any] = []
        self._seen: set[int] = set()
        self._own = (made.home.__name__, *made.case.modules)
        self._others = {"CASES", *made.home.CASES} - {made.case.make.__name__}
        """The other models of the file, which this one knows nothing of."""
        self._pending: deque[tuple[Any, str]] = deque([(made.model, "model"), (made.home, "file")])
        self._pending += [(sys.modules[name], name) for name in made.case.modules]
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            while self._pending:
                self._look(*self._pending.popleft())
        self.found.update(process.look())

    def _look(self, value: Any, path: str) -> None:
        if isinstance(value, Enum):
            self.found[path] = _word(value)
        elif isinstance(value, _PLAIN):
            self.found[path] = (type(value).__name__, _same_nan(value))
            return
        else:
            self.found[path] = _word(value)
        if id(value) in self._seen or isinstance(value, _CLOSED):
            return
        self._seen.add(id(value))
        self._kept.append(value)
        for kind, look in _LOOKS:
            if isinstance(value, kind):
                look(self, value, path)
                return
        if f"{type(value).__module__}.{type(value).__qualname__}" not in _NOT_WALKED:
            self._attributes(value, path)

    # -- how each kind of object is taken apart ---------------------------------------------------------------------

    def _note(self, path: str, value: Any) -> None:
        self.found[path] = value

    def _all(self, values: Iterable[Any], path: str) -> None:
        items = list(values)
        self._note(f"{path}.length", len(items))
        self._pending += [(item, f"{path}[{index}]") for index, item in enumerate(items)]

    def _mapping(self, value: Mapping[Any, Any], path: str) -> None:
        exact = next((cls for cls in (OrderedDict, dict) if isinstance(value, cls)), None)
        items = list(exact.items(value)) if exact else list(value.items())
        self._note(f"{path}.keys", [_key(key) for key, _ in items])
        for key, item in items:
            if not isinstance(key, _PLAIN):
                self._pending.append((key, f"{path}.key({_key(key)})"))
            self._pending.append((item, f"{path}[{_key(key)}]"))
        self._attributes(value, path)

    def _sequence(self, value: Any, path: str) -> None:
        self._all(value, path)
        if type(value) not in (list, tuple):
            self._note(f"{path}.maxlen", getattr(value, "maxlen", None))
            self._attributes(value, path)

    def _group(self, value: Any, path: str) -> None:
        self._note(f"{path}.members", sorted(map(str, map(_key, value))))
        self._pending += [(item, f"{path}.member({_key(item)})") for item in value if not isinstance(item, _PLAIN)]

    def _attributes(self, value: Any, path: str) -> None:
        slots = {
            name: getattr(value, name)
            for cls in type(value).__mro__
            for name in _names(cls.__dict__.get("__slots__", ()))
            if isinstance(inspect.getattr_static(type(value), name, None), types.MemberDescriptorType)
            and hasattr(value, name)
        }
        named = {**slots, **getattr(value, "__dict__", {})}
        if self._is_own(type(value).__module__):
            self._pending.append((type(value), f"{path}.__class__"))
        if named or not isinstance(value, (dict, list)):
            self._note(f"{path}.attributes", list(named))
        self._pending += [(item, f"{path}.{name}") for name, item in named.items()]

    def _tensor(self, tensor: Tensor, path: str) -> None:
        if isinstance(tensor, (Recorded, nn.parameter.UninitializedTensorMixin)):
            return
        self._note(
            f"{path}.like",
            (tuple(tensor.shape), tensor.dtype, tensor.device, tensor.layout, tensor.requires_grad, tensor.is_leaf),
        )
        if not tensor.is_inference():
            self._note(f"{path}.version", tensor._version)
        if tensor.layout is torch.strided:
            memory = tensor.untyped_storage()
            self._note(f"{path}.memory", (memory._cdata, tensor.storage_offset(), tensor.stride(), memory.is_shared()))
        if tensor.device.type != "meta":
            self._note(f"{path}.content", _content(tensor))
        if tensor.is_leaf:
            self._pending.append((tensor.grad, f"{path}.grad"))
        self._pending.append((tensor._backward_hooks, f"{path}.hooks"))
        self._pending.append((getattr(tensor, "_post_accumulate_grad_hooks", None), f"{path}.accumulation_hooks"))
        self._attributes(tensor, path)

    def _array(self, value: np.ndarray[Any, Any], path: str) -> None:
        self._note(f"{path}.like", (value.shape, value.strides, value.dtype, value.flags.writeable))
        if value.dtype == object:
            self._all(value.ravel().tolist(), path)
        else:
            self._note(f"{path}.content", value.tobytes())

    def _function(self, value: types.FunctionType, path: str) -> None:
        if not self._is_own(value.__module__):
            cells = [cell for cell in value.__closure__ or () if isinstance(_content_of(cell), types.FunctionType)]
            if not cells:
                return
        self._pending += [(cell, f"{path}.{name}") for name, cell in _closure(value)]
        self._pending += [
            (value.__defaults__, f"{path}.__defaults__"),
            (value.__kwdefaults__, f"{path}.__kwdefaults__"),
        ]
        self._note(f"{path}.code", value.__code__)
        self._attributes(value, path)

    def _cell(self, value: types.CellType, path: str) -> None:
        self._pending.append((_content_of(value), f"{path}"))

    def _method(self, value: types.MethodType, path: str) -> None:
        self.found[path] = "method"
        self._pending += [(value.__self__, f"{path}.__self__"), (value.__func__, f"{path}.__func__")]

    def _builtin(self, value: types.BuiltinMethodType, path: str) -> None:
        self.found[path] = "built-in"
        if not isinstance(value.__self__, (types.ModuleType, type(None))):
            self._pending.append((value.__self__, f"{path}.__self__"))

    def _partial(self, value: functools.partial[Any], path: str) -> None:
        self._pending += [
            (value.func, f"{path}.func"),
            (value.args, f"{path}.args"),
            (value.keywords, f"{path}.keywords"),
        ]
        self._attributes(value, path)

    def _cache(self, value: Any, path: str) -> None:
        """The results of an `lru_cache`, in whichever order: the garbage collector alone shows what it refers to."""
        referents = [thing for thing in gc.get_referents(value) if not isinstance(thing, type) and not _is_link(thing)]
        store = next(thing for thing in referents if type(thing) is dict and thing is not value.__dict__)
        self._note(f"{path}.cached", sorted(map(str, map(_key, store))))
        for thing in referents:
            if thing is not store and not isinstance(thing, _PLAIN):
                self._pending.append((thing, f"{path}.holds({_key(thing)})"))
        for key, result in store.items():
            if not _is_link(result):
                self._pending.append((result, f"{path}({_key(key)})"))
        self._attributes(value, path)

    def _class(self, value: type, path: str) -> None:
        if not self._is_own(value.__module__):
            return
        named = {name: item for name, item in vars(value).items() if name not in _SKIPPED}
        self._note(f"{path}.attributes", list(named))
        self._pending += [(item, f"{path}.{name}") for name, item in named.items()]
        self._all(value.__bases__, f"{path}.__bases__")

    def _module(self, value: types.ModuleType, path: str) -> None:
        if not self._is_own(value.__name__):
            return
        named = {name: item for name, item in vars(value).items() if name not in _SKIPPED and name not in self._others}
        self._note(f"{path}.globals", list(named))
        self._pending += [(item, f"{path}.{name}") for name, item in named.items()]

    def _descriptor(self, value: Any, path: str) -> None:
        for name in ("fget", "fset", "fdel", "__func__", "func"):
            if (inner := getattr(value, name, None)) is not None:
                self._pending.append((inner, f"{path}.{name}"))

    def _weak(self, value: Any, path: str) -> None:
        pairs = list(value.items()) if hasattr(value, "items") else [(item, None) for item in value]
        self._note(f"{path}.keys", sorted(str(_key(key)) for key, _ in pairs))
        for key, item in pairs:
            self._pending += [(key, f"{path}.key({_key(key)})"), (item, f"{path}[{_key(key)}]")]

    def _reference(self, value: weakref.ref[Any], path: str) -> None:
        self._pending.append((value(), f"{path}()"))

    def _variable(self, value: contextvars.ContextVar[Any], path: str) -> None:
        self._pending.append((value.get("<no value>"), f"{path}.value"))

    def _local(self, value: threading.local, path: str) -> None:
        named = dict(value.__dict__)
        self._note(f"{path}.attributes", list(named))
        self._pending += [(item, f"{path}.{name}") for name, item in named.items()]

    def _generator(self, value: types.GeneratorType[Any, Any, Any], path: str) -> None:
        frame = value.gi_frame
        self._note(f"{path}.position", None if frame is None else frame.f_lasti)
        if frame is not None:
            self._pending += [(item, f"{path}.{name}") for name, item in frame.f_locals.items()]

    def _iterator(self, value: Any, path: str) -> None:
        hint = operator.length_hint(value, -1)
        self._note(f"{path}.left", hint)
        if isinstance(value, itertools.count):
            self._note(f"{path}.position", repr(value))
        elif isinstance(value, itertools.cycle) and sys.version_info < (3, 14):
            again = value.__reduce__()
            self._note(f"{path}.position", (operator.length_hint(again[1][0], -1), [_key(i) for i in again[2][0]]))
        elif isinstance(value, enumerate):
            self._note(f"{path}.position", value.__reduce__()[1][1])
        inner = [item for item in gc.get_referents(value) if isinstance(item, _ITERATORS)]
        self._pending += [(item, f"{path}.of[{index}]") for index, item in enumerate(inner)]

    def _file(self, value: io.IOBase, path: str) -> None:
        self._note(f"{path}.closed", value.closed)
        if not value.closed and value.seekable():
            self._note(f"{path}.position", value.tell())
        if isinstance(value, (io.BytesIO, io.StringIO)) and not value.closed:
            self._note(f"{path}.content", value.getvalue())

    def _exception(self, value: BaseException, path: str) -> None:
        self._all(value.args, f"{path}.args")
        self._pending += [(value.__cause__, f"{path}.__cause__"), (value.__context__, f"{path}.__context__")]
        trace = value.__traceback__
        depth = 0
        while trace is not None:
            if self._is_own(trace.tb_frame.f_globals.get("__name__", "")):
                self._pending += [(v, f"{path}.frame{depth}.{k}") for k, v in trace.tb_frame.f_locals.items()]
            depth, trace = depth + 1, trace.tb_next
        self._note(f"{path}.frames", depth)
        self._attributes(value, path)

    def _context(self, value: Any, path: str) -> None:
        """The `ctx` of an autograd function that was kept."""
        for index, saved in enumerate(value.saved_tensors):
            self._note(f"{path}.saved[{index}]", (type(saved), tuple(saved.shape)))
            if not isinstance(saved, Recorded):
                self._note(f"{path}.saved[{index}].content", _content(saved))
        self._attributes(value, path)

    def _is_own(self, module: str | None) -> bool:
        return (module or "").startswith(self._own)


def _state(read: Callable[[Any], Any]) -> Callable[[Snapshot, Any, str], None]:
    return lambda snapshot, value, path: snapshot._note(f"{path}.state", repr(read(value)))


_ITERATORS: tuple[type, ...] = (
    itertools.count, itertools.cycle, itertools.chain, itertools.islice, map, zip, enumerate, reversed,
    type(iter([])), type(iter(())), type(iter({})), type(iter(range(1))), type(iter("")),
)  # fmt: skip

_LOOKS: list[tuple[Any, Callable[[Snapshot, Any, str], None]]] = [
    (Tensor, Snapshot._tensor),
    (np.ndarray, Snapshot._array),
    (torch.Generator, _state(lambda generator: generator.get_state().tolist())),
    (random.Random, _state(lambda generator: generator.getstate())),
    (np.random.Generator, _state(lambda generator: generator.bit_generator.state)),
    (np.random.RandomState, _state(lambda generator: generator.get_state())),
    ((bytearray, array.array, memoryview, ctypes.Array), _state(bytes)),
    (np.random.SeedSequence, _state(lambda seeds: repr(seeds.state))),
    ((dict, types.MappingProxyType), Snapshot._mapping),
    ((weakref.WeakKeyDictionary, weakref.WeakValueDictionary, weakref.WeakSet), Snapshot._weak),
    (queue.SimpleQueue, _state(lambda simple: (simple.qsize(), [_key(item) for item in gc.get_referents(simple)]))),
    (weakref.finalize, _state(lambda finalizer: finalizer.alive)),
    (weakref.ref, Snapshot._reference),
    ((set, frozenset), Snapshot._group),
    (types.FunctionType, Snapshot._function),
    (types.MethodType, Snapshot._method),
    (types.BuiltinMethodType, Snapshot._builtin),
    (types.CellType, Snapshot._cell),
    (functools.partial, Snapshot._partial),
    (functools._lru_cache_wrapper, Snapshot._cache),
    (type, Snapshot._class),
    (types.ModuleType, Snapshot._module),
    ((property, staticmethod, classmethod, functools.cached_property), Snapshot._descriptor),
    (contextvars.ContextVar, Snapshot._variable),
    (threading.local, Snapshot._local),
    (types.GeneratorType, Snapshot._generator),
    (_ITERATORS, Snapshot._iterator),
    (io.IOBase, Snapshot._file),
    (BaseException, Snapshot._exception),
    (torch.autograd.function.FunctionCtx, Snapshot._context),
    ((list, tuple, deque), Snapshot._sequence),
]


def _names(slots: str | Iterable[str]) -> Iterable[str]:
    return (slots,) if isinstance(slots, str) else slots


def _closure(function: types.FunctionType) -> Iterable[tuple[str, Any]]:
    return zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)


def _content_of(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return "<empty cell>"


def _is_link(value: Any) -> bool:
    return type(value).__name__ == "_lru_list_elem"


def _same_nan(value: Any) -> Any:
    return "nan" if value != value else value  # noqa: PLR0124 - not equal to itself


def _word(value: Any) -> Any:
    if isinstance(value, Tensor) and not isinstance(value, nn.parameter.UninitializedTensorMixin):
        kind = "Recorded" if isinstance(value, Recorded) else type(value).__name__
        return (f"{kind} {'x'.join(map(str, value.shape))}", id(value))
    return (type(value).__name__, id(value))


def _key(key: Any) -> Any:
    """A name for a key of a mapping: plain ones by their content, others by their identity."""
    if isinstance(key, _PLAIN):
        return repr(key)
    if isinstance(key, (tuple, list)):
        return tuple(_key(item) for item in key)
    return f"<{type(key).__name__} {id(key):x}>"


def _content(tensor: Tensor) -> bytes:
    tensor = tensor.detach()
    if tensor.layout is not torch.strided:
        tensor = tensor.to_dense()
    if tensor.is_quantized:
        tensor = tensor.int_repr()
    # A copy: memory that numpy has seen can no longer be resized.
    flat = tensor.resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format).reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""


def differences(before: Snapshot, after: Snapshot, *, holder: str = "") -> list[str]:
    """What is not the same any more, in words short enough to read; what `holder` names is left out."""
    found = []
    for path in {**before.found, **after.found}:
        was, now = before.found.get(path, "nothing"), after.found.get(path, "nothing")
        if was != now and not (holder and holder in path):
            found.append(f"{path}: {_short(was)} -> {_short(now)}")
    return found


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 90 else f"{text[:60]}…{text[-27:]}"


def set_aside() -> None:
    """Hide everything that is alive from the search below, which is then quick and finds what this test made."""
    gc.collect()
    gc.freeze()


def without_data() -> list[Recorded]:
    """The tensors without data that are alive."""
    gc.collect()
    return [thing for thing in gc.get_objects() if type(thing) is Recorded]
