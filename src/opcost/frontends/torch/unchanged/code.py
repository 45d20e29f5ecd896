"""What a model's code reaches without holding it: globals by name, class attributes, defaults and attributes of functions.

Only what the code names is kept, starting from the methods that a forward pass runs: the modules of a large library hold
thousands of functions, of which a model names a few dozen.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import lru_cache
from types import CodeType, FunctionType, ModuleType
from typing import Any

_ABSENT = object()
_NO_MODELS = (
    "functorch huggingface_hub numpy opcost packaging psutil requests rich safetensors torch torchgen tqdm yaml"
)
_NOT_THE_USERS = frozenset({*sys.stdlib_module_names, *_NO_MODELS.split()}) - {"__main__"}
"""Whose modules are not looked into: they keep no tensor of a model."""
_RUN_BY_PYTHON = frozenset(
    f"__{name}__"
    for name in (
        "call", "getattr", "getattribute", "setattr", "getitem", "setitem", "len", "iter", "next", "enter", "exit", "get",
        "set", "bool", "contains", "torch_function", "torch_dispatch",
    )
) | {"forward"}  # fmt: skip
"""Methods that run without being named."""
_OF_PYTHON = frozenset(
    f"__{name}__"
    for name in ("annotations", "dict", "dataclass_fields", "dataclass_params", "doc", "module", "slots", "weakref")
)
"""Class attributes in which nothing is kept."""


class Code:
    """The functions and classes that were reached, and what they name."""

    def __init__(self, push: Callable[[Any], None]) -> None:
        self._push = push
        self._classes: dict[type, dict[str, Any]] = {}
        self._functions: list[tuple[FunctionType, Any, Any, bool]] = []
        self._globals: dict[int, tuple[dict[str, Any], dict[str, Any]]] = {}
        self._named: set[str] = set(_RUN_BY_PYTHON)
        self._unnamed: dict[str, list[Any]] = {}
        """Methods by name that no code has named so far."""

    # -- taking -------------------------------------------------------------------------------------------------

    def take_class(self, cls: type) -> None:
        """Keep the attributes of a class and of those above it, where they are somebody's own."""
        if cls in self._classes or not is_users(cls.__module__):
            return
        for base in cls.__mro__:
            if base not in self._classes:
                self._classes[base] = {}
                if is_users(base.__module__):
                    self._take_namespace(base)

    def _take_namespace(self, cls: type) -> None:
        held = self._classes[cls] = dict(vars(cls))
        for name, value in held.items():
            if name in _OF_PYTHON:
                continue
            function = getattr(value, "__func__", None) or getattr(value, "fget", None) or getattr(value, "func", value)
            if type(function) is not FunctionType:
                self._push(value)
            elif name in self._named:
                self._push(function)
            else:
                self._unnamed.setdefault(name, []).append(function)

    def take_function(self, function: FunctionType) -> None:
        """Keep the defaults and attributes of a function, and what its code names in its module."""
        defaults, keyword, attributes = function.__defaults__, function.__kwdefaults__, function.__dict__
        self._functions.append((function, defaults, keyword, bool(attributes)))
        for held in (*(defaults or ()), keyword, attributes or None):
            if held is not None:
                self._push(held)
        space = function.__globals__
        if not is_users(space.get("__name__")):
            return
        names = _names(function.__code__)
        spaces = [space]
        for at in spaces:
            kept = self._globals.setdefault(id(at), (at, {}))[1]
            for name in names:
                if name not in kept and (name in at or at is space):
                    value = kept[name] = at.get(name, _ABSENT)
                    if type(value) is not ModuleType:
                        self._push(value)
                    elif is_users(value.__name__):
                        spaces.append(vars(value))
        for name in names:
            self._named.add(name)
            for method in self._unnamed.pop(name, ()):
                self._push(method)

    # -- putting back -------------------------------------------------------------------------------------------

    def put_back(self) -> None:
        for cls, held in self._classes.items():
            if held:
                _put_back_class(cls, held)
        for function, defaults, keyword, attributes in self._functions:
            if function.__defaults__ is not defaults:
                function.__defaults__ = defaults
            if function.__kwdefaults__ is not keyword:
                function.__kwdefaults__ = keyword
            if not attributes and function.__dict__:
                function.__dict__.clear()
        for space, kept in self._globals.values():
            for name, value in kept.items():
                if space.get(name, _ABSENT) is value:
                    continue
                if value is _ABSENT:
                    del space[name]
                else:
                    space[name] = value


def _put_back_class(cls: type, held: dict[str, Any]) -> None:
    now = vars(cls)
    for name in [name for name in now if name not in held]:
        if not name.startswith("__"):  # Python itself adds some, such as the annotations that were asked for
            type.__delattr__(cls, name)
    for name, value in held.items():
        if now.get(name, _ABSENT) is not value:
            type.__setattr__(cls, name, value)


def is_users(module: Any) -> bool:
    """Whether a module, by its name, is somebody's own and not Python's, PyTorch's or ours."""
    return isinstance(module, str) and module.partition(".")[0] not in _NOT_THE_USERS


@lru_cache(maxsize=1 << 14)
def _names(code: CodeType) -> tuple[str, ...]:
    """Every global and attribute that a function's code names, that of functions inside it included."""
    found = dict.fromkeys(code.co_names)
    for constant in code.co_consts:
        if type(constant) is CodeType:
            found.update(dict.fromkeys(_names(constant)))
    return tuple(found)
