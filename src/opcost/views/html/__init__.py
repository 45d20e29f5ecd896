"""Reports, answers about profiles, comparisons and checkpoints as one page that needs nothing else: no network, no other file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from opcost.core.answer import Answer
from opcost.core.profile import Profile
from opcost.core.report import Report
from opcost.core.sheet import Sheet
from opcost.views.comparison_page import ComparisonOptions
from opcost.views.html.answers import Lines, profile_data
from opcost.views.html.columns import Told
from opcost.views.html.comparisons import comparison_data
from opcost.views.html.document import write_document
from opcost.views.html.reports import report_data
from opcost.views.html.tables import scan_data
from opcost.views.listing import Columns
from opcost.views.options import ViewOptions
from opcost.views.scan_listing import ScanOptions
from opcost.views.view import ComparisonView, ProfileView, ReportView, ScanView, View


@dataclass(frozen=True, kw_only=True)
class ReportOptions(ViewOptions):
    """A page has its own controls for all that could be chosen."""


@dataclass(frozen=True, kw_only=True)
class AnswerOptions(ViewOptions):
    """Which columns to show, and of which answers."""

    columns: Columns = None
    others: Sequence[Answer] = ()
    """Further answers, as the host's times beside the device's, that follow below the first."""
    profile: Profile | None = None
    """What was asked, with prices: the page then has its modules, its operators and its timeline too."""
    sheets: Sequence[Sheet] = ()
    """Tables about it as a whole, such as its collectives and what its allocators told."""


def _report(report: Report, options: ReportOptions) -> Told:
    return report_data(report)


def _answer(answer: Answer, options: AnswerOptions) -> Told:
    return profile_data(Lines((answer, *options.others), options.columns, options.sheets), options.profile)


def _write(data: Told, options: object) -> str:
    return write_document(data)


REPORT: ReportView = View(name="html", suffix=".html", options=ReportOptions, build=_report, write=_write)
ANSWER: ProfileView = View(name="html", suffix=".html", options=AnswerOptions, build=_answer, write=_write)
COMPARISON: ComparisonView = View(
    name="html", suffix=".html", options=ComparisonOptions, build=comparison_data, write=_write
)
SCAN: ScanView = View(name="html", suffix=".html", options=ScanOptions, build=scan_data, write=_write)
