"""What a model's code reaches by name: globals, class attributes, defaults and attributes of functions, cached results.

Only what the code names is kept, starting from the methods that a forward pass runs: the modules of a large library have
thousands of functions, of which a model names a few dozen.
"""

import functools
import gc
import sys
from collections.abc import Callable, Mapping
from functools import _lru_cache_wrapper, cached_property, lru_cache, partial
from operator import is_
from types import CodeType, FunctionType, ModuleType
from typing import Any

from opcost.frontends.torch.tree import ABSENT, dictionary_of

_OTHERS = "functorch huggingface_hub numpy opcost packaging psutil requests rich safetensors torch torchgen tqdm yaml"
_NOT_THE_USERS = frozenset({*sys.stdlib_module_names, *_OTHERS.split()}) - {"__main__"}
"""Packages whose modules are not searched: they keep no tensor of a model."""
_RUN_BY_PYTHON = frozenset(
    "forward __call__ __getattr__ __getattribute__ __setattr__ __getitem__ __setitem__ __len__ __iter__ __next__ __enter__ "
    "__exit__ __get__ __set__ __bool__ __contains__ __torch_function__ __torch_dispatch__".split()
)
"""Methods that run without being named."""
_OF_PYTHON = frozenset(
    "__annotations__ __dict__ __dataclass_fields__ __dataclass_params__ __doc__ __module__ __slots__ __weakref__".split()
)
"""Class attributes in which nothing is kept."""


class Code:
    """The functions and classes that were reached, and what they name.

    What is reached goes to `push`, and what restores a namespace, a function and its arguments, to `keep`.
    """

    def __init__(self, push: Callable[[Any], None], keep: Callable[[tuple[Any, ...]], None]) -> None:
        self._push, self._keep = push, keep
        self._classes: dict[int, type] = {}
        """By identity: the hash of a class may be code of a user's."""
        self._globals: dict[int, tuple[dict[str, Any], set[str]]] = {}
        """Namespaces of modules: the content of each, and which of its names no code has named so far."""
        self._foreign: set[int] = set()
        """Libraries' modules; only what the user's code itself names is restored there."""
        self._scratches: dict[int, Any] = {}
        self._named: set[str] = set(_RUN_BY_PYTHON)
        self._unnamed: dict[str, list[Any]] = {}
        """Methods by name that no code has named so far."""

    def take_class(self, cls: type) -> None:
        """Keep the attributes of a class and of those above it, where they are the user's."""
        for base in _of_class(cls, "__mro__"):
            if id(base) not in self._classes:
                self._classes[id(base)] = base
                home, name = _of_class(base, "__module__"), _of_class(base, "__qualname__").partition(".")[0]
                # A class that is not found in its module under its name is made on the way: parametrizations make one for
                # every module. The class of compiled functions has the module of each function and none of its own.
                space = dictionary_of(sys.modules.get(home)) if isinstance(home, str) else {name: base}
                if is_users(home) or (space or {}).get(name) is None:
                    self._take_namespace(base)

    def _take_namespace(self, cls: type) -> None:
        space = _of_class(cls, "__dict__")
        kept = dict(space)
        self._keep((_restore_names, space, kept, partial(type.__setattr__, cls), partial(type.__delattr__, cls)))
        for name, value in kept.items():
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
        """Keep what the code of a function names in its module."""
        space = function.__globals__
        if not is_users(space.get("__name__")):
            return
        names = _names(function.__code__)
        spaces = [space]
        for at in spaces:
            if id(at) not in self._globals:
                self._globals[id(at)] = dict(at), set(at)
                self._keep((_restore_names, at, self._globals[id(at)][0], at.__setitem__, at.__delitem__, _IMPORTED))
            kept, left = self._globals[id(at)]
            named = names & left
            left -= named
            for name in named:
                value = kept[name]
                if type(value) is ModuleType:
                    if is_users(value.__name__):
                        spaces.append(vars(value))
                    elif id(value) not in self._foreign:
                        self._foreign.add(id(value))
                        its = vars(value)
                        restore = _restore_names, its, dict(its), its.__setitem__, its.__delitem__
                        self._keep((*restore, (ModuleType,), self._named))
                elif type(value) is _lru_cache_wrapper and is_bounded_and_filled(value):
                    at[name] = self._scratch(value)
                else:
                    self._push(value)
        self._named |= names
        for name in names & self._unnamed.keys():
            for method in self._unnamed.pop(name):
                self._push(method)

    def _scratch(self, cache: Any) -> Any:
        """What replaces a cache that could not be restored, during the run."""
        for value in gc.get_referents(cache):  # results and arguments, among other things
            if type(value) is not dict and not issubclass(type(value), type):
                self._push(value)
        return self._scratches.setdefault(id(cache), scratch(cache))


def _restore_names(
    now: Mapping[str, Any],
    kept: dict[str, Any],
    write: Callable[[str, Any], None],
    delete: Callable[[str], None],
    stay: tuple[type, ...] = (),
    named: set[str] | None = None,
) -> None:
    """Names as they were; new ones are deleted, unless they are Python's own or of a type that may stay."""
    if len(now) == len(kept) and all(map(is_, now.values(), kept.values())):
        return
    for name in {*now, *kept} if named is None else {*now, *kept} & named:
        if now.get(name, ABSENT) is kept.get(name, ABSENT):
            continue
        own = named is None and name.startswith("__")  # such as annotations that were evaluated
        if name in kept:
            write(name, kept[name])
        elif not own and not issubclass(type(now[name]), stay):
            delete(name)


_TAKE_TEXTS = frozenset({"setattr", "delattr", "vars", "__dict__", "__setattr__", "__delattr__"})
"""By these a name is changed that is given as a text."""
_IMPORTED = (ModuleType, FunctionType, type)  # by an import during the run, or by PyTorch's compiler
_of_class = type.__getattribute__  # What Python itself keeps of a class, also where its metaclass overrides it
_FUNCTION_IN = {
    id(classmethod): "__func__", id(staticmethod): "__func__", id(property): "fget", id(cached_property): "func",
}  # fmt: skip
"""The attribute of a descriptor that is its function."""


def is_users(module: Any) -> bool:
    """Whether a module, by its name, is a user's and not Python's, PyTorch's or opcost's."""
    return isinstance(module, str) and module.partition(".")[0] not in _NOT_THE_USERS


@lru_cache(maxsize=1 << 14)
def _names(code: CodeType) -> frozenset[str]:
    """Every global and attribute that a function's code names, for `setattr` as a text too, functions inside it included."""
    inner = [_names(constant) for constant in code.co_consts if type(constant) is CodeType]
    # pytest rewrites `assert` to calls of `@pytest_ar`, a name that no source can have: behind it is all that pytest knows
    names = frozenset([name for name in code.co_names if not name.startswith("@")]).union(*inner)
    if names.isdisjoint(_TAKE_TEXTS):
        return names
    return names.union([text for text in code.co_consts if type(text) is str and text.isidentifier()])


# -- results that `functools.lru_cache` keeps ---------------------------------------------------------------------------


def restorer_of(cache: Any) -> Callable[[], None]:
    """What removes results that are new in a cache, and returns those that it has dropped.

    A bounded cache chains its results, and accepts none from outside: it is emptied if it was empty, and else left. Its content
    is right, unless it is a tensor without data, and these are searched for at the end.
    """
    info = cache.cache_info()
    store = store_of(cache)
    entries = dict(store or {})

    def restore() -> None:
        if cache.cache_info().misses == info.misses:
            return
        if not info.currsize:
            cache.cache_clear()
        elif store is not None:
            store.clear()
            store.update(entries)

    return restore


def is_bounded_and_filled(cache: Any) -> bool:
    """Whether a cache could not be restored, once it has a new result."""
    info = cache.cache_info()
    return info.maxsize is not None and info.currsize > 0


def scratch(cache: Any) -> Callable[..., Any]:
    """A function that returns what the cache does and keeps new results for itself."""
    known = _dictionary(cache)
    typed = cache.cache_parameters()["typed"]
    own: dict[Any, Any] = {}
    cleared: list[bool] = []

    @functools.wraps(cache.__wrapped__)
    def answer(*args: Any, **kwargs: Any) -> Any:
        key = functools._make_key(args, kwargs, typed)
        if key in known and not cleared:
            return cache(*args, **kwargs)
        if key not in own:
            own[key] = cache.__wrapped__(*args, **kwargs)
        return own[key]

    def clear() -> None:
        cleared.append(True)
        own.clear()

    vars(answer).update(cache_info=cache.cache_info, cache_parameters=cache.cache_parameters, cache_clear=clear)
    return answer


def store_of(cache: Any) -> dict[Any, Any] | None:
    """The dictionary in which an unbounded cache keeps its results."""
    return _dictionary(cache) if cache.cache_info().maxsize is None else None


def _dictionary(cache: Any) -> dict[Any, Any]:
    """What a cache finds its results with: the results themselves, or, where it is bounded, links of a chain."""
    return next(one for one in gc.get_referents(cache) if type(one) is dict and one is not cache.__dict__)
