"""The operators of a model as its author called them: `linear` and `softmax`, not the `addmm`, `t` and `view` they become.

opcost records where the dispatcher has already taken composite operators apart. The peers speak of the calls, as torch's
jit tracer sees them, so the calls are noted while opcost counts, each with the rows that it became.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from opcost.compat._operators.listener import PYTHON_OPERATOR, Called, Listener
from opcost.compat._operators.node import Node
from opcost.compat._operators.rows import nodes_of_rows
from opcost.compat._recording import count_a_run
from opcost.core.option import Mode
from opcost.core.report import Report


class Trace(NamedTuple):
    """One count with the operators as called; `touched` are the modules in which anything at all was asked of torch."""

    report: Report
    nodes: tuple[Node, ...]
    touched: frozenset[str]


def trace(
    model: Any,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None = None,
    *,
    mode: Mode | None = None,
    warn: bool = True,
) -> Trace:
    """Count a model and note the operators as it calls them."""
    with Listener() as listener:
        report = count_a_run(model, args, kwargs, mode=mode, warn=warn)
    return Trace(report, tuple(nodes_of(report, listener.calls)), frozenset(listener.touched))


def nodes_of(report: Report, calls: list[Called]) -> Iterator[Node]:
    """Calls and rows in the order in which they ran; a row that belongs to no call speaks for itself."""
    return _between(report, calls, 0, len(report.rows), {})


def _between(report: Report, calls: Iterable[Called], first: int, end: int, made_by: dict[int, str]) -> Iterator[Node]:
    rows = report.rows
    done = first
    for call in calls:
        yield from nodes_of_rows(rows[done : call.first], made_by)
        inside: tuple[Node, ...] = ()
        if call.kind.startswith(PYTHON_OPERATOR):
            inside = tuple(_between(report, call.inside, call.first, call.end, made_by))
        yield Node(call.kind, call.arguments, call.results, call.module, tuple(rows[call.first : call.end]), inside)
        done = call.end
    yield from nodes_of_rows(rows[done:end], made_by)
