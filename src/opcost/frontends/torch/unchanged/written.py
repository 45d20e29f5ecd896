"""The content of memory that a real run writes to: copied before the first write, put back afterwards."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.nn.parameter import UninitializedTensorMixin
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from opcost.errors import StateError
from opcost.frontends.torch.ledger.subclass import has_data
from opcost.frontends.torch.tree import tensors_passed
from opcost.frontends.torch.unchanged.tensors import KeptTensor, version_of


class WrittenMemory:
    """Copies of memory of the user's, each made just before something is written there."""

    def __init__(self) -> None:
        self._copies: dict[int, tuple[torch.UntypedStorage, torch.UntypedStorage]] = {}

    def keep(self, tensor: torch.Tensor) -> None:
        """Copy the memory in which a tensor lies, if that has not been done."""
        if tensor.layout is not torch.strided or not has_data(tensor):
            return
        memory = tensor.untyped_storage()
        if memory._cdata not in self._copies:
            with _disable_current_modes():
                self._copies[memory._cdata] = memory, memory.clone()

    def has(self, tensor: torch.Tensor) -> bool:
        return tensor.layout is torch.strided and tensor.untyped_storage()._cdata in self._copies

    def put_back(self) -> None:
        for memory, copy in self._copies.values():
            if memory.nbytes() != copy.nbytes():
                memory.resize_(copy.nbytes())
            memory.copy_(copy)


def written_by(func: Any, args: Any, kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """The tensors that an operator's schema says it writes to."""
    schema = getattr(func, "_schema", None)
    found: list[torch.Tensor] = []
    if schema is not None and schema.is_mutable:
        for index, argument in enumerate(schema.arguments):
            if argument.alias_info is not None and argument.alias_info.is_write:
                tensors_passed(args[index] if index < len(args) else kwargs.get(argument.name), found)
    return found


class KeepWritten(TorchDispatchMode):
    """While it is on, every operator runs, and memory of the user's is copied before the first operator that writes to it."""

    def __init__(self, kept: Iterable[KeptTensor], buffers: Iterable[torch.Tensor]) -> None:
        super().__init__()
        self._memory = WrittenMemory()
        self._kept = [one for one in kept if type(one.tensor) in (torch.Tensor, torch.nn.Parameter)]
        self._users = {one.tensor.untyped_storage()._cdata for one in self._kept if one.tensor.layout is torch.strided}
        for buffer in buffers:  # not every operator that writes to a buffer says so: batch normalization does not
            if not isinstance(buffer, UninitializedTensorMixin):
                self._memory.keep(buffer)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # True would import torch._dynamo

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for tensor in written_by(func, args, kwargs or {}):
            if tensor.layout is torch.strided and tensor.untyped_storage()._cdata in self._users:
                self._memory.keep(tensor)
        return func(*args, **(kwargs or {}))

    def put_back(self) -> None:
        """Put the content back. A write that no earlier run made, and nobody was prepared for, is told."""
        self._memory.put_back()
        for one in self._kept:
            if version_of(one.tensor) != one.version and one.is_in_place() and not self._memory.has(one.tensor):
                raise StateError(
                    f"the model wrote to a tensor of shape {tuple(one.tensor.shape)} in a later run and not in the first, so its "
                    "content before is not known",
                    hint="run a copy of the model: copy.deepcopy(model)",
                )
