"""What occupies memory and when: recorded by a run, and the peak that follows."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from opcost.core.rendering import brief, brief_record
from opcost.core.units import format_bytes

MemoryPart: TypeAlias = Literal[
    "weights", "inputs", "optimizer", "gradients", "saved", "outputs", "temporary", "workspace"
]
How: TypeAlias = Literal["lifetimes", "last reader"]
PARTS: dict[MemoryPart, str] = {
    "weights": "parameters, buffers and constants",
    "inputs": "what the model is given",
    "optimizer": "what the optimizer remembers",
    "gradients": "of parameters and inputs",
    "saved": "kept for the backward pass",
    "outputs": "what the model returns",
    "temporary": "results that are let go again",
    "workspace": "what a kernel needs for itself",
}
"""The categories of memory."""


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """When a run freed its memory: each storage, and the index of the operator before which it was gone, in that order.

    What is not listed was kept to the end.
    """

    storages: Sequence[int]
    times: Sequence[int]
    gradients: frozenset[int] = frozenset()  # storages of the gradients of parameters and inputs
    state: frozenset[int] = frozenset()  # storages that an optimizer keeps for its next step
    carried: frozenset[int] = frozenset()  # storages of gradients of earlier passes, which exist when the run begins

    __repr__ = brief_record


@dataclass(frozen=True, slots=True)
class Lives:
    """Tensors that are created and freed in a pass or step, in order of creation, and what exists beside them."""

    lasting: Sequence[int]  # bytes of each tensor that exists throughout, without inputs
    inputs: Sequence[int]
    births: Sequence[int]  # the operator that makes each
    deaths: Sequence[int]  # the operator before which it is gone
    sizes: Sequence[int]
    workspaces: Sequence[int]  # bytes of each operator's workspace

    def __repr__(self) -> str:
        return f"Lives({len(self.sizes):,} tensors, {len(self.workspaces):,} operators)"


@dataclass(frozen=True, slots=True, kw_only=True)
class PeakHolder:
    """The memory at the peak that a module's own operators allocated."""

    module: str
    bytes: int
    tensors: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """The memory of a run over its operators, and its peak."""

    peak_bytes: int
    """The highest sum of memory in use at once."""
    base_bytes: int
    """In use before the pass or step: weights, buffers, inputs, the optimizer's state, gradients that are kept."""
    at: int
    """The index of the operator, among the rows, during which the peak is reached."""
    how: How
    """Whether a tensor is freed when the run frees it, or after the last operator that reads it."""
    device: str = ""
    """The device whose allocator and kernels are simulated; empty: tensors alone, to the byte."""
    reserved_bytes: int | None = None
    """Of a device: reserved by its allocator, with cached blocks and workspaces of libraries."""
    fixed_bytes: int | None = None
    """Of a device: what a process uses beside that: the context, code of kernels and libraries."""
    parts: Mapping[MemoryPart, int] = field(default_factory=dict)
    """The peak by category."""
    holders: tuple[PeakHolder, ...] = ()
    """The modules whose results are in memory at the peak, the largest first."""
    curve: Sequence[int] = field(default=(), repr=False)
    """Bytes in use during each operator."""
    layers: Mapping[MemoryPart, Sequence[int]] = field(default_factory=dict, repr=False, compare=False)
    """The curve by category, of tensors that are created and freed; only right after a short run, not saved."""
    lives: Lives | None = field(default=None, repr=False, compare=False)
    """Of a device, and not saved: the requests to its allocator."""

    def __repr__(self) -> str:
        on = f"as on {self.device}" if self.device else ""
        reserved = "" if self.reserved_bytes is None else f"{format_bytes(self.reserved_bytes)} reserved"
        before = f"{format_bytes(self.base_bytes)} before"
        return brief(self, [f"peak {format_bytes(self.peak_bytes)}", before, f"at operator {self.at:,}", reserved, on])

    def __str__(self) -> str:
        """The peak and its parts, the largest first."""
        lines = [("peak", self.peak_bytes), *sorted(self.parts.items(), key=lambda part: -part[1])]
        return "\n".join(
            f"{name:<10}{format_bytes(size):>12}  {size / max(1, self.peak_bytes):6.1%}" for name, size in lines
        )


def packed(numbers: Iterable[int], most: int) -> array[int] | list[int]:
    """Numbers of at most `most`, as 32-bit or 64-bit integers where they fit."""
    return array("i" if most < 1 << 31 else "q", numbers) if most < 1 << 63 else list(numbers)
