"""Results that `functools.lru_cache` keeps."""

from __future__ import annotations

import gc
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
        """Take out what has come in. A bounded cache gives out single entries only by throwing them away in its own time.

        So it is emptied if it was empty, and else left: what is in it is right, unless it is a tensor without data, and
        these are looked for at the end.
        """
        if self._cache.cache_info().misses == self._misses:
            return
        if self._empty:
            self._cache.cache_clear()
        elif self._store is not None:
            for key in [key for key in self._store if key not in self._entries]:
                del self._store[key]


def store_of(cache: Any) -> dict[Any, Any] | None:
    """The dictionary in which an unbounded cache keeps its results; a bounded one chains them in a list of its own."""
    if cache.cache_info().maxsize is not None:
        return None
    for held in gc.get_referents(cache):
        if type(held) is dict and held is not cache.__dict__:
            return held
    return None
