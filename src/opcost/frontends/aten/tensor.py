"""What the table may ask of a tensor, so that a live one, one that a file describes and one of a trace are all the same to it."""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any


class Tensor(ABC):
    """Shape, strides, element type, place, layout, and whether it takes gradients. Data is never asked for."""

    shape: Sequence[int]
    dtype: Any
    device: Any
    layout: Any
    requires_grad: bool

    def dim(self) -> int:
        return len(self.shape)

    def numel(self) -> int:
        return prod(self.shape)

    def stride(self) -> tuple[int, ...]:
        raise NotImplementedError


@dataclass(slots=True, eq=False)
class Described(Tensor):
    """A tensor of which only the description is there."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    device: str = "cpu"
    layout: str = "strided"
    requires_grad: bool = field(default=False, kw_only=True)

    def stride(self) -> tuple[int, ...]:
        return self.strides


def type_name(tensor: Tensor) -> str:
    """The element type in our words."""
    return str(tensor.dtype).removeprefix("torch.")


def layout_name(tensor: Tensor) -> str:
    """`strided`, or how only some of the elements are stored."""
    return str(tensor.layout).removeprefix("torch.")
