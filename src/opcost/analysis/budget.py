"""Whether a model keeps to its limits, and what became of it since a baseline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from opcost.analysis.compare import Costs
from opcost.core.budget import Held, Judged, Word
from opcost.core.limit import Limit
from opcost.core.quantity import QUANTITIES, Quantity
from opcost.errors import InputError

TOLD = ("params", "macs", "flops", "activations", "bytes", "peak_bytes")
"""Quantities whose change since the baseline is told even where they have no limit."""


def judge(
    model: Costs,
    limits: Iterable[Limit],
    *,
    source: str = "",
    before: Mapping[str, int] | None = None,
    allow_uncounted: bool = False,
) -> Judged:
    """Every limit with its verdict and, where there is a baseline, what else has changed."""
    name, facts = model.compared.label, model.compared.facts
    was = before or {}
    limited: dict[str, None] = {}
    lines = []
    for limit in limits:
        limited[limit.quantity.name] = None
        lines.append(_held(model, limit.quantity, was, limit, unknown=not allow_uncounted))
    for quantity in (QUANTITIES[other] for other in TOLD):
        amount = model.totals.get(quantity.name)
        if quantity.name not in limited and amount is not None and was.get(quantity.name, amount) != amount:
            lines.append(_held(model, quantity, was, None))
    told = facts.get("inputs") or facts.get("stored", "")
    missed = () if allow_uncounted else model.missed
    return Judged(name=name, source=source, inputs=told, lines=tuple(lines), missed=missed)


def _held(
    model: Costs, quantity: Quantity, was: Mapping[str, int], limit: Limit | None, *, unknown: bool = False
) -> Held:
    amount, before = model.totals.get(quantity.name), was.get(quantity.name)
    if amount is None:
        raise InputError(
            f"{limit or quantity.name}: {model.compared.label} has no such quantity",
            hint=f"known are {', '.join(model.totals)}",
        )
    partial = quantity.priced and bool(model.missed)
    return Held(
        model=model.compared.label,
        quantity=quantity,
        amount=amount,
        partial=partial,
        before=before,
        limit=limit,
        word=_word(limit, amount, before, unknown=unknown and partial),
    )


def _word(limit: Limit | None, amount: int, before: int | None, *, unknown: bool) -> Word:
    if limit is None:
        return ""
    if limit.relative and before is None:
        return "new"
    if not limit.holds(amount, before):
        return "EXCEEDED"
    return "UNKNOWN" if unknown else "ok"
