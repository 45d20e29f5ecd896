"""Normalisation with what it keeps for a gradient, and pooling."""

from __future__ import annotations

from typing import Any

from opcost.frontends.aten.call import Call
from opcost.frontends.aten.composite.parts import Parts, look, new, of
from opcost.frontends.aten.strides import is_contiguous
from opcost.frontends.aten.tensor import Tensor, type_name


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
    if not is_contiguous(x) and not _channels_last(x):
        x = do.like("clone", x)
    kept = [new((x.shape[0], call["num_groups"]), x) for _ in range(2)]
    do("native_group_norm", call.outs[0], *kept, input=x, weight=call["weight"], bias=call["bias"])


def _channels_last(x: Tensor) -> bool:
    order = [0, *range(2, x.dim()), 1]
    return x.dim() in (4, 5) and is_contiguous(look(x, [x.shape[i] for i in order], [x.stride()[i] for i in order]))


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
