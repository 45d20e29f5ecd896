"""The closed list of operator kinds: our words for what an operator computes, its tensors, and the attributes a rule reads.

A front end translates its framework's operator into one kind, puts the tensors in the stated order and fills the
stated attributes; the rule of that kind then needs to know no framework. Optional tensors are in [brackets], `...` stands
for any more. A form of its own, as the gradient, is told by an attribute that only it has.
Adding a kind is a reviewed change: an entry of `kinds.json` and a rule; the page of rules is written from both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opcost.core.kinds import functions as names
from opcost.core.kinds.attribute import HOLDS, Attribute, number_of, one_of, some_of
from opcost.core.kinds.kind import Form, Kind, form
from opcost.core.resources import table
from opcost.errors import GraphError, UnknownName

__all__ = ["CONTRACTIONS", "KINDS", "Attribute", "Form", "Kind", "check_operator"]


def _attribute(holds: str, meaning: str, among: Any = None) -> Attribute:
    """From an entry of the table: what it holds, what it means, and the names or numbers among which it is."""
    if among is None:
        return HOLDS[holds](meaning)
    if holds == "number_of":
        one, other = among
        return number_of(one, other, meaning)
    choices = getattr(names, among.upper()) if isinstance(among, str) else tuple(among)
    return (one_of if holds == "one_of" else some_of)(choices, meaning)


KINDS: Mapping[str, Kind] = {
    name: Kind(
        name,
        entry["meaning"],
        tuple(
            form(each["tensors"], *each.get("needs", ()), told_by=each.get("told_by", "")) for each in entry["forms"]
        ),
        {attribute: _attribute(*told) for attribute, told in entry.get("attributes", {}).items()},
    )
    for name, entry in table(__package__, "kinds.json").items()
}

CONTRACTIONS = ("conv", "matmul", "attention", "recurrent", "bilinear", "einsum", "custom")
"""The kinds that have multiply-accumulates."""


def check_operator(kind: str, raw: str, attrs: Mapping[str, object], ins: int, outs: int) -> None:
    """Raise `GraphError` if an operator is not what its kind says; one that nobody knows may have any attributes."""
    known = KINDS.get(kind)
    if known is None:
        raise GraphError(f"operator {raw or '(unnamed)'}: {UnknownName('kind', kind, KINDS)}")
    if kind != "unknown" and (fault := known.fault(attrs, ins, outs)):
        raise GraphError(
            f"{kind} operator {raw or '(unnamed)'}: {fault}",
            hint=f"opcost rules {kind} shows what such an operator has",
        )
