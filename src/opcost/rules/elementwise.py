"""Arithmetic element by element, quantization, and random numbers."""

from __future__ import annotations

from opcost.core.cost import Cost
from opcost.core.dtype import COMPLEX, bits
from opcost.core.kinds.functions import ELEMENTARY
from opcost.rules.attr import choose, flag, integer, rest_bytes, text, texts
from opcost.rules.registry import OpView

FLOPS_PER_ELEMENT: dict[str, int] = {
    **dict.fromkeys(ELEMENTARY, 1),
    # The composite ones.
    "fma": 2,  # multiply, add: also an addition with a factor
    "mul_mul_add": 3,  # a b + c d
    "mul_high": 2,  # multiply, shift: the upper half of a product of integers
    "round_shift_clamp": 4,  # round, shift, max, min
    "add_mul_round_shift_clamp": 7,  # add, multiply and shift, then the four above
    "colour": 5,  # three products, two additions
    "frac": 2,  # trunc, subtract
    "frexp": 1,  # for each of its two outputs
    "ldexp": 2,  # power of two, multiply
    "floor_divide": 2,  # divide, floor
    "remainder": 4,  # divide, floor, multiply, subtract
    "clamp": 2,  # max, min
    "lerp": 3,  # subtract, multiply, add
    "addcmul": 3,  # multiply, multiply by the factor, add
    "addcdiv": 3,  # divide, multiply by the factor, add
    "hypot": 4,  # two squares, add, sqrt
    "sinh": 4, "cosh": 4,  # exp, reciprocal, add or subtract, halve
    "asinh": 5, "acosh": 5,  # log(x + sqrt(x² ± 1)): square, add, sqrt, add, log
    "atanh": 5,  # log((1 + x) / (1 - x)) / 2: add, subtract, divide, log, halve
    "sinc": 3,  # multiply, sin, divide
    "xlogy": 2,  # log, multiply
    "entropy": 3,  # log, multiply, negate
    "logit": 3,  # subtract, divide, log
    "logaddexp": 6,  # max, subtract, negate the absolute value, exp, log1p, add
    "heaviside": 2,  # compare, select
    "nan_to_num": 6,  # three checks, three selections
    "polar": 4,  # cos, sin, two products
    "cross": 3,  # two products, subtract
    # Activations.
    "relu": 1,  # max
    "relu6": 2,  # max, min
    "add_relu": 2,  # add or multiply, max
    "add_sigmoid": 5, "add_tanh": 6, "add_hardswish": 6,  # add, then the function
    "hardtanh": 2,  # max, min
    "threshold": 2,  # compare, select
    "leaky_relu": 3, "prelu": 3, "rrelu": 3,  # compare, multiply, select
    "elu": 4,  # compare, expm1, multiply, select
    "selu": 5,  # elu, scale
    "celu": 5,  # elu of x / alpha
    "sigmoid": 4,  # negate, exp, add, divide
    "tanh": 5,  # (1 - e) / (1 + e) with e = exp(-2x): multiply, exp, subtract, add, divide
    "silu": 5,  # sigmoid, multiply
    "glu": 5,  # for each output element: sigmoid of one half, multiply
    "gelu": 5,  # x / 2 × (1 + erf(x / √2)): multiply, erf, add, halve, multiply
    "gelu_tanh": 13,  # x³ (2), multiply, add, multiply, tanh (5), add, halve, multiply
    "quick_gelu": 6,  # scale, sigmoid, multiply
    "softplus": 5,  # multiply by beta, exp, log1p, divide by beta, compare with the threshold
    "mish": 8,  # exp, log1p, tanh (5), multiply
    "logsigmoid": 6,  # min(x, 0) - log1p(exp(-|x|)): min, absolute, negate, exp, log1p, subtract
    "softsign": 3,  # absolute, add, divide
    "hardsigmoid": 4,  # add, max, min, divide
    "hardswish": 5,  # hardsigmoid, multiply
    "hardshrink": 3,  # absolute, compare, select
    "softshrink": 4,  # absolute, subtract, max, copy the sign
    "tanhshrink": 6,  # tanh, subtract
    "smooth_l1": 5,  # absolute, compare, square, scale, select
    "dropout": 2,  # multiply by a drawn mask, scale
    # The gates of a recurrent cell whose products are ready, for each hidden unit; s = sigmoid (4), t = tanh (5).
    "lstm_cell": 30,  # 4 additions, s of i f o, t of g, c' = f c + i g (3), h = o t(c') (1 + 5)
    "gru_cell": 21,  # 2 additions, s of r z, n = t(a + r b) (2 + 5), h = (1 - z) n + z h (4)
    "lstm_cell_grad": 27,  # t(c') again, 6 products and 1 addition, 3 gradients of s and 2 of t
    "gru_cell_grad": 16,  # 5 products and 2 subtractions, 2 gradients of s and 1 of t
    "fake_quantize": 7,  # divide, add, round, clamp (2), subtract, multiply
    # Gradients: the derivative, then one multiplication with the incoming gradient or one selection.
    "abs_grad": 2,  # sign, multiply
    "asinh_grad": 4,  # g / sqrt(x² ± 1)
    "atanh_grad": 3,  # g / (1 - x²)
    "relu_grad": 2,  # compare, select
    "threshold_grad": 2,  # compare, select
    "hardtanh_grad": 3,  # two comparisons, select
    "hardshrink_grad": 3, "softshrink_grad": 3,  # absolute, compare, select
    "leaky_relu_grad": 3, "rrelu_grad": 3,  # compare, multiply, select
    "prelu_grad": 3,  # for each of the two gradients: compare, multiply, select
    "elu_grad": 4,  # from the output: compare, add, multiply, select
    "logit_grad": 3,  # g / (x × (1 - x))
    "sigmoid_grad": 3,  # g × y × (1 - y)
    "tanh_grad": 3,  # g × (1 - y²)
    "silu_grad": 9,  # sigmoid (4); g × s × (1 + x × (1 - s)): subtract, multiply, add, multiply, multiply
    "glu_grad": 5,  # sigmoid (4) and 5 more for each pair of halves: 9 for two elements, rounded up
    "gelu_grad": 11,  # cdf (4: multiply, erf, add, halve), pdf (4: square, multiply, exp, multiply), multiply, add, × g
    "gelu_tanh_grad": 22,  # inner (5), tanh (5), its derivative (2), inner's derivative (3), the two terms (6), × g
    "softplus_grad": 6,  # multiply by beta, exp, add, divide, multiply, compare
    "mish_grad": 17,  # softplus (2), tanh (5), sigmoid (4), t + x × s × (1 - t²) (5), × g
    "logsigmoid_grad": 5,  # sigmoid (4), × g
    "hardsigmoid_grad": 4,  # two comparisons, multiply, select
    "hardswish_grad": 6,  # two comparisons, multiply, add, × g, select
    "dropout_grad": 2,  # multiply by the mask, scale
    "fake_quantize_grad": 3,  # two comparisons, select
    # Steps of an optimizer, for each element of a parameter.
    "sgd_step": 2,  # multiply by the rate, subtract
    "momentum_step": 4,  # decay the momentum, add the gradient; multiply by the rate, subtract
    "adagrad_step": 6,  # square, add; sqrt, add epsilon, divide, multiply and subtract as one
    "adam_step": 14,  # first moment (3), second moment (4), two corrections, sqrt, add, divide, multiply, subtract
    "adamw_step": 16,  # adam, and the decay: multiply, subtract
}  # fmt: skip
"""FLOPs for each output element."""

COMPLEX_FLOPS_PER_ELEMENT: dict[str, int] = {
    "mul": 6,  # four products, two additions
    "square": 5,  # three products, two additions
    "div": 11,  # multiply by the conjugate (6), squared absolute (3), two divisions
    "reciprocal": 6,  # squared absolute (3), two divisions, negate
    "conj": 1,  # negate the imaginary part
    "where": 1, "masked_fill": 1, "compare": 2,
    "fma": 8, "addcmul": 14, "lerp": 10,
}  # fmt: skip
"""The same where the output is complex; other functions do their work for both parts."""

COMPLEX_TO_REAL: dict[str, int] = {
    "abs": 4,  # two squares, add, sqrt
    "angle": 1,  # atan2
}
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

    One for each elementary operation (add, multiply, compare, select, exp, sqrt, ...); the composite ones have their
    parts written beside them. Several outputs each cost theirs, unless `elements` says how many are computed. A complex
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
