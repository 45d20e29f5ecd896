"""The values and operators of a graph, as they are made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from opcost.core.graph import Attrs, Note, Op, Role, TensorSpec, Value
from opcost.frontends.aten import Translation
from opcost.frontends.aten.tensor import Described
from opcost.frontends.pt2.modules import Modules
from opcost.frontends.pt2.program import Meta


class Made(NamedTuple):
    """A tensor and the value that stands for it; extents that depend on data are None."""

    tensor: Described
    value: int


class Builder:
    """Makes values and operators in the order of the program."""

    def __init__(self, symbols: Mapping[str, int]) -> None:
        self.symbols = symbols
        self.values: list[Value] = []
        self.ops: list[Op] = []
        self.notes: dict[Note, None] = {}
        self.modules = Modules()
        self._specs: dict[tuple[Any, str], TensorSpec] = {}
        self._attrs: dict[str, Attrs] = {}

    def value(
        self,
        name: str,
        tensor: Described,
        role: Role = "activation",
        *,
        home: int | None = None,
        trainable: bool = False,
    ) -> Made:
        """A new value; equal specs are one object, by which prices are cached."""
        key = (tensor.shape, tensor.dtype)
        if key not in self._specs:
            self._specs[key] = TensorSpec(*key)  # type: ignore[arg-type]
        index = len(self.values)
        storage = index if home is None else self.values[home].storage
        self.values.append(Value(index, name, self._specs[key], role, storage, trainable))
        return Made(tensor, index)

    def op(
        self, found: Translation, raw: str, ins: Iterable[int], outs: Iterable[int], module: str, repeat: int
    ) -> None:
        """A new operator."""
        attrs = self._attrs.setdefault(repr(sorted(found.attrs.items())), found.attrs)
        self.ops.append(Op(len(self.ops), found.kind, raw, tuple(ins), tuple(outs), attrs, module, repeat))

    def note(self, code: str, text: str) -> None:
        self.notes[Note(code, text)] = None


def described(meta: Meta) -> Described:
    """A tensor for the table."""
    shape, strides, dtype, device, layout, requires_grad = meta
    return Described(shape, strides, dtype, device, layout, requires_grad=requires_grad)  # type: ignore[arg-type]
