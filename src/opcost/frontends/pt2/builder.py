"""The graph of a program as it is made, with the tensors by which its operators are translated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from opcost.core.graph import Role
from opcost.frontends.aten.tensor import Described
from opcost.frontends.building import GraphBuilder
from opcost.frontends.pt2.modules import Modules
from opcost.frontends.pt2.program import Meta


class Made(NamedTuple):
    """A tensor and the value that stands for it; extents that depend on data are None."""

    tensor: Described
    value: int


class Builder(GraphBuilder):
    """Makes values and operators in the order of the program."""

    def __init__(self, symbols: Mapping[str, int]) -> None:
        super().__init__()
        self.symbols = symbols
        self.modules = Modules()

    def made(
        self,
        name: str,
        tensor: Described,
        role: Role = "activation",
        *,
        home: int | None = None,
        trainable: bool = False,
    ) -> Made:
        """A new value for a tensor."""
        spec = self.spec(tuple(tensor.shape), tensor.dtype)
        return Made(tensor, self.value(name, spec, role, home=home, trainable=trainable))


def described(meta: Meta) -> Described:
    """A tensor for the table."""
    shape, strides, dtype, device, layout, requires_grad = meta
    return Described(shape, strides, dtype, device, layout, requires_grad=requires_grad)  # type: ignore[arg-type]
