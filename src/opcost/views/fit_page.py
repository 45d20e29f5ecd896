"""The largest size that fits on a page: the answer, what its peak is made of, and what would let more in; and as records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from opcost.core.fit import Fit
from opcost.core.units import format_bytes
from opcost.views.comparison_page import ComparisonOptions, listed, plain_column
from opcost.views.listing import Amount, Listing, Value
from opcost.views.page import Page, Titled
from opcost.views.summary import LONG_LINE, Section, Summary
from opcost.wording import shortened


def fit_page(fit: Fit, options: ComparisonOptions) -> Page:
    """The answer with the size after it, then each option with which more fits."""
    asked = ", ".join(f"{name}={value}" for name, value in fit.asked.items())
    held = f" as {fit.device} holds it" if fit.device else ""
    answer = f"{fit.source}: {fit.vary} {fit.largest:,} is the largest within {format_bytes(fit.limit_bytes)}{held}"
    heading = (
        f"{answer}, on {shortened(fit.inputs, LONG_LINE)}" if fit.inputs else answer,
        *((shortened(asked, LONG_LINE),) if asked else ()),
    )
    parts = sorted(fit.parts.items(), key=lambda part: -part[1])
    made_of = ", ".join(f"{part} {format_bytes(size)}" for part, size in parts)
    sections = [Section("the peak is made of", (made_of,) if made_of else ()), Section("notes", fit.notes)]
    summary = Summary(heading=heading, sections=tuple(section for section in sections if section.lines))
    further = (Titled("what would let more in", _advice(fit)),) if fit.advice else ()
    return Page(_answer(fit), summary, further)


def _answer(fit: Fit) -> Listing:
    sizes = (
        ("largest", fit.largest, fit.peak_bytes, fit.reserved_bytes),
        ("next", fit.largest + 1, fit.next_peak_bytes, fit.next_reserved_bytes),
    )
    tried = "tried" if any(each.peak_bytes is None for each in fit.counted) else "counted"
    return listed(
        [
            plain_column("which", "", of=lambda line: line[0]),
            plain_column("size", fit.vary, unit="number", of=lambda line: line[1]),
            plain_column("peak", "peak memory", unit="number", of=lambda line: _bytes(line[2])),
            *(
                [plain_column("reserved", "reserved for it", unit="number", of=lambda line: _bytes(line[3], ""))]
                if fit.reserved_bytes is not None
                else []
            ),
            plain_column("left", "left of the limit", unit="number", of=lambda line: _left(fit, line[3] or line[2])),
        ],
        sizes,
        remarks=(f"{len(fit.counted)} sizes were {tried}: {', '.join(f'{each.size:,}' for each in fit.counted)}",),
    )


def _advice(fit: Fit) -> Listing:
    return listed(
        [
            plain_column("option", of=lambda advice: f"{advice.option}={advice.value}"),
            plain_column("largest", fit.vary, unit="number", of=lambda advice: advice.largest),
            plain_column("times", unit="number", of=lambda advice: f"{advice.largest / fit.largest:.2f}"),
            plain_column("peak", "peak memory", unit="number", of=lambda advice: _bytes(advice.peak_bytes)),
        ],
        fit.advice,
    )


def _bytes(peak: int | None, missing: str = "does not run") -> Value:
    return missing if peak is None else Amount(peak, "bytes")


def _left(fit: Fit, peak: int | None) -> Value:
    return "" if peak is None else Amount(fit.limit_bytes - peak, "bytes")


def fit_records(fit: Fit) -> Listing:
    """One line for each size that was counted and for each option with which more fits, nothing rounded."""
    return listed(
        [
            plain_column("what", of=lambda line: line[0]),
            plain_column("size", unit="number", of=lambda line: line[1]),
            plain_column("peak_bytes", unit="number", of=lambda line: line[2]),
            plain_column("fits", of=lambda line: line[3]),
        ],
        list(_records(fit)),
    )


def _records(fit: Fit) -> Iterator[tuple[str, int, int | None, str]]:
    for size, peak, fits in fit.counted:
        yield fit.vary, size, peak, "yes" if fits else "no"
    for advice in fit.advice:
        yield f"{fit.vary} with {advice.option}={advice.value}", advice.largest, advice.peak_bytes, "yes"


def fit_data(fit: Fit) -> dict[str, Any]:
    """All of it for JSON."""
    return {
        "schema": "opcost.fit/1",
        "source": fit.source,
        "vary": fit.vary,
        "largest": fit.largest,
        "inputs": fit.inputs,
        "peak_bytes": fit.peak_bytes,
        "next_peak_bytes": fit.next_peak_bytes,
        "reserved_bytes": fit.reserved_bytes,
        "next_reserved_bytes": fit.next_reserved_bytes,
        "limit_bytes": fit.limit_bytes,
        "device": fit.device,
        "asked": dict(fit.asked),
        "parts": dict(fit.parts),
        "counted": [each._asdict() for each in fit.counted],
        "advice": [each._asdict() for each in fit.advice],
        "notes": list(fit.notes),
    }
