"""What a peer's operator handle receives: values and nodes that answer what one asks of torch's jit values.

A handle written for fvcore reads shapes with `value.type().sizes()`, constants with `value.toIValue()`, and the tensors of a
list with `value.node().inputs()`; the method names are therefore those of `torch._C.Value` and `torch._C.Node`.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from opcost.core.graph import TensorSpec
from opcost.core.report import Row
from opcost.errors import OpcostError


class TensorType:
    """The type of a tensor value."""

    __slots__ = ("_spec",)

    def __init__(self, spec: TensorSpec) -> None:
        self._spec = spec

    def sizes(self) -> list[int]:
        return list(self._spec.dims)

    def dim(self) -> int:
        return len(self._spec.dims)

    def dtype(self) -> torch.dtype:
        return getattr(torch, self._spec.dtype)  # type: ignore[no-any-return]

    def kind(self) -> str:
        return "TensorType"


class Value:
    """One argument or result of an operator: a tensor's shape and type, a constant, or a list of either."""

    __slots__ = ("_content", "_node")

    def __init__(self, content: object, node: Node | None = None) -> None:
        self._content = content
        self._node = node

    def isCompleteTensor(self) -> bool:
        return isinstance(self._content, TensorSpec) and self._content.known

    def type(self) -> TensorType:
        if not isinstance(self._content, TensorSpec):
            raise OpcostError(f"the value {self._content!r} of an operator is no tensor and has no sizes")
        return TensorType(self._content)

    def toIValue(self) -> object:
        """The constant; None for a tensor, as in the jit."""
        return None if isinstance(self._content, TensorSpec) or _holds_tensor(self._content) else self._content

    def node(self) -> Node:
        """The operator that made a result; for a list, the node whose inputs are its items."""
        if self._node is not None:
            return self._node
        if isinstance(self._content, (list, tuple)):
            return Node("prim::ListConstruct", self._content, (self._content,))
        raise OpcostError("the operator that made this argument is not kept; only results and lists have a node")

    @property
    def numel(self) -> int:
        """Elements of a tensor; 0 for anything else."""
        return self._content.numel if isinstance(self._content, TensorSpec) else 0


class Node:
    """One operator as the author of the model called it, with the rows of the report that it became."""

    __slots__ = ("_arguments", "_kind", "_results", "inside", "module", "rows")

    def __init__(
        self,
        kind: str,
        arguments: Iterable[object],
        results: Iterable[object],
        module: str = "",
        rows: tuple[Row, ...] = (),
        inside: tuple[Node, ...] = (),
    ) -> None:
        self._kind = kind
        self._arguments = tuple(arguments)
        self._results = tuple(results)
        self.module = module
        self.rows = rows
        self.inside = inside
        """The operators that it calls, where it is a function with a backward of its own."""

    def kind(self) -> str:
        return self._kind

    def inputs(self) -> list[Value]:
        return [Value(content) for content in self._arguments]

    def outputs(self) -> list[Value]:
        return [Value(content, self) for content in self._results]

    @property
    def name(self) -> str:
        """The operator's name without its library."""
        return self._kind.rpartition("::")[2]

    @property
    def macs(self) -> int:
        """Multiply-accumulates of everything that ran for this operator."""
        return sum(row.cost.macs * row.op.repeat for row in self.rows if row.cost is not None)

    def __repr__(self) -> str:
        return f"Node({self._kind} in {self.module!r})"


def _holds_tensor(content: object) -> bool:
    return isinstance(content, (list, tuple)) and any(isinstance(item, TensorSpec) for item in content)
