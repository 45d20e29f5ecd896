"""An answer about a profile as one page that needs nothing else: no network, no other file, light and dark.

Every line stands in the page as it is written; the script only sorts and filters. All names are from a file that nobody has
vetted, so everything is escaped, and the page forbids itself to load anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files

from opcost.core.answer import Answer, AnswerLine, Busy
from opcost.core.harmless import printable
from opcost.views.answer_listing import list_answer
from opcost.views.answer_page import held_time, launches_text
from opcost.views.cell import format_value
from opcost.views.listing import Column, Columns, Value
from opcost.views.view import ProfileView, View

_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
)
_FILTER = '<input type="search" placeholder="filter: words that a line must have" aria-label="filter">'
_HELD = "\u00a0"
_LONG = 30
"""Letters from which a text may be cut on the screen, so that its whole is told when pointed at."""


@dataclass(frozen=True, kw_only=True)
class HtmlOptions:
    """Which columns to show, and of which answers."""

    columns: Columns = None
    others: Sequence[Answer] = ()
    """Further answers, as the host's times beside the device's, that follow below the first."""


def _build(answer: Answer, options: HtmlOptions) -> list[Answer]:
    return [answer, *options.others]


def _write(answers: list[Answer], options: HtmlOptions) -> str:
    answer = answers[0]
    source, kind = answer.meta.get("source", "profile"), answer.meta.get("format", "opcost")
    return "\n".join(
        [
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{_text(source)}: where the time goes</title>",
            f"<style>\n{_asset('profile_page.css')}</style>\n</head>\n<body>",
            f"<h1>{_text(source)} <small>{_text(kind)}</small></h1>",
            _totals(answer),
            _split(answer),
            *map(_device, answer.devices),
            _notes(answer),
            *(_section(each, options.columns) for each in answers),
            f"<script>\n{_asset('profile_page.js')}</script>\n</body>\n</html>\n",
        ]
    )


def _asset(name: str) -> str:
    return (files("opcost.views") / name).read_text(encoding="utf-8")


def _text(text: str) -> str:
    return escape(printable(text, keep=_HELD), quote=True)


# -- what the lines must be seen against -------------------------------------------------------------------------------


def _totals(answer: Answer) -> str:
    known = {
        "device time": answer.device_ns,
        "host time": answer.host_ns,
        "wall time": answer.wall_ns,
        "unattributed device time": answer.unattributed_ns or None,
    }
    cards = [f"<div><dt>{name}</dt><dd>{held_time(ns)}</dd></div>" for name, ns in known.items() if ns is not None]
    return f'<dl class="totals">{"".join(cards)}</dl>'


def _split(answer: Answer) -> str:
    """How the time of devices and that of the host compare."""
    if not answer.device_ns or not answer.host_ns:
        return ""
    part = 100 * answer.device_ns / (answer.device_ns + answer.host_ns)
    return (
        f'<div class="use"><p>device {held_time(answer.device_ns)}, host {held_time(answer.host_ns)}</p>'
        f'<div class="meter" role="img" aria-label="device {part:.1f} %, host {100 - part:.1f} %">'
        f'<i style="width:{part:.2f}%"></i><i class="host" style="width:{100 - part:.2f}%"></i></div></div>'
    )


def _device(use: Busy) -> str:
    busy = 100 * use.busy_ns / use.span_ns if use.span_ns else 0.0
    said = (
        f"{_text(use.device or 'device')} (rank {use.rank}): busy {held_time(use.busy_ns)} of {held_time(use.span_ns)}, idle "
        f"{held_time(use.idle_ns)} ({100 - busy:.1f} %), kernels side by side {held_time(use.overlap_ns)}"
    )
    if use.launches:
        said += f"; {_text(launches_text(use))}"
    return (
        f'<div class="use"><p>{said}</p><div class="meter" role="img" aria-label="busy {busy:.1f} %">'
        f'<i style="width:{busy:.2f}%"></i></div></div>'
    )


def _notes(answer: Answer) -> str:
    said = [f"peaks of {answer.peak}"] if answer.peak else []
    said += [note.text for note in answer.notes]
    return f'<ul class="notes">{"".join(f"<li>{_text(text)}</li>" for text in said)}</ul>' if said else ""


# -- the table ---------------------------------------------------------------------------------------------------------


def _section(answer: Answer, columns: Columns) -> str:
    listing = list_answer(answer, columns)
    shown = [listing.columns[place] for place in listing.telling]
    if listing.ranked:
        # Kernels are behind the names; what is looked at first stands first.
        shown = [column for column in shown if column.name != "top_kernel"]
        shown.sort(key=lambda column: listing.ranked.index(column.name))
    heads = "".join(f'<th scope="col"{_class(column)}><button>{_text(column.title)}</button></th>' for column in shown)
    keys = f" by {', '.join(answer.keys)}" if answer.keys else ""
    return "\n".join(
        [
            f'<section class="answer">\n<h2>{answer.side} time{_text(keys)}</h2>',
            f'<div class="tools">{_FILTER}<output></output></div>',
            f'<div class="wide"><table>\n<thead><tr>{heads}</tr></thead>',
            *_bodies(answer, shown),
            "</table></div>\n</section>",
        ]
    )


def _bodies(answer: Answer, shown: Sequence[Column]) -> Iterator[str]:
    """Groups are sorted each on its own, so each is a body; sums stay at the foot."""
    bodies: list[list[str]] = [[]]
    foot: list[str] = []
    for line in answer.lines:
        written = "".join(_cells(line, shown))
        if line.role == "group":
            bodies.append([])
        kept = bodies[-1] if line.role in ("row", "group") or (line.role == "rest" and len(bodies) > 1) else foot
        kept.append(f'<tr class="{line.role}{" above" if line.above_peak else ""}">{written}</tr>')
    yield from (f"<tbody>{chr(10).join(rows)}</tbody>" for rows in bodies if rows)
    if foot:
        yield f"<tfoot>{chr(10).join(foot)}</tfoot>"


def _cells(line: AnswerLine, shown: Sequence[Column]) -> Iterator[str]:
    opening = bool(line.kernels)
    for column in shown:
        value = column.of(line)
        text = _text(format_value(value, column))
        style = f' title="{text}"' if len(text) > _LONG else ""
        if opening and text and column.textual:
            text = f"<details><summary>{text}</summary><ul>{''.join(_kernels(line))}</ul></details>"
            opening = False
        if column.unit == "share" and isinstance(value, float):
            style += f' style="--part:{min(max(100 * value, 0.0), 100.0):.2f}%"'
        yield f"<td{_class(column)}{_sorted(value, column)}{style}>{text}</td>"


def _kernels(line: AnswerLine) -> Iterator[str]:
    for use in line.kernels:
        yield f"<li>{use.count:,} × {_text(use.name)}: {held_time(use.time_ns)}</li>"


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
    return f' data-v="{value}"' if isinstance(value, (int, float)) else ' data-v=""'


ANSWER: ProfileView = View(name="html", suffix=".html", options=HtmlOptions, build=_build, write=_write)
