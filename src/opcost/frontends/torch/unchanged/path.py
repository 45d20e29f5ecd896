"""Where something is held, in words: for the error about what cannot be put back."""

from __future__ import annotations

import gc
from collections.abc import Iterable
from types import CellType, FrameType, FunctionType, ModuleType
from typing import Any

_STEPS = 20_000
"""So many objects are looked at before the search is given up."""


def path_to(wanted: Any, roots: Iterable[Any]) -> str:
    """The attributes and keys by which something is reached from a model, else what kind of thing it is."""
    todo = [(root, type(root).__name__) for root in roots]
    seen: set[int] = set()
    for value, path in todo:
        if value is wanted:
            return path
        if id(value) in seen or isinstance(value, (str, int, float, bytes, type, ModuleType)) or len(todo) > _STEPS:
            continue
        seen.add(id(value))
        if isinstance(value, dict):
            todo += [(held, f"{path}[{key!r}]") for key, held in list(value.items())]
        elif isinstance(value, (list, tuple, set, frozenset)):
            todo += [(held, f"{path}[{index}]") for index, held in enumerate(list(value))]
        elif isinstance(attributes := getattr(value, "__dict__", None), dict):
            todo += [(held, f"{path}.{name}") for name, held in list(attributes.items())]
            for group in ("_modules", "_buffers", "_parameters"):  # a module's parts go by their own names
                todo += [(held, f"{path}.{name}") for name, held in (attributes.get(group) or {}).items()]
    return f"a {type(wanted).__name__}"


def holder_of(held: Any, ours: Iterable[Any] = ()) -> str:
    """What holds on to something, in words, found by asking the garbage collector who refers to it."""
    skip = {id(one) for one in ours}
    words = ""
    for _ in range(8):
        referrers = [one for one in gc.get_referrers(held) if id(one) not in skip and not isinstance(one, FrameType)]
        if not referrers:
            break
        holder = referrers[0]
        skip |= {id(referrers), id(holder)}
        if isinstance(holder, dict) and isinstance(name := holder.get("__name__"), str) and "__builtins__" in holder:
            key = next((key for key, value in holder.items() if value is held), "?")
            return f"the global {name}.{key}{words}"
        if isinstance(holder, dict):
            key = next((key for key, value in holder.items() if value is held), "?")
            words = f"[{key!r}]{words}"
        elif isinstance(holder, (CellType, tuple, list, set)):
            pass
        elif isinstance(holder, FunctionType):
            return f"the function {holder.__qualname__}"
        else:
            name = next((name for name, value in getattr(holder, "__dict__", {}).items() if value is held), "")
            return f"an object of type {type(holder).__qualname__}{'.' + name if name else ''}{words}"
        held = holder
    return f"something that Python does not name{words}"
