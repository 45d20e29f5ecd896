"""The operators that another consists of, collected one by one with the tensors between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

from opcost.frontends.aten.call import Call
from opcost.frontends.aten.strides import row_major, seen_as
from opcost.frontends.aten.tensor import Described, Tensor, type_name


class Step(NamedTuple):
    """One operator: its full name with the overload, its arguments and its results."""

    operator: str
    args: dict[str, Any]
    outs: tuple[Tensor, ...]


class Parts:
    """Collects the operators that one consists of."""

    def __init__(self) -> None:
        self.steps: list[Step] = []

    def __call__(self, operator: str, /, *outs: Tensor, **args: Any) -> Tensor:
        """Put an operator of aten behind the others; its first result comes back."""
        self.steps.append(Step(operator, args, outs))
        return outs[0]

    def like(self, operator: str, x: Tensor, /, **args: Any) -> Tensor:
        """An operator on `x` that makes a tensor like it."""
        return self(operator, new(x.shape, x), self=x, **args)

    def in_place(self, operator: str, x: Tensor, /, **args: Any) -> Tensor:
        """An operator that writes to `x`."""
        return self(operator, look(x, x.shape, x.stride()), self=x, **args)

    def view(self, x: Tensor, shape: Sequence[int], strides: Sequence[int]) -> Tensor:
        return self("as_strided", look(x, shape, strides), self=x)

    def reshape(self, x: Tensor, shape: Sequence[int]) -> Tensor:
        """The same elements with another shape: a view where the memory allows, else a copy."""
        strides = seen_as(x, shape)
        if strides is None:
            x, strides = self.like("clone", x), row_major(shape)
        return self.view(x, shape, strides)

    def moved(self, x: Tensor, order: Sequence[int]) -> Tensor:
        """The axes in another order."""
        return self.view(x, [x.shape[axis] for axis in order], [x.stride()[axis] for axis in order])

    def turned(self, x: Tensor) -> Tensor:
        """The last two axes exchanged."""
        rank = x.dim()
        return self.moved(x, [*range(rank - 2), rank - 1, rank - 2])


def new(shape: Sequence[int], like: Tensor, dtype: str = "") -> Described:
    """A new tensor, row by row."""
    return Described(tuple(shape), row_major(shape), dtype or type_name(like), like.device)


def look(x: Tensor, shape: Sequence[int], strides: Sequence[int]) -> Described:
    """Another look at memory."""
    return Described(tuple(shape), tuple(strides), type_name(x), x.device, requires_grad=x.requires_grad)


Take: TypeAlias = Callable[[Parts, Call], "bool | None"]
COMPOSITES: dict[str, Take] = {}
"""By operator; a function that returns False leaves the operator whole."""


def of(*names: str) -> Callable[[Take], Take]:
    """Register the parts of these operators of aten."""

    def register(take: Take) -> Take:
        COMPOSITES.update(dict.fromkeys((f"aten::{name}" for name in names), take))
        return take

    return register


def taken_apart(call: Call) -> list[Step] | None:
    """The operators that a call consists of; None if it stands for itself."""
    take = COMPOSITES.get(call.name)
    if take is None:
        return None
    parts = Parts()
    return None if take(parts, call) is False else parts.steps
