"""The operators of a model as its author called them: `linear` and `softmax`, not the `addmm`, `t` and `view` they become.

opcost records where the dispatcher has already taken composite operators apart. The peers speak of the calls, as torch's
jit tracer sees them, so the calls are noted while opcost counts, each with the rows that it became.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from opcost.api import count
from opcost.compat._operators.listener import Called, Listener
from opcost.compat._operators.node import Node
from opcost.compat._operators.rows import nodes_of_rows
from opcost.core.report import Report
from opcost.frontends.options import Mode


class Trace(NamedTuple):
    """One count with the operators as called; `touched` are the modules in which anything at all was asked of torch."""

    report: Report
    nodes: tuple[Node, ...]
    touched: frozenset[str]


def trace(
    model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None, *, mode: Mode | None = None
) -> Trace:
    """Count a model and note the operators as it calls them."""
    with Listener() as listener:
        report = count(model, args, kwargs=kwargs, mode=mode)
    return Trace(report, tuple(_nodes(report, listener.calls)), frozenset(listener.touched))


def _nodes(report: Report, calls: list[Called]) -> Iterator[Node]:
    """Calls and rows in the order in which they ran; a row that belongs to no call speaks for itself."""
    rows = report.rows
    made_by: dict[int, str] = {}
    done = 0
    for call in calls:
        yield from nodes_of_rows(rows[done : call.first], made_by)
        yield Node(call.kind, call.arguments, call.results, call.module, rows[call.first : call.end])
        done = call.end
    yield from nodes_of_rows(rows[done:], made_by)
