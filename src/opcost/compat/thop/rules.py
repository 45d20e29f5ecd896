"""What thop's convention adds to the multiply-accumulates of a layer.

Its number of "MACs" is multiply-accumulates without bias additions, and beside them the operations that it states for norms,
softmax, average pooling, upsampling, PReLU and the gates of recurrent layers.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import TypeAlias

from torch import nn

from opcost.compat._layers.calls import LayerCall
from opcost.compat._layers.recurrent import cells, gates, steps


def norm(call: LayerCall) -> int:
    affine = getattr(call.module, "affine", False) or getattr(call.module, "elementwise_affine", False)
    return call.inputs[0].numel * (4 if affine else 2)


def input_elements(call: LayerCall) -> int:
    return call.inputs[0].numel


def output_elements(call: LayerCall) -> int:
    return call.outputs[0].numel


def softmax(call: LayerCall) -> int:
    """An exponential and a division per element, and the additions of each sum."""
    elements = call.inputs[0].numel
    dims = call.inputs[0].dims
    dim: int | None = call.module.dim
    if dim is None:  # torch's own choice where no dimension is named
        dim = 0 if len(dims) in (0, 1, 3) else 1
    return 3 * elements - elements // dims[dim]


def adaptive_average(call: LayerCall) -> int:
    window = prod(call.inputs[0].dims[2:]) / prod(call.outputs[0].dims[2:])
    return int((window + 1) * call.outputs[0].numel)


_PER_UPSAMPLED_ELEMENT = {"nearest": 1, "linear": 5, "bilinear": 11, "bicubic": 259, "trilinear": 31}


def upsample(call: LayerCall) -> int:
    return _PER_UPSAMPLED_ELEMENT.get(call.module.mode, 0) * call.outputs[0].numel


def _gates(elementwise: int) -> Callable[[LayerCall], int]:
    """What a recurrent cell does beside its matrices: per gate and unit an addition, with bias two more."""

    def count(call: LayerCall) -> int:
        module = call.module
        per_unit = gates(module) * (3 if module.bias else 1) + elementwise
        return steps(call) * cells(module) * int(module.hidden_size) * per_unit

    return count


_Rule: TypeAlias = tuple[str, "Callable[[LayerCall], int] | None"]
_MACS_ONLY = None

RULES: dict[type[nn.Module], _Rule] = {
    nn.ZeroPad2d: ("zero_ops", _MACS_ONLY),
    **dict.fromkeys((nn.Conv1d, nn.Conv2d, nn.Conv3d), ("count_convNd", _MACS_ONLY)),
    **dict.fromkeys((nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d), ("count_convNd", _MACS_ONLY)),
    **dict.fromkeys((nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d), ("count_normalization", norm)),
    **dict.fromkeys((nn.SyncBatchNorm, nn.LayerNorm), ("count_normalization", norm)),
    **dict.fromkeys((nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d), ("count_normalization", norm)),
    nn.PReLU: ("count_prelu", input_elements),
    nn.Softmax: ("count_softmax", softmax),
    **dict.fromkeys((nn.ReLU, nn.ReLU6, nn.Dropout, nn.Sequential, nn.PixelShuffle), ("zero_ops", _MACS_ONLY)),
    nn.LeakyReLU: ("count_relu", _MACS_ONLY),
    **dict.fromkeys((nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d), ("zero_ops", _MACS_ONLY)),
    **dict.fromkeys((nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d, nn.AdaptiveMaxPool3d), ("zero_ops", _MACS_ONLY)),
    **dict.fromkeys((nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d), ("count_avgpool", output_elements)),
    **dict.fromkeys(
        (nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d), ("count_adap_avgpool", adaptive_average)
    ),
    nn.Linear: ("count_linear", _MACS_ONLY),
    **dict.fromkeys((nn.Upsample, nn.UpsamplingBilinear2d, nn.UpsamplingNearest2d), ("count_upsample", upsample)),
    nn.RNNCell: ("count_rnn_cell", _gates(0)),
    nn.GRUCell: ("count_gru_cell", _gates(4)),
    nn.LSTMCell: ("count_lstm_cell", _gates(4)),
    nn.RNN: ("count_rnn", _gates(0)),
    nn.GRU: ("count_gru", _gates(4)),
    nn.LSTM: ("count_lstm", _gates(4)),
}
"""Per type, thop's name for its rule, which it announces, and what the convention adds to the multiply-accumulates."""
