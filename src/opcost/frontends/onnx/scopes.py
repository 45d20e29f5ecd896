"""What ONNX's exporters and operators tell of modules and of the parts that stored tensors play."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from math import prod

from opcost.core.dtype import INTEGER
from opcost.core.graph import Role
from opcost.core.shapes import known
from opcost.frontends.nodes.call import Made
from opcost.frontends.nodes.model import Node, NodeGraph
from opcost.frontends.nodes.scopes import Scopes, clean
from opcost.frontends.onnx.operators.blocked import unpadded
from opcost.frontends.onnx.table import NCHWC

_STATISTICS = {"BatchNormalization": (3, 4)}
_QUANTIZED = {
    "DequantizeLinear": (0,), "QLinearConv": (3, 8), "QLinearMatMul": (3,), "MatMulInteger": (1,), "ConvInteger": (1,),
    "QGemm": (3, 6), "MatMulNBits": (1,), "MatMulBnb4": (1,), "QAttention": (1,), "DynamicQuantizeMatMul": (1,),
    "MatMulIntegerToFloat": (1,), "MatMulInteger16": (1,), "MatMulFpQ4": (1,), "MatMulBlockQuantizedFp4Weight": (1,),
    "QOrderedMatMul": (2,), "MatMulNBitsMlp": (3, 6), "MatMulNBitsQkv": (3, 6, 9),
    "DynamicQuantizeLSTM": (1, 2), "GatherBlockQuantized": (0,), "QMoE": (2, 5, 8), "Gather": (0,),
}  # fmt: skip
"""Whole numbers that are weights, by the place at which an operator reads them."""
_SCALES = {
    "DequantizeLinear": (1, 2), "QuantizeLinear": (1, 2), "QLinearConv": (1, 2, 4, 5, 6, 7), "QLinearMatMul": (1, 2, 4, 5, 6, 7),
    "QGemm": (1, 2, 4, 5, 7, 8), "MatMulNBits": (2, 3, 4), "MatMulBnb4": (2,), "QAttention": (3, 4, 6, 7),
    "DynamicQuantizeMatMul": (2, 3), "MatMulIntegerToFloat": (2, 3, 4, 5), "MatMulInteger": (2, 3), "ConvInteger": (2, 3),
    "MatMulBlockQuantizedFp4Weight": (2, 3, 4), "MatMulBlockQuantizedFp8Weight": (2, 3), "QOrderedMatMul": (1, 3, 4, 7),
    "MatMulNBitsMlp": (4, 7), "MatMulNBitsQkv": (4, 7, 10),
    "GatherBlockQuantized": (2, 3), "QMoE": (3, 6, 9), "DynamicQuantizeLSTM": (8, 9, 10, 11),
}  # fmt: skip
"""Scales and zero points."""
_SETTINGS = {
    "Resize": (1, 2, 3),
    "Upsample": (1,),
    "OneHot": (1, 2),
    "NonMaxSuppression": (2, 3, 4),
    "Clip": (1, 2),
    "Pad": (2,),
}
"""What tells an operator what to do, and is no weight though it is made of floating numbers."""
_PACKED = {
    ("MatMulNBits", 1): "N", ("MatMulBnb4", 1): "N", ("MatMulNBitsMlp", 3): "N", ("MatMulNBitsMlp", 6): "N",
    ("MatMulNBitsQkv", 3): "Nq", ("MatMulNBitsQkv", 6): "Nkv", ("MatMulNBitsQkv", 9): "Nkv",
}  # fmt: skip
"""Weights that are packed out of sight, and the attribute that says how many rows they have."""
_PARTS: dict[str, Role] = {"PARAMETER": "param", "BUFFER": "buffer"}
_TARGET = re.compile(r"^(\w+): (PARAMETER|BUFFER)\b.*? target='([^'\n]*)'", re.MULTILINE)
"""A line of the signature that PyTorch's newer exporter writes: its own word, what it is, and the name in the module."""
_NAMED = re.compile(r"%(\w+)")
_WEIGHTED = frozenset("Conv ConvTranspose Gemm MatMul FusedConv FusedMatMul LSTM GRU RNN Einsum".split())
"""Operators whose constants of two axes and more are weights, though they stand in a node of their own."""


class OnnxScopes(Scopes):
    """Paths of PyTorch's two exporters, and the tensors that quantized operators read."""

    def __init__(self, graph: NodeGraph) -> None:
        super().__init__()
        told = _TARGET.findall(graph.props.get("pkg.torch.export.ExportedProgram.graph_signature", ""))
        self._parts: dict[str, Role] = {target: _PARTS[part] for _, part, target in told}
        """Parameters and buffers of the module that was exported, by their names; none: the exporter does not say."""
        self._absent = {
            called: target for called, part, target in told if part == "PARAMETER" and target not in graph.stored
        }
        """Parameters that are not stored under their names, by what PyTorch's graph calls them."""
        self._found: set[str] = set()

    def folded(self) -> list[str]:
        """The parameters of the module that no weight of the file stands for."""
        return [target for called, target in self._absent.items() if called not in self._found]

    def told(self, node: Node) -> str | None:
        found = _told(node.props) if node.props else None
        return super().told(node) if found is None else found

    def meant(self, node: Node, place: int, ins: Sequence[Made | None]) -> tuple[tuple[int, ...], str] | None:
        made = ins[place]
        if made is None or not made.shape:
            return None
        if (node.domain, node.op) == (NCHWC, "Conv"):
            return unpadded(node, place, ins), made.dtype
        if (node.op, place) == ("MatMulBlockQuantizedFp4Weight", 1):
            *rows, half = known(made.shape)
            return (*rows, 2 * half), "float4_e2m1fn"
        width = _PACKED.get((node.op, place))
        if width is None:
            return None
        return (int(node.attrs[width]), int(node.attrs["K"])), f"uint{int(node.attrs.get('bits', 4))}"

    def role(self, node: Node, place: int, made: Made) -> Role:
        if place in _STATISTICS.get(node.op, ()) or place in _SCALES.get(node.op, ()):
            return "buffer"
        if place in _SETTINGS.get(node.op, ()):
            return "const"
        if made.dtype in INTEGER:
            weights = place in _QUANTIZED.get(node.op, ()) and made.dtype not in ("int64", "bool")
            return "param" if weights and (node.op != "Gather" or len(made.shape or ()) > 1) else "const"
        part = self._parts.get(node.inputs[place])
        if part is not None:
            return part
        if not made.shape or (self._parts and not self._stands_for(node, made)):
            return "const"
        return "param" if not self.held[made.value] or (node.op in _WEIGHTED and len(made.shape) > 1) else "const"

    def _stands_for(self, node: Node, made: Made) -> bool:
        """Whether what a node reads was a parameter before the exporter turned it; a constant of its own was none.

        The operator names the parameter, or it has become a vector with other axes around it (a scale, a token), and then the
        module of the node has a parameter that is found nowhere else. What was looked up in a table is not that table.
        """
        shape = known(made.shape)
        if prod(shape) < 2:
            return False
        named = _NAMED.findall(node.props.get("pkg.torch.onnx.fx_node", ""))
        absent = [called for called in named if called in self._absent]
        if not absent and max(shape) == prod(shape):
            path = self.told(node)
            left = [called for called in self._absent if called not in self._found]
            absent = [called for called in left if self._absent[called].rpartition(".")[0] == path][:1]
        self._found.update(absent)
        return bool(absent)


def _told(props: Mapping[str, str]) -> str | None:
    """The path that PyTorch's newer exporter writes: a list of the modules around a node, each with its whole path."""
    scopes = props.get("pkg.torch.onnx.name_scopes", "")
    if not scopes or len(scopes) > 10_000:
        return None
    try:
        listed = ast.literal_eval(scopes)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return None
    if not isinstance(listed, list) or not all(isinstance(each, str) for each in listed):
        return None
    return clean(listed[-2]) if len(listed) > 1 else ""
