from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol, TypeAlias

import pytest

from opcost.core.graph import Attr, Attrs, Cost, TensorSpec
from opcost.core.kinds import KINDS, check_operator
from opcost.rules import default_rules
from opcost.rules.registry import DEFAULT, Convention, OpView

Tensor: TypeAlias = "tuple[int, ...] | TensorSpec"


class Declared(Mapping[str, Attr]):
    """Attributes of which a rule may ask only those that its kind has."""

    def __init__(self, kind: str, attrs: Attrs) -> None:
        self.known, self.attrs = KINDS[kind].attributes, attrs

    def __getitem__(self, name: str) -> Attr:
        assert name in self.known, f"the rule reads {name!r}, which is not declared"
        return self.attrs[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.attrs)

    def __len__(self) -> int:
        return len(self.attrs)


class CostFunction(Protocol):
    def __call__(
        self, kind: str, ins: Sequence[Tensor], outs: Sequence[Tensor], *, convention: Convention = ..., **attrs: Attr
    ) -> Cost: ...


@pytest.fixture(scope="session")
def cost() -> CostFunction:
    """The cost of one operator given by the shapes of its inputs and outputs (float32 unless a spec says otherwise)."""

    def spec(tensor: Tensor) -> TensorSpec:
        return tensor if isinstance(tensor, TensorSpec) else TensorSpec(tensor)

    def computed(
        kind: str, ins: Sequence[Tensor], outs: Sequence[Tensor], *, convention: Convention = DEFAULT, **attrs: Attr
    ) -> Cost:
        check_operator(kind, "", attrs, len(ins), len(outs))
        view = OpView(kind, "", tuple(map(spec, ins)), tuple(map(spec, outs)), Declared(kind, attrs), convention)
        return default_rules()[kind](view)

    return computed
