"""What all pages for a browser are made of: one file that loads nothing, with tables that its script sorts and filters.

Names are from files that nobody has vetted, so everything is escaped, and the page forbids itself to load anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from importlib.resources import files

from opcost.core.harmless import printable
from opcost.views.cell import format_value
from opcost.views.listing import Amount, Column, Line, Listing, Value
from opcost.views.options import NumberOptions
from opcost.views.page import Page

_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
)
_FILTER = '<input type="search" placeholder="filter: words that a line must have" aria-label="filter">'
_HELD = "\u00a0"
_LONG = 30
"""Letters from which a text may be cut on the screen, so that its whole is told when pointed at."""


def whole_page(title: str, body: Iterable[str]) -> str:
    """A page with this title and these parts, each already written as HTML."""
    return "\n".join(
        [
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{text_of(title)}</title>",
            f"<style>\n{_asset('profile_page.css')}</style>\n</head>\n<body>",
            *body,
            f"<script>\n{_asset('profile_page.js')}</script>\n</body>\n</html>\n",
        ]
    )


def table_page(page: Page, options: NumberOptions) -> str:
    """A page of tables: heading, lines, and what the reader must know."""
    summary = page.summary
    tables = [(page.title, page.listing), *page.further]
    totals = [f"{each.label.strip()}: {each.human} ({each.value:,}) {each.remark}" for each in summary.quantities]
    return whole_page(
        summary.heading[0],
        [
            f"<h1>{text_of(summary.heading[0])}</h1>",
            notes_of([*summary.heading[1:], *totals]),
            *(_table(title, listing, exact=options.exact) for title, listing in tables if listing.columns),
            notes_of(summary.seen_against),
            *(notes_of([section.title, *section.lines, section.hint]) for section in summary.sections),
        ],
    )


def _table(title: str, listing: Listing, *, exact: bool) -> str:
    places = listing.telling
    bodies = [_row(listing, line, places, exact=exact) for line in listing.lines if line.role == "row"]
    foot = [_row(listing, line, places, exact=exact) for line in listing.lines if line.role != "row"]
    written = [f"<tbody>{chr(10).join(bodies)}</tbody>", *([f"<tfoot>{chr(10).join(foot)}</tfoot>"] if foot else [])]
    shown = [listing.columns[place] for place in places]
    return section_of(title, shown, written) + notes_of(listing.remarks)


def _row(listing: Listing, line: Line, places: Sequence[int], *, exact: bool) -> str:
    cells = (
        cell_of(line.values[place], column, text_of(format_value(line.values[place], column, exact=exact)))
        for place, column in ((place, listing.columns[place]) for place in places)
    )
    return f'<tr class="{line.role}">{"".join(cells)}</tr>'


def section_of(title: str, columns: Sequence[Column], bodies: Iterable[str]) -> str:
    """A table with its title, a field to filter it by, and heads to sort it by."""
    heads = "".join(
        f'<th scope="col"{_class(column)}><button>{text_of(column.title)}</button></th>' for column in columns
    )
    return "\n".join(
        [
            f'<section class="answer">\n<h2>{text_of(title)}</h2>',
            f'<div class="tools">{_FILTER}<output></output></div>',
            f'<div class="wide"><table>\n<thead><tr>{heads}</tr></thead>',
            *bodies,
            "</table></div>\n</section>",
        ]
    )


def cell_of(value: Value, column: Column, text: str | None = None) -> str:
    """One cell with what is behind its text; `text` is HTML that stands in it instead of the value."""
    plain = text_of(format_value(value, column))
    style = f' title="{plain}"' if len(plain) > _LONG else ""
    if column.unit == "share" and isinstance(value, float):
        style += f' style="--part:{min(max(100 * value, 0.0), 100.0):.2f}%"'
    return f"<td{_class(column)}{_sorted(value, column)}{style}>{plain if text is None else text}</td>"


def notes_of(lines: Iterable[str]) -> str:
    """What must be said, as a list; nothing where there is nothing to say."""
    items = "".join(_items(lines))
    return f'<ul class="notes">{items}</ul>' if items else ""


def _items(lines: Iterable[str]) -> Iterator[str]:
    return (f"<li>{text_of(line)}</li>" for line in lines if line)


def text_of(text: str) -> str:
    """The text without meaning for a browser."""
    return escape(printable(text, keep=_HELD), quote=True)


def _asset(name: str) -> str:
    return (files("opcost.views") / name).read_text(encoding="utf-8")


def _class(column: Column) -> str:
    if column.name == "note":
        return ' class="text flag"'
    if column.unit == "share":
        return ' class="share"'
    return ' class="text"' if column.textual else ""


def _sorted(value: Value, column: Column) -> str:
    """The number behind a text, for sorting; empty where there is none."""
    if column.textual:
        return ""
    number = value.number if isinstance(value, Amount) else value
    return f' data-v="{number}"' if isinstance(number, (int, float)) else ' data-v=""'
