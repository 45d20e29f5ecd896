"""Normalisation, pooling, attention and recurrent cells as the operators they consist of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from opcost.core.shapes import broadcast
from opcost.frontends.aten.call import AtenCall, AtenTensor, has_channels_last, is_contiguous, per_axis, type_name
from opcost.frontends.aten.composite.products import COMPOSITES, OperatorParts, Whole, new, product


def _batch_norm(do: OperatorParts, call: AtenCall, y: AtenTensor, input: AtenTensor, training: Any) -> None:
    kept = [new((input.shape[1],) if training else (0,), input) for _ in range(2)]
    names = ("input", "weight", "bias", "running_mean", "running_var")
    do("native_batch_norm", y, *kept, training=bool(training), **{name: call[name] for name in names})


def _rows_of(x: AtenTensor, axes: int) -> tuple[int, ...]:
    """The shape of the statistics of a norm over the last axes."""
    return (*x.shape[: x.dim() - axes], *[1] * axes)


def _layer_norm(
    do: OperatorParts, y: AtenTensor, input: AtenTensor, normalized_shape: Any, weight: Any, bias: Any
) -> None:
    kept = [new(_rows_of(input, len(normalized_shape)), input) for _ in range(2)]
    do("native_layer_norm", y, *kept, input=input, weight=weight, bias=bias)


def _group_norm(do: OperatorParts, y: AtenTensor, input: AtenTensor, num_groups: int, weight: Any, bias: Any) -> None:
    x = input if is_contiguous(input) or has_channels_last(input) else do.like("clone", input)
    kept = [new((x.shape[0], num_groups), x) for _ in range(2)]
    do("native_group_norm", y, *kept, input=x, weight=weight, bias=bias)


def _instance_norm(do: OperatorParts, call: AtenCall, y: AtenTensor, input: AtenTensor, running_mean: Any) -> None:
    if running_mean is not None or input.dim() < 3:
        raise Whole
    rows = input.shape[0] * input.shape[1]
    many = {
        name: None if call[name] is None else do("repeat", new((rows,), input), self=call[name])
        for name in ("weight", "bias")
    }
    flat = do.reshape(input, (1, rows, *input.shape[2:]))
    kept = [new((rows,), input) for _ in range(2)]
    made = do("native_batch_norm", new(flat.shape, input), *kept, input=flat, **many, training=True)
    do("as_strided", y, self=made)


def _rms_norm(
    do: OperatorParts, y: AtenTensor, input: AtenTensor, normalized_shape: Any, weight: AtenTensor | None
) -> None:
    axes = len(normalized_shape)
    half = type_name(input) in ("float16", "bfloat16")
    wide = do("_to_copy", new(input.shape, input, "float32"), self=input) if half else input
    squares = do.like("pow.Tensor_Scalar", wide, exponent=2)
    mean = do("mean.dim", new(_rows_of(input, axes), wide), self=squares, dim=list(range(-axes, 0)))
    scale = do.like("rsqrt", do.in_place("add_.Scalar", mean, other=0.0))
    done = not half and weight is None
    made = do("mul.Tensor", y if done else new(input.shape, wide), self=wide, other=scale)
    if weight is not None:
        made = do("mul.Tensor", new(input.shape, wide) if half else y, self=made, other=weight)
    if half:
        do("_to_copy", y, self=made)


def _max_pool(do: OperatorParts, call: AtenCall, y: AtenTensor, self: AtenTensor) -> None:
    settings = {name: call[name] for name in ("kernel_size", "stride", "dilation")}
    if call.base == "max_pool1d":
        settings = {name: [1, *per_axis(value, 1)] if value else [] for name, value in settings.items()}
    operator = call.base.replace("1", "2") + "_with_indices"
    do(operator, y, new(y.shape, y, "int64"), self=self, **settings)


def _adaptive_pool(do: OperatorParts, y: AtenTensor, self: AtenTensor, output_size: Any) -> None:
    sizes = per_axis(output_size, 1)
    if any(size != 1 for size in sizes):
        raise Whole
    do("mean.dim", y, self=self, dim=list(range(-len(sizes), 0)))


# -- attention in one kernel, or by its products where no kernel takes it, and dropout


def _attention(
    do: OperatorParts,
    y: AtenTensor,
    query: AtenTensor,
    key: AtenTensor,
    value: AtenTensor,
    attn_mask: Any,
    dropout_p: Any,
    is_causal: Any,
) -> None:
    q, k, v, mask, causal = query, key, value, attn_mask, bool(is_causal)
    if mask is not None and type_name(mask) == "bool":
        mask = _weights_of(do, mask, q)
    if all(x.dim() == 4 for x in (q, k, v)) and not dropout_p and q.shape[-1] == v.shape[-1]:
        kept = new(q.shape[:-1], q, "float64" if type_name(q) == "float64" else "float32")
        kernel = "_scaled_dot_product_flash_attention_for_cpu"
        do(kernel, y, kept, query=q, key=k, value=v, attn_mask=mask, is_causal=causal)
        return
    q = do.like("mul.Tensor", q, other=1.0)
    if causal:
        square = new((q.shape[-2], k.shape[-2]), q, "bool")
        mask = _weights_of(do, do.like("tril", do("ones", square)), q)
    turned = do.like("mul.Tensor", do.turned(k), other=1.0)
    scores: AtenTensor = new((*broadcast([q.shape[:-2], k.shape[:-2]]), q.shape[-2], k.shape[-2]), q)
    product(do, q, turned, scores)
    if mask is not None:
        scores = do("add.Tensor", new(scores.shape, scores), self=scores, other=mask)
    chances = do.like("_safe_softmax", scores, dim=-1)
    if dropout_p:
        chances = _dropped(do, chances, new(chances.shape, chances))
    product(do, chances, v, y)


def _weights_of(do: OperatorParts, mask: AtenTensor, like: AtenTensor) -> AtenTensor:
    """A mask of truths as numbers to add."""
    zero, far = (do("scalar_tensor", new((), like)) for _ in range(2))
    return do("where.self", new(mask.shape, like), condition=mask, self=zero, other=far)


def _dropout(do: OperatorParts, y: AtenTensor, input: AtenTensor, p: Any, train: Any) -> None:
    if not train or not p:
        raise Whole
    _dropped(do, input, y)


def _dropped(do: OperatorParts, x: AtenTensor, y: AtenTensor) -> AtenTensor:
    noise = do.in_place("bernoulli_.float", do.like("empty_like", x))
    return do("mul.Tensor", y, self=x, other=do.in_place("div_.Scalar", noise, other=1.0))


# -- recurrent cells as their products and gates


def _gates(do: OperatorParts, call: AtenCall, state: AtenTensor) -> Iterator[AtenTensor]:
    """What the input and then the state contribute to all gates."""
    for x, weight, bias in ((call["input"], "w_ih", "b_ih"), (state, "w_hh", "b_hh")):
        y, columns = new((*x.shape[:-1], call[weight].shape[0]), x), do.turned(call[weight])
        if call[bias] is None:
            yield do("mm", y, self=x, mat2=columns)
        else:
            yield do("addmm", y, self=call[bias], mat1=x, mat2=columns)


def _split(do: OperatorParts, x: AtenTensor, count: int) -> list[AtenTensor]:
    shape = (*x.shape[:-1], x.shape[-1] // count)
    return [do.view(x, shape, x.stride()) for _ in range(count)]


def _lstm_cell(do: OperatorParts, call: AtenCall, hx: Sequence[AtenTensor]) -> None:
    of_input, of_state = _gates(do, call, hx[0])
    parts = _split(do, do.in_place("add_.Tensor", of_input, other=of_state), 4)
    enter, forget, leave = (do.in_place("sigmoid_", parts[i]) for i in (0, 1, 3))
    new_cell = do.in_place("tanh_", parts[2])
    kept = do("mul.Tensor", call.outs[1], self=forget, other=hx[1])
    kept = do.in_place("add_.Tensor", kept, other=do.like("mul.Tensor", enter, other=new_cell))
    do("mul.Tensor", call.outs[0], self=leave, other=do.like("tanh", kept))


def _gru_cell(do: OperatorParts, call: AtenCall, y: AtenTensor, hx: AtenTensor) -> None:
    of_input, of_state = (_split(do, gates, 3) for gates in _gates(do, call, hx))
    reset, update = (
        do.in_place("sigmoid_", do.in_place("add_.Tensor", of_state[i], other=of_input[i])) for i in (0, 1)
    )
    scaled = do.in_place("mul_.Tensor", of_state[2], other=reset)
    fresh = do.in_place("tanh_", do("add.Tensor", new(hx.shape, hx), self=of_input[2], other=scaled))
    step = do.in_place("mul_.Tensor", do.like("sub.Tensor", hx, other=fresh), other=update)
    do("add_.Tensor", y, self=step, other=fresh)


def _rnn_cell(do: OperatorParts, call: AtenCall, y: AtenTensor, hx: AtenTensor) -> None:
    of_input, of_state = _gates(do, call, hx)
    both = do.in_place("add_.Tensor", of_input, other=of_state)
    do("tanh" if "tanh" in call.base else "relu", y, self=both)


COMPOSITES.rows(
    {
        "batch_norm": _batch_norm,
        "layer_norm": _layer_norm,
        "group_norm": _group_norm,
        "instance_norm": _instance_norm,
        "rms_norm": _rms_norm,
        "_weight_norm": lambda do, y, v, g: do("_weight_norm_interface", y, new(g.shape, g), v=v, g=g),
        "max_pool1d max_pool2d max_pool3d": _max_pool,
        "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d": _adaptive_pool,
        "scaled_dot_product_attention": _attention,
        "dropout": _dropout,
        "lstm_cell": _lstm_cell,
        "gru_cell": _gru_cell,
        "rnn_tanh_cell rnn_relu_cell": _rnn_cell,
    }
)  # fmt: skip
