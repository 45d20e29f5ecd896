"""What each kind of operator costs: one file per family, each rule's first line is its formula."""

from __future__ import annotations

from functools import cache

from opcost.rules.registry import Rules


def add(rules: Rules) -> None:
    """Add the project's own rules: one for every kind but `unknown`."""
    from opcost.rules import (
        attention,
        collective,
        conv,
        einsum,
        elementwise,
        linalg,
        loss,
        matmul,
        move,
        norm,
        pool,
        recurrent,
        reduce,
        resize,
        signal,
    )

    families = (
        conv, matmul, attention, recurrent, einsum, elementwise, norm, pool, reduce, resize, loss, signal, linalg, move,
        collective,
    )  # fmt: skip
    for family in families:
        for kind, rule in family.RULES.items():
            rules.add(kind, rule)


@cache
def default_rules() -> Rules:
    """The rules of every installed plug-in, the project's own among them."""
    from opcost.core.plugin import RULES, find, load

    rules = Rules()
    for name in find(RULES):
        load(RULES, name)(rules)
    return rules
