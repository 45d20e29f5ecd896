"""Leaving the user's model as it was: attributes, containers, buffers, random generators, global switches."""

from __future__ import annotations

import random
import sys
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn

_CONTAINERS = (dict, list, set, OrderedDict)


@contextmanager
def unchanged(model: nn.Module) -> Iterator[None]:
    """Put every attribute and plain container of every module back, whatever happens inside.

    Forward passes do change modules: caches, counters, buffers that are assigned anew. Without this, tensors without data
    would stay behind in the user's model.
    """
    before = [_snapshot(module) for module in model.modules()]
    try:
        yield
    finally:
        for attributes, kept, containers in before:
            if not _same_items(attributes, kept):
                attributes.clear()
                attributes.update(kept)
            for container, content in containers:
                _put_back(container, content)


def _snapshot(module: nn.Module) -> tuple[dict[str, Any], dict[str, Any], list[tuple[Any, Any]]]:
    attributes = module.__dict__
    containers: list[tuple[Any, Any]] = []
    for value in attributes.values():
        if value and type(value) in _CONTAINERS:
            _copy_container(value, containers, depth=3)
        elif type(value) in _CONTAINERS:
            containers.append((value, None))
    return attributes, dict(attributes), containers


def _copy_container(container: Any, found: list[tuple[Any, Any]], *, depth: int) -> None:
    found.append((container, container.copy()))
    if depth and not isinstance(container, set):
        for value in container.values() if isinstance(container, dict) else container:
            if type(value) in _CONTAINERS:
                _copy_container(value, found, depth=depth - 1)


def _same_items(now: dict[Any, Any], then: dict[Any, Any]) -> bool:
    return len(now) == len(then) and all(
        a is b and v is w for (a, v), (b, w) in zip(now.items(), then.items(), strict=True)
    )


def _put_back(container: Any, content: Any) -> None:
    if content is None:  # it was empty
        if container:
            container.clear()
    elif isinstance(container, dict):
        if not _same_items(container, content):
            container.clear()
            container.update(content)
    elif isinstance(container, list):
        if len(container) != len(content) or any(a is not b for a, b in zip(container, content, strict=True)):
            container[:] = content
    elif container != content:
        container.clear()
        container.update(content)


@contextmanager
def random_state() -> Iterator[None]:
    """Put the random generators of torch, Python and numpy back."""
    with ExitStack() as undo:
        undo.callback(torch.set_rng_state, torch.get_rng_state())
        undo.callback(random.setstate, random.getstate())
        numpy = sys.modules.get("numpy")
        if numpy is not None and hasattr(numpy, "random"):
            undo.callback(numpy.random.set_state, numpy.random.get_state())
        yield


@contextmanager
def quiet_globals() -> Iterator[None]:
    """Random generators, default types and the switches that a forward may touch or that hide operators."""
    with ExitStack() as undo:
        undo.enter_context(random_state())
        undo.callback(torch.set_default_dtype, torch.get_default_dtype())
        # Casts that autocast keeps for later would be tensors without data.
        undo.callback(torch.clear_autocast_cache)
        undo.callback(torch.set_autocast_cache_enabled, torch.is_autocast_cache_enabled())
        torch.set_autocast_cache_enabled(False)
        # The fused path of nn.MultiheadAttention is one opaque operator; the plain one shows what it consists of.
        undo.callback(torch.backends.mha.set_fastpath_enabled, torch.backends.mha.get_fastpath_enabled())
        torch.backends.mha.set_fastpath_enabled(False)
        undo.enter_context(_eager())
        yield


@contextmanager
def _eager() -> Iterator[None]:
    """Compiled functions run as written: `torch.compile` inside a forward returns the function itself."""
    compile_ = torch.compile
    with ExitStack() as undo:
        if "torch._dynamo" in sys.modules:
            undo.enter_context(torch.compiler.set_stance("force_eager"))  # type: ignore[no-untyped-call]
        undo.callback(setattr, torch, "compile", compile_)
        torch.compile = _as_written  # type: ignore[assignment]
        yield


def _as_written(model: Any = None, **_: Any) -> Any:
    return model if model is not None else _as_written
