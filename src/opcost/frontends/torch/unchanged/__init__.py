"""Leaving the user's process as it was: the model, what it holds and what its code reaches, and the switches of the process.

A forward pass does change things: caches, counters, buffers assigned anew, lists appended to, globals, class attributes.
Without this, tensors without data would stay behind. Everything is compared by identity and put back only where it
differs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from opcost.frontends.torch.unchanged.snapshot import Snapshot

__all__ = ["Snapshot", "unchanged"]


@contextmanager
def unchanged(*roots: Any) -> Iterator[Snapshot]:
    """Put models, and whatever else is given, back to what they were, whatever happens inside."""
    before = Snapshot(roots)
    try:
        yield before
    finally:
        before.put_back()
