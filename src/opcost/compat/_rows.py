"""A recorded row as the call it came from, where nobody saw the call: inside scripted modules and recurrent cells."""

from __future__ import annotations

from opcost.compat._node import Node
from opcost.core.report import Row

_CALLED = {
    "_adaptive_avg_pool2d": "adaptive_avg_pool2d",
    "_adaptive_avg_pool3d": "adaptive_avg_pool3d",
    "_fused_rms_norm": "rms_norm",
    "_log_softmax": "log_softmax",
    "_native_batch_norm_legit": "batch_norm",
    "_native_batch_norm_legit_no_training": "batch_norm",
    "_prelu_kernel": "prelu",
    "_scaled_dot_product_flash_attention_for_cpu": "scaled_dot_product_attention",
    "_scaled_dot_product_cudnn_attention": "scaled_dot_product_attention",
    "_scaled_dot_product_efficient_attention": "scaled_dot_product_attention",
    "_scaled_dot_product_flash_attention": "scaled_dot_product_attention",
    "_scaled_dot_product_fused_attention_overrideable": "scaled_dot_product_attention",
    "_softmax": "softmax",
    "_to_copy": "to",
    "_unsafe_view": "view",
    "alias": "detach",
    "clone": "contiguous",
    "convolution": "_convolution",
    "cudnn_batch_norm": "batch_norm",
    "grid_sampler_2d": "grid_sampler",
    "grid_sampler_3d": "grid_sampler",
    "index_put": "index_put_",
    "max_pool2d_with_indices": "max_pool2d",
    "max_pool3d_with_indices": "max_pool3d",
    "native_batch_norm": "batch_norm",
    "native_dropout": "dropout",
    "native_group_norm": "group_norm",
    "native_layer_norm": "layer_norm",
}
"""What the dispatcher makes of a call, back to the call."""


def node_of_row(row: Row) -> Node:
    """A node with the arguments in the places where the peers' handles look for them."""
    library, _, raw = row.op.raw.partition("::")
    name = _CALLED.get(raw, raw)
    if row.op.kind == "matmul" and raw in ("addmm", "mm") and _weight_is_second(row):
        name = "linear"
    return Node(f"{library}::{name}", _arguments(name, row), row.outs, row.op.module, (row,))
