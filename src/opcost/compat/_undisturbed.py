"""Running the user's model for real, in evaluation mode, and leaving it as it was."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch import nn

from opcost.frontends.torch.state import random_state
from opcost.frontends.torch.unchanged import unchanged


@contextmanager
def undisturbed(model: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients; flags, attributes, buffers and random generators come back afterwards."""
    flags = [(module, module.training) for module in model.modules()]
    with ExitStack() as undo:
        undo.enter_context(random_state())
        undo.enter_context(torch.no_grad())
        undo.callback(_put_back_buffers, [(buffer, buffer.detach().clone()) for buffer in model.buffers()])
        undo.enter_context(unchanged(model))
        for module, training in flags:
            undo.callback(setattr, module, "training", training)
            module.training = False
        yield


def _put_back_buffers(buffers: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
    for buffer, kept in buffers:
        if buffer.device.type != "meta" and not torch.equal(buffer, kept):
            buffer.data.copy_(kept)
