"""A report as lines and columns: by module, operator, kind or type; cut, sorted, and added up. Plain data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from opcost.core.report import Report, Row
from opcost.errors import UnknownName
from opcost.views.listing import Column, Columns, Line, Listing, Value, choose_columns, find_column
from opcost.views.options import ViewOptions
from opcost.views.report_columns import EVERY_BY, RANKED, SHOWN, By, columns_of
from opcost.views.tree import Depth, Node, draw_tree, flat_nodes, sharers


@dataclass(frozen=True, kw_only=True)
class ListingOptions(ViewOptions):
    """What to list, and how."""

    by: By = "module"
    depth: Depth = "auto"
    """Levels of modules below the root; None shows all, "auto" as many as are readable."""
    merge: bool | None = None
    """Draw runs of identical blocks once; None does it where the tree would be long."""
    sort: str | None = None
    """A column: `macs` largest first, `+macs` smallest first. Modules are sorted under their parent."""
    top: int | None = None
    """Only so many lines, the costliest; one more line says what the rest adds up to."""
    columns: Columns = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.by not in EVERY_BY:
            raise UnknownName("way to list a report", str(self.by), EVERY_BY)
        known = columns_of(self.by, 0)
        _choose(self, known, None)
        _order(self.sort, known)


def list_report(report: Report, options: ListingOptions, *, default: Sequence[str] | None = None) -> Listing:
    """The report as lines; `default` names the columns where the caller chose none and room does not matter."""
    known = columns_of(options.by, report.totals.macs)
    order = _order(options.sort, known)
    if options.by == "module":
        return _list_modules(report, options, known, order, default)
    if options.by == "op":
        if order is None and options.top is not None:
            order = _costly_row
        return _flat(report.rows, order, known, options, default)
    groups = report.by_kind() if options.by == "kind" else report.by_type()
    return _flat(groups, order, known, options, default)


def _list_modules(
    report: Report,
    options: ListingOptions,
    known: dict[str, Column],
    order: Callable[[Any], Any] | None,
    default: Sequence[str] | None,
) -> Listing:
    if options.top is not None:
        depth = None if options.depth == "auto" else options.depth
        nodes = flat_nodes(report.by_module(depth), sharers(report))
        remarks = ("each module without the modules below it",)
        return _flat(nodes, order or _costly_node, known, options, default, remarks)
    columns = _choose(options, known, default)
    if any(column.name == "module" for column in columns):
        # The root has no name and goes by its type, which need not be said twice.
        columns = tuple(replace(column, of=_type_below_root) if column.name == "type" else column for column in columns)
    nodes, limit = draw_tree(report, depth=options.depth, merge=options.merge, order=order)
    deepest = max(module.depth for module in report.modules)
    said = []
    if any(node.hides for node in nodes):
        said.append(f"drawn to depth {limit} of {deepest}")
    if any(node.times > 1 for node in nodes):
        said.append("identical blocks drawn once, with their sum")
    return Listing(
        columns=columns,
        lines=tuple(_line(node, columns, node.guides) for node in nodes),
        ranked=() if options.columns is not None else RANKED["module"],
        remarks=(" · ".join(said),) if said else (),
    )


def _type_below_root(node: Node) -> str:
    return node.module.type if node.module.path else ""


def _flat(
    items: Sequence[Any],
    order: Callable[[Any], Any] | None,
    known: dict[str, Column],
    options: ListingOptions,
    default: Sequence[str] | None,
    remarks: tuple[str, ...] = (),
) -> Listing:
    columns = _choose(options, known, default)
    ordered = items if order is None else sorted(items, key=order)
    shown, rest = (ordered, ()) if options.top is None else (ordered[: options.top], ordered[options.top :])
    lines = [_line(item, columns) for item in shown]
    hidden = [_line(item, columns) for item in rest]
    if hidden:
        lines.append(_sum(hidden, columns, "rest", f"{len(hidden):,} more"))
    lines.append(_sum(lines, columns, "total", "total"))
    return Listing(
        columns=columns,
        lines=tuple(lines),
        ranked=() if options.columns is not None else RANKED[options.by],
        remarks=remarks,
    )


def _line(item: Any, columns: Sequence[Column], guides: str = "") -> Line:
    values = tuple([column.of(item) for column in columns])
    if isinstance(item, Row):
        return Line(values, partial=item.cost is None)
    if isinstance(item, Node):
        module = item.module
        return Line(values, "row", guides, bool(module.total.uncounted), bool(module.own.uncounted), item.shares)
    return Line(values, partial=bool(item.stats.uncounted))


def _sum(lines: Sequence[Line], columns: Sequence[Column], role: Literal["rest", "total"], name: str) -> Line:
    """What these lines add up to; the unknown ones are left out of the sum, which is then a lower bound."""
    named = next((place for place, column in enumerate(columns) if column.unit in ("name", "text")), -1)
    values: list[Value] = []
    for place, column in enumerate(columns):
        if column.adds:
            known = [line.values[place] for line in lines if line.values[place] is not None]
            values.append(sum(known))  # type: ignore[arg-type]
        else:
            values.append(name if place == named else "")
    partial, own_partial = any(line.partial for line in lines), any(line.own_partial for line in lines)
    return Line(tuple(values), role, partial=partial, own_partial=own_partial)


def _choose(options: ListingOptions, known: dict[str, Column], default: Sequence[str] | None) -> tuple[Column, ...]:
    if options.columns is not None:
        return choose_columns(options.columns, known)
    return tuple(known[name] for name in default or SHOWN[options.by] if name in known)


def _order(sort: str | None, known: dict[str, Column]) -> Callable[[Any], Any] | None:
    """A sort key for this wish; text goes from A to Z and numbers from large to small unless a sign says otherwise."""
    if sort is None:
        return None
    column = find_column(sort.strip().lstrip("+-"), known)
    textual = column.unit in ("name", "text")
    falling = not textual if sort.strip()[:1] not in ("+", "-") else sort.strip()[0] == "-"

    def key(item: Any) -> tuple[bool, Any]:
        value = column.of(item)
        if value is None:
            return True, 0
        if textual:
            letters = str(value).casefold()
            # Text cannot be negated; its code points can, and then the shorter of two must come last.
            return False, [*(-ord(letter) for letter in letters), 1] if falling else letters
        size: Any = _elements(value) if isinstance(value, tuple) else value
        return False, -size if falling else size

    return key


def _elements(specs: Iterable[Any]) -> int:
    return sum(spec.numel for spec in specs if spec.known)


def _costly_row(row: Row) -> tuple[bool, int, int, int]:
    if row.cost is None:
        return True, 0, 0, 0
    times = row.op.repeat
    return False, -row.cost.macs * times, -row.cost.flops * times, -row.cost.bytes_read * times


def _costly_node(node: Node) -> tuple[int, int, int]:
    own = node.module.own
    return -own.macs, -own.flops, -own.params
