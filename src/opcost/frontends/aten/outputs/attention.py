"""Results of attention kernels: the values, and what each kernel keeps for its gradient."""

from __future__ import annotations

from typing import Any

from opcost.frontends.aten.call import Call
from opcost.frontends.aten.outputs.table import like, made, on, only
from opcost.frontends.aten.tensor import Described, Tensor, type_name

_ROWS = 32
"""The efficient kernel keeps the logarithms of its sums for blocks of so many rows."""


def _values(call: Call) -> Described:
    q, v = call["query"], call["value"]
    return made((*q.shape[:-1], v.shape[-1]), type_name(q))


@on("scaled_dot_product_attention")
def _public(call: Call) -> tuple[Described, ...]:
    return (_values(call),)


@on("_scaled_dot_product_flash_attention_for_cpu")
def _on_cpu(call: Call) -> tuple[Described, ...]:
    q = call["query"]
    kept = "float64" if type_name(q) == "float64" else "float32"
    return _values(call), made(q.shape[:-1], kept)


@on("_scaled_dot_product_flash_attention")
def _flash(call: Call) -> tuple[Described, ...]:
    """Values, logarithms of the sums, the state of the random numbers, and two tensors without elements."""
    q = call["query"]
    if call["return_debug_mask"]:
        raise ValueError("the mask for debugging has a size of the kernel's choice")
    return (
        _values(call),
        made(q.shape[:-1], "float32"),
        made((2,), "uint64"),
        made((), "uint64"),
        made((0,), type_name(q)),
    )


@on("_scaled_dot_product_efficient_attention")
def _efficient(call: Call) -> tuple[Described, ...]:
    batch, heads, length, _ = call["query"].shape
    rows = -(-length // _ROWS) * _ROWS if call["compute_log_sumexp"] else 0
    return _values(call), made((batch, heads, rows), "float32"), made((), "int64"), made((), "int64")


@on("_efficient_attention_forward")
def _below_efficient(call: Call) -> tuple[Described, ...]:
    """As above with heads behind the length; packed sequences are padded as their longest needs it, which is not told."""
    if call["cu_seqlens_q"] is not None:
        raise ValueError("sequences are packed")
    batch, length, heads, _ = call["query"].shape
    rows = -(-length // _ROWS) * _ROWS if call["compute_log_sumexp"] else 0
    return _values(call), made((batch, heads, rows), "float32"), made((), "int64"), made((), "int64")


@on("_scaled_dot_product_cudnn_attention", "_cudnn_attention_forward")
def _cudnn(call: Call) -> tuple[Described, ...]:
    if call.get("cum_seq_q") is not None:
        raise ValueError("sequences are packed")
    batch, heads, length, _ = call["query"].shape
    if call["return_debug_mask"]:
        raise ValueError("the mask for debugging has a size of the kernel's choice")
    return _values(call), made((batch, heads, length, 1), "float32"), made((), "int64"), made((), "int64")


@on("_flash_attention_forward")
def _below_flash(call: Call) -> tuple[Described, ...]:
    """As above with heads behind the length; packed sequences keep their sums by head."""
    q = call["query"]
    if call["return_debug_mask"]:
        raise ValueError("the mask for debugging has a size of the kernel's choice")
    *batch, length, heads, _ = q.shape
    kept = made((*batch, heads, length), "float32")
    return like(q), kept, made((2,), "uint64"), made((), "uint64"), made((0,), type_name(q))


@on(
    "_scaled_dot_product_flash_attention_backward", "_scaled_dot_product_flash_attention_for_cpu_backward",
    "_scaled_dot_product_cudnn_attention_backward", "_flash_attention_backward", "_cudnn_attention_backward",
)  # fmt: skip
def _backward(call: Call) -> tuple[Tensor, ...]:
    return tuple(like(call[name]) for name in ("query", "key", "value"))


@on("_scaled_dot_product_efficient_attention_backward")
def _efficient_backward(call: Call) -> tuple[Any, ...]:
    """The gradient of the mask too, where it is asked for."""
    names = ("query", "key", "value", "attn_bias")
    return tuple(like(call[name]) for name in only(names, call["grad_input_mask"]))
