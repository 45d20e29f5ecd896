"""torchsummaryX's table, laid out as pandas prints a frame with engineering prefixes."""

from __future__ import annotations

from collections.abc import Sequence
from math import floor, log10
from typing import Any

from opcost.core.harmless import printable

_HEADERS = ("Kernel Shape", "Output Shape", "Params", "Mult-Adds")
_PREFIXES = {0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P"}
_LONGEST_PLAIN_NUMBER = 12
"""Characters, the place of the sign included; beyond it pandas turns a column to exponents."""


def table(lines: Sequence[Any], total: int, trainable: int, mult_adds: int) -> str:
    """The layers, and below a rule the totals."""
    index = ["Layer", *(printable(line.name) for line in lines)]
    cells = [(_list(line.kernel), _list(line.output), _number(line.params), _number(line.mult_adds)) for line in lines]
    totals = {
        "Total params": total, "Trainable params": trainable, "Non-trainable params": total - trainable,
        "Mult-Adds": mult_adds,
    }  # fmt: skip
    above = _columns(_HEADERS, index, [("",) * len(_HEADERS), *cells])
    below = _columns(("Totals",), list(totals), [(_number(number),) for number in totals.values()])
    width = _width(lines, index)
    return "\n".join(["=" * width, *above, "-" * width, *below, "=" * width])


def _columns(headers: Sequence[str], index: list[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Right-aligned columns behind a left-aligned index; cells, but not headers, have a blank in front."""
    first = max(map(len, index))
    lines = [" " * first, *(name.ljust(first) for name in index)]
    for at, header in enumerate(headers):
        column = [header, *(f" {row[at]}" if row[at] else "" for row in rows)]
        width = max(map(len, column))
        lines = [f"{line} {cell.rjust(width)}" for line, cell in zip(lines, column, strict=True)]
    return lines


def _width(lines: Sequence[Any], index: list[str]) -> int:
    """Of the frame with plain numbers, by which the rules are drawn."""
    width = max(map(len, index))
    for header, lists in zip(
        _HEADERS, ([line.kernel for line in lines], [line.output for line in lines]), strict=False
    ):
        width += 1 + max(len(header), *(len(_list(extents)) + 1 for extents in lists))
    for header, numbers in zip(
        _HEADERS[2:], ([line.params for line in lines], [line.mult_adds for line in lines]), strict=True
    ):
        plain = [f" {float(number):.1f}" for number in numbers if number is not None]
        if max(map(len, plain), default=0) > _LONGEST_PLAIN_NUMBER:
            plain = [f"{float(number): .6e}" for number in numbers if number is not None]
        width += 1 + max(len(header) + 1, *(len(cell) for cell in plain), 0)
    return width


def _list(extents: list[int] | None) -> str:
    return "-" if extents is None else str(extents)


def _number(number: float | None) -> str:
    """With an engineering prefix; a plain number has a point."""
    if number is None:
        return "-"
    power = 3 * floor(log10(number) // 3) if number >= 1 else 0
    power = min(power, max(_PREFIXES))
    shown = number / 10**power
    return f"{shown:g}{_PREFIXES[power]}" if power else f"{float(shown)}"
