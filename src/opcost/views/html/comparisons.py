"""Comparisons and sweeps as the page has them: amounts beside each other, ready for bars, trees, curves and heat maps."""

from __future__ import annotations

from opcost.core.comparison import Comparison, Entry
from opcost.core.harmless import printable
from opcost.core.quantity import LATENCY, QUANTITIES
from opcost.core.sweep import Sweep
from opcost.views.compared import page_of
from opcost.views.comparison_page import ComparisonOptions
from opcost.views.html.columns import Told
from opcost.views.html.tables import tables_data
from opcost.views.view import Subject

_TOLD = tuple(dict.fromkeys(("peak_bytes", "flops", "macs", "bytes", *QUANTITIES)))
"""Quantities in the order in which a sweep offers them; what is the same at every size is left out."""


def comparison_data(subject: Subject, options: ComparisonOptions) -> Told:
    """What is shown of models side by side, of a sweep, or of budgets."""
    page = page_of(subject, options)
    told = tables_data(page)
    if isinstance(subject, Comparison):
        told["compared"] = _compared(subject)
        if not subject.changes:  # what was added, removed and changed is told by tables alone
            told["tables"] = [table for table in told["tables"] if table["title"] not in ("totals", "by module")]
    elif isinstance(subject, Sweep):
        told["sweep"] = _sweep(subject)
    return told


def _compared(comparison: Comparison) -> Told:
    modules: dict[str, dict[str, Entry]] = {}
    for entry in comparison.of_part("module"):
        modules.setdefault(entry.name, {})[entry.quantity.name] = entry
    quantities = {entry.quantity.name: entry.quantity for lines in modules.values() for entry in lines.values()}
    return {
        "sources": [printable(source.label) for source in comparison.sources],
        "totals": [
            {
                "title": entry.quantity.title,
                "unit": entry.quantity.unit,
                "amounts": entry.amounts,
                "partial": entry.partial,
            }
            for entry in comparison.of_part("total")
            if any(entry.amounts)
        ],
        "paths": list(map(printable, modules)),
        "types": [printable(next(iter(lines.values())).type) for lines in modules.values()],
        "quantities": [
            {
                "name": name,
                "title": quantity.title,
                "unit": quantity.unit,
                "amounts": [_amounts(lines.get(name), len(comparison.sources)) for lines in modules.values()],
            }
            for name, quantity in quantities.items()
        ],
    }


def _amounts(entry: Entry | None, sources: int) -> list[int | None]:
    """None where the thing is not there, or its amount is not known."""
    if entry is None:
        return [None] * sources
    return [amount if there else None for amount, there in zip(entry.amounts, entry.present, strict=True)]


def _sweep(sweep: Sweep) -> Told:
    points = sweep.points
    known = [name for name in _TOLD if len({point.amounts.get(name) for point in points}) > 1]
    quantities: list[Told] = [
        {
            "name": name,
            "title": QUANTITIES[name].title,
            "unit": QUANTITIES[name].unit,
            "amounts": [point.amounts.get(name) for point in points],
        }
        for name in known
    ]
    if any(point.latency_ns is not None for point in points):
        told = {
            "name": LATENCY.name,
            "title": LATENCY.title,
            "unit": "time",
            "bands": [point.band_ns for point in points],
        }
        quantities.insert(0, told | {"amounts": [point.latency_ns for point in points]})
    return {
        "variables": list(map(printable, sweep.variables)),
        "sizes": [point.sizes for point in points],
        "counted": [point.counted for point in points],
        "fits": [point.fits for point in points],
        "quantities": quantities,
    }
