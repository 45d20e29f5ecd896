"""Sheets and reports as the page has them: columns, tables, trees and graphs; of comparisons and sweeps also bars and curves."""

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from opcost.core.devices import DEVICES
from opcost.core.escaping import printable
from opcost.core.graph import FLOPS_PER_MAC, Phase, TensorSpec
from opcost.core.kinds import KINDS
from opcost.core.limits import LATENCY, QUANTITIES, Quantity
from opcost.core.report import Report
from opcost.core.results import Comparison, Entry, Fit, LayoutPlan, Recomputation, Sweep
from opcost.core.scan import Scan
from opcost.core.sheet import Amount, Cell, Field, Section, Sheet, Table, Total
from opcost.version import __version__
from opcost.views.answers import answer_of
from opcost.views.html.graphs import graph_of, shapes_of
from opcost.views.html.interfaces import Interface, interfaces
from opcost.views.planning import plan_points
from opcost.views.report import moved, rank_tables
from opcost.views.results import RESULTS
from opcost.views.sizing import PEAK_PARTS, THROUGHPUT, rounded_throughput, throughput_title
from opcost.views.summary import layers_of, memory_facts, summarize
from opcost.views.tree import READABLE, module_runs, numbered_runs, sharers
from opcost.views.view import ViewOptions, format_cell

PageData = dict[str, Any]
MOST_TENSORS = 100_000  # tensors that the tree shows one by one; of more it has the modules
_OFFERED = tuple(dict.fromkeys(("peak_bytes", "flops", "macs", "bytes", *QUANTITIES)))
"""Quantities in the order in which a sweep offers them; what is the same at every size is left out."""


def words_of(texts: Iterable[str]) -> PageData:
    """A column of texts, each distinct one written once."""
    places: dict[str, int] = {}
    at = [places.setdefault(text, len(places)) for text in texts]
    return {"words": list(map(printable, places)), "at": at}


def column_of(name: str, title: str, unit: str, values: Iterable[Any], **more: Any) -> PageData:
    """A named column: of words, or of numbers, where None is unknown."""
    textual = unit in ("name", "text", "shapes")

    def short(value: Any) -> Any:
        return float(f"{value:.6g}") if isinstance(value, float) and not value.is_integer() else value

    cells = words_of(values) if textual else {"values": list(map(short, values))}
    return {"name": name, "title": title, "unit": unit, **more} | cells


def table_of(table: Table, title: str | None = None) -> PageData:
    """A table as the page has it."""

    def cell(value: Cell, field: Field) -> Any:
        if isinstance(value, Amount):
            return [value.number, value.unit, value.partial, value.signed]
        if isinstance(value, (tuple, str)) or (value is None and field.textual):
            return format_cell(value, field)
        return str(value) if field.textual else value

    def column(place: int) -> PageData:
        field = table.fields[place]
        cells = (cell(line.values[place], field) for line in table.lines)
        return column_of(field.name, printable(field.header), field.unit, cells)

    return {
        "title": table.title if title is None else title,
        "count": len(table.lines),
        "columns": [column(place) for place in table.visible],
        "roles": [[row, line.role] for row, line in enumerate(table.lines) if line.role != "row"],
        "remarks": [printable(remark) for remark in table.remarks],
    }


def totals_of(totals: Sequence[Total]) -> list[PageData]:
    """The totals of the header."""
    names = ("value", "unit", "partial", "exact", "large")
    return [
        {
            "label": each.label.strip(),
            "remark": printable(each.remark, keep="\u00a0"),
            **{name: getattr(each, name) for name in names},
        }
        for each in totals
    ]


def sections_of(sections: Iterable[Section], notes: Sequence[str] = ()) -> PageData:
    """Alerts, and notes."""
    every = [*sections, *([Section("", tuple(notes))] if notes else [])]
    found: dict[bool, list[PageData]] = {True: [], False: []}
    for each in every:
        lines = [plain(line) for line in each.lines]
        found[each.urgent].append({"title": each.title, "lines": lines, "hint": plain(each.hint)})
    return {"alerts": found[True], "notes": found[False]}


def plain(text: str) -> str:
    """The text on one line with ordinary spaces."""
    return printable(text.replace("\u00a0", " "))


def sheet_page(sheet: Sheet) -> PageData:
    """The tables of a sheet below each other, and what is around them."""
    return {
        "title": printable(sheet.answer, keep="\u00a0"),
        "facts": [*(("", printable(line)) for line in sheet.heading), ("opcost", __version__)],
        "totals": totals_of(sheet.totals),
        **sections_of(sheet.unplotted, sheet.facts),
        "tables": [table_of(table) for table in sheet.tables],
    }


class PathTree:
    """A tree made of paths: nodes after their parents, the root first; each has an own amount of each quantity."""

    def __init__(self, quantities: Sequence[str]) -> None:
        self.parent = [-1]
        self.names = [""]
        self.types = [""]
        self.own: dict[str, list[float]] = {name: [0] for name in quantities}
        self._known: dict[tuple[int, str, str], int] = {}

    def child(self, parent: int, name: str, kind: str = "") -> int:
        """The node of this name and type below another, made where it is not there yet."""
        key = (parent, name, kind)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = len(self.parent)
            self.parent.append(parent)
            self.names.append(name)
            self.types.append(kind)
            for amounts in self.own.values():
                amounts.append(0)
        return found

    def walk(self, parts: Sequence[str]) -> int:
        """The node at the end of these names."""
        node = 0
        for part in parts:
            node = self.child(node, part)
        return node

    def page(self, noun: str, root: str, quantities: Sequence[PageData], measured: Container[str] = ()) -> PageData:
        """The tree as the page has it; nodes are alike if all amounts are but those that were `measured`.

        Quantities that are zero everywhere are left out.
        """
        counted = [own for name, own in self.own.items() if name not in measured]
        built = list(zip(self.types, *counted, strict=True))
        known = [quantity | {"own": own} for quantity in quantities if any(own := self.own[str(quantity["name"])])]
        return {
            "noun": noun, "root": printable(root), "joint": ".", "partial": None, "parent": self.parent,
            "name": words_of(self.names), "type": words_of(self.types), "kinds": any(self.types), "quantities": known,
            "details": [], "runs": _runs(self.parent, numbered_runs(self.parent, self.names, built)),
        }  # fmt: skip


def _runs(parents: Sequence[int], runs: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """Where runs of equal siblings begin and how long they are; none of a tree that is readable as it is."""
    return [(run[0], len(run)) for run in runs] if len(parents) > READABLE else []


def families() -> dict[str, str]:
    """The family of each kind, whose colour it has."""
    return {kind.name: kind.family for kind in KINDS.values()}


def scan_page(scan: Scan, options: ViewOptions) -> PageData:
    """A checkpoint: its tensors as a tree, and the same lines as on a terminal."""
    tree = PathTree(("params", "bytes", "tensors"))
    shapes: dict[int, str] = {}
    files: dict[int, str] = {}
    deep = len(scan.tensors) <= MOST_TENSORS
    for tensor in scan.tensors:
        parts = tensor.name.split(".")
        node = tree.walk(parts[:-1])
        if deep:
            node = tree.child(node, parts[-1], tensor.type)
            shapes[node], files[node] = "x".join(map(str, tensor.shape)) or "scalar", tensor.file
        tree.own["params"][node] += tensor.params
        tree.own["bytes"][node] += tensor.bytes
        tree.own["tensors"][node] += 1
    quantities: list[PageData] = [
        {"name": "params", "title": "params", "unit": "count", "usual": True},
        {"name": "bytes", "title": "stored", "unit": "bytes"},
        {"name": "tensors", "title": "tensors", "unit": "number"},
    ]
    data = tree.page("tensor" if deep else "module", scan.source, quantities)
    nodes = range(len(tree.parent))
    data["details"] = [
        column_of("shape", "shape", "text", [shapes.get(node, "") for node in nodes], shown=True),
        column_of("file", "file", "text", [files.get(node, "") for node in nodes]),
    ]
    return sheet_page(RESULTS["scan"].sheet.make(scan, options)) | {"tree": data}


# -- comparisons and sweeps ---------------------------------------------------------------------------------------------


def tables_page(result: Any, options: ViewOptions) -> PageData:
    """Models side by side, a sweep, layouts, budgets, or tables about a profile."""
    if isinstance(result, LayoutPlan):
        options = replace(options, top=len(result.layouts))
    data = sheet_page(RESULTS["tables"].sheet.make(result, options))
    if isinstance(result, Comparison):
        data["compared"] = _compared(result)
        if not result.changes:  # what was added, removed and changed is in tables alone
            data["tables"] = [table for table in data["tables"] if table["title"] not in ("totals", "by module")]
    elif isinstance(result, Sweep):
        data["sweep"] = _sweep(result)
    elif isinstance(result, LayoutPlan):
        data["plan"] = plan_points(result)
    elif isinstance(result, (Fit, Recomputation)):
        data["fit"] = _fit(result)
        data["notes"] = [note for note in data["notes"] if note["title"] != PEAK_PARTS]  # a bar has them
    return data


def _compared(comparison: Comparison) -> PageData:
    modules: dict[str, dict[str, Entry]] = {}
    for entry in comparison.of_part("module"):
        modules.setdefault(entry.name, {})[entry.quantity.name] = entry
    quantities = {entry.quantity.name: entry.quantity for lines in modules.values() for entry in lines.values()}

    def amounts(entry: Entry | None) -> list[int | None]:
        """None where the module is not there, or its amount is not known."""
        if entry is None:
            return [None] * len(comparison.sources)
        return [amount if there else None for amount, there in zip(entry.amounts, entry.present, strict=True)]

    return {
        "sources": [printable(source.label) for source in comparison.sources],
        "totals": [
            _shown(entry.quantity, name=entry.quantity.name, amounts=entry.amounts, partial=entry.partial)
            for entry in comparison.of_part("total")
            if any(entry.amounts)
        ],
        "paths": list(map(printable, modules)),
        "types": [printable(next(iter(lines.values())).type) for lines in modules.values()],
        "quantities": [
            {"name": name, **_shown(quantity, amounts=[amounts(lines.get(name)) for lines in modules.values()])}
            for name, quantity in quantities.items()
        ],
    }


def _shown(quantity: Quantity, **more: Any) -> PageData:
    return {"title": quantity.title, "unit": quantity.unit, **more}


def _fit(fit: Fit | Recomputation) -> PageData:
    """What the limit is used for at the size that fits."""
    size = fit.largest if isinstance(fit, Fit) else fit.size
    reserved = (fit.reserved_bytes or fit.peak_bytes) - fit.peak_bytes
    left = fit.limit_bytes - fit.peak_bytes - reserved
    further = {"kept by the allocator": reserved, "left of the limit": left}
    return {
        "title": printable(f"{fit.vary} {size:,}"),
        "limit": fit.limit_bytes,
        "parts": {**fit.parts, **{name: size for name, size in further.items() if size > 0}},
    }


def _sweep(sweep: Sweep) -> PageData:
    """Amounts by the sizes that vary; a variable of one size is in the table alone."""
    points = sweep.points
    varied = [place for place in range(len(sweep.variables)) if len({point.sizes[place] for point in points}) > 1] or [
        0
    ]
    quantities: list[PageData] = []
    if any(point.latency_ns is not None for point in points):
        bands, amounts = [point.band_ns for point in points], [point.latency_ns for point in points]
        quantities.append({"name": LATENCY.name, **_shown(LATENCY, bands=bands, amounts=amounts)})
    if title := throughput_title(sweep):
        rates = [rounded_throughput(point.items_per_second) for point in points]
        quantities.append({"name": THROUGHPUT, "title": title, "unit": "number", "amounts": rates})
    for name in _OFFERED:
        counts = [point.amounts.get(name) for point in points]
        if len(set(counts)) > 1:
            quantities.append({"name": name, **_shown(QUANTITIES[name], amounts=counts)})
    return {
        "variables": [printable(sweep.variables[place]) for place in varied],
        "sizes": [[point.sizes[place] for place in varied] for point in points],
        "counted": [point.counted for point in points],
        "fits": [point.fits for point in points],
        "quantities": quantities,
    }


# -- a report: the tree of modules, every operator, the graph, memory, and notes -----------------------------------------

MOST_OPERATORS = 200_000  # listed one by one; longer runs have modules, and the curve in this many steps
HOLDERS = 20
_OF_MODULES = "params macs flops activations bytes param_bytes activation_bytes ops uncounted".split()


def report_page(report: Report, options: ViewOptions) -> PageData:
    """All that the page shows of a report."""
    summary = summarize(report)
    count = len(report.rows)
    listed = count <= MOST_OPERATORS
    notes = [] if listed else [f"{count:,} operators are too many to be listed one by one; modules have their sums"]
    known = report.coverage.counted
    facts = [
        *((name, value.strip()) for name, _, value in (line.partition("  ") for line in summary.heading)),
        ("conventions", " · ".join(summary.conventions)),
        ("counted", f"all {count:,} operators" if known == count else f"{known:,} of {count:,} operators"),
        ("opcost", __version__),
    ]
    return {
        "title": printable(answer_of(report), keep="\u00a0"),
        "facts": [(name, printable(value, keep="\u00a0")) for name, value in facts if value],
        "totals": totals_of(summary.totals),
        **sections_of(summary.sections, notes),
        "tree": _tree(report),
        "ops": _operators(report) if listed and count else None,
        "graph": graph_of(report) if listed and count else None,
        "memory": _memory(report),
        "families": families(),
        "run": [(name, printable(value)) for name, value in _run_of(report) if value],
        "devices": (devices := devices_of()),
        "device": next((each["name"] for each in devices if each["name"] == report.device), "h200"),
        "tables": [table_of(table) for table in rank_tables(report)],
    }


def _run_of(report: Report) -> list[tuple[str, str]]:
    """Under which conditions it ran, beside what can be chosen of it."""
    shape = report.inputs[0][1].shape if report.processed[0] and report.inputs else None
    batch = report.meta.get("batch") or str(shape[0] if shape else "")
    return [
        ("batch", batch),
        ("optimizer", report.meta.get("optimizer", "")),
        ("device", report.device),
    ]


def _tree(report: Report) -> PageData:
    modules = report.modules
    places = {module.path: place for place, module in enumerate(modules)}
    quantities: list[PageData] = []
    for name in _OF_MODULES:  # what a module's own operators and parameters add up to
        own = [moved(module.own) if name == "bytes" else getattr(module.own, name) for module in modules]
        if any(own) or name in ("params", "macs", "flops"):
            quantity = QUANTITIES[name]._asdict() | {"own": own}
            if name == "flops":
                quantity["remark"] = f"{FLOPS_PER_MAC} per MAC, and all other arithmetic"
            if name == ("macs" if report.totals.macs else "params"):
                quantity["usual"] = True
            quantities.append(quantity)
    live = {found.module: found.bytes for found in (report.memory.holders if report.memory else ())}
    if any(module.path in live for module in modules):
        own = [live.get(module.path, 0) for module in modules]
        remark = "bytes that the module's operators have allocated at the peak of memory"
        place = next(at for at, each in enumerate(quantities) if each["name"] == "flops") + 1
        quantities.insert(place, {"name": "live", "title": "at peak", "unit": "bytes", "remark": remark, "own": own})
    known = interfaces(report)
    dtypes = Counter(spec.dtype for found in known.values() for specs in found for spec in specs)
    usual = max(dtypes, key=dtypes.__getitem__, default="float32")

    def shapes(name: str, title: str, specs: Callable[[Interface], Sequence[TensorSpec]]) -> PageData:
        texts = [shapes_of(specs(known[module.path]), usual) for module in modules]
        return column_of(name, title, "shapes", texts, shown=True, remark=f"{usual} where no element type is written")

    parents = [places.get(module.parent or "", 0) if module.path else -1 for module in modules]
    return {
        "noun": "module",
        "root": printable(modules[0].type or report.meta.get("source", "") or "model"),
        "joint": ".",
        "partial": "uncounted" if report.totals.uncounted else None,
        "parent": parents,
        "runs": _runs(parents, module_runs(modules, sharers(report))),
        "name": words_of(module.name for module in modules),
        "type": words_of(module.type for module in modules),
        "quantities": quantities,
        "details": [
            shapes("in", "input", lambda module: module.inputs),
            shapes("out", "output", lambda module: module.outputs),
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
        column_of("bytes", "bytes", "bytes", costs(moved)),
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


def _memory(report: Report) -> PageData | None:
    """The curve and its peak."""
    memory = report.memory
    if memory is None or not memory.curve:
        return None
    count = len(memory.curve)
    steps = min(count, MOST_OPERATORS)
    curve = list(memory.curve)
    layers: list[PageData] = [{"name": "all", "curve": curve}]
    phases: list[tuple[Phase, int]] = []
    if steps < count:
        curve[:] = [max(curve[count * step // steps : count * (step + 1) // steps]) for step in range(steps)]
    else:
        standing, passing = layers_of(memory)
        layers = [{"name": part, "constant": size} for part, size in standing.items()]
        layers += [{"name": part, "curve": list(values)} for part, values in passing.items()]
        phases = _phase_runs(report)
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
        "phases": phases,
        "sentences": [*memory_facts(memory), *more],
    }


def _phase_runs(report: Report) -> list[tuple[Phase, int]]:
    """Each phase with its first operator, again where it begins again; recomputing is a part of the backward pass."""
    found: list[tuple[Phase, int]] = []
    for step, row in enumerate(report.rows if len(report.phases) > 1 else ()):
        phase: Phase = "backward" if row.op.phase == "recompute" else row.op.phase
        if not found or found[-1][0] != phase:
            found.append((phase, step))
    return found


def devices_of() -> list[PageData]:
    """The peaks that rooflines are drawn from."""
    return [
        {
            "name": each.name,
            "flops": dict(each.flops),
            "bandwidth": each.bandwidth,
            "source": printable(each.description),
        }
        for each in DEVICES.values()
        if each.flops and each.bandwidth
    ]
