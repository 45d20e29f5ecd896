"""One operator call under its schema's argument names, and the table in which families register handlers."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias, TypeVar

from opcost.core.graph import Attr
from opcost.frontends.aten.tensor import AtenTensor, NotKnown


class Translation(NamedTuple):
    """What an operator computes, in our words."""

    kind: str  # A key of `opcost.core.kinds.KINDS`
    attrs: dict[str, Attr]
    ins: tuple[AtenTensor, ...] | None = None
    """Tensors of the arguments in the order that the kind states; None: all tensor arguments as they come."""
    outs: tuple[AtenTensor, ...] | None = None
    """Tensors of the arguments that are written, for operators that return nothing; None: what was returned."""


def means(kind: str, ins: Iterable[Any] | None = None, outs: Iterable[Any] | None = None, **attrs: Any) -> Translation:
    """A translation with these attributes, without those that are None; `ins` and `outs` may be nested and have gaps."""
    given = {name: value for name, value in attrs.items() if value is not None}
    return Translation(kind, given, *(None if side is None else tuple(flat(side)) for side in (ins, outs)))


UNKNOWN_VALUE = object()  # An argument that was given and is not known: it is never guessed, and reading it is an error


@dataclass(slots=True, eq=False)
class AtenCall:
    """An operator with its arguments by name, defaults filled in, and its outputs."""

    name: str  # Library and operator as in the table: `aten::add` also for `add_` and `_foreach_add`
    overload: str
    args: dict[str, Any]
    outs: tuple[AtenTensor, ...]
    in_place: bool = field(kw_only=True)

    def __getitem__(self, name: str) -> Any:
        value = self.args[name]
        if value is UNKNOWN_VALUE:
            raise NotKnown(name)
        return value

    def get(self, *names: str) -> Any:
        """The first of these arguments that is there and is not None."""
        for name in names:
            if name in self.args and (value := self[name]) is not None:
                return value
        return None

    def tensors(self, *names: str) -> tuple[AtenTensor, ...]:
        """The tensors among these arguments, in this order; absent ones are left out."""
        return tuple(flat(self[name] for name in names if name in self.args))

    @property
    def base(self) -> str:
        """The operator's name without its library."""
        return self.name.partition("::")[2]


R = TypeVar("R")


class AtenTable(dict[str, Callable[..., R]]):
    """Functions of calls by the name of the operator; `library` is that of names that are registered without one."""

    def __init__(self, library: str = "") -> None:
        super().__init__()
        self._library = library

    def on(self, *names: str) -> Callable[[Callable[..., R]], Callable[..., R]]:
        """Register a function of a call under names."""

        def register(function: Callable[..., R]) -> Callable[..., R]:
            for name in names:
                full = name if "::" in name else self._library + name
                if full in self:
                    raise ValueError(f"{full} is in the table twice")
                self[full] = function
            return function

        return register

    def rows(self, table: Mapping[str, Callable[..., R]]) -> None:
        """Register functions of arguments under names separated by spaces.

        A function is given the arguments that its parameters name, and the whole call as `call`; for what an operator
        does not take it has a default.
        """
        for names, function in table.items():
            self.on(*names.split())(_by_name(function))


def _by_name(function: Any) -> Callable[..., Any]:
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    required = names[: len(names) - len(function.__defaults__ or ())]
    optional = names[len(required) :]

    def of_call(call: AtenCall, **more: Any) -> Any:
        more["call"] = call
        values = [more[name] if name in more else call[name] for name in required]
        return function(*values, **{name: call[name] for name in optional if name in call.args})

    return of_call


Handler: TypeAlias = Callable[[AtenCall], Translation]

HANDLERS: AtenTable[Translation] = AtenTable("aten::")
"""Handlers by `library::operator`, or by `library::operator.overload`, which wins."""
on, rows = HANDLERS.on, HANDLERS.rows


@dataclass(frozen=True, slots=True)
class Constant:
    """The handler of operators whose kind and attributes do not depend on the call."""

    kind: str
    reads: tuple[str, ...]
    """Arguments that are inputs, in the order of the kind; empty where all tensors are, as they come."""
    attrs: dict[str, Attr]

    def __call__(self, call: AtenCall) -> Translation:
        return Translation(self.kind, dict(self.attrs), call.tensors(*self.reads) if self.reads else None)


def flat(values: Iterable[Any]) -> Iterator[AtenTensor]:
    """The tensors in nested lists, in order."""
    for value in values:
        if isinstance(value, AtenTensor):
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
