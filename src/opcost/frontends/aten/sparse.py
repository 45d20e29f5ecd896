"""Sparse and nested layouts: conversions and bookkeeping. Their arithmetic stands with the dense operators."""

from __future__ import annotations

from opcost.frontends.aten.call import Call, Translation, on


@on("_coalesce", "coalesce")
def _coalesce(call: Call) -> Translation:
    """The indices are sorted, and values at equal places added."""
    return Translation("sort", {"length": max(call["self"]._nnz(), 1)})
