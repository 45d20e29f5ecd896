"""The tables of a report: by module, operator, kind or type; cut, sorted, and added up."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any, Literal, TypeAlias

from opcost.core.collectives import CollectiveCost
from opcost.core.graph import Cost
from opcost.core.limits import QUANTITIES
from opcost.core.report import STATS, Group, ModuleCost, Report, Row, Stats
from opcost.core.sheet import Cell, Field, Line, Sheet, Table, Unit
from opcost.errors import UnknownName, counted, some
from opcost.views.summary import summarize
from opcost.views.tree import Order, TreeNode, draw_tree, flat_nodes, idle_modules, sharers
from opcost.views.view import Column, ViewOptions, by_name, choose_columns, find_column, reading

By: TypeAlias = Literal["module", "op", "kind", "type", "collective"]
EVERY_BY: tuple[By, ...] = ("module", "op", "kind", "type", "collective")
MANY_TYPES = 4  # types of modules that one remark names
NOTEBOOK_LINES = 250  # lines of a tree in a notebook; a cell that holds more makes the notebook slow

_TITLES: Mapping[str, str] = {
    "params": "params", "trainable_params": "trainable", "unused_params": "unused", "buffers": "buffers",
    "param_bytes": "param bytes", "buffer_bytes": "buffer bytes", "macs": "MACs", "flops": "FLOPs", "bytes_read": "read",
    "bytes_written": "written", "activations": "activations", "activation_bytes": "act. bytes", "ops": "ops",
    "uncounted": "uncounted",
}  # fmt: skip
_STAGE: Mapping[str, tuple[Any, ...]] = {
    "rank": ("number",), "stages": ("text",), "blocks": ("text",), "params": ("count",), "flops": ("count", "FLOPs"),
    "in_flight": ("number", "in flight"), "peak_bytes": ("bytes", "peak"), "saved_bytes": ("bytes", "saved"),
    "macs": ("count", "MACs"), "messages": ("number",), "sent_bytes": ("bytes", "sent"),
}  # fmt: skip
"""The columns of the ranks of a pipeline: unit and title."""
_PARAMETERS = ("params", "trainable_params", "unused_params", "buffers", "param_bytes", "buffer_bytes")
_EXTRA = ("bytes", "param_bytes", "own_params", "own_macs")  # columns that Markdown has no room for


def columns_of(by: By, total_macs: int) -> dict[str, Column]:
    """Every column of a table by name; shares are of this many MACs."""
    if by == "module":
        # Columns of modules: each with everything below it, and again (`own`) without
        return by_name(
            *reading("module:name=label path:name=module.path type=module.type depth:number=module.depth"),
            Column("calls", "number", of=lambda node: node.module.calls, blank=(0, 1)),
            Column("input", "shapes", of=lambda node: node.module.inputs, blank=((),)),
            Column("output", "shapes", of=lambda node: node.module.outputs, blank=((),)),
            *_stat_columns(lambda node: node.module.total, total_macs),
            *_stat_columns(lambda node: node.module.own, total_macs, prefix="own_"),
            Column("extra", "text", "arguments", of=lambda node: node.module.extra),
            Column("same_as", "name", "same as", of=lambda node: node.module.same_as or ""),
            Column("note", "text", "", of=lambda node: node.note, blank=("",)),
        )
    if by == "op":
        return _op_columns(total_macs)
    if by == "collective":
        return by_name(
            *reading("collective:name"),
            Column("axis", of=attrgetter("axis"), blank=("",)),
            *reading("phase ranks:number dtype calls:count"),
            Column("payload_bytes", "bytes", "payload", of=attrgetter("payload_bytes"), has_cost=True),
            Column("wire_bytes", "bytes", "on the wire", of=attrgetter("wire_bytes"), has_cost=True),
            Column("tree_bytes", "bytes", "by trees", of=attrgetter("tree_bytes"), has_cost=True, extra=True),
            Column("overlap_flops", "count", "FLOPs beside", of=attrgetter("overlap_flops"), has_cost=True),
            Column("uncounted", "number", of=attrgetter("uncounted"), blank=(0,)),
        )
    # Columns of groups of operators (by kind) or of modules (by type)
    stats = _stat_columns(lambda group: group.stats, total_macs)
    return by_name(
        *reading(f"{by}=key count:number"),
        *(column for column in stats if by == "type" or column.name not in _PARAMETERS),
    )


def moved(cost: Cost | Stats) -> int:
    """The bytes that are read and written."""
    return cost.bytes_read + cost.bytes_written


def _stat_columns(of: Callable[[Any], Stats], total_macs: int, *, prefix: str = "") -> list[Column]:
    """A column for each quantity, and for what two of them give."""
    word = prefix.replace("_", " ")

    def column(name: str) -> Column:
        unit: Unit = "bytes" if "bytes" in name else "number" if name in ("ops", "uncounted") else "count"
        blank, extra = (0,) if name == "uncounted" else (), prefix + name in _EXTRA
        read, has_cost = lambda item: getattr(of(item), name), QUANTITIES[name].needs_costs
        return Column(prefix + name, unit, word + _TITLES[name], of=read, blank=blank, has_cost=has_cost, extra=extra)

    def share(item: Any) -> float:
        return of(item).macs / total_macs if total_macs else 0.0

    return [
        *map(column, STATS),
        Column(
            prefix + "bytes", "bytes", word + "bytes", of=lambda item: moved(of(item)), has_cost=True, extra=not prefix
        ),
        Column(prefix + "share", "share", word + "%", of=share, blank=(0.0,)),
    ]


def _op_columns(total_macs: int) -> dict[str, Column]:
    """Columns of a list of operators; a repeated one costs what all its repetitions cost."""

    def cost(of: Callable[[Cost], int]) -> Callable[[Row], int | None]:
        return lambda row: None if row.cost is None else of(row.cost) * row.op.repeat

    macs = cost(attrgetter("macs"))

    def share(row: Row) -> float | None:
        return None if (own := macs(row)) is None else own / total_macs if total_macs else 0.0

    def wrote(name: str) -> Callable[[Row], int | None]:
        """New elements or bytes; None where the operator has no cost and the size of its result is unknown."""
        return lambda row: None if row.cost is None and not getattr(row, name) else getattr(row, name) * row.op.repeat

    def dtype(row: Row) -> str:
        spec = next(iter((*row.outs, *row.ins)), None)
        return spec.dtype if spec else ""

    def attributes(row: Row) -> str:
        return " ".join(f"{name}={value}" for name, value in row.op.all_attrs.items())

    def amount(name: str, of: Callable[[Row], int | None]) -> Column:
        return Column(name, "bytes" if "bytes" in name else "count", _TITLES[name], of=of, has_cost=True)

    return by_name(
        Column("index", "number", "#", of=lambda row: row.op.id),
        Column("op", "name", "operator", of=lambda row: row.op.raw),
        *reading("kind=op.kind"),
        Column("module", "name", of=lambda row: row.op.module, blank=("",)),
        Column("phase", of=lambda row: row.op.phase, blank=("forward",)),
        Column("repeat", "number", "times", of=lambda row: row.op.repeat, blank=(1,)),
        Column("input", "shapes", of=lambda row: row.ins, blank=((),)),
        Column("output", "shapes", of=lambda row: row.outs, blank=((),)),
        Column("dtype", of=dtype, blank=("",)),
        *(amount(name, cost(attrgetter(name))) for name in ("macs", "flops", "bytes_read", "bytes_written")),
        Column("bytes", "bytes", of=cost(moved), has_cost=True, extra=True),
        Column("share", "share", "%", of=share, blank=(0.0,)),
        *(amount(name, wrote(name)) for name in ("activations", "activation_bytes")),
        *reading("rule"),
        Column("attrs", title="attributes", of=attributes),
    )


# The default columns from left to right, where there is room for all
SHOWN: Mapping[By, Sequence[str]] = {
    "module": "module type calls input output params macs share flops activations bytes param_bytes own_params own_macs "
    "note".split(),
    "op": "index op kind module phase repeat input output dtype macs share flops bytes activations".split(),
    "kind": "kind count macs share flops bytes_read bytes_written activations uncounted".split(),
    "type": "type count params macs share flops bytes_read bytes_written activations param_bytes uncounted".split(),
    "collective": "collective axis phase ranks dtype calls payload_bytes wire_bytes tree_bytes overlap_flops uncounted".split(),
}
# The same columns in the order in which they are given room
RANKED: Mapping[By, Sequence[str]] = {
    "module": "module macs params flops share note type output calls input activations bytes param_bytes own_macs "
    "own_params".split(),
    "op": "index op macs phase repeat share output module flops bytes input kind dtype activations".split(),
    "kind": "kind macs share count flops uncounted bytes_read bytes_written activations".split(),
    "type": "type macs params share count flops uncounted bytes_read bytes_written activations param_bytes".split(),
    "collective": "collective axis wire_bytes phase calls payload_bytes ranks uncounted overlap_flops dtype tree_bytes".split(),
}


# -- tables -------------------------------------------------------------------------------------------------------------


LISTING = "by depth merge sort top columns"  # what to list, and how


def report_sheet(report: Report, options: ViewOptions) -> Sheet:
    """The table, and the whole report in a few lines."""
    others = () if options.by == "collective" else rank_tables(report)
    return replace(summarize(report), tables=(list_report(report, options), *others))


def rank_tables(report: Report) -> tuple[Table, ...]:
    """The ranks of a pipeline side by side, and what ranks send each other; none where the model is on one rank."""
    collectives = replace(list_report(report, ViewOptions(by="collective")), title="collectives", main=False)
    return (*_stage_tables(report), *((collectives,) if report.collectives else ()))


def _stage_tables(report: Report) -> tuple[Table, ...]:
    if not report.stages:
        return ()
    fields = tuple(Field(name, *how) for name, how in _STAGE.items())
    lines = [Line(tuple(getattr(stage, field.name) for field in fields)) for stage in report.stages]
    remark = f"{report.meta.get('schedule', '')}, {report.meta.get('microbatches', '?')} microbatches"
    return (Table(title="stages", fields=fields, lines=tuple(lines), remarks=(remark.lstrip(", "),)),)


def report_records(report: Report, options: ViewOptions) -> Table:
    """Every line with all columns, unless the caller chose some."""
    # A path says what a label in a tree and a note say; both can be chosen.
    left_out = ("module", "note") if options.by == "module" else ()
    names = [name for name in columns_of(options.by, 0) if name not in left_out]
    table = list_report(report, replace(options, exact=True), names)
    # The total is left out: a reader who adds the column up must get it, not twice of it.
    return replace(table, lines=tuple(line for line in table.lines if line.role != "total"))


def list_report(report: Report, options: ViewOptions, default: Sequence[str] | None = None) -> Table:
    """The report as lines; `default` names the columns where the caller chose none."""
    if options.by not in EVERY_BY:
        raise UnknownName("way to list a report", str(options.by), EVERY_BY)
    known = columns_of(options.by, report.totals.macs)
    columns = _choose(options, known, default)
    order = _order(options.sort, known)
    costly = None if options.top is None else (_costly, False)
    if options.by == "op":
        return _flat(report.rows, order or costly, columns, options)
    if options.by == "collective":
        return _flat(report.collectives, order, columns, options)
    if options.by != "module":
        return _flat(report.by_kind() if options.by == "kind" else report.by_type(), order, columns, options)
    if costly is not None:
        nodes = flat_nodes(report.by_module(options.depth if isinstance(options.depth, int) else None), sharers(report))
        table = _flat(nodes, order or costly, columns, options)
        return replace(table, remarks=("each module without the modules below it",))
    idle = () if options.exact or options.merge is False else idle_modules(report)
    if options.depth != "notebook":
        return _tree(report, options, columns, order, idle)
    # As much of the tree as a cell of a notebook holds: all of it, else identical blocks once, else down to a depth
    merge = len(report.modules) > NOTEBOOK_LINES if options.merge is None else options.merge
    table = _tree(report, replace(options, depth=None, merge=merge), columns, order, idle)
    deepest = max(module.depth for module in report.modules)
    while len(table.lines) > NOTEBOOK_LINES and deepest > 1:
        deepest -= 1
        table = _tree(report, replace(options, depth=deepest, merge=True), columns, order, idle)
    return table


def _tree(
    report: Report, options: ViewOptions, columns: Sequence[Column], order: Order | None, idle: Sequence[ModuleCost]
) -> Table:
    """The tree of modules without those that are `idle`, and how many of these it would have at its depth."""
    if any(column.name == "module" for column in columns):
        # The root has no name and goes by its type, which need not be repeated.
        below = Column("type", of=lambda node: node.module.type if node.module.path else "")
        columns = [below if column.name == "type" else column for column in columns]
    nodes, limit = draw_tree(
        report, depth=options.depth, merge=options.merge, order=order, left_out={module.path for module in idle}
    )
    deepest = max(module.depth for module in report.modules)
    is_cut = any(node.hides for node in nodes)
    cut = f"drawn to depth {limit} of {deepest}" if is_cut else ""
    once = "identical blocks drawn once, with their sum" if any(node.times > 1 for node in nodes) else ""
    remarks = [" · ".join(filter(None, (cut, once)))]
    if hidden := [module for module in idle if module.depth <= limit or not is_cut]:
        types = ", ".join(some(list(dict.fromkeys(module.type for module in hidden)), MANY_TYPES))
        modules = counted(len(hidden), "module")
        remarks.append(f"left out: {modules} without operators and parameters ({types}); --no-merge shows all")
    lines = [_line(node, columns, node.guides) for node in nodes]
    return replace(_listed(lines, columns, options), remarks=tuple(filter(None, remarks)))


def _listed(lines: Sequence[Line], columns: Sequence[Column], options: ViewOptions) -> Table:
    ranked = () if options.columns is not None else tuple(RANKED[options.by])
    return Table(fields=tuple(columns), lines=tuple(lines), ranked=ranked, main=True)


def _flat(items: Sequence[Any], order: Order | None, columns: Sequence[Column], options: ViewOptions) -> Table:
    ordered = items if order is None else sorted(items, key=order[0], reverse=order[1])
    lines = [_line(item, columns) for item in ordered]
    if options.top is not None and (rest := lines[options.top :]):
        lines = [*lines[: options.top], _sum(rest, columns, "rest", f"{len(rest):,} more")]
    return _listed([*lines, _sum(lines, columns, "total", "total")], columns, options)


def _line(item: TreeNode | Row | Group | CollectiveCost, columns: Sequence[Column], guides: str = "") -> Line:
    values = tuple([column.of(item) for column in columns])
    if isinstance(item, Row):
        return Line(values, partial=item.cost is None)
    if isinstance(item, TreeNode):
        module = item.module
        return Line(values, "row", guides, bool(module.total.uncounted), bool(module.own.uncounted), item.shares)
    return Line(values, partial=bool(item.uncounted if isinstance(item, CollectiveCost) else item.stats.uncounted))


def _sum(lines: Sequence[Line], columns: Sequence[Column], role: Literal["rest", "total"], name: str) -> Line:
    """What these lines add up to; unknown values are left out of the sum, which is then a lower bound."""
    named = next((place for place, column in enumerate(columns) if column.unit in ("name", "text")), -1)
    values: list[Cell] = []
    for place, column in enumerate(columns):
        if column.adds:
            known = [line.values[place] for line in lines if line.values[place] is not None]
            values.append(sum(known))  # type: ignore[arg-type]
        else:
            values.append(name if place == named else "")
    partial, own_partial = any(line.partial for line in lines), any(line.own_partial for line in lines)
    return Line(tuple(values), role, partial=partial, own_partial=own_partial)


def _choose(options: ViewOptions, known: dict[str, Column], default: Sequence[str] | None) -> tuple[Column, ...]:
    if options.columns is not None:
        return choose_columns(options.columns, known)
    return tuple(known[name] for name in default or SHOWN[options.by] if name in known)


def _order(sort: str | None, known: dict[str, Column]) -> Order | None:
    """The order by a column; text goes from A to Z and numbers from large to small unless a sign says otherwise."""
    if sort is None:
        return None
    column = find_column(sort.strip().lstrip("+-"), known)
    falling = sort.strip()[:1] == "-" or (sort.strip()[:1] != "+" and column.unit not in ("name", "text"))

    def key(item: Any) -> tuple[bool, Any]:
        value: Any = column.of(item)
        if value is None:  # it comes last
            return not falling, 0
        if isinstance(value, str):
            return falling, value.casefold()
        return falling, sum(spec.numel for spec in value if spec.known) if isinstance(value, tuple) else value

    return key, falling


def _costly(item: Row | TreeNode) -> tuple[bool, int, int, int]:
    """The most expensive first, what is not counted last."""
    if isinstance(item, TreeNode):
        own = item.module.own
        return False, -own.macs, -own.flops, -own.params
    if item.cost is None:
        return True, 0, 0, 0
    times = item.op.repeat
    return False, -item.cost.macs * times, -item.cost.flops * times, -item.cost.bytes_read * times
