"""Attention in the forms that ONNX and ONNX Runtime have, and mixtures of experts."""

from __future__ import annotations

from typing import Any

from opcost.core.graph import NO_ATTRS, Attr
from opcost.core.shapes import Dims, Extent, Unknown, divided, known, total
from opcost.frontends.nodes.call import Call, Made, Meaning, Out, numel
from opcost.frontends.onnx.table import MICROSOFT, PREVIEW, handles


def _heads(call: Call, x: Made, heads: int) -> Made:
    """(batch, length, heads × features) seen as (batch, heads, length, features)."""
    if len(x.dims) == 4:
        return x
    batch, length, width = x.dims
    shape = (batch, heads, length, divided(width, heads, "features", "heads"))
    return call.step("view", NO_ATTRS, [x], [Out(shape, x.dtype, home=x)])[0]


def _longer(call: Call, x: Made, past: Made | None) -> Made:
    """Keys or values with those of earlier steps before them."""
    if past is None or len(past.dims) < 4:
        return x
    batch, heads, length, features = x.dims
    shape: Dims = (batch, heads, total((past.dims[2], length)), features)
    return call.step("copy", NO_ATTRS, [past, x], [Out(shape, x.dtype)])[0]


def _attend(
    call: Call, q: Made, k: Made, v: Made, shape: Dims, mask: Made | None, *, causal: bool, presents: bool = True
) -> Meaning:
    attrs: dict[str, Attr] = {"causal": True} if causal else {}
    outs = [Out(shape, q.dtype), *[Out(made.shape, made.dtype, home=made) for made in (k, v)] * presents]
    outs.append(Out((*q.dims[:-1], k.dims[-2]), q.dtype))  # the scores
    return Meaning("attention", attrs, outs, [q, k, v, mask])


@handles("Attention")
def _attention(call: Call) -> Meaning:
    """Of ONNX itself: queries, keys and values are given."""
    heads, groups = call.whole("q_num_heads"), call.whole("kv_num_heads")
    q = _heads(call, call[0], heads)
    k = _longer(call, _heads(call, call[1], groups), call.at(4))
    v = _longer(call, _heads(call, call[2], groups), call.at(5))
    features = v.dims[-1]
    whole: Extent = None if features is None else features * known((q.dims[1],))[0]
    shape: Dims = (*q.dims[:-1], features) if q is call[0] else (q.dims[0], q.dims[2], whole)
    return _attend(call, q, k, v, shape, call.at(3), causal=call.flag("is_causal"))


@handles("FlexAttention", domains=(PREVIEW,))
def _flex(call: Call) -> Meaning:
    """Without graphs that change scores or probabilities, which are walked where graphs are."""
    q, k, v = call[0], call[1], call[2]
    return _attend(call, q, k, v, (*q.dims[:-1], v.dims[-1]), None, causal=False)


@handles("Attention", "QAttention", domains=(MICROSOFT,))
def _projected_attention(call: Call) -> Meaning:
    """Of ONNX Runtime: the product with the weights of queries, keys and values comes first."""
    quantized = call.node.op == "QAttention"
    x, weight, bias = call[0], call[1], call.at(2)
    heads = call.whole("num_heads")
    mask, past = (call.at(5), call.at(8)) if quantized else (call.at(3), call.at(4))
    batch, length, _ = x.dims
    dtype = bias.dtype if bias is not None else x.dtype
    both: dict[str, Any] = {"depth": known((weight.dims[0],))[0], **({"bias": True} if bias is not None else {})}
    width = known((weight.dims[1],))[0]
    sizes = call.integers("qkv_hidden_sizes") or (width // 3,) * 3
    made = call.step("matmul", both, [x, weight, bias], [Out((batch, length, width), dtype)])[0]
    parts = [
        call.step("view", NO_ATTRS, [made], [Out((batch, heads, length, size // heads), dtype, home=made)])[0]
        for size in sizes
    ]
    if past is not None and len(past.dims) == 5:
        half = call.step("view", NO_ATTRS, [past], [Out(past.dims[1:], past.dtype, home=past)])[0]
        parts[1:] = [_longer(call, part, half) for part in parts[1:]]
    q, k, v = parts
    present = Out((2, *k.dims), dtype)
    found = _attend(
        call, q, k, v, (batch, length, sizes[2]), _squares(mask), causal=call.flag("unidirectional"), presents=False
    )
    return found._replace(outs=[found.outs[0], present])


def _squares(mask: Made | None) -> Made | None:
    """A mask that is added to scores; lengths of sequences are none."""
    return mask if mask is not None and mask.shape is not None and len(mask.shape) > 2 else None


@handles("MultiHeadAttention", "DecoderMaskedMultiHeadAttention", domains=(MICROSOFT,))
def _multi_head(call: Call) -> Meaning:
    heads = call.whole("num_heads")
    places = (10, 4, 5, 6) if call.node.op.startswith("Decoder") else (3, 5, 6, 7)
    x, (bias, mask, *past) = call[0], [call.at(place) for place in places]
    if len(x.dims) == 5:  # packed: (batch, length, heads, 3, features)
        batch, length, _, _, features = x.dims
        q, k, v = (
            call.step("view", NO_ATTRS, [x], [Out((batch, heads, length, features), x.dtype, home=x)])[0]
            for _ in range(3)
        )
    else:
        if call.at(2) is None:  # keys and values packed together, in ways that differ from version to version
            raise Unknown
        q, k, v = (_heads(call, call[place], heads) for place in range(3))
    if bias is not None:
        q, k, v = (
            call.step("elementwise", {"fn": "add"}, [each, bias], [Out(each.shape, each.dtype)])[0]
            for each in (q, k, v)
        )
    k, v = _longer(call, k, past[0]), _longer(call, v, past[1])
    batch, _, length, _ = q.dims
    shape = (batch, length, numel((heads, v.dims[-1])))
    return _attend(call, q, k, v, shape, mask, causal=call.flag("unidirectional"))


@handles("PackedAttention", "PackedMultiHeadAttention", domains=(MICROSOFT,))
def _packed(call: Call) -> Meaning:
    """Sequences without their padding, one after another: taken as equally long, since their lengths are data."""
    heads, projected = call.whole("num_heads"), call.node.op == "PackedAttention"
    x, bias, tokens = call[0], call.at(2 if projected else 3), call[0].dims[0]
    sequences = known(call[3 if projected else 4].dims[:1])[0]
    mask = call.at(5 if projected else 6)
    if projected:
        depth, width = known(call[1].dims)
        sizes = call.integers("qkv_hidden_sizes") or (width // 3,) * 3
        made = call.step("matmul", {"depth": depth, "bias": True}, [x, call[1], bias], [Out((tokens, width), x.dtype)])
        parts = [(made[0], size // heads) for size in sizes]
    elif call.at(1) is None:  # (tokens, heads, 3, features)
        parts = [(x, known(x.dims[-1:])[0])] * 3
    else:
        parts = [(call[place], known(call[place].dims[-1:])[0] // heads) for place in range(3)]
    q, k, v = (
        call.step("view", NO_ATTRS, [each], [Out((heads, tokens, features), each.dtype, home=each)])[0]
        for each, features in parts
    )
    if not projected and bias is not None:
        q, k, v = (
            call.step("elementwise", {"fn": "add"}, [each, bias], [Out(each.shape, each.dtype)])[0]
            for each in (q, k, v)
        )
    shape: Dims = (tokens, heads * parts[2][1])
    found = _attend(call, q, k, v, shape, mask, causal=False, presents=False)
    return found._replace(attrs={**found.attrs, "sequences": sequences})


@handles("GroupQueryAttention", domains=(MICROSOFT,))
def _grouped(call: Call) -> Meaning:
    """Causal, with the keys and values of earlier steps; where they are packed with the queries, one product made all three."""
    heads, groups = call.whole("num_heads"), call.whole("kv_num_heads")
    x, batch, length = call[0], call[0].dims[0], call[0].dims[1]
    if call.at(1) is None:
        features = divided(x.dims[2], heads + 2 * groups, "features", "heads")
        q, k, v = (
            call.step("view", NO_ATTRS, [x], [Out((batch, count, length, features), x.dtype, home=x)])[0]
            for count in (heads, groups, groups)
        )
    else:
        q, k, v = (_heads(call, call[place], count) for place, count in ((0, heads), (1, groups), (2, groups)))
    if call.flag("do_rotary"):
        q, k = (
            call.step(
                "elementwise", {"fn": "mul_mul_add"}, [each, call.at(7), call.at(8)], [Out(each.shape, each.dtype)]
            )[0]
            for each in (q, k)
        )
    k, v = _longer(call, k, call.at(3)), _longer(call, v, call.at(4))
    shape = (batch, length, numel((heads, v.dims[-1])))
    return _attend(call, q, k, v, shape, None, causal=True)


@handles("MoE", "QMoE", domains=(MICROSOFT,))
def _experts(call: Call) -> Meaning:
    """Each token goes through `k` of the experts: two products, three where the activation has a gate."""
    x, router = call[0], call[1]
    quantized = call.node.op == "QMoE"
    first, second = (call[2], call[5]) if quantized else (call[2], call[4])
    biases = (call.at(4), call.at(7)) if quantized else (call.at(3), call.at(5))
    third = call.at(8 if quantized else 6)
    rows = numel(x.dims[:-1]) * call.whole("k", 1)
    width = known((x.dims[-1],))[0]
    pack = 8 // call.whole("expert_weight_bits", 4) if quantized else 1
    inner = known((second.dims[1 if second.dims[2] == width and not quantized else 2],))[0] * pack
    name = call.text("activation_type", "relu")
    gated = name == "swiglu" or third is not None
    single, double = {"gelu": ("gelu", "geglu"), "silu": ("silu", "swiglu"), "swiglu": ("silu", "swiglu")}.get(
        name, ("relu", "add_relu")
    )
    into, out = ({"bias": True} if bias is not None else {} for bias in biases)
    up = call.step(
        "matmul",
        {"depth": width, **into},
        [x, first, biases[0], third, router],
        [Out((rows, inner * (1 + gated)), x.dtype)],
    )[0]
    act = call.step("elementwise", {"fn": double if gated else single}, [up], [Out((rows, inner), x.dtype)])[0]
    attrs = {"depth": inner, "macs": rows * inner * width, **out}
    return Meaning("matmul", attrs, [Out(x.shape, x.dtype)], [act, second, biases[1]])
