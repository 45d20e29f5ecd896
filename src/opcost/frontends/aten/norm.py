"""Normalisation and softmax."""

from __future__ import annotations

from functools import partial

from opcost.core.graph import Attr
from opcost.frontends.aten.call import Call, Translation, on


def norm(call: Call, fn: str, *, training: bool | None = None) -> Translation:
    """The rule must know whether a weight and a bias are applied, since other tensors may stand in their places."""
    attrs: dict[str, Attr] = {"fn": fn, "affine": len(call.tensors("weight", "bias"))}
    if training is not None:
        attrs["training"] = training
    return Translation("norm", attrs)


def norm_grad(
    call: Call, fn: str, *, training: bool | None = None, first: tuple[str, str] = ("grad_out", "input")
) -> Translation:
    """Gradients of the input and, where the mask asks for them, of weight and bias."""
    mask = call["output_mask"] if "output_mask" in call.args else (True, True, True)
    attrs: dict[str, Attr] = {"fn": fn, "grad": True, "affine": sum(map(bool, mask[1:]))}
    if training is not None:
        attrs["training"] = training
    return Translation("norm", attrs, call.tensors(*first, *(name for name in call.args if name not in first)))


on("_native_batch_norm_legit_no_training", "_batch_norm_no_update", "batch_norm_elemt", "quantized_batch_norm")(
    partial(norm, fn="batch", training=False)
)
on("_batch_norm_with_update", "_batch_norm_with_update_functional")(partial(norm, fn="batch", training=True))
on("batch_norm_backward_elemt")(partial(norm_grad, fn="batch", training=True))
on("cudnn_batch_norm_backward", "miopen_batch_norm_backward")(
    partial(norm_grad, fn="batch", training=True, first=("grad_output", "input"))
)


@on(
    "batch_norm", "native_batch_norm", "_native_batch_norm_legit", "_native_batch_norm_legit_functional",
    "cudnn_batch_norm", "miopen_batch_norm", "_batch_norm_impl_index",
)  # fmt: skip
def _batch_norm(call: Call) -> Translation:
    return norm(call, "batch", training=bool(call["training"]))


@on("native_batch_norm_backward")
def _batch_norm_backward(call: Call) -> Translation:
    return norm_grad(call, "batch", training=bool(call["train"]))


@on("_batch_norm_impl_index_backward")
def _batch_norm_backward_index(call: Call) -> Translation:
    return norm_grad(call, "batch", training=bool(call["train"]), first=("grad_output", "input"))


@on("batch_norm_backward")
def _batch_norm_backward_update(call: Call) -> Translation:
    return norm_grad(call, "batch", training=bool(call["update"]))


@on("batch_norm_gather_stats", "batch_norm_gather_stats_with_counts")
def _gather_stats(call: Call) -> Translation:
    """The input lends only its type; the ranks' statistics are combined."""
    ins = call.tensors("mean", "invstd", "running_mean", "running_var", "counts")
    return Translation("reduce", {"fn": "var"}, ins)


for _fn, _forward, _backward in (
    ("layer", ("native_layer_norm", "layer_norm"), "native_layer_norm_backward"),
    ("group", ("native_group_norm", "group_norm"), "native_group_norm_backward"),
    ("rms", ("rms_norm", "_fused_rms_norm"), "_fused_rms_norm_backward"),
):
    on(*_forward)(partial(norm, fn=_fn))
    on(_backward)(partial(norm_grad, fn=_fn))


@on("instance_norm")
def _instance_norm(call: Call) -> Translation:
    return norm(call, "instance", training=bool(call["use_input_stats"]))


@on("embedding_renorm")
def _embedding_renorm(call: Call) -> Translation:
    """Only the rows that the indices name are measured and scaled: square, add, multiply."""
    rows = call["indices"].numel() * call["self"].shape[-1]
    return Translation("elementwise", {"fn": "addcmul", "elements": rows})
