"""The random generators of the process, put back where something was drawn from them."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch


@contextmanager
def random_state() -> Iterator[None]:
    """Put the random generators of torch, Python and numpy back where something was drawn from them.

    They belong to the whole process: what other threads drew meanwhile is drawn again.
    """
    with ExitStack() as undo:
        undo.callback(_put_back_torch, torch.get_rng_state())
        if torch.cuda.is_initialized():
            undo.callback(torch.cuda.set_rng_state_all, torch.cuda.get_rng_state_all())
        undo.callback(random.setstate, random.getstate())
        numpy = sys.modules.get("numpy.random")
        if numpy is not None:
            undo.callback(numpy.set_state, numpy.get_state())
        yield


def _put_back_torch(state: torch.Tensor) -> None:
    if not torch.equal(torch.get_rng_state(), state):
        torch.set_rng_state(state)
