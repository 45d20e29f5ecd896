"""Who holds memory, and when: what a run tells of it, and what follows."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from opcost.core.rendering import brief, brief_record
from opcost.core.units import format_bytes

Part: TypeAlias = Literal["weights", "inputs", "optimizer", "gradients", "saved", "outputs", "temporary", "workspace"]
How: TypeAlias = Literal["lifetimes", "last reader"]
PARTS: dict[Part, str] = {
    "weights": "parameters, buffers and constants",
    "inputs": "what the model is given",
    "optimizer": "what the optimizer remembers",
    "gradients": "of parameters and inputs",
    "saved": "kept for the backward pass",
    "outputs": "what the model returns",
    "temporary": "results that are let go again",
    "workspace": "what a kernel needs for itself",
}
"""What memory is made of."""


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """When a run let its memory go: each storage, and the index of the operator before which it was gone, in that order.

    What is not named was held to the end.
    """

    storages: Sequence[int]
    times: Sequence[int]
    gradients: frozenset[int] = frozenset()
    """Storages that hold the gradients of parameters and inputs."""
    state: frozenset[int] = frozenset()
    """Storages that an optimizer keeps for its next step."""
    carried: frozenset[int] = frozenset()
    """Storages that are there when the run begins, and not before the step to which it belongs: gradients of passes before."""

    def __repr__(self) -> str:
        return brief_record(self)


@dataclass(frozen=True, slots=True)
class Lives:
    """Tensors that come and go in a pass or step, in the order in which they come, and what is there beside them."""

    lasting: Sequence[int]
    """Bytes of each that is there throughout, but for inputs."""
    inputs: Sequence[int]
    births: Sequence[int]
    """The operator that makes each."""
    deaths: Sequence[int]
    """The operator before which it is gone."""
    sizes: Sequence[int]
    workspaces: Sequence[int]
    """What each operator takes for itself."""

    def __repr__(self) -> str:
        return f"Lives({len(self.sizes):,} tensors, {len(self.workspaces):,} operators)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """What a module holds at the peak, by what its own operators made."""

    module: str
    bytes: int
    tensors: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """The memory of a run over its operators, and its peak."""

    peak_bytes: int
    """The highest sum of what is held at once."""
    base_bytes: int
    """What is there before the pass or step: weights, buffers, inputs, the optimizer's state, gradients that are kept."""
    at: int
    """The index of the operator, among the rows, during which the peak is reached."""
    how: How
    """Whether a tensor dies when the run lets go of it, or after the last operator that reads it."""
    device: str = ""
    """The device as whose allocator and kernels memory is told; empty: tensors alone, to the byte."""
    reserved_bytes: int | None = None
    """Of a device: what its allocator takes of it, with blocks that are kept to be used again and workspaces of libraries."""
    fixed_bytes: int | None = None
    """Of a device: what a process takes of it beside that, whatever runs: the context, code of kernels and libraries."""
    parts: Mapping[Part, int] = field(default_factory=dict)
    """What the peak is made of."""
    holders: tuple[Holder, ...] = ()
    """The modules whose results are held at the peak, the largest first."""
    curve: Sequence[int] = field(default=(), repr=False)
    """What is held during each operator."""
    layers: Mapping[Part, Sequence[int]] = field(default_factory=dict, repr=False, compare=False)
    """What of the curve is of parts that come and go; only where the run is at hand and not long. A file does not keep it."""
    lives: Lives | None = field(default=None, repr=False, compare=False)
    """Of a device, and not saved: what its allocator is asked for."""

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
    """Numbers of which none is above `most`, in little memory where a machine's own hold that."""
    return array("q", numbers) if most < 1 << 63 else list(numbers)
