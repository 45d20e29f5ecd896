"""What a front end hands over: tensors, operators in execution order, and modules. Plain data.

`Value` and `Op` are named tuples and not dataclasses for one reason: a 70-billion-parameter model makes
tens of thousands of them, and a frozen dataclass costs ten times as much to create.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Literal, NamedTuple, TypeAlias

from opcost.core.dtype import nbytes
from opcost.core.kinds import check_operator
from opcost.core.memory import Lifetimes
from opcost.core.rendering import Listed, brief, brief_record
from opcost.errors import GraphError, OpcostError

Role: TypeAlias = Literal["input", "param", "buffer", "const", "activation"]
Phase: TypeAlias = Literal["forward", "backward", "update", "recompute"]
"""The last is the forward pass run once more, in the backward pass of a trace, for what a checkpoint did not keep."""
Attr: TypeAlias = "int | float | str | bool | tuple[Attr, ...] | None"
Attrs: TypeAlias = Mapping[str, Attr]

NO_ATTRS: Attrs = {}


class UnknownExtent(OpcostError):
    """A count was asked of a tensor whose shape depends on data."""


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """Shape and element type. `None` stands for an extent (or a whole shape) that depends on data."""

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


class Value(NamedTuple):
    """One tensor. Values that share memory (views, in-place results, tied weights) share `storage`."""

    id: int
    name: str
    spec: TensorSpec
    role: Role
    storage: int
    trainable: bool = False

    def __repr__(self) -> str:
        return brief_record(self)


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
    """The framework's own parameters, in its words: shown, and seen by a rule for this very operator, by no other."""

    @property
    def told(self) -> Attrs:
        """All that is told of the operator: the framework's own parameters, and our attributes."""
        return {**self.native, **self.attrs} if self.native else self.attrs

    def __repr__(self) -> str:
        return brief_record(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """A named part of the model, as its author wrote it."""

    path: str
    type: str
    parameters: tuple[tuple[str, int], ...] = ()
    """Own parameters: the name inside the module and the value's id."""
    buffers: tuple[tuple[str, int], ...] = ()
    calls: int = 0
    extra: str = ""
    """The constructor's own words, for the architecture view."""
    same_as: str | None = None
    """The first path of the same object, where one module stands under several names."""
    inputs: tuple[TensorSpec, ...] = ()
    """What the first call received."""
    outputs: tuple[TensorSpec, ...] = ()

    def __repr__(self) -> str:
        return brief_record(self)


class Call(NamedTuple):
    """One call of a module, in the order of entry; the operators it ran, also in modules below, are `ops[first:end]`."""

    path: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    first: int
    end: int

    def __repr__(self) -> str:
        return brief_record(self)


ASSUMED, UNSEEN = "assumed", "unseen"
"""The codes of notes about values that decide what runs and were assumed, and about operators that ran unseen: then the
totals are not exact."""


@dataclass(frozen=True, slots=True)
class Note:
    """Something the reader of a report must know: an assumption, a warning."""

    code: str
    text: str
    where: str = ""

    def __repr__(self) -> str:
        return brief_record(self)


def note_texts(notes: Iterable[Note], *, places: bool = False) -> list[str]:
    """The texts of notes, equal ones once with their number, and on request the first place of each."""
    found: dict[str, list[str]] = {}
    for note in notes:
        found.setdefault(note.text, []).append(note.where if places else "")
    return [_note_text(text, where) for text, where in found.items()]


def _note_text(text: str, where: list[str]) -> str:
    first = next(filter(None, where), "")
    if len(where) > 1:
        return f"{text} ({len(where):,} times{', first in ' + first if first else ''})"
    return f"{text} ({first})" if first else text


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """A model as data: `values[i].id == i`, `ops` in execution order, `modules` in definition order, root first."""

    source: str
    framework: str
    values: Sequence[Value]
    ops: Sequence[Op]
    modules: tuple[Module, ...]
    calls: tuple[Call, ...] = ()
    inputs: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()
    choices: tuple[tuple[tuple[int, int], ...], ...] = ()
    """Branches of which one is taken, as the operators from one index up to another; what lies inside comes before."""
    lifetimes: Lifetimes | None = None
    """When a run let its memory go; None of a model that did not run, where the last reader of a tensor frees it."""
    released: frozenset[int] = frozenset()
    """Storages of inputs that the run freed: a cache puts a longer tensor in the place of the one that it was given."""
    notes: tuple[Note, ...] = ()
    meta: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("values", "ops", "modules", "calls"):
            found = getattr(self, name)
            if isinstance(found, tuple):  # of a long run they are made when they are asked for
                object.__setattr__(self, name, Listed(found))

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
