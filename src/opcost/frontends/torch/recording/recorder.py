"""The dispatch mode that sees every operator, and answers it without running it twice.

Each operator arrives below autograd with its real arguments. What it makes (shapes, strides, types, which outputs are views
of which inputs) and what it is (our kind and attributes) depends only on the operator, the signatures of its tensors and
its other arguments, so this is worked out once and remembered. The user's own tensors are only looked at, never run on or
written to.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch

from opcost.core.interrupts import pending, raise_pending
from opcost.frontends.torch import private
from opcost.frontends.torch.ledger.recorder_state import RecorderState
from opcost.frontends.torch.ledger.tensors import Entry, ForeignTensor, Recorded, State
from opcost.frontends.torch.operators import contents, layers, special
from opcost.frontends.torch.operators.calls import Call, is_composite, work_out
from opcost.frontends.torch.recording.repeated_calls import RepeatedCalls

_PLAIN = frozenset(
    {int, float, bool, str, complex, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format}
)

REPLAYS_AFTER = 4000  # Most models run fewer operators than that, and those that run more repeat themselves

_HANDLERS = {id(func): handler for func, handler in special.HANDLERS.items()}


class Recorder(RecorderState):
    """Answers every operator with tensors without data."""

    without_data = True

    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        self._memo: dict[tuple[Any, ...], Entry] = {}
        self.replay: RepeatedCalls | None = None
        """Of a run that is long."""
        self.replays_after = REPLAYS_AFTER
        """Operators from which on a run is long (see `repeated_calls`)."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if pending:
            raise_pending()
        with self.lock:
            return self._dispatched(func, args, kwargs or {})

    def _dispatched(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        if len(self.ops) >= self.replays_after:
            self._replay_from_here()
        if self.marker_calls and (tell := self.marker_calls.get(func)) is not None:
            return tell(*args)
        states: list[State] = []
        parts: list[Any] = [id(func)]  # operators live as long as the process, and their own hash is slow
        key: list[Any] | None = parts
        try:
            known = self._collect(args, states, parts)
            for name, value in kwargs.items():
                parts.append(name)
                known = self._collect((value,), states, parts) and known
        except ForeignTensor:
            return NotImplemented
        except TypeError:  # an argument that cannot be part of a key: work it out anew each time
            states.clear()
            key = None
            known = self._collect((args, kwargs), states, None)
        return self.answer(func, args, kwargs, states, key, known=known)

    def answer(
        self, func: Any, args: Any, kwargs: dict[str, Any], states: list[State], key: list[Any] | None, *, known: bool
    ) -> Any:
        """Record one operator and return what it would return."""
        if not isinstance(func, private.OpOverload):
            return layers.run(self, func, args, kwargs)
        if (handler := _HANDLERS.get(id(func))) is not None:
            result = handler(Call(self, func, args, kwargs, states))
            if result is not NotImplemented:
                return result
        known = known and contents.computable(func, args, states)
        if known and contents.depends_on_content(func):
            return contents.run(Call(self, func, args, kwargs, states))
        entry = self._memo.get(hashed := tuple(key)) if key is not None else None
        if entry is None:
            if is_composite(func):  # inside control flow operators arrive before autograd has taken them apart
                with self:
                    return func.decompose(*args, **kwargs)
            entry = work_out(Call(self, func, args, kwargs, states))
            if key is not None:
                self._memo[hashed] = entry
        if known and contents.is_small(entry):
            with suppress(NotImplementedError):  # a library may have no kernel for the CPU
                return contents.run(Call(self, func, args, kwargs, states), entry)
        result = self.emit(entry, states)
        if self.packages:
            self.add_packed(args)
        return result

    def _replay_from_here(self) -> None:
        self.replays_after = sys.maxsize
        # Inside of packages and of scripted modules, functions are not what is called.
        if not self.packages and not self.marker_calls and private.tracing_state() is None:
            self.replay = RepeatedCalls(self)
            self.replay.start()

    def share(self) -> None:
        with self.lock:
            self.replays_after = sys.maxsize
            if self.replay is not None:  # it expects calls in the order of one thread
                self.replay.stop()
                self.replay = None

    def restore(self) -> None:
        if self.replay is not None:
            self.replay.stop()
            self.replay = None
        super().restore()

    def _collect(self, args: Any, states: list[State], key: list[Any] | None) -> bool:
        """Gather the tensors and the key of some arguments; says whether the content of every tensor is known."""
        known = True
        push: Callable[[Any], None] = (lambda _: None) if key is None else key.append
        for arg in args:
            kind = type(arg)
            if kind is Recorded:
                states.append(arg)
                push(arg.sig)
                if known and (arg.content is None or not self.knows(arg)):
                    known = False
            elif kind in _PLAIN:
                push(kind)
                push(arg)
            elif isinstance(arg, torch.Tensor):
                leaf = self.state(arg)
                states.append(leaf)
                push(leaf.sig)
                if known and not self.knows(leaf):
                    known = False
            elif kind is list or kind is tuple:
                push(len(arg))
                known = self._collect(arg, states, key) and known
            elif isinstance(arg, dict):
                push(tuple(arg))
                known = self._collect(arg.values(), states, key) and known
            elif key is not None:
                if kind is torch.ScriptObject:  # it has a hash, and cannot be compared
                    raise TypeError
                hash(arg)
                key.append(arg)
        return known
