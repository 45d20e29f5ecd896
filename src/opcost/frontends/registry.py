"""Who reads what: the front ends are asked in turn.

Whose object this is, is asked without importing a framework: a live object's framework is already in `sys.modules`.
"""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any, Protocol

from opcost.core.plugin import FRONTENDS, tell_fault, usable
from opcost.core.reading import head_of, is_nameless
from opcost.errors import AmbiguousSource, UnknownSource

if TYPE_CHECKING:
    from opcost.core.graph import Graph
    from opcost.frontends.options import CountOptions, Option

FUNCTIONS = (FunctionType, MethodType, BuiltinFunctionType, partial)
"""What can be called and is not an object of a framework."""
HEAD_BYTES = 4096
"""How much of a file a front end sees when it is asked whether it reads it."""


class FrontEnd(Protocol):
    """One way to turn a model into a `Graph`. Importing a front end must not import its framework; `load` may.

    A class that derives from this one writes only what it does otherwise, which is `load` at the least.
    """

    name: str
    framework: str
    """The module whose presence in `sys.modules` means that objects of this front end may exist."""
    suffixes: tuple[str, ...] = ()
    """File suffixes it reads, with the dot; empty for live objects only."""
    options: tuple[Option, ...] = ()
    """What it can be told and others cannot; on the command line these are flags."""
    understands: frozenset[str] = frozenset()
    """Which of `sizes` and `dtype` of the options it heeds: sizes are refused else, a type is set afterwards."""

    def sniff(self, head: bytes, path: Path) -> bool:
        """Whether a file with one of the suffixes and this beginning is really ours."""
        return False

    def owns(self, obj: object) -> bool:
        """Whether a live object is ours; asked only if the framework is in `sys.modules`."""
        return False

    def named(self, text: str) -> Path | None:
        """The file that is meant by a text that is not a file itself, such as the prefix that several files share."""
        return None

    def build(self, factory: Callable[..., object], kwargs: Mapping[str, object]) -> object:
        """The model that a factory makes, without memory for its weights where that can be had."""
        return factory(**kwargs)

    @abstractmethod
    def load(self, source: Any, options: CountOptions) -> Graph:
        """The graph of a model, which is the path of a file or an object; `options` is what `opcost.count` was told."""


def frontends() -> tuple[FrontEnd, ...]:
    """All front ends, in the order of their names."""
    return tuple(frontend for _, frontend in sorted(usable(FRONTENDS).items()))


def _claims(asked: Iterable[FrontEnd], question: Callable[[FrontEnd], bool], doing: str) -> list[FrontEnd]:
    """Those who say yes; one that fails to answer is told and not asked further."""
    claims = []
    for frontend in asked:
        try:
            if question(frontend):
                claims.append(frontend)
        except KeyboardInterrupt:
            raise
        except BaseException as exc:  # noqa: BLE001 - a plug-in may raise anything
            tell_fault(FRONTENDS, frontend, doing, exc)
    return claims


def file_named(text: str) -> Path | None:
    """The file that some front end understands by a text that is not a file itself."""
    found: list[Path] = []

    def ask(frontend: FrontEnd) -> bool:
        if (path := frontend.named(text)) is not None:
            found.append(path)
        return path is not None

    _claims(frontends(), ask, "asked which file is meant")
    return found[0] if found else None


def owner(obj: object) -> FrontEnd:
    """The one front end that counts this object; none, or more than one, is an error and not a guess."""
    asked = [frontend for frontend in frontends() if frontend.framework in sys.modules]
    claims = _claims(asked, lambda frontend: frontend.owns(obj), "asked whether an object is its own")
    if len(claims) == 1:
        return claims[0]
    kind = f"{type(obj).__module__}.{type(obj).__qualname__}".removeprefix("builtins.")
    if claims:
        names = " and ".join(frontend.name for frontend in claims)
        raise AmbiguousSource(f"{names} both claim an object of type {kind}")
    if isinstance(obj, type):
        raise UnknownSource(f"{obj.__qualname__} is a class, not a model", hint=f"make one: {obj.__qualname__}(...)")
    names = ", ".join(frontend.name for frontend in frontends()) or "none"
    raise UnknownSource(
        f"an object of type {kind} is not a model that opcost can count",
        hint=f"pass a model of one of the front ends: {names}",
    )


def reader(path: Path) -> FrontEnd | None:
    """The front end that reads this file: the suffix narrows, the content decides; None if nobody does.

    What comes through a pipe has no suffix, so that everybody is asked who reads files.
    """
    suffixes = "".join(path.suffixes).lower()
    nameless = is_nameless(path)
    asked = [
        frontend
        for frontend in frontends()
        if any(nameless or suffixes.endswith(suffix) for suffix in frontend.suffixes)
    ]
    if not asked:
        return None
    head = head_of(path, HEAD_BYTES)
    claims = _claims(asked, lambda frontend: frontend.sniff(head, path), "asked whether it reads a file")
    if len(claims) > 1:
        raise AmbiguousSource(f"{' and '.join(frontend.name for frontend in claims)} both claim the file {path}")
    return claims[0] if claims else None
