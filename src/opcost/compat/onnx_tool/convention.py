"""What onnx-tool counts for: multiply-adds, and for everything else so many of them for each element."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

Dims = tuple[int, ...]

EXP, DIV, SQRT, TANH = 32, 4, 24, 38

_WEIGHTS = {
    0: "Erf Dropout Identity Trilu Range ArgMax ArrayFeatureExtractor Cast Compress Concat Constant ConstantOfShape DepthToSpace "
    "Expand Flatten GatherElements GatherND Gather GridSample NonMaxSuppression OneHot Pad RandomNormalLike RandomUniformLike "
    "Reshape RoiAlign ScatterElements ScatterND Shape Slice Split Squeeze Tile TopK Transpose Unsqueeze Where ZipMap",
    1: "Abs Add Ceil Mod Mul Neg Sub CumSum Hardmax Relu Sign Equal Floor Greater GreaterOrEqual And Less LessOrEqual Not Or "
    "Round Xor",
    2: "Clip DequantizeLinear LeakyRelu PRelu QuantizeLinear",
    4: "Div HardSigmoid Reciprocal",
    5: "HardSwish",
    7: "InstanceNormalization",
    24: "Sqrt",
    31: "BatchNormalization",
    32: "Exp Pow Sigmoid",
    33: "LpNormalization",
    34: "Gelu",
    35: "Elu",
    36: "Softmax",
    39: "Cos Sin",
    43: "Log",
    64: "Atan",
    76: "Softplus Tanh",
    80: "LogSoftmax",
}
BY_ELEMENT = {op: weight for weight, ops in _WEIGHTS.items() for op in ops.split()}
"""Multiply-adds for each element of the first result."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A node with the shapes of its inputs and results, an input that is left out without one, and its multiply-adds."""

    op: str
    ins: Sequence[Dims | None]
    outs: Sequence[Dims]
    attrs: dict[str, Any]
    macs: int | None
    """Of convolutions, matrix products and the like; None where nobody knows."""

    @property
    def read(self) -> int:
        return prod(self.ins[0] or ()) if self.ins else 0

    @property
    def made(self) -> int:
        return prod(self.outs[0]) if self.outs else 0

    def dims(self, place: int) -> Dims:
        found = self.ins[place] if place < len(self.ins) else None
        return () if found is None else found

    def has(self, place: int) -> bool:
        return place < len(self.ins) and self.ins[place] is not None


def cost_of(node: Seen) -> int | None:
    """What the node costs; None where neither onnx-tool's table nor a rule knows it."""
    if node.op in _FORMULAS:
        return _FORMULAS[node.op](node)
    if node.op in BY_ELEMENT:
        return BY_ELEMENT[node.op] * node.made
    return node.macs


def _with_bias(node: Seen) -> int:
    """Multiply-adds, and one more for each result where there is a bias."""
    return (node.macs or 0) + (node.made if node.has(2) else 0)


def _all_but_one(node: Seen) -> int:
    return max(1, len(node.ins) - 1) * node.made


def _pool(node: Seen) -> int:
    kernel: Dims = node.attrs.get("kernel_shape", ())
    return node.made * prod(kernel)


def _layer_norm(node: Seen) -> int:
    axis = int(node.attrs.get("axis", -1))
    extent = node.dims(0)[axis] if node.dims(0) else 1
    return 7 * node.read + (1 + SQRT + DIV) * (node.read // max(extent, 1))


def _resize(node: Seen) -> int:
    return {"linear": 4, "cubic": 8}.get(str(node.attrs.get("mode", "nearest")), 0) * node.made


def _recurrent(gates: int, by_step: int) -> Callable[[Seen], int]:
    """Products, biases, and for each step and unit of every direction sums, gates and how they are blended."""

    def cost(node: Seen) -> int:
        steps, batch = node.dims(0)[:2]
        units = node.dims(1)[0] * node.dims(1)[1] // gates
        biases = prod(node.dims(3)) if node.has(3) else 0
        return (node.macs or 0) + (biases + by_step * units) * steps * batch

    return cost


_FORMULAS: dict[str, Callable[[Seen], int]] = {
    **dict.fromkeys(("Conv", "ConvTranspose", "Gemm"), _with_bias),
    **dict.fromkeys(("Max", "Min", "Sum", "Mean"), _all_but_one),
    **dict.fromkeys(("MaxPool", "AveragePool"), _pool),
    **dict.fromkeys(("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd"), lambda node: node.read),
    **dict.fromkeys(("Resize", "Upsample"), _resize),
    "ReduceL2": lambda node: (1 + SQRT) * node.read,
    "GlobalAveragePool": lambda node: node.read + DIV * node.made,
    "LayerNormalization": _layer_norm,
    "LRN": lambda node: (DIV + EXP + 1 + int(node.attrs.get("size", 1))) * node.made,
    "LSTM": _recurrent(4, 4 + 3 * EXP + 2 * TANH + 4),
    "GRU": _recurrent(3, 3 + 2 * EXP + TANH + 5),
}
