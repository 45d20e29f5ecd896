"""What a compiler saves of a model's memory traffic: its kernels, the operators in each, and the bytes before and after."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from opcost.core.graph import ZERO, TensorSpec
from opcost.core.report import Report, Row
from opcost.core.sheet import Cell, Sheet, Table
from opcost.core.units import short_bytes

NAMED = 5  # operators of a kernel that are named
MODULES = 2  # levels of modules that are added up


class CompiledKernel(NamedTuple):
    """One kernel of a compiled model; alike ones are counted together."""

    operators: str
    module: str  # in which all of its operators are
    phase: str
    own: bool  # the compiler writes it; else it is a library's
    operations: int  # operators that it runs
    before: int  # bytes that these move one by one
    after: int


def compiled(report: Report) -> Sheet:
    """What the kernels that a compiler makes of a model move, and what its operators move one by one.

    A report that was counted is given: `opcost.compiled(opcost.count(model, x))`. The kernels are those of PyTorch's inductor on
    a GPU: which operators it merges follows from their shapes, how often each result is read, and the limits that inductor sets.
    """
    kernels = kernels_of(report)
    count, before, after, _ = _amounts(kernels)
    ran = sum(row.op.kind != "view" and row.op.repeat > 0 for row in report.rows)
    change = f" ({abs(after / before - 1):.0%} {'less' if after < before else 'more'})" if before else ""
    moved = f"move {short_bytes(after)} instead of {short_bytes(before)}{change}"
    remark = "before: every operator by itself; after: what the kernel reads of others and others read of it"
    tables = [
        _kernels_table(kernels, remark),
        _table_by("modules", "module", kernels, lambda kernel: ".".join(kernel.module.split(".")[:MODULES])),
    ]
    if len({kernel.phase for kernel in kernels}) > 1:
        tables.append(_table_by("phases", "phase", kernels, lambda kernel: kernel.phase))
    return Sheet(
        name="compiled",
        meta=report.meta,
        answer=f"{report.subject}: {count:,} kernels instead of {ran:,} operators {moved}",
        heading=(f"input   {report.run_on}",),
        tables=tuple(tables),
        notes=report.notes,
    )


def kernels_of(report: Report) -> list[CompiledKernel]:
    """The kernels in the order in which they can run; an operator that two of them calculate is counted before with the first."""
    from opcost.analysis.compiled.groups import groups

    moved = {row.op.id: _bytes(row) for row in report.rows}
    tensors = {row.op.id: _known((*row.ins, *row.outs)) for row in report.rows}
    found = []
    for group in groups(report.rows, report.output_values):
        rows, times = group.rows, group.runs[1]
        before = sum(moved.pop(row.op.id, 0) for row in rows)
        after = sum(group.moved)
        if group.library:  # it may read a tensor twice; only a bias or a size may be another
            after = before + _known((*rows[0].ins, *rows[0].outs)) - tensors[rows[0].op.id]
        names = list(dict.fromkeys(row.op.raw.rpartition("::")[2] for row in rows))
        more = f", {len(names) - NAMED} more" if len(names) > NAMED else ""
        found.append(
            CompiledKernel(
                operators=", ".join(names[:NAMED]) + more,
                module=_common([row.op.module for row in rows]),
                phase=group.runs[0],
                own=not group.library,
                operations=len(rows),
                before=before * times,
                after=after * times,
            )
        )
    return found


def _bytes(row: Row) -> int:
    cost = row.cost or ZERO
    return cost.bytes_read + cost.bytes_written


def _known(specs: Iterable[TensorSpec]) -> int:
    return sum(spec.nbytes for spec in specs if spec.known)


def _common(modules: Sequence[str]) -> str:
    """The path of the module that all of these are in."""
    first, *others = ([*module.split(".")] for module in modules)
    while any(other[: len(first)] != first for other in others):
        first.pop()
    return ".".join(first)


def _kernels_table(kernels: Iterable[CompiledKernel], remark: str) -> Table:
    alike: dict[CompiledKernel, list[str]] = {}
    for kernel in kernels:
        alike.setdefault(kernel._replace(module=""), []).append(kernel.module)
    found = sorted(alike.items(), key=lambda item: -len(item[1]) * max(item[0].before, item[0].after))
    lines: list[tuple[Cell, ...]] = [
        (each.operators, modules[0], each.phase, "own" if each.own else "library", *_amounts([each] * len(modules)))
        for each, modules in found
    ]
    every = [each for each, modules in found for _ in modules]
    columns = f"operators:name module:name phase:name? kernel:name {_AMOUNTS}"
    return Table.of("kernels", columns, lines, total=("total", "", "", "", *_amounts(every)), remarks=(remark,))


_AMOUNTS = "count:count before:bytes after:bytes saved:bytes"


def _amounts(kernels: Sequence[CompiledKernel]) -> tuple[int, int, int, int]:
    before, after = sum(kernel.before for kernel in kernels), sum(kernel.after for kernel in kernels)
    return len(kernels), before, after, before - after


def _table_by(
    title: str, column: str, kernels: Iterable[CompiledKernel], key: Callable[[CompiledKernel], str]
) -> Table:
    found: dict[str, list[CompiledKernel]] = {}
    for kernel in kernels:
        found.setdefault(key(kernel), []).append(kernel)
    lines = sorted(((name, *_amounts(those)) for name, those in found.items()), key=lambda line: -line[2])
    return Table.of(title, f"{column}:name {_AMOUNTS}", lines)
