"""Pausing the garbage collector while many small objects are made that all stay."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from opcost.core.interrupts import held_back, let_through


@contextmanager
def without_collector() -> Iterator[None]:
    """No collection inside the block: it would walk a growing graph again and again and free nothing."""
    if not gc.isenabled():
        yield
        return
    with held_back():
        gc.disable()
        try:
            with let_through():
                yield
        finally:
            gc.enable()
