"""How long each module takes in one real run."""

from __future__ import annotations

import time
from contextlib import ExitStack

import torch
from torch import nn

from opcost.compat._layers.undisturbed import undisturbed


def seconds_by_module(model: nn.Module, input_size: tuple[int, ...]) -> dict[int, float]:
    """Seconds in each module's own forward by the module's id, what it calls left out; nothing for a model without data."""
    tensors = [*model.parameters(), *model.buffers()]
    if any(tensor.device.type == "meta" for tensor in tensors):
        return {}
    device = tensors[0].device if tensors else torch.device("cpu")
    dtype = next((t.dtype for t in tensors if t.dtype.is_floating_point), torch.get_default_dtype())
    clock = _Clock()
    with undisturbed(model) as run, ExitStack() as undo:
        for module in model.modules():
            if not isinstance(module, torch.jit.ScriptModule):
                undo.callback(module.register_forward_pre_hook(clock.start).remove)
                undo.callback(module.register_forward_hook(clock.stop, prepend=True).remove)
        given = torch.rand(1, *input_size, dtype=dtype, device=device)
        run(given)
        clock.seconds.clear()
        run(given)
    return clock.seconds


class _Clock:
    """Adds up the time between hooks for the module that is running."""

    def __init__(self) -> None:
        self.seconds: dict[int, float] = {}
        self._running: list[int] = []
        self._since = 0.0

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
