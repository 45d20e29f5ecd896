"""What names and operators of TensorFlow Lite tell of modules and of the parts that stored tensors play."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from opcost.core.dtype import INTEGER
from opcost.core.graph import Role
from opcost.frontends.building import GraphBuilder
from opcost.frontends.nodes.call import Made
from opcost.frontends.nodes.model import Node
from opcost.frontends.nodes.scopes import Scopes, path_in_name
from opcost.frontends.tflite.model import Tensor

_BIASED = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV", "CONV_3D", "CONV_3D_TRANSPOSE", "SVDF")
_SMALL = ("int8", "uint8", "int16", "int4", "uint4", "int2")
_PRODUCTS = ("conv", "matmul", "einsum", "dense")


class LiteScopes(Scopes):
    """Paths in the names of results, which a converter joins where it joined operators: `net/conv1/Relu;net/conv1/Conv2D`."""

    def __init__(self) -> None:
        super().__init__()
        self.tensors: Mapping[str, Tensor] = {}
        """Those of the graph that is walked."""
        self._widened: dict[tuple[int, str], tuple[str, Made]] = {}
        """The stored tensor, with its name, of which a DEQUANTIZE makes the tensor of a graph and a name."""

    def told(self, node: Node) -> str | None:
        parts = node.name.split(";")
        product = (part for part in parts if part.rpartition("/")[2].lower().startswith(_PRODUCTS))
        return path_in_name(next(product, parts[0]))

    def path(self, node: Node, ins: Sequence[Made | None], maker: GraphBuilder) -> str:
        """A layer is named by its stored weight, also where that is widened from float16 first."""
        if self._widens(node, ins) and ins[0] is not None:
            self._widened[id(self.tensors), node.outputs[0]] = node.inputs[0], ins[0]
        found = super().path(node, self._stored(node, ins), maker)
        if (
            self.paths[found] == "DEQUANTIZE"
        ):  # the layer that reads the weight tells the type, and its place among others
            del self.paths[found]
            self.paths[found] = node.op
        return found

    def read(self, node: Node, path: str, ins: Sequence[Made | None], maker: GraphBuilder) -> None:
        if not self._widens(node, ins):  # the layer behind it is the reader
            super().read(node, path, self._stored(node, ins), maker)

    def _widens(self, node: Node, ins: Sequence[Made | None]) -> bool:
        return node.op == "DEQUANTIZE" and bool(ins) and ins[0] is not None and ins[0].value in self.held

    def _stored(self, node: Node, ins: Sequence[Made | None]) -> list[Made | None]:
        found = [
            self._widened.get((id(self.tensors), name), ("", made))
            for name, made in zip(node.inputs, ins, strict=False)
        ]
        return [made for _, made in found]

    def path_of_weight(self, name: str) -> str | None:
        return path_in_name(name.partition(";")[0])

    def role(self, node: Node, place: int, made: Made) -> Role:
        name = node.inputs[place]
        tensor = self.tensors.get(self._widened.get((id(self.tensors), name), (name, made))[0])
        if tensor is not None and tensor.variable:
            return "buffer"
        if made.dtype not in INTEGER:
            return "param" if made.shape else "const"
        quantized = tensor is not None and tensor.quantized
        if made.dtype in _SMALL:
            return "param" if quantized and made.shape else "const"
        return "param" if quantized and node.op in _BIASED and made.dtype in ("int32", "int64") else "const"
