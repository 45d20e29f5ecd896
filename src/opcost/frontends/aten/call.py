"""One operator call under its schema's argument names, and the table in which the families register their handlers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from opcost.core.graph import Attr
from opcost.frontends.aten.tensor import Tensor


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
