"""Packed sequences: their lengths are known, their numbers are not, and PyTorch's own code reads and writes lengths in memory."""

from __future__ import annotations

from typing import Any

import torch

from opcost.frontends.torch.ledger.tensor import Recorded

_own = torch._C._VariableFunctions._pad_packed_sequence  # type: ignore[attr-defined]


def readable(sizes: torch.Tensor) -> torch.Tensor:
    """The batch sizes as a tensor with memory, where their content is known."""
    return sizes.content if type(sizes) is Recorded and sizes.content is not None else sizes


def pad_packed(data: torch.Tensor, *rest: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """What `pad_packed_sequence` calls; its own code asks for a new tensor and writes the lengths to its memory."""
    result: tuple[torch.Tensor, torch.Tensor] = (_pad if type(data) is Recorded else _own)(data, *rest)
    return result


def _pad(data: torch.Tensor, batch_sizes: torch.Tensor, *how: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """What PyTorch does: one copy for each stretch of steps in which equally many sequences run."""
    batch_first, padding_value, total_length = how
    sizes = batch_sizes.tolist()
    padded = data.new_full((max(len(sizes), total_length), sizes[0], *data.shape[1:]), padding_value)
    lengths: list[int] = []
    begin = done = 0
    for end, size in enumerate((*sizes[1:], 0), start=1):
        running = sizes[begin]
        if size != running:
            stretch = data[done : done + running * (end - begin)]
            padded[begin:end, :running] = stretch.view(end - begin, running, *data.shape[1:])
            done += running * (end - begin)
            begin = end
            lengths = [end] * (running - size) + lengths
    return padded.transpose(0, 1) if batch_first else padded, torch.tensor(lengths)
