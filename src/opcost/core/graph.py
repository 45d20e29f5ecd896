"""What a front end hands over: tensors, operators in execution order, and modules; what an operator costs; memory. Plain data.

`Value` and `Op` are named tuples and not dataclasses for one reason: a 70-billion-parameter model makes
tens of thousands of them, and a frozen dataclass costs ten times as much to create.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Literal, NamedTuple, TypeAlias

from opcost.core.kinds import check_operator
from opcost.core.order import PieceOrder
from opcost.core.rendering import ListsTuples, brief, brief_record, brief_repr
from opcost.core.units import format_bytes
from opcost.errors import GraphError, OpcostError

BITS: dict[str, int] = {
    name: int(re.split(r"\D+", name)[1])  # the first number in it
    for name in (
        "uint1 uint2 uint3 uint4 uint5 uint6 uint7 uint8 uint16 uint32 uint64 int1 int2 int3 int4 int5 int6 int7 int8 int16 "
        "int32 int64 float4_e2m1fn float6_e2m3fn float6_e3m2fn float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz "
        "float8_e8m0fnu float16 bfloat16 float32 float64 complex32 complex64 complex128 qint1 qint4 qint8 qint16 qint32 "
        "quint4 quint8 quint4x2 quint2x4 bits8 bits16 bits32 bits64 bits128"  # of the last only the size is known
    ).split()
} | {"bool": 8, "float4_e2m1fn_x2": 8}  # torch packs two values into one element; the element is what is counted
"""Bits of one element. A type that is not listed is an error, never a silent four bytes."""

INTEGER = frozenset(name for name in BITS if name.lstrip("q").startswith(("uint", "int", "bool")))
COMPLEX = frozenset(name for name in BITS if name.startswith("complex"))


def bits(dtype: str) -> int:
    """Bits of one element of this type."""
    try:
        return BITS[dtype]
    except KeyError:
        raise OpcostError(f"element type {dtype!r} is not known, so its bytes cannot be counted") from None


def nbytes(numel: int, dtype: str) -> int:
    """Bytes of `numel` elements; types smaller than a byte are packed, the last byte rounded up."""
    return (numel * bits(dtype) + 7) // 8


# -- costs -------------------------------------------------------------------------------------------------------------

FLOPS_PER_MAC = 2  # one multiply-accumulate is two FLOPs everywhere; reports carry `macs` beside `flops`

FLOPS_PER_COMPLEX_MAC = 8  # four real multiplications and four real additions; it is still one MAC


@dataclass(frozen=True, slots=True)
class Cost:
    """Multiply-accumulates, floating-point operations, and the bytes that must move without fusion."""

    macs: int = 0
    flops: int = 0
    bytes_read: int = 0
    bytes_written: int = 0

    def __add__(self, other: Cost) -> Cost:
        read, written = self.bytes_read + other.bytes_read, self.bytes_written + other.bytes_written
        return Cost(self.macs + other.macs, self.flops + other.flops, read, written)

    def __mul__(self, times: int) -> Cost:
        return Cost(self.macs * times, self.flops * times, self.bytes_read * times, self.bytes_written * times)


ZERO = Cost()


# -- memory: when a run occupies it, and the peak that follows ----------------------------------------------------------

MemoryPart: TypeAlias = Literal[
    "weights", "gathered", "inputs", "received", "optimizer", "gradients", "saved", "outputs", "temporary", "workspace"
]
How: TypeAlias = Literal["lifetimes", "last reader"]
PARTS: dict[MemoryPart, str] = {
    "weights": "parameters, buffers and constants",
    "gathered": "parameters gathered from other ranks",
    "inputs": "what the model is given",
    "received": "what other stages of a pipeline send",
    "optimizer": "what the optimizer remembers",
    "gradients": "of parameters and inputs",
    "saved": "kept for the backward pass",
    "outputs": "what the model returns",
    "temporary": "results that are let go again",
    "workspace": "what a kernel needs for itself",
}
"""The categories of memory."""


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """When a run freed its memory: each storage, and the index of the operator before which it was gone, in that order.

    What is not listed was kept to the end.
    """

    storages: Sequence[int]
    times: Sequence[int]
    gradients: frozenset[int] = frozenset()  # storages of the gradients of parameters and inputs
    state: frozenset[int] = frozenset()  # storages that an optimizer keeps for its next step
    carried: frozenset[int] = frozenset()  # storages of gradients of earlier passes, which exist when the run begins
    gathered: frozenset[int] = frozenset()  # storages of parameters that were gathered from other ranks
    received: frozenset[int] = frozenset()  # storages that other stages of a pipeline write to
    away: Mapping[int, Sequence[tuple[int, int]]] = field(default_factory=dict)
    """Of gathered parameters: the operators before which their memory was freed and before which it was allocated again."""

    __repr__ = brief_record


@dataclass(frozen=True, slots=True)
class Lives:
    """Tensors that are created and freed in a pass or step, in order of creation, and what exists beside them."""

    lasting: Sequence[int]  # bytes of each tensor that exists throughout, without inputs
    inputs: Sequence[int]
    births: Sequence[int]  # the operator that makes each
    deaths: Sequence[int]  # the operator before which it is gone
    sizes: Sequence[int]
    workspaces: Sequence[int]  # bytes of each operator's workspace
    streams: Sequence[int] = ()  # of each tensor that is created; none: all in the same one
    expandable: bool = False  # whether segments of the allocator grow

    def __repr__(self) -> str:
        return f"Lives({len(self.sizes):,} tensors, {len(self.workspaces):,} operators)"


@dataclass(frozen=True, slots=True, kw_only=True)
class PeakHolder:
    """The memory at the peak that a module's own operators allocated."""

    module: str
    bytes: int
    tensors: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """The memory of a run over its operators, and its peak."""

    peak_bytes: int
    """The highest sum of memory in use at once."""
    base_bytes: int
    """In use before the pass or step: weights, buffers, inputs, the optimizer's state, gradients that are kept."""
    at: int
    """The index of the operator, among the rows, during which the peak is reached."""
    how: How
    """Whether a tensor is freed when the run frees it, or after the last operator that reads it."""
    device: str = ""
    """The device whose allocator and kernels are simulated; empty: tensors alone, to the byte."""
    reserved_bytes: int | None = None
    """Of a device: reserved by its allocator, with cached blocks and workspaces of libraries."""
    fixed_bytes: int | None = None
    """Of a device: what a process uses beside that: the context, code of kernels and libraries."""
    parts: Mapping[MemoryPart, int] = field(default_factory=dict)
    """The peak by category."""
    holders: tuple[PeakHolder, ...] = ()
    """The modules whose results are in memory at the peak, the largest first."""
    curve: Sequence[int] = field(default=(), repr=False)
    """Bytes in use during each operator."""
    layers: Mapping[MemoryPart, Sequence[int]] = field(default_factory=dict, repr=False, compare=False)
    """The curve by category, of tensors that are created and freed; only right after a short run, not saved."""
    lives: Lives | None = field(default=None, repr=False, compare=False)
    """Of a device, and not saved: the requests to its allocator."""

    def __repr__(self) -> str:
        on = f"as on {self.device}" if self.device else ""
        reserved = "" if self.reserved_bytes is None else f"{format_bytes(self.reserved_bytes)} reserved"
        before = f"{format_bytes(self.base_bytes)} before"
        return brief(self, [f"peak {format_bytes(self.peak_bytes)}", before, f"at operator {self.at:,}", reserved, on])

    def __str__(self) -> str:
        """The peak and its parts, the largest first."""
        lines = [("peak", self.peak_bytes), *sorted(self.parts.items(), key=lambda part: -part[1])]
        return "\n".join(
            f"{name:<10}{format_bytes(size):>12}  {size / max(1, self.peak_bytes):6.1%}" for name, size in lines
        )


def packed(numbers: Iterable[int], most: int) -> array[int] | list[int]:
    """Numbers of at most `most`, as 32-bit or 64-bit integers where they fit."""
    return array("i" if most < 1 << 31 else "q", numbers) if most < 1 << 63 else list(numbers)


# -- tensors, operators, modules ---------------------------------------------------------------------------------------

Role: TypeAlias = Literal["input", "param", "buffer", "const", "activation"]
Phase: TypeAlias = Literal["forward", "backward", "update", "recompute"]
"""The last is the forward pass run once more, in the backward pass of a trace, for what a checkpoint did not keep."""
Attr: TypeAlias = "int | float | str | bool | tuple[Attr, ...] | None"
Attrs: TypeAlias = Mapping[str, Attr]

NO_ATTRS: Attrs = {}


class UnknownExtent(OpcostError):
    """A count was requested of a tensor whose shape depends on data."""


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """Shape and element type. `None` is an extent (or a whole shape) that depends on data."""

    shape: tuple[int | None, ...] | None
    dtype: str = "float32"

    @property
    def known(self) -> bool:
        return self.shape is not None and None not in self.shape

    @property
    def dims(self) -> tuple[int, ...]:
        """The shape where every extent is known; raises `UnknownExtent` otherwise."""
        if self.shape is None or None in self.shape:
            raise UnknownExtent(f"the shape {self} depends on data")
        return self.shape  # type: ignore[return-value]

    @property
    def numel(self) -> int:
        return prod(self.dims)

    @property
    def nbytes(self) -> int:
        return nbytes(prod(self.dims), self.dtype)

    def __str__(self) -> str:
        if self.shape is None:
            return "?"
        return "x".join("?" if n is None else str(n) for n in self.shape) or "scalar"


@brief_repr
class Value(NamedTuple):
    """One tensor. Values that share memory (views, in-place results, tied weights) share `storage`."""

    id: int
    name: str
    spec: TensorSpec
    role: Role
    storage: int
    trainable: bool = False


@brief_repr
class Op(NamedTuple):
    """One executed operator: `kind` is our word (see `core.kinds`), `raw` the framework's."""

    id: int
    kind: str
    raw: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    attrs: Attrs
    module: str = ""
    repeat: int = 1
    phase: Phase = "forward"
    native: Attrs = NO_ATTRS
    """The framework's own parameters, in its words: displayed, and visible only to a rule for this very operator."""

    @property
    def all_attrs(self) -> Attrs:
        """The framework's own parameters, and our attributes."""
        return {**self.native, **self.attrs} if self.native else self.attrs


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """A named part of the model, as its author wrote it."""

    path: str
    type: str
    parameters: tuple[tuple[str, int], ...] = ()  # own parameters: the name inside the module and the value's id
    buffers: tuple[tuple[str, int], ...] = ()
    calls: int = 0
    extra: str = ""  # the constructor's own words, for the architecture view
    same_as: str | None = None  # the first path of the same object, where one module has several names
    inputs: tuple[TensorSpec, ...] = ()  # what the first call received
    outputs: tuple[TensorSpec, ...] = ()

    __repr__ = brief_record


@brief_repr
class ModuleCall(NamedTuple):
    """One call of a module, in the order of entry; the operators it ran, also in modules below, are `ops[first:end]`."""

    path: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    first: int
    end: int


ASSUMED, UNSEEN = INEXACT = "assumed", "unseen"
"""The codes of notes about values that decide what runs and were assumed, and about operators that ran unseen: then the
totals are not exact."""


@dataclass(frozen=True, slots=True)
class Note:
    """Something the reader of a report must know: an assumption, a warning."""

    code: str
    text: str
    where: str = ""

    __repr__ = brief_record


def note_texts(notes: Iterable[Note], *, places: bool = False) -> list[str]:
    """The texts of notes, equal ones once with their number, and on request the first place of each."""
    found: dict[str, list[str]] = {}
    for note in notes:
        found.setdefault(note.text, []).append(note.where if places else "")
    texts = []
    for text, where in found.items():
        first = next(filter(None, where), "")
        if len(where) > 1:
            texts.append(f"{text} ({len(where):,} times{', first in ' + first if first else ''})")
        else:
            texts.append(f"{text} ({first})" if first else text)
    return texts


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph(ListsTuples):
    """A model as data: `values[i].id == i`, `ops` in execution order, `modules` in definition order, root first."""

    source: str
    framework: str
    values: Sequence[Value]
    ops: Sequence[Op]
    modules: tuple[Module, ...]
    calls: tuple[ModuleCall, ...] = ()
    inputs: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()
    choices: tuple[tuple[tuple[int, int], ...], ...] = ()
    """Branches of which one is taken, as the operators from one index up to another; inner branches come first."""
    lifetimes: Lifetimes | None = None
    """When a run freed its memory; None of a model that did not run, where the last reader of a tensor frees it."""
    released: frozenset[int] = frozenset()
    """Storages of inputs that the run freed: a cache replaces the tensor that it was given by a longer one."""
    order: PieceOrder | None = None
    """Of a pipeline, whose pieces are listed once: the order in which they run, and when the run freed its memory."""
    given: tuple[tuple[str, TensorSpec], ...] = ()
    """Of one rank of a pipeline: the inputs of the whole step, which only some ranks get."""
    pipeline: tuple[Graph, ...] = ()
    """Of one rank of a pipeline: the graphs of all its ranks, some of them with the names that another one has."""
    notes: tuple[Note, ...] = ()
    meta: Mapping[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        sizes = [f"{len(self.ops):,} operators", f"{len(self.values):,} tensors", f"{len(self.modules):,} modules"]
        return brief(self, [self.framework, *sizes], self.source)

    def check(self) -> None:
        """Raise `GraphError` naming the first fault, if there is one."""
        for index, value in enumerate(self.values):
            if value.id != index:
                raise GraphError(f"value {index} calls itself {value.id} ({value.name!r})")
        paths = [module.path for module in self.modules]
        if len(set(paths)) != len(paths):
            twice = next(path for path in paths if paths.count(path) > 1)
            raise GraphError(f"two modules have the path {twice!r}")
        if not paths or paths[0] != "":
            raise GraphError("the first module must be the root, with the path ''")
        known = set(paths)
        for path in paths[1:]:
            if path.rpartition(".")[0] not in known:
                raise GraphError(f"module {path!r} has no parent {path.rpartition('.')[0]!r}")
        born = {value.id for value in self.values if value.role != "activation"}
        for op in self.ops:
            for value_id in op.inputs:
                if value_id not in born:
                    raise GraphError(f"operator {op.id} ({op.raw}) reads value {value_id} before it is made")
            if op.module not in known:
                raise GraphError(f"operator {op.id} ({op.raw}) belongs to an unknown module {op.module!r}")
            for value_id in op.outputs:
                if not 0 <= value_id < len(self.values):
                    raise GraphError(f"operator {op.id} ({op.raw}) makes value {value_id}, which does not exist")
            check_operator(op.kind, f"{op.id} ({op.raw})", op.attrs, len(op.inputs), len(op.outputs))
            born.update(op.outputs)
        for value_id in (*self.inputs, *self.outputs):
            if not 0 <= value_id < len(self.values):
                raise GraphError(f"the model's input or output {value_id} does not exist")
