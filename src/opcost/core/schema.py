"""Report <-> JSON, versioned; reading back what was written is the identity, and a damaged file is one clear error.

A model repeats itself, so each distinct tensor and each distinct operator (kind, attributes, shapes, cost) is written
once and rows refer to it by number; rows and calls are columns of numbers. docs/formats.md describes every field.
"""

import json
from typing import Annotated, Any

import msgspec
from msgspec.structs import asdict, astuple

from opcost.core import document
from opcost.core.document import Number, entries, entry
from opcost.core.graph import NO_ATTRS, Attrs, Memory, MemoryPart, ModuleCall, Note, Op, Phase, TensorSpec, packed
from opcost.core.order import StageCost
from opcost.core.parsing import Bad
from opcost.core.report import STATS, Coverage, ModuleCost, Parameter, Report, Row, Stats
from opcost.errors import GraphError

SCHEMA = "opcost.report/1"

_Coverage: Any = msgspec.defstruct("Coverage", [("exact", bool, True)], bases=(document.required(Coverage),))
_AllStats: Any = msgspec.defstruct("AllStats", [(name, int, 0) for name in STATS], forbid_unknown_fields=True)
_SomeStats: Any = msgspec.defstruct("SomeStats", [], bases=(_AllStats,), omit_defaults=True)
"""Only what is not zero: most modules have few quantities, and there are many modules."""


# -- what is in the file -----------------------------------------------------------------------------------------------


_NamedSpec: Any = msgspec.defstruct("NamedSpec", [("name", str), ("spec", Number)])
_Names = Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
_Parameter: Any = document.required(Parameter, names=_Names, spec=Number, values=tuple[Number, ...])
_Module: Any = document.required(
    ModuleCost, "path type calls extra same_as inputs outputs parameters own total",
    calls=Number, inputs=list[Number], outputs=list[Number], own=_SomeStats, total=_SomeStats,
)  # fmt: skip
_Rows: Any = document.stored_columns(
    "Rows", id=Number, operator=Number, module=Number, inputs=tuple[Number, ...], outputs=tuple[Number, ...],
    repeat=Number, phase=document.PhaseNumber,
)  # fmt: skip
_Calls: Any = document.stored_columns(
    "Calls", module=Number, inputs=list[Number], outputs=list[Number], first=Number, end=Number
)
_Peak: Any = document.required(
    Memory, "base_bytes at how parts holders curve device",
    base_bytes=Number, at=Number, parts=dict[MemoryPart, Number], curve=list[Number],
)  # fmt: skip
_OF_DEVICE = [(name, Number | None, None) for name in ("reserved_bytes", "fixed_bytes")]
_Memory: Any = msgspec.defstruct("Memory", _OF_DEVICE, bases=(_Peak,))


class _Operator(msgspec.Struct, kw_only=True):
    kind: str
    raw: str
    rule: str
    ins: list[Number]
    outs: list[Number]
    attrs: dict[str, Any]
    native: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET
    cost: document.CostRecord | None
    activations: int
    activation_bytes: int


class _Report(msgspec.Struct):
    schema: str
    meta: dict[str, str]
    totals: _AllStats
    phases: dict[Phase, document.CostRecord]
    peak_bytes: int | None
    coverage: _Coverage
    notes: tuple[Note, ...]
    inputs: list[_NamedSpec]
    outputs: list[Number]
    input_values: tuple[Number, ...]
    output_values: tuple[Number, ...]
    parameters: list[_Parameter]
    modules: list[_Module]
    rows: _Rows
    calls: _Calls
    operators: list[_Operator]
    specs: list[document.SpecRecord]
    stages: tuple[StageCost, ...] = ()
    parts: tuple[tuple[Number, Number], ...] = ()
    memory: _Memory | None = None  # none where it is unknown, and in older files, which have only the peak


# -- writing -----------------------------------------------------------------------------------------------------------


def _record(report: Report) -> _Report:
    specs, operators = document.Interned[TensorSpec](), document.Interned[_Operator]()
    attrs_seen: dict[tuple[int, int], str] = {}
    numbers = {module.path: number for number, module in enumerate(report.modules)}

    def module_of(path: str, who: str) -> int:
        try:
            return numbers[path]
        except KeyError:
            raise GraphError(f"{who} belongs to an unknown module {path!r}") from None

    def operator_of(row: Row) -> int:
        op = row.op
        # 1, 1.0 and True are equal but not the same attribute, so the written form is the key; it is made once per object.
        seen = (id(op.attrs), id(op.native))
        if (attrs := attrs_seen.get(seen)) is None:
            written = [document.write_attrs(op.attrs), document.write_attrs(op.native)]
            attrs = attrs_seen[seen] = json.dumps(written, sort_keys=True)
        return operators.number(
            (op.kind, op.raw, attrs, row.ins, row.outs, row.cost, row.rule, row.activations, row.activation_bytes),
            lambda: _Operator(
                kind=op.kind, raw=op.raw, rule=row.rule, ins=specs.numbers(row.ins), outs=specs.numbers(row.outs),
                attrs=document.write_attrs(op.attrs),
                native=document.write_attrs(op.native) if op.native else msgspec.UNSET,
                cost=row.cost, activations=row.activations, activation_bytes=row.activation_bytes,
            ),
        )  # fmt: skip

    ops = [row.op for row in report.rows]
    rows = _Rows(
        operator=[operator_of(row) for row in report.rows],
        module=[module_of(op.module, f"operator {op.id} ({op.raw})") for op in ops],
        phase=[document.PHASES.index(op.phase) for op in ops],
        **{name: [getattr(op, name) for op in ops] for name in ("id", "inputs", "outputs", "repeat")},
    )
    calls = _Calls(
        module=[module_of(call.path, "a call") for call in report.calls],
        **{name: [specs.numbers(getattr(call, name)) for call in report.calls] for name in ("inputs", "outputs")},
        **{name: [getattr(call, name) for call in report.calls] for name in ("first", "end")},
    )
    modules = [
        _Module(
            m.path, m.type, m.calls, m.extra, m.same_as, specs.numbers(m.inputs), specs.numbers(m.outputs), m.parameters,
            own=_SomeStats(*m.own), total=_SomeStats(*m.total),
        )
        for m in report.modules
    ]  # fmt: skip
    memory = None
    if (found := report.memory) is not None:
        fields = {name: getattr(found, name) for name in _Memory.__struct_fields__}
        memory = _Memory(**fields | {"parts": dict(found.parts), "curve": list(found.curve)})
    same = ("peak_bytes", "coverage", "notes", "stages", "parts", "input_values", "output_values")
    params = [
        _Parameter(p.names, specs.number(p.spec), p.trainable, p.used, p.buffer, p.values) for p in report.parameters
    ]
    return _Report(
        schema=SCHEMA, meta=dict(report.meta), totals=_AllStats(*report.totals), phases=dict(report.phases),
        inputs=[_NamedSpec(name, specs.number(spec)) for name, spec in report.inputs], outputs=specs.numbers(report.outputs),
        parameters=params, modules=modules, rows=rows, calls=calls, operators=operators.entries,
        specs=specs.entries, memory=memory, **{name: getattr(report, name) for name in same},
    )  # fmt: skip


# -- reading -----------------------------------------------------------------------------------------------------------


def _read(data: _Report) -> Report:
    specs = document.read_specs(data.specs)

    def specs_of(columns: list[list[int]], where: str) -> list[tuple[TensorSpec, ...]]:
        return [entries(specs, numbers, where) for numbers in columns]

    modules = tuple(_module(module, specs) for module in data.modules)
    paths = [module.path for module in modules]
    coverage = Coverage(data.coverage.counted, data.coverage.uncounted, data.coverage.exact)
    document.believe("coverage", [coverage.counted, *(missed.count for missed in coverage.uncounted)])
    document.believe("peak_bytes", [data.peak_bytes or 0])
    for stage in data.stages:
        counts = (getattr(stage, name) for name in ("params", "macs", "flops", "in_flight", "saved_bytes", "messages"))
        document.believe("stages", [stage.rank, *counts, stage.peak_bytes or 0, stage.sent_bytes])
    document.believe("parts", [each for first, end in data.parts for each in (first, end - first)])
    calls = data.calls
    called = entries(paths, calls.module, "calls.module")
    received, returned = specs_of(calls.inputs, "calls.inputs"), specs_of(calls.outputs, "calls.outputs")
    operators, rows = [_operator(record, specs) for record in data.operators], data.rows
    ran = entries(operators, rows.operator, "rows.operator")
    callers = entries(paths, rows.module, "rows.module")
    phases = entries(document.PHASES, rows.phase, "rows.phase")
    columns = zip(rows.id, ran, rows.inputs, rows.outputs, callers, rows.repeat, phases, strict=True)
    report = Report(
        meta=data.meta, modules=modules, coverage=coverage, totals=_stats(data.totals, "totals"),
        rows=tuple(
            Row(Op(number, kind, raw, inputs, outputs, attrs, module, repeat, phase, native), *counted)
            for number, (kind, raw, attrs, native, counted), inputs, outputs, module, repeat, phase in columns
        ),
        parameters=tuple(
            Parameter(**asdict(parameter) | {"spec": entry(specs, parameter.spec, "parameters")})
            for parameter in data.parameters
        ),
        phases={phase: document.read_cost(cost, "phases") for phase, cost in data.phases.items()},
        memory=_memory(data.memory, data.peak_bytes), outputs=entries(specs, data.outputs, "outputs"),
        inputs=tuple((given.name, entry(specs, given.spec, "inputs")) for given in data.inputs),
        calls=tuple(map(ModuleCall, called, received, returned, calls.first, calls.end)),
        **{name: getattr(data, name) for name in ("input_values", "output_values", "notes", "stages", "parts")},
    )  # fmt: skip
    # Views rely on the tree and its sums.
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
    return report


def _memory(data: _Memory | None, peak_bytes: int | None) -> Memory | None:
    if peak_bytes is None:
        return None
    if data is None:
        return Memory(peak_bytes=peak_bytes, base_bytes=0, at=0, how="last reader")
    outside = (data.reserved_bytes or 0, data.fixed_bytes or 0)
    document.believe("memory", [data.base_bytes, *outside, *data.parts.values(), *data.curve])
    curve = packed(data.curve, max(data.curve, default=0))
    return Memory(peak_bytes=peak_bytes, **asdict(data) | {"curve": curve})


def _operator(record: _Operator, specs: list[TensorSpec]) -> tuple[str, str, Attrs, Attrs, tuple[Any, ...]]:
    """What the rows of an operator have in common: of `Op` its words and attributes, of `Row` everything else."""
    where = f"the operator {record.raw!r}"
    ins, outs = entries(specs, record.ins, where), entries(specs, record.outs, where)
    cost = None if record.cost is None else document.read_cost(record.cost, where)
    document.believe(where, (record.activations, record.activation_bytes))
    counted = (ins, outs, cost, record.rule, record.activations, record.activation_bytes)
    native = NO_ATTRS if record.native is msgspec.UNSET else document.read_attrs(record.native)
    return record.kind, record.raw, document.read_attrs(record.attrs), native, counted


def _module(module: _Module, specs: list[TensorSpec]) -> ModuleCost:
    where = f"the module {module.path!r}"
    read: dict[str, Any] = {name: _stats(getattr(module, name), where) for name in ("own", "total")}
    read |= {name: entries(specs, getattr(module, name), where) for name in ("inputs", "outputs")}
    return ModuleCost(**asdict(module) | read, depth=module.path.count(".") + 1 if module.path else 0)


def _stats(record: msgspec.Struct, where: str) -> Stats:
    document.believe(where, stats := Stats(*astuple(record)))
    return stats


_DOCUMENT = document.Document(
    noun="report", schema=SCHEMA, again="report.save('x.json')", form=_Report, read=_read, write=_record
)
load, loads, from_dict = _DOCUMENT.load, _DOCUMENT.loads, _DOCUMENT.from_dict
to_dict, dumps = _DOCUMENT.to_dict, _DOCUMENT.dumps
