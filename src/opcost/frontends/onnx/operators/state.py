"""Layers that carry a state from token to token: linear attention and causal convolutions; and what optimizers carry."""

from __future__ import annotations

from typing import Any

from opcost.core.graph import NO_ATTRS
from opcost.core.shapes import Dims, Extent, Mismatch, Unknown, axis_of, divided, known, replaced, times, total
from opcost.frontends.nodes.call import Call, Made, Meaning, Out, numel
from opcost.frontends.onnx.table import MICROSOFT, TRAINING, handles


@handles("LinearAttention", domains=("", MICROSOFT))
def _linear_attention(call: Call) -> Meaning:
    """Heads lie side by side in the last axis; ONNX Runtime may keep the states of the last tokens, not only of the last."""
    queries, groups = call.whole("q_num_heads"), call.whole("kv_num_heads")
    batch, length, width = call[0].dims
    deep = divided(width, queries, "features", "heads")
    wide = divided(call[2].dims[2], groups, "features", "heads")
    state: Dims = (batch, groups, deep, wide)
    shape: Dims = (batch, length, times(wide, max(queries, groups)))
    found = _recurrence(call, call.at(3), call.at(4), call.at(5), state, shape, deep)
    kept = call.whole("state_window")
    return found._replace(outs=[found.outs[0], Out((kept, *state), found.outs[1].dtype)]) if kept else found


@handles("GatedDeltaNet", domains=(MICROSOFT,))
def _gated_delta(call: Call) -> Meaning:
    """The same on tokens of several sequences one after another, with an axis of heads."""
    if call.at(2) is None or call[2].shape is None:  # all three packed into one, in an order that only the state tells
        raise Unknown
    q, v, past, lengths = call[0], call[2], call.at(6), call.at(3)
    groups, wide, deep = v.dims[-2], v.dims[-1], q.dims[-1]
    batch = past.dims[0] if past is not None else total((lengths.dims[0], -1)) if lengths is not None else v.dims[0]
    if past is None and lengths is None and len(v.dims) == 3:
        batch = 1
    shape = (*v.dims[:-2], max(known((q.dims[-2], groups))), wide)
    decay, beta = call.at(4), call.at(5)
    if call.text("gate_activation", "none") == "qwen" and decay is not None:
        decay = _gate(call, decay, call.at(8), call.at(7))
    if call.text("beta_activation", "none") == "sigmoid" and beta is not None:
        beta = call.step("elementwise", {"fn": "sigmoid"}, [beta], [Out(beta.shape, beta.dtype)])[0]
    if call.flag("qk_l2_norm"):
        for made in (q, call[1]):
            call.step("norm", {"fn": "lp"}, [made], [Out(made.shape, made.dtype)])
    found = _recurrence(call, past, decay, beta, (batch, groups, wide, deep), shape, deep)
    if capacity := call.whole("state_update_capacity"):
        each = known((groups, call[1].dims[-2], wide, deep))
        update: Dims = (batch, capacity * (each[0] + each[1] * each[3] + each[0] * each[2]))
        return found._replace(outs=[*found.outs, Out(update, v.dtype)])
    return found


@handles("LinearAttentionGate", domains=(MICROSOFT,))
def _attention_gate(call: Call) -> Meaning:
    decay, rate = _gate(call, call[0], call[1], call[2]), call.at(3)
    outs = [Out(decay.shape, decay.dtype, home=decay)]
    if rate is None:
        return Meaning("view", NO_ATTRS, outs, [decay])
    return Meaning(
        "elementwise",
        {"fn": "sigmoid", "elements": numel(rate.shape)},
        [*outs, Out(rate.shape, rate.dtype)],
        [rate, decay],
    )


def _gate(call: Call, x: Made, bias: Made | None, factor: Made | None) -> Made:
    """factor × softplus(x + bias)."""
    for fn, other in (("add", bias), ("softplus", None), ("mul", factor)):
        if other is not None or fn == "softplus":
            x = call.step("elementwise", {"fn": fn}, [x, other], [Out(x.shape, x.dtype)])[0]
    return x


def _recurrence(
    call: Call, past: Made | None, decay: Made | None, beta: Made | None, state: Dims, shape: Dims, deep: Extent
) -> Meaning:
    """Every token adds the outer product of its key and value to the state, from which its query reads.

    The state may fade before, and by the delta rule what it already holds for the key is taken from the value. A chunk of
    tokens at a time computes the same products in another order.
    """
    q, k, v = call[0], call[1], call[2]
    rule = call.text("update_rule", "gated_delta")
    if rule not in ("linear", "gated", "delta", "gated_delta"):
        raise Mismatch(f"its update rule is {rule!r}")
    dtype = past.dtype if past is not None else v.dtype
    cells = numel(v.shape) * known((deep,))[0]  # of the states after each token
    if rule.startswith("gated") and decay is not None:
        factor = call.step("elementwise", {"fn": "exp"}, [decay], [Out(decay.shape, decay.dtype)])[0]
        past = call.step("elementwise", {"fn": "mul", "elements": cells}, [factor, past], [Out(state, dtype)])[0]
    if rule.endswith("delta"):
        held = call.step("matmul", {"depth": deep}, [k, past], [Out(v.shape, v.dtype)])[0]
        v = call.step("elementwise", {"fn": "sub"}, [v, held], [Out(v.shape, v.dtype)])[0]
        v = call.step("elementwise", {"fn": "mul"}, [v, beta], [Out(v.shape, v.dtype)])[0]
    now = call.step("matmul", {"macs": cells}, [k, v, past], [Out(state, dtype)])[0]
    outs = [Out(shape, q.dtype), Out(state, dtype, home=now)]
    return Meaning("matmul", {"depth": deep, "then": ("mul",)}, outs, [q, now])


@handles("CausalConvWithState", domains=("", MICROSOFT))
@handles("VarlenCausalConvWithState", domains=(MICROSOFT,))
def _causal_conv(call: Call) -> Meaning:
    """Each channel by itself, along the tokens that came before, of which the last are kept for the next call."""
    packed = call.node.op.startswith("Varlen")  # (tokens, channels), and the places where sequences begin
    x, weight = call[0], call[1]
    bias, past = (call.at(3), call.at(4)) if packed else (call.at(2), call.at(3))
    last = call.flag("channels_last")
    axis = 1 if last else axis_of(-1, len(x.dims))
    kernel, spacing, kept = known(weight.dims[2:]), call.whole("dilation", 1), call.whole("state_window")
    if not kernel:
        raise Mismatch("its weight has no kernel")
    before = (kernel[-1] - 1) * spacing
    if packed:
        state: Dims = (total((call[2].dims[0], -1)), x.dims[1], before)
    else:
        state = replaced(x.dims, axis, before)
    carried = call.step("copy", NO_ATTRS, [x, past], [Out((kept, *state) if kept else state, x.dtype)])[0]
    others = (1,) * (len(kernel) - 1)
    attrs: dict[str, Any] = {"kernel": kernel, "stride": (1, *others), "dilation": (*others, spacing)}
    if call.text("activation", "none") != "none":
        attrs["then"] = ("silu",)
    outs = [Out(x.shape, x.dtype), Out(carried.shape, carried.dtype, home=carried)]
    if packed:
        outs.append(Out((state[0], call.whole("state_update_capacity"), x.dims[1]), x.dtype))
    return Meaning("conv", attrs, outs, [x, weight, bias])


_STEPS = {"Adam": ("adam_step", 4), "Adagrad": ("adagrad_step", 3), "Momentum": ("momentum_step", 3)}
"""The function, and how many tensors belong to each parameter: itself, its gradient, and the state."""


@handles(*_STEPS, domains=(TRAINING,))
def _optimize(call: Call) -> Meaning:
    """A step of an optimizer for several parameters: all of them, then their gradients, then their states."""
    fn, parts = _STEPS[call.node.op]
    given = call.ins[2:]
    count = len(given) // parts
    weights = [made for made in given[:count] if made is not None]
    if not count or count * parts != len(given) or len(weights) < count:
        raise Mismatch(f"it has {len(given)} tensors, and {parts} belong to each parameter")
    elements = sum(numel(made.shape) for made in weights)
    kept = [made for made in (*weights, *given[2 * count :]) if made is not None]
    outs = [Out(made.shape, made.dtype) for made in kept]
    more = {"norm_coefficient": "fma", "norm_coefficient_post": "mul"}  # a penalty on large weights, before and after
    if call.node.op == "Momentum":
        more["beta"] = "mul"
        if call.text("mode") == "nesterov":
            call.step("elementwise", {"fn": "fma", "elements": elements}, weights, outs[:count])
    for name, function in more.items():
        if call.attrs.get(name, 0.0) not in (0.0, *[1.0] * (name == "beta")):
            call.step("elementwise", {"fn": function, "elements": elements}, weights, outs[:count])
    return Meaning("elementwise", {"fn": fn, "elements": elements}, outs)
