"""An answer about a profile as one page that needs nothing else: no network, no other file, light and dark.

Every line stands in the page as it is written; the script only sorts and filters. All names are from a file that nobody has
vetted, so everything is escaped, and the page forbids itself to load anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from opcost.core.answer import Answer, AnswerLine, Busy
from opcost.views.answer_listing import list_answer
from opcost.views.answer_page import held_time, launches_text
from opcost.views.cell import format_value
from opcost.views.compared import page_of
from opcost.views.comparison_page import ComparisonOptions
from opcost.views.html_page import cell_of, notes_of, section_of, table_page, text_of, whole_page
from opcost.views.listing import Column, Columns
from opcost.views.scan_listing import ScanOptions, scan_page
from opcost.views.view import ComparisonView, ProfileView, ScanView, View


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
    return whole_page(
        f"{source}: where the time goes",
        [
            f"<h1>{text_of(source)} <small>{text_of(kind)}</small></h1>",
            _totals(answer),
            _split(answer),
            *map(_device, answer.devices),
            _notes(answer),
            *(_section(each, options.columns) for each in answers),
        ],
    )


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
        f"{text_of(use.device or 'device')} (rank {use.rank}): busy {held_time(use.busy_ns)} of {held_time(use.span_ns)}, idle "
        f"{held_time(use.idle_ns)} ({100 - busy:.1f} %), kernels side by side {held_time(use.overlap_ns)}"
    )
    if use.launches:
        said += f"; {text_of(launches_text(use))}"
    return (
        f'<div class="use"><p>{said}</p><div class="meter" role="img" aria-label="busy {busy:.1f} %">'
        f'<i style="width:{busy:.2f}%"></i></div></div>'
    )


def _notes(answer: Answer) -> str:
    return notes_of([*([f"peaks of {answer.peak}"] if answer.peak else []), *(note.text for note in answer.notes)])


# -- the table ---------------------------------------------------------------------------------------------------------


def _section(answer: Answer, columns: Columns) -> str:
    listing = list_answer(answer, columns)
    shown = [listing.columns[place] for place in listing.telling]
    if listing.ranked:
        # Kernels are behind the names; what is looked at first stands first.
        shown = [column for column in shown if column.name != "top_kernel"]
        shown.sort(key=lambda column: listing.ranked.index(column.name))
    keys = f" by {', '.join(answer.keys)}" if answer.keys else ""
    return section_of(f"{answer.side} time{keys}", shown, _bodies(answer, shown))


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
        text = None
        if opening and column.textual and (told := text_of(format_value(value, column))):
            text = f"<details><summary>{told}</summary><ul>{''.join(_kernels(line))}</ul></details>"
            opening = False
        yield cell_of(value, column, text)


def _kernels(line: AnswerLine) -> Iterator[str]:
    for use in line.kernels:
        yield f"<li>{use.count:,} × {text_of(use.name)}: {held_time(use.time_ns)}</li>"


ANSWER: ProfileView = View(name="html", suffix=".html", options=HtmlOptions, build=_build, write=_write)
COMPARISON: ComparisonView = View(
    name="html", suffix=".html", options=ComparisonOptions, build=page_of, write=table_page
)
SCAN: ScanView = View(name="html", suffix=".html", options=ScanOptions, build=scan_page, write=table_page)
