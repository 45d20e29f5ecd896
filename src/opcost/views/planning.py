"""The layouts of many GPUs: as a sheet, for programs, and as points on the page."""

from collections.abc import Iterable
from typing import Any

from opcost.core.escaping import printable
from opcost.core.names import short_source
from opcost.core.results import LayoutCost, LayoutPlan
from opcost.core.sheet import LONG_LINE, Amount, Cell, Section, Sheet, Table
from opcost.core.units import format_bytes, format_time, short_bytes, short_time
from opcost.errors import counted, shortened, some
from opcost.views.sizing import rounded_throughput
from opcost.views.view import Column, ViewOptions, fields_data, keep_together, listing, reading, whole_percent

SHOWN = 20  # layouts that people see, unless they choose a number
OVER = 5  # of them those that do not fit, if there are others
NEAR = 0.01  # a layout that takes so much longer is not behind for one reason


def plan_sheet(plan: LayoutPlan, options: ViewOptions) -> Sheet:
    """The fastest layouts with memory, waiting and what limits them, then those that do not fit."""

    def rate(layout: LayoutCost) -> Cell:
        found = rounded_throughput(layout.items_per_second)
        return "" if found is None else found

    def step(layout: LayoutCost) -> Cell:
        return "" if layout.latency_ns is None else Amount(layout.latency_ns, "time")

    def left(layout: LayoutCost) -> Cell:
        return Amount(plan.limit_bytes - max(layout.peak_bytes, layout.reserved_bytes or 0), "bytes")

    def band(layout: LayoutCost) -> str:
        return "" if layout.band_ns is None else " – ".join(map(format_time, layout.band_ns))

    def used(layout: LayoutCost) -> Cell:
        return "" if layout.mfu is None else whole_percent(layout.mfu)

    columns = (
        Column("mesh", "name", of=lambda layout: layout.mesh),
        Column("batch", of=lambda layout: f"{layout.passes} × {layout.batch}"),
        Column("checkpoint", dull=True, of=lambda layout: layout.checkpoint),
        Column("gathered", dull=True, of=_gathered),
        Column("throughput", "number", f"{plan.item or 'sample'}s/s", of=rate),
        Column("step", "number", of=step),
        Column("mfu", "number", "MFU", of=used),
        Column("memory", "number", of=lambda layout: Amount(layout.peak_bytes, "bytes")),
        Column(
            "reserved", "number", blank=("",),
            of=lambda layout: "" if layout.reserved_bytes is None else Amount(layout.reserved_bytes, "bytes"),
        ),
        Column("left", "number", of=left),
        Column("waits", title="waits for", of=_waits),
        Column("limit", title="limited by", dull=True, of=lambda layout: layout.limited_by),
        Column("interval", title="80 % interval", blank=("",), of=band),
    )  # fmt: skip
    ranked = (
        "mesh", "batch", "throughput", "checkpoint", "left", "gathered", "memory", "step", "waits", "mfu", "limit", "reserved",
        "interval",
    )  # fmt: skip
    top = SHOWN if options.top is None else options.top
    fitting = [layout for layout in plan.layouts if layout.fits]
    over = [layout for layout in plan.layouts if not layout.fits]
    few = min(len(over), max(top // (SHOWN // OVER), top - len(fitting)))
    hidden = ((len(fitting) - (top - few), "fit"), (len(over) - few, "do not"))
    more = [f"{number:,} more {words}" for number, words in hidden if number > 0]
    table = listing(
        columns, (*fitting[: top - few], *over[:few]), title="layouts", ranked=ranked, main=True,
        remarks=(", ".join(more),) if more else (),
    )  # fmt: skip
    notes = tuple(some([shortened(note, LONG_LINE) for note in plan.notes]))
    words = ", ".join(f"{name}={value}" for name, value in plan.options.items())
    return Sheet(
        heading=(
            f"{plan.samples:,} samples a step, {format_bytes(plan.limit_bytes)} of each GPU",
            *((shortened(words, LONG_LINE),) if words else ()),
        ),
        tables=(table,),
        sections=(Section("notes", notes),),
    )


def _gathered(layout: LayoutCost) -> str:
    """How often a pass gathers sharded parameters."""
    return "" if "fsdp" not in layout.mesh else "twice" if layout.reshard else "once"


def _waits(layout: LayoutCost) -> str:
    """How much of the step operators wait for each axis, the most first."""
    if not layout.latency_ns:
        return ""
    waits = sorted(layout.exposed_ns.items(), key=lambda wait: -wait[1])
    return ", ".join(f"{axis} {whole_percent(ns / layout.latency_ns)}" for axis, ns in waits if ns)


def plan_records(plan: LayoutPlan) -> Table:
    """One line for each layout, nothing rounded; the waiting for each axis has a column."""
    axes = dict.fromkeys(axis for layout in plan.layouts for axis in layout.exposed_ns)
    names = "batch passes peak_bytes reserved_bytes latency_ns items_per_second mfu".split()
    columns = (
        *reading("mesh checkpoint"),
        Column("reshard", of=lambda layout: "yes" if layout.reshard else "no"),
        Column("fits", of=lambda layout: "yes" if layout.fits else "no"),
        *reading(" ".join(f"{name}:number" for name in names)),
        *(
            Column(f"waits_{axis}_ns", "number", of=lambda layout, axis=axis: layout.exposed_ns.get(axis))  # type: ignore[misc]
            for axis in axes
        ),
        *reading("limited_by"),
        Column("counted", of=lambda layout: "yes" if layout.counted else "no"),
    )
    return listing(columns, plan.layouts)


def plan_data(plan: LayoutPlan) -> dict[str, Any]:
    """All of it for JSON."""
    smaller = None if plan.smaller is None else {"gpus": plan.smaller[0], "best": fields_data(plan.smaller[1])}
    layouts = [{**fields_data(layout), "limited_by": layout.limited_by} for layout in plan.layouts]
    return {"schema": "opcost.plan/1", **fields_data(plan), "layouts": layouts, "smaller": smaller}


def plan_answer(plan: LayoutPlan) -> str:
    """The best layout, why it is, and how far the next cheaper cluster is behind."""
    where = f"{short_source(plan.source)} on {plan.gpus:,} {plan.device} ({plan.cluster})"
    best = plan.best
    if best is None or best.latency_ns is None:
        return f"{where}: none of {counted(len(plan.layouts), 'layout')} fits"
    facts = [f"{where}: {best}"]
    rate = best.items_per_second or 0.0
    mfu = "" if best.mfu is None else f", MFU {whole_percent(best.mfu)}"
    facts.append(
        keep_together(f"{rounded_throughput(rate):,} {plan.item or 'sample'}s/s")
        + f" ({rounded_throughput(rate / plan.gpus):,} per GPU{mfu})"
    )
    used = max(best.peak_bytes, best.reserved_bytes or 0)
    facts.append(f"{keep_together(short_bytes(used))} of {keep_together(short_bytes(plan.limit_bytes))}")
    if why := _why(best, [layout for layout in plan.layouts if layout.fits and layout is not best]):
        facts.append(why)
    sentence = ", ".join(facts)
    if plan.smaller is None:
        return sentence
    gpus, other = plan.smaller
    if other is None or other.latency_ns is None:
        return f"{sentence}; {gpus:,} GPUs have too little memory"
    return f"{sentence}; {gpus:,} GPUs take {other.latency_ns / best.latency_ns:.2f} times as long"


def _why(best: LayoutCost, others: Iterable[LayoutCost]) -> str:
    """By how much the next layout is behind, and what it loses most of that by."""
    second = min((each for each in others if each.latency_ns), key=lambda each: each.latency_ns or 0, default=None)
    if second is None:
        return "the only one that fits"
    behind = (second.latency_ns or 0) / max(1, best.latency_ns or 0) - 1
    text = f"{100 * behind:.1f} % ahead of {second}" if behind < NEAR else f"{whole_percent(behind)} ahead of {second}"
    lost = {
        f"waits {{}} longer for {axis}": second.exposed_ns.get(axis, 0) - best.exposed_ns.get(axis, 0)
        for axis in (*best.exposed_ns, *second.exposed_ns)
    }
    lost["computes {} longer"] = _computing(second) - _computing(best)
    most = max(lost, key=lost.__getitem__)
    return f"{text}, which {most.format(keep_together(short_time(lost[most])))}"


def _computing(layout: LayoutCost) -> int:
    return (layout.latency_ns or 0) - sum(layout.exposed_ns.values())


def plan_points(plan: LayoutPlan) -> dict[str, Any]:
    """Memory and throughput of each layout, for the page."""
    return {
        "limit": plan.limit_bytes,
        "title": f"{plan.item or 'sample'}s/s per GPU",
        "names": [printable(str(layout)) for layout in plan.layouts],
        "memory": [max(layout.peak_bytes, layout.reserved_bytes or 0) for layout in plan.layouts],
        "rates": [
            None if layout.items_per_second is None or not layout.fits else layout.items_per_second / plan.gpus
            for layout in plan.layouts
        ],
        "checkpoints": [layout.checkpoint for layout in plan.layouts],
        "waits": [_waits(layout) for layout in plan.layouts],
        "counted": [layout.counted for layout in plan.layouts],
    }
