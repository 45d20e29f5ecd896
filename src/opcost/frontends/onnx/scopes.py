"""Modules, and the part that each stored tensor plays, as far as names and readers tell them."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from opcost.core.dtype import INTEGER
from opcost.core.graph import Module, Role
from opcost.frontends.building import GraphBuilder, tree_order, with_above
from opcost.frontends.onnx.call import Made
from opcost.frontends.onnx.model import Node

_STATISTICS = {"BatchNormalization": (3, 4)}
_QUANTIZED = {
    "DequantizeLinear": (0,), "QLinearConv": (3, 8), "QLinearMatMul": (3,), "MatMulInteger": (1,), "ConvInteger": (1,),
    "QGemm": (3, 6), "MatMulNBits": (1,), "MatMulBnb4": (1,), "QAttention": (1,), "DynamicQuantizeMatMul": (1,),
    "MatMulIntegerToFloat": (1,), "DynamicQuantizeLSTM": (1, 2), "GatherBlockQuantized": (0,), "QMoE": (2, 5, 8), "Gather": (0,),
}  # fmt: skip
"""Whole numbers that are weights, by the place at which an operator reads them."""
_SCALES = {
    "DequantizeLinear": (1, 2), "QuantizeLinear": (1, 2), "QLinearConv": (1, 2, 4, 5, 6, 7), "QLinearMatMul": (1, 2, 4, 5, 6, 7),
    "QGemm": (1, 2, 4, 5, 7, 8), "MatMulNBits": (2, 3, 4), "MatMulBnb4": (2,), "QAttention": (3, 4, 6, 7),
    "DynamicQuantizeMatMul": (2, 3), "MatMulIntegerToFloat": (2, 3, 4, 5), "MatMulInteger": (2, 3), "ConvInteger": (2, 3),
    "GatherBlockQuantized": (2, 3), "QMoE": (3, 6, 9), "DynamicQuantizeLSTM": (8, 9, 10, 11),
}  # fmt: skip
"""Scales and zero points."""
_WEIGHTED = frozenset("Conv ConvTranspose Gemm MatMul FusedConv FusedMatMul LSTM GRU RNN Einsum".split())
"""Operators whose constants of two axes and more are weights, though they stand in a node of their own."""


class Scopes:
    """Where nodes stand in the tree of modules, and who reads which stored tensor as what."""

    def __init__(self) -> None:
        self.held: dict[int, bool] = {}
        """Stored tensors by their values; True: they stand in a node and not among the weights."""
        self.roles: dict[int, Role] = {}
        self.owners: dict[int, str] = {}
        self.paths: dict[str, str] = {}
        """The operator that first stood there."""
        self.shared: set[int] = set()
        self.logical: dict[int, tuple[tuple[int, ...], str]] = {}
        """Shape and element type of packed weights as they are meant."""

    def path(self, node: Node, reads: Sequence[int], maker: GraphBuilder) -> str:
        """The module of a node: told by the exporter, by the node's name, or by that of a weight it reads."""
        found = _told(node.props) or _from_name(node.name)
        if found is None:
            names = [maker.values[value].name for value in reads if value in self.held]
            found = next((name.rpartition(".")[0] for name in names if "." in name and "/" not in name), "")
        self.paths.setdefault(found, node.op)
        return found

    def read(self, node: Node, path: str, ins: Sequence[Made | None]) -> None:
        """Note which part the stored tensors play that a node reads."""
        for place, made in enumerate(ins):
            if made is None or made.value not in self.held:
                continue
            role = self._role(node, place, made)
            if role == "const":
                continue
            if (place, node.op) in ((1, "MatMulNBits"), (1, "MatMulBnb4")):
                bits = int(node.attrs.get("bits", 4))
                self.logical[made.value] = (int(node.attrs["N"]), int(node.attrs["K"])), f"uint{bits}"
            if self.owners.setdefault(made.value, path) != path:
                self.shared.add(made.value)
            if self.roles.get(made.value) != "param":
                self.roles[made.value] = role

    def _role(self, node: Node, place: int, made: Made) -> Role:
        if place in _STATISTICS.get(node.op, ()) or place in _SCALES.get(node.op, ()):
            return "buffer"
        if made.dtype in INTEGER:
            weights = place in _QUANTIZED.get(node.op, ()) and made.dtype not in ("int64", "bool")
            return "param" if weights and (node.op != "Gather" or len(made.shape or ()) > 1) else "const"
        if not made.shape:
            return "const"
        return "param" if not self.held[made.value] or (node.op in _WEIGHTED and len(made.shape) > 1) else "const"

    def forget(self, begin: int) -> None:
        """Drop all that is noted of values from this one on."""
        for noted in (self.held, self.roles, self.owners, self.logical):
            for value in [value for value in noted if value >= begin]:
                del noted[value]
        self.shared = {value for value in self.shared if value < begin}

    def settle(self, maker: GraphBuilder) -> None:
        """Give the stored tensors their parts."""
        for value, role in self.roles.items():
            spec = maker.spec(*self.logical[value]) if value in self.logical else maker.values[value].spec
            maker.values[value] = maker.values[value]._replace(spec=spec, role=role, trainable=role == "param")

    def modules(self, maker: GraphBuilder, source: str) -> list[Module]:
        """The tree of modules, each with the tensors of which it is the first reader."""
        parameters: dict[str, list[tuple[str, int]]] = {}
        buffers: dict[str, list[tuple[str, int]]] = {}
        for value, path in self.owners.items():
            into = parameters if self.roles[value] == "param" else buffers
            taken = {name for name, _ in (*parameters.get(path, ()), *buffers.get(path, ()))}
            name = maker.values[value].name.removeprefix(f"{path}.") or "weight"
            into.setdefault(path, []).append((name if name not in taken else f"{name}_{value}", value))
        return [
            Module(
                path=path,
                type=source if not path else self.paths.get(path, "scope"),
                parameters=tuple(parameters.get(path, ())),
                buffers=tuple(buffers.get(path, ())),
                calls=1,
            )
            for path in tree_order(with_above(self.paths))
        ]


def _told(props: dict[str, str] | object) -> str | None:
    """The path that PyTorch's newer exporter writes: a list of the modules around a node, each with its whole path."""
    scopes = props.get("pkg.torch.onnx.name_scopes", "") if isinstance(props, dict) else ""
    if not scopes or len(scopes) > 10_000:
        return None
    try:
        listed = ast.literal_eval(scopes)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return None
    if not isinstance(listed, list) or not all(isinstance(each, str) for each in listed):
        return None
    return _clean(listed[-2]) if len(listed) > 1 else ""


def _from_name(name: str) -> str | None:
    """The path in a name as `/layer1/layer1.0/conv1/Conv`, in which a module inside a list repeats the list's name."""
    if not name.startswith("/") and "/" not in name:
        return None
    scopes = [scope for scope in name.split("/")[:-1] if scope]
    parts: list[str] = []
    before = ""
    for scope in scopes:
        parts.append(scope.removeprefix(f"{before}.") if before else scope)
        before = scope
    return _clean(".".join(parts))


def _clean(path: str) -> str:
    return ".".join(part for part in path.split(".") if part)
