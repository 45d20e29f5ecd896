"""Tensors without data that outlive a run: nobody may be left with one.

What the snapshot reaches has been put back by then. The rest is looked for with the garbage collector's help, which takes a
while, so it is done only where something does survive: results in a cache are taken out of it; a tensor whose content is
known becomes the real one that a real run would have left; and about anything else there is an error now, not a crash later.
"""

from __future__ import annotations

import functools
import gc
from collections import deque
from types import CellType, FrameType, FunctionType, MethodType, ModuleType, TracebackType
from typing import Any
from weakref import finalize

from opcost.errors import StateError
from opcost.frontends.torch.ledger.ledger import Ledger
from opcost.frontends.torch.ledger.tensor import Recorded
from opcost.frontends.torch.tree import dictionary_of
from opcost.frontends.torch.unchanged.caches import store_of
from opcost.frontends.torch.unchanged.path import holder_of

_CLOSED = (type, ModuleType, FunctionType, MethodType, FrameType, TracebackType, str, bytes)
"""What a search for tensors inside a result does not open."""

_DEEPEST = 6
"""How deep inside a result a tensor is looked for."""


def leave_none(ledger: Ledger) -> None:
    """See to it that no tensor of a run stays behind."""
    if not ledger.has_survivors():
        return
    gc.collect(0)  # all that a run makes is young
    if not ledger.has_survivors():
        return
    empty_caches()
    if ledger.has_survivors():
        gc.collect()
    if ledger.has_survivors():
        _make_real(ledger)
    if ledger.has_survivors():
        lost = _survivors(ledger)
        number = "a tensor" if len(lost) == 1 else f"{len(lost)} tensors"
        raise StateError(
            f"the model left {number} without data in {holder_of(lost[0], lost)}, and what was there before is not known; "
            f"the first is {lost[0].sig.spec.dtype} of shape {lost[0].sig.spec}",
            hint="empty that place before the model is used again, or count with real=True (on the command line --real)",
        )


def _survivors(ledger: Ledger) -> list[Recorded]:
    return [one for one in gc.get_objects() if type(one) is Recorded and one.mark is ledger.mark]


def empty_caches() -> None:
    """Take out of every cache, and of the list of what is to be done at last, what holds a tensor without data."""
    search = _Search()
    waiting = finalize._registry  # type: ignore[attr-defined]
    for finalizer in [one for one, info in waiting.items() if search.finds_in((info.args, info.kwargs))]:
        finalizer.detach()
    for cache in [one for one in gc.get_objects() if type(one) is functools._lru_cache_wrapper]:
        if not cache.cache_info().currsize:
            continue
        store = store_of(cache)
        if store is not None:
            for key in [key for key, value in store.items() if search.finds_in((key, value))]:
                del store[key]
        elif search.finds_in(cache):
            cache.cache_clear()


class _Search:
    """Looks for tensors without data in one thing after another, and only once where nothing was found."""

    def __init__(self) -> None:
        self._without: dict[int, tuple[int, Any]] = {}
        """How deep each object stood that led to none, and the object itself, so that its id stays its own."""

    def finds_in(self, thing: Any) -> bool:
        opened: dict[int, tuple[int, Any]] = {}
        level = [thing]
        for depth in range(_DEEPEST + 1):
            following = []
            for one in level:
                if type(one) is Recorded:
                    return True
                before = opened.get(id(one)) or self._without.get(id(one))
                if (before is None or before[0] > depth) and not issubclass(type(one), _CLOSED):
                    opened[id(one)] = (depth, one)
                    following.append(one)
            # What the garbage collector does not track holds nothing that it tracks, and it tracks every tensor.
            level = [held for held in gc.get_referents(*following) if gc.is_tracked(held)]
        self._without |= opened
        return False


def _make_real(ledger: Ledger) -> None:
    """Put the real tensor in the place of each survivor whose content is known."""
    known = [one for one in _survivors(ledger) if one.content is not None]
    olds: list[Any] = list(known)
    news: list[Any] = [one.content.to(one.sig.device, copy=True) for one in known if one.content is not None]
    del known
    while olds:  # what cannot be changed, a tuple, is itself replaced in the next turn
        changed = {id(old): new for old, new in zip(olds, news, strict=True)}
        holders = [holder for holder in gc.get_referrers(*olds) if holder is not olds]
        tuples = [holder for holder in holders if issubclass(type(holder), tuple)]
        for holder in holders:
            _replace(holder, changed)
        news = [_rebuilt(one, changed) for one in tuples]
        olds = tuples


def _rebuilt(old: tuple[Any, ...], changed: dict[int, Any]) -> tuple[Any, ...]:
    items = [changed.get(id(item), item) for item in tuple.__iter__(old)]
    return type(old)(*items) if hasattr(type(old), "_fields") else tuple(items)


def _replace(holder: Any, changed: dict[int, Any]) -> None:
    """Let a holder hold the new objects in place of the old ones."""
    kind = type(holder)
    if issubclass(kind, dict):
        for key, value in [(key, value) for key, value in dict.items(holder) if id(value) in changed]:
            dict.__setitem__(holder, key, changed[id(value)])
    elif issubclass(kind, (list, deque)):
        exact: Any = list if issubclass(kind, list) else deque
        for index, value in enumerate(list(exact.__iter__(holder))):
            if id(value) in changed:
                exact.__setitem__(holder, index, changed[id(value)])
    elif issubclass(kind, set):
        for old in [old for old in set.__iter__(holder) if id(old) in changed]:
            set.discard(holder, old)
            set.add(holder, changed[id(old)])
    elif kind is CellType:
        holder.cell_contents = changed[id(holder.cell_contents)]
    elif not issubclass(kind, (tuple, FrameType)) and (held := dictionary_of(holder)) is not None:
        _replace(held, changed)
