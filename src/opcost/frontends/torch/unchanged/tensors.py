"""What can change about a tensor besides its content, and putting it back."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

Layout = tuple[torch.dtype, int, tuple[int, ...], tuple[int, ...]]
"""How a tensor looks at memory: element type, offset, shape, strides."""

_ORDINARY = (torch.Tensor, torch.nn.Parameter)
_NUMBERS = frozenset(
    {
        torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.int16, torch.int32, torch.int64,
        torch.uint8, torch.bool,
    }
)  # fmt: skip
"""Element types of tensors that are nothing but a look at memory: others are scaled, or conjugated on the way."""


class KeptTensor(NamedTuple):
    """A tensor as it was."""

    tensor: torch.Tensor
    memory: torch.UntypedStorage | torch.Tensor
    """What it looked at, for `.data = ...` gives a tensor other memory: the memory, or where that does not tell all, the same
    tensor under another name, which takes four times the space."""
    layout: Layout | None
    """Of an ordinary tensor."""
    version: int
    grad: torch.Tensor | None
    hooks: Any
    attributes: bool
    leaf: bool
    requires_grad: bool

    @classmethod
    def of(cls, tensor: torch.Tensor, layouts: dict[Layout, Layout]) -> KeptTensor:
        """`layouts` holds those of other tensors, of which many are the same."""
        leaf, version = tensor.is_leaf, version_of(tensor)
        ordinary = type(tensor) in _ORDINARY and tensor.dtype in _NUMBERS and version >= 0
        found = _looks_at(tensor) if ordinary else None
        return cls(
            tensor,
            tensor.data if found is None else found[0],
            None if found is None else layouts.setdefault(found[1], found[1]),
            version,
            tensor.grad if leaf else None,
            tensor._backward_hooks,
            bool(getattr(tensor, "__dict__", None)),
            leaf,
            tensor.requires_grad,
        )

    def is_in_place(self) -> bool:
        """Whether the tensor still looks at the same memory in the same way."""
        tensor, kept = self.tensor, self.memory
        if self.layout is not None:
            found = _looks_at(tensor)
            return found is not None and found[1] == self.layout and found[0]._cdata == kept._cdata
        assert isinstance(kept, torch.Tensor)
        if kept.layout is not torch.strided or kept.is_nested:  # these have no strides to compare
            return tensor.layout is kept.layout
        return bool(
            tensor.untyped_storage()._cdata == kept.untyped_storage()._cdata
            and tensor.storage_offset() == kept.storage_offset()
            and tensor.stride() == kept.stride()
            and tensor.shape == kept.shape
        )

    def _before(self) -> torch.Tensor:
        """A tensor that looks at the memory as this one did."""
        if self.layout is None:
            return self.memory  # type: ignore[return-value]
        dtype, offset, shape, stride = self.layout
        with torch.inference_mode(mode=False), torch.no_grad():
            return torch.empty(0, dtype=dtype, device=self.memory.device).set_(self.memory, offset, shape, stride)  # type: ignore[call-overload]

    def put_back(self) -> bool:
        """Put everything but the version counter back, and say whether that one has moved."""
        tensor = self.tensor
        if not self.is_in_place():
            tensor.data = self._before()
        if self.leaf:
            if not tensor.is_leaf:  # written to, in place, by something that has a gradient
                tensor.detach_()
            if tensor.requires_grad != self.requires_grad:
                tensor.requires_grad_(self.requires_grad)
            if tensor.grad is not self.grad:
                tensor.grad = self.grad
        if tensor._backward_hooks is not self.hooks:
            tensor._backward_hooks = self.hooks
        if not self.attributes and (added := getattr(tensor, "__dict__", None)):
            added.clear()
        return self.version >= 0 and tensor._version != self.version


def _looks_at(tensor: torch.Tensor) -> tuple[torch.UntypedStorage, Layout] | None:
    """The memory of a tensor and how it looks at it; None for one that is sparse, nested or opaque."""
    try:
        return tensor.untyped_storage(), (
            tensor.dtype,
            tensor.storage_offset(),
            tensor.shape,
            tensor.stride(),
        )
    except (RuntimeError, NotImplementedError):
        return None


def version_of(tensor: torch.Tensor) -> int:
    """How often a tensor was written to, as autograd counts; -1 for tensors of inference mode, which do not count."""
    try:
        return int(tensor._version)
    except RuntimeError:
        return -1


def set_versions(kept: list[KeptTensor]) -> None:
    """In-place operators count up a tensor's version before they reach the recorder, which then does not write."""
    if not kept:
        return
    tensors, versions = [one.tensor for one in kept], [one.version for one in kept]
    put = torch._C._autograd._unsafe_set_version_counter
    try:
        put(tuple(tensors), tuple(versions))
    except TypeError:  # before torch 2.6 it took one tensor
        for tensor, version in zip(tensors, versions, strict=True):
            put(tensor, version)  # type: ignore[arg-type]
