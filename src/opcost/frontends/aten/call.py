"""One operator call under its schema's argument names, the tensors in it, and the table in which families register handlers."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, NamedTuple, TypeAlias, TypeVar

from opcost.core.graph import BITS, COMPLEX, Attr


class Translation(NamedTuple):
    """What an operator computes, in our words."""

    kind: str  # A key of `opcost.core.kinds.KINDS`
    attrs: dict[str, Attr]
    ins: tuple[AtenTensor, ...] | None = None
    """Tensors of the arguments in the order that the kind states; None: all tensor arguments as they come."""
    outs: tuple[AtenTensor, ...] | None = None
    """Tensors of the arguments that are written, for operators that return nothing; None: what was returned."""


def means(kind: str, ins: Iterable[Any] | None = None, outs: Iterable[Any] | None = None, **attrs: Any) -> Translation:
    """A translation with these attributes, without those that are None; `ins` and `outs` may be nested and have gaps."""
    given = {name: value for name, value in attrs.items() if value is not None}
    return Translation(kind, given, *(None if side is None else tuple(flat(side)) for side in (ins, outs)))


class NotKnown(Exception):
    """Something was read that the source of a call does not give; the call has no cost then."""


UNKNOWN_VALUE = object()  # An argument that was given and is not known: it is never guessed, and reading it is an error


@dataclass(slots=True, eq=False)
class AtenCall:
    """An operator with its arguments by name, defaults filled in, and its outputs."""

    name: str  # Library and operator as in the table: `aten::add` also for `add_` and `_foreach_add`
    overload: str
    args: dict[str, Any]
    outs: tuple[AtenTensor, ...]
    in_place: bool = field(kw_only=True)

    def __getitem__(self, name: str) -> Any:
        value = self.args[name]
        if value is UNKNOWN_VALUE:
            raise NotKnown(name)
        return value

    def get(self, *names: str) -> Any:
        """The first of these arguments that is there and is not None."""
        for name in names:
            if name in self.args and (value := self[name]) is not None:
                return value
        return None

    def tensors(self, *names: str) -> tuple[AtenTensor, ...]:
        """The tensors among these arguments, in this order; absent ones are left out."""
        return tuple(flat(self[name] for name in names if name in self.args))

    @property
    def base(self) -> str:
        """The operator's name without its library."""
        return self.name.partition("::")[2]


R = TypeVar("R")


class AtenTable(dict[str, Callable[..., R]]):
    """Functions of calls by the name of the operator; `library` is that of names that are registered without one."""

    def __init__(self, library: str = "") -> None:
        super().__init__()
        self._library = library

    def on(self, *names: str) -> Callable[[Callable[..., R]], Callable[..., R]]:
        """Register a function of a call under names."""

        def register(function: Callable[..., R]) -> Callable[..., R]:
            for name in names:
                full = name if "::" in name else self._library + name
                if full in self:
                    raise ValueError(f"{full} is in the table twice")
                self[full] = function
            return function

        return register

    def rows(self, table: Mapping[str, Callable[..., R]]) -> None:
        """Register functions of arguments under names separated by spaces.

        A function is given the arguments that its parameters name, and the whole call as `call`; for what an operator
        does not take it has a default.
        """
        for names, function in table.items():
            self.on(*names.split())(_by_name(function))


def _by_name(function: Any) -> Callable[..., Any]:
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    required = names[: len(names) - len(function.__defaults__ or ())]
    optional = names[len(required) :]

    def of_call(call: AtenCall, **more: Any) -> Any:
        more["call"] = call
        values = [more[name] if name in more else call[name] for name in required]
        return function(*values, **{name: call[name] for name in optional if name in call.args})

    return of_call


Handler: TypeAlias = Callable[[AtenCall], Translation]

HANDLERS: AtenTable[Translation] = AtenTable("aten::")
"""Handlers by `library::operator`, or by `library::operator.overload`, which wins."""
on, rows = HANDLERS.on, HANDLERS.rows


@dataclass(frozen=True, slots=True)
class Constant:
    """The handler of operators whose kind and attributes do not depend on the call."""

    kind: str
    reads: tuple[str, ...]
    """Arguments that are inputs, in the order of the kind; empty where all tensors are, as they come."""
    attrs: dict[str, Attr]

    def __call__(self, call: AtenCall) -> Translation:
        return Translation(self.kind, dict(self.attrs), call.tensors(*self.reads) if self.reads else None)


def flat(values: Iterable[Any]) -> Iterator[AtenTensor]:
    """The tensors in nested lists, in order."""
    for value in values:
        if isinstance(value, AtenTensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from flat(value)
        elif isinstance(value, dict):
            yield from flat(value.values())


def per_axis(value: Any, axes: int) -> tuple[int, ...]:
    """A size argument with one entry per axis; torch accepts one number for all."""
    if isinstance(value, int):
        return (value,) * axes
    return tuple(value) * axes if len(value) == 1 else tuple(value)


# -- what the table may read of one; a live tensor, one that a file describes and one of a trace are alike


class AtenTensor(ABC):
    """Shape, strides, element type, place, layout, and whether it takes gradients. Data is never read."""

    shape: Sequence[int]
    dtype: Any
    device: Any
    layout: Any
    requires_grad: bool

    def dim(self) -> int:
        return len(self.shape)

    def numel(self) -> int:
        return prod(self.shape)

    def stride(self) -> tuple[int, ...]:
        raise NotImplementedError


@dataclass(slots=True, eq=False)
class Described(AtenTensor):
    """A tensor of which only the description is there."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    device: str = "cpu"
    layout: str = "strided"
    requires_grad: bool = field(default=False, kw_only=True)
    value: int = field(default=-1, kw_only=True)  # Its number in the graph that is made, once it has one

    def stride(self) -> tuple[int, ...]:
        return self.strides


def type_name(tensor: AtenTensor) -> str:
    """The element type in our words."""
    return str(tensor.dtype).removeprefix("torch.")


def layout_name(tensor: AtenTensor) -> str:
    """`strided`, or how only some of the elements are stored."""
    return str(tensor.layout).removeprefix("torch.")


def look(x: AtenTensor, shape: Sequence[int], strides: Sequence[int]) -> Described:
    """Another look at memory."""
    return Described(tuple(shape), tuple(strides), type_name(x), x.device, requires_grad=x.requires_grad)


class Unplaced(Described):
    """A tensor whose strides are unknown."""

    __slots__ = ()

    def __init__(self, shape: tuple[int, ...], dtype: str) -> None:
        super().__init__(shape, (), dtype)

    def stride(self) -> tuple[int, ...]:
        raise NotKnown("strides")


# -- strides: how tensors are laid out in memory, and which other shapes they can have without a copy


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a row-major tensor."""
    strides = []
    step = 1
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return tuple(reversed(strides))


def is_contiguous(tensor: AtenTensor, axes: Sequence[int] | None = None) -> bool:
    """Whether a tensor is row-major, its axes taken in this order; axes of one element do not matter."""
    shape, strides = tuple(tensor.shape), tensor.stride()
    if axes is not None:
        shape, strides = (tuple(sizes[axis] for axis in axes) for sizes in (shape, strides))
    return not tensor.numel() or all(
        extent == 1 or have == want for extent, have, want in zip(shape, strides, row_major(shape), strict=True)
    )


def tells_strides(tensor: AtenTensor) -> bool:
    """Whether the strides are known; old traces do not have them, and the cost of most operators does not need them."""
    try:
        tensor.stride()
    except NotKnown:
        return False
    return True


def has_channels_last(tensor: AtenTensor) -> bool:
    """Whether the channels of an image lie side by side, and its places not."""
    rank = tensor.dim()
    return (
        rank in (4, 5)
        and tells_strides(tensor)
        and not is_contiguous(tensor)
        and is_contiguous(tensor, (0, *range(2, rank), 1))
    )


def lie_alike(tensors: Sequence[AtenTensor]) -> bool:
    """Whether all tensors lie row by row, or all with channels last, so that one kernel can copy them together."""
    filled = [tensor for tensor in tensors if tensor.numel() and tells_strides(tensor)]
    return all(map(is_contiguous, filled)) or all(map(has_channels_last, filled))


def layout(tensors: Iterable[AtenTensor], result: AtenTensor) -> dict[str, Attr]:
    """How tensors of as many elements lie beside what is made of them: alike, with gaps between rows, or turned round."""
    found: dict[str, Attr] = {}
    try:
        there = result.stride()
        for tensor in tensors:
            here = tensor.stride()
            if here != there and tensor.shape == result.shape:
                axes = [axis for axis, extent in enumerate(result.shape) if extent > 1]
                if [here[axis] for axis in axes] != [there[axis] for axis in axes]:
                    found["strided"] = True
                    if here[min(axes, key=there.__getitem__)] > 1:
                        found["turned"] = True
    except (NotKnown, RuntimeError):  # one that is stored sparsely has none
        return {}
    return found


def seen_as(tensor: AtenTensor, shape: Sequence[int]) -> tuple[int, ...] | None:
    """The strides with which the same memory has another shape; None if it must be copied."""
    if not tensor.numel() or not tensor.dim():
        return row_major(shape) if tensor.numel() == prod(shape) else None
    strides = [0] * len(shape)
    at = len(shape) - 1
    base = tensor.stride()[-1]
    whole = seen = 1
    for axis in range(tensor.dim() - 1, -1, -1):
        whole *= tensor.shape[axis]
        ends = axis == 0 or (tensor.shape[axis - 1] != 1 and tensor.stride()[axis - 1] != whole * base)
        if not ends:
            continue
        while at >= 0 and (seen < whole or shape[at] == 1):
            strides[at] = seen * base
            seen *= shape[at]
            at -= 1
        if seen != whole:
            return None
        if axis:
            base = tensor.stride()[axis - 1]
            whole = seen = 1
    return tuple(strides) if at < 0 else None


# -- type promotion: the element type of what tensors and numbers of several types make together, as PyTorch decides it.

_BOOL, _INTEGER, _REAL, _COMPLEX = range(4)
_NUMBERS = ((bool, "bool"), (int, "int64"), (float, "float32"), (complex, "complex64"))
"""The type that a number brings with it where no tensor is of its category."""


def promoted(*operands: AtenTensor | complex | None) -> str:
    """The common type: tensors with axes decide, then those without, then numbers, each only by a higher category."""
    ranks: list[list[str]] = [[], [], []]
    for operand in operands:
        if isinstance(operand, AtenTensor):
            ranks[0 if operand.dim() else 1].append(type_name(operand))
        elif operand is not None:
            ranks[2].append(next(dtype for kind, dtype in _NUMBERS if isinstance(operand, kind)))
    found = ""
    for types in ranks:
        for dtype in types:
            if not found or types is ranks[0] or (types is ranks[1] and not ranks[0]):
                found = _common(found, dtype) if found else dtype
            elif _category(dtype) > _category(found):
                found = complex_of(found) if dtype in COMPLEX and not is_integer(found) else dtype
    return found


def floating(dtype: str) -> str:
    """The type of a function's values that are no integers."""
    return dtype if _category(dtype) >= _REAL else "float32"


def real_of(dtype: str) -> str:
    """The type of one part of a complex number; others stay what they are."""
    return f"float{BITS[dtype] // 2}" if dtype in COMPLEX else dtype


def complex_of(dtype: str) -> str:
    """The complex type whose parts hold this type; no parts are as coarse as those of `bfloat16`."""
    parts = "float32" if dtype == "bfloat16" else floating(dtype)
    return dtype if dtype in COMPLEX else f"complex{2 * BITS[parts]}"


def summed(dtype: str) -> str:
    """The type of a sum: integers are added up in the largest type."""
    return "int64" if _category(dtype) <= _INTEGER else dtype


def is_integer(dtype: str) -> bool:
    """Whether no value of this type has a fraction; truths have none."""
    return _category(dtype) <= _INTEGER


def _category(dtype: str) -> int:
    if dtype == "bool":
        return _BOOL
    if dtype in COMPLEX:
        return _COMPLEX
    return _INTEGER if dtype.startswith(("int", "uint")) else _REAL


def _common(a: str, b: str) -> str:
    """The smallest type that holds both."""
    if _category(a) != _category(b):
        low, high = sorted((a, b), key=_category)
        if high in COMPLEX and _category(low) == _REAL:
            return max(complex_of(low), high, key=BITS.__getitem__)
        return high
    if a == b:
        return a
    if {a, b} == {"float16", "bfloat16"}:
        return "float32"
    if "uint8" in (a, b) and BITS[a] == BITS[b]:
        return "int16"
    return max(a, b, key=BITS.__getitem__)
