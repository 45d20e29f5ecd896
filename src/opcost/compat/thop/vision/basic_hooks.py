"""thop's rules as forward hooks that add to `total_ops`, to be named in `custom_ops` or called by a rule of one's own."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import torch
from torch import nn

from opcost.compat._layers.calls import LayerCall
from opcost.compat.thop import rules
from opcost.core.graph import TensorSpec


def count_parameters(m: nn.Module, x: tuple[torch.Tensor], y: torch.Tensor) -> None:
    m.total_params[0] = sum(p.numel() for p in m.parameters())


def zero_ops(m: nn.Module, x: tuple[torch.Tensor], y: torch.Tensor) -> None:
    _add(m, 0)


def count_convNd(m: nn.Module, x: tuple[torch.Tensor], y: torch.Tensor) -> None:
    """Every weight of its group for each output, or, where it is transposed, for each input."""
    positions = x[0] if getattr(m, "transposed", False) else y
    _add(m, positions.numel() * prod(m.weight.shape[1:]))


count_convNd_ver2 = count_convNd


def count_linear(m: nn.Module, x: tuple[torch.Tensor], y: torch.Tensor) -> None:
    _add(m, m.in_features * y.numel())


def _hook(rule: Callable[[LayerCall], int]) -> Callable[[nn.Module, tuple[torch.Tensor], torch.Tensor], None]:
    """A rule of the convention as a hook."""

    def count(m: nn.Module, x: tuple[torch.Tensor], y: torch.Tensor) -> None:
        _add(m, rule(LayerCall("", m, tuple(map(_spec, x)), None, result=_spec(y))))

    return count


count_normalization = _hook(rules.norm)
count_prelu = _hook(rules.input_elements)
count_relu = zero_ops
count_softmax = _hook(rules.softmax)
count_avgpool = _hook(rules.output_elements)
count_adap_avgpool = _hook(rules.adaptive_average)
count_upsample = _hook(rules.upsample)


def _spec(value: Any) -> TensorSpec | None:
    if not isinstance(value, torch.Tensor):
        return None
    return TensorSpec(tuple(value.shape), str(value.dtype).removeprefix("torch."))


def _add(m: nn.Module, operations: int) -> None:
    m.total_ops += torch.DoubleTensor([operations])
