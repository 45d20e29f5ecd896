"""Single nodes of model files with what they cost, worked out by hand; extents are primes, so that none is taken for another."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple, TypeAlias

import pytest

from opcost.analysis.costing import cost_graph
from opcost.core.graph import Module, bits
from opcost.errors import InputError, SourceError
from opcost.frontends.building import GraphBuilder
from opcost.frontends.nodes.inputs import Scopes
from opcost.frontends.nodes.meaning import Content, DeclaredValue, GraphNode, NodeGraph, Operand, OperatorTable
from opcost.frontends.nodes.walk import Walk
from opcost.rules import default_rules

P, Q, R, S, T = 3, 5, 7, 11, 13


class Tensor(NamedTuple):
    """An input or a result; `content`: its elements are known."""

    shape: tuple[int | None, ...] | None
    dtype: str = "float32"
    content: tuple[Any, ...] | None = None
    stored: bool = False

    @property
    def nbytes(self) -> int:
        elements = 0 if self.shape is None else prod(extent or 0 for extent in self.shape)
        return -(-elements * bits(self.dtype) // 8)


def x(*shape: int | None, dtype: str = "float32") -> Tensor:
    """A tensor that is computed."""
    return Tensor(shape, dtype)


def w(*shape: int, dtype: str = "float32") -> Tensor:
    """A tensor that the file stores."""
    return Tensor(shape, dtype, stored=True)


def c(*values: float, dtype: str = "int64") -> Tensor:
    """A stored vector of these numbers."""
    return Tensor((len(values),), dtype, values, stored=True)


def n(value: float, dtype: str = "int64") -> Tensor:
    """A stored number."""
    return Tensor((), dtype, (value,), stored=True)


class Row(NamedTuple):
    """One node: the operator, its inputs and attributes; and its results and costs."""

    op: str
    """`domain::name`, or the name alone."""
    ins: Sequence[Tensor | None]
    outs: Sequence[Tensor]
    attrs: Mapping[str, Any] = {}
    macs: int = 0
    flops: int = 0
    """Beside the two of each MAC."""
    read: Collection[int] | None = None
    """The places of the inputs that are read; all of them unless given."""
    between: Sequence[int] = ()
    """Elements of float32 that the node writes on its way and reads once."""
    moved: int | None = None
    """Bytes read and written; those of the inputs, the results and what is between unless given."""
    open: bool = False
    """An extent or the work depends on data: no cost."""
    version: int = 18
    declared: bool = False
    """The file declares the shapes of the results."""
    says: Mapping[str, Any] = {}
    """Attributes of its last operator, and its `kind`."""
    chosen: bool = False
    """Where an input is not known, a shape is taken that fits, and others would too."""


Known: TypeAlias = "Mapping[tuple[str, str], Any]"


class _AnyScopes(Scopes):
    def role(self, node: GraphNode, place: int, made: Operand) -> Any:
        return "param"


class _RowWalk(Walk):
    format = "row"
    row: Row

    def version(self, node: GraphNode) -> int:
        return self.row.version


def walked(row: Row, table: OperatorTable, *, typed: bool = False) -> tuple[list[Operand], GraphBuilder]:
    """The results of the node, and all operators that it is taken for."""
    walk = _RowWalk(_AnyScopes())
    maker = walk.maker
    walk.table, walk.typed, walk.row = table, typed, row
    ins: list[Operand | None] = []
    for place, each in enumerate(row.ins):
        if each is None:
            ins.append(None)
            continue
        content = None if each.content is None else Content(tuple(each.shape or ()), each.content)  # type: ignore[arg-type]
        value = maker.value(f"i{place}", maker.spec(each.shape, each.dtype), "const" if each.stored else "input")
        ins.append(Operand(value, each.shape, each.dtype, content, stored=each.stored))
    domain, _, name = row.op.rpartition("::")
    names = tuple(f"y{place}" for place in range(len(row.outs)))
    declared = {
        name: DeclaredValue(name, each.dtype, each.shape if row.declared else None)
        for name, each in zip(names, row.outs, strict=True)
    }
    node = GraphNode(
        name, domain, "", tuple(f"i{at}" if each else "" for at, each in enumerate(row.ins)), names, row.attrs
    )
    return walk._made(node, ins, NodeGraph("", (node,), {}, (), (), declared)), maker


def check(row: Row, table: OperatorTable, *, typed: bool = False) -> None:
    """Find the results and costs of the node, and compare them; `typed`: files of the format declare all element types."""
    made, maker = walked(row, table, typed=typed)
    found = [(each.shape, each.dtype, each.content and each.content.items) for each in made]
    expected = [(each.shape, each.dtype, each.content) for each in row.outs]
    for mine, theirs in zip(found, expected, strict=True):
        assert mine[:2] == theirs[:2]
        if theirs[2] is not None:
            assert mine[2] == theirs[2]
    assert all(each.content is None or each.content.shape == each.shape for each in made)
    last = {"kind": maker.ops[-1].kind, **maker.ops[-1].attrs}
    assert {name: last[name] for name in row.says} == row.says
    totals = cost_graph(
        maker.graph("row", "row", {}, modules=[Module(path="", type="row", calls=1)], inputs=[], outputs=[]),
        default_rules(),
    ).totals
    assert bool(totals.uncounted) == row.open
    if row.open:
        return
    places = range(len(row.ins)) if row.read is None else row.read
    moved = sum(each.nbytes for place in places if (each := row.ins[place]) is not None)
    moved += sum(each.nbytes for each in row.outs) + 2 * 4 * sum(row.between)
    if row.moved is not None:
        moved = row.moved
    assert (totals.macs, totals.flops) == (row.macs, 2 * row.macs + row.flops)
    assert totals.bytes_read + totals.bytes_written == moved


def check_with_less(row: Row, table: OperatorTable, *, typed: bool = False) -> None:
    """Leave out the extents or the elements of each input in turn: results are those of the row, as far as they are known."""
    for place, given in enumerate(() if row.chosen else row.ins):
        if given is None or given.shape is None:
            continue
        for less in {given._replace(content=None), Tensor((None,) * len(given.shape), given.dtype)} - {given}:
            made, maker = walked(row._replace(ins=[*row.ins[:place], less, *row.ins[place + 1 :]]), table, typed=typed)
            for found, expected in zip(made, row.outs, strict=True):
                assert fits(found.shape, expected.shape), (place, less, found.shape)
                assert found.dtype == expected.dtype or maker.ops[-1].kind == "unknown", (place, less)


def check_refused(row: Row, table: OperatorTable, message: str, *, typed: bool = False) -> None:
    """Find that the node does not fit its inputs, for the reason that the message gives."""
    with pytest.raises((InputError, SourceError), match=re.escape(message)):
        walked(row, table, typed=typed)


def fits(found: tuple[int | None, ...] | None, expected: tuple[int | None, ...] | None) -> bool:
    """Whether a shape says nothing that another does not."""
    if found is None or expected is None:
        return found is None
    return len(found) == len(expected) and all(a is None or a == b for a, b in zip(found, expected, strict=True))


def missing(rows: Iterable[Row], table: OperatorTable, as_others: Mapping[str, str]) -> set[str]:
    """The operators of a table without a row; `as_others`: names that share the handler of one that has a row."""
    written = {row.op for row in rows}
    known = {f"{domain}::{name}" if domain else name: row.handler for (domain, name), row in table.items()}
    for name, like in as_others.items():
        assert known[name] == known[like], f"{name} has a handler of its own"
        assert like in written, f"{like} has no row"
        assert name not in written, f"{name} has a row of its own"
    return known.keys() - written - as_others.keys()
