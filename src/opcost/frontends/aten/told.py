"""Calls of which not everything is known: what is not told is never guessed, asking for it is an error."""

from __future__ import annotations

from typing import Any

from opcost.frontends.aten.call import Call
from opcost.frontends.aten.tensor import Described, Tensor


class NotTold(Exception):
    """Something was asked that the source of a call does not tell; the call has no price then."""


UNTOLD = object()
"""Stands for an argument that was given and is not known."""


class PartlyTold(Call):
    """A call some of whose arguments may not be told; to pass them by is fine, to look at them is not."""

    __slots__ = ()

    def __getitem__(self, name: str) -> Any:
        value = self.args[name]
        if value is UNTOLD:
            raise NotTold(name)
        return value

    def get(self, *names: str) -> Any:
        for name in names:
            if name in self.args and (value := self[name]) is not None:
                return value
        return None

    def tensors(self, *names: str) -> tuple[Tensor, ...]:
        for name in names:
            if name in self.args:
                self[name]
        return super().tensors(*names)


class Unplaced(Described):
    """A tensor whose strides are not told."""

    __slots__ = ()

    def __init__(self, shape: tuple[int, ...], dtype: str) -> None:
        super().__init__(shape, (), dtype)

    def stride(self) -> tuple[int, ...]:
        raise NotTold("strides")
