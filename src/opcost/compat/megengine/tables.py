"""Records as the dictionaries and the text that MegEngine gives: sums, shares, bars, four tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from opcost.compat.megengine.records import Activation, Operation, Param, Records, dtype_name, elements, nbits, size_of
from opcost.core.harmless import printable

Line = dict[str, Any]

UNKNOWN = "?"

PARAM_COLUMNS = (
    "name", "dtype", "shape", "mean", "std", "param_dim", "nbits", "size", "size_cum", "percentage", "size_bar",
)  # fmt: skip
FLOPS_COLUMNS = ("name", "class_name", "input_shapes", "output_shapes", "flops", "flops_cum", "percentage", "bar")
FIELD_COLUMNS = (*FLOPS_COLUMNS[:4], "receptive_field", "stride", *FLOPS_COLUMNS[4:])
ACTIVATION_COLUMNS = (
    "name", "class_name", "dtype", "shape", "nbits", "act_dim", "size", "size_cum", "percentage", "size_bar",
)  # fmt: skip
VALUE_COLUMNS = (*ACTIVATION_COLUMNS[:4], "mean", "std", *ACTIVATION_COLUMNS[4:])


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


class Wanted(NamedTuple):
    """What is worked out and what is printed."""

    cal_params: bool = True
    cal_flops: bool = True
    cal_activations: bool = True
    logging_to_stdout: bool = True
    bar_length_max: int = 20
    fields: bool = False
    """Whether the table of FLOPs shows receptive fields."""
    values: bool = False
    """Whether the table of activations shows mean and deviation."""


def tell(records: Records, wanted: Wanted) -> tuple[total_stats, stats_details]:
    """Sum up the records, print what is wanted, and give both back."""
    params = [_param(param) for param in records.params]
    flops = [_operation(operation) for operation in records.operations] if wanted.cal_flops else []
    activations = [_activation(found) for found in records.activations] if wanted.cal_activations else []
    summary: dict[str, object] = {} if records.ops is None else {"#ops": records.ops}
    summary["#params"] = len(params)
    param_dims = param_size = total_flops = act_dims = act_size = 0
    tables = []
    if wanted.cal_params:
        param_dims, param_size = _add_sizes(params, "param_dim", wanted.bar_length_max)
        summary |= {"total_param_dims": human(param_dims, ""), "total_param_size": human(param_size)}
        tables.append(("param stats: ", table(params, PARAM_COLUMNS)))
    if wanted.cal_flops:
        total_flops = _add_flops(flops, wanted.bar_length_max)
        summary["total_flops"] = human(total_flops, "OPs")
        if records.macs is not None:
            summary["total_macs"] = human(records.macs, "MACs")
        tables.append(("flops stats: ", table(flops, FIELD_COLUMNS if wanted.fields else FLOPS_COLUMNS)))
    if wanted.cal_activations:
        act_dims, act_size = _add_sizes(activations, "act_dim", wanted.bar_length_max)
        summary |= {"total_act_dims": human(act_dims, ""), "total_act_size": human(act_size)}
        tables.append(
            ("activations stats: ", table(activations, VALUE_COLUMNS if wanted.values else ACTIVATION_COLUMNS))
        )
    if wanted.cal_flops and wanted.cal_params and param_size:
        summary["flops/param_size"] = f"{total_flops / param_size:3.3f}"
    if missing := _unknown(records, wanted):
        summary["#unknown"] = missing
    for title, text in tables if wanted.logging_to_stdout else ():
        print(f"{title}\n{text}")
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


def table(lines: Iterable[Mapping[str, object]], columns: Sequence[str]) -> str:
    """Lines under a head that is their first."""
    return layout([columns, *([line.get(column, "") for column in columns] for line in lines)])


def layout(rows: Sequence[Sequence[object]]) -> str:
    """Columns of text with two blanks between, a rule above and one below."""
    cells = [[printable(str(cell)).strip() for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    rule = "  ".join("-" * width for width in widths)
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells)
    return "\n".join([rule, *lines, rule])


# -- one line of each table --------------------------------------------------------------------------------------------


def _param(param: Param) -> Line:
    dims = elements(param.spec.shape)
    return {
        "dtype": dtype_name(param.spec.dtype),
        "shape": param.spec.shape,
        "mean": _short(param.mean),
        "std": _short(param.std),
        "param_dim": UNKNOWN if dims is None else dims,
        "nbits": nbits(param.spec.dtype),
        "size": size_of(param.spec) if param.size is None else param.size,
        "name": param.name,
    }


def _operation(operation: Operation) -> Line:
    line: Line = {
        "input_shapes": list(operation.inputs),
        "output_shapes": list(operation.outputs),
        "flops_num": operation.flops,
    }
    if operation.receptive_field is not None:
        line |= {"receptive_field": operation.receptive_field, "stride": operation.stride}
    return line | {"name": operation.name, "class_name": operation.class_name}


def _activation(found: Activation) -> Line:
    dims = elements(found.spec.shape) if found.dims is None else found.dims
    line: Line = {
        "dtype": dtype_name(found.spec.dtype),
        "shape": found.spec.shape,
        "act_dim": UNKNOWN if dims is None else dims,
        "nbits": nbits(found.spec.dtype),
        "size": size_of(found.spec) if found.size is None else found.size,
    }
    if found.mean is not None:
        line |= {"mean": _short(found.mean), "std": _short(found.std)}
    return line | {"name": found.name, "class_name": found.class_name}


def _short(number: float | None) -> str:
    return "" if number is None else f"{number:.3g}"


# -- sums --------------------------------------------------------------------------------------------------------------


def _add_sizes(lines: list[Line], dims: str, bar: int) -> tuple[int, int]:
    """Fill in sizes, shares and bars, and add the total; elements and bytes."""
    sizes = [line["size"] or 0 for line in lines]
    largest, total, running = max(sizes, default=0), sum(sizes), 0
    for line, size in zip(lines, sizes, strict=True):
        running += size
        line["size_cum"] = human(running)
        line.update(_share(size, total))
        line["size_bar"] = _bar(size, largest, bar)
        line["size"] = UNKNOWN if line["size"] is None else human(size)
    summed = sum(line[dims] for line in lines if line[dims] != UNKNOWN)
    lines.append({"name": "total", dims: summed, "size": human(total)})
    return summed, total


def _add_flops(lines: list[Line], bar: int) -> int:
    """Fill in FLOPs, shares and bars, and add the total."""
    numbers = [line["flops_num"] or 0 for line in lines]
    largest, total, running = max(numbers, default=0), sum(numbers), 0
    for line, number in zip(lines, numbers, strict=True):
        running += number
        line["flops_cum"] = human(running, "OPs")
        line.update(_share(number, total))
        line["bar"] = _bar(number, largest, bar)
        line["flops"] = UNKNOWN if line["flops_num"] is None else human(number, "OPs")
    # MegEngine adds up the second extent of every output here, and who compares the text expects it.
    extents = [shape[1] for line in lines for shape in line["output_shapes"] if shape is not None and len(shape) > 1]
    second = sum(extent for extent in extents if extent is not None)
    lines.append({"name": "total", "flops": human(total, "OPs"), "output_shapes": second})
    return total


def _share(part: int, total: int) -> Line:
    ratio = part / total if total else 0.0
    return {"ratio": ratio, "percentage": f"{ratio * 100:.2f}%"}


def _bar(part: int, largest: int, length: int) -> str:
    return "#" * int(part / largest * length) if largest else ""


def _unknown(records: Records, wanted: Wanted) -> int:
    """How many of the numbers that were asked for nobody knows."""
    missing = 0
    if wanted.cal_params:
        missing += sum(not param.spec.known for param in records.params)
    if wanted.cal_flops:
        missing += sum(operation.flops is None for operation in records.operations)
    if wanted.cal_activations:
        missing += sum(found.dims is None and not found.spec.known for found in records.activations)
    return missing
