"""Results that `functools.lru_cache` keeps."""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable
from typing import Any


class KeptCache:
    """A cache as it was."""

    __slots__ = ("_cache", "_empty", "_entries", "_misses", "_store")

    def __init__(self, cache: Any) -> None:
        self._cache = cache
        info = cache.cache_info()
        self._misses = info.misses
        self._empty = not info.currsize
        self._store = store_of(cache)
        self._entries = dict(self._store) if self._store else {}

    def put_back(self) -> None:
        """Take out what has come in, and put in what was thrown out.

        A bounded cache chains its results, and takes none from outside: it is emptied if it was empty, and else left. What
        is in it is right, unless it is a tensor without data, and these are looked for at the end.
        """
        if self._cache.cache_info().misses == self._misses:
            return
        if self._empty:
            self._cache.cache_clear()
        elif self._store is not None:
            self._store.clear()
            self._store.update(self._entries)


def is_bounded_and_filled(cache: Any) -> bool:
    """Whether a cache could not be put back, once something has come in."""
    info = cache.cache_info()
    return info.maxsize is not None and info.currsize > 0


def scratch(cache: Any) -> Callable[..., Any]:
    """A function that answers as the cache does and keeps what is new for itself."""
    known = _dictionary(cache)
    typed = cache.cache_parameters()["typed"]
    own: dict[Any, Any] = {}
    cleared: list[bool] = []

    @functools.wraps(cache.__wrapped__)
    def answer(*args: Any, **kwargs: Any) -> Any:
        key = functools._make_key(args, kwargs, typed)
        if key in known and not cleared:
            return cache(*args, **kwargs)
        if key not in own:
            own[key] = cache.__wrapped__(*args, **kwargs)
        return own[key]

    def clear() -> None:
        cleared.append(True)
        own.clear()

    vars(answer).update(cache_info=cache.cache_info, cache_parameters=cache.cache_parameters, cache_clear=clear)
    return answer


def store_of(cache: Any) -> dict[Any, Any] | None:
    """The dictionary in which an unbounded cache keeps its results."""
    return _dictionary(cache) if cache.cache_info().maxsize is None else None


def _dictionary(cache: Any) -> dict[Any, Any]:
    """What a cache finds its results with: the results themselves, or, where it is bounded, links of a chain."""
    return next(held for held in gc.get_referents(cache) if type(held) is dict and held is not cache.__dict__)
