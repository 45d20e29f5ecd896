"""Making a model without allocating its weights: large tensors are made on the meta device, small ones stay real.

Small tensors stay real because constructors read them: `[x.item() for x in torch.linspace(0, rate, depth)]`, index tables,
scalar buffers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from opcost.frontends.torch.unchanged.generators import random_state

LARGE = 1 << 14
"""A tensor of more elements than this is made without memory."""
LONG_RANGE = 1 << 24
"""Ranges stay real up to more elements, because models look at their values: ten million positions have been seen."""
META = torch.device("meta")
_aten = torch.ops.aten
_RANGES = (_aten.arange.start_step, _aten.arange.start, _aten.arange.default)


class _Weightless(TorchDispatchMode):
    """Sends factories of large tensors, and every operator on a tensor without memory, to the meta device."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # as in Recorder

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if _touches_meta(args) or _touches_meta(kwargs.values()):
            if func is _aten._to_copy.default or func is _aten.copy_.default:
                return _copy(func, args, kwargs)
            return func(*_to_meta(args), **_to_meta(kwargs))
        if args and isinstance(args[0], (list, tuple)) and _is_size(args[0]) and prod(args[0]) > LARGE:
            if any(argument.name == "device" for argument in func._schema.arguments):
                kwargs = {**kwargs, "device": META}
        elif func in _RANGES and _extent(*args) > LONG_RANGE:
            kwargs = {**kwargs, "device": META}
        return func(*args, **kwargs)


def _extent(first: float, end: float | None = None, step: float = 1) -> float:
    start, end = (0, first) if end is None else (first, end)
    return (end - start) / step if step else 0


def _copy(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    if func is _aten.copy_.default:
        return args[0]
    return func(*args, **{**kwargs, "device": META})


def _is_size(value: Any) -> bool:
    return all(type(item) is int for item in value)


def _touches_meta(args: Any) -> bool:
    for arg in args:
        if isinstance(arg, torch.Tensor):
            if arg.device.type == "meta":
                return True
        elif isinstance(arg, (list, tuple)) and _touches_meta(arg):
            return True
    return False


def _to_meta(tree: Any) -> Any:
    if isinstance(tree, torch.Tensor):
        return tree if tree.device.type == "meta" else tree.to(META)
    if isinstance(tree, torch.device):
        return META
    if type(tree) in (list, tuple):
        return type(tree)(_to_meta(item) for item in tree)
    if isinstance(tree, dict):
        return {name: _to_meta(value) for name, value in tree.items()}
    return tree


@contextmanager
def weightless() -> Iterator[None]:
    """Inside, large tensors take no memory. Random generators are left as they were."""
    with random_state(), _Weightless():
        yield
