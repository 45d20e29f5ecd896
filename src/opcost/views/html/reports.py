"""A report as the page has it: the tree of modules, every operator, memory, and what must be said."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from opcost.core.cost import FLOPS_PER_MAC
from opcost.core.devices import DEVICES
from opcost.core.graph import Phase
from opcost.core.harmless import printable
from opcost.core.memory import Memory
from opcost.core.quantity import QUANTITIES
from opcost.core.report import Report, Row, Stats
from opcost.version import __version__
from opcost.views.html.columns import Told, numbers_of, shapes_of, words_of
from opcost.views.memory_layers import layers_of
from opcost.views.memory_page import HOW
from opcost.views.report_summary import heading_of, summarize
from opcost.views.summary import Section, Summary

MOST_OPERATORS = 200_000
"""Operators that a page lists one by one; of longer runs it has the modules, and the curve in so many steps."""
MOST_IN_GRAPH = 50_000
"""Operators of a graph that can still be laid out in a browser."""
HOLDERS = 20
_SIZES: dict[str, Callable[[Stats], int]] = {
    "params": lambda stats: stats.params,
    "macs": lambda stats: stats.macs,
    "flops": lambda stats: stats.flops,
    "activations": lambda stats: stats.activations,
    "bytes": lambda stats: stats.bytes_read + stats.bytes_written,
    "param_bytes": lambda stats: stats.param_bytes,
    "activation_bytes": lambda stats: stats.activation_bytes,
    "ops": lambda stats: stats.ops,
    "uncounted": lambda stats: stats.uncounted,
}
"""What a module's own operators and parameters add up to."""


def report_data(report: Report) -> Told:
    """All that the page shows of a report."""
    summary = summarize(report)
    places = {module.path: place for place, module in enumerate(report.modules)}
    listed = len(report.rows) <= MOST_OPERATORS
    notes = (
        []
        if listed
        else [f"{len(report.rows):,} operators are too many to be listed one by one; modules have their sums"]
    )
    return {
        "title": printable(heading_of(report)[0]),
        "facts": facts_of(report, summary),
        "totals": totals_of(summary),
        **said_of(summary.sections, notes),
        "tree": _tree(report),
        "ops": _operators(report.rows, places) if listed and len(report.rows) else None,
        "graph": graph_of(report.rows) if listed and len(report.rows) <= MOST_IN_GRAPH else None,
        "memory": memory_of(report),
        "devices": devices_of(),
        "device": "h200",
        "tables": [],
    }


def facts_of(report: Report, summary: Summary) -> list[tuple[str, str]]:
    """Inputs, conventions, versions, and how much is counted."""
    heading = [line.partition("  ") for line in summary.heading[1:]]
    coverage = report.coverage
    whole = len(report.rows)
    missed = whole - coverage.counted
    counted = f"all {whole:,} operators" if not missed else f"{coverage.counted:,} of {whole:,} operators"
    found = [
        *((name, value.strip()) for name, _, value in heading),
        ("conventions", " · ".join(summary.conventions)),
        ("counted", counted),
        ("opcost", __version__),
    ]
    return [(name, printable(value, keep="\u00a0")) for name, value in found if value]


def totals_of(summary: Summary) -> list[Told]:
    """The totals of the header."""
    return [
        {
            "label": each.label.strip(),
            "value": each.value,
            "unit": each.unit,
            "partial": each.partial,
            "remark": each.remark,
        }
        for each in summary.quantities
    ]


def said_of(sections: Iterable[Section], notes: Sequence[str] = ()) -> Told:
    """What stands out, and what else there is to know."""
    told = [
        (section.urgent, {"title": section.title, "lines": [*map(_plain, section.lines)], "hint": _plain(section.hint)})
        for section in sections
    ]
    further = [{"title": "", "lines": [*map(_plain, notes)], "hint": ""}] if notes else []
    return {
        "alerts": [section for urgent, section in told if urgent],
        "notes": [*(section for urgent, section in told if not urgent), *further],
    }


def _plain(text: str) -> str:
    return printable(text.replace("\u00a0", " "))


def _tree(report: Report) -> Told:
    modules = report.modules
    places = {module.path: place for place, module in enumerate(modules)}
    quantities = []
    for name, of in _SIZES.items():
        own = [of(module.own) for module in modules]
        if any(own) or name in ("params", "macs", "flops"):
            quantity = QUANTITIES[name]
            quantities.append(
                {"name": name, "title": quantity.title, "unit": quantity.unit, "priced": quantity.priced, "own": own}
                | ({"remark": f"{FLOPS_PER_MAC} per MAC, and all other arithmetic"} if name == "flops" else {})
                | ({"usual": True} if name == ("macs" if report.totals.macs else "params") else {})
            )
    held = {found.module: found.bytes for found in (report.memory.holders if report.memory else ())}
    if any(module.path in held for module in modules):
        own = [held.get(module.path, 0) for module in modules]
        quantities.append({"name": "held", "title": "held at the peak", "unit": "bytes", "own": own})
    shapes = {("in", "input"): [m.inputs for m in modules], ("out", "output"): [m.outputs for m in modules]}
    return {
        "noun": "module",
        "root": printable(modules[0].type or report.meta.get("source", "") or "model"),
        "joint": ".",
        "partial": "uncounted" if report.totals.uncounted else None,
        "parent": [places.get(module.parent or "", 0) if module.path else -1 for module in modules],
        "name": words_of(module.name for module in modules),
        "type": words_of(module.type for module in modules),
        "quantities": quantities,
        "details": [
            *(
                {"name": name, "title": title, "unit": "shapes", "shown": True} | words_of(map(shapes_of, found))
                for (name, title), found in shapes.items()
            ),
            {"name": "calls", "title": "calls", "unit": "number"} | numbers_of([module.calls for module in modules]),
            {"name": "extra", "title": "made with", "unit": "text"} | words_of(module.extra for module in modules),
            {"name": "same", "title": "same as", "unit": "name"} | words_of(module.same_as or "" for module in modules),
        ],
    }


def _operators(rows: Sequence[Row], places: Mapping[str, int]) -> Told:
    """Every operator on a line; what its price is made of, and the values that it reads, by who made them."""
    found = list(rows)
    costs = [row.cost for row in found]

    def priced(of: Callable[[Any], int]) -> Told:
        return numbers_of([None if cost is None else of(cost) for cost in costs])

    columns: list[Told] = [
        {"name": "number", "title": "#", "unit": "number"} | numbers_of(range(1, len(found) + 1)),
        {"name": "raw", "title": "operator", "unit": "text"} | words_of(row.op.raw for row in found),
        {"name": "kind", "title": "kind", "unit": "text"} | words_of(row.op.kind for row in found),
        {"name": "macs", "title": "MACs", "unit": "count"} | priced(lambda cost: cost.macs),
        {"name": "flops", "title": "FLOPs", "unit": "count"} | priced(lambda cost: cost.flops),
        {"name": "bytes", "title": "bytes", "unit": "bytes"}
        | priced(lambda cost: cost.bytes_read + cost.bytes_written),
        {"name": "activations", "title": "activations", "unit": "count"}
        | numbers_of([row.activations for row in found]),
        {"name": "ins", "title": "input", "unit": "shapes"} | words_of(shapes_of(row.ins) for row in found),
        {"name": "outs", "title": "output", "unit": "shapes"} | words_of(shapes_of(row.outs) for row in found),
        {"name": "dtype", "title": "", "unit": "text"} | words_of(row.ins[0].dtype if row.ins else "" for row in found),
    ]
    if any(row.op.repeat != 1 for row in found):
        columns.append(
            {"name": "repeat", "title": "times", "unit": "number"} | numbers_of([row.op.repeat for row in found])
        )
    if any(row.op.phase != "forward" for row in found):
        columns.append({"name": "phase", "title": "phase", "unit": "text"} | words_of(row.op.phase for row in found))
    return {
        "count": len(found),
        "module": [places.get(row.op.module, 0) for row in found],
        "columns": columns,
    }


def graph_of(rows: Sequence[Row]) -> Told | None:
    """Who reads what whom made: an edge for each tensor that one operator made and another reads, with its shape."""
    maker: dict[int, tuple[int, str]] = {}
    edges: list[tuple[int, int, str]] = []
    for place, row in enumerate(rows):
        edges += [(maker[value][0], place, maker[value][1]) for value in dict.fromkeys(row.op.inputs) if value in maker]
        for value, spec in zip(row.op.outputs, row.outs, strict=False):
            maker[value] = (place, shapes_of((spec,)))
    if not edges:
        return None
    return {
        "from": [edge[0] for edge in edges],
        "to": [edge[1] for edge in edges],
        "shape": words_of(edge[2] for edge in edges),
    }


def memory_of(report: Report) -> Told | None:
    """The curve and its peak."""
    memory = report.memory
    if memory is None or not memory.curve:
        return None
    count = len(memory.curve)
    steps = min(count, MOST_OPERATORS)
    curve = (
        list(memory.curve)
        if steps == count
        else [max(memory.curve[count * step // steps : count * (step + 1) // steps]) for step in range(steps)]
    )
    phases: dict[Phase, int] = {}
    if len(report.phases) > 1 and steps == count:
        for step, row in enumerate(report.rows):
            phases.setdefault(row.op.phase, step)
    return {
        "peak": memory.peak_bytes,
        "at": memory.at * steps // count,
        "count": count,
        "curve": curve,
        "layers": _layers(memory) if steps == count else [{"name": "all", "curve": curve}],
        "parts": dict(memory.parts),
        "holders": [(printable(held.module), held.bytes, held.tensors) for held in memory.holders[:HOLDERS]],
        "phases": list(phases.items()),
        "said": _memory_said(memory),
    }


def _layers(memory: Memory) -> list[Told]:
    """The curve by what holds it, from what is there throughout to what comes and goes."""
    standing, passing = layers_of(memory)
    return [
        *({"name": part, "constant": size} for part, size in standing.items()),
        *({"name": part, "curve": list(curve)} for part, curve in passing.items()),
    ]


def _memory_said(memory: Memory) -> list[str]:
    rest = memory.holders[HOLDERS:]
    more = [f"{len(rest):,} more modules hold less"] if rest else []
    on = [f"as {memory.device} holds it, with its kernels' own memory"] if memory.device else []
    return [HOW[memory.how], *on, *more]


def devices_of() -> list[Told]:
    """The peaks that rooflines are drawn from."""
    return [
        {
            "name": device.name,
            "flops": dict(device.flops),
            "bandwidth": device.bandwidth,
            "source": printable(device.told),
        }
        for device in DEVICES.values()
        if device.flops and device.bandwidth
    ]
