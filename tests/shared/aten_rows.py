"""Calls of operators with what they mean, each worked out by hand; extents are primes, so that none is taken for another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from opcost.frontends.aten.call import HANDLERS, AtenCall, Translation
from opcost.frontends.aten.schema import overloads, plan_of
from opcost.frontends.aten.tensor import Described, row_major

P, Q, R, S, T = 3, 5, 7, 11, 13


def x(*shape: int, dtype: str = "float32") -> Described:
    return Described(shape, row_major(shape), dtype)


def sparse(stored: int, *shape: int, layout: str = "sparse_coo") -> Described:
    return Sparse(shape, row_major(shape), "float32", "cpu", layout, stored=stored)


@dataclass(eq=False)
class Sparse(Described):
    """A tensor that stores `stored` values."""

    stored: int = 0

    def values(self) -> Described:
        if self.layout == "sparse_coo":
            raise RuntimeError("values of a tensor that may repeat indices")
        return x(self.stored)

    def _values(self) -> Described:
        return x(self.stored)


class Package:
    """A weight and a bias as quantized layers hold them."""

    def __init__(self, weight: Described, bias: Described | None) -> None:
        self.unpack = lambda: (weight, bias)


class Opened:
    """A package that gives its bias."""

    def __init__(self, bias: Described | None) -> None:
        self.bias = lambda: bias


class Group:
    """A process group as it arrives: an object whose size may be unknown."""

    def __init__(self, answer: object) -> None:
        self.answer = answer

    def size(self) -> object:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class Row(NamedTuple):
    """One call: the operator, its arguments, its results; and what it means."""

    name: str
    args: dict[str, Any]
    outs: tuple[Described, ...]
    kind: str
    attrs: dict[str, Any]
    ins: str = "*"
    """The names of the arguments that are read, in the order of the kind; all as they come."""
    written: str = "*"
    in_place: bool = False


def translated(row: Row) -> Translation:
    """What the table says of the call; its arguments are such as one of the operator's schemas names."""
    name = row.name if "::" in row.name else f"aten::{row.name}"
    handler, registered, overload = HANDLERS.get(name), name, ""
    if overloads(name):
        fitting = [each for each in overloads(name) if {*row.args} <= {argument.name for argument in each.arguments}]
        assert fitting, "no overload has such arguments"
        plan = plan_of(fitting[0])
        handler, registered, overload = plan.handler, plan.name, plan.overload
    assert handler is not None
    return handler(AtenCall(registered, overload, row.args, row.outs, in_place=row.in_place))


def check(row: Row) -> None:
    """Translate the call, and compare."""
    found = translated(row)
    assert (found.kind, found.attrs) == (row.kind, row.attrs)
    for side, names in ((found.ins, row.ins), (found.outs, row.written)):
        expected = None if names == "*" else AtenCall("", "", row.args, (), in_place=False).tensors(*names.split())
        assert side == expected
