from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias

import pytest

from opcost.core.cost import Cost
from opcost.core.graph import Attr, TensorSpec
from opcost.rules import default_rules
from opcost.rules.registry import DEFAULT, Convention, OpView

Tensor: TypeAlias = "tuple[int, ...] | TensorSpec"


class Pricer(Protocol):
    def __call__(
        self, kind: str, ins: Sequence[Tensor], outs: Sequence[Tensor], *, convention: Convention = ..., **attrs: Attr
    ) -> Cost: ...


@pytest.fixture(scope="session")
def cost() -> Pricer:
    """The cost of one operator given by the shapes of its inputs and outputs (float32 unless a spec says otherwise)."""

    def spec(tensor: Tensor) -> TensorSpec:
        return tensor if isinstance(tensor, TensorSpec) else TensorSpec(tensor)

    def price(
        kind: str, ins: Sequence[Tensor], outs: Sequence[Tensor], *, convention: Convention = DEFAULT, **attrs: Attr
    ) -> Cost:
        view = OpView(kind, "", tuple(map(spec, ins)), tuple(map(spec, outs)), attrs, convention)
        return default_rules()[kind](view)

    return price
