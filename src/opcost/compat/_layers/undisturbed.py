"""Running the user's model for real, in evaluation mode, and leaving it as it was."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import copy_context
from typing import Any

import torch
from torch import nn

from opcost.core.interrupts import let_through
from opcost.frontends.torch.unchanged.runs import real_runs


@contextmanager
def undisturbed(model: nn.Module) -> Iterator[Callable[..., Any]]:
    """Evaluation mode without gradients; what is handed over runs the model, the first time to see what it writes to."""
    with real_runs(model) as first_run, torch.no_grad():
        for module in model.modules():
            module.training = False
        contexts = iter((first_run(),))

        def run(*args: Any, **kwargs: Any) -> Any:
            with next(contexts, nullcontext()):
                return copy_context().run(model, *args, **kwargs)  # with context variables of its own

        with let_through():
            yield run
