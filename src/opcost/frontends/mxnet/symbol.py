"""`*-symbol.json` as data: the nodes of a graph, in the order of the file, from any version of MXNet.

The dialects differ in where a node's attributes are (`param` and `attr` up to 0.8, `attr` up to 0.12, `attrs` since), in
whether an entry has a version number, and in whether the graph has attributes of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import isfinite
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeAlias, TypeVar

import msgspec

from opcost.core.files import read_whole
from opcost.core.parsing import parse, replace_lone_surrogates
from opcost.errors import SourceError

Entry: TypeAlias = tuple[int, int]  # A tensor: the index of a node and of one of its outputs

VARIABLE = "null"  # The operator of a node that is an input, a weight or an auxiliary state

OLDEST = 800  # The version of a file that has none: 0.8

LARGEST_FILE = 16 << 20
MOST_OUTPUTS = 4096
LONGEST_NAME = 4096
DEEPEST = 16  # Graphs inside graphs inside graphs: control flow is never nested so deep


class SymbolNode(NamedTuple):
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
    """A graph: every node reads only from nodes before it, but for variables, which may be anywhere."""

    nodes: tuple[SymbolNode, ...]
    heads: tuple[Entry, ...]
    version: int = OLDEST  # Major times 10000, minor times 100, patch
    np_shape: bool = False
    """NumPy's meaning of shapes: 0 is an extent and () a scalar; without it both mean that it is not known."""

    @property
    def variables(self) -> list[SymbolNode]:
        """In the order in which MXNet lists its arguments and auxiliary states."""
        return [node for node in self.nodes if node.is_variable]

    @property
    def version_text(self) -> str:
        return f"{self.version // 10000}.{self.version // 100 % 100}.{self.version % 100}"


def read_symbol(path: Path) -> Symbol:
    """The graph in a file."""
    content = read_whole(path, LARGEST_FILE, "MXNet symbol")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        raise SourceError(f"{path} is not text: byte {exc.start} is not UTF-8", hint=_DAMAGED) from exc
    symbol = parse_symbol(text, str(path))
    if any(node.op == "tvm_op" for node in symbol.nodes):
        hint = "count the model it came from"
        raise SourceError(f"{path} is a graph that TVM has compiled, not an MXNet symbol", hint=hint)
    return symbol


_DAMAGED = "the file is damaged or cut short: fetch it again"


def parse_symbol(text: str, where: str = "the symbol") -> Symbol:
    """The graph in a text, as `Symbol.tojson()` gives it; `where` names it in errors."""
    try:
        content = parse(replace_lone_surrogates(text))
    except ValueError as exc:
        raise SourceError(f"{where} is not valid JSON: {exc}", hint=_DAMAGED) from exc
    try:
        graph = msgspec.convert(content, _WrittenSymbol)
        version, np_shape = graph.attribute("mxnet_version"), graph.attribute("is_np_shape")
        known = isinstance(version, int) and 0 < version < 10_000_000
        return _graph(graph, (version if known else OLDEST, bool(np_shape)))
    except (msgspec.ValidationError, UnicodeEncodeError, _Malformed) as exc:
        raise SourceError(f"{where} is not an MXNet symbol: {exc}", hint=_DAMAGED) from exc


class _Malformed(Exception):
    """A node reads what it cannot read."""


_WrittenEntry = Annotated[list[int], msgspec.Meta(min_length=2, max_length=3)]  # The third number is bookkeeping
_WrittenAttributes = dict[str, str | bool | int | float]


class _WrittenNode(msgspec.Struct):
    op: str
    name: Annotated[str, msgspec.Meta(max_length=LONGEST_NAME)] = ""
    inputs: list[_WrittenEntry] = []
    param: _WrittenAttributes | None = None
    attr: _WrittenAttributes | None = None
    attrs: _WrittenAttributes | None = None
    subgraphs: list[_WrittenSymbol] = []


class _WrittenSymbol(msgspec.Struct):
    nodes: Annotated[list[_WrittenNode], msgspec.Meta(min_length=1)]
    heads: Annotated[list[_WrittenEntry], msgspec.Meta(min_length=1)]
    attrs: Any = None

    def attribute(self, name: str) -> Any:
        """A graph's own attribute, written as `["int", 10901]`."""
        match self.attrs.get(name) if isinstance(self.attrs, dict) else None:
            case [_, value]:
                return value
        return None


def _graph(content: _WrittenSymbol, dialect: tuple[int, bool], depth: int = 0) -> Symbol:
    """A graph, and those inside its nodes; the dialect is the version, and whether shapes have NumPy's meaning."""
    if depth > DEEPEST:
        raise _Malformed(f"its graphs are nested more than {DEEPEST} deep")
    nodes: list[SymbolNode] = []
    for index, item in enumerate(content.nodes):
        inputs = _entries(item.inputs, nodes, f"node {index}: its inputs")
        if item.op == VARIABLE and inputs:
            raise _Malformed(f"node {index}: a variable cannot read other nodes")
        written = {**(item.param or {}), **(item.attr or {}), **(item.attrs or {})}  # wherever its version puts them
        attrs = {name: value if isinstance(value, str) else str(value) for name, value in written.items()}
        inner = tuple([_graph(graph, dialect, depth + 1) for graph in item.subgraphs])
        nodes.append(SymbolNode(index, item.op, item.name, Attributes(attrs), inputs, inner))
    return Symbol(tuple(nodes), _entries(content.heads, nodes, "its heads"), *dialect)


def _entries(listed: list[list[int]], nodes: list[SymbolNode], what: str) -> tuple[Entry, ...]:
    """References to outputs of nodes that are known."""
    for node, output, *_ in listed:
        if not 0 <= node < len(nodes):
            raise _Malformed(f"{what} name node {node}, which is not one of the {len(nodes)} before it")
        if not 0 <= output < MOST_OUTPUTS:
            raise _Malformed(f"{what} name output {output} of node {node}")
        if output and nodes[node].is_variable:
            name = nodes[node].name
            raise _Malformed(f"{what} name output {output} of the variable {name!r}, and a variable has only one")
    return tuple([(node, output) for node, output, *_ in listed])


# -- attributes: text in the file, read as numbers, tuples and words ----------------------------------------------------
#
# Every version of MXNet writes them a little differently: `(3, 3)`, `(3L, 3L)`, `[3,3]`, `3` for a tuple of one, `True`, `1`.

_T = TypeVar("_T")
_INTEGER = re.compile(r"[+-]?\d{1,19}[lL]?")
_FLOAT = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,4})?f?|[+-]?(?:inf|nan)")
_TRUE = frozenset(("True", "true", "1"))
_FALSE = frozenset(("False", "false", "0"))
_LARGEST = 1 << 63
_MOST_ITEMS = 4096  # No operator has a longer list (anchors, split points); a file that does is broken

DTYPES = {
    0: "float32", 1: "float64", 2: "float16", 3: "uint8", 4: "int32", 5: "int8", 6: "int64", 7: "bool", 8: "int16",
    9: "uint16", 10: "uint32", 11: "uint64", 12: "bfloat16",
}  # fmt: skip
"""Element types by the code that files hold."""


class AttributeFault(SourceError):
    """An attribute's text is not what its operator can read."""


class Attributes:
    """The attributes of one node, read by name and type; what is absent is the default, as in MXNet."""

    __slots__ = ("raw",)

    def __init__(self, raw: Mapping[str, str]) -> None:
        self.raw = raw

    def __contains__(self, name: str) -> bool:
        return self.raw.get(name, "None") != "None"

    def _read(self, name: str, default: _T | None, parse: Callable[[str, str], _T]) -> _T:
        text = self.raw.get(name)
        if text is None or text == "None":
            if default is None:
                raise AttributeFault(f"the attribute {name!r} is missing")
            return default
        return parse(name, text)

    def text(self, name: str, default: str | None = None) -> str:
        return self._read(name, default, lambda _, text: text)

    def integer(self, name: str, default: int | None = None) -> int:
        return self._read(name, default, _integer)

    def maybe_integer(self, name: str) -> int | None:
        """A whole number, or None where it is absent or `None`."""
        return self.integer(name) if name in self else None

    def number(self, name: str, default: float | None = None) -> float:
        return self._read(name, default, _number)

    def flag(self, name: str, *, default: bool = False) -> bool:
        return self._read(name, default, _flag)

    def items(self, name: str, default: tuple[int | None, ...] | None = None) -> tuple[int | None, ...]:
        """A tuple whose members may be None, as the begin and end of a slice."""
        return self._read(name, default, _items)

    def integers(self, name: str, default: tuple[int, ...] | None = None) -> tuple[int, ...]:
        """A tuple of whole numbers; a bare number is a tuple of one."""
        found = self.items(name, default)
        if None in found:
            raise AttributeFault(f"the attribute {name!r} is {_quoted(self.raw[name])}, not a tuple of whole numbers")
        return found  # type: ignore[return-value]

    def maybe_integers(self, name: str) -> tuple[int, ...] | None:
        return self.integers(name) if name in self else None

    def count(self, name: str, default: int = 0) -> int:
        """How many members a tuple of any numbers has."""
        return len(_split(self.raw[name])) if name in self else default

    def dtype(self, name: str = "dtype", default: str = "float32") -> str:
        """An element type by name; where it is a number, by its code."""
        text = self.text(name, default)
        if text.lstrip("-").isdecimal():
            return DTYPES.get(int(text[:4]), default)
        if text not in DTYPES.values() and text != default:
            raise AttributeFault(f"the attribute {name!r} is {_quoted(text)}, which is not an element type of MXNet")
        return text


def _flag(name: str, text: str) -> bool:
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise AttributeFault(f"the attribute {name!r} is {_quoted(text)}, neither true nor false")


@lru_cache(maxsize=4096)
def _integer(name: str, text: str) -> int:
    word = text.strip()
    if _INTEGER.fullmatch(word):
        return int(word.rstrip("lL"))
    number = _number(name, text)
    if not isfinite(number) or abs(number) >= _LARGEST or number != int(number):
        raise AttributeFault(f"the attribute {name!r} is {_quoted(text)}, not a whole number")
    return int(number)


@lru_cache(maxsize=4096)
def _number(name: str, text: str) -> float:
    word = text.strip()
    if word in ("True", "False"):  # written so where a Python caller gave a truth value for a number
        return float(word == "True")
    if not _FLOAT.fullmatch(word):
        raise AttributeFault(f"the attribute {name!r} is {_quoted(text)}, not a number")
    return float(word.removesuffix("f") if not word.endswith("inf") else word)


@lru_cache(maxsize=4096)
def _items(name: str, text: str) -> tuple[int | None, ...]:
    words = _split(text)
    if len(words) > _MOST_ITEMS:
        raise AttributeFault(f"the attribute {name!r} has {len(words)} members, more than any operator takes")
    return tuple(None if word == "None" else _integer(name, word) for word in words)


def _split(text: str) -> list[str]:
    inner = text.strip()
    if inner[:1] in ("(", "[") and inner[-1:] in (")", "]"):
        inner = inner[1:-1]
    return [word for part in inner.split(",") if (word := part.strip())]


def _quoted(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:57]}...")
