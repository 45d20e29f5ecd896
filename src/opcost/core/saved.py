"""A saved report read back: every field is checked, so that a damaged or hostile file is one clear error."""

from __future__ import annotations

from typing import Any, get_args

from opcost.core.checked import (
    Bad,
    columns_of,
    count_of,
    counts_of,
    get,
    instance,
    objects,
    one_of,
    pick,
    pick_all,
    read_attrs,
    read_cost,
    read_spec,
    text_of,
    texts_of,
)
from opcost.core.document import Document
from opcost.core.graph import NO_ATTRS, Call, Note, Op, Phase, TensorSpec
from opcost.core.report import STATS, Coverage, ModuleCost, Parameter, Report, Row, Stats, Uncounted

SCHEMA = "opcost.report/1"
PHASES: tuple[Phase, ...] = get_args(Phase)


def _read_report(data: dict[str, Any]) -> Report:
    specs = [read_spec(entry) for entry in get(data, "specs", list)]
    operators = [_read_operator(entry, specs) for entry in get(data, "operators", list)]
    modules = tuple(_read_module(entry, specs) for entry in get(data, "modules", list))
    paths = [module.path for module in modules]
    totals = _read_stats(get(data, "totals", dict))
    report = Report(
        meta={text_of(key): text_of(value) for key, value in get(data, "meta", dict).items()},
        rows=_read_rows(get(data, "rows", dict), operators, paths),
        modules=modules,
        parameters=tuple(_read_parameter(entry, specs) for entry in get(data, "parameters", list)),
        totals=totals,
        phases={
            one_of(phase, PHASES): read_cost(instance(cost, dict)) for phase, cost in get(data, "phases", dict).items()
        },
        peak_bytes=count_of(get(data, "peak_bytes", int)),
        coverage=_read_coverage(get(data, "coverage", dict)),
        inputs=tuple(
            (get(entry, "name", str), pick(specs, get(entry, "spec", int))) for entry in objects(data, "inputs")
        ),
        outputs=pick_all(specs, get(data, "outputs", list)),
        input_values=counts_of(get(data, "input_values", list)),
        output_values=counts_of(get(data, "output_values", list)),
        calls=_read_calls(get(data, "calls", dict), specs, paths),
        notes=tuple(
            Note(get(entry, "code", str), get(entry, "text", str), get(entry, "where", str))
            for entry in objects(data, "notes")
        ),
    )
    _check_tree(report)
    return report


def _check_tree(report: Report) -> None:
    """A view walks the tree and trusts its sums, so neither may be broken."""
    modules = report.modules
    if not modules or modules[0].path:
        raise Bad("the first module is not the root")
    sums: dict[str, Stats] = {}
    for module in modules:
        if module.path in sums:
            raise Bad(f"two modules have the path {module.path!r}")
        if module.parent is not None and module.parent not in sums:
            raise Bad(f"the module {module.path!r} comes before its parent")
        sums[module.path] = module.own
    for module in reversed(modules):
        if sums[module.path] != module.total:
            raise Bad(f"the total of the module {module.path!r} is not the sum of its parts")
        if module.parent is not None:
            sums[module.parent] = sums[module.parent] + module.total
    if report.totals != modules[0].total:
        raise Bad("the totals are not those of the root module")


def _read_operator(entry: object, specs: list[TensorSpec]) -> tuple[Op, Row]:
    """An operator and its row, to be copied for every place where it ran."""
    data = instance(entry, dict)
    attrs = read_attrs(get(data, "attrs", dict))
    native = read_attrs(get(data, "native", dict)) if "native" in data else NO_ATTRS
    op = Op(0, get(data, "kind", str), get(data, "raw", str), (), (), attrs, native=native)
    cost = get(data, "cost", dict, optional=True)
    row = Row(
        op,
        pick_all(specs, get(data, "ins", list)),
        pick_all(specs, get(data, "outs", list)),
        None if cost is None else read_cost(cost),
        get(data, "rule", str),
        count_of(get(data, "activations", int)),
        count_of(get(data, "activation_bytes", int)),
    )
    return op, row


def _read_rows(data: dict[str, Any], operators: list[tuple[Op, Row]], paths: list[str]) -> tuple[Row, ...]:
    columns = columns_of(data, "rows", ("id", "operator", "module", "inputs", "outputs", "repeat", "phase"))
    rows = []
    for op_id, operator, module, inputs, outputs, repeat, phase in zip(*columns, strict=True):
        op, row = pick(operators, operator)
        ran = Op(
            count_of(op_id), op.kind, op.raw, counts_of(inputs), counts_of(outputs), op.attrs,
            pick(paths, module), count_of(repeat), pick(PHASES, phase), op.native,
        )  # fmt: skip
        rows.append(Row(ran, row.ins, row.outs, row.cost, row.rule, row.activations, row.activation_bytes))
    return tuple(rows)


def _read_calls(data: dict[str, Any], specs: list[TensorSpec], paths: list[str]) -> tuple[Call, ...]:
    columns = columns_of(data, "calls", ("module", "inputs", "outputs", "first", "end"))
    return tuple(
        Call(pick(paths, module), pick_all(specs, inputs), pick_all(specs, outputs), count_of(first), count_of(end))
        for module, inputs, outputs, first, end in zip(*columns, strict=True)
    )


def _read_module(entry: object, specs: list[TensorSpec]) -> ModuleCost:
    data = instance(entry, dict)
    path = get(data, "path", str)
    return ModuleCost(
        path=path,
        type=get(data, "type", str),
        depth=path.count(".") + 1 if path else 0,
        calls=count_of(get(data, "calls", int)),
        own=_read_stats(get(data, "own", dict)),
        total=_read_stats(get(data, "total", dict)),
        extra=get(data, "extra", str),
        inputs=pick_all(specs, get(data, "inputs", list)),
        outputs=pick_all(specs, get(data, "outputs", list)),
        same_as=get(data, "same_as", str, optional=True),
        parameters=texts_of(get(data, "parameters", list)),
    )


def _read_parameter(entry: object, specs: list[TensorSpec]) -> Parameter:
    data = instance(entry, dict)
    names = texts_of(get(data, "names", list))
    if not names:
        raise Bad("a parameter has no name")
    return Parameter(
        names=names,
        spec=pick(specs, get(data, "spec", int)),
        trainable=get(data, "trainable", bool),
        used=get(data, "used", bool),
        buffer=get(data, "buffer", bool),
        values=counts_of(get(data, "values", list)),
    )


def _read_coverage(data: dict[str, Any]) -> Coverage:
    return Coverage(
        count_of(get(data, "counted", int)),
        tuple(
            Uncounted(
                get(entry, "raw", str),
                count_of(get(entry, "count", int)),
                texts_of(get(entry, "modules", list)),
                get(entry, "reason", str),
            )
            for entry in objects(data, "uncounted")
        ),
    )


def _read_stats(data: dict[str, Any]) -> Stats:
    return Stats(**{one_of(name, STATS): count_of(value) for name, value in data.items()})


DOCUMENT = Document(noun="report", schema=SCHEMA, again="report.save('x.json')", read=_read_report)
