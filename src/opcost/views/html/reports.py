"""A report as the page has it: the tree of modules, every operator, the graph, memory, and notes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any

from opcost.core.devices import DEVICES
from opcost.core.escaping import printable
from opcost.core.graph import FLOPS_PER_MAC, Phase
from opcost.core.quantity import QUANTITIES
from opcost.core.report import Report, Row, Stats
from opcost.version import __version__
from opcost.views.html.tables import PageData, column_of, sections_of, shapes_of, totals_of, words_of
from opcost.views.summary import layers_of, memory_facts, summarize

MOST_OPERATORS = 200_000  # listed one by one; longer runs have modules, and the curve in this many steps
MOST_IN_GRAPH = 50_000  # operators of a graph that can still be laid out in a browser
HOLDERS = 20
_NAMES = ("params", "macs", "flops", "activations", "bytes", "param_bytes", "activation_bytes", "ops", "uncounted")
SIZES: dict[str, Callable[[Stats], int]] = {name: attrgetter(name) for name in _NAMES} | {
    "bytes": lambda stats: stats.bytes_read + stats.bytes_written
}
"""What a module's own operators and parameters add up to."""


def report_page(report: Report) -> PageData:
    """All that the page shows of a report."""
    summary = summarize(report)
    count = len(report.rows)
    listed = count <= MOST_OPERATORS
    notes = [] if listed else [f"{count:,} operators are too many to be listed one by one; modules have their sums"]
    known = report.coverage.counted
    facts = [
        *((name, value.strip()) for name, _, value in (line.partition("  ") for line in summary.heading[1:])),
        ("conventions", " · ".join(summary.conventions)),
        ("counted", f"all {count:,} operators" if known == count else f"{known:,} of {count:,} operators"),
        ("opcost", __version__),
    ]
    return {
        "title": printable(summary.heading[0]),
        "facts": [(name, printable(value, keep="\u00a0")) for name, value in facts if value],
        "totals": totals_of(summary.totals),
        **sections_of(summary.sections, notes),
        "tree": _tree(report),
        "ops": _operators(report) if listed and count else None,
        "graph": _graph(report.rows) if listed and count <= MOST_IN_GRAPH else None,
        "memory": _memory(report),
        "devices": devices_of(),
        "device": "h200",
        "tables": [],
    }


def _tree(report: Report) -> PageData:
    modules = report.modules
    places = {module.path: place for place, module in enumerate(modules)}
    quantities: list[PageData] = []
    for name, of in SIZES.items():
        own = [of(module.own) for module in modules]
        if any(own) or name in ("params", "macs", "flops"):
            of_name = QUANTITIES[name]
            quantity = {
                "name": name, "title": of_name.title, "unit": of_name.unit, "needs_costs": of_name.needs_costs, "own": own,
            }  # fmt: skip
            if name == "flops":
                quantity["remark"] = f"{FLOPS_PER_MAC} per MAC, and all other arithmetic"
            if name == ("macs" if report.totals.macs else "params"):
                quantity["usual"] = True
            quantities.append(quantity)
    live = {found.module: found.bytes for found in (report.memory.holders if report.memory else ())}
    if any(module.path in live for module in modules):
        own = [live.get(module.path, 0) for module in modules]
        quantities.append({"name": "live", "title": "live at the peak", "unit": "bytes", "own": own})
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
            column_of("in", "input", "shapes", [shapes_of(module.inputs) for module in modules], shown=True),
            column_of("out", "output", "shapes", [shapes_of(module.outputs) for module in modules], shown=True),
            column_of("calls", "calls", "number", [module.calls for module in modules]),
            column_of("extra", "made with", "text", [module.extra for module in modules]),
            column_of("same", "same as", "name", [module.same_as or "" for module in modules]),
        ],
    }


def _operators(report: Report) -> PageData:
    """Every operator on a line, with what its cost is made of."""
    rows = list(report.rows)
    places: Mapping[str, int] = {module.path: place for place, module in enumerate(report.modules)}

    def costs(of: Callable[[Any], int]) -> list[int | None]:
        return [None if row.cost is None else of(row.cost) for row in rows]

    columns = [
        column_of("number", "#", "number", range(1, len(rows) + 1)),
        column_of("raw", "operator", "text", [row.op.raw for row in rows]),
        column_of("kind", "kind", "text", [row.op.kind for row in rows]),
        column_of("macs", "MACs", "count", costs(lambda cost: cost.macs)),
        column_of("flops", "FLOPs", "count", costs(lambda cost: cost.flops)),
        column_of("bytes", "bytes", "bytes", costs(lambda cost: cost.bytes_read + cost.bytes_written)),
        column_of("activations", "activations", "count", [row.activations for row in rows]),
        column_of("ins", "input", "shapes", [shapes_of(row.ins) for row in rows]),
        column_of("outs", "output", "shapes", [shapes_of(row.outs) for row in rows]),
        column_of("dtype", "", "text", [row.ins[0].dtype if row.ins else "" for row in rows]),
    ]
    if any(row.op.repeat != 1 for row in rows):
        columns.append(column_of("repeat", "times", "number", [row.op.repeat for row in rows]))
    if any(row.op.phase != "forward" for row in rows):
        columns.append(column_of("phase", "phase", "text", [row.op.phase for row in rows]))
    return {"count": len(rows), "module": [places.get(row.op.module, 0) for row in rows], "columns": columns}


def _graph(rows: Sequence[Row]) -> PageData | None:
    """An edge for each tensor that one operator makes and another reads, with its shape."""
    maker: dict[int, tuple[int, str]] = {}
    edges: list[tuple[int, int, str]] = []
    for place, row in enumerate(rows):
        edges += [(maker[value][0], place, maker[value][1]) for value in dict.fromkeys(row.op.inputs) if value in maker]
        for value, spec in zip(row.op.outputs, row.outs, strict=False):
            maker[value] = (place, shapes_of((spec,)))
    if not edges:
        return None
    sources, targets, shapes = zip(*edges, strict=True)
    return {"from": sources, "to": targets, "shape": words_of(shapes)}


def _memory(report: Report) -> PageData | None:
    """The curve and its peak."""
    memory = report.memory
    if memory is None or not memory.curve:
        return None
    count = len(memory.curve)
    steps = min(count, MOST_OPERATORS)
    curve = list(memory.curve)
    layers: list[PageData] = [{"name": "all", "curve": curve}]
    phases: dict[Phase, int] = {}
    if steps < count:
        curve[:] = [max(curve[count * step // steps : count * (step + 1) // steps]) for step in range(steps)]
    else:
        standing, passing = layers_of(memory)
        layers = [{"name": part, "constant": size} for part, size in standing.items()]
        layers += [{"name": part, "curve": list(values)} for part, values in passing.items()]
        if len(report.phases) > 1:
            for step, row in enumerate(report.rows):
                phases.setdefault(row.op.phase, step)
    rest = memory.holders[HOLDERS:]
    more = [f"{len(rest):,} more modules hold less"] if rest else []
    return {
        "peak": memory.peak_bytes,
        "at": memory.at * steps // count,
        "count": count,
        "curve": curve,
        "layers": layers,
        "parts": dict(memory.parts),
        "holders": [(printable(each.module), each.bytes, each.tensors) for each in memory.holders[:HOLDERS]],
        "phases": list(phases.items()),
        "sentences": [*memory_facts(memory), *more],
    }


def devices_of() -> list[PageData]:
    """The peaks that rooflines are drawn from."""
    found: list[PageData] = []
    for each in DEVICES.values():
        if each.flops and each.bandwidth:
            about = {"bandwidth": each.bandwidth, "source": printable(each.description)}
            found.append({"name": each.name, "flops": dict(each.flops), **about})
    return found
