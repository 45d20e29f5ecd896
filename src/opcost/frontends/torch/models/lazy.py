"""Lazy modules: their parameters get shapes from the first input, on a copy, so the user's stay lazy."""

from __future__ import annotations

import copy
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter, UninitializedTensorMixin
from torch.utils._python_dispatch import _disable_current_modes

from opcost.frontends.torch.tree import map_tensors
from opcost.frontends.torch.unchanged.replaced import replaced


def countable(model: nn.Module, *, real: bool = False) -> nn.Module:
    """The model itself, or, where something in it is lazy, a copy that shares every tensor that already exists.

    What is lazy settles without memory, unless the run is to be `real`.
    """
    return settled_apart(model, model, None if real else "meta") if is_waiting(model) else model


def is_waiting(model: nn.Module) -> bool:
    """Whether something in a model has no shape yet."""
    return any(is_unsettled(tensor) for tensor in (*model.parameters(), *model.buffers()))


def settled_apart(source: Any, model: nn.Module, device: str | None = None) -> Any:
    """A copy of a model, or of what is wrapped around it, in which the lazy parts can settle; the rest is shared."""
    memo: dict[int, Any] = {}
    for tensor in (*model.parameters(), *model.buffers()):
        where = device or tensor.device
        if isinstance(tensor, UninitializedParameter):
            memo[id(tensor)] = UninitializedParameter(tensor.requires_grad, device=where, dtype=tensor.dtype)  # type: ignore[no-untyped-call]
        elif isinstance(tensor, UninitializedBuffer):
            memo[id(tensor)] = UninitializedBuffer(device=where, dtype=tensor.dtype)  # type: ignore[no-untyped-call]
        else:
            memo[id(tensor)] = tensor
    return copy.deepcopy(source, memo)


def settling_unseen() -> AbstractContextManager[None]:
    """Let forward give shapes to parameters and buffers itself: the call looks at a tensor that has none yet."""
    settle_one = UninitializedTensorMixin.materialize

    def materialize(tensor: Any, *args: Any, **kwargs: Any) -> None:
        with _disable_current_modes():
            settle_one(tensor, *args, **kwargs)  # type: ignore[no-untyped-call]

    return replaced(UninitializedTensorMixin, "materialize", materialize)


def is_unsettled(tensor: torch.Tensor) -> bool:
    """Whether a parameter or buffer has no shape yet."""
    return isinstance(tensor, UninitializedTensorMixin)


def is_lazy(module: nn.Module) -> bool:
    """Whether this module still waits for its first input."""
    return isinstance(module, LazyModuleMixin) and module.has_uninitialized_params()  # type: ignore[misc]


def settle(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Give a lazy module its parameters, on the meta device, from the shapes of its inputs."""
    with _disable_current_modes():
        args, kwargs = map_tensors(
            (args, kwargs), lambda tensor: tensor.sig.meta() if hasattr(tensor, "sig") else tensor
        )
        module._infer_parameters(module, args, kwargs)
