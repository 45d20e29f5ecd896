"""Costs at many sizes on a page: a line for each, and below them how memory and time grow; and as records for programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from math import log
from typing import Any

from opcost.core.quantity import LATENCY, QUANTITIES, Quantity
from opcost.core.sweep import Point, Sweep
from opcost.core.units import format_bytes, format_count, format_time
from opcost.views.comparison_page import ComparisonOptions, limited, listed, plain_column
from opcost.views.listing import Amount, Column, Listing, Value
from opcost.views.memory_page import BARS
from opcost.views.page import Page
from opcost.views.summary import LONG_LINE, Section, Summary
from opcost.wording import shortened, some

SHOWN = ("macs", "flops", "bytes", "peak_bytes")
LONGEST_BAR = 40
"""Characters of the highest amount."""
MOST_BARS = 24
"""Lines of one plot."""


def sweep_page(sweep: Sweep, options: ComparisonOptions) -> Page:
    """Every point, then a plot of each of memory and latency, or of work where there is no latency."""
    counted = sum(point.counted for point in sweep.points)
    held = f" on {sweep.device}" if sweep.device else ""
    asked = ", ".join(f"{name}={value}" for name, value in sweep.asked.items())
    heading = (
        f"{sweep.source}{held} by {' and '.join(sweep.variables)}",
        *((shortened(asked, LONG_LINE),) if asked else ()),
    )
    told = len(sweep.points) - counted
    remark = f"{counted:,} of {len(sweep.points):,} were counted; polynomials tell the others" if told else ""
    sections = [_plot(sweep, quantity) for quantity in (QUANTITIES["peak_bytes"], _second(sweep))]
    notes = Section("notes", tuple(some([shortened(note, LONG_LINE) for note in sweep.notes])))
    summary = Summary(heading=heading, sections=tuple(section for section in (*sections, notes) if section.lines))
    listing = listed(_columns(sweep), sweep.points, remarks=(remark,) if remark else ())
    ranked = (*sweep.variables, "peak_bytes", LATENCY.name, "fits", "band", "flops", "macs", "bytes")
    return Page(limited(replace(listing, ranked=ranked), options.top), summary)


def _second(sweep: Sweep) -> Quantity:
    return LATENCY if sweep.device else QUANTITIES["flops"]


def _columns(sweep: Sweep) -> list[Column]:
    sizes = [
        plain_column(name, unit="number", of=lambda point, place=place: point.sizes[place])  # type: ignore[misc]
        for place, name in enumerate(sweep.variables)
    ]
    shown = [QUANTITIES[name] for name in SHOWN] + ([LATENCY] if sweep.device else [])
    band = [plain_column("band", "four of five between", of=_band)] if sweep.device else []
    amounts = [
        plain_column(each.name, each.title, unit="number", of=lambda point, each=each: _cell(point, each))  # type: ignore[misc]
        for each in shown
    ]
    over = any(point.fits is False for point in sweep.points)
    fits = [plain_column("fits", f"fits on {sweep.device}", of=_fits)] if over else []
    return [*sizes, *amounts, *fits, *band]


def _fits(point: Point) -> str:
    return "" if point.fits is None else "yes" if point.fits else "no"


def _band(point: Point) -> str:
    return "" if point.band_ns is None else " to ".join(map(format_time, point.band_ns))


def _amount(point: Point, quantity: Quantity) -> int | None:
    return point.latency_ns if quantity is LATENCY else point.amounts.get(quantity.name)


def _cell(point: Point, quantity: Quantity) -> Value:
    amount = _amount(point, quantity)
    if amount is None:
        return ""
    partial = quantity.priced and point.amounts.get("uncounted", 0) > 0
    return Amount(amount, quantity.unit, partial)


# -- plots -------------------------------------------------------------------------------------------------------------------

_FORMATS: dict[str, Callable[[float], str]] = {"bytes": format_bytes, "time": format_time, "count": format_count}


def _plot(sweep: Sweep, quantity: Quantity) -> Section:
    found = [(point.sizes, amount) for point in sweep.points if (amount := _amount(point, quantity))]
    if len(found) < 2 or len({amount for _, amount in found}) == 1:
        return Section(quantity.title, ())
    if len(sweep.variables) == 1:
        return Section(f"{quantity.title} by {sweep.variables[0]}", tuple(_bars(found, quantity)))
    first, second = sweep.variables
    title = f"{quantity.title}: a line for each {first}, by {second} from left to right, logarithmic"
    return Section(title, tuple(_rows(found, quantity)))


def _bars(found: Sequence[tuple[tuple[int, ...], int]], quantity: Quantity) -> Iterator[str]:
    """A line for each size, as long as its amount; of many sizes some."""
    every = -(-len(found) // MOST_BARS)
    shown = found[::-1][::every][::-1]
    most = max(amount for _, amount in shown)
    room = max(len(f"{size:,}") for (size,), _ in shown)
    for (size,), amount in shown:
        bar = BARS[-1] * max(1, round(LONGEST_BAR * amount / most))
        yield f"{size:>{room},} {bar} {_FORMATS[quantity.unit](amount)}"


def _rows(found: Sequence[tuple[tuple[int, ...], int]], quantity: Quantity) -> Iterator[str]:
    """A line for each size of the first variable, as high at each place as the logarithm of its amount."""
    low, high = min(amount for _, amount in found), max(amount for _, amount in found)
    room = max(len(f"{sizes[0]:,}") for sizes, _ in found)
    told = _FORMATS[quantity.unit]
    for size, group in groupby(found, key=lambda each: each[0][0]):
        amounts = [amount for _, amount in group][:LONGEST_BAR]
        heights = [int((len(BARS) - 1) * log(amount / low) / log(high / low) + 0.5) for amount in amounts]
        line = "".join(BARS[height] for height in heights)
        yield f"{size:>{room},} {line} {told(amounts[0])} to {told(amounts[-1])}"


# -- for programs --------------------------------------------------------------------------------------------------------------


def sweep_records(sweep: Sweep) -> Listing:
    """One line for each point with every quantity, nothing rounded."""
    columns = [
        *(
            plain_column(name, unit="number", of=lambda point, place=place: point.sizes[place])  # type: ignore[misc]
            for place, name in enumerate(sweep.variables)
        ),
        *(
            plain_column(name, unit="number", of=lambda point, name=name: point.amounts.get(name))  # type: ignore[misc]
            for name in QUANTITIES
        ),
        plain_column("latency_ns", unit="number", of=lambda point: point.latency_ns),
        plain_column("latency_low_ns", unit="number", of=lambda point: point.band_ns and point.band_ns[0]),
        plain_column("latency_high_ns", unit="number", of=lambda point: point.band_ns and point.band_ns[1]),
        plain_column("counted", of=lambda point: "yes" if point.counted else "no"),
        plain_column("fits", of=_fits),
    ]
    return listed(columns, sweep.points)


def sweep_data(sweep: Sweep) -> dict[str, Any]:
    """All of it for JSON."""
    return {
        "schema": "opcost.sweep/1",
        "source": sweep.source,
        "variables": list(sweep.variables),
        "device": sweep.device,
        "asked": dict(sweep.asked),
        "points": [
            {
                "sizes": list(point.sizes),
                "counted": point.counted,
                "amounts": dict(point.amounts),
                "latency_ns": point.latency_ns,
                "band_ns": None if point.band_ns is None else list(point.band_ns),
                "fits": point.fits,
            }
            for point in sweep.points
        ],
        "notes": list(sweep.notes),
    }
