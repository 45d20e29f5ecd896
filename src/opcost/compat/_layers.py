"""The layers of a model as its tables list them: every call of every registered module, with what ran in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from torch import nn

from opcost.core.graph import TensorSpec
from opcost.core.report import Report, Row

Structure: TypeAlias = Any
"""What a call was given or gave back: a TensorSpec for each tensor, inside the tuples, lists and dicts that held it."""


@dataclass(slots=True, eq=False)
class LayerCall:
    """One call of a layer; `rows` are the operators of its own forward, those of the layers that it calls left out."""

    path: str
    module: nn.Module
    args: tuple[Structure, ...]
    result: Structure
    parent: LayerCall | None
    rows: list[Row] = field(default_factory=list)
    nested: list[LayerCall] = field(default_factory=list)

    @property
    def macs(self) -> int:
        return sum(row.cost.macs * row.op.repeat for row in self.rows if row.cost is not None)

    @property
    def outputs(self) -> list[TensorSpec]:
        return list(tensors(self.result))

    @property
    def inputs(self) -> list[TensorSpec]:
        """The tensors among the positional arguments."""
        return list(tensors(self.args))

    def in_order_of_exit(self) -> Iterator[LayerCall]:
        """This call and the calls inside it, each when it is done."""
        for call in self.nested:
            yield from call.in_order_of_exit()
        yield self


def tensors(structure: Structure) -> Iterator[TensorSpec]:
    """Every tensor in a structure, in order."""
    if isinstance(structure, TensorSpec):
        yield structure
    elif isinstance(structure, (list, tuple)):
        for item in structure:
            yield from tensors(item)
    elif isinstance(structure, dict):
        for item in structure.values():
            yield from tensors(item)
