"""One operator of a dump as the rows of `operators.json` see it; see `frontends.rows` for their words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, TypeAlias

from opcost.core.parsing import packaged_table
from opcost.core.shapes import Dims, Extent, Mismatch, Unknown, text
from opcost.frontends.megengine.schema import ParamFields
from opcost.frontends.nodes.meaning import Content, Operand
from opcost.frontends.nodes.windows import SlidingWindow
from opcost.frontends.rows import RowCall, RowFunctions

Numbers: TypeAlias = "tuple[int | float, ...]"


@dataclass(slots=True, eq=False)
class MegEngineCall(RowCall):
    """An operator with what is known of its tensors, the numbers of small ones included."""

    attrs: ParamFields
    _: KW_ONLY
    type: str
    contents: Sequence[Content | None]

    @classmethod
    def of(cls, kind: str, params: ParamFields, given: Sequence[Operand], count: int) -> MegEngineCall:
        """An operator on these tensors that makes `count` results."""
        shapes, types, contents = [x.shape for x in given], [x.dtype for x in given], [x.content for x in given]
        unknown = [None] * count
        return cls(params, shapes, [*unknown], [*types], [*unknown], type=kind, contents=contents)

    # -- inputs -------------------------------------------------------------------------------------------------------

    def _place(self, index: int) -> int:
        if index >= len(self.ins):
            raise Mismatch(f"it has {len(self.ins)} inputs and needs {index + 1}")
        return index

    def dims(self, index: int) -> Dims:
        """The shape of an input, of which the rank at least must be known."""
        return RowCall.dims(self, self._place(index))

    def ranked(self, index: int, *ranks: int) -> Dims:
        """The shape of an input that must have one of these ranks."""
        dims = self.dims(index)
        if len(dims) not in ranks:
            raise Mismatch(f"input {index} is {text(dims)}, and needs {' or '.join(map(str, ranks))} axes")
        return dims

    def dtype(self, index: int = 0) -> str:
        """The element type of an input; float32 where there are no inputs."""
        return self.in_types[index] or "float32" if self.in_types or index else "float32"

    def value(self, index: int) -> Numbers | None:
        """The numbers of an input, if they are known without data."""
        content = self.contents[self._place(index)]
        return None if content is None else content.items  # type: ignore[return-value]

    def first(self, index: int) -> int | None:
        """The first number of an input, as a whole number."""
        numbers = self.value(index)
        return int(numbers[0]) if numbers else None

    def target(self, index: int) -> Dims:
        """An input that holds a shape: its numbers, or as many unknown extents."""
        numbers = self.value(index)
        if numbers is not None:
            return tuple(int(number) for number in numbers)
        (length,) = self.ranked(index, 1)
        if length is None or length > 7:
            raise Unknown
        return (None,) * length

    # -- parameters ---------------------------------------------------------------------------------------------------

    @property
    def format(self) -> str:
        """The layout of images."""
        return self.attrs.text("format") or "NCHW"

    @property
    def grouped(self) -> bool:
        return self.attrs.text("sparse") == "GROUP"

    def per_axis(self, name: str, axes: int = 2) -> tuple[int, ...]:
        """A parameter that is a whole number for height and width, or for depth as well."""
        return tuple([self.attrs.integer(f"{name}_{axis}") for axis in "dhw"[-axes:]])

    def window(self, space: Sequence[Extent], kernel: Sequence[Extent]) -> SlidingWindow:
        """A kernel over these axes, with the stride, padding and dilation of the operator."""
        stride, pads, dilation = (self.per_axis(name, len(kernel)) for name in ("stride", "pad", "dilate"))
        more: dict[str, Any] = {"dilation": [by or 1 for by in dilation], "pads": [(pad, pad) for pad in pads]}
        return SlidingWindow(tuple(kernel), tuple(space), stride=stride, **more)


DATA: dict[str, Any] = packaged_table(__package__, "operators.json")
FUNCTIONS = RowFunctions()
