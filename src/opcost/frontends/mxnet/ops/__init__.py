"""What operators of MXNet do: rows of `operators.json`, and in each module the functions that they name, of one family."""

from __future__ import annotations

from functools import cache
from typing import Any

from opcost.core.parsing import packaged_table
from opcost.frontends.mxnet.ops.table import FUNCTIONS, on_bytes, table_of
from opcost.frontends.rows import RowOperator

DATA: dict[str, Any] = packaged_table(__package__, "operators.json")


@cache
def all_operators() -> dict[str, RowOperator]:
    """Every operator that has a row, by each of its names."""
    from opcost.frontends.mxnet.ops import contraction, control, elementwise, index, layers, reshape, table, vision

    FUNCTIONS.enter(contraction, elementwise, index, layers, reshape, table, vision)
    rows = [FUNCTIONS.row(**each) for family in DATA["rows"].values() for each in family]
    plain = [*elementwise.rows_of_functions(DATA["functions"]), *rows, *control.ROWS]
    found = table_of(plain)
    return table_of(plain, [on_bytes(found, **each) for each in DATA["on bytes"]])
