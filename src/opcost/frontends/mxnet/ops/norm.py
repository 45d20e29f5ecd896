"""Normalizations."""

from __future__ import annotations

from dataclasses import replace

from opcost.core.shapes import Extent, Mismatch, axis_of, replaced
from opcost.frontends.mxnet.attribute import Attributes
from opcost.frontends.mxnet.ops.table import Call, Infer, Operator, Translation, define, register, same_types

NUMPY_ERA = 20000
"""The first version whose GroupNorm has a weight for every channel and not for every group."""


def _mean_and_variance(attrs: Attributes) -> int:
    return 3 if attrs.flag("output_mean_var") else 1


def _both(call: Call) -> None:
    """The first input and the first output have one shape."""
    call.put_out(0, call.ins[0])
    call.put_in(0, call.outs[0])


def _batch_norm(call: Call) -> None:
    _both(call)
    x = call.dims(0)
    axis = axis_of(call.attrs.integer("axis", 1), len(x))
    known = [shape for shape in call.ins[1:5] if shape is not None and len(shape) == 1]
    channels: Extent = next((shape[0] for shape in known if shape[0] is not None), x[axis])
    for slot in range(1, 5):
        call.put_in(slot, (channels,))
    call.put_in(0, replaced((None,) * len(x), axis, channels))
    _both(call)
    call.put_out(1, (channels,))
    call.put_out(2, (channels,))


def _batch_norm_types(call: Call) -> None:
    """Statistics of half precision are kept in single precision."""
    held = call.in_types[0] or call.out_types[0]
    call.type_in(0, held)
    call.type_out(0, held)
    if held is not None:
        statistics = "float32" if held in ("float16", "bfloat16") else held
        call.in_types[1:] = [dtype or statistics for dtype in call.in_types[1:]]
        call.out_types[1:] = [dtype or statistics for dtype in call.out_types[1:]]


def _batch_normed(call: Call) -> Translation:
    training = call.training and not call.attrs.flag("use_global_stats")
    return Translation("norm", {"fn": "batch", "training": True} if training else {"fn": "batch"})


def _batch_normed_with_relu(call: Call) -> Translation:
    found = _batch_normed(call)
    # The maximum costs one more for each element, as another factor or summand would.
    return found._replace(attrs={**found.attrs, "affine": 3})


def _layer_norm(call: Call) -> None:
    _both(call)
    x = call.dims(0)
    axis = axis_of(call.attrs.integer("axis", -1), len(x))
    for slot in (1, 2):
        call.put_in(slot, (x[axis],))
        call.put_out(slot, replaced(x, axis, 1))


def _group_norm(call: Call) -> None:
    _both(call)
    x = call.dims(0)
    if len(x) < 2:
        raise Mismatch("the data has no channels")
    groups = call.attrs.integer("num_groups", 1)
    for slot in (1, 2):
        call.put_in(slot, (x[1] if call.version >= NUMPY_ERA else groups,))
        call.put_out(slot, (x[0], groups))


def _instance_norm(call: Call) -> None:
    _both(call)
    x = call.dims(0)
    if len(x) < 2:
        raise Mismatch("the data has no channels")
    for slot in (1, 2):
        call.put_in(slot, (x[1],))


def _normed(fn: str) -> Operator:
    infer: Infer = {"layer": _layer_norm, "group": _group_norm, "instance": _instance_norm}[fn]
    outputs = 1 if fn == "instance" else _mean_and_variance
    return Operator(
        infer, lambda call: Translation("norm", {"fn": fn}), same_types, outputs, slots=("data", "gamma", "beta")
    )


def _local_response(call: Call) -> Translation:
    return Translation("norm", {"fn": "local_response", "window": call.attrs.integer("nsize")}, (0,))


_BATCH_NORM = Operator(
    _batch_norm, _batch_normed, _batch_norm_types, _mean_and_variance,
    slots=("data", "gamma", "beta", "moving_mean", "moving_var"),
)  # fmt: skip

register(
    (
        "BatchNorm", "_npx_batch_norm", "BatchNorm_v1", "CuDNNBatchNorm", "_contrib_SyncBatchNorm", "_npx_sync_batch_norm",
    ),
    _BATCH_NORM,
)  # fmt: skip
register(("_contrib_BatchNormWithReLU",), replace(_BATCH_NORM, translate=_batch_normed_with_relu))
register(("LayerNorm", "_npx_layer_norm"), _normed("layer"))
register(("GroupNorm", "_npx_group_norm"), _normed("group"))
register(("InstanceNorm", "_npx_instance_norm"), _normed("instance"))
define("L2Normalization _npx_l2_normalization", _both, lambda call: Translation("norm", {"fn": "lp"}), slots="data")
define("LRN _npx_lrn", _both, _local_response, slots="data")
