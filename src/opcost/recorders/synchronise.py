"""Waiting until devices have done what they were given; a timer that does not wait measures the queue, not the work."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any


def wait_for(result: Any) -> None:
    """Wait for everything that the frameworks in use have started, and for `result` where only it can be waited for."""
    for wait in _waits():
        wait()
    if "jax" in sys.modules:
        sys.modules["jax"].block_until_ready(result)


def _waits() -> Iterator[Callable[[], Any]]:
    torch = sys.modules.get("torch")
    if torch is not None:
        for name in ("cuda", "xpu", "mps"):
            backend = getattr(torch, name, None)
            if backend is not None and _in_use(backend):
                yield backend.synchronize
    if (mxnet := sys.modules.get("mxnet")) is not None:
        yield mxnet.nd.waitall
    if (megengine := sys.modules.get("megengine")) is not None:
        yield megengine._full_sync  # noqa: SLF001 - MegEngine has no public door for it


def _in_use(backend: Any) -> bool:
    """Whether something may be running there; asking must not start the device."""
    started = getattr(backend, "is_initialized", None)
    return bool(started()) if started is not None else bool(backend.is_available())
