"""What a model's code reaches without holding it: globals by name, class attributes, defaults and attributes of functions.

Only what the code names is kept, starting from the methods that a forward pass runs: the modules of a large library hold
thousands of functions, of which a model names a few dozen.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from functools import _lru_cache_wrapper, cached_property, lru_cache
from operator import is_
from types import CodeType, FunctionType, ModuleType
from typing import Any

from opcost.frontends.torch.tree import dictionary_of
from opcost.frontends.torch.unchanged.caches import is_bounded_and_filled, scratch

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
        self._classes: dict[int, tuple[type, dict[str, Any]]] = {}
        """By identity: the hash of a class may be code of a user's."""
        self._functions: list[tuple[FunctionType, Any, Any, bool]] = []
        self._globals: dict[int, tuple[dict[str, Any], dict[str, Any], set[str]]] = {}
        """Modules' namespaces: the dictionary itself, what was in it, and which of its names no code has named so far."""
        self._foreign: dict[int, tuple[dict[str, Any], dict[str, Any]]] = {}
        """The same of modules of others that the code names; only what the code itself names is put back there."""
        self._scratches: dict[int, Any] = {}
        self._named: set[str] = set(_RUN_BY_PYTHON)
        self._unnamed: dict[str, list[Any]] = {}
        """Methods by name that no code has named so far."""

    # -- taking -------------------------------------------------------------------------------------------------

    def take_class(self, cls: type) -> None:
        """Keep the attributes of a class and of those above it, where they are somebody's own."""
        if id(cls) in self._classes:
            return
        for base in _of_class(cls, "__mro__"):
            if id(base) not in self._classes:
                self._classes[id(base)] = base, {}
                if is_users(_home(base)) or _is_made_on_the_way(base):
                    self._take_namespace(base)

    def _take_namespace(self, cls: type) -> None:
        held = dict(_of_class(cls, "__dict__"))
        self._classes[id(cls)] = cls, held
        for name, value in held.items():
            if name in _OF_PYTHON:
                continue
            inside = _FUNCTION_IN.get(id(type(value)))
            function = value if inside is None else getattr(value, inside)
            if type(value) is _lru_cache_wrapper and is_bounded_and_filled(value):
                type.__setattr__(cls, name, self._scratch(value))
            elif type(function) is not FunctionType:
                self._push(value)
            elif name in self._named:
                self._push(function)
            else:
                self._unnamed.setdefault(name, []).append(function)

    def take_function(self, function: FunctionType) -> None:
        """Keep the defaults and attributes of a function, and what its code names in its module."""
        defaults, keyword, attributes = function.__defaults__, function.__kwdefaults__, function.__dict__
        self._functions.append((function, defaults, keyword, bool(attributes)))
        for held in (*(() if defaults is None else tuple.__iter__(defaults)), keyword, attributes or None):
            if held is not None:
                self._push(held)
        space = function.__globals__
        if not is_users(space.get("__name__")):
            return
        names = _names(function.__code__)
        spaces = [space]
        for at in spaces:
            if id(at) not in self._globals:
                self._globals[id(at)] = at, dict(at), set(at)
            _, held, left = self._globals[id(at)]
            named = names & left
            left -= named
            for name in named:
                value = held[name]
                if type(value) is ModuleType:
                    if is_users(value.__name__):
                        spaces.append(vars(value))
                    elif id(value) not in self._foreign:
                        self._foreign[id(value)] = vars(value), dict(vars(value))
                elif type(value) is _lru_cache_wrapper and is_bounded_and_filled(value):
                    at[name] = self._scratch(value)
                else:
                    self._push(value)
        self._named |= names
        for name in names & self._unnamed.keys():
            for method in self._unnamed.pop(name):
                self._push(method)

    def _scratch(self, cache: Any) -> Any:
        """For the time of the run, what stands in the place of a cache that could not be put back."""
        for held in gc.get_referents(cache):  # results and what they were asked with, among other things
            if type(held) is not dict and not issubclass(type(held), type):
                self._push(held)
        return self._scratches.setdefault(id(cache), scratch(cache))

    # -- putting back -------------------------------------------------------------------------------------------

    def put_back(self) -> None:
        for cls, held in self._classes.values():
            if held:
                _put_back_class(cls, held)
        for function, defaults, keyword, attributes in self._functions:
            if function.__defaults__ is not defaults:
                function.__defaults__ = defaults
            if function.__kwdefaults__ is not keyword:
                function.__kwdefaults__ = keyword
            if not attributes and function.__dict__:
                function.__dict__.clear()
        for space, kept, _ in self._globals.values():
            if len(space) != len(kept) or not all(map(is_, space.values(), kept.values())):
                _put_back_globals(space, kept)
        for space, kept in self._foreign.values():
            if len(space) != len(kept) or not all(map(is_, space.values(), kept.values())):
                _put_back_named(space, kept, self._named)


def _is_made_on_the_way(cls: type) -> bool:
    """Whether a class does not stand in its module under its name: parametrizations make one for every module.

    Compiled functions have a class that tells of each function's module and has none of its own.
    """
    home: Any = _home(cls)
    if not isinstance(home, str):
        return False
    return (dictionary_of(sys.modules.get(home)) or {}).get(_of_class(cls, "__qualname__").partition(".")[0]) is None


_TAKE_TEXTS = frozenset({"setattr", "delattr", "vars", "__dict__", "__setattr__", "__delattr__"})
"""By these a name is changed that is given as a text."""
_of_class = type.__getattribute__
"""What Python itself keeps of a class, whatever its own class makes of it."""
_FUNCTION_IN = {
    id(classmethod): "__func__",
    id(staticmethod): "__func__",
    id(property): "fget",
    id(cached_property): "func",
}
"""Where the function is in what stands for a method."""


def _home(cls: type) -> Any:
    return _of_class(cls, "__module__")


def _put_back_globals(space: dict[str, Any], kept: dict[str, Any]) -> None:
    """Names as they were.

    What came by an import on the way stays, for nobody imports it a second time, and so does what PyTorch's compiler keeps
    there for its own code.
    """
    for name in [name for name in space if name not in kept]:
        if not name.startswith("__") and not issubclass(type(space[name]), (ModuleType, FunctionType, type)):
            del space[name]
    for name, value in kept.items():
        if space.get(name, _ABSENT) is not value:
            space[name] = value


def _put_back_named(space: dict[str, Any], kept: dict[str, Any], names: set[str]) -> None:
    """What the user's code names, as it was in a module that is not the user's: the rest is the module's own matter."""
    for name in names & {*space, *kept}:
        if space.get(name, _ABSENT) is kept.get(name, _ABSENT):
            continue
        if name in kept:
            space[name] = kept[name]
        elif type(space[name]) is not ModuleType:  # which an import has put there
            del space[name]


def _put_back_class(cls: type, held: dict[str, Any]) -> None:
    now = _of_class(cls, "__dict__")
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
def _names(code: CodeType) -> frozenset[str]:
    """Every global and attribute that a function's code names, for `setattr` as a text too, functions inside it included."""
    inner = [_names(constant) for constant in code.co_consts if type(constant) is CodeType]
    names = frozenset(code.co_names).union(*inner)
    if names.isdisjoint(_TAKE_TEXTS):
        return names
    return names.union([text for text in code.co_consts if type(text) is str and text.isidentifier()])
