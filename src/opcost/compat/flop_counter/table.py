"""The table of `FlopCounterMode`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opcost.compat._grid import simple_table

_WHOLE = "Global"
_SUFFIXES = ("", "K", "M", "B", "T")


def flop_table(counts: Mapping[str, Mapping[Any, int]], depth: int) -> str:
    """Modules in the order of their names, each with its operators; the whole first, unless one module is all of it."""
    total = sum(counts.get(_WHOLE, {}).values())
    shown = [name for name in sorted(counts) if name != _WHOLE and name.count(".") < depth]
    if not counts or not total:
        rows = [[_WHOLE, "0", "0%"]]
    elif any(sum(counts[name].values()) >= total for name in shown):
        rows = [row for name in shown for row in _rows(name, counts[name], total, name.count("."))]
    else:
        rows = _rows(_WHOLE, counts[_WHOLE], total, 0)
        rows += [row for name in shown for row in _rows(name, counts[name], total, name.count(".") + 1)]
    return simple_table(["Module", "FLOP", "% Total"], rows, right=(False, True, True))


def _rows(name: str, operators: Mapping[Any, int], total: int, indent: int) -> list[list[str]]:
    lines = [(name, sum(operators.values())), *((f" - {operator}", flops) for operator, flops in operators.items())]
    return [[" " * indent + text, _short(flops, total), f"{flops / total:.2%}"] for text, flops in lines]


def _short(number: int, total: int) -> str:
    """A number in the unit that fits the total."""
    power = max(0, min(len(_SUFFIXES) - 1, (len(str(total)) - 2) // 3))
    if not power:  # a column of plain numbers is written without a fraction
        return f"{number:g}"
    return f"{number / 1000**power:.3f}{_SUFFIXES[power]}"
