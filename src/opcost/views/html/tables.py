"""Sheets as the page has them: columns, tables and trees; and of comparisons and sweeps also bars and curves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from opcost.core.escaping import printable
from opcost.core.graph import TensorSpec
from opcost.core.limits import LATENCY, QUANTITIES, Quantity
from opcost.core.results import Comparison, Entry, Sweep
from opcost.core.scan import Scan
from opcost.core.sheet import Amount, Cell, Field, Section, Sheet, Table, Total
from opcost.version import __version__
from opcost.views.cell import format_cell

PageData = dict[str, Any]
MOST_TENSORS = 100_000  # tensors that the tree shows one by one; of more it has the modules
_OFFERED = tuple(dict.fromkeys(("peak_bytes", "flops", "macs", "bytes", *QUANTITIES)))
"""Quantities in the order in which a sweep offers them; what is the same at every size is left out."""


# -- columns ------------------------------------------------------------------------------------------------------------


def words_of(texts: Iterable[str]) -> PageData:
    """A column of texts, each distinct one written once."""
    places: dict[str, int] = {}
    at = [places.setdefault(text, len(places)) for text in texts]
    return {"words": list(map(printable, places)), "at": at}


def column_of(name: str, title: str, unit: str, values: Iterable[Any], **more: Any) -> PageData:
    """A named column: of words, or of numbers, where None is unknown."""
    textual = unit in ("name", "text", "shapes")
    cells = words_of(values) if textual else {"values": [_short(value) for value in values]}
    return {"name": name, "title": title, "unit": unit, **more} | cells


def _short(number: float | None) -> float | None:
    return float(f"{number:.6g}") if isinstance(number, float) and not number.is_integer() else number


def shapes_of(specs: Sequence[TensorSpec]) -> str:
    """Shapes on one line, the commonest element type left out."""
    return ", ".join(str(spec) if spec.dtype == "float32" else f"{spec} {spec.dtype}" for spec in specs)


def table_of(table: Table, title: str | None = None) -> PageData:
    """A table as the page has it."""

    def column(place: int) -> PageData:
        field = table.fields[place]
        values = [_value(line.values[place], field) for line in table.lines]
        cells = words_of(map(str, values)) if field.textual else {"values": values}
        return {"name": field.name, "title": printable(field.header), "unit": field.unit, **cells}

    return {
        "title": table.title if title is None else title,
        "count": len(table.lines),
        "columns": [column(place) for place in table.visible],
        "roles": [[row, line.role] for row, line in enumerate(table.lines) if line.role != "row"],
        "remarks": [printable(remark) for remark in table.remarks],
    }


def _value(value: Cell, field: Field) -> Any:
    if isinstance(value, Amount):
        return [value.number, value.unit, value.partial, value.signed]
    if isinstance(value, (tuple, str)) or (value is None and field.textual):
        return format_cell(value, field)
    return _short(value)


# -- what is around the tables ------------------------------------------------------------------------------------------


def totals_of(totals: Sequence[Total]) -> list[PageData]:
    """The totals of the header."""
    return [
        {"label": each.label.strip(), **{name: getattr(each, name) for name in ("value", "unit", "partial", "remark")}}
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
        "title": printable(sheet.heading[0]),
        "facts": [*(("", printable(line)) for line in sheet.heading[1:]), ("opcost", __version__)],
        "totals": totals_of(sheet.totals),
        **sections_of(sheet.sections, sheet.facts),
        "tables": [table_of(table) for table in sheet.tables],
    }


# -- trees --------------------------------------------------------------------------------------------------------------


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

    def page(self, noun: str, root: str, quantities: Sequence[PageData]) -> PageData:
        """The tree as the page has it; quantities that are zero everywhere are left out."""
        known = [quantity | {"own": own} for quantity in quantities if any(own := self.own[str(quantity["name"])])]
        return {
            "noun": noun, "root": printable(root), "joint": ".", "partial": None, "parent": self.parent,
            "name": words_of(self.names), "type": words_of(self.types), "kinds": any(self.types), "quantities": known,
            "details": [],
        }  # fmt: skip


def scan_page(scan: Scan, sheet: Sheet) -> PageData:
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
    return sheet_page(sheet) | {"tree": data}


# -- comparisons and sweeps ---------------------------------------------------------------------------------------------


def tables_page(result: Any, sheet: Sheet) -> PageData:
    """Models side by side, a sweep, budgets, or tables about a profile."""
    data = sheet_page(sheet)
    if isinstance(result, Comparison):
        data["compared"] = _compared(result)
        if not result.changes:  # what was added, removed and changed is in tables alone
            data["tables"] = [table for table in data["tables"] if table["title"] not in ("totals", "by module")]
    elif isinstance(result, Sweep):
        data["sweep"] = _sweep(result)
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

    def known(quantity: Quantity, **more: Any) -> PageData:
        return {"title": quantity.title, "unit": quantity.unit, **more}

    return {
        "sources": [printable(source.label) for source in comparison.sources],
        "totals": [
            known(entry.quantity, amounts=entry.amounts, partial=entry.partial)
            for entry in comparison.of_part("total")
            if any(entry.amounts)
        ],
        "paths": list(map(printable, modules)),
        "types": [printable(next(iter(lines.values())).type) for lines in modules.values()],
        "quantities": [
            {"name": name, **known(quantity, amounts=[amounts(lines.get(name)) for lines in modules.values()])}
            for name, quantity in quantities.items()
        ],
    }


def _sweep(sweep: Sweep) -> PageData:
    points = sweep.points
    quantities: list[PageData] = []
    if any(point.latency_ns is not None for point in points):
        times: PageData = {
            "bands": [point.band_ns for point in points],
            "amounts": [each.latency_ns for each in points],
        }
        quantities.append({"name": LATENCY.name, "title": LATENCY.title, "unit": "time"} | times)
    for name in _OFFERED:
        amounts = [point.amounts.get(name) for point in points]
        if len(set(amounts)) > 1:
            quantity = QUANTITIES[name]
            quantities.append({"name": name, "title": quantity.title, "unit": quantity.unit, "amounts": amounts})
    return {
        "variables": list(map(printable, sweep.variables)),
        "sizes": [point.sizes for point in points],
        "counted": [point.counted for point in points],
        "fits": [point.fits for point in points],
        "quantities": quantities,
    }
