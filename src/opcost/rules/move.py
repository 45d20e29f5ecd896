"""Operators that move elements: lookup, gather, scatter, copy, creation; and views, which move nothing."""

from __future__ import annotations

from math import prod

from opcost.core.cost import ZERO, Cost
from opcost.core.dtype import nbytes
from opcost.rules.attr import choose, flag, integer, parts, rest_bytes
from opcost.rules.registry import OpView

REDUCTIONS = {
    # FLOPs for each element looked up, and for each element of the output
    "none": (0, 0),
    "sum": (1, 0),
    "max": (1, 0),
    "mean": (1, 1),
}

SCATTERS = {"copy": 0, "add": 1, "mul": 1, "max": 1, "min": 1, "mean": 2}
"""FLOPs for each element that is put; a mean also divides."""


def embedding(op: OpView) -> Cost:
    """No FLOPs; with `reduce`, one for each element looked up, and a product more if weighted, FLOPs.

    Only the rows that are looked up are read (each at most once), and the indices; not the whole table. A mean also
    divides once for each output element. Gradient: each element of grad_y is added to its row.
    """
    if flag(op, "grad"):
        return op.cost(flops=op.ins[0].numel)
    table, indices = op.ins[:2]
    rows, width = table.dims[0], prod(table.dims[1:])
    looked_up = indices.numel * width
    per_element, per_output = choose(op, REDUCTIONS, "reduce", "none")
    weighted = 1 if flag(op, "weighted") else 0
    touched = nbytes(min(indices.numel, rows) * width, table.dtype)
    return op.cost(
        flops=looked_up * (per_element + weighted) + op.outs[0].numel * per_output,
        bytes_read=touched + rest_bytes(op),
    )


def gather(op: OpView) -> Cost:
    """No FLOPs.

    Of x only the elements that are picked are read, at most all of it, and the indices.
    """
    x, y = op.ins[0], op.outs[0]
    return op.cost(bytes_read=min(nbytes(y.numel, x.dtype), x.nbytes) + rest_bytes(op))


def scatter(op: OpView) -> Cost:
    """Elements put × (0 for copy, 1 for add, mul, max, min, 2 for mean) FLOPs.

    As many elements are put as the source has, or the indices where there is no source. In place (`overwrites`) only
    these move: written, and read first unless they are copied; otherwise all of x is read and all of y is written.
    """
    x = op.ins[0]
    per_element = choose(op, SCATTERS, "fn", "copy")
    elements = integer(op, "elements", op.ins[min(2, len(op.ins) - 1)].numel)
    flops = elements * per_element * parts(x)
    if not flag(op, "overwrites"):
        return op.cost(flops=flops)
    touched = min(nbytes(elements, x.dtype), x.nbytes)
    return op.cost(flops=flops, bytes_read=rest_bytes(op) + (touched if per_element else 0), bytes_written=touched)


def copy(op: OpView) -> Cost:
    """No FLOPs.

    All inputs are read and all outputs written; in place (`overwrites`) the first input is the destination, which is
    not read.
    """
    return op.cost(bytes_read=rest_bytes(op) if flag(op, "overwrites") else None)


def create(op: OpView) -> Cost:
    """No FLOPs.

    The outputs are written; a template lends only its shape and is not read.
    """
    return op.cost(bytes_read=0)


def view(op: OpView) -> Cost:
    """Nothing is computed and nothing moves: free."""
    return ZERO


RULES = {
    "embedding": embedding,
    "gather": gather,
    "scatter": scatter,
    "copy": copy,
    "create": create,
    "view": view,
}
