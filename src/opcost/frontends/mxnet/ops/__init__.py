"""MXNet's operators, one file per family: the shapes and types of each, and what it computes in our words."""

from __future__ import annotations

from functools import cache

from opcost.frontends.mxnet.ops.table import Operator, operators


@cache
def all_operators() -> dict[str, Operator]:
    """Every operator that has a rule, by each of its names. A family that is imported puts its operators into the table."""
    from opcost.frontends.mxnet.ops import (  # noqa: F401
        attention,
        contraction,
        control,
        convolution,
        create,
        elementwise,
        index,
        join,
        linalg,
        loss,
        move,
        norm,
        pool,
        recurrent,
        reduce,
        reshape,
        resize,
        sequence,
        sort,
        stretch,
        vision,
    )

    table = operators()
    from opcost.frontends.mxnet.ops import quantized  # noqa: F401 - it builds on the rules of full precision

    return table
