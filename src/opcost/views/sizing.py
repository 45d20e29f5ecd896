"""Budgets, the largest size that fits, and costs at many sizes: each as a sheet, and the same for programs."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from math import log
from shlex import quote
from typing import Any

from opcost.core.escaping import printable
from opcost.core.limits import LATENCY, QUANTITIES, Quantity
from opcost.core.names import matches
from opcost.core.results import Fit, LimitCheck, Point, Recomputation, StepCost, Sweep, Verdict
from opcost.core.sheet import LONG_LINE, Amount, Cell, Field, Line, Section, Sheet, Table, Unit
from opcost.core.units import format_bytes, format_time
from opcost.errors import shortened, some
from opcost.views.comparison import percent
from opcost.views.summary import BARS
from opcost.views.view import Column, ViewOptions, fields_data, format_amount, listing, reading

MANY = 64  # sentences about what is wrong


def _options_line(options: Mapping[str, str]) -> tuple[str, ...]:
    text = ", ".join(f"{name}={value}" for name, value in options.items())
    return (shortened(text, LONG_LINE),) if text else ()


# -- budgets ------------------------------------------------------------------------------------------------------------


def verdict_sheet(verdict: Verdict, options: ViewOptions) -> Sheet:
    """Every limit with its verdict, and below them in sentences what is wrong."""
    heading = []
    for model in verdict.models:
        facts = ", ".join(filter(None, (model.source, model.inputs)))
        heading.append(shortened(f"{model.name}: {facts}" if facts else model.name, LONG_LINE))
    if verdict.baseline:
        heading.append(f"baseline: {verdict.baseline}")
    wrong = tuple(some([shortened(text, LONG_LINE) for text in verdict.offending], MANY))

    def amount(line: LimitCheck, number: int | None, *, signed: bool = False) -> Cell:
        return "" if number is None else Amount(number, line.quantity.unit, signed=signed)

    def relative(line: LimitCheck) -> str:
        return "new" if line.before is None else percent(line.before, line.amount) if line.difference else ""

    changes = (
        Column("before", "number", of=lambda line: amount(line, line.before)),
        Column("counted", "number", of=lambda line: Amount(line.amount, line.quantity.unit, line.partial)),
        Column("difference", "number", of=lambda line: amount(line, line.difference or None, signed=True)),
        Column("relative", "number", "%", of=relative),
    )
    columns = (
        *reading("verdict=word"),
        *reading("model:name" if len(verdict.models) > 1 else ""),
        *reading("quantity=quantity.title"),
        *(changes if verdict.baseline else changes[1:2]),
        replace(_ALLOWED, unit="number"),
    )
    ranked = ("verdict", "quantity", "counted", "allowed", "model", "before", "relative", "difference")
    table = listing(columns, verdict.lines, title="totals", ranked=ranked, main=True)
    sections = (Section("what is wrong", wrong, urgent=True),) if wrong else ()
    return Sheet(heading=tuple(heading), tables=(table,), sections=sections)


def verdict_records(verdict: Verdict) -> Table:
    """One line for each limit and each change, nothing rounded."""
    numbers = reading("model:name quantity=quantity.name counted:number=amount before:number")
    return listing((*numbers, _ALLOWED, *reading("verdict=word")), verdict.lines)


_ALLOWED = Column("allowed", of=lambda line: line.limit.text if line.limit else "")


def verdict_data(verdict: Verdict) -> dict[str, Any]:
    """All of it for JSON."""
    models = []
    for model in verdict.models:
        lines = [
            {
                "quantity": line.quantity.name, "unit": line.quantity.unit, "counted": line.amount,
                "lower_bound": line.partial, "before": line.before, "allowed": line.limit.text if line.limit else None,
                "verdict": line.word,
            }
            for line in model.lines
        ]  # fmt: skip
        about = {name: getattr(model, name) for name in ("name", "source", "inputs", "kept")}
        models.append({**about, "uncounted": [missed.raw for missed in model.missed], "lines": lines})
    head = {"schema": "opcost.budget/1", "kept": bool(verdict), "baseline": verdict.baseline}
    return {**head, "models": models, "offending": list(verdict.offending)}


# -- the largest size that fits -----------------------------------------------------------------------------------------


PEAK_PARTS = "the peak is made of"


def fit_sheet(fit: Fit, options: ViewOptions) -> Sheet:
    """The answer with the size after it, what the peak is made of, and each option with which more fits."""
    advised = (
        Column("option", of=lambda advice: f"{advice.option}={advice.value}"),
        Column("largest", "number", printable(fit.vary), of=lambda advice: advice.largest),
        Column("times", "number", of=lambda advice: f"{advice.largest / fit.largest:.2f}"),
        Column("peak", "number", "peak memory", of=lambda advice: Amount(advice.peak_bytes, "bytes")),
    )
    more = listing(advised, fit.advice, title="what would let more in", ranked=())
    return _about_peak(fit, (_answer(fit), more) if fit.advice else (_answer(fit),))


def _about_peak(found: Fit | Recomputation, tables: tuple[Table, ...], *sections: Section) -> Sheet:
    """The tables with what was counted, and what the peak is made of."""
    inputs = (f"input   {shortened(found.inputs, LONG_LINE)}",) if found.inputs else ()
    parts = sorted(found.parts.items(), key=lambda part: -part[1])
    made_of = ", ".join(f"{part} {format_bytes(size)}" for part, size in parts)
    every = (*sections, Section(PEAK_PARTS, (made_of,) if made_of else ()), Section("notes", found.notes))
    return Sheet(
        heading=(*inputs, *_options_line(found.options)),
        tables=tables,
        sections=tuple(section for section in every if section.lines),
    )


def _answer(fit: Fit) -> Table:
    def size_of(number: int | None, missing: str) -> Cell:
        return missing if number is None else Amount(number, "bytes")

    def left(peak: int | None) -> Cell:
        return "" if peak is None else Amount(fit.limit_bytes - peak, "bytes")

    sizes = (
        ("largest", fit.largest, fit.peak_bytes, fit.reserved_bytes),
        ("next", fit.largest + 1, fit.next_peak_bytes, fit.next_reserved_bytes),
    )
    reserved = Column("reserved", "number", "reserved for it", of=lambda line: size_of(line[3], ""))
    columns = (
        Column("which", title="", of=lambda line: line[0]),
        Column("size", "number", printable(fit.vary), of=lambda line: line[1]),
        Column("peak", "number", "peak memory", of=lambda line: size_of(line[2], "does not run")),
        *((reserved,) if fit.reserved_bytes is not None else ()),
        Column("left", "number", "left of the limit", of=lambda line: left(line[3] or line[2])),
    )
    tried = "tried" if any(each.peak_bytes is None for each in fit.counted) else "counted"
    counted = f"{len(fit.counted)} sizes were {tried}: {', '.join(f'{each.size:,}' for each in fit.counted)}"
    return listing(columns, sizes, title="totals", ranked=(), remarks=(counted,), main=True)


def fit_records(fit: Fit) -> Table:
    """One line for each size that was counted and for each option with which more fits, nothing rounded."""
    rows = [Line((fit.vary, each.size, each.peak_bytes, "yes" if each.fits else "no")) for each in fit.counted]
    more = [
        (f"{fit.vary} with {each.option}={each.value}", each.largest, each.peak_bytes, "yes") for each in fit.advice
    ]
    columns = (Field("what"), Field("size", "number"), Field("peak_bytes", "number"), Field("fits"))
    return Table(fields=columns, lines=(*rows, *map(Line, more)))


# -- what to recompute so that a given size fits ---------------------------------------------------------------------------


def recomputation_sheet(found: Recomputation, options: ViewOptions) -> Sheet:
    """The step before and after, and the modules to recompute, as patterns of their paths."""
    steps = (("as given", found.before), ("recomputing", found.after))[: 2 if found.modules else 1]

    def left(cost: StepCost) -> int:
        return found.limit_bytes - (cost.peak_bytes if cost.reserved_bytes is None else cost.reserved_bytes)

    def of(name: str, unit: Unit) -> Callable[[tuple[str, StepCost]], Cell]:
        return lambda step: "" if (number := getattr(step[1], name)) is None else Amount(number, unit)

    def band(step: tuple[str, StepCost]) -> str:
        return "" if step[1].band_ns is None else " – ".join(map(format_time, step[1].band_ns))

    timed = found.before.latency_ns is not None
    columns = (
        Column("which", title="", of=lambda step: step[0]),
        Column("peak", "number", "peak memory", of=of("peak_bytes", "bytes")),
        *(
            (Column("reserved", "number", "reserved for it", of=of("reserved_bytes", "bytes")),)
            if found.reserved_bytes
            else ()
        ),
        Column("left", "number", "left of the limit", of=lambda step: Amount(left(step[1]), "bytes")),
        Column("flops", "number", "FLOPs", of=of("flops", "number")),
        *((Column("latency", "number", of=of("latency_ns", "time")),) if timed else ()),
        *((Column("band", "number", "80 % interval", of=band),) if timed else ()),
    )
    ranked = ("which", "peak", "flops", "latency", "left", "reserved", "band")
    tables = [listing(columns, steps, title="totals", ranked=ranked, main=True)]
    if found.modules:
        own = [(pattern, sum(matches(path, pattern) for path in found.modules)) for pattern in found.checkpoint]
        about = (
            Column("pattern", of=lambda line: printable(line[0])),
            Column("modules", "number", of=lambda line: line[1]),
        )
        flags = " ".join(f"--checkpoint {quote(pattern)}" for pattern in found.checkpoint)
        tables.append(listing(about, own, title="what to recompute", ranked=(), remarks=(printable(flags),)))
    return _about_peak(found, tuple(tables))


def recomputation_records(found: Recomputation) -> Table:
    """One line for the step before and one for after, then one for each module to recompute, nothing rounded."""
    steps = [
        (name, "", *cost[:-1], *(cost.band_ns or (None, None)))
        for name, cost in (("before", found.before), ("after", found.after))
    ]
    modules = [("recompute", path, *[None] * 6) for path in found.modules]
    names = ("peak_bytes", "reserved_bytes", "flops", "latency_ns", "latency_low_ns", "latency_high_ns")
    columns = (Field("what"), Field("module"), *(Field(name, "number") for name in names))
    return Table(fields=columns, lines=tuple(map(Line, (*steps, *modules))))


# -- costs at many sizes ------------------------------------------------------------------------------------------------

SHOWN = ("macs", "flops", "bytes", "peak_bytes")
THROUGHPUT = "items_per_second"
WHOLE = 100  # per second; of fewer a decimal is shown
LONGEST_BAR = 40  # characters of the highest amount
MOST_BARS = 24  # lines of one plot


def sweep_sheet(sweep: Sweep, options: ViewOptions) -> Sheet:
    """Every point, then a plot of each of memory and latency, or of work where there is no latency."""
    counted = sum(point.counted for point in sweep.points)
    whole = len(sweep.points)
    remark = f"{counted:,} of {whole:,} were counted; polynomials give the others" if counted < whole else ""
    second = LATENCY if sweep.device else QUANTITIES["flops"]
    sections = [_plot(sweep, quantity) for quantity in (QUANTITIES["peak_bytes"], second)]
    sections.append(Section("notes", tuple(some([shortened(note, LONG_LINE) for note in sweep.notes]))))
    offered = [QUANTITIES[name] for name in SHOWN] + ([LATENCY] if sweep.device else [])
    quantities = [each for each in offered if any(_number(point, each) is not None for point in sweep.points)]
    over = any(point.fits is False for point in sweep.points)

    def band(point: Point) -> str:
        return "" if point.band_ns is None else " – ".join(map(format_time, point.band_ns))

    columns = (
        *_sizes(sweep),
        *(
            Column(each.name, "number", each.title, of=lambda point, each=each: _cell(point, each))  # type: ignore[misc]
            for each in quantities
        ),
        *_throughput(sweep),
        *((Column("fits", title=printable(f"fits on {sweep.device}"), of=_fits),) if over else ()),
        *((Column("band", "number", "80 % interval", of=band),) if sweep.device else ()),
    )
    ranked = (*sweep.variables, "peak_bytes", LATENCY.name, THROUGHPUT, "fits", "band", "flops", "macs", "bytes")
    remarks = (remark,) if remark else ()
    table = listing(columns, sweep.points, title="totals", ranked=ranked, remarks=remarks, main=True)
    return Sheet(
        heading=_options_line(sweep.options),
        tables=(table.limited(options.top),),
        sections=tuple(section for section in sections if section.lines),
    )


def _sizes(sweep: Sweep) -> list[Column]:
    return [
        Column(printable(name), "number", of=lambda point, place=place: point.sizes[place])  # type: ignore[misc]
        for place, name in enumerate(sweep.variables)
    ]


def throughput_title(sweep: Sweep) -> str:
    """`images/s`; empty where it is not known what a pass processes."""
    item = next((point.item for point in sweep.points if point.items_per_second is not None), "")
    return f"{item}s/s" if item else ""


def rounded_throughput(rate: float | None) -> float | None:
    """The throughput, whole from a hundred on."""
    return rate if rate is None else round(rate) if rate >= WHOLE else round(rate, 1)


def _throughput(sweep: Sweep) -> list[Column]:
    def read(point: Point) -> Cell:
        rate = rounded_throughput(point.items_per_second)
        return "" if rate is None else rate

    title = throughput_title(sweep)
    return [Column(THROUGHPUT, "number", title, of=read)] if title else []


def _fits(point: Point) -> str:
    return "" if point.fits is None else "yes" if point.fits else "no"


def _number(point: Point, quantity: Quantity) -> int | None:
    return point.latency_ns if quantity is LATENCY else point.amounts.get(quantity.name)


def _cell(point: Point, quantity: Quantity) -> Cell:
    number = _number(point, quantity)
    if number is None:
        return ""
    return Amount(number, quantity.unit, quantity.needs_costs and point.amounts.get("uncounted", 0) > 0)


def _plot(sweep: Sweep, quantity: Quantity) -> Section:
    found = [(point.sizes, number) for point in sweep.points if (number := _number(point, quantity))]
    if len(found) < 2 or len({number for _, number in found}) == 1:
        return Section(quantity.title, ())
    if len(sweep.variables) == 2:
        first, second = sweep.variables
        title = f"{quantity.title}: a line for each {first}, by {second} from left to right, logarithmic"
        return Section(title, tuple(_rows(found, quantity)), is_plot=True)
    # A line for each size, as long as its amount; of many sizes some
    every = -(-len(found) // MOST_BARS)
    shown = found[::-1][::every][::-1]
    most = max(number for _, number in shown)
    room = max(len(f"{size:,}") for (size,), _ in shown)
    lines = []
    for (size,), number in shown:
        bar = BARS[-1] * max(1, round(LONGEST_BAR * number / most))
        lines.append(f"{size:>{room},} {bar} {format_amount(Amount(number, quantity.unit))}")
    return Section(f"{quantity.title} by {sweep.variables[0]}", tuple(lines), is_plot=True)


def _rows(found: Sequence[tuple[tuple[int, ...], int]], quantity: Quantity) -> Iterator[str]:
    """A line for each size of the first variable, as high at each place as the logarithm of its amount."""
    low, high = min(number for _, number in found), max(number for _, number in found)
    room = max(len(f"{sizes[0]:,}") for sizes, _ in found)
    for size, group in groupby(found, key=lambda each: each[0][0]):
        numbers = [number for _, number in group][:LONGEST_BAR]
        heights = [int((len(BARS) - 1) * log(number / low) / log(high / low) + 0.5) for number in numbers]
        line = "".join(BARS[height] for height in heights)
        first, last = (format_amount(Amount(numbers[place], quantity.unit)) for place in (0, -1))
        yield f"{size:>{room},} {line} {first} to {last}"


def sweep_records(sweep: Sweep) -> Table:
    """One line for each point with every quantity, nothing rounded."""
    columns = (
        *_sizes(sweep),
        *(Column(name, "number", of=lambda point, name=name: point.amounts.get(name)) for name in QUANTITIES),  # type: ignore[misc]
        *reading(f"latency_ns:number item items:number {THROUGHPUT}:number"),
        Column("latency_low_ns", "number", of=lambda point: point.band_ns and point.band_ns[0]),
        Column("latency_high_ns", "number", of=lambda point: point.band_ns and point.band_ns[1]),
        Column("counted", of=lambda point: "yes" if point.counted else "no"),
        Column("fits", of=_fits),
    )
    return listing(columns, sweep.points)


def sweep_data(sweep: Sweep) -> dict[str, Any]:
    """All of it for JSON."""
    points = [
        {"sizes": [], "counted": True} | fields_data(point) | {THROUGHPUT: point.items_per_second}
        for point in sweep.points
    ]
    return {"schema": "opcost.sweep/1", **fields_data(sweep), "points": points}
