"""A report as MegEngine's tables: with opcost's own numbers, or by the rules of MegEngine's `network_visualize`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction

from opcost.analysis.receptive import Field, receptive_fields
from opcost.compat.megengine.records import Activation, Operation, Param, Records, shapes
from opcost.core.kinds import CONTRACTIONS
from opcost.core.report import Parameter, Report, Row

Values = Mapping[int, "tuple[float, float] | None"]
"""Mean and deviation of parameters whose content is known, by the identity of the tensor."""


def records_of(report: Report, values: Values | None = None) -> Records:
    """Every operator with all its FLOPs, every parameter once, and the elements that are new."""
    fields = receptive_fields(report)
    records = Records(_params(report, values or {}), ops=len(report.rows), macs=report.totals.macs)
    for index, row in enumerate(report.rows):
        name, times = name_of(row), row.op.repeat
        flops = None if row.cost is None else row.cost.flops * times
        ins, outs = shapes(row.ins), shapes(row.outs)
        records.operations.append(Operation(name, row.op.raw, ins, outs, flops, *_shown(fields.get(index))))
        if row.activations:
            counted = (row.activations * times, row.activation_bytes * times)
            records.activations.append(Activation(name, row.op.raw, row.outs[0], None, None, *counted))
        elif row.op.kind != "view" and any(not spec.known for spec in row.outs):
            unknown = next(spec for spec in row.outs if not spec.known)
            records.activations.append(Activation(name, row.op.raw, unknown))
    return records


def megengine_records_of(report: Report, values: Values | None = None) -> Records:
    """The same by the rules for a dump, in which inputs and parameters are operators too."""
    records = Records(_params(report, values or {}))
    for input_name, spec in report.inputs:
        records.activations.append(Activation(input_name, "Input", spec))
    held = [parameter for parameter in report.parameters if not parameter.buffer]
    records.activations += [Activation(parameter.name, "Parameter", parameter.spec) for parameter in held]
    for row in report.rows:
        name = name_of(row)
        if row.outs:
            records.activations.append(Activation(name, row.op.raw, row.outs[0]))
        flops = _flops(row)
        if flops is not None:
            records.operations.append(Operation(name, row.op.raw, shapes(row.ins), shapes(row.outs), flops))
    records.ops = len(records.activations)
    return records


def name_of(row: Row) -> str:
    """What an operator is called: its own name where the framework gives it one, else its module and what it does."""
    given = row.op.told.get("name")
    if isinstance(given, str) and given:
        return given
    word = row.op.raw.rpartition("::")[2]
    return f"{row.op.module}.{word}" if row.op.module else word


def _params(report: Report, values: Values) -> list[Param]:
    return [Param(p.name, p.spec, *_values(p, values), size=_size(p)) for p in report.parameters if not p.buffer]


def _values(parameter: Parameter, values: Values) -> tuple[float | None, float | None]:
    found = next(_known(parameter, values), None)
    return (None, None) if found is None else found


def _known(parameter: Parameter, values: Values) -> Iterator[tuple[float, float]]:
    for value in parameter.values:
        if (found := values.get(value)) is not None:
            yield found


def _size(parameter: Parameter) -> int | None:
    return parameter.spec.nbytes if parameter.spec.known else None


def _shown(field: Field | None) -> tuple[tuple[object, ...], tuple[object, ...]] | tuple[()]:
    if field is None:
        return ()
    return tuple(map(_plain, field.size)), tuple(map(_plain, field.stride))


def _plain(number: int | Fraction) -> int | float:
    return number if isinstance(number, int) else float(number)


def _flops(row: Row) -> int | None:
    """Multiply-adds, and one for each element that an elementwise operator or a bias makes; None for what is free there.

    Transposed and three-dimensional convolutions, recurrent layers, pooling and norms are free in MegEngine's rules.
    """
    kind, times = row.op.kind, row.op.repeat
    if row.cost is None or not row.outs or not row.outs[0].known:
        return None
    if kind == "elementwise":
        return row.outs[0].numel * times
    if kind not in CONTRACTIONS or kind == "recurrent":
        return None
    bias = 0
    if kind == "conv":
        if row.op.attrs.get("transposed") or len(row.outs[0].dims) > 4:
            return None
        bias = row.outs[0].numel if len(row.ins) > 2 or row.op.attrs.get("bias") else 0
    elif kind == "matmul" and row.op.attrs.get("bias"):
        bias = row.outs[0].numel
    return (row.cost.macs + bias) * times
