"""Reductions, pools, normalizations, interpolations, sorting and random numbers."""

from __future__ import annotations

from math import prod
from typing import Any

from opcost.core.graph import NO_ATTRS
from opcost.core.shapes import Dims, Shape, Unknown, axis_of, known, reduced, replaced
from opcost.frontends.coreml.operators.contraction import window
from opcost.frontends.coreml.table import arg, flag, handles, integer, integers, need, numbers
from opcost.frontends.nodes.call import Call, Meaning, Out

_REDUCTIONS = {
    "sum": "sum", "mean": "mean", "max": "max", "min": "min", "prod": "prod", "l1_norm": "norm", "l2_norm": "norm",
    "log_sum": "sum", "log_sum_exp": "logsumexp", "sum_square": "norm",
}  # fmt: skip


@handles(*(f"reduce_{name}" for name in _REDUCTIONS))
def _reduce(call: Call) -> Meaning:
    x = need(call, "x")
    axes = integers(call, "axes")
    shape = reduced(x.dims, axes or None, keepdims=flag(call, "keep_dims"))
    return Meaning("reduce", {"fn": _REDUCTIONS[call.node.op.removeprefix("reduce_")]}, [Out(shape, x.dtype)], [x])


@handles("reduce_argmax", "reduce_argmin")
def _arg(call: Call) -> Meaning:
    x = need(call, "x")
    shape = reduced(x.dims, (integer(call, "axis", -1),), keepdims=flag(call, "keep_dims"))
    return Meaning("reduce", {"fn": call.node.op.removeprefix("reduce_")}, [Out(shape, "int32")], [x])


@handles("cumsum")
def _running(call: Call) -> Meaning:
    x = need(call, "x")
    return Meaning("reduce", {"fn": "cumsum"}, [Out(x.shape, x.dtype)], [x])


_NORMS = {"batch_norm": "batch", "instance_norm": "instance", "layer_norm": "layer", "l2_norm": "lp", "rms_norm": "rms"}


@handles(*_NORMS, "local_response_norm")
def _norm(call: Call) -> Meaning:
    x = need(call, "x")
    affine = [arg(call, name) for name in ("gamma", "beta")]
    if call.node.op == "local_response_norm":
        return Meaning(
            "norm", {"fn": "local_response", "window": integer(call, "size", 1)}, [Out(x.shape, x.dtype)], [x]
        )
    statistics = [arg(call, name) for name in ("mean", "variance")]
    attrs: dict[str, Any] = {"fn": _NORMS[call.node.op]}
    if call.node.op == "batch_norm":
        attrs["affine"] = sum(made is not None for made in affine)
    return Meaning("norm", attrs, [Out(x.shape, x.dtype)], [x, *affine, *statistics])


_POOLS = {"max_pool": "max", "avg_pool": "avg", "l2_pool": "lp"}


@handles(*_POOLS)
def _pool(call: Call) -> Meaning:
    x, kernel = need(call, "x"), integers(call, "kernel_sizes") or ()
    rank = len(kernel)
    if flag(call, "global"):
        space = x.dims[-rank:]
        shape: Dims = (*x.dims[:-rank], *(1,) * rank)
        attrs: dict[str, Any] = {"fn": f"adaptive_{_POOLS[call.node.op]}", "window": prod(known(space))}
        return Meaning("pool", attrs, [Out(shape, x.dtype)], [x])
    over = window(call, kernel, x.dims[-rank:])
    shape = (*x.dims[:-rank], *over.swept(ceil=flag(call, "ceil_mode")))
    attrs = {"fn": _POOLS[call.node.op], "window": prod(kernel), **over.geometry}
    return Meaning("pool", attrs, [Out(shape, x.dtype)], [x])


@handles("upsample_nearest_neighbor", "upsample_bilinear", "resize_nearest_neighbor", "resize_bilinear", "resize")
def _resize(call: Call) -> Meaning:
    x, name = need(call, "x"), call.node.op
    fn = "nearest" if "nearest" in name or "NEAREST" in str(call.attrs.get("interpolation_mode", "")) else "bilinear"
    if name.startswith("upsample"):
        factors = [numbers(call, f"scale_factor_{side}") for side in ("height", "width")]
        scales = [factor[0] if factor else 1 for factor in factors]
        space: Dims = tuple(
            None if n is None or s is None else int(n * s) for n, s in zip(x.dims[-2:], scales, strict=True)
        )
    elif name == "resize":
        target = integers(call, "shape") or ()
        return Meaning("resize", {"fn": fn}, [Out((*x.dims[: len(x.dims) - len(target)], *target), x.dtype)], [x])
    else:
        space = (integer(call, "target_size_height"), integer(call, "target_size_width"))
    return Meaning("resize", {"fn": fn}, [Out((*x.dims[:-2], *space), x.dtype)], [x])


@handles("crop_resize", "resample", "affine")
def _sample(call: Call) -> Meaning:
    """Four elements under each; the shape is the one that the file declares."""
    x = need(call, "x")
    grid = arg(call, "coordinates") or arg(call, "roi") or arg(call, "boxes") or arg(call, "transform_matrix") or x
    return Meaning("sample", {"taps": 4}, [Out(None, x.dtype)], [x, grid])


@handles("topk", "argsort")
def _sorted(call: Call) -> Meaning:
    x = need(call, "x")
    axis = axis_of(integer(call, "axis", -1), len(x.dims))
    length = known((x.dims[axis],))[0]
    if call.node.op == "argsort":
        return Meaning("sort", {"length": max(length, 1)}, [Out(x.shape, "int32")], [x])
    count = integer(call, "k", 1)
    shape = replaced(x.dims, axis, count)
    return Meaning("sort", {"length": length, "selected": count}, [Out(shape, x.dtype), Out(shape, "int32")], [x])


@handles("non_maximum_suppression")
def _suppress(call: Call) -> Meaning:
    """Boxes are sorted by their scores; how many overlaps are compared depends on data and is left out."""
    boxes = need(call, "boxes")
    length = max(known((boxes.dims[-2],))[0], 1)
    outs = [Out(None, boxes.dtype)] * len(call.node.outputs)
    return Meaning("sort", {"length": length}, outs, [need(call, "scores"), boxes])


@handles("random_normal", "random_uniform", "random_bernoulli", "random_categorical")
def _random(call: Call) -> Meaning:
    wanted: Shape = None
    try:
        wanted = integers(call, "shape")
    except Unknown:
        wanted = None
    return Meaning("random", NO_ATTRS, [Out(wanted, call.out_dtype)], [])


@handles("classify")
def _classify(call: Call) -> Meaning:
    """The greatest of the probabilities, and its name."""
    x = need(call, "probabilities")
    outs = [Out((), "uint8"), Out(x.shape, x.dtype)]
    return Meaning("reduce", {"fn": "argmax"}, outs, [x])
