"""Running the user's model for real, in evaluation mode, and leaving it as it was."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from opcost.core.interrupts import let_through
from opcost.frontends.torch.unchanged.runs import real_runs
from opcost.frontends.torch.unchanged.written import KeepWritten


@contextmanager
def undisturbed(model: nn.Module) -> Iterator[KeepWritten]:
    """Evaluation mode without gradients, for runs of which the first is made within the mode that is handed over."""
    with real_runs(model) as keep_written, torch.no_grad():
        for module in model.modules():
            module.training = False
        with let_through():
            yield keep_written
