"""The table of stateful models: each is in a file of its family, under a decorator that says what its forward changes.

A family's file is loaded anew for every model that is made, so that globals, classes, caches and closures of one test are
never those of another, and two models that are made are twins that share nothing.
"""

from __future__ import annotations

import itertools
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

B, D = 4, 6
SEED = 5
FOLDER = Path(__file__).parent / "families"
FAMILIES = tuple(sorted(path.stem for path in FOLDER.glob("*.py")))
MARK = "user_code_"
"""How the names of freshly loaded files begin: this is what the snapshot takes for the user's own code."""
_serial = itertools.count()


def x() -> Tensor:
    return torch.linspace(-1, 1, B * D).reshape(B, D)


@dataclass(frozen=True, kw_only=True)
class Case:
    """One model, and what must be known about it."""

    make: Callable[[], nn.Module]
    why: str
    inputs: Callable[[], tuple[Any, ...]]
    holder: str = ""
    """The name of something that cannot be restored (a generator has no way back): it may be refused by this name."""
    fails: bool = False
    """Its forward raises in the end."""
    restless: bool = True
    """Running it does change something that the snapshot sees."""
    modules: tuple[str, ...] = ()
    """Modules of an installed library that keep something of the model's: they belong to the snapshot."""


def stateful(
    why: str,
    *,
    inputs: Callable[[], tuple[Any, ...]] = lambda: (x(),),
    holder: str = "",
    fails: bool = False,
    restless: bool = True,
    modules: tuple[str, ...] = (),
) -> Callable[[Any], Any]:
    """Put a class, or a function that makes a model, into the table of its file."""

    def register(make: Any) -> Any:
        table = vars(sys.modules[make.__module__]).setdefault("CASES", {})
        table[make.__name__] = Case(
            make=make, why=why, inputs=inputs, holder=holder, fails=fails, restless=restless, modules=modules
        )
        return make

    return register


def load(family: str) -> ModuleType:
    """The file of a family as a module that was never used."""
    name, path = f"{MARK}{family}_{next(_serial)}", FOLDER / f"{family}.py"
    module = sys.modules[name] = ModuleType(name)
    module.__file__ = str(path)
    exec(_compiled(path), vars(module))
    return module


@cache
def _compiled(path: Path) -> CodeType:
    return compile(path.read_text(encoding="utf-8"), path, "exec")


def seed() -> None:
    torch.default_generator.manual_seed(SEED)
    random.seed(SEED)
    np.random.seed(SEED)  # noqa: NPY002 - the generator that models use without asking


@dataclass(frozen=True)
class Made:
    """A model that was made, in a file of its own."""

    case: Case
    model: nn.Module
    home: ModuleType

    def __call__(self) -> Any:
        """Run the model as its user would."""
        return self.model(*self.case.inputs())


@contextmanager
def made(family: str, name: str) -> Iterator[Made]:
    """A model, always the same one, with nothing kept from any model before it."""
    home = load(family)
    case: Case = home.CASES[name]
    for module in case.modules:
        _forget(sys.modules.get(module))
    seed()
    try:
        model = case.make()
        seed()
        yield Made(case, model, home)
    finally:
        for other in [name for name in sys.modules if name.startswith(home.__name__)]:
            del sys.modules[other]


def _forget(module: ModuleType | None) -> None:
    """Empty the caches of a library's functions and methods, which a model before this one may have filled."""
    for value in list(vars(module).values()) if module is not None else ():
        inside = vars(value).values() if isinstance(value, type) else (value,)
        for function in inside:
            for cell in getattr(getattr(function, "__func__", function), "__closure__", None) or ():
                if hasattr(cell.cell_contents, "cache_clear"):
                    cell.cell_contents.cache_clear()


def _names() -> list[tuple[str, str]]:
    found = []
    for family in FAMILIES:
        home = load(family)
        del sys.modules[home.__name__]
        found += [(family, name) for name in vars(home).get("CASES", ())]
    return found


ALL = _names()
