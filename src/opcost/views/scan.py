"""Checkpoints: their tensors by layer, module, element type or one by one; and the same for programs."""

from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any

from opcost.core.scan import By, Scan, TensorGroup, Totals
from opcost.core.sheet import LONG_LINE, Cell, Line, Role, Section, Sheet, Table, Total
from opcost.errors import UnknownName, counted, shortened, some
from opcost.views.view import (
    Column,
    ViewOptions,
    by_name,
    choose_columns,
    fields_data,
    find_column,
    listing,
    reading,
)

TITLES: dict[By, str] = {"layer": "layers", "module": "module", "type": "element type", "tensor": "tensor"}
MANY_NOTES = 12
_RANKED = ("name", "params", "size", "bits", "type")
_THEN: dict[By, tuple[str, ...]] = {
    "layer": ("tensors",), "tensor": ("shape",), "module": ("tensors", "share"), "type": ("tensors", "share"),
}  # fmt: skip
"""Columns in the order in which they are given room; names are long, so the others are shown only where they are chosen."""


def scan_sheet(scan: Scan, options: ViewOptions) -> Sheet:
    """The lines, the element types, and the totals."""
    tables = [list_scan(scan, options)]
    if options.by != "type":
        tables.append(replace(list_scan(scan, ViewOptions(by="type")), main=False))
    totals = scan.totals
    details = [f"{key} {value}" for key, value in scan.details.items()]
    files = counted(len(scan.files), "file")
    contents = " · ".join(
        [shortened(scan.source), scan.format, files, f"{totals.tensors:,} tensors", *map(shortened, details)]
    )
    notes = tuple(some([shortened(note.text, LONG_LINE) for note in scan.notes], MANY_NOTES))
    return Sheet(
        heading=(contents,),
        tables=tuple(tables),
        totals=_totals(scan),
        sections=(Section("notes", notes),) if notes else (),
    )


def list_scan(scan: Scan, options: ViewOptions) -> Table:
    """Layers, modules, types or tensors: the first lines, what the rest adds up to, and the sum."""
    by, top, chosen = options.by, options.top, options.columns
    if by not in TITLES:
        raise UnknownName("way to group tensors", str(by), TITLES)
    known = scan_columns(by, scan)
    groups = list(scan.by(by, options.depth))
    if options.sort:
        column = find_column(options.sort.lstrip("+"), known)
        groups.sort(key=lambda group: _order(column.of(group)), reverse=options.sort[0] != "+")
    elif top is not None:
        groups.sort(key=lambda group: -group.bytes)
    columns = tuple(known.values()) if chosen is None else choose_columns(chosen, known)

    def line(group: TensorGroup, role: Role = "row") -> Line:
        return Line(tuple(column.of(group) for column in columns), role)

    def added_up(name: str, groups: Sequence[TensorGroup | Totals], role: Role) -> Line:
        tensors, params, size = (sum(getattr(group, of) for group in groups) for of in ("tensors", "params", "bytes"))
        return line(TensorGroup(name, tensors, params, size, None, ()), role)

    lines = [line(group) for group in groups[:top]]
    if rest := groups[top:] if top else ():
        lines.append(added_up(f"{len(rest):,} more lines", rest, "rest"))
    lines.append(added_up("total", [scan.totals], "total"))
    ranked = (*_RANKED, *_THEN[by]) if chosen is None else ()
    return Table(title=f"by {TITLES[by]}", fields=columns, lines=tuple(lines), ranked=ranked, main=True)


def _order(value: Cell) -> tuple[bool, Any]:
    """Numbers and names that can be compared, whatever is missing."""
    return (not isinstance(value, str), value) if value is not None else (False, "")


def scan_columns(by: By, scan: Scan | None = None) -> dict[str, Column]:
    """All columns; the type says nothing where there is one, or where the line is called by it."""
    types = {tensor.type for tensor in scan.tensors} if scan else set()
    whole = scan.totals.params if scan else 0
    same: tuple[Cell, ...] = ("", *types) if by == "type" or len(types) == 1 else ("",)

    def shape(group: TensorGroup) -> str:
        return "" if group.shape is None else "x".join(map(str, group.shape)) or "scalar"

    def types_of(group: TensorGroup) -> str:
        """The types of the weights, and of other tensors only where there are no weights."""
        weights = [name for name in group.types if not name.endswith(")")]
        return ", ".join(some(weights or list(group.types), 3))

    return by_name(
        Column("name", "name", TITLES[by], of=attrgetter("name")),
        Column("tensors", "number", of=lambda group: group.tensors, blank=(1,)),
        Column("shape", of=shape, blank=("",)),
        Column("type", of=types_of, blank=same),
        *reading("params:count"),
        Column("share", "share", "%", of=lambda group: group.params / whole if whole else 0.0),
        Column("size", "bytes", "stored", of=lambda group: group.bytes),
        Column("bits", "ratio", of=lambda group: "" if group.bits is None else group.bits),
    )


def _totals(scan: Scan) -> tuple[Total, ...]:
    totals, bits = scan.totals, scan.totals.bits_per_param
    found = [Total("params", totals.params, "count", remark="as the model sees them", large=True)]
    if totals.active_params is not None and scan.experts is not None:
        used = f"for a token, with {scan.experts.per_token} of {scan.experts.count} experts"
        found.append(Total("active params", totals.active_params, "count", remark=used, large=True))
    sizes = (
        ("stored", totals.bytes, "" if bits is None else f"{bits:.3f} bits per parameter"),
        ("  scales", totals.scale_bytes, "scales and zero points, no parameters"),
        ("  others", totals.other_bytes, "optimizers, copies, constants"),
    )
    found += (
        Total(name, size, "bytes", remark=text, large=name == "stored")
        for name, size, text in sizes
        if size or name == "stored"
    )
    return tuple(found)


def scan_records(scan: Scan, options: ViewOptions) -> Table:
    """All that is known of every tensor."""
    shape = Column("shape", of=lambda tensor: "x".join(map(str, tensor.shape)))
    others = reading("params:number bytes:number bits:number file tied_to")
    return listing((*reading("name role dtype scheme"), shape, *others), scan.tensors)


def scan_data(scan: Scan, options: ViewOptions) -> dict[str, Any]:
    """All of it for JSON."""
    names = ("source", "format", "files", "details", "totals", "experts", "notes")
    data = {"schema": "opcost.scan/1"} | {name: fields_data(getattr(scan, name)) for name in names}
    data["totals"]["bits_per_param"] = scan.totals.bits_per_param
    groups: tuple[By, ...] = ("type", "module", "layer")
    for how in groups:
        data[f"by_{how}"] = [fields_data(group) for group in scan.by(how)]
        for group in data[f"by_{how}"]:
            del group["shape"]
    return {**data, "tensors": [{**each._asdict(), "shape": list(each.shape)} for each in scan.tensors]}
