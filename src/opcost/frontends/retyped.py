"""A model out of a file as it would be with its floats in another element type."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from opcost.core.graph import Graph, Note, TensorSpec
from opcost.errors import InputError

FLOATS = frozenset({"float64", "float32", "float16", "bfloat16"})
"""In which a whole model may compute; narrower ones are storage with scales, and are left as they are."""


def retyped(graph: Graph, dtype: str) -> Graph:
    """The same graph with all of its floats of this type: weights, inputs, and what is made of them."""
    if dtype not in FLOATS:
        raise InputError(f"a model cannot compute in {dtype}", hint="give a floating type: bf16")
    seen: Counter[str] = Counter()
    specs: dict[TensorSpec, TensorSpec] = {}
    values = []
    for value in graph.values:
        spec = value.spec
        if spec.dtype not in FLOATS or spec.dtype == dtype:
            values.append(value)
            continue
        seen[spec.dtype] += 1
        changed = specs.get(spec)
        if changed is None:
            changed = specs[spec] = TensorSpec(spec.shape, dtype)
        values.append(value._replace(spec=changed))
    if not seen:
        return graph
    told = " and ".join(f"{count:,} tensors of {name}" for name, count in seen.most_common())
    note = Note("retyped", f"{told} of the file are counted as {dtype}, as if it had been converted")
    return replace(graph, values=tuple(values), notes=(*graph.notes, note))
