"""The table of result functions, and the words they are written in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from opcost.frontends.aten.call import Call
from opcost.frontends.aten.strides import row_major
from opcost.frontends.aten.tensor import Described, Tensor, type_name
from opcost.frontends.aten.told import NotTold

Outputs: TypeAlias = Callable[[Call], Iterable[Tensor]]
OUTPUTS: dict[str, Outputs] = {}
"""By the name of an operator of aten, as its handler is registered."""


def on(*names: str) -> Callable[[Outputs], Outputs]:
    """Register what these operators of aten make."""

    def register(infer: Outputs) -> Outputs:
        for name in names:
            if name in OUTPUTS:
                raise ValueError(f"the results of {name} are told twice")
            OUTPUTS[name] = infer
        return infer

    return register


def on_each(table: Mapping[str, Outputs]) -> None:
    """Register what operators make by a table; the names of several stand in one text."""
    for names, infer in table.items():
        on(*names.split())(infer)


def made(shape: Iterable[int], dtype: str) -> Described:
    """A new tensor, row by row."""
    extents = tuple(shape)
    if any(extent < 0 for extent in extents):
        raise ValueError(f"no tensor has the shape {extents}")
    return Described(extents, row_major(extents), dtype)


def like(x: Tensor, dtype: str = "") -> Described:
    """A new tensor of the shape of another, and of its type if none is given."""
    return made(x.shape, dtype or type_name(x))


def axis_of(x: Tensor, dim: int) -> int:
    """An axis counted from the front; a tensor without axes takes 0 and -1 all the same."""
    rank = max(x.dim(), 1)
    if not -rank <= dim < rank:
        raise ValueError(f"{dim} is not an axis of {x.dim()}")
    return dim % rank


def replaced(x: Tensor, dim: int, extent: int) -> tuple[int, ...]:
    """The shape with another extent along one axis."""
    axis = axis_of(x, dim)
    return tuple(extent if i == axis else n for i, n in enumerate(x.shape))


def only(values: Sequence[Any], mask: Sequence[Any]) -> tuple[Any, ...]:
    """The values that a mask asks for."""
    return tuple(value for value, wanted in zip(values, mask, strict=True) if wanted)


def default_type(call: Call, otherwise: str = "float32") -> str:
    """The type asked for, or what is made without asking."""
    return call.get("dtype") or otherwise


def first(call: Call) -> Tensor:
    """The first argument, which is a tensor."""
    value = call[next(iter(call.args))]
    if not isinstance(value, Tensor):
        raise NotTold("a tensor")
    return value
