"""Tensors without data that outlive a run: none may stay in the process.

What the snapshot reaches has been restored by then. The rest is found with the garbage collector, which takes a while, so it is
done only where a tensor does survive: results are removed from caches; a tensor whose content is known becomes the real one that
a real run would have left; and for any other there is an error now instead of a crash later.
"""

import functools
import gc
from collections import deque
from collections.abc import Iterable
from types import CellType, FrameType, FunctionType, MethodType, ModuleType, TracebackType
from typing import Any
from weakref import finalize

from opcost.errors import StateError
from opcost.frontends.torch.ledger.recorder_state import RecorderState
from opcost.frontends.torch.ledger.tensors import Recorded
from opcost.frontends.torch.restore.code import store_of
from opcost.frontends.torch.tree import dictionary_of

_CLOSED = (type, ModuleType, FunctionType, MethodType, FrameType, TracebackType, str, bytes)
"""What a search for tensors inside a result does not open."""

_DEEPEST = 6  # The depth to which a result is searched for tensors


def remove_leftovers(ledger: RecorderState) -> None:
    """Remove, or replace by real ones, all tensors of a run that still exist."""
    for attempt in (collect_garbage, empty_caches, collect_garbage, _make_real):
        if not ledger.has_survivors():
            return
        attempt(ledger)
    if ledger.has_survivors():
        lost = _survivors(ledger)
        number = "a tensor" if len(lost) == 1 else f"{len(lost)} tensors"
        raise StateError(
            f"the model left {number} without data in {holder_of(lost[0], lost)}, and what was there before is not known; "
            f"the first is {lost[0].sig.spec.dtype} of shape {lost[0].sig.spec}",
            hint="empty that place before the model is used again, or count with real=True (on the command line --real)",
        )


def collect_garbage(ledger: RecorderState) -> None:
    """Collect until no tensor of a run exists, the youngest first: what a run makes is young, and the heap may be large."""
    for generation in range(3):
        if ledger.has_survivors():
            gc.collect(generation)


def _survivors(ledger: RecorderState) -> list[Recorded]:
    return [one for one in gc.get_objects() if type(one) is Recorded and one.mark is ledger.mark]


def empty_caches(_: RecorderState) -> None:
    """Remove from every cache, and from the registered finalizers, what refers to a tensor without data."""
    without: dict[int, tuple[int, Any]] = {}
    registered = finalize._registry  # type: ignore[attr-defined]
    for finalizer in [one for one, info in registered.items() if _finds_in(without, (info.args, info.kwargs))]:
        finalizer.detach()
    for cache in [one for one in gc.get_objects() if type(one) is functools._lru_cache_wrapper]:
        if not cache.cache_info().currsize:
            continue
        store = store_of(cache)
        if store is not None:
            for key in [key for key, value in store.items() if _finds_in(without, (key, value))]:
                del store[key]
        elif _finds_in(without, cache):
            cache.cache_clear()


def _finds_in(without: dict[int, tuple[int, Any]], thing: Any) -> bool:
    """Whether a tensor without data is reached from an object.

    `without` has the depth of each object that led to none, and the object itself, so that its id stays its own.
    """
    opened: dict[int, tuple[int, Any]] = {}
    level = [thing]
    for depth in range(_DEEPEST + 1):
        following = []
        for one in level:
            if type(one) is Recorded:
                return True
            before = opened.get(id(one)) or without.get(id(one))
            if (before is None or before[0] > depth) and not issubclass(type(one), _CLOSED):
                opened[id(one)] = (depth, one)
                following.append(one)
        # What the garbage collector does not track refers to nothing that it tracks, and it tracks every tensor.
        level = [one for one in gc.get_referents(*following) if gc.is_tracked(one)]
    without |= opened
    return False


def _make_real(ledger: RecorderState) -> None:
    """Replace each survivor whose content is known by a real tensor."""
    known = [one for one in _survivors(ledger) if one.content is not None]
    olds: list[Any] = list(known)
    news: list[Any] = [one.content.to(one.sig.device, copy=True) for one in known if one.content is not None]
    del known
    while olds:  # a tuple, which cannot be changed, is itself replaced in the next round
        changed = {id(old): new for old, new in zip(olds, news, strict=True)}
        holders = [holder for holder in gc.get_referrers(*olds) if holder is not olds]
        tuples = [holder for holder in holders if issubclass(type(holder), tuple)]
        for holder in holders:
            _replace(holder, changed)
        news = []
        for one in tuples:
            items = [changed.get(id(item), item) for item in tuple.__iter__(one)]
            news.append(type(one)(*items) if hasattr(type(one), "_fields") else tuple(items))
        olds = tuples


def _replace(holder: Any, changed: dict[int, Any]) -> None:
    """Replace old objects by new ones in what refers to them."""
    kind = type(holder)
    exact: Any = next((exact for exact in (dict, list, deque) if issubclass(kind, exact)), None)
    if exact is not None:
        items = dict.items(holder) if exact is dict else enumerate(exact.__iter__(holder))
        for key, value in [(key, value) for key, value in items if id(value) in changed]:
            exact.__setitem__(holder, key, changed[id(value)])
    elif issubclass(kind, set):
        for old in [old for old in set.__iter__(holder) if id(old) in changed]:
            set.discard(holder, old)
            set.add(holder, changed[id(old)])
    elif kind is CellType:
        holder.cell_contents = changed[id(holder.cell_contents)]
    elif not issubclass(kind, (tuple, FrameType)) and (attributes := dictionary_of(holder)) is not None:
        _replace(attributes, changed)


# -- what an object is kept in, for errors --------------------------------------------------------------------------------


def _key_text(key: Any) -> str:
    """A key as text, without calling the `__repr__` of a user's class."""
    return repr(key) if type(key) in (str, int, float, bool, bytes, type(None)) else f"a {type(key).__name__}"


def holder_of(wanted: Any, ours: Iterable[Any] = ()) -> str:
    """What refers to an object, in words, as the garbage collector knows it."""
    skip = {id(one) for one in ours}
    words = ""
    for _ in range(8):
        referrers = [one for one in gc.get_referrers(wanted) if id(one) not in skip and type(one) is not FrameType]
        if not referrers:
            break
        holder = referrers[0]
        skip |= {id(referrers), id(holder)}
        kind = type(holder)
        if kind is dict and type(name := holder.get("__name__")) is str and "__builtins__" in holder:
            key = next((key for key, value in holder.items() if value is wanted), "?")
            return f"the global {name}.{key}{words}"
        if issubclass(kind, dict):
            key = next((key for key, value in dict.items(holder) if value is wanted), "?")
            words = f"[{_key_text(key)}]{words}"
        elif issubclass(kind, (CellType, tuple, list, set)):
            pass
        elif kind is FunctionType:
            return f"the function {holder.__qualname__}"
        else:
            name = next((name for name, value in (dictionary_of(holder) or {}).items() if value is wanted), "")
            return f"an object of type {type(holder).__qualname__}{'.' + name if name else ''}{words}"
        wanted = holder
    return f"something that Python does not name{words}"
