"""Operators that multiply and accumulate: convolutions, matrix products, attention, recurrent layers, einsum."""

from collections.abc import Mapping
from math import prod
from typing import NamedTuple

from opcost.core.graph import FLOPS_PER_MAC, Cost, TensorSpec
from opcost.core.shapes import Mismatch, label_extents
from opcost.errors import RuleError
from opcost.rules.elementwise import FLOPS_PER_ELEMENT, SOFTMAX_FLOPS
from opcost.rules.registry import OpView, Rule, reals


def _fused_flops(op: OpView) -> int:
    """FLOPs of the elementwise functions that an operator applies to its own result (`then`)."""
    return sum(op.outs[0].numel * FLOPS_PER_ELEMENT[fn] for fn in op.texts("then"))


# -- convolutions ------------------------------------------------------------------------------------------------------


def conv(op: OpView) -> Cost:
    """y.numel × (in channels / groups) × prod(kernel) MACs.

    Transposed: x.numel × (out channels / groups) × prod(kernel), since there each input element meets the kernel.
    Positions in the padding count. A weight that is packed out of sight brings the exact number with it. A bias adds
    y.numel FLOPs; a fused activation adds its own.
    Gradient: each of the input's and the weight's gradient pairs the same elements as the forward pass and so has its
    MACs once; the bias' gradient adds up grad_y: grad_y.numel FLOPs.
    Sampled (deformable): each element under the kernel is made from `sampled` source elements first, a product and an
    addition each, twice as much in the gradient, for x and for the positions.
    """
    if op.get("grads") is not None:
        grads = op.texts("grads")
        grad_y, x, weight = op.ins[:3]
        products = ("input" in grads) + ("weight" in grads)
        read = op.bytes_in
        if products < 2:
            read = grad_y.nbytes + ("input" in grads) * weight.nbytes + ("weight" in grads) * x.nbytes
        bias_flops = grad_y.numel * reals(grad_y) if "bias" in grads else 0
        return op.cost(
            macs=products * _conv_macs(op, x=x, y=grad_y, weight=weight),
            flops=bias_flops + 2 * _sampling_flops(op, x=x, y=grad_y, weight=weight),
            bytes_read=read,
        )
    y = op.outs[0]
    if op.get("macs") is not None:
        bias_flops = y.numel if op.flag("bias") else 0
        return op.cost(macs=op.integer("macs"), flops=bias_flops + _fused_flops(op))
    x, weight, *others = op.ins
    bias_flops = y.numel * reals(y) if op.flag("bias", default=bool(others)) else 0
    return op.cost(
        macs=_conv_macs(op, x=x, y=y, weight=weight),
        flops=bias_flops + _fused_flops(op) + _sampling_flops(op, x=x, y=y, weight=weight),
    )


def _conv_macs(op: OpView, *, x: TensorSpec, y: TensorSpec, weight: TensorSpec) -> int:
    """Products of an element with a weight, counted on the side whose every element meets a whole kernel."""
    side = x if op.flag("transposed") else y
    return side.numel * prod(weight.dims[2 if op.flag("grouped") else 1 :])


def _sampling_flops(op: OpView, *, x: TensorSpec, y: TensorSpec, weight: TensorSpec) -> int:
    """FLOPs of the samples that a deformable convolution takes: one for each channel of x and each kernel position."""
    sampled = op.integer("sampled", 0)
    if not sampled:
        return 0
    kernel = weight.dims[3 if op.flag("grouped") else 2 :]
    channels = -1 - len(kernel)
    positions = prod(y.dims[channels + 1 :]) * prod(y.dims[:channels])
    return positions * x.dims[channels] * prod(kernel) * sampled * 2


# -- matrix products, also ragged and sparse ones ----------------------------------------------------------------------


def matmul(op: OpView) -> Cost:
    """y.numel × depth MACs.

    `depth` is the number of products summed into one element of y. A ragged grouped product whose groups share the
    depth has y.numel × depth / groups. Sparse operands bring their exact number. Something added (a bias, the first
    operand of addmm) costs y.numel FLOPs; a fused activation adds its own.
    """
    y = op.outs[0]
    exact = op.get("macs") is not None
    macs = op.integer("macs") if exact else y.numel * op.integer("depth") // op.integer("groups", 1)
    return op.cost(macs=macs, flops=(y.numel * reals(y) if op.flag("bias") else 0) + _fused_flops(op))


def bilinear(op: OpView) -> Cost:
    """y.numel × in1 × in2 MACs.

    y_o = Σ_j (Σ_i x1_i W_oij) x2_j: the inner sum contracts the weight, in1 × in2 MACs for each output element, as
    the usual count of a bilinear form has it. The outer sum, in2 multiplications and additions, is part of the FLOPs:
    2 × y.numel × in2. A bias adds y.numel FLOPs.
    """
    _, _, weight, *bias = op.ins
    _, in1, in2 = weight.dims
    y = op.outs[0]
    outer = (8 if reals(y) == 2 else 2) * y.numel * in2
    return op.cost(macs=y.numel * in1 * in2, flops=outer + (y.numel * reals(y) if bias else 0))


def custom(op: OpView) -> Cost:
    """flops / 2 MACs.

    `flops` is what a formula gives that was registered with torch.utils.flop_counter, where a multiply-accumulate is two FLOPs.
    """
    flops = op.integer("flops")
    return Cost(flops // FLOPS_PER_MAC, flops, op.bytes_in, op.bytes_out)


# -- scaled dot-product attention as one fused operator ----------------------------------------------------------------

SCALE_FLOPS = 1
MASK_FLOPS = 1
SCORE_GRADIENT_FLOPS = 3  # dS = P × (dP - delta) × scale: subtract, multiply, scale
RECOMPUTE_FLOPS = 3  # p again from the stored log-sum-exp: scale, subtract, exp
DELTA_FLOPS = 2  # delta = Σ grad_y × y along the features: multiply, add, for each element of grad_y


def attention(op: OpView) -> Cost:
    """prod(batch) × L × S × (E + Ev) MACs.

    L queries meet S keys of E features (scores) and S values of Ev features (output); `batch` is that of q, so
    grouped keys and values count once for every query head. Softmax and scaling add 6 FLOPs for each score, a mask
    one more. Causal: the whole square, or with the convention `half` only Σ_i min(i + 1, S) pairs, aligned top left.
    Sequences packed along the length are taken as equally long. Where a mask of blocks skips others, `pairs` meet.
    Gradient: dV and dP have Ev, dQ and dK have E MACs for each pair; a kernel with 5 products also computes the
    scores again.
    """
    if not op.flag("grad"):
        q, k, v, *mask = op.ins
        scores = _scores(op, q, k)
        per_score = SCALE_FLOPS + SOFTMAX_FLOPS + (MASK_FLOPS if mask else 0)
        return op.cost(macs=scores * (q.dims[-1] + v.dims[-1]), flops=scores * per_score)
    grad_y, q, k, v = op.ins[:4]
    scores = _scores(op, q, k)
    recomputed = op.integer("products", 5) == 5
    features = (3 if recomputed else 2) * q.dims[-1] + 2 * v.dims[-1]
    per_score = SCORE_GRADIENT_FLOPS + (RECOMPUTE_FLOPS if recomputed else 0)
    return op.cost(macs=scores * features, flops=scores * per_score + grad_y.numel * DELTA_FLOPS)


def _scores(op: OpView, q: TensorSpec, k: TensorSpec) -> int:
    """Query-key pairs that are computed, over the whole batch."""
    if op.get("pairs") is not None:
        return op.integer("pairs")
    along = -3 if op.flag("heads_last") else -2
    sequences = op.integer("sequences", 1)
    length, source = q.dims[along] // sequences, k.dims[along] // sequences
    pairs = length * source
    if op.flag("causal") and op.convention.causal == "half":
        square = min(length, source)
        pairs = square * (square + 1) // 2 + (length - square) * source
    batch = prod(q.dims[:-1]) // q.dims[along] * sequences if q.dims[along] else 0
    return batch * pairs


# -- recurrent layers: all steps, layers and directions in one operator ------------------------------------------------


class Cell(NamedTuple):
    """Gates, and the arithmetic of one hidden unit in one step."""

    gates: int
    forward: int
    backward: int


def _cell(gates: int, name: str, added: int = 0) -> Cell:
    return Cell(gates, added + FLOPS_PER_ELEMENT[name], FLOPS_PER_ELEMENT[f"{name}_grad"])


CELLS = {
    "lstm": _cell(4, "lstm_cell"),
    "gru": _cell(3, "gru_cell"),
    "rnn_tanh": _cell(1, "tanh", added=1),  # h = f(Wx + Uh): 1 addition
    "rnn_relu": _cell(1, "relu", added=1),
}

BIASES = 2  # one on the input's side and one on the state's side of every gate


def recurrent(op: OpView) -> Cost:
    """Steps × Σ over layers of (gates × hidden × (input + output) + projection) MACs.

    `steps` is time steps times batch, or the sum of a packed batch; an LSTM has 4 gates, a GRU 3, a plain cell 1.
    The state that is fed back has the layer's output size; a projection hidden → output adds hidden × output MACs.
    The gates' arithmetic and biases are FLOPs. Gradient: twice the MACs, for what goes in and for the weights; less the
    products for a constant input and for constant first states, which are not computed.
    """
    cell = op.choice(CELLS, "cell")
    steps = op.integer("steps")
    grad = op.flag("grad")
    bias = BIASES * cell.gates if op.flag("bias") else 0
    layers: tuple[tuple[int, int, int], ...] = op.attrs["layers"]  # type: ignore[assignment]
    macs = units = fed_back = 0
    for size, hidden, output in layers:
        macs += cell.gates * hidden * (size + output)
        macs += hidden * output if output != hidden else 0
        units += hidden
        fed_back += cell.gates * hidden * output
    not_computed = op.integer("constant_states", 0) * fed_back
    if op.flag("constant_input"):
        size, hidden, _ = layers[0]
        not_computed += steps * cell.gates * hidden * size
    return op.cost(
        macs=steps * macs * (2 if grad else 1) - not_computed,
        flops=steps * units * ((cell.backward if grad else cell.forward) + bias),
    )


# -- Einstein summation ------------------------------------------------------------------------------------------------


def einsum(op: OpView) -> Cost:
    """Σ over pairs of operands, left to right, of prod(extents of the pair's labels) MACs.

    A label that only one operand has and that neither a later operand nor the output needs is summed away
    first: one FLOP for each element. A pair that shares no summed label is an elementwise product: FLOPs, not MACs.
    A single operand is summed or permuted and has no MACs. A repeated label takes the diagonal, which is free.
    """
    inputs, output, extents = _parsed(op.text("equation"), op.ins)
    scale = reals(op.outs[0])

    def size(labels: frozenset[str]) -> int:
        return prod(extents[label] for label in labels)

    macs = flops = 0
    left = frozenset(inputs[0])
    for index, labels in enumerate(inputs[1:], start=1):
        needed = frozenset(output).union(*inputs[index + 1 :])
        right = frozenset(labels)
        for alone, other in ((left, right), (right, left)):
            if alone - other - needed:
                flops += scale * size(alone)
        both, kept = left & right, (left | right) & needed
        pair = kept | both
        if both - needed:
            macs += size(pair)
        else:
            flops += size(pair) * (6 if scale == 2 else 1)
        left = kept
    if left - frozenset(output):
        flops += scale * size(left)
    return op.cost(macs=macs, flops=flops)


def _parsed(equation: str, operands: tuple[TensorSpec, ...]) -> tuple[list[str], str, Mapping[str, int]]:
    """The labels of each operand and of the output, and the extent of each label; an axis of extent 1 is broadcast."""
    left, arrow, output = equation.partition("->")
    inputs = left.split(",")
    ranks = [len(spec.dims) for spec in operands]
    if not arrow or [len(labels) for labels in inputs] != ranks or not set(output) <= set("".join(inputs)):
        raise RuleError(
            f"the equation {equation!r} does not fit operands of rank {', '.join(map(str, ranks))}",
            hint="an equation has an explicit output, one letter for each axis, no spaces and no ellipsis",
        )
    try:
        return inputs, output, label_extents(inputs, [spec.dims for spec in operands])
    except Mismatch as exc:
        raise RuleError(str(exc)) from None


RULES: dict[str, Rule] = {
    "conv": conv, "matmul": matmul, "bilinear": bilinear, "custom": custom, "attention": attention, "recurrent": recurrent,
    "einsum": einsum,
}  # fmt: skip
