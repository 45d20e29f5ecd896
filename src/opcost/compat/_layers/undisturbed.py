"""Running the user's model for real, in evaluation mode, and leaving it as it was."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import copy_context
from typing import Any

import torch
from torch import nn

from opcost.core.interrupts import let_through
from opcost.errors import InputError
from opcost.frontends.torch.models.lazy import is_waiting
from opcost.frontends.torch.unchanged.runs import real_runs


@contextmanager
def undisturbed(model: nn.Module, called: Callable[..., Any] | None = None) -> Iterator[Callable[..., Any]]:
    """Evaluation mode without gradients; what is handed over runs the model, the first time to see what it writes to.

    `called` is a method of the model to be run in place of its forward.
    """
    if is_waiting(model):  # a run would settle them for good
        raise InputError(
            "the model has layers that wait for their first input, and here the model itself would be run",
            hint="run it once, so that they have their shapes, or count it with opcost.count",
        )
    with real_runs(model) as first_run, torch.no_grad():
        for module in model.modules():
            module.training = False
        contexts = iter((first_run(),))

        def run(*args: Any, **kwargs: Any) -> Any:
            with next(contexts, nullcontext()):
                return copy_context().run(called or model, *args, **kwargs)  # with context variables of its own

        with let_through():
            yield run
