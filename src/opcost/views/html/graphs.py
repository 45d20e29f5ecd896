"""The tensors of a report that pass from operator to operator, as the page has them."""

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from opcost.core.escaping import printable
from opcost.core.graph import TensorSpec
from opcost.core.report import Report


def shapes_of(specs: Sequence[TensorSpec], usual: str = "float32") -> str:
    """Shapes on one line, the usual element type left out."""
    return ", ".join(str(spec) if spec.dtype == usual else f"{spec} {spec.dtype}" for spec in specs)


def graph_of(report: Report) -> dict[str, Any] | None:
    """The tensors that operators, inputs and outputs pass to each other, in the order of their readers.

    Each as the distance from the last reader, the distance back to the maker (inputs, which are listed after all operators, as
    -1, -2, ...), and the place among the maker's results.
    """
    count = len(report.rows)
    ends: list[dict[str, Any]] = []
    maker: dict[int, tuple[int, int]] = {}
    for title, spec, values in _alike(report.inputs, report.input_values):
        maker |= {value: (-1 - len(ends), 0) for value in values}
        ends.append(_end(title, spec, len(values), is_input=True))
    edges: list[tuple[int, int, int]] = []

    def read(reader: int, values: Iterable[int]) -> None:
        for made, result in dict.fromkeys(maker[value] for value in values if value in maker):
            edges.append((reader, made if made < 0 else reader - made, result))

    for place, row in enumerate(report.rows):
        read(place, row.op.inputs)
        maker |= {value: (place, result) for result, value in enumerate(row.op.outputs)}
    if not edges:
        return None
    named = [("output", spec) for spec in report.outputs]
    for title, spec, values in _alike(named, report.output_values):
        read(count + len(ends), values)
        ends.append(_end(title, spec, len(values), is_input=False))
    readers = [reader for reader, _, _ in edges]
    steps = [reader - before for before, reader in pairwise([0, *readers])]
    return {
        "step": steps,
        "back": [back for _, back, _ in edges],
        "result": [result for _, _, result in edges],
        "ends": ends,
    }


def _alike(
    named: Iterable[tuple[str, TensorSpec]], values: Sequence[int]
) -> Iterable[tuple[str, TensorSpec, list[int]]]:
    """Inputs or outputs; those that differ in the numbers of their names alone, as parts of a cache, are one."""
    found: dict[tuple[str, TensorSpec], list[tuple[str, int]]] = {}
    for (name, spec), value in zip(named, values, strict=False):
        found.setdefault((re.sub(r"[._]?\d+(?=\.|$)", "", name), spec), []).append((name, value))
    for (name, spec), all_alike in found.items():
        yield (name if len(all_alike) > 1 else all_alike[0][0]), spec, [value for _, value in all_alike]


def _end(name: str, spec: TensorSpec, count: int, *, is_input: bool) -> dict[str, Any]:
    shape = shapes_of((spec,))
    return {"name": printable(f"{count} × {name}" if count > 1 else name), "shape": shape, "input": is_input}
