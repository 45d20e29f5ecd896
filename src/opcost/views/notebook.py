"""Sheets as a piece of a page for notebooks: tables whose tree opens, with bars. No script, server or other file is needed.

It takes the colours of the notebook, light or dark. Names may come from untrusted files, so everything is escaped. Where styles
are taken away, as on pages that show notebooks, the text and the tree remain.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from html import escape
from importlib.resources import files

from opcost.core.escaping import printable
from opcost.core.sheet import Line, Sheet, Table
from opcost.errors import some
from opcost.views.report import NOTEBOOK_LINES as LINES
from opcost.views.results import sheet_view
from opcost.views.view import ViewOptions, column_texts, cut, ranked_places, width_of

COLUMNS = 8  # columns beside each other, unless the caller named them
LONGEST = {"name": 48, "text": 28, "shapes": 26}  # characters of a cell, by its unit
OPEN = 1  # levels of the tree that are open at first


def _write(sheet: Sheet, options: ViewOptions) -> str:
    totals = " · ".join(f"{each.label.strip()} {each.human}" for each in sheet.totals)
    parts = [
        f"<p><strong>{_text(sheet.answer)}</strong></p>",
        *_lines((*sheet.heading, totals)),
    ]
    for table in (table.narrow for table in sheet.tables):
        parts += [*([] if table.main else _lines([table.title])), *_table(table, exact=options.exact)]
    parts += _lines(sheet.facts)
    for section in sheet.unplotted:
        text = "\n".join(filter(None, [section.title, *(f"  {line}" for line in section.lines), section.hint]))
        parts.append(f'<p class="w">{_text(text)}</p>' if section.urgent else f"<p>{_text(text)}</p>")
    return f'<div class="opcost"><style>{_style()}</style>{"".join(parts)}</div>'


@cache
def _style() -> str:
    return (files("opcost.views") / "notebook.css").read_text(encoding="utf-8").replace("\n", "")


def _lines(texts: Iterable[str]) -> Iterator[str]:
    return (f"<p>{_text(text)}</p>" for text in texts if text)


def _table(table: Table, *, exact: bool) -> Iterator[str]:
    left_out = max(0, len(table.lines) - LINES)
    if left_out:
        sums = tuple(line for line in table.lines[LINES:] if line.role == "total")
        table = replace(table, lines=(*table.lines[:LINES], *sums))
        left_out -= len(sums)
    places, hidden = ranked_places(table, COLUMNS)
    fields = [table.fields[place] for place in places]
    texts = [
        [cut(text, LONGEST.get(field.unit, len(text)), field.unit) for text in column_texts(table, place, exact=exact)]
        for place, field in zip(places, fields, strict=True)
    ]
    # The shortest element for each kind of cell: what is named, words, a share with its bar, a number
    tags = ["i" if field.textual else "s" if field.unit == "share" else "u" for field in fields]
    tags[:1] = ["b"]
    rows = []
    for line, cells in zip(table.lines, zip(*texts, strict=True), strict=True):
        written = []
        for text, tag, place in zip(cells, tags, places, strict=True):
            value = line.values[place]
            bar = tag == "s" and isinstance(value, (int, float))
            style = f' style="--p:{min(max(100 * value, 0.0), 100.0):.1f}%"' if bar else ""  # type: ignore[operator]
            written.append(f"<{tag}{style}>{_text(text)}</{tag}>")
        rows.append(" ".join(written))
    heads = "".join(f"<{tag}>{_text(field.header)}</{tag}>" for tag, field in zip(tags, fields, strict=True))
    widest = [max(map(width_of, (field.header, *column))) for field, column in zip(fields, texts, strict=True)]
    others = (f" {max(width, 7 if tag == 's' else 1)}ch" for width, tag in zip(widest[1:], tags[1:], strict=True))
    first = f"minmax({widest[0] + 4}ch,1fr)" if widest else ""
    yield f'<div style="--c:{first}{"".join(others)}"><div class="r h">{heads}</div>'
    yield "".join(_tree(table.lines, rows))
    yield "</div>"
    if left_out:
        yield f"<p>{left_out:,} more lines are not shown; print() and to_dict() have all of them</p>"
    yield from _lines(table.remarks)
    if hidden:
        yield f"<p>no room for {_text(', '.join(some(hidden, 24)))}</p>"


def _tree(lines: Sequence[Line], rows: Sequence[str]) -> Iterator[str]:
    """Lines below one another as elements inside one another, those with others below them to be opened."""
    depths = [line.depth for line in lines]
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


NOTEBOOK = sheet_view("notebook", _write, "exact", for_reports={"depth": "notebook"})
