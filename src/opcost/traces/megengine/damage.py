"""What stands before the damage of a `load_and_run --profile` file: times come first, what their operators are called last."""

from __future__ import annotations

import json
import re
from typing import Any, TypeAlias

from opcost.core.parsing import parse
from opcost.errors import SourceError
from opcost.traces.file import DAMAGE, TraceFile

Json: TypeAlias = "dict[str, Any]"

LOST = "(unknown)"
"""The type of an operator whose description is lost."""

_MARK = re.compile(r'"(?:[^"\\]|\\.)*(?:"|\\?\Z)|[{}\[\],]', re.DOTALL)
_CLOSING = {"{": "}", "[": "]"}
_RECORD = 4
"""Containers that are open inside a record: the document, a part, a table of it, and the record."""


def read_before_damage(file: TraceFile) -> Json:
    """The profile as far as it can be read, every operator with times in it; a record that was cut is left out."""
    data, depth = _salvaged(_readable(file))
    if not isinstance(data, dict):
        raise SourceError(f"{file.path}: nothing stands before the damage")
    if depth >= _RECORD:
        table = _last(_last(data))
        if isinstance(table, dict) and table:
            table.popitem()
    return _completed(data, file)


def _readable(file: TraceFile) -> str:
    found = bytearray()
    try:
        for piece in file.pieces():
            found += piece
            file.check_whole(len(found))
    except DAMAGE:
        pass  # the pieces before are what this is about
    return found.decode("utf-8-sig", "ignore")


def _salvaged(text: str) -> tuple[Any, int]:
    """The document with everything closed that is open where it breaks off, and how many containers those are."""
    try:
        return parse(text, parse_constant=lambda _: None), 0
    except json.JSONDecodeError as fault:
        text = text[: fault.pos]
    except ValueError:
        return None, 0
    end = 0
    opened: list[str] = []
    for found in _MARK.finditer(text):
        mark = found[0]
        if mark in "{[":
            opened.append(mark)
        elif mark in "}]":
            opened.pop()
        elif mark != ",":
            continue
        end = found.start() if mark == "," else found.end()
    try:
        closed = text[:end] + "".join(_CLOSING[mark] for mark in reversed(opened))
        return parse(closed, parse_constant=lambda _: None), len(opened)
    except ValueError:
        return None, 0


def _last(value: Any) -> Any:
    return next(reversed(value.values())) if isinstance(value, dict) and value else None


def _completed(data: Json, file: TraceFile) -> Json:
    """With a nameless operator for every one that has times and no description."""
    profiler = data.setdefault("profiler", {})
    graph = data.setdefault("graph_exec", {})
    if not isinstance(profiler, dict) or not isinstance(graph, dict):
        raise SourceError(f"{file.path}: nothing stands before the damage")
    operators = graph.setdefault("operator", {})
    graph.setdefault("var", {})
    sides = [profiler.get(side) for side in ("host", "device")]
    timed = [key for side in sides if isinstance(side, dict) for key in side]
    if not isinstance(operators, dict):
        raise SourceError(f"{file.path}: no operator stands before the damage")
    if not timed:
        raise SourceError(f"{file.path}: no time of an operator stands before the damage")
    for key in timed:
        operators.setdefault(key, {"id": key, "name": f"operator {key}", "type": LOST, "input": [], "output": []})
    return data
