"""Restoring the user's process after a run: the model, all that it and its code reach, and the switches of the process.

A forward pass does change things: caches, counters, buffers assigned anew, lists appended to, globals, class attributes.
Without this, tensors without data would stay behind. Everything is compared by identity and restored only where it differs.
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import UninitializedTensorMixin

from opcost.core.interrupts import defer_signals
from opcost.errors import StateError
from opcost.frontends.torch.ledger.parameters import has_data
from opcost.frontends.torch.private import DispatchMode, no_modes
from opcost.frontends.torch.restore import process
from opcost.frontends.torch.restore.snapshot import KeptTensor, Snapshot, version_of
from opcost.frontends.torch.tree import tensors_passed


@contextmanager
def restored(*roots: Any) -> Iterator[Snapshot]:
    """Restore models, and whatever else is given, whatever happens inside."""
    before = Snapshot(roots)
    try:
        yield before
    finally:
        before.restore()


@contextmanager
def real_runs(model: nn.Module, *others: Any) -> Iterator[Callable[[], AbstractContextManager[None]]]:
    """Inside, the model may run with data as often as needed, the first time within the context that is yielded.

    That context finds out which memory the model writes to, and keeps its content, which slows the run down: runs that are timed
    are made without it. Interrupts are deferred until the caller lets them through.
    """
    with defer_signals(), ExitStack() as undo:
        undo.enter_context(process.one_at_a_time())
        # Switches are entered first and so restored last, because what is freed before may change them too.
        undo.enter_context(process.switches())
        before = undo.enter_context(restored(model, *others))
        written = KeepWritten(before.tensors, model.buffers())
        undo.callback(written.put_back)
        undo.enter_context(process.random_state())
        undo.enter_context(process.no_sharing())
        sys.setrecursionlimit(2 * sys.getrecursionlimit())  # module calls that are annotated nest deeper

        @contextmanager
        def first_run() -> Iterator[None]:
            with process.as_written(), process.no_inference_mode(), written:
                yield

        yield first_run


# -- the content of memory that a real run writes to: copied before the first write, restored afterwards -----------------


class WrittenMemory:
    """Copies of the user's memory, each made just before something is written there."""

    def __init__(self) -> None:
        self._copies: dict[int, tuple[torch.UntypedStorage, torch.UntypedStorage]] = {}

    def keep(self, tensor: torch.Tensor) -> None:
        """Copy the memory of a tensor, if that has not been done."""
        if tensor.layout is not torch.strided or not has_data(tensor):
            return
        memory = tensor.untyped_storage()
        if memory._cdata not in self._copies:
            with no_modes():
                self._copies[memory._cdata] = memory, memory.clone()

    def has(self, tensor: torch.Tensor) -> bool:
        return tensor.layout is torch.strided and tensor.untyped_storage()._cdata in self._copies

    def put_back(self) -> None:
        for memory, copy in self._copies.values():
            if memory.nbytes() != copy.nbytes():
                memory.resize_(copy.nbytes())
            memory.copy_(copy)


def written_by(func: Any, args: Any, kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """The tensors to which an operator writes, by its schema."""
    schema = getattr(func, "_schema", None)
    found: list[torch.Tensor] = []
    if schema is not None and schema.is_mutable:
        for index, argument in enumerate(schema.arguments):
            if argument.alias_info is not None and argument.alias_info.is_write:
                tensors_passed(args[index] if index < len(args) else kwargs.get(argument.name), found)
    return found


class KeepWritten(DispatchMode):
    """Runs every operator, and copies the user's memory before the first operator that writes to it."""

    def __init__(self, kept: Iterable[KeptTensor], buffers: Iterable[torch.Tensor]) -> None:
        super().__init__()
        self._memory = WrittenMemory()
        self._kept = [one for one in kept if type(one.tensor) in (torch.Tensor, torch.nn.Parameter)]
        self._users = {one.tensor.untyped_storage()._cdata for one in self._kept if one.tensor.layout is torch.strided}
        for buffer in buffers:  # batch normalization writes to buffers, and its schema does not declare it
            if not isinstance(buffer, UninitializedTensorMixin):
                self._memory.keep(buffer)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for tensor in written_by(func, args, kwargs or {}):
            if tensor.layout is torch.strided and tensor.untyped_storage()._cdata in self._users:
                self._memory.keep(tensor)
        return func(*args, **(kwargs or {}))

    def put_back(self) -> None:
        """Restore the content, and raise for a tensor to which only a later run wrote."""
        self._memory.put_back()
        for one in self._kept:
            if version_of(one.tensor) != one.version and one.is_in_place() and not self._memory.has(one.tensor):
                raise StateError(
                    f"the model wrote to a tensor of shape {tuple(one.tensor.shape)} in a later run and not in the first, so its "
                    "content before is not known",
                    hint="run a copy of the model: copy.deepcopy(model)",
                )
