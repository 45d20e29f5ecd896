"""Products of ONNX, plain, fused and quantized.

Matrices, convolutions, recurrent layers, attention, experts, layers that carry a state from token to token, and optimizers.
"""

from dataclasses import replace
from typing import Any

from opcost.core import shapes
from opcost.core.graph import NO_ATTRS
from opcost.core.shapes import Dims, Extent, Mismatch, Unknown, known  # fmt: skip
from opcost.frontends.nodes.meaning import NodeCall, Operand, OperatorMeaning, Out
from opcost.frontends.nodes.operators import matmul
from opcost.frontends.nodes.results import like, numel, one, with_bias
from opcost.frontends.nodes.windows import conv
from opcost.frontends.onnx.operators import stated

# -- matrices and convolutions -------------------------------------------------------------------------------------------


def _fused_matmul(call: NodeCall) -> OperatorMeaning:
    """The first axis of an operand may be the rows of the matrices, so that the batch comes between."""
    ins = [*call.ins]
    for place, name in enumerate(("transBatchA", "transBatchB")):
        if call.flag(name):
            x = call[place]
            ins[place] = replace(x, shape=(*x.dims[1:-1], x.dims[0], x.dims[-1]))
    return matmul(replace(call, ins=ins))


def _gemm_float8(call: NodeCall) -> OperatorMeaning:
    found = matmul(call)
    return found._replace(outs=[found.outs[0]._replace(dtype=stated(call, "dtype", "float32"))])


def _matmul_bits(call: NodeCall) -> OperatorMeaning:
    """The weight is packed; the attributes say how many elements it has."""
    attrs = with_bias(call.at("bias"), depth=call.whole("K"))
    return one("matmul", attrs, (*call["x"].dims[:-1], call.whole("N")), call["x"].dtype)


def _deform_conv(call: NodeCall) -> OperatorMeaning:
    found, bias = conv(call), call.at("bias")
    reads = [call["x"], call["weight"], bias, call["offset"], call.at("mask")]
    return found._replace(attrs={**found.attrs, "sampled": 4, "bias": bias is not None}, reads=reads)


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


def _fused_attention(call: NodeCall) -> OperatorMeaning:
    """Queries, keys and values are given, or packed into one tensor, or made of one by the product with their weights.

    Sequences without their padding, one after another, are taken as equally long, since their lengths are data.
    """
    x, key, value, weight = call["query"], call.at("key"), call.at("value"), call.at("weight")
    bias, mask, sequences, past = (call.at(name) for name in ("bias", "mask", "sequences", "past"))
    heads = call.whole("num_heads")
    counts = (heads, *[call.whole("kv_num_heads", heads)] * 2)

    def seen(each: Operand, count: int, features: Extent) -> Operand:
        *batch, length = each.dims[: 2 if sequences is None else 1]
        return call.viewed(each, (*batch, count, length, features))

    if weight is not None:
        depth, width = known(weight.dims[:2])
        sizes = call.integers("qkv_hidden_sizes") or (width // 3,) * 3
        dtype = x.dtype if bias is None else bias.dtype
        made = call.one("matmul", with_bias(bias, depth=depth), [x, weight, bias], (*x.dims[:-1], width), dtype)
        parts = [seen(made, heads, size // heads) for size in sizes]
        bias = None
        if (
            mask is not None and sequences is None and len(mask.shape or ()) < 3
        ):  # lengths, which are not added to scores
            mask = None
    elif key is None and len(x.dims) > 3:  # the last two axes are the three parts, and features
        parts = [seen(x, heads, x.dims[-1]) for _ in range(3)]
    elif key is None and "kv_num_heads" in call.attrs:  # one product made all three
        features = shapes.divided(x.dims[2], sum(counts), "features", "heads")
        parts = [seen(x, count, features) for count in counts]
    elif key is None or value is None:  # packed together in ways that differ from version to version
        raise Unknown
    else:
        pairs = zip((x, key, value), counts, strict=True)
        parts = [
            each
            if len(each.dims) == 4
            else seen(each, count, shapes.divided(each.dims[-1], count, "features", "heads"))
            for each, count in pairs
        ]
    q, k, v = parts if bias is None else [call.one("elementwise", {"fn": "add"}, [each, bias]) for each in parts]
    if call.flag("do_rotary"):
        angles = [call.at("cosines"), call.at("sines")]
        q, k = (call.one("elementwise", {"fn": "mul_mul_add"}, [each, *angles]) for each in (q, k))
    if past is not None and len(past.dims) == 5:
        before: list[Operand | None] = [call.viewed(past, past.dims[1:])] * 2
    else:
        before = [call.at("past_key"), call.at("past_value")]
    k, v = (_longer(call, each, earlier) for each, earlier in zip((k, v), before, strict=True))
    *batch, _, length, _ = q.dims
    shape = (*q.dims[:-1], v.dims[-1]) if q is x else (*batch, length, shapes.times(v.dims[-1], heads))
    outs = [Out(shape, q.dtype), *[Out(each.shape, each.dtype, home=each) for each in (k, v)]]
    outs.append(Out((*q.dims[:-1], k.dims[-2]), q.dtype))  # the scores
    if weight is not None:
        outs[1:] = [Out((2, *k.dims), k.dtype)]
    attrs: dict[str, Any] = {"causal": True} if call.flag("unidirectional") else {}
    if sequences is not None:
        attrs["sequences"] = known(sequences.dims[:1])[0]
    return OperatorMeaning("attention", attrs, outs, [q, k, v, mask])


def _longer(call: NodeCall, x: Operand, past: Operand | None) -> Operand:
    """Keys or values with those of earlier steps before them."""
    if past is None or len(past.dims) < 4:
        return x
    shape = shapes.replaced(x.dims, 2, shapes.total((past.dims[2], x.dims[2])))
    return call.one("copy", NO_ATTRS, [past, x], shape, x.dtype)


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


def _optimize(call: NodeCall) -> OperatorMeaning:
    """A step of an optimizer for several parameters: all of them, then their gradients, then their states."""
    parts = 4 if call.node.op == "Adam" else 3  # tensors of each parameter: itself, its gradient, and the state
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
    return OperatorMeaning("elementwise", {"fn": call.text("fn"), "elements": elements}, outs)
