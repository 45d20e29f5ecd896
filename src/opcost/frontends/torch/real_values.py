"""Where a count without data ends because the model asks for a value: whether it can go on with real ones, and what is said."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

from torch import nn

from opcost.core.graph import ASSUMED, Graph, Note
from opcost.core.units import format_bytes
from opcost.errors import DataDependent, ForwardError
from opcost.frontends.options import CountOptions
from opcost.frontends.torch.ledger.ledger import ASKED, ASSUMPTIONS, NOT_KNOWN
from opcost.frontends.torch.ledger.subclass import has_data
from opcost.frontends.torch.models.weights import is_uninitialized

AFFORDABLE = 2 << 30
"""A model that was made without its weights is made again with them if they take at most so many bytes."""


class Question(NamedTuple):
    """A value for which the model asks: what it is, and in which module."""

    text: str
    module: str

    @classmethod
    def of_error(cls, error: DataDependent) -> Question:
        return cls(error.message, error.module)

    @classmethod
    def of_graph(cls, graph: Graph) -> Question | None:
        """The question of a model that caught the error and went on, on a way that a real run would not take."""
        note = next((note for note in graph.notes if note.code == ASKED), None)
        return None if note is None else cls(note.text.partition("; ")[0], note.where)


def obstacle(model: nn.Module, options: CountOptions) -> str:
    """Why a model cannot be run on real values, as a hint of what to do; empty where it can."""
    if options.real is False:
        return "leave out real=False (on the command line --no-real): then the model is run on its own weights"
    held = [(name, t) for name, t in (*model.named_parameters(), *model.named_buffers()) if not is_uninitialized(t)]
    if options.remake is not None:
        size = sum(tensor.nbytes for _, tensor in held)
        if size <= AFFORDABLE:
            return ""
        return (
            f"count with real=True (on the command line --real) to make the model with its weights, {format_bytes(size)}, "
            "and run it, or give inputs for which the model does not ask"
        )
    empty = next((name for name, tensor in held if not has_data(tensor)), None)
    if empty is None:
        return ""
    return (
        f"{empty} has no data: give the model with its weights, and it is run on them, or inputs for which the model does "
        "not ask"
    )


def products(graph: Graph) -> int:
    """What the products of a graph come to, roughly: enough to see that two graphs do not do the same work."""
    total, values = 0, graph.values
    for op in graph.ops:
        if op.kind in _PRODUCTS and op.outputs:
            depth = op.attrs.get("depth")
            if not isinstance(depth, int):
                depth = values[op.inputs[1]].spec.numel if len(op.inputs) > 1 else 1
            total += values[op.outputs[0]].spec.numel * depth * op.repeat
    return total


_PRODUCTS = frozenset({"matmul", "conv", "attention", "einsum", "recurrent", "bilinear"})


def depending(graph: Graph, *, can_run_real: bool) -> Graph:
    """A graph whose totals depend on which elements win a topk, sort or argmax: no routing among equal experts."""
    if can_run_real:
        where = next(note.where for note in graph.notes if note.code == "balanced")
        raise DataDependent(f"which elements win a topk, sort or argmax{NOT_KNOWN}", module=where)
    notes = [
        Note(ASSUMED, ASSUMPTIONS[ASSUMED], note.where) if note.code == "balanced" else note for note in graph.notes
    ]
    return dataclasses.replace(graph, notes=tuple(notes))


def told(run: Callable[[], Graph], question: Question, *, remade: bool) -> Graph:
    """The graph of a real run, with a note that says why the model was run; a failure says it too."""
    made = ", with which it was made again" if remade else ""
    why = f"the model was run on its own weights{made}, because {question.text}"
    try:
        graph = run()
    except ForwardError as exc:
        exc.message = f"{exc.message}; {why}"
        raise
    return dataclasses.replace(graph, notes=(*graph.notes, Note("real-values", why, question.module)))
