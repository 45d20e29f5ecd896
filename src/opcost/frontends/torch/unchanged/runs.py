"""Running the user's model for real, and leaving it and the process as they were, contents of tensors included."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import nn

from opcost.core.interrupts import held_back
from opcost.frontends.torch.state import no_sharing, random_state
from opcost.frontends.torch.turns import one_at_a_time
from opcost.frontends.torch.unchanged import unchanged
from opcost.frontends.torch.unchanged.switches import switches
from opcost.frontends.torch.unchanged.written import KeepWritten


@contextmanager
def real_runs(model: nn.Module, *others: Any) -> Iterator[KeepWritten]:
    """Inside, the model may run as often as wanted, the first time within the mode that is handed over.

    That mode finds out which memory the model writes to and keeps its content. It slows a run down, so that those whose
    time counts are made without it. Interrupts are held back until the caller lets them through.
    """
    with held_back(), ExitStack() as undo:
        undo.enter_context(one_at_a_time)
        before = undo.enter_context(unchanged(model, *others))
        written = KeepWritten(before.tensors, model.buffers())
        undo.callback(written.put_back)
        undo.enter_context(random_state())
        undo.enter_context(switches())
        undo.enter_context(no_sharing())
        sys.setrecursionlimit(2 * sys.getrecursionlimit())  # module calls that are annotated nest deeper
        yield written
