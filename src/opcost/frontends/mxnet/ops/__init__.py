"""MXNet's operators, one file per family: the shapes and types of each, and what it computes in our words."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from opcost.frontends.mxnet.ops.table import Operator, operators

FAMILIES = (
    "attention", "contraction", "control", "convolution", "create", "elementwise", "index", "join", "linalg", "loss", "move",
    "norm", "pool", "recurrent", "reduce", "reshape", "resize", "sequence", "sort", "stretch", "vision",
    "quantized",  # the last, for it builds on the rules of full precision
)  # fmt: skip


@cache
def all_operators() -> dict[str, Operator]:
    """Every operator that has a rule, by each of its names."""
    for family in FAMILIES:
        import_module(f"opcost.frontends.mxnet.ops.{family}")
    return operators()
