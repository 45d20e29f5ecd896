"""Sheets as a piece of a page for notebooks: tables whose tree opens, with bars. No script, server or other file is needed.

It takes the colours of the notebook, light or dark. Names may come from untrusted files, so everything is escaped. Where styles
are taken away, as on pages that show notebooks, the text and the tree remain.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from html import escape

from opcost.core.escaping import printable
from opcost.core.sheet import Line, Sheet, Table
from opcost.errors import some
from opcost.views.report import NOTEBOOK_LINES as LINES
from opcost.views.results import sheet_view
from opcost.views.view import ViewOptions, column_texts, cut, width_of

COLUMNS = 8  # columns beside each other, unless the caller named them
LONGEST = {"name": 48, "text": 28, "shapes": 26}  # characters of a cell, by its unit
GUIDE = len("├─ ")
OPEN = 1  # levels of the tree that are open at first

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


def _write(sheet: Sheet, options: ViewOptions) -> str:
    totals = " · ".join(f"{each.label.strip()} {each.human}" for each in sheet.totals)
    parts = [
        f"<p><strong>{_text(sheet.heading[0])}</strong></p>",
        *_lines((*sheet.heading[1:], *options.above, totals)),
    ]
    for table in sheet.tables:
        parts += [*([] if table.main else _lines([table.title])), *_table(table, exact=options.exact)]
    parts += _lines(sheet.facts)
    for section in sheet.sections:
        text = "\n".join(filter(None, [section.title, *(f"  {line}" for line in section.lines), section.hint]))
        parts.append(f'<p class="w">{_text(text)}</p>' if section.urgent else f"<p>{_text(text)}</p>")
    return f'<div class="opcost"><style>{STYLE}</style>{"".join(parts)}</div>'


def _lines(texts: Iterable[str]) -> Iterator[str]:
    return (f"<p>{_text(text)}</p>" for text in texts if text)


def _table(table: Table, *, exact: bool) -> Iterator[str]:
    left_out = max(0, len(table.lines) - LINES)
    if left_out:
        sums = tuple(line for line in table.lines[LINES:] if line.role == "total")
        table = replace(table, lines=(*table.lines[:LINES], *sums))
        left_out -= len(sums)
    places, hidden = table.visible, list[str]()
    if table.order:
        seen = {table.fields[place].name for place in places}
        ranked = [name for name in table.order if name in seen]
        places = [place for place in places if table.fields[place].name in ranked[:COLUMNS]]
        hidden = ranked[COLUMNS:]
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
            value = line.values[place] if tag == "s" else None
            share = f"{min(max(100 * value, 0.0), 100.0):.1f}" if isinstance(value, (int, float)) else ""
            written.append(
                f'<{tag} style="--p:{share}%">{_text(text)}</{tag}>' if share else f"<{tag}>{_text(text)}</{tag}>"
            )
        rows.append(" ".join(written))
    heads = "".join(f"<{tag}>{_text(field.header)}</{tag}>" for tag, field in zip(tags, fields, strict=True))
    widths: list[str] = []
    for field, column in zip(fields, texts, strict=True):
        widest = max([width_of(field.header), *map(width_of, column)])
        least = 7 if field.unit == "share" else 1
        widths.append(f"{max(widest, least)}ch" if widths else f"minmax({widest + 4}ch,1fr)")
    yield f'<div style="--c:{" ".join(widths)}"><div class="r h">{heads}</div>'
    yield "".join(_tree(table.lines, rows))
    yield "</div>"
    if left_out:
        yield f"<p>{left_out:,} more lines are not shown; print() and to_dict() have all of them</p>"
    yield from _lines(table.remarks)
    if hidden:
        yield f"<p>no room for {_text(', '.join(some(hidden, 24)))}</p>"


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


NOTEBOOK = sheet_view("notebook", _write, "exact above", for_reports={"depth": "notebook"})
