"""The memory of a report: its peak, what that is made of, who holds it, and how it rises and falls."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from opcost.core.memory import PARTS, How, Memory
from opcost.core.report import Report
from opcost.core.units import format_bytes
from opcost.views.listing import Column, Line, Listing
from opcost.views.options import PageOptions
from opcost.views.page import Page, Titled
from opcost.views.report_summary import heading_of, notes_of
from opcost.views.summary import Quantity, Section, Summary

BARS = "▁▂▃▄▅▆▇█"
PLACES = 36
"""Characters of the curve."""
HOW: dict[How, str] = {
    "lifetimes": "a tensor lives until Python and autograd let go of it",
    "last reader": "a tensor is gone after the last operator that reads it",
}


@dataclass(frozen=True, kw_only=True)
class MemoryOptions(PageOptions):
    """How many modules to name, and how to draw the page."""

    top: int | None = 10


class _Held(NamedTuple):
    name: str
    bytes: int
    share: float
    tensors: int | None = None
    meaning: str = ""


def memory_page(report: Report, options: MemoryOptions) -> Page:
    """The peak by its parts, then by the modules whose results are held."""
    memory = report.known_memory()
    whole = memory.peak_bytes or 1
    parts = [_Held(part, size, size / whole, meaning=PARTS[part]) for part, size in memory.parts.items()]
    parts.sort(key=lambda part: -part.bytes)
    holders = [_Held(h.module or "(the model itself)", h.bytes, h.bytes / whole, h.tensors) for h in memory.holders]
    rest = holders[options.top :] if options.top else []
    more = [_summed(f"{len(rest):,} more modules", rest)] if rest else []
    further = (Titled("held at the peak, by the module that made it", _holders(holders[: options.top], more)),)
    return Page(_parts(parts, memory.peak_bytes), _summary(report), further if holders else ())


def _summed(name: str, rest: Sequence[_Held]) -> _Held:
    return _Held(name, sum(h.bytes for h in rest), sum(h.share for h in rest), sum(h.tensors or 0 for h in rest))


_NAME = Column(name="part", title="part of the peak", unit="name", of=lambda held: held.name)
_BYTES = Column(name="bytes", title="bytes", unit="bytes", of=lambda held: held.bytes)
_SHARE = Column(name="share", title="%", unit="share", of=lambda held: held.share)
_TENSORS = Column(name="tensors", title="tensors", unit="number", of=lambda held: held.tensors)
_MEANING = Column(name="meaning", title="what it is", unit="text", of=lambda held: held.meaning)


def _parts(parts: Sequence[_Held], peak: int) -> Listing:
    columns = (_NAME, _BYTES, _SHARE, _MEANING)
    total = _Held("peak", peak, 1.0)
    return Listing(
        columns=columns, lines=(*_lines(parts, columns), _line(total, columns, "total")), ranked=_names(columns)
    )


def _holders(holders: Sequence[_Held], more: Sequence[_Held]) -> Listing:
    name = Column(name="module", title="module", unit="name", of=lambda held: held.name)
    columns = (name, _BYTES, _SHARE, _TENSORS)
    return Listing(
        columns=columns,
        lines=(*_lines(holders, columns), *(_line(held, columns, "rest") for held in more)),
        ranked=_names(columns),
    )


def _names(columns: Iterable[Column]) -> tuple[str, ...]:
    return tuple(column.name for column in columns)


def _lines(held: Iterable[_Held], columns: tuple[Column, ...]) -> list[Line]:
    return [_line(one, columns) for one in held]


def _line(held: _Held, columns: tuple[Column, ...], role: str = "row") -> Line:
    return Line(tuple(column.of(held) for column in columns), role)  # type: ignore[arg-type]


def _summary(report: Report) -> Summary:
    memory = report.known_memory()
    quantities = [
        Quantity("peak memory", memory.peak_bytes, "bytes", remark="the most that is held at once"),
        Quantity("  before", memory.base_bytes, "bytes", remark="weights, inputs, optimizer"),
        Quantity("  added", memory.peak_bytes - memory.base_bytes, "bytes", remark="by the pass or step"),
        *_outside(memory),
    ]
    sections = [Section("where", _where(report)), Section("over the execution", _curve(memory)), *notes_of(report)]
    return Summary(
        heading=heading_of(report),
        quantities=tuple(quantities),
        sections=tuple(section for section in sections if section.lines),
    )


def _outside(memory: Memory) -> Iterable[Quantity]:
    """What a device gives beside what tensors have."""
    if memory.reserved_bytes is not None:
        yield Quantity(
            "reserved", memory.reserved_bytes, "bytes", remark="by the allocator, with libraries' workspaces"
        )
    if memory.fixed_bytes is not None:
        yield Quantity("fixed", memory.fixed_bytes, "bytes", remark="the context and code of kernels, whatever runs")


def _where(report: Report) -> tuple[str, ...]:
    memory = report.known_memory()
    if not memory.curve:
        return ()
    op = report.rows[memory.at].op
    place = f" of {op.module}" if op.module else ""
    reached = f"the peak is reached in {op.raw}{place}, operator {memory.at + 1:,} of {len(memory.curve):,}, {op.phase}"
    on = (f"as {memory.device} holds it, with its kernels' own memory",) if memory.device else ()
    return reached, HOW[memory.how], *on


def _curve(memory: Memory) -> tuple[str, ...]:
    """What is held from the first operator to the last, each character the most of its stretch."""
    curve = memory.curve
    if not curve:
        return ()
    width = min(PLACES, len(curve))
    ends = [len(curve) * place // width for place in range(width + 1)]
    highs = [max(curve[begin:end]) for begin, end in pairwise(ends)]
    low, high = min(*highs, memory.base_bytes), max(highs)
    steps = [(len(BARS) - 1) * (height - low) // (high - low) if high > low else 0 for height in highs]
    return ("".join(BARS[step] for step in steps), f"from {format_bytes(low)} to {format_bytes(high)}")
