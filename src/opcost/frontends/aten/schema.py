"""Operator schemas, as PyTorch writes them: `aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor`.

Those of PyTorch's own operators lie beside this file, because a file that names an operator leaves out the arguments that
have their default. Only the lines that are asked for are parsed. Beside them lie the names of those that PyTorch takes apart.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any, NamedTuple


class Argument(NamedTuple):
    """One argument, or one result, which has neither name nor default."""

    name: str
    type: str
    default: Any = None
    alias: str = ""
    """The letter of the memory that an argument and a result share."""
    writes: bool = False
    out: bool = False
    """It is only written: `out=`."""
    keyword: bool = False
    """It is given by its name alone."""

    @property
    def is_tensor(self) -> bool:
        return "Tensor" in self.type


class Schema(NamedTuple):
    """What an operator takes and returns."""

    name: str
    """Library and operator: `aten::add`."""
    overload: str
    arguments: tuple[Argument, ...]
    returns: tuple[Argument, ...]

    @property
    def writes(self) -> tuple[str, ...]:
        return tuple(argument.name for argument in self.arguments if argument.writes)

    @property
    def returns_tensor(self) -> bool:
        return any(returned.is_tensor for returned in self.returns)


def parse(text: str) -> Schema:
    """The schema in a line."""
    left, _, returned = text.rpartition(") -> ")
    head, _, inside = left.partition("(")
    name, _, overload = head.partition(".")
    if returned.startswith("("):
        returned = returned[1:-1]
    return Schema(
        name, overload, tuple(_arguments(inside)), tuple(_argument(f"{part} ") for part in _split(returned) if part)
    )


@lru_cache(maxsize=4096)
def shipped(name: str, overload: str) -> Schema | None:
    """The schema of one of PyTorch's own operators."""
    text = _text()
    begin = text.find(f"\n{name}.{overload}(" if overload else f"\n{name}(") + 1
    return parse(text[begin : text.index("\n", begin)]) if begin else None


@lru_cache(maxsize=4096)
def overloads(name: str) -> tuple[Schema, ...]:
    """The schemas of all overloads of one of PyTorch's own operators, or of one of a library beside it."""
    return tuple(parse(line) for line in _lines().get(name, []) or _library_lines().get(name, []))


def is_of_library(name: str) -> bool:
    """Whether only the first of its arguments are known, which all versions of its library have."""
    return name not in _lines() and name in _library_lines()


def is_implicit(schema: Schema) -> bool:
    """Whether PyTorch takes the operator apart before any device sees it, so that a count sees only what it consists of."""
    return (f"{schema.name}.{schema.overload}" if schema.overload else schema.name) in _implicit()


@cache
def _implicit() -> frozenset[str]:
    return frozenset(_shipped_text("implicit.txt").split())


@cache
def _lines() -> dict[str, list[str]]:
    return _by_operator(_text())


@cache
def _library_lines() -> dict[str, list[str]]:
    return _by_operator(_shipped_text("library_schemas.txt"))


def _by_operator(text: str) -> dict[str, list[str]]:
    """The lines of a file by operator."""
    found: dict[str, list[str]] = {}
    for line in text.split("\n"):
        found.setdefault(line.partition("(")[0].partition(".")[0], []).append(line)
    return found


@cache
def _text() -> str:
    return "\n" + _shipped_text("schemas.txt")


def _shipped_text(name: str) -> str:
    return (files("opcost.frontends.aten") / name).read_text(encoding="ascii")


def _arguments(text: str) -> Iterator[Argument]:
    keywords = False
    for part in _split(text):
        if part == "*":
            keywords = True
        elif part and part != "...":
            argument = _argument(part)
            yield argument._replace(out=keywords and argument.writes, keyword=keywords)


_MARK = re.compile(r"""[][(),]|"(?:\\.|[^"\\])*\"""")
_EXTENT = re.compile(r"\[(\d+)\]\??$")
_ALIAS = re.compile(r"\(([a-z])\b(!?)[^()]*\)")


def _argument(text: str) -> Argument:
    declared, _, default = text.partition("=")
    kind, _, name = declared.rpartition(" ")
    alias = _ALIAS.search(kind) if "Tensor" in kind else None
    return Argument(name, kind, _default(kind, default), alias[1] if alias else "", writes=bool(alias and alias[2]))


def _default(kind: str, text: str) -> Any:
    """A default; words such as `contiguous_format` stay words, and one number may stand for a list of them: `int[2] x=0`."""
    try:
        value = ast.literal_eval(text) if text else None
    except (ValueError, SyntaxError):
        return text
    extent = _EXTENT.search(kind)
    return [value] * int(extent[1]) if extent and isinstance(value, (int, float)) else value


def _split(text: str) -> Iterator[str]:
    """The parts between commas that stand in no brackets and no quotes."""
    depth, begin = 0, 0
    for found in _MARK.finditer(text):
        if found[0] == "," and not depth:
            yield text[begin : found.start()].strip()
            begin = found.end()
        depth += (found[0] in "([") - (found[0] in ")]")
    yield text[begin:].strip()
