"""How long each module takes in one real run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn

from opcost.compat._layers.undisturbed import undisturbed
from opcost.frontends.torch.load import device_of
from opcost.frontends.torch.tree import map_tensors


def seconds_by_module(
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None = None,
    *,
    warm_up: int = 1,
    called: Callable[..., Any] | None = None,
) -> dict[int, float]:
    """Seconds in each module's own forward by the module's id, what it calls left out; nothing for a model without data."""
    if any(tensor.device.type == "meta" for tensor in (*model.parameters(), *model.buffers())):
        return {}
    device = device_of(model)
    clock = Clock()
    with undisturbed(model, called) as run, clock.on(model):
        given, named = map_tensors((args, dict(kwargs or {})), lambda tensor: _with_data(tensor, device))
        for _ in range(warm_up):
            run(*given, **named)
        clock.seconds.clear()
        run(*given, **named)
    return clock.seconds


def _with_data(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A copy, or, where only a shape was given, noise."""
    if tensor.device.type != "meta":
        return tensor.detach().clone()
    return torch.rand(tensor.shape, device=device).to(tensor.dtype)


class Clock:
    """Adds up the time between hooks for the module that is running."""

    def __init__(self) -> None:
        self.seconds: dict[int, float] = {}
        self._running: list[int] = []
        self._since = 0.0

    @contextmanager
    def on(self, model: nn.Module) -> Iterator[None]:
        """Time the modules of a model inside the block."""
        with ExitStack() as undo:
            for module in model.modules():
                if not isinstance(module, torch.jit.ScriptModule):
                    undo.callback(module.register_forward_pre_hook(self.start).remove)
                    undo.callback(module.register_forward_hook(self.stop, prepend=True).remove)
            yield

    def start(self, module: nn.Module, args: object) -> None:
        self._note()
        self._running.append(id(module))
        self._since = time.perf_counter()

    def stop(self, module: nn.Module, args: object, result: object) -> None:
        self._note()
        self._running.pop()
        self._since = time.perf_counter()

    def _note(self) -> None:
        if self._running:
            running = self._running[-1]
            self.seconds[running] = self.seconds.get(running, 0.0) + time.perf_counter() - self._since
