"""Modules and the roles of stored tensors, as ONNX's exporters and operators give them."""

import ast
import re
from collections.abc import Mapping
from functools import lru_cache
from math import prod

from opcost.core.graph import INTEGER, Role
from opcost.core.shapes import known
from opcost.frontends.building import GraphBuilder, with_above
from opcost.frontends.nodes.inputs import Scopes, clean
from opcost.frontends.nodes.meaning import GraphNode, NodeGraph, Operand, Operands, OperatorTable
from opcost.frontends.onnx.runtime import NCHWC, unpadded

_PACKED = {
    ("MatMulNBits", 1): "N", ("MatMulBnb4", 1): "N", ("MatMulNBitsMlp", 3): "N", ("MatMulNBitsMlp", 6): "N",
    ("MatMulNBitsQkv", 3): "Nq", ("MatMulNBitsQkv", 6): "Nkv", ("MatMulNBitsQkv", 9): "Nkv",
}  # fmt: skip
"""Weights that are packed, and the attribute with the number of their rows."""
_PARTS: dict[str, Role] = {"PARAMETER": "param", "BUFFER": "buffer"}
_TARGET = re.compile(r"^(\w+): (PARAMETER|BUFFER)\b.*? target='([^'\n]*)'", re.MULTILINE)
"""A line of the signature that PyTorch's newer exporter writes: its own word, what it is, and the name in the module."""
_NAMED = re.compile(r"%(\w+)")
_CREATED = re.compile(r"(new_)?(zeros|ones|full|arange|eye|tril|triu)(_|$)")
"""The name of what PyTorch makes of nothing."""
_TURNED = re.compile(
    r"(unsqueeze|squeeze|view|reshape|transpose|permute|t|clone|_to_copy|to|flatten|neg|exp|mul)(_\d+)?"
)
"""The name of what PyTorch makes of the elements of one tensor, and of all of them."""
_COMPUTED = re.compile(r"/.*_output_\d+")
"""The name of a node's result: a stored tensor has it where an optimiser has computed the node."""
_WEIGHTED = frozenset("Conv ConvTranspose Gemm MatMul FusedConv FusedMatMul LSTM GRU RNN Einsum".split())
"""Operators whose constants of two axes and more are weights, though they are in a node of their own."""


class OnnxScopes(Scopes):
    """Paths of PyTorch's two exporters, and the tensors that quantized operators read."""

    def __init__(self, graph: NodeGraph, table: OperatorTable) -> None:
        super().__init__()
        self._table = table  # Rows name the inputs that are scales, statistics, settings, and weights of whole numbers
        signature = _TARGET.findall(graph.props.get("pkg.torch.export.ExportedProgram.graph_signature", ""))
        self._parts: dict[str, Role] = {target: _PARTS[part] for _, part, target in signature}
        """Parameters and buffers of the module that was exported, by their names; none: the exporter does not say."""
        parameters = {called: target for called, part, target in signature if part == "PARAMETER"}
        self._absent = {called: target for called, target in parameters.items() if target not in graph.stored}
        """Parameters that are not stored under their names, by what PyTorch's graph calls them."""
        self._called = {called: target for called, _, target in signature}
        self._replaces: dict[int, str] = {}  # The parameter that a stored tensor replaces, by its value
        self._gone: set[str] = set()
        """Constants that were computed before the file was saved, as tables of positions: no parameters of the model."""
        self._types: dict[str, str] = {}
        scopes = [_scopes(node.props) for node in graph.nodes]
        for listed, node in zip(scopes, graph.nodes, strict=True):
            classes = _listed(node.props.get("pkg.torch.onnx.class_hierarchy", "")) if listed else ()
            types = [name.rpartition(".")[2] for name in classes]
            self._types.update(zip(map(clean, listed[:-1]), types, strict=False))
        self.root = self._types.get("", "")
        found = (super(OnnxScopes, self).path_in_node(node) for node in graph.nodes if not node.props)
        self._named_modules = {*with_above(filter(None, found)), *self._types}
        """The modules that the nodes themselves name."""
        texts = (node.props.get("pkg.torch.onnx.fx_node", "") for node in graph.nodes) if self._absent else ()
        self._mentioned = {called for text in texts for called in _NAMED.findall(text) if called in self._absent}
        """Absent parameters that PyTorch's operators read as they are."""

    def folded(self) -> list[str]:
        """The parameters of the module that no weight of the file replaces."""
        there = {*self._replaces.values()}
        return [target for target in self._absent.values() if target not in there]

    def computed(self) -> list[str]:
        """Constants that an optimiser has computed, and that are not counted as parameters."""
        return sorted(self._gone)

    def path_in_node(self, node: GraphNode) -> str | None:
        scopes = _scopes(node.props)
        if not scopes:
            return super().path_in_node(node)
        return clean(scopes[-2]) if len(scopes) > 1 else ""

    def path(self, node: GraphNode, ins: Operands, maker: GraphBuilder) -> str:
        """The module of a weight that no node names: its own operator was merged into that of the module behind it."""
        found = super().path(node, ins, maker)
        if self._parts and node.op in _WEIGHTED:
            names = [maker.values[made.value].name for made in ins if made is not None and made.value in self.stored]
            homes = [name.rpartition(".")[0] for name in names if self._parts.get(name) == "param"]
            if homes and homes[0] not in self._named_modules and not homes[0].startswith(f"{found}." if found else "."):
                self.paths.setdefault(homes[0], node.op)
                return homes[0]
        return found

    def owner(self, made: Operand, path: str, maker: GraphBuilder) -> tuple[str, str]:
        name = self._replaces.get(made.value, maker.values[made.value].name)
        home, _, last = name.rpartition(".")
        if name in self._parts or (home and home in self._named_modules):
            return home, last
        return super().owner(made, path, maker)

    def type(self, path: str) -> str:
        return self._types.get(path, "")

    def meant(self, node: GraphNode, place: int, ins: Operands) -> tuple[tuple[int, ...], str] | None:
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

    def role(self, node: GraphNode, place: int, made: Operand) -> Role:
        row = self._table.get((node.domain, node.op))
        places = row.places if row is not None else {}
        if place in places.get("scale", ()) or place in places.get("statistic", ()):
            return "buffer"
        if place in places.get("setting", ()):  # these are no weights though they are floating numbers
            return "const"
        if made.dtype in INTEGER:
            weights = place in places.get("packed", ()) and made.dtype not in ("int64", "bool")
            return "param" if weights and (node.op != "Gather" or len(made.shape or ()) > 1) else "const"
        part = self._parts.get(node.inputs[place])
        if part is not None:
            return part
        if made.shape and node.op not in _WEIGHTED and _COMPUTED.fullmatch(node.inputs[place]):
            self._gone.add(node.inputs[place])
            return "const"
        if not made.shape or (self._parts and not self._was_parameter(node, place, made)):
            return "const"
        return "param" if not self.stored[made.value] or (node.op in _WEIGHTED and len(made.shape) > 1) else "const"

    def _was_parameter(self, node: GraphNode, place: int, made: Operand) -> bool:
        """Whether what a node reads was a parameter before the exporter turned it; a constant of its own was none.

        PyTorch's operator names the parameter or another one of its module; or an operator between has changed it (a scale, a
        token, a weight with other axes), and then the node's module has a parameter that is found nowhere else, or, for
        weights and vectors, a module below. What was looked up in a table is not that table.
        """
        if made.value in self._replaces:
            return True
        shape = known(made.shape)
        if prod(shape) < 2 or _CREATED.match(node.inputs[place]):
            return False
        vector = max(shape) == prod(shape)
        bias = vector and (node.op not in _WEIGHTED or place > 1)
        there = {*self._replaces.values()}
        left = {called: target for called, target in self._absent.items() if target not in there}
        named = _NAMED.findall(node.props.get("pkg.torch.onnx.fx_node", ""))
        homes = {_home(self._called[called]) for called in named if called in self._called}
        free = {called: target for called, target in left.items() if called not in self._mentioned}
        path = self.path_in_node(node) or ""
        near = [target for target in free.values() if _home(target) == path]
        near = near if vector or _TURNED.fullmatch(node.inputs[place]) else []
        below = [target for target in free.values() if path and target.startswith(f"{path}.")] if vector else []
        choices = [
            [left[called] for called in named if called in left and left[called].endswith("bias") == bias],
            [target for target in free.values() if _home(target) in homes and target.endswith("bias") == bias],
            [left[called] for called in named if called in left and vector],
            [target for target in (*near, *below) if target.endswith("bias") == (node.op == "Add")],
            [target for target in near if vector or not target.endswith("bias")],
        ]
        found = next((each[0] for each in choices if each), None)
        if found is not None:
            self._replaces[made.value] = found
        return found is not None


def _home(name: str) -> str:
    """The module in the name of a parameter."""
    return name.rpartition(".")[0]


def _scopes(props: Mapping[str, str]) -> tuple[str, ...]:
    """What PyTorch's newer exporter writes: the modules around a node, each with its whole path, and its operator."""
    return _listed(props.get("pkg.torch.onnx.name_scopes", "")) if props else ()


@lru_cache(maxsize=1024)  # nodes of one module follow each other
def _listed(text: str) -> tuple[str, ...]:
    """A list of texts as Python writes it; nothing where it is something else."""
    if not text or len(text) > 10_000:
        return ()
    try:
        listed = ast.literal_eval(text)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return ()
    return tuple(listed) if isinstance(listed, list) and all(isinstance(each, str) for each in listed) else ()
