"""Operators that move elements: lookup, gather, scatter, copy, views, interpolation, and communication between ranks."""

from fractions import Fraction
from math import prod

from opcost.core.graph import ZERO, Cost, nbytes
from opcost.rules.elementwise import flops_table
from opcost.rules.registry import OpView, Rule, reals

BAGS = flops_table("bags")  # for each element looked up, and for each element of the output
SCATTERS = {"copy": 0, "add": 1, "mul": 1, "max": 1, "min": 1, "mean": 2}  # FLOPs per element; a mean divides


def embedding(op: OpView) -> Cost:
    """No FLOPs; with `reduce`, one for each element looked up, and a product more if weighted, FLOPs.

    Only the rows that are looked up are read (each at most once), and the indices; not the whole table. A mean also
    divides once for each output element. Gradient: each element of grad_y is added to its row.
    """
    if op.flag("grad"):
        return op.cost(flops=op.ins[0].numel)
    table, indices = op.ins[:2]
    rows, width = table.dims[0], prod(table.dims[1:])
    looked_up = indices.numel * width
    per_element, per_output = op.choice(BAGS, "reduce", "none")
    touched = nbytes(min(indices.numel, rows) * width, table.dtype)
    return op.cost(
        flops=looked_up * (per_element + op.flag("weighted")) + op.outs[0].numel * per_output,
        bytes_read=touched + op.bytes_after_first,
    )


def gather(op: OpView) -> Cost:
    """No FLOPs.

    Of x only the elements that are picked are read, at most all of it, and the indices.
    """
    x, y = op.ins[0], op.outs[0]
    return op.cost(bytes_read=min(nbytes(y.numel, x.dtype), x.nbytes) + op.bytes_after_first)


def scatter(op: OpView) -> Cost:
    """Elements put × (0 for copy, 1 for add, mul, max, min, 2 for mean) FLOPs.

    As many elements are put as the source has, or the indices where there is no source. In place (`overwrites`) only
    these move: written, and read first unless they are copied; otherwise all of x is read and all of y is written.
    """
    x = op.ins[0]
    per_element = op.choice(SCATTERS, "fn", "copy")
    elements = op.integer("elements", op.ins[min(2, len(op.ins) - 1)].numel)
    flops = elements * per_element * reals(x)
    if not op.flag("overwrites"):
        return op.cost(flops=flops)
    touched = min(nbytes(elements, x.dtype), x.nbytes)
    read = op.bytes_after_first + (touched if per_element else 0)
    return op.cost(flops=flops, bytes_read=read, bytes_written=touched)


def copy(op: OpView) -> Cost:
    """No FLOPs.

    All inputs are read and all outputs written; in place (`overwrites`) the first input is the destination, which is
    not read.
    """
    return op.cost(bytes_read=op.bytes_after_first if op.flag("overwrites") else None)


def create(op: OpView) -> Cost:
    """No FLOPs.

    The outputs are written; a template lends only its shape and is not read.
    """
    return op.cost(bytes_read=0)


def view(op: OpView) -> Cost:
    """Nothing is computed and nothing moves: free."""
    return ZERO


# -- interpolation on a regular grid, and sampling at computed positions -----------------------------------------------

RESIZES = flops_table("resizes")
"""FLOPS_PER_OUTPUT element, with weights known for each position; and for each element of grad_y, added to all its sources."""

FLOPS_PER_TAP = 2  # multiply by the weight, add


def resize(op: OpView) -> Cost:
    """y.numel × FLOPS_PER_OUTPUT[fn] FLOPs.

    nearest 0, linear 3, bilinear 9, trilinear 21, bicubic 35, separable steps of products and additions; positions
    and weights are worked out once per axis and left out. area is the mean of its window: x.numel + y.numel. An
    antialiased filter of `taps` source elements: 2 × taps. Gradient: a product and an addition for each source element.
    """
    grad = op.flag("grad")
    x, y = op.ins[0], op.outs[0]
    elements = x.numel if grad else y.numel
    if op.get("taps") is not None:
        return op.cost(flops=elements * op.integer("taps") * FLOPS_PER_TAP)
    if op.text("fn") == "area":
        return op.cost(flops=x.numel + y.numel)
    forward, backward = op.choice(RESIZES)
    return op.cost(flops=elements * (backward if grad else forward))


def sample(op: OpView) -> Cost:
    """y.numel × taps × 2 FLOPs.

    Each of the `taps` source elements (4 by default) is multiplied by its weight and added; positions, shared by all
    channels, are left out. Of x only what is sampled is read, at most all of it. Gradient: twice as much, for x and
    for the positions.
    """
    taps = op.integer("taps", 4)
    if op.flag("grad"):
        return op.cost(flops=op.ins[0].numel * taps * FLOPS_PER_TAP * 2)
    x, y = op.ins[0], op.outs[0]
    touched = min(nbytes(y.numel * taps, x.dtype), x.nbytes)
    return op.cost(flops=y.numel * taps * FLOPS_PER_TAP, bytes_read=touched + op.bytes_after_first)


# -- communication between ranks, by the ring algorithms ---------------------------------------------------------------


def collective(op: OpView) -> Cost:
    """Elements that one rank adds while reducing: (g - 1) / g × x.numel FLOPs.

    Bytes are those that one of g ranks sends (read) and receives (written), ring algorithm. all_reduce: 2 (g - 1) / g ×
    x each way; all_gather: (g - 1) / g × y; reduce_scatter and all_to_all: (g - 1) / g × x; broadcast and reduce: x; send
    and recv: x one way; gather and scatter: (g - 1) / g of all tensors at the root, one tensor at the others, one way;
    wait: nothing. Only all_reduce, reduce_scatter and reduce (all of x) add. An unknown g is taken as large: (g - 1) / g
    = 1. Every tensor is sent, also one that is given twice. Of an all_to_all in unequal parts all but `kept` elements are.
    """
    share = Fraction(1)
    if op.get("group") is not None:
        share -= Fraction(1, op.integer("group"))
    if op.get("kept") is not None and (elements := sum(spec.numel for spec in op.ins)):
        share = 1 - Fraction(op.integer("kept"), elements)
    x, y = (sum(spec.nbytes for spec in side) for side in (op.ins, op.outs))
    passed_on = x if share else 0
    traffic: dict[str, tuple[Fraction | int, Fraction | int]] = {
        "all_reduce": (2 * share * x, 2 * share * x), "reduce_scatter": (share * x, share * x),
        "all_gather": (share * y, share * y), "all_to_all": (share * x, y - (1 - share) * x), "broadcast": (passed_on, passed_on),
        "reduce": (passed_on, passed_on), "send": (x, 0), "recv": (0, y), "gather": (0, share * y) if y else (x, 0),
        "scatter": (share * x, 0) if x else (0, y), "wait": (0, 0),
    }  # fmt: skip
    sent, received = op.choice(traffic)
    added = {"all_reduce": share, "reduce_scatter": share, "reduce": 1 if share else 0}.get(op.text("fn"), 0)
    return Cost(0, round(added * sum(spec.numel for spec in op.ins)), round(sent), round(received))


RULES: dict[str, Rule] = {
    "embedding": embedding, "gather": gather, "scatter": scatter, "copy": copy, "create": create, "view": view,
    "resize": resize, "sample": sample, "collective": collective,
}  # fmt: skip
