"""One operator call under its schema's argument names, the tensors in it, and the table in which families register handlers."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, NamedTuple, TypeAlias

from opcost.core.graph import Attr


class Translation(NamedTuple):
    """What an operator computes, in our words."""

    kind: str
    """A key of `opcost.core.kinds.KINDS`."""
    attrs: dict[str, Attr]
    ins: tuple[Tensor, ...] | None = None
    """Tensors of the arguments in the order that the kind states; None: all tensor arguments as they come."""
    outs: tuple[Tensor, ...] | None = None
    """Tensors of the arguments that are written, for operators that return nothing; None: what was returned."""


@dataclass(slots=True, eq=False)
class Call:
    """An operator with its arguments by name, defaults filled in, and its outputs."""

    name: str
    """Library and operator as in the table: `aten::add` also for `add_` and `_foreach_add`."""
    overload: str
    args: dict[str, Any]
    outs: tuple[Tensor, ...]
    in_place: bool = field(kw_only=True)

    def __getitem__(self, name: str) -> Any:
        return self.args[name]

    def get(self, *names: str) -> Any:
        """The first of these arguments that is there and is not None."""
        for name in names:
            value = self.args.get(name)
            if value is not None:
                return value
        return None

    def tensors(self, *names: str) -> tuple[Tensor, ...]:
        """The tensors among these arguments, in this order; absent ones are left out."""
        return tuple(flat(self.args.get(name) for name in names))

    @property
    def base(self) -> str:
        """The operator's name without its library."""
        return self.name.partition("::")[2]


Handler: TypeAlias = Callable[[Call], Translation]

HANDLERS: dict[str, Handler] = {}
"""Handlers by `library::operator`, or by `library::operator.overload`, which wins."""


def on(*names: str) -> Callable[[Handler], Handler]:
    """Register a handler under names; a name without a library belongs to aten."""

    def register(handler: Handler) -> Handler:
        for name in names:
            full = name if "::" in name else f"aten::{name}"
            if full in HANDLERS:
                raise ValueError(f"{full} is translated twice")
            HANDLERS[full] = handler
        return handler

    return register


@dataclass(frozen=True, slots=True)
class Constant:
    """The handler of operators whose kind and attributes do not depend on the call."""

    kind: str
    reads: tuple[str, ...]
    """Arguments that are inputs, in the order of the kind; empty where all tensors are, as they come."""
    attrs: dict[str, Attr]

    def __call__(self, call: Call) -> Translation:
        return Translation(self.kind, dict(self.attrs), call.tensors(*self.reads) if self.reads else None)


def flat(values: Iterable[Any]) -> Iterator[Tensor]:
    """The tensors in nested lists, in order."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from flat(value)
        elif isinstance(value, dict):
            yield from flat(value.values())


def per_axis(value: Any, axes: int) -> tuple[int, ...]:
    """A size argument with one entry per axis; torch accepts one number for all."""
    if isinstance(value, int):
        return (value,) * axes
    return tuple(value) * axes if len(value) == 1 else tuple(value)


# -- what the table may ask of one; a live tensor, one that a file describes and one of a trace are alike


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


# -- calls of which not everything is known: an unknown value is never guessed, and reading it is an error


class NotKnown(Exception):
    """Something was asked that the source of a call does not tell; the call has no price then."""


UNKNOWN_VALUE = object()
"""Stands for an argument that was given and is not known."""


class PartlyKnown(Call):
    """A call some of whose arguments may not be told; to pass them by is fine, to look at them is not."""

    __slots__ = ()

    def __getitem__(self, name: str) -> Any:
        value = self.args[name]
        if value is UNKNOWN_VALUE:
            raise NotKnown(name)
        return value

    def get(self, *names: str) -> Any:
        for name in names:
            if name in self.args and (value := self[name]) is not None:
                return value
        return None

    def tensors(self, *names: str) -> tuple[Tensor, ...]:
        for name in names:
            if name in self.args:
                self[name]
        return super().tensors(*names)


class Unplaced(Described):
    """A tensor whose strides are not told."""

    __slots__ = ()

    def __init__(self, shape: tuple[int, ...], dtype: str) -> None:
        super().__init__(shape, (), dtype)

    def stride(self) -> tuple[int, ...]:
        raise NotKnown("strides")
