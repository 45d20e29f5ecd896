"""Nested tensors: batches of components of different lengths, counted with each component's own length.

The jagged layout is a class of PyTorch's that takes an operator apart into operators on the elements of all components, and
those are seen. The strided layout is taken apart in compiled code, unseen, so it is counted in the jagged layout.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F

from opcost.errors import InputError
from opcost.frontends.torch.restore.process import replaced


def is_strided(tensor: torch.Tensor) -> bool:
    """Whether a tensor is a nested one of the layout that compiled code takes apart."""
    return tensor.is_nested and tensor.layout is torch.strided


def as_jagged(tensor: torch.Tensor, name: str) -> torch.Tensor:
    """A nested input in the jagged layout."""
    try:
        made = torch.nested.as_nested_tensor(list(tensor.detach().unbind()), layout=torch.jagged)
    except (RuntimeError, ValueError, TypeError) as exc:
        raise InputError(
            f"the input {name or 'tensor'} is nested in the strided layout, and not in a way that the jagged layout knows: {exc}",
            hint="let its components differ in one dimension only, or pass them one by one",
        ) from exc
    return made.requires_grad_() if tensor.requires_grad else made


@contextmanager
def attention_apart() -> Iterator[None]:
    """Attention on jagged tensors as that of each component: on the CPU, PyTorch changes to the strided layout for it."""
    jagged = sys.modules.get("torch.nested._internal.ops")
    name = "jagged_scaled_dot_product_attention"
    if jagged is None or not hasattr(jagged, name):
        yield
        return
    with replaced(jagged, name, _attention(getattr(jagged, name))):
        yield


def _attention(own: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def attend(query: Any, key: Any, value: Any, attn_mask: Any = None, *rest: Any, **options: Any) -> torch.Tensor:
        if attn_mask is not None or query._ragged_idx != 2:
            return own(query, key, value, attn_mask, *rest, **options)
        heads_last = [each.transpose(1, 2) for each in (query, key, value)]
        lengths = [each.offsets().diff().tolist() for each in heads_last]
        split = [each.values().split(sizes) for each, sizes in zip(heads_last, lengths, strict=True)]
        made = [
            F.scaled_dot_product_attention(*(part.transpose(0, 1)[None] for part in parts), None, *rest, **options)
            for parts in zip(*split, strict=True)
        ]
        values = torch.cat([part[0].transpose(0, 1) for part in made])
        return torch.nested.nested_tensor_from_jagged(values, heads_last[0].offsets()).transpose(1, 2)

    return attend
