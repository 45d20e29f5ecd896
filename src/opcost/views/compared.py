"""What the views of comparisons are asked to show, as a page for people and as records for programs."""

from __future__ import annotations

from typing import Any

from opcost.core.budget import Verdict
from opcost.core.sheet import Sheet
from opcost.views.budget_page import budget_data, budget_page, budget_records
from opcost.views.comparison_page import ComparisonOptions, comparison_data, comparison_page, comparison_records
from opcost.views.listing import Listing
from opcost.views.page import Page
from opcost.views.sheet_page import sheet_data, sheet_page, sheet_records
from opcost.views.view import Subject


def page_of(subject: Subject, options: ComparisonOptions) -> Page:
    """For people."""
    if isinstance(subject, Sheet):
        return sheet_page(subject, options)
    return budget_page(subject, options) if isinstance(subject, Verdict) else comparison_page(subject, options)


def records_of(subject: Subject) -> Listing:
    """For spreadsheets: nothing is rounded."""
    if isinstance(subject, Sheet):
        return sheet_records(subject)
    return budget_records(subject) if isinstance(subject, Verdict) else comparison_records(subject)


def data_of(subject: Subject) -> dict[str, Any]:
    """For programs: nothing is rounded, and nothing is left out."""
    if isinstance(subject, Sheet):
        return sheet_data(subject)
    return budget_data(subject) if isinstance(subject, Verdict) else comparison_data(subject)
