"""A recorded row as the call it came from, where nobody saw the call: inside scripted modules and recurrent cells."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from opcost.compat._operators.node import Node
from opcost.core.graph import TensorSpec
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
    "unsafe_split": "unsafe_chunk",
}
"""What the dispatcher makes of a call, back to the call."""


def nodes_of_rows(rows: Iterable[Row], made_by: dict[int, str]) -> Iterator[Node]:
    """A node for each row; `made_by` tells, and is told, which operator made a value."""
    for row in rows:
        name = _name(row, made_by)
        for value in row.op.outputs:
            made_by[value] = row.op.raw
        yield Node(name, _arguments(name, row), row.outs, row.op.module, (row,))


def _name(row: Row, made_by: dict[int, str]) -> str:
    library, _, raw = row.op.raw.partition("::")
    if raw in ("addmm", "mm") and made_by.get(row.op.inputs[1]) in ("aten::t", "aten::transpose"):
        return "aten::linear"
    return f"{library}::{_CALLED.get(raw, raw)}"


def _arguments(name: str, row: Row) -> tuple[object, ...]:
    """The tensors in the places where handles look for them; constants that the row does not keep are None."""
    ins = row.ins
    if name == "aten::linear":
        x, transposed, *bias = ins
        return (x, TensorSpec(transposed.dims[::-1], transposed.dtype), *(bias or (None,)))
    if row.op.kind == "matmul" and len(ins) == 3:
        return (ins[2], ins[0], ins[1])
    if name == "aten::_convolution":
        x, weight, *bias = ins
        return (x, weight, *(bias or (None,)), None, None, None, bool(row.op.attrs.get("transposed")), *[None] * 6)
    if row.op.kind == "norm":
        affine: Any = row.op.attrs.get("affine", 0)
        scale, shift, *_ = (*ins[1 : 1 + affine], None, None)
        if name == "aten::batch_norm":
            return (ins[0], scale, shift, None, None, bool(row.op.attrs.get("training")), None, None, None)
        return (ins[0], None, scale, shift)
    return ins
