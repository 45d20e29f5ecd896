"""MXNet's operators, a row each: the shapes and types of each, and what it computes in our words."""

from __future__ import annotations

from functools import cache

from opcost.frontends.mxnet.ops.table import Operator, table_of


@cache
def all_operators() -> dict[str, Operator]:
    """Every operator that has a row, by each of its names."""
    from opcost.frontends.mxnet.ops import (
        contraction,
        control,
        elementwise,
        index,
        layers,
        linalg,
        quantized,
        reshape,
        vision,
    )

    families = (contraction, control, elementwise, index, layers, linalg, reshape, vision)
    plain = [family.ROWS for family in families]
    return table_of(*plain, quantized.rows(table_of(*plain)))
