"""The graph of a program as it is made, with the tensors by which its operators are translated."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from opcost.core.graph import Role
from opcost.frontends.aten.tensor import Described
from opcost.frontends.building import GraphBuilder, check_extents
from opcost.frontends.programs.modules import Modules

MOST_AXES = 64


class Made(NamedTuple):
    """A tensor and the value that stands for it; extents that depend on data are None."""

    tensor: Described
    value: int


class Builder(GraphBuilder):
    """Makes values and operators in the order of the program."""

    def __init__(self, symbols: Mapping[str, int] | None = None) -> None:
        super().__init__()
        self.symbols = symbols or {}
        self.modules = Modules()
        self._possible: set[tuple[int | None, ...]] = set()

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
        shape = tuple(tensor.shape)
        if shape not in self._possible:
            check_extents(shape, name or "a result", MOST_AXES)
            self._possible.add(shape)
        spec = self.spec(shape, tensor.dtype)
        return Made(tensor, self.value(name, spec, role, home=home, trainable=trainable))


def made_in(values: Iterable[Any]) -> Iterator[Made]:
    """What was made among nested arguments, in order."""
    for value in values:
        if isinstance(value, Made):
            yield value
        elif isinstance(value, list):
            yield from made_in(value)
        elif isinstance(value, dict):
            yield from made_in(value.values())
