"""What operators of MXNet do: rows of `operators.json`, and in each module the functions that they name, of one family."""

from __future__ import annotations

from functools import cache

from opcost.core.parsing import packaged_table
from opcost.frontends.mxnet.ops.table import FUNCTIONS, Operator, row, table_of


@cache
def all_operators() -> dict[str, Operator]:
    """Every operator that has a row, by each of its names."""
    from opcost.frontends.mxnet.ops import contraction, control, elementwise, index, layers, quantized, reshape, vision

    FUNCTIONS.enter(contraction, elementwise, index, layers, reshape, vision)
    data = packaged_table(__package__, "operators.json")
    rows = [row(**each) for family in data["rows"].values() for each in family]
    plain = [*elementwise.rows_of_functions(data["functions"]), *rows, *control.ROWS]
    return table_of(plain, quantized.rows(table_of(plain)))
