"""When memory is let go: every tensor without data holds its storage, and the last one to go says when that was."""

from __future__ import annotations

import weakref
from array import array
from collections.abc import Sized
from functools import partial

import torch


class Lives:
    """The storages that are gone, in the order in which they went, and how many operators had run by then."""

    __slots__ = ("_watched", "ops", "storages", "times")

    def __init__(self, ops: Sized) -> None:
        self.ops = ops
        """What has run so far; by its length the time is told."""
        self.storages = array("i")
        self.times = array("i")
        self._watched: dict[int, weakref.ref[torch.UntypedStorage]] = {}

    def watch(self, tensor: torch.Tensor, storage: int) -> None:
        """The same for a tensor with data: its memory itself says when it is freed."""
        if tensor.layout is torch.strided:
            self._watched[storage] = weakref.ref(tensor.untyped_storage(), partial(self._freed, storage))

    def _freed(self, storage: int, _: object) -> None:
        del self._watched[storage]
        self.storages.append(storage)
        self.times.append(len(self.ops))


class Held:
    """One storage, held by every tensor that lies in it; tensors have no other memory."""

    __slots__ = ("_lives", "_storage")

    def __init__(self, lives: Lives, storage: int) -> None:
        self._lives = lives
        self._storage = storage

    def __del__(self) -> None:
        lives = self._lives
        lives.storages.append(self._storage)
        lives.times.append(len(lives.ops))
