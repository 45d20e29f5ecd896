"""Where something is held, in words: for the error about what cannot be put back."""

from __future__ import annotations

import gc
from collections.abc import Iterable
from types import CellType, FrameType, FunctionType, ModuleType
from typing import Any

from opcost.frontends.torch.tree import dictionary_of

_STEPS = 20_000
"""So many objects are looked at before the search is given up."""


def path_to(wanted: Any, roots: Iterable[Any]) -> str:
    """The attributes and keys by which something is reached from a model, else what kind of thing it is."""
    todo = [(root, type(root).__name__) for root in roots]
    seen: set[int] = set()
    for value, path in todo:
        if value is wanted:
            return path
        kind = type(value)
        if id(value) in seen or issubclass(kind, (str, int, float, bytes, type, ModuleType)) or len(todo) > _STEPS:
            continue
        seen.add(id(value))
        if issubclass(kind, dict):
            todo += [(held, f"{path}[{_said(key)}]") for key, held in list(dict.items(value))]
        elif exact := next((exact for exact in _SEQUENCES if issubclass(kind, exact)), None):
            todo += [(held, f"{path}[{index}]") for index, held in enumerate(list(exact.__iter__(value)))]
        elif attributes := dictionary_of(value):
            todo += [(held, f"{path}.{name}") for name, held in list(attributes.items())]
            for group in ("_modules", "_buffers", "_parameters"):  # a module's parts go by their own names
                if issubclass(type(found := attributes.get(group)), dict):
                    todo += [(held, f"{path}.{name}") for name, held in dict.items(found)]  # type: ignore[arg-type]
    return f"a {type(wanted).__name__}"


_SEQUENCES: tuple[Any, ...] = (list, tuple, set, frozenset)


def _said(key: Any) -> str:
    """A key in words; what a user's own class says of itself is not asked."""
    return repr(key) if type(key) in (str, int, float, bool, bytes, type(None)) else f"a {type(key).__name__}"


def holder_of(held: Any, ours: Iterable[Any] = ()) -> str:
    """What holds on to something, in words, found by asking the garbage collector who refers to it."""
    skip = {id(one) for one in ours}
    words = ""
    for _ in range(8):
        referrers = [one for one in gc.get_referrers(held) if id(one) not in skip and type(one) is not FrameType]
        if not referrers:
            break
        holder = referrers[0]
        skip |= {id(referrers), id(holder)}
        kind = type(holder)
        if kind is dict and type(name := holder.get("__name__")) is str and "__builtins__" in holder:
            key = next((key for key, value in holder.items() if value is held), "?")
            return f"the global {name}.{key}{words}"
        if issubclass(kind, dict):
            key = next((key for key, value in dict.items(holder) if value is held), "?")
            words = f"[{_said(key)}]{words}"
        elif issubclass(kind, (CellType, tuple, list, set)):
            pass
        elif kind is FunctionType:
            return f"the function {holder.__qualname__}"
        else:
            name = next((name for name, value in (dictionary_of(holder) or {}).items() if value is held), "")
            return f"an object of type {type(holder).__qualname__}{'.' + name if name else ''}{words}"
        held = holder
    return f"something that Python does not name{words}"
