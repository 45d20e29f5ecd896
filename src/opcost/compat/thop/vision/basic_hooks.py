"""What thop's convention adds to the multiply-accumulates of a layer, and its rules as forward hooks.

Its number of "MACs" is multiply-accumulates without bias additions, and beside them the operations that it states for norms,
softmax, average pooling, upsampling, PReLU and the gates of recurrent layers. The hooks add to `total_ops`; `custom_ops` may
name them, and rules of one's own may call them.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, TypeAlias

import torch
from torch import nn

from opcost.compat._layers import LayerCall, gates, steps
from opcost.core.graph import TensorSpec

Rule: TypeAlias = Callable[[LayerCall], int]
Hook: TypeAlias = Callable[[nn.Module, tuple[torch.Tensor], torch.Tensor], None]


def _norm(call: LayerCall) -> int:
    affine = getattr(call.module, "affine", False) or getattr(call.module, "elementwise_affine", False)
    return call.inputs[0].numel * (4 if affine else 2)


def _softmax(call: LayerCall) -> int:
    """An exponential and a division per element, and the additions of each sum."""
    elements = call.inputs[0].numel
    dims = call.inputs[0].dims
    dim: int | None = call.module.dim
    if dim is None:  # torch's own choice where no dimension is named
        dim = 0 if len(dims) in (0, 1, 3) else 1
    return 3 * elements - elements // dims[dim]


def _adaptive_average(call: LayerCall) -> int:
    window = prod(call.inputs[0].dims[2:]) / prod(call.outputs[0].dims[2:])
    return int((window + 1) * call.outputs[0].numel)


def _upsample(call: LayerCall) -> int:
    per_element = {"nearest": 1, "linear": 5, "bilinear": 11, "bicubic": 259, "trilinear": 31}
    return per_element.get(call.module.mode, 0) * call.outputs[0].numel


def _gates(elementwise: int) -> Rule:
    """What a recurrent cell does beside its matrices: per gate and unit an addition, with bias two more."""

    def count(call: LayerCall) -> int:
        module = call.module
        per_unit = gates(module) * (3 if module.bias else 1) + elementwise
        layers = getattr(module, "num_layers", 1) * (2 if getattr(module, "bidirectional", False) else 1)
        return steps(call) * layers * int(module.hidden_size) * per_unit

    return count


_FREE = (
    "ReLU ReLU6 Dropout Sequential PixelShuffle ZeroPad2d MaxPool1d MaxPool2d MaxPool3d AdaptiveMaxPool1d "
    "AdaptiveMaxPool2d AdaptiveMaxPool3d"
)
_RULES: dict[str, tuple[Rule | None, str]] = {
    "zero_ops": (None, _FREE),
    "count_convNd": (None, "Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d"),
    "count_normalization": (
        _norm, "BatchNorm1d BatchNorm2d BatchNorm3d SyncBatchNorm LayerNorm InstanceNorm1d InstanceNorm2d InstanceNorm3d",
    ),
    "count_prelu": (lambda call: call.inputs[0].numel, "PReLU"),
    "count_softmax": (_softmax, "Softmax"),
    "count_relu": (None, "LeakyReLU"),
    "count_avgpool": (lambda call: call.outputs[0].numel, "AvgPool1d AvgPool2d AvgPool3d"),
    "count_adap_avgpool": (_adaptive_average, "AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d"),
    "count_linear": (None, "Linear"),
    "count_upsample": (_upsample, "Upsample UpsamplingBilinear2d UpsamplingNearest2d"),
    "count_rnn_cell": (_gates(0), "RNNCell"), "count_rnn": (_gates(0), "RNN"),
    "count_gru_cell": (_gates(4), "GRUCell"), "count_gru": (_gates(4), "GRU"),
    "count_lstm_cell": (_gates(4), "LSTMCell"), "count_lstm": (_gates(4), "LSTM"),
}  # fmt: skip
"""thop's name of a rule, which it prints; what it adds to the multiply-accumulates; the classes of `torch.nn`."""
RULES = {getattr(nn, kind): (name, rule) for name, (rule, kinds) in _RULES.items() for kind in kinds.split()}


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


def _hook(name: str) -> Hook:
    """A rule of the convention as a hook."""
    rule, _ = _RULES[name]
    assert rule is not None

    def count(m: nn.Module, x: tuple[torch.Tensor], y: torch.Tensor) -> None:
        _add(m, rule(LayerCall("", m, tuple(map(_spec, x)), None, result=_spec(y))))

    return count


count_normalization = _hook("count_normalization")
count_prelu = _hook("count_prelu")
count_relu = zero_ops
count_softmax = _hook("count_softmax")
count_avgpool = _hook("count_avgpool")
count_adap_avgpool = _hook("count_adap_avgpool")
count_upsample = _hook("count_upsample")


def _spec(value: Any) -> TensorSpec | None:
    if not isinstance(value, torch.Tensor):
        return None
    return TensorSpec(tuple(value.shape), str(value.dtype).removeprefix("torch."))


def _add(m: nn.Module, operations: int) -> None:
    m.total_ops += torch.DoubleTensor([operations])
