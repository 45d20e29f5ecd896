"""An answer about a profile as the page has it: its lines, how devices were used, and with the profile who took the time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from opcost.core.answer import Answer, AnswerLine, Busy
from opcost.core.cost import FLOPS_PER_MAC
from opcost.core.devices import named_by_driver
from opcost.core.graph import note_texts
from opcost.core.harmless import printable
from opcost.core.profile import Profile, ProfileRow
from opcost.core.sheet import Sheet
from opcost.version import __version__
from opcost.views.answer_listing import list_answer
from opcost.views.answer_page import held_time, launches_text, verdict_lines, verdicts
from opcost.views.comparison_page import ComparisonOptions
from opcost.views.html.advice import gains_title, gains_told
from opcost.views.html.columns import Told, numbers_of, shapes_of, table_of, words_of
from opcost.views.html.profile_tree import profile_tree
from opcost.views.html.reports import devices_of
from opcost.views.html.timelines import timeline_of
from opcost.views.listing import Columns
from opcost.views.sheet_page import sheet_page
from opcost.wording import some

_FACTS = (
    "format",
    "framework",
    "version",
    "torch",
    "device",
    "gpu",
    "precision",
    "threads",
    "execution",
    "calibration",
)
"""What a profile says of itself that stands in the header, in this order; the rest stands below."""
FEW_NAMED = 4
"""Operators without a price that are named where they stand out; the table has all of them."""
LEAST_MISSED = 0.001
"""A smaller part of the time without a price is told, but does not stand out."""


@dataclass(frozen=True, slots=True)
class Lines:
    """The answers that are shown as tables, and the columns that were asked for."""

    answers: Sequence[Answer]
    columns: Columns = None
    sheets: Sequence[Sheet] = ()


def profile_data(lines: Lines, profile: Profile | None) -> Told:
    """All that the page shows of answers about one profile."""
    answer = lines.answers[0]
    meta = {key: printable(value) for key, value in answer.meta.items()}
    facts = [(key, meta[key]) for key in _FACTS if meta.get(key)]
    runs = (
        [("runs", f"{answer.runs:,}, told {'per run' if answer.is_per_run else 'together'}")] if answer.runs > 1 else []
    )
    further = [f"{key}: {value}" for key, value in meta.items() if key not in (*_FACTS, "source")]
    peak = [f"peaks of {answer.peak}"] if answer.peak else []
    total = next((line for line in answer.lines if line.role == "total"), None)
    missed = (total.unpriced_share or 0) if total is not None and total.computation is not None else None
    notes = [*peak, *note_texts(answer.notes)]
    return {
        "title": meta.get("source") or "profile",
        "facts": [*facts, *runs, *_conventions(answer, missed), ("opcost", __version__)],
        "totals": _totals(answer, total),
        "alerts": _unpriced(answer, missed or 0),
        "notes": [
            {"title": title, "lines": [*map(printable, said)], "hint": ""}
            for title, said in (("notes", notes), ("recorded with", further))
            if said
        ],
        "uses": _uses(answer),
        "gains": {"title": gains_title(answer), "found": gains_told(answer)},
        "tables": [*(_table(each, lines.columns) for each in lines.answers), *_sheets(lines.sheets)],
        **({} if profile is None else _whole(profile, answer)),
    }


def _conventions(answer: Answer, missed: float | None) -> list[tuple[str, str]]:
    """Under which conventions there are prices, and how much of the time has one."""
    if missed is None:
        return []
    counted = f"{100 * (1 - missed):.1f} % of the {answer.side} time" if missed else f"all of the {answer.side} time"
    return [("conventions", f"1 MAC = {FLOPS_PER_MAC} FLOPs · bytes without fusion"), ("counted", counted)]


def _unpriced(answer: Answer, missed: float) -> list[Told]:
    """What stands out: operators that take time and have no price."""
    if missed < LEAST_MISSED:
        return []
    rows = [(line.unpriced_share * line.time_ns, line) for line in answer.rows if line.unpriced_share and line.time_ns]
    named = [
        f"{printable(' '.join(line.labels.get(key, '') for key in answer.keys or ('name', 'type')))}: {held_time(time)}"
        for time, line in sorted(rows, key=lambda found: -found[0])
    ]
    title = f"{100 * missed:.1f} % of the {answer.side} time has no price, so FLOPs and bytes are lower bounds"
    return [{"title": title, "lines": [text.replace("\u00a0", " ") for text in some(named, FEW_NAMED)], "hint": ""}]


def _totals(answer: Answer, total: AnswerLine | None) -> list[Told]:
    known = {
        "device time": answer.device_ns,
        "host time": answer.host_ns,
        "wall time": answer.wall_ns,
        "unattributed device time": answer.unattributed_ns or None,
    }
    times = [
        {"label": name, "value": ns, "unit": "time", "partial": False, "remark": ""} for name, ns in known.items() if ns
    ]
    if total is None or total.computation is None:
        return times
    partial = bool(total.unpriced)
    work = [
        ("FLOPs", total.computation, "count"),
        ("bytes moved", total.memory, "bytes"),
        ("FLOP/s", total.flops, "flop/s"),
    ]
    return times + [
        {
            "label": name,
            "value": value,
            "unit": unit,
            "partial": partial and unit != "flop/s",
            "remark": "of what is priced",
        }
        for name, value, unit in work
        if value
    ]


def _uses(answer: Answer) -> list[Told]:
    """Each device with its verdict, those that are alike once; of very many the first, and how many more there are."""
    said = [printable(line.replace("\u00a0", " ")) for line in verdict_lines(answer)]
    about = [use for _, use in verdicts(answer)]
    if len(said) < len(about):
        about = [*about[: len(said) - 1], None]
    return [
        {"title": title, "span": 0, "parts": [], "said": []} if use is None else _use(use, title)
        for use, title in zip(about, said, strict=True)
    ]


def _use(use: Busy, title: str) -> Told:
    """How a device spent its time, in parts that add up to the span but for long gaps."""
    idle = {f"idle: {cause}": time for cause, time in use.idle_causes.items()}
    parts = {
        "computing": use.busy_ns - use.communication_ns - use.copies_ns,
        "communication alone": use.communication_ns,
        "copies alone": use.copies_ns,
        **idle,
        "idle": use.idle_ns - use.gap_ns - sum(idle.values()),
    }
    kernels = f"{use.kernels:,} kernels, median {held_time(use.median_ns)}, side by side {held_time(use.overlap_ns)}"
    said = [kernels, *([launches_text(use)] if use.launches else [])] if use.kernels else []
    return {
        "title": title,
        "span": use.rated_ns,
        "parts": [(name, time) for name, time in parts.items() if time > 0],
        "said": [printable(text.replace("\u00a0", " ")) for text in said],
    }


def _table(answer: Answer, columns: Columns) -> Told:
    listing = list_answer(answer, columns)
    if listing.ranked:
        kept = [place for place, column in enumerate(listing.columns) if column.name != "top_kernel"]
        kept.sort(key=lambda place: listing.ranked.index(listing.columns[place].name))
        told = table_of("", listing)
        order = {listing.columns[place].name: number for number, place in enumerate(kept)}
        told["columns"] = sorted((c for c in told["columns"] if c["name"] in order), key=lambda c: order[c["name"]])
    else:
        told = table_of("", listing)
    keys = f" by {', '.join(answer.keys)}" if answer.keys else ""
    told["title"] = f"{answer.side} time{keys}"
    told["roles"] = [(row, line.role) for row, line in enumerate(answer.lines) if line.role != "row"]
    told["kernels"] = [[(use.count, printable(use.name), use.time_ns) for use in line.kernels] for line in answer.lines]
    return told


def _sheets(sheets: Sequence[Sheet]) -> list[Told]:
    return [
        table_of(f"{sheet.name}: {title}", listing)
        for sheet in sheets
        for title, listing in sheet_page(sheet, ComparisonOptions()).further
    ]


# -- the whole profile -------------------------------------------------------------------------------------------------


def _whole(profile: Profile, answer: Answer) -> Told:
    tree, leaves = profile_tree(profile, answer.runs if answer.is_per_run else 1)
    quantities: list[Told] = [
        {"name": "device", "title": "device time", "unit": "time", "usual": answer.side == "device"},
        {"name": "host", "title": "host time", "unit": "time", "usual": answer.side == "host"},
        {"name": "calls", "title": "calls", "unit": "number"},
        {"name": "macs", "title": "MACs", "unit": "count"},
        {"name": "flops", "title": "FLOPs", "unit": "count"},
        {"name": "bytes", "title": "bytes moved", "unit": "bytes"},
    ]
    told = tree.told("module", profile.meta.get("source", "") or "profile", quantities)
    names = [profile.meta.get(key, "") for key in ("gpu", "device")] if answer.device_ns is not None else []
    device = next((found for name in names if (found := named_by_driver(name))), None)
    return {
        "tree": told,
        "ops": _operators(profile.rows, leaves, answer.side),
        "timeline": timeline_of(profile),
        "devices": devices_of(),
        "device": device.name if device else profile.meta.get("device", ""),
    }


def _operators(rows: Sequence[ProfileRow], leaves: Sequence[int], side: str) -> Told | None:
    """One line for all executions of an operator with the same shapes, each amount that of one execution."""
    found: dict[tuple[int, Any], list[Any]] = {}
    for row, leaf in zip(rows, leaves, strict=True):
        key = (leaf, row.ins)
        line = found.get(key)
        if line is None:
            line = found[key] = [row, leaf, 0, 0, 0]
        line[2] += row.count
        line[3] += row.device_ns or 0
        line[4] += row.host_self_ns or 0
    lines = list(found.values())
    if not lines:
        return None
    place = 3 if side == "device" else 4
    costs = [line[0].cost for line in lines]
    return {
        "count": len(lines),
        "module": [line[1] for line in lines],
        "columns": [
            {"name": "raw", "title": "operator", "unit": "text"} | words_of(line[0].type for line in lines),
            {"name": "kind", "title": "kind", "unit": "text"} | words_of(line[0].kind for line in lines),
            {"name": "repeat", "title": "calls", "unit": "number"} | numbers_of([line[2] for line in lines]),
            {"name": "whole", "title": f"{side} time", "unit": "time"} | numbers_of([line[place] for line in lines]),
            {"name": "time", "title": "of one call", "unit": "time"}
            | numbers_of([line[place] / line[2] for line in lines]),
            {"name": "flops", "title": "FLOPs of one", "unit": "count"}
            | numbers_of([None if cost is None else cost.flops for cost in costs]),
            {"name": "bytes", "title": "bytes of one", "unit": "bytes"}
            | numbers_of([None if cost is None else cost.bytes_read + cost.bytes_written for cost in costs]),
            {"name": "ins", "title": "input", "unit": "shapes"} | words_of(shapes_of(line[0].ins) for line in lines),
            {"name": "dtype", "title": "", "unit": "text"}
            | words_of(line[0].ins[0].dtype if line[0].ins else "" for line in lines),
        ],
    }
