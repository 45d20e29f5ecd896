"""Recording whatever runs inside a block of the user's code: every operator runs as it would, and is written down.

Nothing is held back or put back: what the block computes and changes is the user's own doing.
"""

from __future__ import annotations

import dataclasses
from contextlib import ExitStack
from typing import Any

import torch
from torch import nn

from opcost.core.graph import Graph, Role
from opcost.errors import InputError
from opcost.frontends.torch.ledger.entry import Leaf
from opcost.frontends.torch.ledger.ledger import Ledger
from opcost.frontends.torch.recording.real import RealRecorder
from opcost.frontends.torch.recording.run import Run
from opcost.frontends.torch.recording.scope import intercept_calls
from opcost.frontends.torch.recording.training import RunOptions
from opcost.frontends.torch.restore.process import as_written


class Block:
    """One block; modules that it calls go by `<Class>`, and what is below them by its name."""

    def __init__(self) -> None:
        self.recorder = _Onlooker(torch.get_default_device())
        # Recurrent layers run as they do without us, which is how they are taken apart for a backward pass.
        self._run = Run(nn.Module(), self.recorder, RunOptions(backward=True))
        self.recorder.where = self._where
        self._undo = ExitStack()

    def enter(self) -> None:
        """Begin to record."""
        if any(isinstance(mode, Ledger) for mode in torch.utils._python_dispatch._get_current_dispatch_mode_stack()):
            raise InputError("a recording runs inside another recording or count", hint="end the outer one first")
        self._undo.enter_context(as_written())  # a compiler would trace the recorder, as flex attention's does
        self._undo.enter_context(intercept_calls(self._run.enter, engine=True))
        self._undo.enter_context(self.recorder)

    def leave(self) -> None:
        """End the recording."""
        self._undo.close()
        self._run.failed = None  # what a module raised; its frames hold tensors

    def graph(self) -> Graph:
        """What ran so far."""
        root = self._run.model
        root.training = any(module.training for _, module in self._run.paths.all if module is not root)
        return dataclasses.replace(self._run.graph_of(()), source="recording")

    def _where(self) -> str:
        """The running module; inside the autograd engine, the one whose forward made the node that runs."""
        if torch._C._current_autograd_node() is None:
            self.recorder.phase = "forward"
            return self._run.where_graded()
        self.recorder.phase = "backward"
        return self._run.where_backward()


class _Onlooker(RealRecorder):
    """Records real operators and saves nothing, since nothing is to be put back."""

    def leaf(self, tensor: torch.Tensor, name: str = "", role: Role = "const", *, trainable: bool = False) -> Leaf:
        leaf = Ledger.leaf(self, tensor, name, role, trainable=trainable)
        if (
            role != "const" and self.leaves[leaf.origin][1] == "const"
        ):  # made in the block, and known before its module was
            self.leaves[leaf.origin] = (name, role, trainable)
        return leaf

    def _save_written(self, func: Any, args: Any, kwargs: dict[str, Any]) -> None:
        pass
