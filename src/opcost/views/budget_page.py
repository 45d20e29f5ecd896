"""A verdict on budgets on a page: one line for each limit, with what was before; and the same as records for programs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from opcost.core.budget import Held, Verdict
from opcost.views.comparison_page import ComparisonOptions, listed, percent, plain_column
from opcost.views.listing import Amount, Listing, Value
from opcost.views.page import Page
from opcost.views.summary import LONG_LINE, Section, Summary
from opcost.wording import shortened, some

MANY = 64
"""Sentences about what is wrong."""


def budget_page(verdict: Verdict, options: ComparisonOptions) -> Page:
    """Every limit with its verdict, and below them in sentences what is wrong."""
    limits = [line for line in verdict.lines if line.limit is not None]
    broken = [line for line in limits if line.word in ("EXCEEDED", "UNKNOWN")]
    said = f"{len(broken)} of {len(limits)} limits" if broken else f"{len(limits)} limits"
    heading = [f"{'within the budget' if verdict else 'NOT within the budget'}: {said}"]
    for model in verdict.models:
        facts = ", ".join(filter(None, (model.source, model.inputs)))
        heading.append(shortened(f"{model.name}: {facts}" if facts else model.name, LONG_LINE))
    if verdict.baseline:
        heading.append(f"baseline: {verdict.baseline}")
    wrong = tuple(some([shortened(text, LONG_LINE) for text in verdict.offending], MANY))
    sections = (Section("what is wrong", wrong, urgent=True),) if wrong else ()
    columns = [
        plain_column("verdict", of=lambda line: line.word),
        plain_column("model", unit="name", of=lambda line: line.model),
        plain_column("quantity", of=lambda line: line.quantity.title),
        plain_column("before", unit="number", of=_before),
        plain_column("counted", unit="number", of=_amount),
        plain_column("difference", unit="number", of=_difference),
        plain_column("relative", "%", unit="number", of=_relative),
        plain_column("allowed", unit="number", of=lambda line: line.limit.text if line.limit else ""),
    ]
    left_out = {*(() if verdict.baseline else _CHANGES), *(() if len(verdict.models) > 1 else ("model",))}
    ranked = ("verdict", "quantity", "counted", "allowed", "model", "before", "relative", "difference")
    listing = listed([column for column in columns if column.name not in left_out], verdict.lines)
    return Page(replace(listing, ranked=ranked), Summary(heading=tuple(heading), sections=sections))


_CHANGES = ("before", "difference", "relative")


def _amount(line: Held) -> Value:
    return Amount(line.amount, line.quantity.unit, line.partial)


def _before(line: Held) -> Value:
    return "" if line.before is None else Amount(line.before, line.quantity.unit)


def _difference(line: Held) -> Value:
    return Amount(line.difference, line.quantity.unit, signed=True) if line.difference else ""


def _relative(line: Held) -> str:
    if line.before is None:
        return "new"
    return percent(line.before, line.amount) if line.difference else ""


def budget_records(verdict: Verdict) -> Listing:
    """One line for each limit and each change, nothing rounded."""
    columns = [
        plain_column("model", unit="name", of=lambda line: line.model),
        plain_column("quantity", of=lambda line: line.quantity.name),
        plain_column("counted", unit="number", of=lambda line: line.amount),
        plain_column("before", unit="number", of=lambda line: line.before),
        plain_column("allowed", of=lambda line: line.limit.text if line.limit else ""),
        plain_column("verdict", of=lambda line: line.word),
    ]
    return listed(columns, verdict.lines)


def budget_data(verdict: Verdict) -> dict[str, Any]:
    """All of it for JSON."""
    return {
        "schema": "opcost.budget/1",
        "kept": bool(verdict),
        "baseline": verdict.baseline,
        "models": [
            {
                "name": model.name,
                "source": model.source,
                "inputs": model.inputs,
                "kept": model.kept,
                "uncounted": [missed.raw for missed in model.missed],
                "lines": [
                    {
                        "quantity": line.quantity.name,
                        "unit": line.quantity.unit,
                        "counted": line.amount,
                        "lower_bound": line.partial,
                        "before": line.before,
                        "allowed": line.limit.text if line.limit else None,
                        "verdict": line.word,
                    }
                    for line in model.lines
                ],
            }
            for model in verdict.models
        ],
        "offending": list(verdict.offending),
    }
