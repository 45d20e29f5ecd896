"""Which module is running: one wrapper around `nn.Module.__call__`, in place only while something is recorded.

Hooks on every module would take the slow path of every call and leave traces when a forward raises. The wrapper serves
only the thread that records; calls from other threads go straight through. The threads of the autograd engine are an
exception on demand: with checkpoints, a backward pass on a device calls modules there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

_active = threading.local()


class _Wrapper:
    """What stands in place of `nn.Module.__call__`, and how many recordings need it now."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.users = 0
        self.plain: Callable[..., Any] = nn.Module.__call__
        self.enter_in_engine: Callable[..., Any] | None = None


_wrapper = _Wrapper()


def _scoped_call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
    enter = getattr(_active, "enter", None)
    if enter is None and _wrapper.enter_in_engine is not None and torch._C._current_autograd_node() is not None:
        enter = _wrapper.enter_in_engine
    if enter is None:
        return _wrapper.plain(module, *args, **kwargs)
    return enter(module, args, kwargs)


@contextmanager
def intercept_calls(
    enter: Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], Any], *, engine: bool = False
) -> Iterator[None]:
    """Hand every module call of this thread to `enter(module, args, kwargs)` for the time of the block.

    With `engine`, also those of the autograd engine's own threads.
    """
    outer = getattr(_active, "enter", None)
    with _wrapper.lock:
        if _wrapper.users == 0:
            _wrapper.plain = nn.Module.__call__
            nn.Module.__call__ = _scoped_call  # type: ignore[method-assign, assignment]
        _wrapper.users += 1
    _active.enter = enter
    outer_engine = _wrapper.enter_in_engine
    if engine:
        _wrapper.enter_in_engine = enter
    try:
        yield
    finally:
        _active.enter = outer
        _wrapper.enter_in_engine = outer_engine
        with _wrapper.lock:
            _wrapper.users -= 1
            if _wrapper.users == 0:
                nn.Module.__call__ = _wrapper.plain  # type: ignore[method-assign, assignment]


class Paths:
    """The paths of a model's modules; one object may stand under several."""

    def __init__(self, model: nn.Module) -> None:
        self.all: list[tuple[str, nn.Module]] = []
        self._of: dict[int, list[str]] = {}
        self.adopted: Callable[[str, nn.Module], None] = lambda path, module: None
        """Told of every module that the model does not register."""
        self._at: dict[str, nn.Module] = {}
        for path, module in model.named_modules(remove_duplicate=False):
            self._add(path, module)

    def _add(self, path: str, module: nn.Module) -> None:
        self.all.append((path, module))
        self._at[path] = module
        self._of.setdefault(id(module), []).append(path)

    def path(self, module: nn.Module, running: str) -> str:
        """The path under which `module` is called from inside `running`.

        A module that the model does not register (one kept in a plain list) gets a path below the one that calls it.
        """
        found = self._of.get(id(module))
        if found is None:
            self._take_in(running, self._at[running])
            found = self._of.get(id(module))
        if found is None:
            return self._adopt(module, running)
        if len(found) == 1:
            return found[0]
        for path in found:
            if path.rpartition(".")[0] == running:
                return path
        return next((path for path in found if path.startswith(f"{running}.")), found[0])

    def take_in_made(self) -> None:
        """Give a path to every module that forward made and registered."""
        for path, module in list(self.all):
            self._take_in(path, module)

    def _take_in(self, path: str, module: nn.Module) -> None:
        for name, child in module._modules.items():
            inside = f"{path}.{name}" if path else name
            if child is None:
                continue
            if id(child) not in self._of:
                self._add_tree(inside, child)
            elif isinstance(child, (nn.ModuleList, nn.ModuleDict, nn.Sequential)):
                self._take_in(inside, child)

    def _add_tree(self, path: str, module: nn.Module) -> None:
        for below, inner in module.named_modules(prefix=path, remove_duplicate=False):
            self._add(below, inner)
            self.adopted(below, inner)

    def _adopt(self, module: nn.Module, running: str) -> str:
        stem = f"{running}." if running else ""
        taken = {path for path, _ in self.all}
        name = f"<{type(module).__name__}>"
        serial = 1
        while f"{stem}{name}" in taken:
            serial += 1
            name = f"<{type(module).__name__} {serial}>"
        self._add_tree(f"{stem}{name}", module)
        return f"{stem}{name}"
