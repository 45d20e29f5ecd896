"""Running a model as the peers do: counted without data, or for real and timed."""

import sys
import time
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from contextvars import copy_context
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from opcost.api import count
from opcost.core.interrupts import allow_signals
from opcost.core.option import Mode
from opcost.core.report import Report
from opcost.errors import ForwardError, InputError, some
from opcost.frontends.torch.models.weights import has_lazy_parts
from opcost.frontends.torch.recording.recorder import DatalessRecorder
from opcost.frontends.torch.restore import real_runs
from opcost.frontends.torch.tree import map_tensors


def count_a_run(
    model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None, *, mode: Mode | None = None,
    warn: bool = True,
) -> Report:  # fmt: skip
    """Count a model; exceptions of the model come through as they are, because code around a peer's call catches those.

    Operators without a cost are warned about, unless the peer names them itself.
    """
    if args and not kwargs and all(isinstance(arg, (int, float)) for arg in args):  # a count takes such for a shape
        model, args = partial(model, *args), ()
    try:
        report = count(model, args, kwargs=kwargs, mode=mode)
        if warn:
            warn_uncounted(report)
        return report
    except ForwardError as exc:
        raised = exc.__cause__
        if not isinstance(raised, Exception):
            raise
        note = str(exc)
    if hasattr(raised, "add_note"):  # Python 3.11
        raised.add_note(note)
    raise raised


def warn_uncounted(report: Report, covered: Collection[str] = ()) -> None:
    """Warn about operators that have no cost, for which a peer's result has no field; `covered` have the caller's own."""
    missed = [f"{each.raw} (x{each.count})" for each in report.coverage.uncounted if each.raw not in covered]
    if not missed:
        return
    level, frame = 1, sys._getframe()  # noqa: SLF001 - `warnings` cannot find the caller's line before Python 3.12
    while frame.f_back is not None and str(frame.f_globals.get("__name__", "")).startswith("opcost."):
        level, frame = level + 1, frame.f_back
    warnings.warn(
        f"no cost is known for {', '.join(some(missed))}: counted as 0. "
        "Register a formula with torch.utils.flop_counter.register_flop_formula.",
        stacklevel=level,
    )


def current_recorder() -> DatalessRecorder | None:
    """The recorder of this thread; None where nothing is being counted."""
    for mode in _get_current_dispatch_mode_stack():
        if isinstance(mode, DatalessRecorder):
            return mode
    return None


@contextmanager
def real_run(model: nn.Module, called: Callable[..., Any] | None = None) -> Iterator[Callable[..., Any]]:
    """A function that runs the model in evaluation mode without gradients; afterwards the model is as it was.

    `called` is a method of the model to be run in place of its forward.
    """
    if has_lazy_parts(model):  # a run would settle them for good
        raise InputError(
            "the model has layers that wait for their first input, and here the model itself would be run",
            hint="run it once, so that they have their shapes, or count it with opcost.count",
        )
    with real_runs(model) as first_run, torch.no_grad():
        for module in model.modules():
            module.training = False
        contexts = iter((first_run(),))  # the first run finds out what the model writes to

        def run(*args: Any, **kwargs: Any) -> Any:
            with next(contexts, nullcontext()):
                return copy_context().run(called or model, *args, **kwargs)  # with context variables of its own

        with allow_signals():
            yield run


def seconds_by_module(
    model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None, *, warm_up: int = 1,
    called: Callable[..., Any] | None = None,
) -> dict[int, float]:  # fmt: skip
    """Seconds in each module's own forward, without the modules that it calls, by the module's id.

    Empty for a model without data. An input without data is replaced by noise.
    """
    if any(tensor.device.type == "meta" for tensor in (*model.parameters(), *model.buffers())):
        return {}
    from opcost.frontends.torch.load import device_of

    device = device_of(model)

    def with_data(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.device.type != "meta":
            return tensor.detach().clone()
        return torch.rand(tensor.shape, device=device).to(tensor.dtype)

    clock = Clock()
    with real_run(model, called) as run, clock.on(model):
        given, named = map_tensors((args, dict(kwargs or {})), with_data)
        for _ in range(warm_up):
            run(*given, **named)
        clock.seconds.clear()
        run(*given, **named)
    return clock.seconds


class Clock:
    """Adds up the time between hooks for the module that is running."""

    def __init__(self) -> None:
        self.seconds: dict[int, float] = {}
        self._running: list[int] = []
        self._since = 0.0

    @contextmanager
    def on(self, model: nn.Module) -> Iterator[None]:
        """Time the modules of a model inside the block."""

        def change(module: nn.Module, *_: object, enter: bool = False) -> None:
            now = time.perf_counter()
            if self._running:
                running = self._running[-1]
                self.seconds[running] = self.seconds.get(running, 0.0) + now - self._since
            if enter:
                self._running.append(id(module))
            else:
                self._running.pop()
            self._since = time.perf_counter()

        with ExitStack() as undo:
            for module in model.modules():
                if not isinstance(module, torch.jit.ScriptModule):
                    undo.callback(module.register_forward_pre_hook(partial(change, enter=True)).remove)
                    undo.callback(module.register_forward_hook(change, prepend=True).remove)
            yield
