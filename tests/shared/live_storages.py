"""The memory that a run really has: the bytes of all storages that are alive after each of its operators."""

from __future__ import annotations

from typing import Any
from weakref import ref

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LiveStorages(TorchDispatchMode):
    """Follows the storages of what is given and of all that operators get and return, until they are freed.

    A storage counts with the bytes that it has at that moment: gathered parameters are freed by making theirs empty.
    """

    def __init__(self, *given: Any) -> None:
        super().__init__()
        self._alive: dict[int, ref[torch.UntypedStorage]] = {}
        self.curve: list[int] = []
        self._see(given)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else the first operator imports torch._dynamo, for seconds

    @property
    def peak(self) -> int:
        return max(self.curve)

    def _see(self, tree: Any) -> None:
        for tensor in tree_leaves(tree):
            local = getattr(tensor, "_local_tensor", tensor)
            local = getattr(local, "elem", local)
            if isinstance(local, torch.Tensor):
                storage = local.untyped_storage()
                self._alive[storage._cdata] = ref(storage)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(kind.__name__ in ("DTensor", "AsyncCollectiveTensor") for kind in types):
            return NotImplemented  # it is taken apart into this rank's operators, or waited for, which follow
        self._see((args, kwargs))
        result = func(*args, **(kwargs or {}))
        self._see(result)
        found = {at: storage() for at, storage in self._alive.items()}
        self._alive = {at: self._alive[at] for at, storage in found.items() if storage is not None}
        self.curve.append(sum(storage.nbytes() for storage in found.values() if storage is not None))
        return result
