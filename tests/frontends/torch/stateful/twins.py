"""What an untouched twin of a model answers: the measure of a model that an entry point was called with."""

from __future__ import annotations

import contextvars
from functools import cache
from typing import Any

import torch
from stateful import process
from stateful.entry_points import ENTRY_POINTS, call
from stateful.registry import Made, made, seed
from torch import Tensor


def warm_entry_points() -> None:
    """The first use of an entry point imports what it needs; test_first_use looks at that."""
    for entry in ENTRY_POINTS:
        with process.kept(), made("caches", "KeysInBuffers") as twin:
            call(entry, twin.model, twin.case.inputs())


def outputs(twin: Made) -> list[Any]:
    """What a model answers when it is called twice, as its user would."""
    return [once(twin), once(twin)]


def once(twin: Made) -> Any:
    """What it answers to one call, or the error that it raises."""
    seed()
    try:
        return _plain(twin())
    except (RuntimeError, ValueError) as exc:
        return f"{type(exc).__name__}: {exc}"


def _plain(result: Any) -> Any:
    if isinstance(result, Tensor):
        assert type(result) is Tensor, f"a {type(result).__name__} came out"
        return str(result.dtype), result.detach().to(torch.float64).tolist()
    if isinstance(result, dict):
        return {name: _plain(value) for name, value in result.items()}
    return [_plain(item) for item in result] if isinstance(result, (tuple, list)) else result


@cache
def expected(family: str, name: str) -> list[Any]:
    """What an untouched twin answers."""
    with process.kept(), made(family, name) as twin:
        return contextvars.copy_context().run(outputs, twin)
