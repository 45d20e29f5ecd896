"""What can change about a tensor besides its content, and putting it back."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from opcost.frontends.torch.tree import dictionary_of

Layout = tuple[torch.dtype, int, tuple[int, ...], tuple[int, ...]]
"""How a tensor looks at memory: element type, offset, shape, strides."""

_BASE = torch.Tensor
_data, _grad, _hooks, _is_leaf, _requires_grad, _dtype, _shape, _layout, _version, _is_nested = (
    getattr(_BASE, name).__get__
    for name in "data grad _backward_hooks is_leaf requires_grad dtype shape layout _version is_nested".split()
)
"""As every tensor has them, whatever a subclass makes of them."""
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
        leaf, version = _is_leaf(tensor), version_of(tensor)
        ordinary = type(tensor) in _ORDINARY and _dtype(tensor) in _NUMBERS and version >= 0
        found = _looks_at(tensor) if ordinary else None
        return cls(
            tensor,
            _data(tensor) if found is None else found[0],
            None if found is None else layouts.setdefault(found[1], found[1]),
            version,
            _grad(tensor) if leaf else None,
            _hooks(tensor),
            bool(dictionary_of(tensor)),
            leaf,
            _requires_grad(tensor),
        )

    def is_in_place(self) -> bool:
        """Whether the tensor still looks at the same memory in the same way."""
        tensor, kept = self.tensor, self.memory
        if self.layout is not None:
            found = _looks_at(tensor)
            return found is not None and found[1] == self.layout and found[0]._cdata == kept._cdata
        assert isinstance(kept, torch.Tensor)
        if _layout(kept) is not torch.strided or _is_nested(kept):  # these have no strides to compare
            return bool(_layout(tensor) is _layout(kept))
        now, before = _looks_at(tensor), _looks_at(kept)
        return now is not None and before is not None and now[1] == before[1] and now[0]._cdata == before[0]._cdata

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
            _BASE.data.__set__(tensor, self._before())  # type: ignore[attr-defined]
        if self.leaf:
            if not _is_leaf(tensor):  # written to, in place, by something that has a gradient
                _BASE.detach_(tensor)
            if _requires_grad(tensor) != self.requires_grad:
                _BASE.requires_grad_(tensor, self.requires_grad)
            if _grad(tensor) is not self.grad:
                _BASE.grad.__set__(tensor, self.grad)  # type: ignore[attr-defined]
        if _hooks(tensor) is not self.hooks:
            _BASE._backward_hooks.__set__(tensor, self.hooks)  # type: ignore[attr-defined]
        if not self.attributes and (added := dictionary_of(tensor)):
            added.clear()
        return self.version >= 0 and version_of(tensor) != self.version


def _looks_at(tensor: torch.Tensor) -> tuple[torch.UntypedStorage, Layout] | None:
    """The memory of a tensor and how it looks at it; None for one that is sparse, nested or opaque."""
    try:
        return _BASE.untyped_storage(tensor), (
            _dtype(tensor),
            _BASE.storage_offset(tensor),
            _shape(tensor),
            _BASE.stride(tensor),
        )
    except (RuntimeError, NotImplementedError):
        return None


def version_of(tensor: torch.Tensor) -> int:
    """How often a tensor was written to, as autograd counts; -1 for tensors of inference mode, which do not count."""
    try:
        return int(_version(tensor))
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
