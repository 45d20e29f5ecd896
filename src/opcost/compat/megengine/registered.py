"""Layers that a user has told `module_stats` about: classes that have a line, and functions that know their FLOPs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

FlopsOf = Callable[[Any, Any, Any], Any]
"""From a module, its inputs and its outputs to a number."""

_flops: dict[type, FlopsOf] = {}
_hooked: set[type] = set()


def register_flops(*modules: type) -> Callable[[FlopsOf], FlopsOf]:
    """Make a function of (module, inputs, outputs) the price of some classes and of what is built on them."""

    def register(function: FlopsOf) -> FlopsOf:
        _flops.update(dict.fromkeys(modules, function))
        return function

    return register


def register_hook_module(module: type | Iterable[type]) -> None:
    """Give classes, and what is built on them, a line of their own."""
    for kind in module if isinstance(module, (tuple, list)) else (module,):
        if not isinstance(kind, type):
            raise TypeError(f"a class of modules is registered, or a list of them, not {kind!r}")
        _hooked.add(kind)


def is_registered(module: Any) -> bool:
    """Whether a user gave the class of a module, or one that it is built on, a line or a price."""
    return any(kind in _hooked or kind in _flops for kind in type(module).__mro__)


def registered_flops(module: Any) -> FlopsOf | None:
    """The function that the nearest class of a module was given."""
    return next((_flops[kind] for kind in type(module).__mro__ if kind in _flops), None)
