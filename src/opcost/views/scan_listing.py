"""A scan as lines and columns, and on a page: ready for the same tables as a report's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from opcost.core.scan import By, Group, Scan
from opcost.errors import UnknownName
from opcost.views.listing import Column, Columns, Line, Listing, Value, by_name, choose_columns, find_column
from opcost.views.options import NumberOptions, PageOptions
from opcost.views.page import Page, Titled
from opcost.views.summary import LONG_LINE, Quantity, Section, Summary
from opcost.wording import shortened, some

TITLES: dict[By, str] = {"layer": "layers", "module": "module", "type": "element type", "tensor": "tensor"}
MANY_NOTES = 12
_RANKED = ("name", "params", "size", "bits", "type")
_THEN: dict[By, tuple[str, ...]] = {
    "layer": ("tensors",), "tensor": ("shape",), "module": ("tensors", "share"), "type": ("tensors", "share"),
}  # fmt: skip
"""Columns in the order in which they are given room; all others can be asked for, and names are long."""


@dataclass(frozen=True, kw_only=True)
class ScanOptions(NumberOptions):
    """Which lines and columns of a scan to show, and how."""

    by: By = "layer"
    depth: int | None = None
    """Words of a name: after the number of a layer (1 if nobody says), or of the path of a module (2)."""
    sort: str | None = None
    top: int | None = None
    columns: Columns = None


@dataclass(frozen=True, kw_only=True)
class ScanTableOptions(ScanOptions, PageOptions):
    """The same, and how to draw it."""


class _Seen(NamedTuple):
    """A group against the whole."""

    group: Group
    params: int


def scan_page(scan: Scan, options: ScanOptions) -> Page:
    """The lines and what stands around them."""
    further = () if options.by == "type" else (Titled("by element type", _listing(scan, "type", scan.by_type())),)
    return Page(list_scan(scan, options), _summary(scan), further, f"by {TITLES[options.by]}")


def list_scan(scan: Scan, options: ScanOptions) -> Listing:
    """Layers, modules, types or tensors, with their sum."""
    if options.by not in TITLES:
        raise UnknownName("way to group tensors", str(options.by), TITLES)
    groups = list(scan.by(options.by, options.depth))
    if options.sort:
        column = find_column(options.sort.lstrip("+"), scan_columns(options.by, set()))
        whole = scan.totals.params
        groups.sort(key=lambda group: _order(column.of(_Seen(group, whole))), reverse=options.sort[0] != "+")
    elif options.top is not None:
        groups.sort(key=lambda group: -group.bytes)
    return _listing(scan, options.by, groups, options.top, options.columns)


def _listing(scan: Scan, by: By, groups: Sequence[Group], top: int | None = None, columns: Columns = None) -> Listing:
    """The first lines, what the rest adds up to, and the sum."""
    known = scan_columns(by, {tensor.type for tensor in scan.tensors})
    chosen = tuple(known.values()) if columns is None else choose_columns(columns, known)
    totals = scan.totals
    lines = [_line(group, chosen, totals.params) for group in groups[:top]]
    if rest := groups[top:] if top else ():
        lines.append(_line(_sum(f"{len(rest):,} more lines", rest), chosen, totals.params, "rest"))
    total = Group("total", totals.tensors, totals.params, totals.bytes, None, ())
    lines.append(_line(total, chosen, totals.params, "total"))
    return Listing(columns=chosen, lines=tuple(lines), ranked=(*_RANKED, *_THEN[by]) if columns is None else ())


def list_tensors(scan: Scan) -> Listing:
    """All that is known of every tensor, for programs."""
    columns = (
        *(Column(name=name, title=name, unit="text", of=_of(name)) for name in ("name", "role", "dtype", "scheme")),
        Column(name="shape", title="shape", unit="text", of=lambda tensor: "x".join(map(str, tensor.shape))),
        *(Column(name=name, title=name, unit="number", of=_of(name)) for name in ("params", "bytes", "bits")),
        *(Column(name=name, title=name, unit="text", of=_of(name)) for name in ("file", "tied_to")),
    )
    return Listing(
        columns=columns, lines=tuple(Line(tuple(column.of(tensor) for column in columns)) for tensor in scan.tensors)
    )


def _of(name: str) -> Any:
    return lambda tensor: getattr(tensor, name)


def _sum(name: str, groups: Sequence[Group]) -> Group:
    tensors, params = sum(group.tensors for group in groups), sum(group.params for group in groups)
    return Group(name, tensors, params, sum(group.bytes for group in groups), None, ())


def _line(group: Group, columns: tuple[Column, ...], params: int, role: Any = "row") -> Line:
    seen = _Seen(group, params)
    return Line(tuple(column.of(seen) for column in columns), role)


def _order(value: Value) -> tuple[bool, Any]:
    """Numbers and names that can be compared, whatever is missing."""
    return (not isinstance(value, str), value) if value is not None else (False, "")


def scan_columns(by: By, types: set[str]) -> dict[str, Column]:
    """All columns; the type tells nothing where there is one, or where the line is called by it."""
    dull: tuple[Value, ...] = ("", *types) if by == "type" or len(types) == 1 else ("",)
    return by_name(
        Column(name="name", title=TITLES[by], unit="name", of=lambda seen: seen.group.name),
        Column(name="tensors", title="tensors", unit="number", of=lambda seen: seen.group.tensors, dull=(1,)),
        Column(name="shape", title="shape", unit="text", of=lambda seen: _shape(seen.group), dull=("",)),
        Column(name="type", title="type", unit="text", of=lambda seen: _types(seen.group), dull=dull),
        Column(name="params", title="params", unit="count", of=lambda seen: seen.group.params),
        Column(
            name="share",
            title="%",
            unit="share",
            of=lambda seen: seen.group.params / seen.params if seen.params else 0.0,
        ),
        Column(name="size", title="stored", unit="bytes", of=lambda seen: seen.group.bytes),
        Column(
            name="bits", title="bits", unit="ratio", of=lambda seen: "" if seen.group.bits is None else seen.group.bits
        ),
    )


def _shape(group: Group) -> str:
    return "" if group.shape is None else "x".join(map(str, group.shape)) or "scalar"


def _types(group: Group) -> str:
    """The types of the weights, and of other tensors only where there are no weights."""
    weights = [name for name in group.types if not name.endswith(")")]
    return ", ".join(some(weights or list(group.types), 3))


def _summary(scan: Scan) -> Summary:
    totals = scan.totals
    details = [f"{key} {value}" for key, value in scan.details.items()]
    files = f"{len(scan.files):,} files" if len(scan.files) != 1 else "1 file"
    heading = " · ".join([scan.format, files, f"{totals.tensors:,} tensors", *map(shortened, details)])
    bits = totals.bits_per_param
    quantities = [Quantity("params", totals.params, "count", remark="as the model sees them")]
    if totals.active_params is not None and scan.experts is not None:
        used = f"for a token, with {scan.experts.per_token} of {scan.experts.count} experts"
        quantities.append(Quantity("active params", totals.active_params, "count", remark=used))
    quantities.append(
        Quantity("stored", totals.bytes, "bytes", remark="" if bits is None else f"{bits:.3f} bits per parameter")
    )
    if totals.scale_bytes:
        quantities.append(
            Quantity("  scales", totals.scale_bytes, "bytes", remark="scales and zero points, no parameters")
        )
    if totals.other_bytes:
        quantities.append(Quantity("  others", totals.other_bytes, "bytes", remark="optimizers, copies, constants"))
    sections = []
    if scan.notes:
        said = [shortened(note.text, LONG_LINE) for note in scan.notes]
        sections.append(Section("notes", tuple(some(said, MANY_NOTES))))
    return Summary(heading=(shortened(scan.source), heading), quantities=tuple(quantities), sections=tuple(sections))
