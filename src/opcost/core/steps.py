"""Operators of a long run, stored as patterns: what runs again and again is stored once, and is expanded on demand.

A loop of a few operators that turns a hundred thousand times makes millions of objects otherwise. Here a step of it is a
reference to its pattern and the numbers of the values that it reads; `Op` and `Value` are made on demand.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Generic, NamedTuple, TypeVar, overload

from opcost.core.graph import Attrs, Op, Role, TensorSpec, Value
from opcost.core.rendering import brief_sequence


class PatternOp(NamedTuple):
    """One operator of a pattern. Places count the values that the pattern makes; `~n` is its n-th argument."""

    kind: str
    raw: str
    attrs: Attrs
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    below: str = ""  # what follows the path of the pattern's module in the path of the operator's own

    def run(self, index: int, arguments: Sequence[int], first: int, module: str) -> Op:
        """The operator with this index in a run of the pattern with these arguments that makes values from `first` on."""
        inputs = tuple([first + at if at >= 0 else arguments[~at] for at in self.inputs])
        outputs = tuple([first + at for at in self.outputs])
        return Op(index, self.kind, self.raw, inputs, outputs, self.attrs, module + self.below)


class Pattern:
    """Operators that run one after another, with the values that they make; compared by identity."""

    __slots__ = ("arity", "length", "new", "specs")

    def __init__(self, arity: int, length: int, specs: Sequence[TensorSpec], new: Sequence[int]) -> None:
        self.arity = arity  # how many values it reads that were there before
        self.length = length  # how many operators it has
        self.specs = specs  # of the values that it makes
        self.new = new  # which of these lie in memory of their own, and not in some other value's

    @property
    def ops(self) -> Sequence[PatternOp]:
        raise NotImplementedError


class Single(Pattern):
    """The operators of one call, all in one module."""

    __slots__ = ("_ops",)

    def __init__(
        self, arity: int, ops: tuple[PatternOp, ...], specs: tuple[TensorSpec, ...], new: tuple[int, ...]
    ) -> None:
        super().__init__(arity, len(ops), specs, new)
        self._ops = ops

    @property
    def ops(self) -> Sequence[PatternOp]:
        return self._ops


class Part:
    """One call of several."""

    __slots__ = ("below", "first", "pattern", "places")

    def __init__(self, pattern: Single, first: int, places: Sequence[int], below: str) -> None:
        self.pattern = pattern
        self.first = first  # the first value that it makes, as a place in the whole
        self.places = places  # its arguments, as places in the whole
        self.below = below  # what follows the path of the whole's module in the path of the module that makes the call

    def arguments(self, arguments: Sequence[int], first: int) -> list[int]:
        """The values that it reads in a run of the whole with these arguments that makes values from `first` on."""
        return [first + at if at >= 0 else arguments[~at] for at in self.places]


class Joined(Pattern):
    """Calls that come one after another, in one module or below it."""

    __slots__ = ("_ops", "parts")

    def __init__(self, arity: int, parts: Sequence[Part]) -> None:
        specs = [spec for part in parts for spec in part.pattern.specs]
        new = [part.first + at for part in parts for at in part.pattern.new]
        super().__init__(arity, sum([part.pattern.length for part in parts]), specs, new)
        self.parts = parts
        self._ops: Sequence[PatternOp] = ()

    @property
    def ops(self) -> Sequence[PatternOp]:
        """Made on demand, since they are seldom looked at."""
        self._ops = self._ops or [
            PatternOp(
                op.kind,
                op.raw,
                op.attrs,
                tuple([part.first + at if at >= 0 else part.places[~at] for at in op.inputs]),
                tuple([part.first + at for at in op.outputs]),
                part.below,
            )
            for part in self.parts
            for op in part.pattern.ops
        ]
        return self._ops


class Step(NamedTuple):
    """One run of a pattern."""

    pattern: Pattern
    arguments: Sequence[int]
    first: int
    """The first value that it makes."""
    module: str


class Place(NamedTuple):
    """The place of a step in a run."""

    number: int
    arguments: int  # how many arguments the steps before it have


class Steps:
    """A run, step by step."""

    def __init__(self) -> None:
        self.patterns: list[Pattern] = []
        self.modules: list[str] = []
        self.firsts = array("i")
        self.arguments = array("i")
        self.operators = 0

    def append(self, pattern: Pattern, arguments: Sequence[int], first: int, module: str) -> None:
        self.patterns.append(pattern)
        self.modules.append(module)
        self.firsts.append(first)
        self.arguments.extend(arguments)
        self.operators += pattern.length

    def replace(self, number: int, step: Step) -> None:
        """Let one step that does the same stand for all from this one on."""
        gone = self.patterns[number:]
        self.operators -= sum([pattern.length for pattern in gone])
        del self.arguments[len(self.arguments) - sum([pattern.arity for pattern in gone]) :]
        del self.patterns[number:], self.modules[number:], self.firsts[number:]
        self.append(*step)

    def __len__(self) -> int:
        return len(self.patterns)

    def __iter__(self) -> Iterator[Step]:
        return self.since(0)

    def since(self, number: int) -> Iterator[Step]:
        """The steps from one on."""
        return self.between(self.place(number), len(self.patterns))

    def place(self, number: int) -> Place:
        """The place of a step; cheap near the end."""
        return Place(number, len(self.arguments) - sum([pattern.arity for pattern in self.patterns[number:]]))

    def between(self, begin: Place, end: int) -> Iterator[Step]:
        """The steps from a place on, up to the one with the number `end`."""
        number, at = begin
        steps = zip(self.patterns[number:end], self.modules[number:end], self.firsts[number:end], strict=True)
        for pattern, module, first in steps:
            begin_next = at + pattern.arity
            yield Step(pattern, self.arguments[at:begin_next], first, module)
            at = begin_next


T_co = TypeVar("T_co", covariant=True)


class Expanded(Sequence[T_co], Generic[T_co]):
    """A sequence whose items are made on demand; it equals the tuple of them."""

    __slots__ = ()

    def _item(self, index: int) -> T_co:
        raise NotImplementedError

    @overload
    def __getitem__(self, index: int) -> T_co: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[T_co, ...]: ...
    def __getitem__(self, index: int | slice) -> T_co | tuple[T_co, ...]:
        if isinstance(index, slice):
            return tuple([self._item(i) for i in range(*index.indices(len(self)))])
        at = index + len(self) if index < 0 else index
        if not 0 <= at < len(self):
            raise IndexError(f"there are {len(self)} items, and {index} is none of them")
        return self._item(at)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(mine == theirs for mine, theirs in zip(self, other, strict=True))

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return brief_sequence(self)


class PatternedOps(Expanded[Op]):
    """The operators of a run."""

    __slots__ = ("_begins", "_ends", "steps")

    def __init__(self, steps: Steps) -> None:
        self.steps = steps
        self._ends = array("q", accumulate([pattern.length for pattern in steps.patterns]))
        self._begins = array("q", accumulate([pattern.arity for pattern in steps.patterns], initial=0))

    def __len__(self) -> int:
        return self.steps.operators

    def place(self, index: int) -> tuple[int, int]:
        """The step of an operator, and its place in the step's pattern."""
        step = bisect_right(self._ends, index)
        return step, index - (self._ends[step - 1] if step else 0)

    def _item(self, index: int) -> Op:
        steps = self.steps
        number, place = self.place(index)
        pattern, begin = steps.patterns[number], self._begins[number]
        given = steps.arguments[begin : begin + pattern.arity]
        return pattern.ops[place].run(index, given, steps.firsts[number], steps.modules[number])

    def __iter__(self) -> Iterator[Op]:
        index = 0
        for pattern, arguments, first, module in self.steps:
            for op in pattern.ops:
                yield op.run(index, arguments, first, module)
                index += 1


class PatternedValues(Expanded[Value]):
    """The tensors of a run."""

    __slots__ = ("roles", "specs", "storages")

    def __init__(
        self, specs: Sequence[TensorSpec], storages: Sequence[int], roles: Mapping[int, tuple[str, Role, bool]]
    ) -> None:
        self.specs = specs
        self.storages = storages
        self.roles = roles  # name, role and trainability of the values that are not activations

    def __len__(self) -> int:
        return len(self.specs)

    def leaves(self) -> Iterator[Value]:
        """The values that are not activations."""
        return map(self._item, sorted(self.roles))

    def _item(self, index: int) -> Value:
        name, role, trainable = self.roles.get(index, _ACTIVATION)
        return Value(index, name, self.specs[index], role, self.storages[index], trainable)

    def __iter__(self) -> Iterator[Value]:
        roles = self.roles
        for index, (spec, storage) in enumerate(zip(self.specs, self.storages, strict=True)):
            name, role, trainable = roles.get(index, _ACTIVATION)
            yield Value(index, name, spec, role, storage, trainable)


_ACTIVATION: tuple[str, Role, bool] = ("", "activation", False)
