"""A saved report read back: every field is checked, so that a damaged or hostile file is one clear error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeVar, get_args, overload

from opcost.core.cost import Cost
from opcost.core.graph import Attr, Call, Note, Op, Phase, TensorSpec
from opcost.core.report import STATS, Coverage, ModuleCost, Parameter, Report, Row, Stats, Uncounted
from opcost.errors import SourceError

SCHEMA = "opcost.report/1"
PHASES: tuple[Phase, ...] = get_args(Phase)
COST_FIELDS = ("macs", "flops", "bytes_read", "bytes_written")

LARGEST = 2**128
"""No count of a real model comes near this; a larger one is damage, and could take for ever to print."""

_NON_FINITE = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}

T = TypeVar("T")


class _Bad(Exception):
    """Something in the file is not what the schema says; the text names it."""


def from_dict(data: object) -> Report:
    """The report in these dictionaries; anything else raises `SourceError`."""
    if not isinstance(data, dict) or not isinstance(data.get("schema"), str):
        raise SourceError('this is not a saved report: it has no "schema"', hint="save one with report.save('x.json')")
    if data["schema"] != SCHEMA:
        raise SourceError(
            f"this file has the schema {data['schema']!r}, and this version of opcost reads {SCHEMA!r}",
            hint="use a newer opcost, or save the report again with this one",
        )
    try:
        return _read_report(data)
    except (_Bad, RecursionError) as exc:
        raise SourceError(f"this saved report is damaged: {exc}", hint="save the report again") from exc


def _read_report(data: dict[str, Any]) -> Report:
    specs = [_read_spec(entry) for entry in _get(data, "specs", list)]
    operators = [_read_operator(entry, specs) for entry in _get(data, "operators", list)]
    modules = tuple(_read_module(entry, specs) for entry in _get(data, "modules", list))
    paths = [module.path for module in modules]
    totals = _read_stats(_get(data, "totals", dict))
    report = Report(
        meta={_text(key): _text(value) for key, value in _get(data, "meta", dict).items()},
        rows=_read_rows(_get(data, "rows", dict), operators, paths),
        modules=modules,
        parameters=tuple(_read_parameter(entry, specs) for entry in _get(data, "parameters", list)),
        totals=totals,
        phases={
            _one_of(phase, PHASES): _read_cost(_instance(cost, dict))
            for phase, cost in _get(data, "phases", dict).items()
        },
        peak_bytes=_count(_get(data, "peak_bytes", int)),
        coverage=_read_coverage(_get(data, "coverage", dict)),
        inputs=tuple(
            (_get(entry, "name", str), _pick(specs, _get(entry, "spec", int))) for entry in _objects(data, "inputs")
        ),
        outputs=_pick_all(specs, _get(data, "outputs", list)),
        input_values=_counts(_get(data, "input_values", list)),
        output_values=_counts(_get(data, "output_values", list)),
        calls=_read_calls(_get(data, "calls", dict), specs, paths),
        notes=tuple(
            Note(_get(entry, "code", str), _get(entry, "text", str), _get(entry, "where", str))
            for entry in _objects(data, "notes")
        ),
    )
    _check_tree(report)
    return report


def _check_tree(report: Report) -> None:
    """A view walks the tree and trusts its sums, so neither may be broken."""
    modules = report.modules
    if not modules or modules[0].path:
        raise _Bad("the first module is not the root")
    sums: dict[str, Stats] = {}
    for module in modules:
        if module.path in sums:
            raise _Bad(f"two modules have the path {module.path!r}")
        if module.parent is not None and module.parent not in sums:
            raise _Bad(f"the module {module.path!r} comes before its parent")
        sums[module.path] = module.own
    for module in reversed(modules):
        if sums[module.path] != module.total:
            raise _Bad(f"the total of the module {module.path!r} is not the sum of its parts")
        if module.parent is not None:
            sums[module.parent] = sums[module.parent] + module.total
    if report.totals != modules[0].total:
        raise _Bad("the totals are not those of the root module")


def _read_spec(entry: object) -> TensorSpec:
    data = _instance(entry, dict)
    extents = _get(data, "shape", list, optional=True)
    shape = None if extents is None else tuple(None if extent is None else _count(extent) for extent in extents)
    return TensorSpec(shape, _get(data, "dtype", str))


def _read_operator(entry: object, specs: list[TensorSpec]) -> tuple[Op, Row]:
    """An operator and its row, to be copied for every place where it ran."""
    data = _instance(entry, dict)
    attrs = {name: _read_attr(value) for name, value in _get(data, "attrs", dict).items()}
    op = Op(0, _get(data, "kind", str), _get(data, "raw", str), (), (), attrs)
    cost = _get(data, "cost", dict, optional=True)
    row = Row(
        op,
        _pick_all(specs, _get(data, "ins", list)),
        _pick_all(specs, _get(data, "outs", list)),
        None if cost is None else _read_cost(cost),
        _get(data, "rule", str),
        _count(_get(data, "activations", int)),
        _count(_get(data, "activation_bytes", int)),
    )
    return op, row


def _read_rows(data: dict[str, Any], operators: list[tuple[Op, Row]], paths: list[str]) -> tuple[Row, ...]:
    columns = _columns(data, "rows", ("id", "operator", "module", "inputs", "outputs", "repeat", "phase"))
    rows = []
    for op_id, operator, module, inputs, outputs, repeat, phase in zip(*columns, strict=True):
        op, row = _pick(operators, operator)
        ran = Op(
            _count(op_id), op.kind, op.raw, _counts(inputs), _counts(outputs), op.attrs,
            _pick(paths, module), _count(repeat), _pick(PHASES, phase),
        )  # fmt: skip
        rows.append(Row(ran, row.ins, row.outs, row.cost, row.rule, row.activations, row.activation_bytes))
    return tuple(rows)


def _read_calls(data: dict[str, Any], specs: list[TensorSpec], paths: list[str]) -> tuple[Call, ...]:
    columns = _columns(data, "calls", ("module", "inputs", "outputs", "first", "end"))
    return tuple(
        Call(_pick(paths, module), _pick_all(specs, inputs), _pick_all(specs, outputs), _count(first), _count(end))
        for module, inputs, outputs, first, end in zip(*columns, strict=True)
    )


def _read_module(entry: object, specs: list[TensorSpec]) -> ModuleCost:
    data = _instance(entry, dict)
    path = _get(data, "path", str)
    return ModuleCost(
        path=path,
        type=_get(data, "type", str),
        depth=path.count(".") + 1 if path else 0,
        calls=_count(_get(data, "calls", int)),
        own=_read_stats(_get(data, "own", dict)),
        total=_read_stats(_get(data, "total", dict)),
        extra=_get(data, "extra", str),
        inputs=_pick_all(specs, _get(data, "inputs", list)),
        outputs=_pick_all(specs, _get(data, "outputs", list)),
        same_as=_get(data, "same_as", str, optional=True),
        parameters=_texts(_get(data, "parameters", list)),
    )


def _read_parameter(entry: object, specs: list[TensorSpec]) -> Parameter:
    data = _instance(entry, dict)
    names = _texts(_get(data, "names", list))
    if not names:
        raise _Bad("a parameter has no name")
    return Parameter(
        names=names,
        spec=_pick(specs, _get(data, "spec", int)),
        trainable=_get(data, "trainable", bool),
        used=_get(data, "used", bool),
        buffer=_get(data, "buffer", bool),
        values=_counts(_get(data, "values", list)),
    )


def _read_coverage(data: dict[str, Any]) -> Coverage:
    return Coverage(
        _count(_get(data, "counted", int)),
        tuple(
            Uncounted(
                _get(entry, "raw", str),
                _count(_get(entry, "count", int)),
                _texts(_get(entry, "modules", list)),
                _get(entry, "reason", str),
            )
            for entry in _objects(data, "uncounted")
        ),
    )


def _read_stats(data: dict[str, Any]) -> Stats:
    return Stats(**{_one_of(name, STATS): _count(value) for name, value in data.items()})


def _read_cost(data: dict[str, Any]) -> Cost:
    return Cost(*(_count(_get(data, name, int)) for name in COST_FIELDS))


def _read_attr(value: object) -> Attr:
    if isinstance(value, list):
        return tuple(_read_attr(item) for item in value)
    if isinstance(value, dict):
        return _NON_FINITE[_one_of(value.get("float"), tuple(_NON_FINITE))]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise _Bad(f"{value!r} is not an attribute")


# -- what a field must be --------------------------------------------------------------------------------------------


def _instance(value: object, kind: type[T]) -> T:
    if not _is(value, kind):
        raise _Bad(f"{_short(value)} stands where {_WORDS[kind]} belongs")
    return value  # type: ignore[return-value]


@overload
def _get(data: object, name: str, kind: type[T]) -> T: ...
@overload
def _get(data: object, name: str, kind: type[T], *, optional: Literal[True]) -> T | None: ...
def _get(data: object, name: str, kind: type[T], *, optional: bool = False) -> T | None:
    """The field of this name; an optional one may be null, but never be missing."""
    entries: Mapping[str, object] = _instance(data, dict)
    if name not in entries:
        raise _Bad(f"the field {name!r} is missing")
    value = entries[name]
    if value is None and optional:
        return None
    if not _is(value, kind):
        raise _Bad(f"the field {name!r} holds {_short(value)}, not {_WORDS[kind]}")
    return value  # type: ignore[return-value]


def _is(value: object, kind: type) -> bool:
    if isinstance(value, str) and kind is str:
        return value.isascii() or value.encode("utf-8", "replace") == value.encode("utf-8", "surrogatepass")
    return isinstance(value, kind) and not (kind is int and isinstance(value, bool))


def _objects(data: dict[str, Any], name: str) -> list[dict[str, Any]]:
    return [_instance(entry, dict) for entry in _get(data, name, list)]


def _columns(data: dict[str, Any], what: str, names: tuple[str, ...]) -> list[list[Any]]:
    columns = [_get(data, name, list) for name in names]
    if len({len(column) for column in columns}) > 1:
        raise _Bad(f"the columns of {what!r} differ in length")
    return columns


def _count(value: object) -> int:
    if type(value) is not int or not 0 <= value <= LARGEST:
        raise _Bad(f"{_short(value)} stands where a count belongs")
    return value


def _counts(value: object) -> tuple[int, ...]:
    return tuple(_count(item) for item in _instance(value, list))


def _text(value: object) -> str:
    return _instance(value, str)


def _texts(values: list[Any]) -> tuple[str, ...]:
    return tuple(_text(value) for value in values)


def _one_of(value: object, known: tuple[Any, ...]) -> Any:
    if value not in known:
        raise _Bad(f"{_short(value)} stands where one of {', '.join(map(str, known))} belongs")
    return value


def _pick(table: list[T] | tuple[T, ...], number: object) -> T:
    if type(number) is not int or not 0 <= number < len(table):
        raise _Bad(f"{_short(number)} is not the number of an entry of a table of {len(table)}")
    return table[number]


def _pick_all(table: list[T], numbers: object) -> tuple[T, ...]:
    return tuple(_pick(table, number) for number in _instance(numbers, list))


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:39] + "…"


_WORDS: dict[type, str] = {
    dict: "an object",
    list: "a list",
    str: "a text that can be written",
    int: "an integer",
    bool: "true or false",
}
