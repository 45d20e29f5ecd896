"""Running the user's model for real, and leaving it and the process as they were, contents of tensors included."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import Any

from torch import nn

from opcost.core.interrupts import defer_signals
from opcost.frontends.torch.unchanged import unchanged
from opcost.frontends.torch.unchanged.generators import random_state
from opcost.frontends.torch.unchanged.replaced import as_written, no_inference_mode, no_sharing
from opcost.frontends.torch.unchanged.switches import switches
from opcost.frontends.torch.unchanged.turns import one_at_a_time
from opcost.frontends.torch.unchanged.written import KeepWritten


@contextmanager
def real_runs(model: nn.Module, *others: Any) -> Iterator[Callable[[], AbstractContextManager[None]]]:
    """Inside, the model may run as often as wanted, the first time within the context that is handed over.

    There it is found out which memory the model writes to, and its content is kept. This slows a run down, so that those
    whose time counts are made without it. Interrupts are held back until the caller lets them through.
    """
    with defer_signals(), ExitStack() as undo:
        undo.enter_context(one_at_a_time)
        undo.enter_context(
            switches()
        )  # first, so that they are turned back last: what dies on the way may turn them too
        before = undo.enter_context(unchanged(model, *others))
        written = KeepWritten(before.tensors, model.buffers())
        undo.callback(written.put_back)
        undo.enter_context(random_state())
        undo.enter_context(no_sharing())
        sys.setrecursionlimit(2 * sys.getrecursionlimit())  # module calls that are annotated nest deeper
        yield partial(_first_run, written)


@contextmanager
def _first_run(written: KeepWritten) -> Iterator[None]:
    with as_written(), no_inference_mode(), written:
        yield
