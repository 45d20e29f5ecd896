"""The rules of all families in one table."""

from __future__ import annotations

from functools import cache

from opcost.frontends.megengine.node import Rule


@cache
def rules() -> dict[str, Rule]:
    """The rule of every type of operators that is known."""
    from opcost.frontends.megengine.operators import (
        attention,
        control,
        convolution,
        create,
        elementwise,
        indexing,
        linear,
        move,
        norm,
        pool,
        recurrent,
        reduce,
        relayout,
        sort,
        vision,
    )

    families = (
        attention, control, convolution, create, elementwise, indexing, linear, move, norm, pool, recurrent, reduce,
        relayout, sort, vision,
    )  # fmt: skip
    found: dict[str, Rule] = {}
    for family in families:
        found.update(family.RULES)
    return found
