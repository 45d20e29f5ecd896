"""Recording a real run: for models whose control flow depends on float values. Every tensor has data; nothing stays changed."""

from __future__ import annotations

import dataclasses
import weakref
from contextlib import ExitStack
from itertools import zip_longest
from typing import Any

import torch
from torch import nn

from opcost.core.graph import Graph, Role
from opcost.errors import InputError
from opcost.frontends.torch import private
from opcost.frontends.torch.ledger.parameters import has_data, is_foreign
from opcost.frontends.torch.ledger.recorder_state import RecorderState
from opcost.frontends.torch.ledger.tensors import Entry, ForeignTensor, OpRecord, Signature, State, TensorRecord
from opcost.frontends.torch.operators import layers, special
from opcost.frontends.torch.operators.calls import Call, Trial, describe, is_composite
from opcost.frontends.torch.recording.module_calls import intercept_calls
from opcost.frontends.torch.recording.recorder import Recorder
from opcost.frontends.torch.recording.run import Run
from opcost.frontends.torch.recording.training_step import RunOptions
from opcost.frontends.torch.restore import WrittenMemory, written_by
from opcost.frontends.torch.restore.process import as_written
from opcost.frontends.torch.tree import tensors_passed

_ITEM = torch.ops.aten._local_scalar_dense.default


class _Seen:
    """A tensor that a real run made, as long as it lives."""

    __slots__ = ("content", "ref", "sig", "vid")

    def __init__(self, tensor: torch.Tensor, sig: Signature, vid: int) -> None:
        self.ref = weakref.ref(tensor)
        self.sig = sig
        self.vid = vid
        self.content = None


class RealRecorder(Recorder):
    """Runs every operator for real and records it; what it writes of the user's is saved first and put back by `restore`."""

    without_data = False

    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        self._seen: dict[int, _Seen] = {}
        self._written = WrittenMemory()
        self._generator = torch.Generator().manual_seed(0)

    def leaf(
        self, tensor: torch.Tensor, name: str = "", role: Role = "const", *, trainable: bool = False
    ) -> TensorRecord:
        if not has_data(tensor) and role in ("param", "buffer"):
            raise InputError(
                f"{name} has no data (it lies on the meta device or is fake), so the model cannot run for real",
                hint="count without real=True, or make the model with its weights",
            )
        leaf = super().leaf(tensor, name, role, trainable=trainable)
        if role == "buffer":  # not every operator that writes to a buffer says so: batch normalization does not
            self._written.keep(tensor)
        return leaf

    def stand_in(self, tensor: torch.Tensor, name: str) -> torch.Tensor:
        """A copy of the input, or, where only a shape was given, reproducible noise."""
        if has_data(tensor):
            copy = tensor.detach().clone()
        elif tensor.dtype.is_floating_point or tensor.dtype.is_complex:
            copy = torch.randn(tensor.shape, dtype=tensor.dtype, generator=self._generator).to(self.device)
        else:
            copy = torch.zeros(tensor.shape, dtype=tensor.dtype, device=self.device)
        if copy.layout is torch.strided:  # in memory of its own, which the run may free
            sig = self.signatures.of(copy, copy.device)
            vid = self.new_value(sig.spec)
            self.leaves[vid] = (name, "input", False)
            self._seen[id(copy)] = _Seen(copy, sig, vid)
            self.lives.watch(copy, vid)
        else:
            self.leaf(copy, name, "input")
        return copy.requires_grad_() if tensor.requires_grad else copy

    def twin(self, tensor: torch.Tensor) -> torch.Tensor:
        """A copy that represents the same value as a leaf."""
        leaf = self.leaf(tensor)
        with private.no_modes():
            copy = tensor.detach().clone()
        self._seen[id(copy)] = _Seen(copy, leaf.sig, leaf.vid)
        return copy

    def standing(self, tensor: torch.Tensor, name: str) -> torch.Tensor:
        sig, vid = self._value_of(tensor, name)
        with private.no_modes():
            zeros = torch.zeros_like(tensor)
        self._seen[id(zeros)] = _Seen(zeros, sig, vid)
        return zeros

    def content_of(self, tensor: torch.Tensor) -> torch.Tensor | None:
        return tensor

    def state(self, tensor: torch.Tensor) -> State:
        seen = self._seen.get(id(tensor))
        if seen is not None and seen.ref() is tensor:
            return seen  # type: ignore[return-value]
        return super().state(tensor)

    def _dispatched(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        if func is _ITEM:
            return func(*args)
        if self.marker_calls and (tell := self.marker_calls.get(func)) is not None:
            return tell(*args)
        if layers.is_control_flow(func):
            return layers.run(self, func, args, kwargs)
        if func not in special.HANDLERS and isinstance(func, private.OpOverload) and is_composite(func):
            if any(is_foreign(tensor) for tensor in tensors_passed((args, kwargs), [])):
                return NotImplemented
            with self:
                return func.decompose(*args, **kwargs)
        states: list[State] = []
        try:
            self._collect((args, kwargs), states, None)
        except ForeignTensor:
            return NotImplemented
        tensors: list[torch.Tensor] = []
        _gather((args, kwargs), tensors)
        self._save_written(func, args, kwargs)
        result = func(*args, **kwargs)
        entry = describe(Call(self, func, args, kwargs, states), Trial(tensors, args, kwargs), result, self.device)
        self._record(entry, states, result)
        if self.packages:
            self.add_packed(args)
        return result

    def _record(self, entry: Entry, states: list[State], result: Any) -> None:
        flat: list[torch.Tensor] = []
        _gather(result, flat)
        vids = [state.vid for state in states]
        made = []
        # An operator that returns nothing has outputs among its arguments.
        for tensor, (sig, base, same) in zip_longest(flat, entry.outs):
            vid = self.new_value(sig.spec, None if base < 0 else self.storages[vids[base]])
            made.append(vid)
            if same:
                states[base].vid, states[base].sig = vid, sig
            else:
                self._seen[id(tensor)] = _Seen(tensor, sig, vid)
                if base < 0:
                    self.lives.watch(tensor, vid)
        inputs = tuple(vids) if entry.order is None else tuple(vids[i] for i in entry.order)
        self.ops.append(OpRecord(entry, inputs, tuple(made), self.where(), self.phase))

    def _save_written(self, func: Any, args: Any, kwargs: dict[str, Any]) -> None:
        """Keep a copy of memory of the user's before the first operator that writes to it."""
        for tensor in written_by(func, args, kwargs):
            root = self.storages[self.state(tensor).vid]
            if root in self.leaves and self.leaves[root][1] != "input":
                self._written.keep(tensor)

    def restore(self) -> None:
        """Put the content of all memory of the user's back that the run wrote to."""
        self._written.put_back()
        super().restore()


def _gather(tree: Any, found: list[torch.Tensor]) -> None:
    """Tensors of arguments or results in the order in which `_collect` meets them."""
    if isinstance(tree, torch.Tensor):
        found.append(tree)
    elif isinstance(tree, (list, tuple)):
        for item in tree:
            _gather(item, found)
    elif isinstance(tree, dict):
        for item in tree.values():
            _gather(item, found)


# -- block: Recording whatever runs inside a block of the user's code: every operator runs as it would, and is written down.
#
# Nothing is withheld or restored: what the block computes and changes is the user's own doing.


class Block:
    """One block; modules that it calls go by `<Class>`, and what is below them by its name."""

    def __init__(self) -> None:
        self.recorder = _Onlooker(torch.get_default_device())
        # Recurrent layers run as they do without us, which is how they are taken apart for a backward pass.
        self._run = Run(nn.Module(), self.recorder, RunOptions(backward=True))
        self.recorder.where = self._where
        self._undo = ExitStack()

    def enter(self) -> None:
        """Begin to record."""
        if any(isinstance(mode, RecorderState) for mode in private.dispatch_modes()):
            raise InputError("a recording runs inside another recording or count", hint="end the outer one first")
        self._undo.enter_context(as_written())  # a compiler would trace the recorder, as flex attention's does
        self._undo.enter_context(intercept_calls(self._run.enter, engine=True))
        self._undo.enter_context(self.recorder)

    def leave(self) -> None:
        """End the recording."""
        self._undo.close()
        self._run.failed = None  # what a module raised; its frames hold tensors

    def graph(self) -> Graph:
        """What ran so far."""
        root = self._run.model
        root.training = any(module.training for _, module in self._run.paths.all if module is not root)
        return dataclasses.replace(self._run.graph_of(()), source="recording")

    def _where(self) -> str:
        """The running module; inside the autograd engine, the one whose forward made the node that runs."""
        if private.autograd_node() is None:
            self.recorder.phase = "forward"
            return self._run.where_graded()
        self.recorder.phase = "backward"
        return self._run.where_backward()


class _Onlooker(RealRecorder):
    """Records real operators and saves nothing, since nothing is to be put back."""

    def leaf(
        self, tensor: torch.Tensor, name: str = "", role: Role = "const", *, trainable: bool = False
    ) -> TensorRecord:
        leaf = RecorderState.leaf(self, tensor, name, role, trainable=trainable)
        if (
            role != "const" and self.leaves[leaf.origin][1] == "const"
        ):  # made in the block, and known before its module was
            self.leaves[leaf.origin] = (name, role, trainable)
        return leaf

    def _save_written(self, func: Any, args: Any, kwargs: dict[str, Any]) -> None:
        pass
