"""Recording a real run: for models whose control flow depends on float values. Every tensor has data; nothing stays changed."""

from __future__ import annotations

import weakref
from typing import Any

import torch

from opcost.core.graph import Role
from opcost.errors import InputError
from opcost.frontends.torch.entry import Entry, ForeignTensor, Leaf, OpRecord, Out, State
from opcost.frontends.torch.recorder import Recorder
from opcost.frontends.torch.tensor import Signature
from opcost.frontends.torch.without_data import describe, substitute


class _Seen:
    """A tensor that a real run made, as long as it lives."""

    __slots__ = ("real", "ref", "sig", "vid")

    def __init__(self, tensor: torch.Tensor, sig: Signature, vid: int) -> None:
        self.ref = weakref.ref(tensor)
        self.sig = sig
        self.vid = vid
        self.real = None


class RealRecorder(Recorder):
    """Runs every operator for real and records it; what it writes of the user's is saved first and put back by `restore`."""

    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        self._seen: dict[int, _Seen] = {}
        self._saved: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._generator = torch.Generator().manual_seed(0)

    def leaf(self, tensor: torch.Tensor, name: str = "", role: Role = "const", *, trainable: bool = False) -> Leaf:
        if tensor.device.type == "meta" and role in ("param", "buffer"):
            raise InputError(
                f"{name} has no data (it lies on the meta device), so the model cannot run for real",
                hint="count without real=True, or make the model with its weights",
            )
        known = len(self._leaf_of)
        leaf = super().leaf(tensor, name, role, trainable=trainable)
        if role in ("param", "buffer") and len(self._leaf_of) > known:
            self._saved.append((tensor, tensor.detach().clone() if role == "buffer" else tensor))
        return leaf

    def stand_in(self, tensor: torch.Tensor, name: str) -> torch.Tensor:
        """A copy of the input, or, where only a shape was given, reproducible noise."""
        if tensor.device.type != "meta":
            copy = tensor.detach().clone()
        elif tensor.dtype.is_floating_point or tensor.dtype.is_complex:
            copy = torch.randn(tensor.shape, dtype=tensor.dtype, generator=self._generator).to(self.device)
        else:
            copy = torch.zeros(tensor.shape, dtype=tensor.dtype, device=self.device)
        self.leaf(copy, name, "input")
        return copy.requires_grad_() if tensor.requires_grad else copy

    def state(self, tensor: torch.Tensor) -> State:
        seen = self._seen.get(id(tensor))
        if seen is not None and seen.ref() is tensor:
            return seen  # type: ignore[return-value]
        return super().state(tensor)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        states: list[State] = []
        try:
            self._collect((args, kwargs), states, None)
        except ForeignTensor:
            return NotImplemented
        tensors: list[torch.Tensor] = []
        _gather((args, kwargs), tensors)
        self._save_written(func, args, kwargs)
        result = func(*args, **kwargs)
        entry = describe(self, func, args, kwargs, tensors, states, result, self.device)
        self._record(entry, states, result)
        if self.packages:
            self.add_packed(args)
        return result

    def _record(self, entry: Entry, states: list[State], result: Any) -> None:
        flat: list[torch.Tensor] = []
        _gather(result, flat)
        vids = [state.vid for state in states]
        made = []
        for tensor, (sig, base, same) in zip(flat, entry.outs, strict=True):
            vid = self.new_value(sig.spec, None if base < 0 else self.storages[vids[base]])
            made.append(vid)
            if same:
                states[base].vid, states[base].sig = vid, sig
            else:
                self._seen[id(tensor)] = _Seen(tensor, sig, vid)
        inputs = tuple(vids) if entry.order is None else tuple(vids[i] for i in entry.order)
        self.ops.append(OpRecord(entry, inputs, tuple(made), self.where(), self.phase))

    def _save_written(self, func: Any, args: Any, kwargs: dict[str, Any]) -> None:
        """Keep a copy of a parameter before the first operator that writes to it (buffers were copied at the start)."""
        schema = getattr(func, "_schema", None)
        if schema is None or not schema.is_mutable:
            return
        written: list[torch.Tensor] = []
        for index, argument in enumerate(schema.arguments):
            if argument.alias_info is not None and argument.alias_info.is_write:
                _gather(args[index] if index < len(args) else kwargs.get(argument.name), written)
        memory = {tensor.untyped_storage()._cdata for tensor in written if tensor.layout is torch.strided}
        self._saved = [
            (tensor, tensor.detach().clone())
            if kept is tensor and tensor.layout is torch.strided and tensor.untyped_storage()._cdata in memory
            else (tensor, kept)
            for tensor, kept in self._saved
        ]

    def restore(self) -> None:
        """Put every parameter and buffer back that the run changed."""
        with torch.no_grad():
            for tensor, kept in self._saved:
                if kept is not tensor and not _identical(tensor, kept):
                    tensor.data.copy_(kept)


def _identical(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.shape == b.shape and bool(torch.equal(a, b))


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


__all__ = ["Out", "RealRecorder", "substitute"]
