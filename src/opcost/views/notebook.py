"""A piece of a page for notebooks: a table whose tree opens, with bars. It needs no script, no server and no other file.

It takes the colours of the notebook, so it is light where that is and dark where that is. Names are from files that nobody
has vetted, so everything is escaped. Where styles are taken away, as on pages that show notebooks, the text and the tree remain.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from html import escape

from opcost.core.answer import Answer
from opcost.core.harmless import printable
from opcost.core.report import Report
from opcost.core.scan import Scan
from opcost.views.answer_page import answer_page
from opcost.views.cell import cut, listing_texts, width_of
from opcost.views.compared import page_of
from opcost.views.comparison_page import ComparisonOptions
from opcost.views.listing import Column, Line, Listing
from opcost.views.options import AnswerOptions, NumberOptions
from opcost.views.page import Page
from opcost.views.report_listing import ListingOptions, list_report
from opcost.views.report_summary import summarize
from opcost.views.scan_listing import ScanOptions, scan_page
from opcost.views.view import Subject, View
from opcost.wording import some

LINES = 250
"""Lines of one table; a cell of a notebook that holds more makes the notebook slow."""
COLUMNS = 8
"""Columns beside each other, unless the caller named them."""
LONGEST = {"name": 48, "text": 28, "shapes": 26}
"""Characters of a cell, by its unit."""
GUIDE = len("├─ ")
OPEN = 1
"""Levels of the tree that are open at first."""

STYLE = (
    ".opcost{font:13px/1.5 system-ui,sans-serif;color:inherit;overflow:auto;max-height:40em}"
    ".opcost .r{display:grid;grid-template-columns:var(--c);gap:0 1em}"
    ".opcost>div{min-width:max-content}"
    ".opcost .r{border-bottom:1px solid rgba(127,127,127,.18);list-style:none}"
    ".opcost .r>*{white-space:pre;font:inherit;text-decoration:none}"
    ".opcost .r>u{text-align:right;font-variant-numeric:tabular-nums}"
    ".opcost .r>s{text-align:right;background:linear-gradient(90deg,rgba(66,133,244,.38) var(--p),transparent 0)}"
    ".opcost .r>i{opacity:.75}"
    ".opcost .h>*{font-weight:600!important;opacity:1!important;background:none!important}"
    ".opcost .h{position:sticky;top:0;backdrop-filter:blur(9px)}"
    ".opcost .sum>*{font-weight:600}"
    ".opcost details>:not(summary){margin-left:1.2em}"
    '.opcost .r>b::before{content:"";display:inline-block;width:1.2em}'
    ".opcost summary{cursor:pointer}.opcost summary::-webkit-details-marker{display:none}"
    '.opcost summary.r>b::before{content:"\\25B8"}'
    '.opcost details[open]>summary.r>b::before{content:"\\25BE"}'
    ".opcost p{margin:.4em 0;white-space:pre-wrap}.opcost .w{border-left:3px solid #d98c00;padding-left:.6em}"
)


@dataclass(frozen=True, kw_only=True)
class NotebookOptions(ListingOptions, NumberOptions):
    """The options of a listing, how to write its numbers, and what else is said above it."""

    said: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class AnswerNotebookOptions(AnswerOptions):
    """Which columns, and what else is said above them."""

    said: Sequence[str] = ()


def _of_report(report: Report, options: NotebookOptions) -> Page:
    return _with(options.said, Page(_fitting(report, options), summarize(report)))


def _of_answer(answer: Answer, options: AnswerNotebookOptions) -> Page:
    return _with(options.said, answer_page(answer, options))


def _with(said: Sequence[str], page: Page) -> Page:
    return replace(page, summary=replace(page.summary, heading=(*page.summary.heading, *said)))


def _fitting(report: Report, options: NotebookOptions) -> Listing:
    """As much of the tree as a cell of a notebook holds: all of it, else identical blocks once, else down to a depth."""
    if options.by != "module" or options.top is not None or options.depth != "auto":
        return list_report(report, options)
    whole = len(report.modules) <= LINES
    listing = list_report(
        report, replace(options, depth=None, merge=not whole if options.merge is None else options.merge)
    )
    depth = max(module.depth for module in report.modules)
    while len(listing.lines) > LINES and depth > 1:
        depth -= 1
        listing = list_report(report, replace(options, depth=depth, merge=True))
    return listing


def _write(page: Page, options: NumberOptions) -> str:
    summary, exact = page.summary, options.exact
    totals = " · ".join(f"{each.label.strip()} {each.human}" for each in summary.quantities)
    parts = [
        f"<p><strong>{_text(summary.heading[0])}</strong></p>",
        *_lines(summary.heading[1:]),
        *_lines([totals]),
        *_table(page.listing, exact=exact),
    ]
    for title, listing in page.further:
        parts += [*_lines([title]), *_table(listing, exact=exact)]
    parts += _lines(summary.seen_against)
    for section in summary.sections:
        told = "\n".join(filter(None, [section.title, *(f"  {line}" for line in section.lines), section.hint]))
        parts.append(f'<p class="w">{_text(told)}</p>' if section.urgent else f"<p>{_text(told)}</p>")
    return f'<div class="opcost"><style>{STYLE}</style>{"".join(parts)}</div>'


def _lines(texts: Iterable[str]) -> Iterator[str]:
    return (f"<p>{_text(text)}</p>" for text in texts if text)


# -- the table ---------------------------------------------------------------------------------------------------------


def _table(listing: Listing, *, exact: bool) -> Iterator[str]:
    if not listing.columns:
        return
    left_out = max(0, len(listing.lines) - LINES)
    if left_out:
        sums = tuple(line for line in listing.lines[LINES:] if line.role == "total")
        listing = replace(listing, lines=(*listing.lines[:LINES], *sums))
        left_out -= len(sums)
    places, hidden = _room(listing)
    columns = [listing.columns[place] for place in places]
    texts = [
        [
            cut(text, LONGEST.get(column.unit, len(text)), column.unit)
            for text in listing_texts(listing, place, exact=exact)
        ]
        for place, column in zip(places, columns, strict=True)
    ]
    rows = [
        _row(cells, line, columns, places) for line, cells in zip(listing.lines, zip(*texts, strict=True), strict=True)
    ]
    heads = "".join(
        f"<{_tag(column, place)}>{_text(column.title)}</{_tag(column, place)}>" for place, column in enumerate(columns)
    )
    widths = " ".join(
        _width(column, column_texts, place)
        for place, (column, column_texts) in enumerate(zip(columns, texts, strict=True))
    )
    yield f'<div style="--c:{widths}"><div class="r h">{heads}</div>'
    yield "".join(_tree(listing.lines, rows))
    yield "</div>"
    if left_out:
        yield f"<p>{left_out:,} more lines are not shown; print() and to_dict() have all of them</p>"
    yield from _lines(listing.remarks)
    if hidden:
        yield f"<p>no room for {_text(', '.join(some(hidden, 24)))}</p>"


def _room(listing: Listing) -> tuple[list[int], list[str]]:
    """The places of the columns that are shown, and the names of those that have something to tell and are not."""
    telling = listing.telling
    if not listing.ranked:
        return telling, []
    order = [name for name in listing.ranked if name in {listing.columns[place].name for place in telling}]
    kept = set(order[:COLUMNS])
    places = [place for place in telling if listing.columns[place].name in kept]
    return places, [name for name in order if name not in kept]


def _row(cells: Sequence[str], line: Line, columns: Sequence[Column], places: Sequence[int]) -> str:
    written = []
    for number, (text, column, place) in enumerate(zip(cells, columns, places, strict=True)):
        tag, value = _tag(column, number), line.values[place]
        part = (
            f' style="--p:{min(max(100 * value, 0.0), 100.0):.1f}%"'
            if tag == "s" and isinstance(value, (int, float))
            else ""
        )
        written.append(f"<{tag}{part}>{_text(text)}</{tag}>")
    return " ".join(written)


def _tag(column: Column, place: int) -> str:
    """The shortest element for each kind of cell: what is named, words, a number, a share with its bar."""
    if place == 0:
        return "b"
    return "i" if column.textual else "s" if column.unit == "share" else "u"


def _width(column: Column, texts: Sequence[str], place: int) -> str:
    widest = max([width_of(column.title), *map(width_of, texts)])
    return f"minmax({widest + 4}ch,1fr)" if place == 0 else f"{max(widest, 7 if column.unit == 'share' else 1)}ch"


def _tree(lines: Sequence[Line], rows: Sequence[str]) -> Iterator[str]:
    """Lines below one another as elements inside one another, those with others below them to be opened."""
    depths = [len(line.guides) // GUIDE for line in lines]
    unfinished = 0
    for place, (line, row) in enumerate(zip(lines, rows, strict=True)):
        depth = depths[place]
        while unfinished > depth:
            unfinished -= 1
            yield "</details>"
        kind = "r sum" if line.role != "row" else "r"
        if place + 1 < len(lines) and depths[place + 1] > depth:
            yield f'<details{" open" if depth < OPEN else ""}><summary class="{kind}">{row}</summary>'
            unfinished += 1
        else:
            yield f'<div class="{kind}">{row}</div>'
    yield "</details>" * unfinished


def _text(text: str) -> str:
    return escape(printable(text, keep="\n\u00a0"), quote=True)


REPORT: View[Report, NotebookOptions, Page] = View(
    name="notebook", options=NotebookOptions, build=_of_report, write=_write
)
ANSWER: View[Answer, AnswerNotebookOptions, Page] = View(
    name="notebook", options=AnswerNotebookOptions, build=_of_answer, write=_write
)
COMPARISON: View[Subject, ComparisonOptions, Page] = View(
    name="notebook", options=ComparisonOptions, build=page_of, write=_write
)
SCAN: View[Scan, ScanOptions, Page] = View(name="notebook", options=ScanOptions, build=scan_page, write=_write)
