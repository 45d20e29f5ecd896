"""Normalisation and softmax."""

from __future__ import annotations

from opcost.core.graph import Attr
from opcost.frontends.aten.call import Call, Translation, always, on


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


@on(
    "batch_norm", "native_batch_norm", "_native_batch_norm_legit", "_native_batch_norm_legit_functional",
    "cudnn_batch_norm", "miopen_batch_norm", "_batch_norm_impl_index",
)  # fmt: skip
def _batch_norm(call: Call) -> Translation:
    return norm(call, "batch", training=bool(call["training"]))


@on("_native_batch_norm_legit_no_training", "_batch_norm_no_update", "batch_norm_elemt", "quantized_batch_norm")
def _batch_norm_inference(call: Call) -> Translation:
    return norm(call, "batch", training=False)


@on("_batch_norm_with_update", "_batch_norm_with_update_functional")
def _batch_norm_training(call: Call) -> Translation:
    return norm(call, "batch", training=True)


@on("native_batch_norm_backward")
def _batch_norm_backward(call: Call) -> Translation:
    return norm_grad(call, "batch", training=bool(call["train"]))


@on("_batch_norm_impl_index_backward")
def _batch_norm_backward_index(call: Call) -> Translation:
    return norm_grad(call, "batch", training=bool(call["train"]), first=("grad_output", "input"))


@on("batch_norm_backward")
def _batch_norm_backward_update(call: Call) -> Translation:
    return norm_grad(call, "batch", training=bool(call["update"]))


@on("cudnn_batch_norm_backward", "miopen_batch_norm_backward")
def _batch_norm_backward_training(call: Call) -> Translation:
    return norm_grad(call, "batch", training=True, first=("grad_output", "input"))


# Synchronised batch norm runs in parts: statistics, their exchange, and the two halves of the gradient.
always("reduce", ["batch_norm_stats", "batch_norm_update_stats"], fn="var")
always("reduce", ["batch_norm_backward_reduce"], fn="dot")


@on("batch_norm_gather_stats", "batch_norm_gather_stats_with_counts")
def _gather_stats(call: Call) -> Translation:
    """The input lends only its type; the ranks' statistics are combined."""
    ins = call.tensors("mean", "invstd", "running_mean", "running_var", "counts")
    return Translation("reduce", {"fn": "var"}, ins)


@on("batch_norm_backward_elemt")
def _backward_elemt(call: Call) -> Translation:
    return norm_grad(call, "batch", training=True)


@on("native_layer_norm", "layer_norm")
def _layer_norm(call: Call) -> Translation:
    return norm(call, "layer")


@on("native_layer_norm_backward")
def _layer_norm_backward(call: Call) -> Translation:
    return norm_grad(call, "layer")


@on("native_group_norm", "group_norm")
def _group_norm(call: Call) -> Translation:
    return norm(call, "group")


@on("native_group_norm_backward")
def _group_norm_backward(call: Call) -> Translation:
    return norm_grad(call, "group")


@on("rms_norm", "_fused_rms_norm")
def _rms_norm(call: Call) -> Translation:
    return norm(call, "rms")


@on("_fused_rms_norm_backward")
def _rms_norm_backward(call: Call) -> Translation:
    return norm_grad(call, "rms")


@on("instance_norm")
def _instance_norm(call: Call) -> Translation:
    return norm(call, "instance", training=bool(call["use_input_stats"]))


always("norm", ["_weight_norm", "_weight_norm_interface"], fn="weight")
always("norm", ["_weight_norm_interface_backward", "_weight_norm_differentiable_backward"], fn="weight", grad=True)
always("norm", ["renorm"], fn="lp")


@on("embedding_renorm")
def _embedding_renorm(call: Call) -> Translation:
    """Only the rows that the indices name are measured and scaled: square, add, multiply."""
    rows = call["indices"].numel() * call["self"].shape[-1]
    return Translation("elementwise", {"fn": "addcmul", "elements": rows})


always("softmax", ["softmax", "_softmax", "_safe_softmax", "_masked_softmax", "_sparse_softmax"], fn="softmax")
always("softmax", ["_nested_tensor_softmax_with_shape"], fn="softmax")
always("softmax", ["log_softmax", "_log_softmax", "_sparse_log_softmax"], fn="log_softmax")
always(
    "softmax",
    ["_softmax_backward_data", "_masked_softmax_backward", "_sparse_softmax_backward_data"],
    fn="softmax",
    grad=True,
)
always("softmax", ["_log_softmax_backward_data", "_sparse_log_softmax_backward_data"], fn="log_softmax", grad=True)
