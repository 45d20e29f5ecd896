"""What was asked of a count, handed to the front end that reads the model; another element type for what comes out of a file."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from opcost.core.graph import Graph, Note, TensorSpec
from opcost.core.plugin import answering_for
from opcost.errors import InputError
from opcost.frontends.options import CountOptions, check_runs, check_understood
from opcost.frontends.registry import FrontEnd

FLOATS = frozenset({"float64", "float32", "float16", "bfloat16"})
"""In which a whole model may compute; narrower ones are storage with scales, and are left as they are."""


def load(frontend: FrontEnd, source: Any, options: CountOptions) -> Graph:
    """The graph of a model, as it was asked for."""
    dtype = options.dtype
    if dtype is not None and "dtype" in frontend.understands:
        dtype = None
    told = options if dtype is None else replace(options, dtype=None)
    check_understood(frontend, "front end", told)
    check_runs(frontend, told)
    with answering_for(frontend, "reading the model"):
        graph = frontend.load(source, told)
    return graph if dtype is None else _retyped(graph, dtype)


def _retyped(graph: Graph, dtype: str) -> Graph:
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
