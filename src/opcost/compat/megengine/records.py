"""What MegEngine's two statistics list: parameters, operators with their FLOPs, and activations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from math import prod
from typing import NamedTuple, TypeAlias

from opcost.core.dtype import bits
from opcost.core.graph import TensorSpec

Shape: TypeAlias = "tuple[int | None, ...] | None"


class Param(NamedTuple):
    """One parameter; mean and deviation where its values are at hand, `size` where it is not MegEngine's."""

    name: str
    spec: TensorSpec
    mean: float | None = None
    std: float | None = None
    size: int | None = None


class Operation(NamedTuple):
    """One call of a layer, or one operator; `flops` is None where nobody knows them."""

    name: str
    class_name: str
    inputs: tuple[Shape, ...]
    outputs: tuple[Shape, ...]
    flops: int | None
    receptive_field: tuple[object, ...] | None = None
    stride: tuple[object, ...] | None = None


class Activation(NamedTuple):
    """What a call leaves behind; `dims` and `size` where they are not those of the tensor."""

    name: str
    class_name: str
    spec: TensorSpec
    mean: float | None = None
    std: float | None = None
    dims: int | None = None
    size: int | None = None


@dataclass(slots=True)
class Records:
    """One model."""

    params: list[Param] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)
    activations: list[Activation] = field(default_factory=list)
    ops: int | None = None
    """How many operators there are, where operators are listed and not layers."""
    macs: int | None = None
    """Multiply-accumulates, where FLOPs are something else."""


_AS_NUMPY = {"qint8": "int8", "quint8": "uint8", "qint32": "int32", "qint16": "int16"}


def dtype_name(dtype: str) -> str:
    """An element type as numpy calls what is stored."""
    return _AS_NUMPY.get(dtype, dtype)


def nbits(dtype: str) -> int:
    """Bits of one element as MegEngine counts them: a truth value is one bit there."""
    return 1 if dtype == "bool" else bits(dtype)


def size_of(spec: TensorSpec) -> int | None:
    """Bytes as MegEngine counts them; None where data decides."""
    count = elements(spec.shape)
    return None if count is None else count * nbits(spec.dtype) // 8


def elements(shape: Shape) -> int | None:
    """How many elements there are; None where data decides."""
    if shape is None:
        return None
    known = [extent for extent in shape if extent is not None]
    return prod(known) if len(known) == len(shape) else None


def shapes(specs: Iterable[TensorSpec]) -> tuple[Shape, ...]:
    return tuple(_shapes(specs))


def _shapes(specs: Iterable[TensorSpec]) -> Iterator[Shape]:
    for spec in specs:
        yield spec.shape
