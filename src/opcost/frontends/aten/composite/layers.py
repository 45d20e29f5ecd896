"""Normalisation, pooling, attention and recurrent cells as the operators they consist of."""

from __future__ import annotations

from typing import Any

from opcost.core.shapes import broadcast
from opcost.frontends.aten.call import Call, Tensor, has_channels_last, is_contiguous, type_name
from opcost.frontends.aten.composite.products import Parts, new, of, product


@of("batch_norm")
def _batch_norm(do: Parts, call: Call) -> None:
    x, training = call["input"], bool(call["training"])
    kept = [new((x.shape[1],) if training else (0,), x) for _ in range(2)]
    names = ("input", "weight", "bias", "running_mean", "running_var")
    do("native_batch_norm", call.outs[0], *kept, training=training, **{name: call[name] for name in names})


@of("layer_norm")
def _layer_norm(do: Parts, call: Call) -> None:
    x = call["input"]
    axes = len(call["normalized_shape"])
    kept = [new((*x.shape[: x.dim() - axes], *[1] * axes), x) for _ in range(2)]
    do("native_layer_norm", call.outs[0], *kept, input=x, weight=call["weight"], bias=call["bias"])


@of("group_norm")
def _group_norm(do: Parts, call: Call) -> None:
    x = call["input"]
    if not is_contiguous(x) and not has_channels_last(x):
        x = do.like("clone", x)
    kept = [new((x.shape[0], call["num_groups"]), x) for _ in range(2)]
    do("native_group_norm", call.outs[0], *kept, input=x, weight=call["weight"], bias=call["bias"])


@of("instance_norm")
def _instance_norm(do: Parts, call: Call) -> bool | None:
    x = call["input"]
    if call["running_mean"] is not None or x.dim() < 3:
        return False
    rows = x.shape[0] * x.shape[1]
    many = {
        name: None if call[name] is None else do("repeat", new((rows,), x), self=call[name])
        for name in ("weight", "bias")
    }
    flat = do.reshape(x, (1, rows, *x.shape[2:]))
    kept = [new((rows,), x) for _ in range(2)]
    made = do("native_batch_norm", new(flat.shape, x), *kept, input=flat, **many, training=True)
    do("as_strided", call.outs[0], self=made)
    return None


@of("rms_norm")
def _rms_norm(do: Parts, call: Call) -> None:
    x, weight, y = call["input"], call["weight"], call.outs[0]
    axes = len(call["normalized_shape"])
    half = type_name(x) in ("float16", "bfloat16")
    wide = do("_to_copy", new(x.shape, x, "float32"), self=x) if half else x
    squares = do.like("pow.Tensor_Scalar", wide, exponent=2)
    mean = do("mean.dim", new((*x.shape[: x.dim() - axes], *[1] * axes), wide), self=squares, dim=list(range(-axes, 0)))
    scale = do.like("rsqrt", do.in_place("add_.Scalar", mean, other=0.0))
    done = not half and weight is None
    made = do("mul.Tensor", y if done else new(x.shape, wide), self=wide, other=scale)
    if weight is not None:
        made = do("mul.Tensor", new(x.shape, wide) if half else y, self=made, other=weight)
    if half:
        do("_to_copy", y, self=made)


@of("_weight_norm")
def _weight_norm(do: Parts, call: Call) -> None:
    do("_weight_norm_interface", call.outs[0], new(call["g"].shape, call["g"]), v=call["v"], g=call["g"])


@of("max_pool1d", "max_pool2d", "max_pool3d")
def _max_pool(do: Parts, call: Call) -> None:
    y = call.outs[0]
    operator = call.base.replace("1", "2") + "_with_indices"
    args = {name: call[name] for name in ("self", "kernel_size", "stride", "dilation")}
    if call.base == "max_pool1d":
        args |= {name: [1, *_one(args[name])] for name in ("kernel_size", "dilation")}
        args["stride"] = [1, *_one(args["stride"])] if args["stride"] else []
    do(operator, y, new(y.shape, y, "int64"), **args)


def _one(value: Any) -> list[int]:
    return [value] if isinstance(value, int) else list(value)


@of("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d")
def _adaptive_pool(do: Parts, call: Call) -> bool | None:
    sizes = _one(call["output_size"])
    if any(size != 1 for size in sizes):
        return False
    do("mean.dim", call.outs[0], self=call["self"], dim=list(range(-len(sizes), 0)))
    return None


# -- attention in one kernel, or by its products where no kernel takes it, and dropout


@of("scaled_dot_product_attention")
def _attention(do: Parts, call: Call) -> None:
    q, k, v, mask, y = call["query"], call["key"], call["value"], call["attn_mask"], call.outs[0]
    causal, gone = bool(call["is_causal"]), call["dropout_p"]
    whole = all(x.dim() == 4 for x in (q, k, v)) and not gone and q.shape[-1] == v.shape[-1]
    if mask is not None and type_name(mask) == "bool":
        mask = _weights_of(do, mask, q)
    if whole:
        kept = new(q.shape[:-1], q, "float64" if type_name(q) == "float64" else "float32")
        do(
            "_scaled_dot_product_flash_attention_for_cpu",
            y, kept, query=q, key=k, value=v, attn_mask=mask, is_causal=causal,
        )  # fmt: skip
        return
    q = do.like("mul.Tensor", q, other=1.0)
    if causal:
        square = new((q.shape[-2], k.shape[-2]), q, "bool")
        mask = _weights_of(do, do.like("tril", do("ones", square)), q)
    turned = do.turned(k)
    turned = do.like("mul.Tensor", turned, other=1.0)
    scores = new((*broadcast([q.shape[:-2], k.shape[:-2]]), q.shape[-2], k.shape[-2]), q)
    product(do, q, turned, scores)
    if mask is not None:
        scores = do("add.Tensor", new(scores.shape, scores), self=scores, other=mask)  # type: ignore[assignment]
    chances = do.like("_safe_softmax", scores, dim=-1)
    if gone:
        chances = _dropped(do, chances, new(chances.shape, chances))
    product(do, chances, v, y)


def _weights_of(do: Parts, mask: Tensor, like: Tensor) -> Tensor:
    """A mask of truths as numbers to add."""
    zero, far = (do("scalar_tensor", new((), like)) for _ in range(2))
    return do("where.self", new(mask.shape, like), condition=mask, self=zero, other=far)


@of("dropout")
def _dropout(do: Parts, call: Call) -> bool | None:
    if not call["train"] or not call["p"]:
        return False
    _dropped(do, call["input"], call.outs[0])
    return None


def _dropped(do: Parts, x: Tensor, y: Tensor) -> Tensor:
    noise = do.in_place("bernoulli_.float", do.like("empty_like", x))
    return do("mul.Tensor", y, self=x, other=do.in_place("div_.Scalar", noise, other=1.0))


# -- recurrent cells as their products and gates


def _gates(do: Parts, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    y = new((*x.shape[:-1], weight.shape[0]), x)
    if bias is None:
        return do("mm", y, self=x, mat2=do.turned(weight))
    return do("addmm", y, self=bias, mat1=x, mat2=do.turned(weight))


def _quarters(do: Parts, x: Tensor, count: int) -> list[Tensor]:
    shape = (*x.shape[:-1], x.shape[-1] // count)
    return [do.view(x, shape, x.stride()) for _ in range(count)]


@of("lstm_cell")
def _lstm_cell(do: Parts, call: Call) -> None:
    state, cell = call["hx"]
    all_gates = do.in_place(
        "add_.Tensor",
        _gates(do, call["input"], call["w_ih"], call["b_ih"]),
        other=_gates(do, state, call["w_hh"], call["b_hh"]),
    )
    parts = _quarters(do, all_gates, 4)
    enter, forget, leave = (do.in_place("sigmoid_", parts[i]) for i in (0, 1, 3))
    new_cell = do.in_place("tanh_", parts[2])
    kept = do("mul.Tensor", call.outs[1], self=forget, other=cell)
    kept = do.in_place("add_.Tensor", kept, other=do.like("mul.Tensor", enter, other=new_cell))
    do("mul.Tensor", call.outs[0], self=leave, other=do.like("tanh", kept))


@of("gru_cell")
def _gru_cell(do: Parts, call: Call) -> None:
    state = call["hx"]
    of_input = _quarters(do, _gates(do, call["input"], call["w_ih"], call["b_ih"]), 3)
    of_state = _quarters(do, _gates(do, state, call["w_hh"], call["b_hh"]), 3)
    reset, update = (
        do.in_place("sigmoid_", do.in_place("add_.Tensor", of_state[i], other=of_input[i])) for i in (0, 1)
    )
    fresh = do(
        "add.Tensor",
        new(state.shape, state),
        self=of_input[2],
        other=do.in_place("mul_.Tensor", of_state[2], other=reset),
    )
    fresh = do.in_place("tanh_", fresh)
    step = do.in_place("mul_.Tensor", do.like("sub.Tensor", state, other=fresh), other=update)
    do("add_.Tensor", call.outs[0], self=step, other=fresh)


@of("rnn_tanh_cell", "rnn_relu_cell")
def _rnn_cell(do: Parts, call: Call) -> None:
    both = do.in_place(
        "add_.Tensor",
        _gates(do, call["input"], call["w_ih"], call["b_ih"]),
        other=_gates(do, call["hx"], call["w_hh"], call["b_hh"]),
    )
    do("tanh" if "tanh" in call.base else "relu", call.outs[0], self=both)
