"""What PyTorch decides by the device, decided as on a GPU: the kernel of attention, its heads, and dropout in one kernel.

A model that is counted lies on a processor or nowhere, where attention with dropout goes by products and holds the whole square
of queries and keys, and dropout keeps its noise in the type of its input: twice the memory that a GPU holds. So these
functions are exchanged for the time of a run, for the thread that runs it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn import functional

from opcost.frontends.torch.ledger.ledger import counting_thread
from opcost.frontends.torch.recording.autocast import lowered

aten: Any = torch.ops.aten
_HALF = (torch.bfloat16, torch.float16)
_WIDEST = 256
"""Features of a head that kernels of attention take."""
_ALIGNED = 8
"""Elements at whose multiples rows of a mask begin."""


def _attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,  # noqa: FBT001, FBT002 - the function that it stands for takes it by position
    scale: float | None = None,
    enable_gqa: bool = False,  # noqa: FBT001, FBT002 - the same
) -> torch.Tensor:
    """Attention by the kernel that a GPU takes: flash, the one that saves memory, or by products."""
    if not all(map(_is_plain, (query, key, value))):
        return NotImplemented
    query, key, value, attn_mask = lowered(query, key, value, attn_mask)
    if all(part.dim() == 4 and _lies_densely(part) for part in (query, key, value)):
        square = query.shape[-2] == key.shape[-2] or not is_causal
        heads_fit = query.shape[-1] == value.shape[-1] and query.shape[-1] <= _WIDEST
        if query.dtype in _HALF and attn_mask is None and heads_fit and square:
            debug = False
            found = aten._scaled_dot_product_flash_attention(
                query, key, value, dropout_p, is_causal, debug, scale=scale
            )
            return found[0]  # type: ignore[no-any-return]
        if _saves_memory(query, key, value, attn_mask):
            graded = torch.is_grad_enabled() and any(part.requires_grad for part in (query, key, value))
            bias = _as_numbers(attn_mask, query)
            found = aten._scaled_dot_product_efficient_attention(
                query, key, value, bias, graded, dropout_p, is_causal, scale=scale
            )
            return found[0]  # type: ignore[no-any-return]
    return aten._scaled_dot_product_attention_math(  # type: ignore[no-any-return]
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
    )[0]


def _lies_densely(tensor: torch.Tensor) -> bool:
    """Whether the elements of a row lie side by side, as kernels of attention want them."""
    return bool(tensor.stride(-1) == 1 or tensor.shape[-1] == 1)


def _saves_memory(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None) -> bool:
    """Whether the kernel that saves memory takes these: whole vectors of 16 bytes, as many heads, a mask that lies row by row."""
    whole = 16 // query.dtype.itemsize
    return (
        query.dtype in (*_HALF, torch.float32)
        and query.shape[:2] == key.shape[:2]
        and not (query.shape[-1] % whole or value.shape[-1] % whole)
        and (mask is None or mask.stride(-1) == 1)
    )


def _as_numbers(mask: torch.Tensor | None, query: torch.Tensor) -> torch.Tensor | None:
    """A mask of truths as what is added to scores, for every head of every text."""
    if mask is None:
        return None
    if mask.dtype is torch.bool:
        mask = torch.where(mask, 0.0, -torch.inf).to(query.dtype)
    if any(
        stride % _ALIGNED for stride in mask.stride()[:-1]
    ):  # rows that begin anywhere are copied with a rest behind
        length = mask.shape[-1]
        mask = functional.pad(mask, (0, -length % _ALIGNED))[..., :length]
    return mask.expand(*query.shape[:2], query.shape[-2], mask.shape[-1])


def _dropout(input: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> torch.Tensor:  # noqa: A002, FBT001, FBT002 - as the function that it stands for
    if training and 0.0 < p < 1.0 and not inplace and _is_plain(input):
        return torch.native_dropout(input, p, True)[0]  # noqa: FBT003
    return NotImplemented


def _heads(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: torch.Tensor | None,
    in_proj_bias: torch.Tensor | None,
    bias_k: torch.Tensor | None,
    bias_v: torch.Tensor | None,
    add_zero_attn: bool,  # noqa: FBT001 - the function that it stands for takes it by position
    dropout_p: float,
    out_proj_weight: torch.Tensor,
    out_proj_bias: torch.Tensor | None,
    training: bool = True,  # noqa: FBT001, FBT002 - the same
    **other: Any,
) -> Any:
    """`nn.MultiheadAttention` of a text with itself as it runs without gradients: text by text, and nothing is copied."""
    given = (query, in_proj_weight, in_proj_bias, out_proj_weight, out_proj_bias)
    graded = torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in given)
    masked = any(other.get(name) is not None for name in ("key_padding_mask", "attn_mask", "static_k", "static_v"))
    if training or graded or masked or other.get("need_weights", True) or query is not key or key is not value:
        return NotImplemented
    if in_proj_weight is None or in_proj_bias is None or num_heads % 2 or bias_k is not None or add_zero_attn:
        return NotImplemented
    texts = query.transpose(0, 1)
    if query.dim() != 3 or not texts.is_contiguous() or torch.is_autocast_enabled() or not _is_plain(query):
        return NotImplemented
    parts = functional.linear(texts, in_proj_weight, in_proj_bias).unflatten(-1, (3, num_heads, -1))
    found = functional.scaled_dot_product_attention(*parts.permute(2, 0, 3, 1, 4))
    return functional.linear(found.transpose(1, 2).flatten(2), out_proj_weight, out_proj_bias).transpose(0, 1), None


def _is_plain(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided and not tensor.is_nested


_EXCHANGED: dict[str, Any] = {
    "scaled_dot_product_attention": _attention,
    "dropout": _dropout,
    "multi_head_attention_forward": _heads,
}
"""By the names of the functions in `torch.nn.functional`; what they do not know is left to the function itself."""


@contextmanager
def as_on_a_gpu() -> Iterator[None]:
    """Exchange the functions for this thread; others call the plain ones."""
    here = counting_thread()

    before = {name: getattr(functional, name) for name in _EXCHANGED}

    def exchanged(name: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            result = _EXCHANGED[name](*args, **kwargs) if counting_thread() == here else NotImplemented
            return before[name](*args, **kwargs) if result is NotImplemented else result

        return call

    try:
        for name in _EXCHANGED:
            setattr(functional, name, exchanged(name))
        yield
    finally:
        for name, function in before.items():
            setattr(functional, name, function)
