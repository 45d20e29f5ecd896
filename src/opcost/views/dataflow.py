"""A report as named nodes and the edges between them: operators, inputs, parameters, constants, outputs.

A node's name is its scope and a last word, with slashes between: `layer1/0/conv1/convolution`. Scopes come from the
module path alone; whatever else stands in a framework's name cannot open one.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from opcost.core.graph import Op, TensorSpec
from opcost.core.report import Parameter, Report, Row

_NOT_IN_A_NAME = re.compile(r"[^\w.\-]+")
_MANIFOLD = ("elementwise", "reduce", "pool")
"""Kinds of which some frameworks have one operator for many functions."""


class Edge(NamedTuple):
    """What a node reads: the output of this number of the node of this name."""

    node: str
    output: int


class Node(NamedTuple):
    """One place where tensors come from or go to; `row` or `parameter` tells more where it is one."""

    name: str
    op: str
    inputs: tuple[Edge, ...]
    outs: tuple[TensorSpec, ...]
    row: Row | None = None
    parameter: Parameter | None = None


def dataflow(report: Report) -> tuple[Node, ...]:
    """The nodes of a report: each after those that it reads."""
    return tuple(_Builder(report).nodes)


class _Builder:
    def __init__(self, report: Report) -> None:
        self.nodes: list[Node] = []
        self._made: dict[int, Edge] = {}
        """Which node gives a tensor."""
        self._paths = {module.path for module in report.modules}
        # A node with the name of a scope would be drawn inside it, so no node gets one.
        self._taken = {_scope(module.path) for module in report.modules}
        self._numbers: dict[str, int] = {}
        """The last number that a name was given to tell it from its namesakes."""
        self._readers: dict[int, str] = {}
        for row in report.rows:
            for value in row.op.inputs:
                self._readers.setdefault(value, row.op.module)
        for (name, spec), value in zip(report.inputs, report.input_values, strict=False):
            self._add(name or "input", "Input", (), (spec,), gives=(value,))
        for parameter in report.parameters:
            self._parameter(parameter)
        for row in report.rows:
            self._operator(row)
        for value, spec in zip(report.output_values, report.outputs, strict=False):
            self._add("output", "Output", self._read((value,), (spec,), ""), (spec,))

    def _add(
        self,
        name: str,
        op: str,
        inputs: tuple[Edge, ...],
        outs: tuple[TensorSpec, ...],
        *,
        scope: str = "",
        gives: tuple[int, ...] = (),
        row: Row | None = None,
        parameter: Parameter | None = None,
    ) -> None:
        full = self._unique(f"{scope}/{_word(name)}" if scope else _word(name))
        for number, value in enumerate(gives):
            self._made[value] = Edge(full, number)
        self.nodes.append(Node(full, op, inputs, outs, row, parameter))

    def _unique(self, name: str) -> str:
        """The name itself, or `2.name` in the same scope: TensorBoard draws name1, name2, ... as one row of nodes."""
        scope, slash, word = name.rpartition("/")
        found, number = name, self._numbers.get(name, 1)
        while found in self._taken:
            number += 1
            found = f"{scope}{slash}{number}.{word}"
        self._numbers[name] = number
        self._taken.add(found)
        return found

    def _parameter(self, parameter: Parameter) -> None:
        """A parameter stands in the module that holds it; one whose name tells no module, where it is first read."""
        path, _, name = parameter.name.rpartition(".")
        if path not in self._paths:
            path, name = next((self._readers[v] for v in parameter.values if v in self._readers), ""), parameter.name
        op = "Buffer" if parameter.buffer else "Parameter"
        first = len(self.nodes)
        self._add(name, op, (), (parameter.spec,), scope=_scope(path), parameter=parameter)
        for value in parameter.values:
            self._made[value] = Edge(self.nodes[first].name, 0)

    def _operator(self, row: Row) -> None:
        op = row.op
        scope = _scope(op.module)
        if op.phase != "forward":
            scope = f"{op.phase}/{scope}".rstrip("/")
        if op.kind == "view" and op.attrs.get("shapes"):  # kept in a box of its own, beside what is computed
            scope = f"{scope}/shapes".lstrip("/")
        inputs = self._read(op.inputs, row.ins, scope)
        self._add(_called(op), op.raw, inputs, row.outs, scope=scope, gives=op.outputs, row=row)

    def _read(self, values: tuple[int, ...], specs: tuple[TensorSpec, ...], scope: str) -> tuple[Edge, ...]:
        """Where tensors come from; one that nobody made is a constant beside its first reader."""
        for value, spec in zip(values, specs, strict=False):
            if value not in self._made:
                self._add("constant", "Const", (), (spec,), scope=scope, gives=(value,))
        return tuple(self._made[value] for value in values if value in self._made)


def _called(op: Op) -> str:
    """The framework's word for an operator, and what it does where the word leaves that open: `Elemwise.RELU`."""
    word, mode = op.raw.rpartition("::")[2], op.told.get("mode")
    return f"{word}.{mode}" if op.kind in _MANIFOLD and isinstance(mode, str) else word


def _scope(path: str) -> str:
    return "/".join(map(_word, path.split("."))) if path else ""


def _word(text: str) -> str:
    return _NOT_IN_A_NAME.sub("_", text) or "_"
