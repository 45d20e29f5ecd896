"""How ptflops prices an operator: multiply-adds, and one for each element of a bias, activation, pooling input or sum."""

from __future__ import annotations

from typing import Any

from torch import nn

from opcost.compat._operators.node import Node, Value
from opcost.core.report import Row

_CELL_STATE_MACS = {"lstm": 10, "gru": 7, "rnn_tanh": 1, "rnn_relu": 1}
"""Per hidden element and step, besides the products and biases: how the gates meet the state."""
CELLS: dict[type[nn.Module], int] = {
    nn.LSTMCell: _CELL_STATE_MACS["lstm"],
    nn.GRUCell: _CELL_STATE_MACS["gru"],
    nn.RNNCell: _CELL_STATE_MACS["rnn_tanh"],
}
_GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}

_PER_OUTPUT = frozenset({
    "relu", "relu_", "relu6", "relu6_", "prelu", "elu", "elu_", "leaky_relu", "leaky_relu_", "gelu", "gelu_", "silu", "silu_",
    "softmax", "add", "add_", "mul", "mul_", "layer_norm", "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d",
    "upsample_linear1d", "upsample_bilinear2d", "upsample_bicubic2d", "upsample_trilinear3d", "_upsample_nearest_exact1d",
    "_upsample_nearest_exact2d", "_upsample_nearest_exact3d", "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa",
})  # fmt: skip
_PER_INPUT = frozenset(
    f"{adaptive}{kind}_pool{n}d" for adaptive in ("", "adaptive_") for kind in ("avg", "max") for n in (1, 2, 3)
)
_AFFINE_WEIGHT = {"batch_norm": 1, "instance_norm": 1, "group_norm": 2}
"""Position of the weight among the arguments; a norm costs one per element, two where it is affine."""
_BIAS = {"_convolution": 2, "linear": 2, "bilinear": 3}
"""Position of the bias among the arguments."""
_FACTORS = {"conv": 2, "matmul": 2, "bilinear": 3}
"""How many inputs of a recorded product are factors; what comes after them is added."""
_ADDED = frozenset({"addmm", "addmm_", "addmv", "addbmm", "baddbmm", "baddbmm_", "addr"})
"""Products that always add something."""


def node_macs(node: Node) -> int:
    """What an operator costs by the rules of the `pytorch` backend."""
    inputs, outputs = node.inputs(), node.outputs()
    name = node.name
    if name in _PER_OUTPUT:
        return outputs[0].numel
    if name in _PER_INPUT:
        return inputs[0].numel
    if name in _AFFINE_WEIGHT:
        return inputs[0].numel * (2 if inputs[_AFFINE_WEIGHT[name]].isCompleteTensor() else 1)
    if name in ("hardtanh", "hardtanh_"):
        return outputs[0].numel if _is_relu6(inputs) else 0
    total = sum(row_macs(row) for row in node.rows)
    if name in _ADDED or (name in _BIAS and inputs[_BIAS[name]].isCompleteTensor()):
        total += outputs[0].numel
    return total


def row_macs(row: Row) -> int:
    """The products of a row, with what belongs to them in a fused operator."""
    if row.cost is None or not row.cost.macs:
        return 0
    extra = 0
    if row.op.kind == "attention":
        q, _, v = row.ins[:3]
        scores = row.cost.macs // (q.dims[-1] + v.dims[-1])
        extra = scores + q.numel  # softmax, scaling
    elif row.op.kind == "recurrent":
        extra = _bias_elements(row) + _hidden_elements(row) * _CELL_STATE_MACS[str(row.op.attrs["cell"])]
    return (row.cost.macs + extra) * row.op.repeat


def contraction_macs(row: Row) -> int:
    """What a row costs by the rules of the `aten` backend: its products and the bias added to them."""
    if row.cost is None or not row.cost.macs:
        return 0
    return (row.cost.macs + _bias_elements(row)) * row.op.repeat


def _bias_elements(row: Row) -> int:
    """How many elements a bias, or whatever is added to a product, is added to."""
    if row.op.kind == "recurrent":
        gates = _GATES[str(row.op.attrs["cell"])]
        return 2 * gates * _hidden_elements(row) if row.op.attrs.get("bias") else 0
    factors = _FACTORS.get(row.op.kind)
    return row.outs[0].numel if factors is not None and len(row.ins) > factors else 0


def _hidden_elements(row: Row) -> int:
    """Elements of the hidden state of a recurrent layer, over all steps, layers and directions."""
    layers: Any = row.op.attrs["layers"]
    steps: Any = row.op.attrs["steps"]
    return int(steps * sum(hidden for _, hidden, _ in layers))


def _is_relu6(inputs: list[Value]) -> bool:
    bounds = [value.toIValue() for value in inputs[1:3]]
    return bounds == [0, 6]
