"""What the views of comparisons are asked to show, as a page for people and as records for programs."""

from __future__ import annotations

from typing import Any

from opcost.core.budget import Verdict
from opcost.core.comparison import Comparison
from opcost.core.fit import Fit
from opcost.core.sheet import Sheet
from opcost.core.sweep import Sweep
from opcost.views.budget_page import budget_data, budget_page, budget_records
from opcost.views.comparison_page import ComparisonOptions, comparison_data, comparison_page, comparison_records
from opcost.views.fit_page import fit_data, fit_page, fit_records
from opcost.views.listing import Listing
from opcost.views.page import Page
from opcost.views.sheet_page import sheet_data, sheet_page, sheet_records
from opcost.views.sweep_page import sweep_data, sweep_page, sweep_records
from opcost.views.view import Subject

_WAYS: dict[type, tuple[Any, Any, Any]] = {
    Comparison: (comparison_page, comparison_records, comparison_data),
    Verdict: (budget_page, budget_records, budget_data),
    Fit: (fit_page, fit_records, fit_data),
    Sweep: (sweep_page, sweep_records, sweep_data),
    Sheet: (sheet_page, sheet_records, sheet_data),
}
"""Of each kind of subject: its page, its records, its data."""


def page_of(subject: Subject, options: ComparisonOptions) -> Page:
    """For people."""
    found: Page = _WAYS[type(subject)][0](subject, options)
    return found


def records_of(subject: Subject) -> Listing:
    """For spreadsheets: nothing is rounded."""
    found: Listing = _WAYS[type(subject)][1](subject)
    return found


def data_of(subject: Subject) -> dict[str, Any]:
    """For programs: nothing is rounded, and nothing is left out."""
    found: dict[str, Any] = _WAYS[type(subject)][2](subject)
    return found
