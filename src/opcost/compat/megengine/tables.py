"""What MegEngine's two statistics list of a model, and the dictionaries and the text that they give of it.

Parameters, operators with their FLOPs, and activations come from a report (or, in other modules, from a dump or from a live
model); four tables with sums, shares and bars are made of them.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple, TypeAlias

from opcost.analysis.receptive import receptive_fields
from opcost.compat._tables import ruled_table
from opcost.core.escaping import printable
from opcost.core.graph import TensorSpec, bits
from opcost.core.kinds import CONTRACTIONS
from opcost.core.report import Report, Row

Shape: TypeAlias = "tuple[int | None, ...] | None"
Line: TypeAlias = "dict[str, Any]"
Values: TypeAlias = "Mapping[int, tuple[float, float] | None]"
"""Mean and deviation of parameters whose content is known, by the identity of the tensor."""

# -- records -----------------------------------------------------------------------------------------------------------


class Records:
    """The lines of one model's three tables, before sums and shares; a `?` or None is what data decides."""

    def __init__(self, *, ops: int | None = None, macs: int | None = None) -> None:
        self.params: list[Line] = []
        self.operations: list[Line] = []
        self.activations: list[Line] = []
        self.ops = ops
        """The number of operators, where operators are listed and not layers."""
        self.macs = macs
        """Multiply-accumulates, where FLOPs are something else."""

    def add_param(
        self, name: str, spec: TensorSpec, mean: float | None = None, std: float | None = None, size: int | None = None
    ) -> None:
        """A parameter; mean and deviation where its values are at hand, `size` where it is not MegEngine's."""
        values = {"mean": _short(mean), "std": _short(std)}
        self.params.append(_tensor_line("param_dim", name, spec, None, size) | values)

    def add_operation(
        self, name: str, class_name: str, ins: Iterable[Shape], outs: Iterable[Shape], flops: int | None, **more: object
    ) -> None:
        """One call of a layer, or one operator, with its FLOPs and, as `more`, its receptive field and stride."""
        line = {"name": name, "class_name": class_name, "input_shapes": list(ins), "output_shapes": list(outs)}
        self.operations.append({**line, "flops_num": flops, **more})

    def add_activation(
        self, name: str, class_name: str, spec: TensorSpec, *values: float | None, dims: int | None = None,
        size: int | None = None,
    ) -> None:  # fmt: skip
        """What a call leaves behind; `dims` and `size` where they are not those of the tensor, `values` mean and deviation."""
        line = _tensor_line("act_dim", name, spec, dims, size) | {"class_name": class_name}
        self.activations.append(line | dict(zip(("mean", "std"), map(_short, values), strict=False)))

    def add_call(
        self, name: str, class_name: str, ins: Iterable[TensorSpec], outs: Sequence[TensorSpec], flops: int | None,
        *values: float | None,
    ) -> None:  # fmt: skip
        """One call as an operation and an activation, with mean and deviation of its first output."""
        self.add_operation(name, class_name, shapes(ins), shapes(outs), flops)
        self.add_activation(name, class_name, outs[0], *values)


def _tensor_line(column: str, name: str, spec: TensorSpec, count: int | None, size: int | None) -> Line:
    count = elements(spec.shape) if count is None else count
    if size is None and spec.known:
        size = elements(spec.shape) * nbits(spec.dtype) // 8  # type: ignore[operator]
    line: Line = {"name": name, "dtype": dtype_name(spec.dtype), "shape": spec.shape}
    return line | {column: UNKNOWN if count is None else count, "nbits": nbits(spec.dtype), "size": size}


def _short(number: float | None) -> str:
    return "" if number is None else f"{number:.3g}"


_AS_NUMPY = {"qint8": "int8", "quint8": "uint8", "qint32": "int32", "qint16": "int16"}


def dtype_name(dtype: str) -> str:
    """An element type as numpy calls what is stored."""
    return _AS_NUMPY.get(dtype, dtype)


def nbits(dtype: str) -> int:
    """Bits of one element as MegEngine counts them: a truth value is one bit there."""
    return 1 if dtype == "bool" else bits(dtype)


def elements(shape: Shape) -> int | None:
    """How many elements there are; None where data decides."""
    if shape is None or None in shape:
        return None
    return prod(shape)  # type: ignore[arg-type]


def shapes(specs: Iterable[TensorSpec]) -> tuple[Shape, ...]:
    return tuple(spec.shape for spec in specs)


_CODES = {
    "float64": "d", "float32": "f", "float16": "e", "int64": "q", "int32": "i", "int16": "h", "int8": "b", "uint64": "Q",
    "uint32": "I", "uint16": "H", "uint8": "B", "bool": "B",
}  # fmt: skip


def mean_and_std(data: memoryview | bytes, dtype: str) -> tuple[float, float] | None:
    """Of the little-endian numbers in a piece of memory; None for none, and for a type that is not stored plainly."""
    code = _CODES.get(dtype)
    if code is None or not len(data):
        return None
    try:
        import numpy as np
    except ImportError:
        return _plainly(data, code)
    found: Any = np.frombuffer(data, dtype=np.dtype(f"<{code}")).astype(np.float64)
    return float(found.mean()), float(found.std())


def _plainly(data: memoryview | bytes, code: str) -> tuple[float, float]:
    """The same without numpy."""
    layout = struct.Struct(f"<{code}")
    count = len(data) // layout.size
    mean = sum(number for (number,) in layout.iter_unpack(data)) / count
    return mean, math.sqrt(sum((number - mean) ** 2 for (number,) in layout.iter_unpack(data)) / count)


# -- records of a report -----------------------------------------------------------------------------------------------


def records_of(report: Report, values: Values | None = None) -> Records:
    """Every operator with all its FLOPs, every parameter once, and the elements that are new."""
    fields = receptive_fields(report)
    records = Records(ops=len(report.rows), macs=report.totals.macs)
    _add_params(records, report, values)
    for index, row in enumerate(report.rows):
        name, times, field = name_of(row), row.op.repeat, fields.get(index)
        flops = None if row.cost is None else row.cost.flops * times
        shown: dict[str, object] = {}
        for label, extents in (("receptive_field", field.size), ("stride", field.stride)) if field is not None else ():
            shown[label] = tuple(number if isinstance(number, int) else float(number) for number in extents)
        records.add_operation(name, row.op.raw, shapes(row.ins), shapes(row.outs), flops, **shown)
        if row.activations:
            counted = {"dims": row.activations * times, "size": row.activation_bytes * times}
            records.add_activation(name, row.op.raw, row.outs[0], **counted)
        elif row.op.kind != "view" and any(not spec.known for spec in row.outs):
            records.add_activation(name, row.op.raw, next(spec for spec in row.outs if not spec.known))
    return records


def megengine_records_of(report: Report, values: Values | None = None) -> Records:
    """The same by the rules for a dump, in which inputs and parameters are operators too."""
    records = Records()
    _add_params(records, report, values)
    for input_name, spec in report.inputs:
        records.add_activation(input_name, "Input", spec)
    for parameter in report.parameters:
        if not parameter.buffer:
            records.add_activation(parameter.name, "Parameter", parameter.spec)
    for row in report.rows:
        if row.outs:
            records.add_activation(name_of(row), row.op.raw, row.outs[0])
        # Multiply-adds, and one for each element that an elementwise operator or a bias makes; transposed and
        # three-dimensional convolutions, recurrent layers, pooling and norms are free in MegEngine's rules.
        if row.cost is None or not row.outs or not row.outs[0].known:
            continue
        kind, attrs, flops, result = row.op.kind, row.op.attrs, row.cost.macs, row.outs[0]
        free_conv = kind == "conv" and (attrs.get("transposed") or len(result.dims) > 4)
        if kind == "elementwise":
            flops = result.numel
        elif free_conv or kind not in CONTRACTIONS or kind == "recurrent":
            continue
        elif (kind == "conv" and len(row.ins) > 2) or (kind in ("conv", "matmul") and attrs.get("bias")):
            flops += result.numel
        records.add_operation(name_of(row), row.op.raw, shapes(row.ins), shapes(row.outs), flops * row.op.repeat)
    records.ops = len(records.activations)
    return records


def name_of(row: Row) -> str:
    """What an operator is called: its own name where the framework gives it one, else its module and what it does."""
    given = row.op.all_attrs.get("name")
    if isinstance(given, str) and given:
        return given
    word = row.op.raw.rpartition("::")[2]
    return f"{row.op.module}.{word}" if row.op.module else word


def _add_params(records: Records, report: Report, values: Values | None) -> None:
    for parameter in report.parameters:
        if not parameter.buffer:
            found = ((values or {}).get(value) for value in parameter.values)
            mean, std = next(filter(None, found), (None, None))
            size = parameter.spec.nbytes if parameter.spec.known else None
            records.add_param(parameter.name, parameter.spec, mean, std, size)


# -- tables ------------------------------------------------------------------------------------------------------------

UNKNOWN = "?"

PARAM_COLUMNS = "name dtype shape mean std param_dim nbits size size_cum percentage size_bar".split()
FLOPS_COLUMNS = "name class_name input_shapes output_shapes flops flops_cum percentage bar".split()
FIELD_COLUMNS = [*FLOPS_COLUMNS[:4], "receptive_field", "stride", *FLOPS_COLUMNS[4:]]
ACTIVATION_COLUMNS = "name class_name dtype shape nbits act_dim size size_cum percentage size_bar".split()
VALUE_COLUMNS = [*ACTIVATION_COLUMNS[:4], "mean", "std", *ACTIVATION_COLUMNS[4:]]


class total_stats(NamedTuple):
    """The sums: bytes and elements of the parameters, FLOPs, bytes and elements of the activations."""

    param_size: int
    param_dims: int
    flops: int
    act_size: int
    act_dims: int


class stats_details(NamedTuple):
    """The lines of the three tables, the last of each the total."""

    params: list[Line]
    flops: list[Line]
    activations: list[Line]


stats_details.__name__ = "module_stats"  # as MegEngine's prints


class StatsOptions(NamedTuple):
    """What is worked out and what is printed."""

    cal_params: bool = True
    cal_flops: bool = True
    cal_activations: bool = True
    logging_to_stdout: bool = True
    bar_length_max: int = 20
    fields: bool = False  # Whether the table of FLOPs shows receptive fields
    values: bool = False  # Whether the table of activations shows mean and deviation


def print_stats(records: Records, options: StatsOptions) -> tuple[total_stats, stats_details]:
    """Sum up the records, print what is requested, and give both back."""
    length = options.bar_length_max
    params = [dict(line) for line in records.params]
    flops = [dict(line) for line in records.operations] if options.cal_flops else []
    activations = [dict(line) for line in records.activations] if options.cal_activations else []
    missing = options.cal_params * sum(line["param_dim"] == UNKNOWN for line in params)
    missing += sum(line["flops_num"] is None for line in flops)
    missing += sum(line["act_dim"] == UNKNOWN for line in activations)
    summary: dict[str, object] = {} if records.ops is None else {"#ops": records.ops}
    summary["#params"] = len(params)
    param_dims = param_size = total_flops = act_dims = act_size = 0
    tables = []
    if options.cal_params:
        param_dims, param_size = _add_sizes(params, "param_dim", length)
        summary |= {"total_param_dims": human(param_dims, ""), "total_param_size": human(param_size)}
        tables.append(("param stats: ", params, PARAM_COLUMNS))
    if options.cal_flops:
        total_flops = _add_shares(flops, "flops_num", "flops", "bar", "OPs", length)
        # MegEngine adds up the second extent of every output here; a comparison of the text expects it.
        extents = [
            shape[1] for line in flops for shape in line["output_shapes"] if shape is not None and len(shape) > 1
        ]
        second = sum(extent for extent in extents if extent is not None)
        flops.append({"name": "total", "flops": human(total_flops, "OPs"), "output_shapes": second})
        summary["total_flops"] = human(total_flops, "OPs")
        if records.macs is not None:
            summary["total_macs"] = human(records.macs, "MACs")
        tables.append(("flops stats: ", flops, FIELD_COLUMNS if options.fields else FLOPS_COLUMNS))
    if options.cal_activations:
        act_dims, act_size = _add_sizes(activations, "act_dim", length)
        summary |= {"total_act_dims": human(act_dims, ""), "total_act_size": human(act_size)}
        tables.append(("activations stats: ", activations, VALUE_COLUMNS if options.values else ACTIVATION_COLUMNS))
    if options.cal_flops and options.cal_params and param_size:
        summary["flops/param_size"] = f"{total_flops / param_size:3.3f}"
    if missing:
        summary["#unknown"] = missing
    for title, lines, columns in tables if options.logging_to_stdout else ():
        print(f"{title}\n{layout([columns, *([line.get(name, '') for name in columns] for line in lines)])}")
    print(f"summary\n{layout([('item', 'value'), *summary.items()])}")
    totals = total_stats(param_size, param_dims, total_flops, act_size, act_dims)
    return totals, stats_details(params, flops, activations)


def human(number: float, suffix: str = "B") -> str:
    """`392.000 KiB`, `1.500 K`: three decimals of a unit, bytes in steps of 1024 and everything else of 1000."""
    step, infix = (1024, "i") if suffix == "B" else (1000, "")
    *units, last = ("", *(f"{letter}{infix}" for letter in "KMGTPEZY"))
    for unit in units:
        if abs(number) < step:
            return f"{number:.3f} {unit}{suffix}"
        number /= step
    return f"{number:.3f} {last}{suffix}"


def layout(rows: Sequence[Sequence[object]]) -> str:
    """Columns of text with two blanks between, a rule above and one below; the first row is the header."""
    return ruled_table([[printable(str(cell)).strip() for cell in row] for row in rows])


def _add_sizes(lines: list[Line], dims: str, length: int) -> tuple[int, int]:
    """Fill in sizes, shares and bars, and add the total; elements and bytes."""
    total = _add_shares(lines, "size", "size", "size_bar", "B", length)
    summed = sum(line[dims] for line in lines if line[dims] != UNKNOWN)
    lines.append({"name": "total", dims: summed, "size": human(total)})
    return summed, total


def _add_shares(lines: list[Line], amount: str, written: str, bar: str, unit: str, length: int) -> int:
    """Fill in, for the number that a column holds: its text, the running sum, the share of the total and a bar."""
    numbers = [line[amount] or 0 for line in lines]
    largest, total, running = max(numbers, default=0), sum(numbers), 0
    for line, number in zip(lines, numbers, strict=True):
        running += number
        ratio = number / total if total else 0.0
        line |= {
            written: UNKNOWN if line[amount] is None else human(number, unit),
            f"{written}_cum": human(running, unit),
            "ratio": ratio,
            "percentage": f"{ratio * 100:.2f}%",
            bar: "#" * int(number / largest * length) if largest else "",
        }
    return total
