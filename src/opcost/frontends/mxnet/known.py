"""What the name of an MXNet operator tells before any call of it is seen: the kind of an ordinary call.

This is found out by translating a call that is made up: training, and with no attributes but those that must be there.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import product

from opcost.core.shapes import Mismatch, Unknown
from opcost.frontends.mxnet.attribute import AttributeFault, Attributes
from opcost.frontends.mxnet.dialect import OLD_NAMES
from opcost.frontends.mxnet.ops import all_operators
from opcost.frontends.mxnet.ops.table import UNKNOWN, Call

_MUST_BE_THERE = {
    "kernel": "(1, 1)", "num_filter": "2", "act_type": "relu", "nsize": "1", "mode": "lstm", "state_size": "2",
    "num_layers": "1", "sample_type": "nearest", "transform_type": "affine", "heads": "1", "num_heads": "1", "w": "1",
}  # fmt: skip
"""Attributes without a default, of all operators together."""
_INPUTS = 9
"""As many as the operator with the most inputs looks at."""
_RANKS = (4, 3, 2)
_FLAWS = (AttributeFault, Unknown, Mismatch, ArithmeticError, LookupError, TypeError, ValueError)
"""What a translation may fail with where such a call is none that MXNet would take."""


@lru_cache(maxsize=4096)
def kind_of(name: str) -> str:
    """The kind; empty for a name that is not known, and where the kind depends on more than the name."""
    operator = all_operators().get(OLD_NAMES.get(name, name))
    if operator is None:
        return ""
    for attrs, rank in product(({}, _MUST_BE_THERE), _RANKS):
        try:
            kind = operator.translated(_made_up(attrs, rank)).kind
        except _FLAWS:
            continue
        return "" if kind == UNKNOWN.kind else kind
    return ""


def _made_up(attrs: dict[str, str], rank: int) -> Call:
    """A call in which nothing is trivial: what comes out is of another type than what goes in."""
    shape = (2,) * rank
    return Call(
        Attributes(attrs),
        [shape] * _INPUTS,
        [shape] * _INPUTS,
        ["float32"] * _INPUTS,
        ["float16"] * _INPUTS,
        training=True,
    )
