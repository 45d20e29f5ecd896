"""What a plain run of PyTorch does and holds, seen without opcost: the truth that counts are compared with."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Live(TorchDispatchMode):
    """The operators that run, with the element types of what they read, and the live bytes of what they made."""

    def __init__(self) -> None:
        super().__init__()
        self.ops: list[tuple[Any, ...]] = []
        self.now = self.peak = 0
        self.curve: list[int] = []
        """The live bytes while each operator runs."""
        self._sizes: dict[int, tuple[int, Any]] = {}

    def hold(self, tensor: torch.Tensor) -> None:
        """Count the memory of a tensor from now on, unless it is counted already."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key not in self._sizes:
            gone = weakref.ref(storage, lambda _: self._gone(key))
            self._sizes[key] = storage.nbytes(), gone
            self.now += storage.nbytes()

    def _gone(self, key: int) -> None:
        self.now -= self._sizes.pop(key)[0]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = [item for item in tree_leaves((args, kwargs)) if isinstance(item, torch.Tensor)]
        known = {tensor.untyped_storage()._cdata for tensor in given}
        read = tuple(str(tensor.dtype).removeprefix("torch.") for tensor in given)
        result = func(*args, **(kwargs or {}))
        self.ops.append((func._schema.name, read))
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor) and tensor.untyped_storage()._cdata not in known:
                self.hold(tensor)
        self.curve.append(self.now)
        self.peak = max(self.peak, self.now)
        return result

    @property
    def work(self) -> list[tuple[Any, ...]]:
        """The operators that are more than another look at a tensor, and are not the beginning of a backward pass."""
        looks = ("detach", "t", "view", "ones_like", "alias", "transpose", "expand", "unsqueeze", "slice", "select")
        return [op for op in self.ops if op[0].removeprefix("aten::") not in looks]


def work(report: Any) -> list[tuple[Any, ...]]:
    """The same of a report."""
    seen = Live()
    seen.ops = [(row.op.raw, tuple(spec.dtype for spec in row.ins)) for row in report.rows]
    return seen.work
