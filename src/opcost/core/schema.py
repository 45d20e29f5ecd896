"""Report <-> JSON, versioned; reading back what was written is the identity. `opcost.core.saved` reads.

A model repeats itself, so each distinct tensor and each distinct operator (kind, attributes, shapes, cost) is written
once and rows refer to it by number; rows and calls are columns of numbers. docs/formats.md describes every field.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from math import isfinite
from typing import Any

from opcost.core import document
from opcost.core.checked import COST_FIELDS
from opcost.core.cost import Cost
from opcost.core.graph import Attr, Attrs, TensorSpec
from opcost.core.report import STATS, ModuleCost, Report, Row, Stats
from opcost.core.saved import DOCUMENT, PHASES, SCHEMA
from opcost.errors import GraphError

__all__ = ["SCHEMA", "dumps", "from_dict", "load", "loads", "to_dict"]

load, loads, from_dict = DOCUMENT.load, DOCUMENT.loads, DOCUMENT.from_dict


def dumps(report: Report) -> str:
    """The report as JSON text."""
    return document.dumps(to_dict(report))


class Table:
    """Distinct entries in the order they were met, each written once."""

    def __init__(self) -> None:
        self.entries: list[Any] = []
        self._numbers: dict[object, int] = {}

    def number(self, key: object, make: Callable[[], object]) -> int:
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self.entries)
            self.entries.append(make())
        return found


class _Writer:
    def __init__(self, modules: Iterable[ModuleCost]) -> None:
        self.specs = Table()
        self.operators = Table()
        self._modules = {module.path: number for number, module in enumerate(modules)}
        self._attrs_seen: dict[tuple[int, int], str] = {}

    def spec(self, spec: TensorSpec) -> int:
        return self.specs.number(
            spec, lambda: {"shape": None if spec.shape is None else list(spec.shape), "dtype": spec.dtype}
        )

    def spec_list(self, specs: Iterable[TensorSpec]) -> list[int]:
        return [self.spec(spec) for spec in specs]

    def module(self, path: str, who: str) -> int:
        try:
            return self._modules[path]
        except KeyError:
            raise GraphError(f"{who} belongs to an unknown module {path!r}") from None

    def operator(self, row: Row) -> int:
        op = row.op
        # 1, 1.0 and True are equal but not the same attribute, so the written form is the key; it is made once per object.
        seen = (id(op.attrs), id(op.native))
        attrs = self._attrs_seen.get(seen)
        if attrs is None:
            written = [write_attrs(op.attrs), write_attrs(op.native)]
            attrs = self._attrs_seen[seen] = json.dumps(written, sort_keys=True)
        key = (op.kind, op.raw, attrs, row.ins, row.outs, row.cost, row.rule, row.activations, row.activation_bytes)
        return self.operators.number(
            key,
            lambda: {
                "kind": op.kind,
                "raw": op.raw,
                "rule": row.rule,
                "ins": self.spec_list(row.ins),
                "outs": self.spec_list(row.outs),
                "attrs": write_attrs(op.attrs),
                **({"native": write_attrs(op.native)} if op.native else {}),
                "cost": None if row.cost is None else write_cost(row.cost),
                "activations": row.activations,
                "activation_bytes": row.activation_bytes,
            },
        )


def to_dict(report: Report) -> dict[str, Any]:
    """The report as dictionaries, lists, strings and integers."""
    out = _Writer(report.modules)
    ops = [row.op for row in report.rows]
    rows = {
        "id": [op.id for op in ops],
        "operator": [out.operator(row) for row in report.rows],
        "module": [out.module(op.module, f"operator {op.id} ({op.raw})") for op in ops],
        "inputs": [list(op.inputs) for op in ops],
        "outputs": [list(op.outputs) for op in ops],
        "repeat": [op.repeat for op in ops],
        "phase": [PHASES.index(op.phase) for op in ops],
    }
    calls = {
        "module": [out.module(call.path, "a call") for call in report.calls],
        "inputs": [out.spec_list(call.inputs) for call in report.calls],
        "outputs": [out.spec_list(call.outputs) for call in report.calls],
        "first": [call.first for call in report.calls],
        "end": [call.end for call in report.calls],
    }
    modules = [
        {
            "path": module.path,
            "type": module.type,
            "calls": module.calls,
            "extra": module.extra,
            "same_as": module.same_as,
            "inputs": out.spec_list(module.inputs),
            "outputs": out.spec_list(module.outputs),
            "parameters": list(module.parameters),
            "own": _write_stats(module.own),
            "total": _write_stats(module.total),
        }
        for module in report.modules
    ]
    parameters = [
        {
            "names": list(parameter.names),
            "spec": out.spec(parameter.spec),
            "trainable": parameter.trainable,
            "used": parameter.used,
            "buffer": parameter.buffer,
            "values": list(parameter.values),
        }
        for parameter in report.parameters
    ]
    return {
        "schema": SCHEMA,
        "meta": dict(report.meta),
        "totals": {name: getattr(report.totals, name) for name in STATS},
        "phases": {phase: write_cost(cost) for phase, cost in report.phases.items()},
        "peak_bytes": report.peak_bytes,
        "coverage": {
            "counted": report.coverage.counted,
            "uncounted": [
                {"raw": missed.raw, "count": missed.count, "modules": list(missed.modules), "reason": missed.reason}
                for missed in report.coverage.uncounted
            ],
        },
        "notes": [{"code": note.code, "text": note.text, "where": note.where} for note in report.notes],
        "inputs": [{"name": name, "spec": out.spec(spec)} for name, spec in report.inputs],
        "outputs": out.spec_list(report.outputs),
        "input_values": list(report.input_values),
        "output_values": list(report.output_values),
        "parameters": parameters,
        "modules": modules,
        "rows": rows,
        "calls": calls,
        "operators": out.operators.entries,
        "specs": out.specs.entries,
    }


def write_cost(cost: Cost) -> dict[str, int]:
    """A cost as an object."""
    return {name: getattr(cost, name) for name in COST_FIELDS}


def _write_stats(stats: Stats) -> dict[str, int]:
    """Only what is not zero: most modules have few quantities, and there are many modules."""
    return {name: value for name in STATS if (value := getattr(stats, name))}


def write_attrs(attrs: Attrs) -> dict[str, Any]:
    """Attributes as an object."""
    return {name: _write_attr(value) for name, value in attrs.items()}


def _write_attr(value: Attr) -> Any:
    if isinstance(value, tuple):
        return [_write_attr(item) for item in value]
    if isinstance(value, float) and not isfinite(value):
        return {"float": repr(value)}
    return value
