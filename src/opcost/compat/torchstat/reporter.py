"""The table as text, laid out as pandas prints a data frame."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from opcost.core.harmless import printable

if TYPE_CHECKING:
    from opcost.compat.torchstat.stat_tree import StatNode

_LONGEST_PLAIN_NUMBER = 12
"""Characters, the place of the sign included; beyond it pandas turns a column to exponents."""


class _Column(NamedTuple):
    title: str
    cells: list[str]


def report_format(collected_nodes: Sequence[StatNode]) -> str:
    """The table of some nodes, with their totals below it."""
    nodes = collected_nodes
    memory = [node.Memory for node in nodes]
    seconds = [node.duration for node in nodes]
    # A little more than the sum, so that a model that takes no time divides by something.
    shares = [part / (sum(seconds) + 1e-7) for part in seconds]
    params = [node.parameter_quantity for node in nodes]
    megabytes = [node.inference_memory for node in nodes]
    madd = [node.MAdd for node in nodes]
    flops = [node.Flops for node in nodes]
    both = [read + written for read, written in memory]
    table = _frame(
        [*map(str, range(len(nodes))), "total"],
        [
            _words("module name", [*(f"{node.name}{node.mark}" for node in nodes), " "]),
            _words("input shape", [*(_shape(node.input_shape) for node in nodes), " "]),
            _words("output shape", [*(_shape(node.output_shape) for node in nodes), " "]),
            _numbers("params", params),
            _words("memory(MB)", [f"{value:.2f}" for value in (*megabytes, sum(megabytes))]),
            _words("MAdd", [f"{float(value):,}" for value in (*madd, sum(madd))]),
            _words("Flops", [f"{float(value):,}" for value in (*flops, sum(flops))]),
            _numbers("MemRead(B)", [read for read, _ in memory]),
            _numbers("MemWrite(B)", [written for _, written in memory]),
            _words("duration[%]", [f"{share:.2%}" for share in (*shares, sum(shares))]),
            _numbers("MemR+W(B)", both),
        ],
    )
    width = len(table.partition("\n")[0])
    return (
        f"{table}\n"
        f"{'=' * width}\n"
        f"Total params: {sum(params):,}\n"
        f"{'-' * width}\n"
        f"Total memory: {sum(megabytes):.2f}MB\n"
        f"Total MAdd: {round_value(sum(madd))}MAdd\n"
        f"Total Flops: {round_value(sum(flops))}Flops\n"
        f"Total MemR+W: {round_value(sum(both), True)}B\n"
    )


def round_value(value: int, binary: bool = False) -> str:
    """A number with T, G, M or K behind it, to two decimals."""
    step = 1024.0 if binary else 1000.0
    for power, unit in ((4, "T"), (3, "G"), (2, "M"), (1, "K")):
        if value // step**power > 0:
            return f"{round(value / step**power, 2)}{unit}"
    return str(value)


def _shape(shape: Sequence[int]) -> str:
    return " ".join(f"{extent:>3d}" for extent in shape)


def _words(title: str, cells: list[str]) -> _Column:
    return _Column(title, [f" {printable(cell)}" for cell in cells])


def _numbers(title: str, values: list[int]) -> _Column:
    """A column of floats and its sum."""
    floats = [float(value) for value in (*values, sum(values))]
    cells = [f" {value:.1f}" for value in floats]
    if max(map(len, cells)) > _LONGEST_PLAIN_NUMBER:
        cells = [f"{value: .6e}" for value in floats]
    return _Column(f" {title}", cells)


def _frame(index: list[str], columns: list[_Column]) -> str:
    names = max(map(len, index))
    lines = ["".ljust(names), *(name.ljust(names) for name in index)]
    for title, cells in columns:
        width = max(len(title), *map(len, cells))
        lines = [f"{line} {cell.rjust(width)}" for line, cell in zip(lines, [title, *cells], strict=True)]
    return "\n".join(lines)
