"""Tensor subclasses that answer operators themselves, with plain tensors inside: 2:4 sparse, quantized, distributed.

Their own code takes an operator apart into operators on what lies inside, and those are recorded. So the parameter is what
lies inside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

_OWN_DISPATCH = torch.Tensor.__torch_dispatch__


def is_foreign(tensor: torch.Tensor) -> bool:
    """Whether a tensor's class answers operators itself; a fake one stands for a plain tensor and is taken as that."""
    cls = type(tensor)
    return cls.__torch_dispatch__ is not _OWN_DISPATCH and cls is not FakeTensor


def has_data(tensor: torch.Tensor) -> bool:
    """Whether a tensor's numbers are there: not on the meta device, nor in a fake tensor."""
    return tensor.device.type != "meta" and type(tensor) is not FakeTensor


def laid_out(tensor: torch.Tensor) -> torch.Tensor | None:
    """What is there of a tensor that has no one shape here: the elements of all components, or this rank's shard."""
    if not is_foreign(tensor) or not hasattr(tensor, "__tensor_flatten__"):
        return None
    inside = [getattr(tensor, attribute) for attribute in tensor.__tensor_flatten__()[0]]
    tensors = [part for part in inside if isinstance(part, torch.Tensor)]
    return tensors[0] if tensor.is_nested or len(tensors) == 1 else None


def parts(name: str, tensor: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    """The plain tensors that a parameter consists of, with names; for a plain one, itself."""
    if is_foreign(tensor) and hasattr(tensor, "__tensor_flatten__"):
        inside = {attribute: getattr(tensor, attribute) for attribute in tensor.__tensor_flatten__()[0]}
        tensors = {attribute: part for attribute, part in inside.items() if isinstance(part, torch.Tensor)}
        for attribute, part in tensors.items():
            # What lies alone beside no other tensor, as the shard of a distributed one, is what the parameter is here.
            yield from parts(name if len(tensors) == 1 < len(inside) else f"{name}_{attribute}", part)
    else:
        yield name, tensor


def rebuilt(tensor: Any, change: Callable[[torch.Tensor, str], torch.Tensor]) -> torch.Tensor:
    """A tensor of the same class around changed parts."""
    inside, rest = tensor.__tensor_flatten__()
    parts = {attribute: getattr(tensor, attribute) for attribute in inside}
    changed = {
        attribute: change(part, attribute) if isinstance(part, torch.Tensor) else part
        for attribute, part in parts.items()
    }
    return type(tensor).__tensor_unflatten__(changed, rest, tensor.size(), tensor.stride())  # type: ignore[no-any-return]
