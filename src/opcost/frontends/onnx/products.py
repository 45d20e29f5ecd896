"""Products of ONNX, plain, fused and quantized.

Matrices, convolutions, recurrent layers, attention, experts, layers that carry a state from token to token, and optimizers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

from opcost.core import shapes
from opcost.core.graph import NO_ATTRS, Attr
from opcost.core.shapes import Dims, Extent, Mismatch, Unknown, known  # fmt: skip
from opcost.frontends.nodes.meaning import NodeCall, Operand, OperatorMeaning, Out
from opcost.frontends.nodes.results import like, numel, one, product, with_bias
from opcost.frontends.onnx.model import DTYPES
from opcost.frontends.onnx.operators import MICROSOFT, PREVIEW, TRAINING, handles
from opcost.frontends.onnx.reductions import OnnxWindow

_ACTIVATIONS = {
    "Relu": "relu", "Tanh": "tanh", "Sigmoid": "sigmoid", "LeakyRelu": "leaky_relu", "Clip": "clamp",
    "HardSigmoid": "hardsigmoid", "HardSwish": "hardswish", "Gelu": "gelu", "RELU": "relu", "GELU": "gelu",
}  # fmt: skip


def then(call: NodeCall) -> dict[str, Attr]:
    """What a fused operator applies to its result."""
    name = _ACTIVATIONS.get(call.text("activation"))
    return {"then": (name,)} if name else {}


# -- matrices ------------------------------------------------------------------------------------------------------------


def _transposed(call: NodeCall) -> tuple[bool, bool]:
    return call.flag("transA"), call.flag("transB")


@handles("FusedMatMul", "FusedMatMulActivation", "TransposeMatMul", domains=(MICROSOFT,))
def _matmul(call: NodeCall) -> OperatorMeaning:
    both = [call[0], call[1]]
    for place, x in enumerate(both):
        if call.flag(
            f"transBatch{'AB'[place]}"
        ):  # its first axis is the rows of the matrices, and the batch comes between
            both[place] = replace(x, shape=(*x.dims[1:-1], x.dims[0], x.dims[-1]))
    return product(both[0], both[1], None, call.given, transposed=_transposed(call), attrs=then(call))


@handles("Gemm")
@handles("FusedGemm", "GemmFastGelu", "GemmFloat8", domains=(MICROSOFT,))
def _gemm(call: NodeCall) -> OperatorMeaning:
    eight = call.node.op == "GemmFloat8"
    bias = call.at(2) if call.attrs.get("beta", not eight) else None
    dtype = DTYPES.get(call.whole("dtype", 1), "float32") if eight else ""
    after: dict[str, Any] = {"then": ("gelu_tanh",)} if call.node.op == "GemmFastGelu" else then(call)
    return product(call[0], call[1], bias, call.given, dtype, _transposed(call), after)


@handles("MatMulInteger")
@handles("MatMulInteger16", "MatMulIntegerToFloat", "DynamicQuantizeMatMul", domains=(MICROSOFT,))
def _matmul_integer(call: NodeCall) -> OperatorMeaning:
    """DynamicQuantizeMatMul also finds the scale of its first operand and converts it to bytes."""
    name, a = call.node.op, call[0]
    if name == "DynamicQuantizeMatMul":
        a = call.one("quantize", NO_ATTRS, [a], dtype="uint8")
    reads = [a, *[each for each in call.given if each is not call[0]]]
    dtype = "int32" if name in ("MatMulInteger", "MatMulInteger16") else call[2].dtype
    return product(a, call[1], call.at(6 if name == "MatMulIntegerToFloat" else 4), reads, dtype)


@handles("QLinearMatMul", domains=("", MICROSOFT))
@handles("QGemm", domains=(MICROSOFT,))
def _qlinear_matmul(call: NodeCall) -> OperatorMeaning:
    a, b = call[0], call[3]
    reads = [a, b, *[each for each in call.given if each not in (a, b)]]
    if call.node.op == "QLinearMatMul":
        return product(a, b, None, reads, call[7].dtype)
    zero = call.at(8)
    return product(a, b, call.at(6), reads, zero.dtype if zero is not None else "float32", _transposed(call))


@handles("MatMulNBits", "MatMulBnb4", domains=(MICROSOFT,))
def _matmul_bits(call: NodeCall) -> OperatorMeaning:
    """The weight is packed; the attributes say how many elements it has."""
    bias = call.at(5) if call.node.op == "MatMulNBits" else None
    shape = (*call[0].dims[:-1], call.whole("N"))
    return one("matmul", with_bias(bias, depth=call.whole("K")), shape, call[0].dtype)


# -- convolutions --------------------------------------------------------------------------------------------------------


def added_then(attrs: dict[str, Any], bias: Operand | None) -> dict[str, Any]:
    """The attributes of a convolution that adds another tensor before its activation."""
    return {**attrs, "then": ("add", *attrs.get("then", ())), "bias": bias is not None}


@handles("Conv")
@handles("FusedConv", domains=(MICROSOFT,))
@handles("NhwcConv", "NhwcFusedConv", "Conv", domains=("com.ms.internal.nhwc",))
@handles("NhwcConv", "NhwcFusedConv", domains=(MICROSOFT,))
def _conv(call: NodeCall) -> OperatorMeaning:
    """Channels may come last in the image, not in the weight."""
    x, weight, bias, more = call[0], call[1], call.at(2), call.at(3)
    last = call.node.op.startswith("Nhwc") or call.node.domain == "com.ms.internal.nhwc"
    over = OnnxWindow(call, x, weight, last=last)
    attrs = {**over.geometry, **then(call)}
    if last:
        more = None
    if more is not None:
        attrs = added_then(attrs, bias)
    return one("conv", attrs, over.shape(weight.dims[0]), x.dtype, [x, weight, bias, more])


@handles("ConvInteger", "QLinearConv", domains=("", MICROSOFT))
def _quantized_conv(call: NodeCall) -> OperatorMeaning:
    integer, last = call.node.op == "ConvInteger", call.flag("channels_last")
    x, weight, bias = call[0], call[1 if integer else 3], None if integer else call.at(8)
    over = OnnxWindow(call, x, weight, last=last)
    shape = over.shape(weight.dims[0])
    attrs = with_bias(bias, macs=numel(shape) * prod(known(weight.dims[1:])), **over.geometry)
    return one("conv", attrs, shape, "int32" if integer else call[7].dtype, call.given)


@handles("ConvTranspose")
def _conv_transpose(call: NodeCall) -> OperatorMeaning:
    x, weight = call[0], call[1]
    over = OnnxWindow(call, x, weight)
    target = call.integers("output_shape")
    space = target[2 - len(x.dims) :] if target else over.spread(call.integers("output_padding"))
    shape = (x.dims[0], shapes.times(weight.dims[1], call.whole("group", 1)), *space)
    return one("conv", {"transposed": True, **over.geometry}, shape, x.dtype, [x, weight, call.at(2)])


@handles("DeformConv")
def _deform_conv(call: NodeCall) -> OperatorMeaning:
    x, weight, bias = call[0], call[1], call.at(3)
    over = OnnxWindow(call, x, weight)
    attrs = {"sampled": 4, "bias": bias is not None, **over.geometry}
    return one("conv", attrs, over.shape(weight.dims[0]), x.dtype, [x, weight, bias, call[2], call.at(4)])


@handles("LSTM", "GRU", "RNN")
@handles("DynamicQuantizeLSTM", domains=(MICROSOFT,))
def _recurrent(call: NodeCall) -> OperatorMeaning:
    x, state, name = call[0], call[2], call.node.op
    hidden = call.whole("hidden_size") or known(state.dims[-1:])[0]
    directions = 2 if call.text("direction") == "bidirectional" else 1
    length, batch, width = x.dims if not call.whole("layout") else shapes.swapped(x.dims, 0, 1)
    cell = "lstm" if name.endswith("LSTM") else "gru" if name == "GRU" else "rnn_tanh"
    if name == "RNN" and call.attrs.get("activations", ("Tanh",))[0] == "Relu":
        cell = "rnn_relu"
    steps = numel((length, batch))
    layers = ((known((width,))[0], hidden, hidden),) * directions
    attrs = with_bias(call.at(3), cell=cell, steps=steps, layers=layers)
    every: Dims = (length, directions, batch, hidden)
    last: Dims = (directions, batch, hidden)
    if call.whole("layout"):
        every, last = (batch, length, directions, hidden), (batch, directions, hidden)
    if name == "LSTM" and call.at(7) is not None:  # a product and an addition for three of its gates
        call.one("elementwise", {"fn": "fma"}, [call[7]], (3 * steps, directions, hidden), x.dtype)
    return OperatorMeaning("recurrent", attrs, [Out(every, x.dtype), Out(last, x.dtype), Out(last, x.dtype)])


# -- attention -----------------------------------------------------------------------------------------------------------


def _heads(call: NodeCall, x: Operand, heads: int) -> Operand:
    """(batch, length, heads × features) seen as (batch, heads, length, features)."""
    if len(x.dims) == 4:
        return x
    batch, length, width = x.dims
    return call.viewed(x, (batch, heads, length, shapes.divided(width, heads, "features", "heads")))


def _longer(call: NodeCall, x: Operand, past: Operand | None) -> Operand:
    """Keys or values with those of earlier steps before them."""
    if past is None or len(past.dims) < 4:
        return x
    shape = shapes.replaced(x.dims, 2, shapes.total((past.dims[2], x.dims[2])))
    return call.one("copy", NO_ATTRS, [past, x], shape, x.dtype)


def _attend(
    q: Operand, k: Operand, v: Operand, shape: Dims, mask: Operand | None = None, *, causal: bool = False
) -> OperatorMeaning:
    outs = [Out(shape, q.dtype), *[Out(each.shape, each.dtype, home=each) for each in (k, v)]]
    outs.append(Out((*q.dims[:-1], k.dims[-2]), q.dtype))  # the scores
    return OperatorMeaning("attention", {"causal": True} if causal else {}, outs, [q, k, v, mask])


def _biased(call: NodeCall, parts: Sequence[Operand], bias: Operand | None) -> list[Operand]:
    if bias is None:
        return [*parts]
    return [call.one("elementwise", {"fn": "add"}, [each, bias]) for each in parts]


@handles("Attention")
def _attention(call: NodeCall) -> OperatorMeaning:
    """Of ONNX itself: queries, keys and values are given."""
    heads, groups = call.whole("q_num_heads"), call.whole("kv_num_heads")
    q = _heads(call, call[0], heads)
    k = _longer(call, _heads(call, call[1], groups), call.at(4))
    v = _longer(call, _heads(call, call[2], groups), call.at(5))
    features = v.dims[-1]
    whole: Extent = None if features is None else features * known((q.dims[1],))[0]
    shape: Dims = (*q.dims[:-1], features) if q is call[0] else (q.dims[0], q.dims[2], whole)
    return _attend(q, k, v, shape, call.at(3), causal=call.flag("is_causal"))


@handles("FlexAttention", domains=(PREVIEW,))
def _flex(call: NodeCall) -> OperatorMeaning:
    """Without graphs that change scores or probabilities: the walk runs those."""
    return _attend(call[0], call[1], call[2], (*call[0].dims[:-1], call[2].dims[-1]))


@handles("Attention", "QAttention", domains=(MICROSOFT,))
def _projected_attention(call: NodeCall) -> OperatorMeaning:
    """Of ONNX Runtime: the product with the weights of queries, keys and values comes first."""
    x, weight, bias = call[0], call[1], call.at(2)
    heads = call.whole("num_heads")
    mask, past = (call.at(5), call.at(8)) if call.node.op == "QAttention" else (call.at(3), call.at(4))
    batch, length, _ = x.dims
    dtype = bias.dtype if bias is not None else x.dtype
    depth, width = known(weight.dims[:2])
    sizes = call.integers("qkv_hidden_sizes") or (width // 3,) * 3
    made = call.one("matmul", with_bias(bias, depth=depth), [x, weight, bias], (batch, length, width), dtype)
    q, k, v = (call.viewed(made, (batch, heads, length, size // heads)) for size in sizes)
    if past is not None and len(past.dims) == 5:
        half = call.viewed(past, past.dims[1:])
        k, v = _longer(call, k, half), _longer(call, v, half)
    # A mask is added to scores; lengths of sequences are not.
    mask = mask if mask is not None and mask.shape is not None and len(mask.shape) > 2 else None
    found = _attend(q, k, v, (batch, length, sizes[2]), mask, causal=call.flag("unidirectional"))
    return found._replace(outs=[found.outs[0], Out((2, *k.dims), dtype)])


@handles("MultiHeadAttention", "DecoderMaskedMultiHeadAttention", domains=(MICROSOFT,))
def _multi_head(call: NodeCall) -> OperatorMeaning:
    heads = call.whole("num_heads")
    places = (10, 4, 5, 6) if call.node.op.startswith("Decoder") else (3, 5, 6, 7)
    x, (bias, mask, *past) = call[0], [call.at(place) for place in places]
    if len(x.dims) == 5:  # packed: (batch, length, heads, 3, features)
        batch, length, _, _, features = x.dims
        q, k, v = (call.viewed(x, (batch, heads, length, features)) for _ in range(3))
    elif call.at(2) is None:  # keys and values packed together, in ways that differ from version to version
        raise Unknown
    else:
        q, k, v = (_heads(call, call[place], heads) for place in range(3))
    q, k, v = _biased(call, (q, k, v), bias)
    k, v = _longer(call, k, past[0]), _longer(call, v, past[1])
    shape = (q.dims[0], q.dims[2], numel((heads, v.dims[-1])))
    return _attend(q, k, v, shape, mask, causal=call.flag("unidirectional"))


@handles("PackedAttention", "PackedMultiHeadAttention", domains=(MICROSOFT,))
def _packed(call: NodeCall) -> OperatorMeaning:
    """Sequences without their padding, one after another: taken as equally long, since their lengths are data."""
    heads, projected = call.whole("num_heads"), call.node.op == "PackedAttention"
    x, bias, tokens = call[0], call.at(2 if projected else 3), call[0].dims[0]
    sequences = known(call[3 if projected else 4].dims[:1])[0]
    if projected:
        depth, width = known(call[1].dims)
        sizes = call.integers("qkv_hidden_sizes") or (width // 3,) * 3
        made = call.one("matmul", {"depth": depth, "bias": True}, [x, call[1], bias], (tokens, width))
        parts = [(made, size // heads) for size in sizes]
    elif call.at(1) is None:  # (tokens, heads, 3, features)
        parts = [(x, known(x.dims[-1:])[0])] * 3
    else:
        parts = [(call[place], known(call[place].dims[-1:])[0] // heads) for place in range(3)]
    views = [call.viewed(each, (heads, tokens, features)) for each, features in parts]
    q, k, v = _biased(call, views, None if projected else bias)
    shape: Dims = (tokens, heads * parts[2][1])
    found = _attend(q, k, v, shape, call.at(5 if projected else 6))
    return found._replace(attrs={**found.attrs, "sequences": sequences})


@handles("GroupQueryAttention", domains=(MICROSOFT,))
def _grouped(call: NodeCall) -> OperatorMeaning:
    """Causal, with the keys and values of earlier steps; where they are packed with the queries, one product made all three."""
    heads, groups = call.whole("num_heads"), call.whole("kv_num_heads")
    x, batch, length = call[0], call[0].dims[0], call[0].dims[1]
    counts = (heads, groups, groups)
    if call.at(1) is None:
        features = shapes.divided(x.dims[2], heads + 2 * groups, "features", "heads")
        q, k, v = (call.viewed(x, (batch, count, length, features)) for count in counts)
    else:
        q, k, v = (_heads(call, call[place], count) for place, count in enumerate(counts))
    if call.flag("do_rotary"):
        angles = [call.at(7), call.at(8)]
        q, k = (call.one("elementwise", {"fn": "mul_mul_add"}, [each, *angles]) for each in (q, k))
    k, v = _longer(call, k, call.at(3)), _longer(call, v, call.at(4))
    return _attend(q, k, v, (batch, length, numel((heads, v.dims[-1]))), causal=True)


@handles("MoE", domains=(MICROSOFT,), inputs="x router first first_bias second second_bias third")
@handles("QMoE", domains=(MICROSOFT,), inputs="x router first - first_bias second - second_bias third")
def _experts(call: NodeCall) -> OperatorMeaning:
    """Each token goes through `k` of the experts: two products, three where the activation has a gate."""
    x, first, second, third = call["x"], call["first"], call["second"], call.at("third")
    biases = call.at("first_bias"), call.at("second_bias")
    quantized, name = call.node.op == "QMoE", call.text("activation_type", "relu")
    rows = numel(x.dims[:-1]) * call.whole("k", 1)
    width = known((x.dims[-1],))[0]
    pack = 8 // call.whole("expert_weight_bits", 4) if quantized else 1
    inner = known((second.dims[1 if second.dims[2] == width and not quantized else 2],))[0] * pack
    gated = name == "swiglu" or third is not None
    fns = {"gelu": ("gelu", "geglu"), "silu": ("silu", "swiglu"), "swiglu": ("silu", "swiglu")}
    plain, with_gate = fns.get(name, ("relu", "add_relu"))
    reads = [x, first, biases[0], third, call["router"]]
    up = call.one("matmul", with_bias(biases[0], depth=width), reads, (rows, inner * (1 + gated)))
    act = call.one("elementwise", {"fn": with_gate if gated else plain}, [up], (rows, inner))
    attrs = with_bias(biases[1], depth=inner, macs=rows * inner * width)
    return like(x, "matmul", attrs, [act, second, biases[1]])


# -- layers that carry a state from token to token -----------------------------------------------------------------------


@handles("LinearAttention", domains=("", MICROSOFT))
def _linear_attention(call: NodeCall) -> OperatorMeaning:
    """Heads are side by side in the last axis; ONNX Runtime may keep the states of several last tokens."""
    queries, groups = call.whole("q_num_heads"), call.whole("kv_num_heads")
    batch, length, width = call[0].dims
    deep = shapes.divided(width, queries, "features", "heads")
    wide = shapes.divided(call[2].dims[2], groups, "features", "heads")
    state: Dims = (batch, groups, deep, wide)
    shape: Dims = (batch, length, shapes.times(wide, max(queries, groups)))
    found = _recurrence(call, call.at(3), call.at(4), call.at(5), state, shape, deep)
    kept = call.whole("state_window")
    return found._replace(outs=[found.outs[0], Out((kept, *state), found.outs[1].dtype)]) if kept else found


@handles("GatedDeltaNet", domains=(MICROSOFT,))
def _gated_delta(call: NodeCall) -> OperatorMeaning:
    """The same on tokens of several sequences one after another, with an axis of heads."""
    if call.at(2) is None:  # all three packed into one, in an order that follows from the state
        raise Unknown
    q, v, past, lengths = call[0], call[2], call.at(6), call.at(3)
    groups, wide, deep = v.dims[-2], v.dims[-1], q.dims[-1]
    batch = 1 if len(v.dims) == 3 else v.dims[0]
    if past is not None or lengths is not None:
        batch = past.dims[0] if past is not None else shapes.total((call[3].dims[0], -1))
    shape = (*v.dims[:-2], max(known((q.dims[-2], groups))), wide)
    decay, beta = call.at(4), call.at(5)
    if call.text("gate_activation", "none") == "qwen" and decay is not None:
        decay = _gate(call, decay, call.at(8), call.at(7))
    if call.text("beta_activation", "none") == "sigmoid" and beta is not None:
        beta = call.one("elementwise", {"fn": "sigmoid"}, [beta])
    if call.flag("qk_l2_norm"):
        for each in (q, call[1]):
            call.one("norm", {"fn": "lp"}, [each])
    found = _recurrence(call, past, decay, beta, (batch, groups, wide, deep), shape, deep)
    if capacity := call.whole("state_update_capacity"):
        each_groups, keys, each_wide, each_deep = known((groups, call[1].dims[-2], wide, deep))
        update: Dims = (batch, capacity * (each_groups + keys * each_deep + each_groups * each_wide))
        return found._replace(outs=[*found.outs, Out(update, v.dtype)])
    return found


@handles("LinearAttentionGate", domains=(MICROSOFT,))
def _attention_gate(call: NodeCall) -> OperatorMeaning:
    decay, rate = _gate(call, call[0], call[1], call[2]), call.at(3)
    outs = [Out(decay.shape, decay.dtype, home=decay)]
    if rate is None:
        return OperatorMeaning("view", NO_ATTRS, outs, [decay])
    attrs: dict[str, Any] = {"fn": "sigmoid", "elements": numel(rate.shape)}
    return OperatorMeaning("elementwise", attrs, [*outs, Out(rate.shape, rate.dtype)], [rate, decay])


def _gate(call: NodeCall, x: Operand, bias: Operand | None, factor: Operand | None) -> Operand:
    """factor × softplus(x + bias)."""
    for fn, other in (("add", bias), ("softplus", None), ("mul", factor)):
        if other is not None or fn == "softplus":
            x = call.one("elementwise", {"fn": fn}, [x, other])
    return x


def _recurrence(
    call: NodeCall, past: Operand | None, decay: Operand | None, beta: Operand | None, state: Dims, shape: Dims, deep: Extent
) -> OperatorMeaning:  # fmt: skip
    """Every token adds the outer product of its key and value to the state, from which its query reads.

    The state may fade before, and by the delta rule what it already has for the key is taken from the value. A chunk of
    tokens at a time computes the same products in another order.
    """
    q, k, v = call[0], call[1], call[2]
    rule = call.text("update_rule", "gated_delta")
    if rule not in ("linear", "gated", "delta", "gated_delta"):
        raise Mismatch(f"its update rule is {rule!r}")
    dtype = past.dtype if past is not None else v.dtype
    cells = numel(v.shape) * known((deep,))[0]  # of the states after each token
    if rule.startswith("gated") and decay is not None:
        factor = call.one("elementwise", {"fn": "exp"}, [decay])
        past = call.one("elementwise", {"fn": "mul", "elements": cells}, [factor, past], state, dtype)
    if rule.endswith("delta"):
        known_value = call.one("matmul", {"depth": deep}, [k, past], v.shape, v.dtype)
        v = call.one("elementwise", {"fn": "sub"}, [v, known_value])
        v = call.one("elementwise", {"fn": "mul"}, [v, beta])
    now = call.one("matmul", {"macs": cells}, [k, v, past], state, dtype)
    outs = [Out(shape, q.dtype), Out(state, dtype, home=now)]
    return OperatorMeaning("matmul", {"depth": deep, "then": ("mul",)}, outs, [q, now])


@handles("CausalConvWithState", domains=("", MICROSOFT), inputs="x weight bias past")
@handles("VarlenCausalConvWithState", domains=(MICROSOFT,), inputs="x weight begins bias past")
def _causal_conv(call: NodeCall) -> OperatorMeaning:
    """Each channel by itself, along the tokens that came before, of which the last are kept for the next call."""
    packed = call.node.op.startswith("Varlen")  # (tokens, channels), and the places where sequences begin
    x, weight = call["x"], call["weight"]
    axis = 1 if call.flag("channels_last") else shapes.axis_of(-1, len(x.dims))
    kernel, spacing, kept = known(weight.dims[2:]), call.whole("dilation", 1), call.whole("state_window")
    if not kernel:
        raise Mismatch("its weight has no kernel")
    before = (kernel[-1] - 1) * spacing
    if packed:
        state: Dims = (shapes.total((call["begins"].dims[0], -1)), x.dims[1], before)
    else:
        state = shapes.replaced(x.dims, axis, before)
    carried = call.one("copy", NO_ATTRS, [x, call.at("past")], (kept, *state) if kept else state)
    others = (1,) * (len(kernel) - 1)
    attrs: dict[str, Any] = {"kernel": kernel, "stride": (1, *others), "dilation": (*others, spacing)}
    if call.text("activation", "none") != "none":
        attrs["then"] = ("silu",)
    outs = [Out(x.shape, x.dtype), Out(carried.shape, carried.dtype, home=carried)]
    if packed:
        outs.append(Out((state[0], call.whole("state_update_capacity"), x.dims[1]), x.dtype))
    return OperatorMeaning("conv", attrs, outs, [x, weight, call.at("bias")])


_STEPS = {"Adam": ("adam_step", 4), "Adagrad": ("adagrad_step", 3), "Momentum": ("momentum_step", 3)}
"""The function, and the number of tensors that belong to each parameter: itself, its gradient, and the state."""


@handles(*_STEPS, domains=(TRAINING,))
def _optimize(call: NodeCall) -> OperatorMeaning:
    """A step of an optimizer for several parameters: all of them, then their gradients, then their states."""
    fn, parts = _STEPS[call.node.op]
    given = call.ins[2:]
    count = len(given) // parts
    weights = [each for each in given[:count] if each is not None]
    if not count or count * parts != len(given) or len(weights) < count:
        raise Mismatch(f"it has {len(given)} tensors, and {parts} belong to each parameter")
    elements = sum(numel(each.shape) for each in weights)
    kept = [each for each in (*weights, *given[2 * count :]) if each is not None]
    outs = [Out(each.shape, each.dtype) for each in kept]
    more = {"norm_coefficient": "fma", "norm_coefficient_post": "mul"}  # a penalty on large weights, before and after
    if call.node.op == "Momentum":
        more["beta"] = "mul"
        if call.text("mode") == "nesterov":
            call.step("elementwise", {"fn": "fma", "elements": elements}, weights, outs[:count])
    for name, function in more.items():
        if call.attrs.get(name, 0.0) not in (0.0, *[1.0] * (name == "beta")):
            call.step("elementwise", {"fn": function, "elements": elements}, weights, outs[:count])
    return OperatorMeaning("elementwise", {"fn": fn, "elements": elements}, outs)
