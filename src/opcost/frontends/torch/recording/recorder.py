"""The dispatch modes that see every operator: one answers without data, the other runs it for real.

Each operator arrives below autograd with its real arguments. What it makes (shapes, strides, types, which outputs are views
of which inputs) and what it is (our kind and attributes) depends only on the operator, the signatures of its tensors and
its other arguments, so without data this is worked out once and remembered. The user's own tensors are only looked at, never
run on or written to. A run for real is for models whose control flow depends on float values, and for blocks of the user's code.
"""

import sys
import weakref
from contextlib import suppress
from itertools import zip_longest
from typing import Any

import torch

from opcost.core.graph import Role
from opcost.core.interrupts import pending, raise_pending
from opcost.errors import InputError
from opcost.frontends.torch import private
from opcost.frontends.torch.ledger.parameters import ForeignTensor, has_data, is_foreign
from opcost.frontends.torch.ledger.recorder_state import RecorderState
from opcost.frontends.torch.ledger.tensors import KnownOperators, Recorded, Signature, State, TensorRecord
from opcost.frontends.torch.operators import contents, layers
from opcost.frontends.torch.operators.calls import DispatchedCall, Trial, describe, is_composite, work_out
from opcost.frontends.torch.recording.repeated_calls import RepeatedCalls
from opcost.frontends.torch.restore import WrittenMemory, written_by
from opcost.frontends.torch.tree import PLAIN, tensors_passed

REPLAYS_AFTER = 4000  # Most models run fewer operators than that, and those that run more repeat themselves

_HANDLERS = {id(func): handler for func, handler in contents.HANDLERS.items()}
_ITEM = torch.ops.aten._local_scalar_dense.default


class DatalessRecorder(RecorderState):
    """Answers every operator with tensors without data."""

    without_data = True

    def __init__(self, device: torch.device, known: KnownOperators | None = None) -> None:
        """`known` is what other counts of the same model, with the same devices, worked out."""
        super().__init__(device, known)
        self.replay: RepeatedCalls | None = None  # Of a run that is long
        self.replays_after = REPLAYS_AFTER  # Operators from which on a run is long (see `repeated_calls`)
        self.ended = False  # Forward has: what threads that it started do is the user's own

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if pending:
            raise_pending()
        if self.ended:
            return func(*args, **(kwargs or {}))
        with self.lock:
            return self._dispatched(func, args, kwargs or {})

    def _dispatched(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        if len(self.ops) >= self.replays_after:
            self.replays_after = sys.maxsize
            # Inside of packages and of scripted modules, functions are not what is called.
            if not self.packages and not self.marker_calls and private.tracing_state() is None:
                self.replay = RepeatedCalls(self)
                self.replay.start()
        if self.marker_calls and (report := self.marker_calls.get(func)) is not None:
            return report(*args)
        states: list[State] = []
        parts: list[Any] = [id(func)]  # operators live as long as the process, and their own hash is slow
        key: tuple[Any, ...] | None = None
        try:
            known = self._collect(args, states, parts)
            for name, value in kwargs.items():
                parts.append(name)
                known = self._collect((value,), states, parts) and known
            key = tuple(parts)
        except ForeignTensor:
            return NotImplemented
        except TypeError:  # an argument that cannot be part of a key: work it out anew each time
            states = [self.state(tensor) for tensor in tensors_passed((args, kwargs), [])]
            known = all(map(self.knows, states))
        if not isinstance(func, private.OpOverload):
            return layers.run(self, func, args, kwargs)
        if (handler := _HANDLERS.get(id(func))) is not None:
            result = handler(DispatchedCall(self, func, args, kwargs, states))
            if result is not NotImplemented:
                return result
        known = known and contents.computable(func, args, states)
        if known and contents.depends_on_content(func):
            return contents.run(DispatchedCall(self, func, args, kwargs, states))
        entry = None if key is None else self.known.entries.get(key)
        if entry is None:
            if is_composite(func):  # inside control flow operators arrive before autograd has taken them apart
                with self:
                    return func.decompose(*args, **kwargs)
            entry = work_out(DispatchedCall(self, func, args, kwargs, states))
            if key is not None:
                self.known.add(key, func, entry)
        if known and contents.is_small(entry):
            with suppress(NotImplementedError):  # a library may have no kernel for the CPU
                return contents.run(DispatchedCall(self, func, args, kwargs, states), entry)
        result = self.emit(entry, states)
        if self.packages:
            self.add_packed(args)
        return result

    def stop_replay(self) -> None:
        with self.lock:
            self.replays_after = sys.maxsize
            if self.replay is not None:
                self.replay.stop()
                self.replay = None

    def restore(self) -> None:
        self.stop_replay()
        super().restore()

    def _collect(self, args: Any, states: list[State], key: list[Any]) -> bool:
        """Gather the tensors and the key of some arguments; says whether the content of every tensor is known."""
        known = True
        for arg in args:
            kind = type(arg)
            if kind is Recorded:
                states.append(arg)
                key.append(arg.sig)
                if known and (arg.content is None or not self.knows(arg)):
                    known = False
            elif kind in PLAIN:
                key.append(kind)
                key.append(arg)
            elif isinstance(arg, torch.Tensor):
                leaf = self.state(arg)
                states.append(leaf)
                key.append(leaf.sig)
                known = known and self.knows(leaf)
            elif kind is list or kind is tuple:
                key.append(len(arg))
                known = self._collect(arg, states, key) and known
            elif isinstance(arg, dict):
                key.append(tuple(arg))
                known = self._collect(arg.values(), states, key) and known
            else:
                if kind is torch.ScriptObject:  # it has a hash, and cannot be compared
                    raise TypeError
                hash(arg)
                key.append(arg)
        return known


class _RealTensor:
    """A tensor that a real run made, as long as it lives."""

    __slots__ = ("content", "ref", "sig", "vid")

    def __init__(self, tensor: torch.Tensor, sig: Signature, vid: int) -> None:
        self.ref = weakref.ref(tensor)
        self.sig, self.vid, self.content = sig, vid, None


class RealRecorder(DatalessRecorder):
    """Runs every operator for real and records it.

    If it `restores`, what an operator writes of the user's is saved first and put back by `restore`.
    """

    without_data = False

    def __init__(self, device: torch.device, *, restores: bool = True) -> None:
        super().__init__(device)
        self._restores = restores
        self._made: dict[int, _RealTensor] = {}
        self._written = WrittenMemory()
        self._generator = torch.Generator().manual_seed(0)

    def leaf(
        self, tensor: torch.Tensor, name: str = "", role: Role = "const", *, trainable: bool = False
    ) -> TensorRecord:
        if self._restores and not has_data(tensor) and role in ("param", "buffer"):
            raise InputError(
                f"{name} has no data (it lies on the meta device or is fake), so the model cannot run for real",
                hint="count without real=True, or make the model with its weights",
            )
        leaf = super().leaf(tensor, name, role, trainable=trainable)
        if (
            self._restores and role == "buffer"
        ):  # batch normalization writes to buffers, and its schema does not declare it
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
            sig = self.signature_of(copy, copy.device)
            vid = self.new_value(sig.spec)
            self.leaves[vid] = (name, "input", False)
            self._made[id(copy)] = _RealTensor(copy, sig, vid)
            self.lives.watch(copy, vid)
        else:
            self.leaf(copy, name, "input")
        return copy.requires_grad_() if tensor.requires_grad else copy

    def of_value(self, like: torch.Tensor, sig: Signature, vid: int, *, zeros: bool = False) -> torch.Tensor:
        with private.no_modes():
            made = torch.zeros_like(like) if zeros else like.detach().clone()
        self._made[id(made)] = _RealTensor(made, sig, vid)
        return made

    def content_of(self, tensor: torch.Tensor) -> torch.Tensor | None:
        return tensor

    def state(self, tensor: torch.Tensor) -> State:
        made = self._made.get(id(tensor))
        if made is not None and made.ref() is tensor:
            return made  # type: ignore[return-value]
        if not is_foreign(tensor) and id(tensor) not in self.leaf_of:
            # Another tensor in memory that an operator of the run allocated: a gathered parameter, or made by code in C++
            storage = self.lives.storage_of(tensor)
            if storage is not None and (storage in self.lives.away or not isinstance(tensor, torch.nn.Parameter)):
                sig = self.signature_of(tensor, tensor.device)
                made = self._made[id(tensor)] = _RealTensor(tensor, sig, self.new_value(sig.spec, storage))
                return made  # type: ignore[return-value]
        return super().state(tensor)

    def _dispatched(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        if func is _ITEM:
            return func(*args)
        if self.marker_calls and (report := self.marker_calls.get(func)) is not None:
            return report(*args)
        if layers.is_control_flow(func):
            return layers.run(self, func, args, kwargs)
        given = tensors_passed((args, kwargs), [])
        if func not in contents.HANDLERS and isinstance(func, private.OpOverload) and is_composite(func):
            if any(map(is_foreign, given)):
                return NotImplemented
            with self:
                return func.decompose(*args, **kwargs)
        try:
            states = [self.state(tensor) for tensor in given]
        except ForeignTensor:
            return NotImplemented
        for tensor in written_by(func, args, kwargs) if self._restores else ():
            root = self.storages[self.state(tensor).vid]
            if root in self.leaves and self.leaves[root][1] != "input":
                self._written.keep(tensor)
        result = func(*args, **kwargs)
        entry = describe(
            DispatchedCall(self, func, args, kwargs, states), Trial(given, args, kwargs), result, self.device
        )
        vids = [state.vid for state in states]
        made = []
        # An operator that returns nothing has outputs among its arguments.
        for tensor, (sig, base, same) in zip_longest(tensors_passed(result, []), entry.outs):
            vid = self.new_value(sig.spec, None if base < 0 else self.storages[vids[base]])
            made.append(vid)
            if same:
                states[base].vid, states[base].sig = vid, sig
            else:
                self._made[id(tensor)] = _RealTensor(tensor, sig, vid)
                if base < 0:
                    self.lives.watch(tensor, vid)
        inputs = tuple(vids) if entry.order is None else tuple(vids[i] for i in entry.order)
        self.add(entry, inputs, tuple(made))
        if self.packages:
            self.add_packed(args)
        return result

    def restore(self) -> None:
        """Put the content of all memory of the user's back that the run wrote to."""
        self._written.put_back()
        super().restore()
