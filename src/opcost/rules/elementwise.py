"""Arithmetic element by element, quantization, and random numbers."""

from __future__ import annotations

from opcost.core.cost import Cost
from opcost.core.dtype import COMPLEX, bits
from opcost.core.kinds.functions import ELEMENTARY
from opcost.core.resources import table
from opcost.rules.attr import choose, flag, integer, rest_bytes, text, texts
from opcost.rules.registry import OpView

_TABLE: dict[str, dict[str, tuple[int, str]]] = table(__package__, "elementwise.json")
"""FLOPs of each composite function, and the operations that they are; the same for complex numbers."""


def _flops(name: str) -> dict[str, int]:
    return {fn: flops for fn, (flops, _) in _TABLE[name].items()}


FLOPS_PER_ELEMENT: dict[str, int] = {**dict.fromkeys(ELEMENTARY, 1), **_flops("composite")}
"""FLOPs for each output element.

The gates of a recurrent cell, whose products are ready, are for each hidden unit, with s = sigmoid (4) and t = tanh (5). A
gradient is the derivative, then one multiplication with the incoming gradient or one selection. A step of an optimizer is for
each element of a parameter.
"""
COMPLEX_FLOPS_PER_ELEMENT: dict[str, int] = _flops("complex")
"""The same where the output is complex; other functions do their work for both parts."""
COMPLEX_TO_REAL: dict[str, int] = _flops("complex_to_real")
"""The same where complex elements come in and real ones go out."""

DRAW_FLOPS = 1
DROPOUT_FLOPS = 3
"""After the draw: compare, multiply by the mask, scale."""

QUANTIZE_FLOPS = 5
"""Divide by the scale, add the zero point, round, clamp (2)."""
DEQUANTIZE_FLOPS = 2
"""Subtract the zero point, multiply by the scale."""


def elementwise(op: OpView) -> Cost:
    """y.numel × FLOPS_PER_ELEMENT[fn] FLOPs.

    One for each elementary operation (add, multiply, compare, select, exp, sqrt, ...); of the composite ones
    `elementwise.json` has the parts. Several outputs each cost theirs, unless `elements` says how many are computed. A complex
    addition is two FLOPs, a product six.
    """
    per_element = choose(op, FLOPS_PER_ELEMENT)
    fn = text(op, "fn")
    if op.get("elements") is not None:
        return op.cost(flops=integer(op, "elements") * per_element)
    from_complex = bool(op.ins) and op.ins[0].dtype in COMPLEX
    flops = 0
    for y in op.outs:
        if y.dtype in COMPLEX:
            flops += y.numel * COMPLEX_FLOPS_PER_ELEMENT.get(fn, 2 * per_element)
        elif from_complex:
            flops += y.numel * COMPLEX_TO_REAL.get(fn, per_element)
        else:
            flops += y.numel * per_element
    return op.cost(flops=flops)


def fused_flops(op: OpView) -> int:
    """FLOPs of the elementwise functions that an operator applies to its own result (`then`)."""
    return sum(op.outs[0].numel * FLOPS_PER_ELEMENT[fn] for fn in texts(op, "then"))


def quantize(op: OpView) -> Cost:
    """5 × y.numel, and on the way back 2 × y.numel FLOPs.

    To fewer bits: divide by the scale, add the zero point, round, clamp (2). To more bits: subtract, multiply.
    """
    y = op.outs[0]
    narrower = bits(y.dtype) < bits(op.ins[0].dtype)
    elements = integer(op, "elements", y.numel)
    return op.cost(flops=elements * (QUANTIZE_FLOPS if narrower else DEQUANTIZE_FLOPS))


def random(op: OpView) -> Cost:
    """y.numel, and for dropout 4 × y.numel FLOPs.

    A draw counts as one operation. Dropout also compares, multiplies by the mask and scales.
    """
    dropout = text(op, "fn", "draw") == "dropout"
    per_element = DRAW_FLOPS + (DROPOUT_FLOPS if dropout else 0)
    read = rest_bytes(op) if flag(op, "overwrites") else None
    return op.cost(flops=op.outs[0].numel * per_element, bytes_read=read)


RULES = {"elementwise": elementwise, "quantize": quantize, "random": random}
