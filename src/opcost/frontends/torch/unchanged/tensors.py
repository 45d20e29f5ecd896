"""What can change about a tensor besides its content, and putting it back."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch


class KeptTensor(NamedTuple):
    """A tensor as it was."""

    tensor: torch.Tensor
    data: torch.Tensor
    """The same memory under another name: `.data = ...` gives a tensor other memory."""
    version: int
    grad: torch.Tensor | None
    hooks: Any
    attributes: bool
    leaf: bool
    requires_grad: bool

    @classmethod
    def of(cls, tensor: torch.Tensor) -> KeptTensor:
        leaf = tensor.is_leaf
        return cls(
            tensor,
            tensor.data,
            version_of(tensor),
            tensor.grad if leaf else None,
            tensor._backward_hooks,
            bool(getattr(tensor, "__dict__", None)),
            leaf,
            tensor.requires_grad,
        )

    def is_in_place(self) -> bool:
        """Whether the tensor still looks at the same memory in the same way."""
        tensor, kept = self.tensor, self.data
        if kept.layout is not torch.strided or kept.is_nested:  # these have no strides to compare
            return tensor.layout is kept.layout
        return bool(
            tensor.untyped_storage()._cdata == kept.untyped_storage()._cdata
            and tensor.storage_offset() == kept.storage_offset()
            and tensor.stride() == kept.stride()
            and tensor.shape == kept.shape
        )

    def put_back(self) -> bool:
        """Put everything but the version counter back, and say whether that one has moved."""
        tensor = self.tensor
        if not self.is_in_place():
            tensor.data = self.data
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
