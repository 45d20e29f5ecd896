"""Functions that rows of data name: operators of MXNet and MegEngine are rows of JSON, and what depends on a call is code."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any


def functions(names: Iterable[str]) -> dict[str, str]:
    """Names of a framework and ours of the functions: `name=ours`, or the name alone where it is the same word."""
    words = (word.partition("=") for text in names for word in text.split())
    return {name: fn or name.lower() for name, _, fn in words}


class RowFunctions(dict[str, Callable[..., Any]]):
    """The functions by their names; `_split` of a module is `split` in a row."""

    def enter(self, *modules: ModuleType) -> None:
        """Let rows name all functions of these modules."""
        for module in modules:
            for name, each in vars(module).items():
                if callable(each) and getattr(each, "__module__", "") == module.__name__:
                    self[name.strip("_")] = each

    def named(self, text: str) -> Callable[..., Any]:
        """A function by its name, which may have `@` before it, with the words behind it as further arguments."""
        name, *words = text.removeprefix("@").split()
        function, more = self[name], [int(word) if word.isdecimal() else word for word in words]
        return (lambda call: function(call, *more)) if more else function
