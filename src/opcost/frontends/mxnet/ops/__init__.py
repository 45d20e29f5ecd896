"""What operators of MXNet do: rows of `operators.json`, and in each module the functions that they name, of one family."""

from collections.abc import Iterable
from functools import cache
from typing import Any

from opcost.core.parsing import packaged_table
from opcost.frontends.mxnet.ops.table import FUNCTIONS, on_bytes
from opcost.frontends.rows import RowOperator

DATA: dict[str, Any] = packaged_table(__package__, "operators.json")


@cache
def all_operators() -> dict[str, RowOperator]:
    """Every operator that has a row, by each of its names."""
    from opcost.frontends.mxnet.ops import contraction, control, elementwise, index, layers, reshape, table, vision

    FUNCTIONS.enter(contraction, elementwise, index, layers, reshape, table, vision)
    rows = [FUNCTIONS.row(**each) for family in DATA["rows"].values() for each in family]
    found: dict[str, RowOperator] = {}
    _enter(found, [*elementwise.rows_of_functions(DATA["functions"]), *rows, *control.ROWS])
    _enter(found, [on_bytes(found, **each) for each in DATA["on bytes"]])
    return found


def _enter(table: dict[str, RowOperator], rows: Iterable[RowOperator]) -> None:
    for row in rows:
        for name in row.names:
            if table.setdefault(name, row) is not row:
                raise ValueError(f"the MXNet operator {name!r} has two rows")
