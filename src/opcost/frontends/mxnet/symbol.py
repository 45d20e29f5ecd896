"""`*-symbol.json` as data: the nodes of a graph, in the order of the file, from any version of MXNet.

The dialects differ in where a node's attributes stand (`param` and `attr` up to 0.8, `attr` up to 0.12, `attrs` since), in
whether an entry has a version number, and in whether the graph has attributes of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from opcost.core.parsing import mended, parse
from opcost.core.reading import whole
from opcost.errors import SourceError
from opcost.frontends.mxnet.attribute import Attributes

Entry: TypeAlias = tuple[int, int]
"""A tensor: the index of a node and of one of its outputs."""

VARIABLE = "null"
"""The operator of a node that is an input, a weight or an auxiliary state."""

OLDEST = 800
"""The version of a file that tells none: 0.8."""

LARGEST_FILE = 16 << 20
MOST_OUTPUTS = 4096
LONGEST_NAME = 4096
DEEPEST = 16
"""Graphs inside graphs inside graphs: control flow is never nested so deep."""


class Node(NamedTuple):
    """One node: a variable, or an operator with the tensors it reads."""

    id: int
    op: str
    name: str
    attrs: Attributes
    inputs: tuple[Entry, ...]
    subgraphs: tuple[Symbol, ...] = ()

    @property
    def is_variable(self) -> bool:
        return self.op == VARIABLE

    def __str__(self) -> str:
        return f"node {self.id} ({self.name!r}, {self.op})"


@dataclass(frozen=True, slots=True)
class Symbol:
    """A graph: every node reads only from nodes before it, but for variables, which may stand anywhere."""

    nodes: tuple[Node, ...]
    heads: tuple[Entry, ...]
    version: int = OLDEST
    """Major times 10000, minor times 100, patch."""
    np_shape: bool = False
    """NumPy's meaning of shapes: 0 is an extent and () a scalar; without it both mean that it is not known."""

    @property
    def variables(self) -> list[Node]:
        """In the order in which MXNet lists its arguments and auxiliary states."""
        return [node for node in self.nodes if node.is_variable]

    @property
    def version_text(self) -> str:
        return f"{self.version // 10000}.{self.version // 100 % 100}.{self.version % 100}"


def read_symbol(path: Path) -> Symbol:
    """The graph in a file."""
    content = whole(path, LARGEST_FILE, "MXNet symbol")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        raise SourceError(f"{path} is not text: byte {exc.start} is not UTF-8", hint=_DAMAGED) from exc
    symbol = parse_symbol(text, str(path))
    if any(node.op == "tvm_op" for node in symbol.nodes):
        raise SourceError(
            f"{path} is a graph that TVM has compiled, not an MXNet symbol", hint="count the model it came from"
        )
    return symbol


_DAMAGED = "the file is damaged or cut short: fetch it again"


def parse_symbol(text: str, where: str = "the symbol") -> Symbol:
    """The graph in a text, as `Symbol.tojson()` gives it; `where` names it in errors."""
    try:
        content = parse(mended(text))
    except ValueError as exc:
        raise SourceError(f"{where} is not valid JSON: {exc}", hint=_DAMAGED) from exc
    try:
        return _graph(content, version=_version(content), np_shape=_np_shape(content), depth=0)
    except _Malformed as exc:
        raise SourceError(f"{where} is not an MXNet symbol: {exc}", hint=_DAMAGED) from exc


class _Malformed(Exception):
    """Something in the file is not where or what it should be."""


def _graph(content: Any, *, version: int, np_shape: bool, depth: int) -> Symbol:
    if depth > DEEPEST:
        raise _Malformed(f"its graphs are nested more than {DEEPEST} deep")
    if not isinstance(content, dict):
        raise _Malformed(f"a graph is {_kind(content)}, not an object with nodes and heads")
    listed = content.get("nodes")
    if not isinstance(listed, list) or not listed:
        raise _Malformed("it has no list of nodes")
    nodes: list[Node] = []
    for index, item in enumerate(listed):
        try:
            nodes.append(_node(item, index, version=version, np_shape=np_shape, depth=depth))
        except _Malformed as exc:
            raise _Malformed(f"node {index}: {exc}") from None
    heads = _entries(content.get("heads"), len(nodes), "heads")
    if not heads:
        raise _Malformed("it has no heads, so nothing is computed")
    for source, output in (*heads, *(entry for node in nodes for entry in node.inputs)):
        if output and nodes[source].is_variable:
            raise _Malformed(
                f"output {output} of the variable {nodes[source].name!r} is read, and a variable has only one"
            )
    return Symbol(tuple(nodes), heads, version, np_shape)


def _node(item: Any, index: int, *, version: int, np_shape: bool, depth: int) -> Node:
    if not isinstance(item, dict):
        raise _Malformed(f"it is {_kind(item)}, not an object")
    op, name = item.get("op"), item.get("name", "")
    if not isinstance(op, str) or not isinstance(name, str):
        raise _Malformed("its op and name must be words")
    if len(name) > LONGEST_NAME:
        raise _Malformed(f"its name is said to have {len(name)} characters")
    inputs = _entries(item.get("inputs", []), index, "inputs")
    if op == VARIABLE and inputs:
        raise _Malformed("a variable cannot read other nodes")
    subgraphs = item.get("subgraphs", [])
    if not isinstance(subgraphs, list):
        raise _Malformed(f"its subgraphs are {_kind(subgraphs)}, not a list")
    inner = tuple(_graph(graph, version=version, np_shape=np_shape, depth=depth + 1) for graph in subgraphs)
    return Node(index, op, name, Attributes(_attributes(item)), inputs, inner)


def _attributes(item: Mapping[str, Any]) -> dict[str, str]:
    """All that the file says about a node, wherever its version puts it."""
    found: dict[str, str] = {}
    for key in ("param", "attr", "attrs"):
        part = item.get(key)
        if part is None:
            continue
        if not isinstance(part, dict):
            raise _Malformed(f"its {key} is {_kind(part)}, not an object")
        for name, value in part.items():
            if not isinstance(value, (str, int, float)):
                raise _Malformed(f"its attribute {name!r} is {_kind(value)}, not a text")
            found[name] = value if isinstance(value, str) else str(value)
    return found


def _entries(listed: Any, nodes: int, what: str) -> tuple[Entry, ...]:
    """References to outputs of earlier nodes; the third number of an entry is bookkeeping."""
    if not isinstance(listed, list):
        raise _Malformed(f"its {what} are {_kind(listed)}, not a list")
    found = []
    for item in listed:
        match item:
            case [int(node), int(output), *_] if len(item) <= 3:
                if not 0 <= node < nodes:
                    raise _Malformed(f"its {what} name node {node}, which is not one of the {nodes} before it")
                if not 0 <= output < MOST_OUTPUTS:
                    raise _Malformed(f"its {what} name output {output} of node {node}")
                found.append((node, output))
            case _:
                raise _Malformed(f"its {what} hold {_kind(item)}, not pairs of node and output")
    return tuple(found)


def _version(content: Any) -> int:
    value = _graph_attribute(content, "mxnet_version")
    return value if isinstance(value, int) and 0 < value < 10_000_000 else OLDEST


def _np_shape(content: Any) -> bool:
    return bool(_graph_attribute(content, "is_np_shape"))


def _graph_attribute(content: Any, name: str) -> Any:
    """A graph's own attribute, written as `["int", 10901]`."""
    attrs = content.get("attrs") if isinstance(content, dict) else None
    match attrs.get(name) if isinstance(attrs, dict) else None:
        case [_, value]:
            return value
    return None


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "a text", bool: "a truth value", type(None): "null"}
    return names.get(type(value), "a number")


def used_outputs(symbol: Symbol) -> list[int]:
    """For each node, how many of its outputs somebody reads or the graph returns, counted from the first."""
    used = [0] * len(symbol.nodes)
    entries: Iterable[Entry] = (*symbol.heads, *(entry for node in symbol.nodes for entry in node.inputs))
    for node, output in entries:
        used[node] = max(used[node], output + 1)
    return used
