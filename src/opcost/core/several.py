"""Several counts of one model: what the first of them works out and is the same in the others."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

Found = TypeVar("Found")

_kept: ContextVar[dict[object, Any] | None] = ContextVar("opcost-kept", default=None)


@contextmanager
def several_counts() -> Iterator[None]:
    """Keep until the end of the block what its counts ask for by `kept`."""
    token = _kept.set({})
    try:
        yield
    finally:
        _kept.reset(token)


def kept(key: object, make: Callable[[], Found]) -> Found:
    """What another count of the same block has made for this key; else, and outside of a block, it is made now."""
    found = _kept.get()
    if found is None:
        return make()
    if key not in found:
        found[key] = make()
    return found[key]  # type: ignore[no-any-return]
