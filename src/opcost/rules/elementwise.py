"""Arithmetic element by element, normalizations, and what reduces elements: pools, reductions, losses."""

from typing import Any, NamedTuple

from opcost.core.graph import COMPLEX, Cost, bits
from opcost.core.kinds import ELEMENTARY
from opcost.core.parsing import packaged_table
from opcost.rules.registry import OpView, Rule, reals

_TABLE: dict[str, dict[str, list[Any]]] = packaged_table(__package__, "elementwise.json")
"""FLOPs of each function, and last the operations that they are: those of the gradient come after a semicolon, too."""


def flops_table(name: str) -> dict[str, tuple[int, ...]]:
    """The FLOPs of the functions of one family."""
    return {fn: tuple(row[:-1]) for fn, row in _TABLE[name].items()}


def _flops(name: str) -> dict[str, int]:
    return {fn: flops for fn, (flops,) in flops_table(name).items()}


FLOPS_PER_ELEMENT: dict[str, int] = {**dict.fromkeys(ELEMENTARY, 1), **_flops("composite")}
"""FLOPs for each output element.

The gates of a recurrent cell, whose products are ready, are for each hidden unit, with s = sigmoid (4) and t = tanh (5). A
gradient is the derivative, then one multiplication with the incoming gradient or one selection. A step of an optimizer is for
each element of a parameter.
"""
COMPLEX_FLOPS_PER_ELEMENT: dict[str, int] = _flops("complex")  # of complex outputs; others: both parts
COMPLEX_TO_REAL: dict[str, int] = _flops("complex_to_real")  # of complex elements in, real ones out

DRAW_FLOPS = 1
DROPOUT_FLOPS = 3  # after the draw: compare, multiply by the mask, scale

QUANTIZE_FLOPS = 5  # divide by the scale, add the zero point, round, clamp (2)
DEQUANTIZE_FLOPS = 2  # subtract the zero point, multiply by the scale


def elementwise(op: OpView) -> Cost:
    """y.numel × FLOPS_PER_ELEMENT[fn] FLOPs.

    One for each elementary operation (add, multiply, compare, select, exp, sqrt, ...); of the composite ones
    `elementwise.json` has the parts. Several outputs each cost theirs, unless `elements` says how many are computed. A complex
    addition is two FLOPs, a product six.
    """
    fn = op.text("fn")
    per_element = FLOPS_PER_ELEMENT[fn]
    if op.get("elements") is not None:
        return op.cost(flops=op.integer("elements") * per_element)
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


def quantize(op: OpView) -> Cost:
    """5 × y.numel, and on the way back 2 × y.numel FLOPs.

    To fewer bits: divide by the scale, add the zero point, round, clamp (2). To more bits: subtract, multiply.
    """
    y = op.outs[0]
    narrower = bits(y.dtype) < bits(op.ins[0].dtype)
    return op.cost(flops=op.integer("elements", y.numel) * (QUANTIZE_FLOPS if narrower else DEQUANTIZE_FLOPS))


def random(op: OpView) -> Cost:
    """y.numel, and for dropout 4 × y.numel FLOPs.

    A draw counts as one operation. Dropout also compares, multiplies by the mask and scales.
    """
    per_element = DRAW_FLOPS + (DROPOUT_FLOPS if op.text("fn", "draw") == "dropout" else 0)
    read = op.bytes_after_first if op.flag("overwrites") else None
    return op.cost(flops=op.outs[0].numel * per_element, bytes_read=read)


# -- normalizations and softmax ----------------------------------------------------------------------------------------


class Norm(NamedTuple):
    """FLOPs for each element of x."""

    statistics: int
    apply: int
    backward: int
    affine_backward: int  # sums for the gradients of weight and bias that the backward pass does not need for itself


NORMS = {fn: Norm(*flops) for fn, flops in flops_table("norms").items()}

FIXED_STATISTICS_BACKWARD = 6
"""Batch norm with stored statistics: x̂ (2), Σ g, Σ g x̂ (1 + 2) for weight and bias, g × (w rstd)."""
LOCAL_RESPONSE_WINDOW = 5

SOFTMAX_FLOPS = 5
"""Compare for the maximum, subtract, exp, add to the sum, divide; log_softmax subtracts the logarithm of the sum."""
SOFTMAX_GRADIENT_FLOPS = 4
"""y × (g - Σ g y): multiply, add, subtract, multiply; log_softmax, g - exp(y) Σ g: add, exp, multiply, subtract."""


def norm(op: OpView) -> Cost:
    """x.numel × (statistics + apply + affine) FLOPs.

    Statistics: mean 1, variance 3, where they are computed (batch norm: in training only); rms: 2. Apply: subtract
    and multiply, rms: multiply. Affine: one each for weight and bias. So batch norm costs 4 in use and 8 in training,
    layer norm 8, rms norm 4. Weight norm: 3. Local response norm: window + 5. What is done once per channel or row
    (rsqrt, running statistics) is left out. Gradients have the constants written in the rule's table.
    """
    x = op.ins[0]
    fn = op.text("fn")
    grad = op.flag("grad")
    if fn == "local_response":
        # square, window sum, multiply, add, power, divide; backward repeats it and has as much of its own
        per_element = (op.integer("window", LOCAL_RESPONSE_WINDOW) + 5) * (2 if grad else 1)
        return op.cost(flops=x.numel * per_element)
    constants = NORMS[fn]
    fitted = op.flag("training", default=fn != "batch")
    # How many of weight and bias are applied: given by the front end, or the one or two inputs after x.
    affine = op.integer("affine", min(len(op.ins) - (2 if grad else 1), 2)) if fn not in ("weight", "lp") else 0
    if not grad:
        per_element = (constants.statistics if fitted else 0) + constants.apply + affine
    elif fn == "batch" and not fitted:
        per_element = FIXED_STATISTICS_BACKWARD
    else:
        per_element = constants.backward + (constants.affine_backward if affine else 0)
    return op.cost(flops=x.numel * per_element)


def softmax(op: OpView) -> Cost:
    """5 × x.numel FLOPs.

    Compare for the maximum, subtract, exp, add, divide; the same number for log_softmax. Gradient: 4 × x.numel.
    """
    per_element = SOFTMAX_GRADIENT_FLOPS if op.flag("grad") else SOFTMAX_FLOPS
    return op.cost(flops=op.outs[0].numel * per_element)


# -- pools and reductions ----------------------------------------------------------------------------------------------


POOLS: dict[str, tuple[int, ...]] = flops_table("pools")
"""FLOPs for each element of a window and once for each output; the same of the gradient for each element of grad_y."""


def pool(op: OpView) -> Cost:
    """y.numel × window FLOPs.

    max compares window elements, avg adds window - 1 and divides once; lp: 2 × window + 1; unpooling computes nothing.
    Gradient: max adds each element of grad_y once; avg divides it once and adds it to window places; lp: 3 × window + 1.
    """
    grad = op.flag("grad")
    constants = op.choice(POOLS)
    per_element, once = constants[2:] if grad else constants[:2]
    elements = op.ins[0].numel if grad else op.outs[0].numel
    window = op.integer("window") if per_element else 0
    return op.cost(flops=elements * (per_element * window + once))


REDUCTIONS: dict[str, tuple[int, ...]] = flops_table("reductions")
"""FLOPS_PER_INPUT element, and FLOPS_PER_OUTPUT element where something is left to do after the reduction."""


def reduce(op: OpView) -> Cost:
    """x.numel × FLOPS_PER_INPUT[fn] + y.numel × FLOPS_PER_OUTPUT[fn] FLOPs.

    Sum, product, maximum, any and their running forms: 1 for each input. Mean also divides once for each output.
    Variance: 4 (mean: add; subtract, square, add) and two divisions; norm: 2 and a root; logsumexp: 4 and 2. A list
    operator (`each`) reduces every input to an output of its own. An answer that is no tensor costs its inputs only.
    """
    per_input, per_output = op.choice(REDUCTIONS)
    reductions = len(op.ins) if op.flag("each") else 1
    flops = sum(x.numel * per_input * reals(x) for x in op.ins[:reductions])
    flops += sum(y.numel * per_output * reals(y) for y in op.outs[:reductions])
    return op.cost(flops=flops)


# -- losses that a framework computes in one operator ------------------------------------------------------------------

LOSSES: dict[str, tuple[int, ...]] = flops_table("losses")
"""FLOPs for each element before they are added up, and for each element of the gradient."""


def loss(op: OpView) -> Cost:
    """Elements × LOSSES[fn], and one more where they are added up, FLOPs.

    Elements are those of the input; for nll those of the target, whose class alone is looked up; for ctc time steps ×
    (2 × target length + 1) states; for multilabel_margin all pairs of classes, whichever are targets. mse and l1: 2,
    smooth_l1 and huber: 6, bce: 8, cross_entropy: 5.
    """
    fn = op.text("fn")
    forward, backward = LOSSES[fn]
    if op.flag("grad"):
        return op.cost(flops=_loss_elements(op, fn, first=1) * backward)
    elements = _loss_elements(op, fn, first=0)
    reduced = 1 if op.outs[0].numel < elements else 0
    return op.cost(flops=elements * (forward + reduced))


def _loss_elements(op: OpView, fn: str, *, first: int) -> int:
    x, target = op.ins[first], op.ins[first + 1]
    if fn == "nll":
        return target.numel
    if fn == "ctc":
        steps, *batch, _ = x.dims
        return steps * (2 * target.numel + (batch[0] if batch else 1))
    if fn == "multilabel_margin":
        return x.numel * (x.dims[-1] if x.dims else 1)
    return x.numel


RULES: dict[str, Rule] = {
    "elementwise": elementwise, "quantize": quantize, "random": random, "norm": norm, "softmax": softmax, "pool": pool,
    "reduce": reduce, "loss": loss,
}  # fmt: skip
