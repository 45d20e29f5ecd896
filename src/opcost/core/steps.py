"""Operators of a long run, stored as patterns: what runs again and again stands once, and is expanded when asked for.

A loop of a few operators that turns a hundred thousand times makes millions of objects otherwise. Here a step of it is a
reference to its pattern and the numbers of the values that it reads; `Op` and `Value` are made when somebody looks.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Generic, NamedTuple, TypeVar, overload

from opcost.core.graph import Attrs, Op, Role, TensorSpec, Value


class PatternOp(NamedTuple):
    """One operator of a pattern. Places count the values that the pattern makes; `~n` is its n-th argument."""

    kind: str
    raw: str
    attrs: Attrs
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]

    def run(self, index: int, arguments: Sequence[int], first: int, module: str) -> Op:
        """The operator with this index in a run of the pattern with these arguments that makes values from `first` on."""
        inputs = tuple([first + at if at >= 0 else arguments[~at] for at in self.inputs])
        outputs = tuple([first + at for at in self.outputs])
        return Op(index, self.kind, self.raw, inputs, outputs, self.attrs, module)


class Pattern:
    """Operators that run one after another in one module, with the values that they make; compared by identity."""

    __slots__ = ("arity", "new", "ops", "specs")

    def __init__(
        self, arity: int, ops: tuple[PatternOp, ...], specs: tuple[TensorSpec, ...], new: tuple[int, ...]
    ) -> None:
        self.arity = arity
        """How many values it reads that were there before."""
        self.ops = ops
        self.specs = specs
        """Of the values that it makes."""
        self.new = new
        """Which of these lie in memory of their own, and not in some other value's."""


class Step(NamedTuple):
    """One run of a pattern."""

    pattern: Pattern
    arguments: Sequence[int]
    first: int
    """The first value that it makes."""
    module: str


class Steps:
    """A run, step by step. Steps that come again in the same order, reading one another, become one step each time."""

    def __init__(self) -> None:
        self.patterns: list[Pattern] = []
        self.modules: list[str] = []
        self.firsts = array("i")
        self.arguments = array("i")
        self.operators = 0
        self._turns: dict[int, Turn] = {}
        """By the first pattern of each."""
        self._turn: Turn | None = None
        """The one that has begun, the parts of it that are to come, and what came so far."""
        self._coming: Iterator[Part] = iter(())
        self._next: Part | None = None
        self._begin = 0
        self._begun: list[tuple[Pattern, Sequence[int], int, str]] = []
        self._given: list[int] = []
        self._searched = 0

    def append(self, pattern: Pattern, arguments: Sequence[int], first: int, module: str) -> None:
        self.operators += len(pattern.ops)
        part = self._next
        if part is not None:
            begin = self._begin
            if pattern is part.pattern and first == begin + part.first:
                for at, place in part.inside:
                    if arguments[at] != begin + place:
                        break
                else:
                    self._given += [arguments[at] for at in part.given]
                    self._begun.append((pattern, arguments, first, module))
                    self._next = next(self._coming, None)
                    if self._next is None:
                        self._end_turn()
                    return
            self.settle()
        turn = self._turns.get(id(pattern))
        if turn is not None:
            self._turn, self._coming, self._begin = turn, iter(turn.parts[1:]), first
            self._next = next(self._coming)
            self._begun.append((pattern, arguments, first, module))
            self._given += arguments
            return
        self._add(pattern, arguments, first, module)
        if len(self.patterns) >= self._searched + WINDOW:
            self._searched = len(self.patterns)
            self._search()

    def _end_turn(self) -> None:
        assert self._turn is not None
        module = self._begun[0][3]
        if len({step[3] for step in self._begun}) == 1:
            self._add(self._turn.pattern, self._given, self._begin, module)
            self._begun.clear()
            self._given.clear()
        else:
            self.settle()

    def _add(self, pattern: Pattern, arguments: Sequence[int], first: int, module: str) -> None:
        self.patterns.append(pattern)
        self.modules.append(module)
        self.firsts.append(first)
        self.arguments.extend(arguments)

    def settle(self) -> None:
        """Write down, one by one, the steps of a turn that has begun and did not end."""
        for step in self._begun:
            self._add(*step)
        self._begun.clear()
        self._given.clear()
        self._next = None

    def _search(self) -> None:
        """Look whether the latest steps are the third turn of the same."""
        latest = self.patterns[-WINDOW:]
        for length in range(2, WINDOW // 3 + 1):
            turn = latest[-length:]
            if latest[-2 * length : -length] == turn and latest[-3 * length : -2 * length] == turn:
                steps = list(self.since(len(self.patterns) - 2 * length))
                found, before = turn_of(steps[length:]), turn_of(steps[:length])
                if found is not None and before is not None and found.parts == before.parts:
                    self._turns[id(turn[0])] = found
                return

    def __len__(self) -> int:
        self.settle()
        return len(self.patterns)

    def __iter__(self) -> Iterator[Step]:
        return self.since(0)

    def since(self, number: int) -> Iterator[Step]:
        """The steps from one on."""
        self.settle()
        arguments, patterns = self.arguments, self.patterns[number:]
        at = len(arguments) - sum([pattern.arity for pattern in patterns])
        for pattern, module, first in zip(patterns, self.modules[number:], self.firsts[number:], strict=True):
            end = at + pattern.arity
            yield Step(pattern, arguments[at:end], first, module)
            at = end


WINDOW = 384
"""So many steps are looked at together; a turn that comes again is at most a third of them."""


class Part(NamedTuple):
    """One step of a turn."""

    pattern: Pattern
    first: int
    """The first value that it makes, counted from the first of the turn."""
    inside: tuple[tuple[int, int], ...]
    """Its arguments that are values of the turn, with their places in it."""
    given: tuple[int, ...]
    """Its arguments from outside."""


class Turn(NamedTuple):
    """Steps that come again, as one pattern."""

    pattern: Pattern
    parts: list[Part]


def turn_of(steps: Sequence[Step]) -> Turn | None:
    """Steps as one pattern; None where they run in several modules, or something else made values between them."""
    begin, module = steps[0].first, steps[0].module
    parts: list[Part] = []
    ops: list[PatternOp] = []
    specs: list[TensorSpec] = []
    new: list[int] = []
    outside = 0
    for pattern, arguments, first, running in steps:
        if running != module or first != begin + len(specs) or not pattern.specs:
            return None
        shift = len(specs)
        places = {at: value - begin for at, value in enumerate(arguments) if begin <= value < first}
        inside = tuple(places.items())
        given = tuple([at for at in range(len(arguments)) if at not in places])
        places.update((at, ~(outside + number)) for number, at in enumerate(given))
        for op in pattern.ops:
            inputs = tuple([shift + at if at >= 0 else places[~at] for at in op.inputs])
            ops.append(op._replace(inputs=inputs, outputs=tuple([shift + at for at in op.outputs])))
        parts.append(Part(pattern, shift, inside, given))
        outside += len(given)
        specs += pattern.specs
        new += [shift + at for at in pattern.new]
    return Turn(Pattern(outside, tuple(ops), tuple(specs), tuple(new)), parts)


T_co = TypeVar("T_co", covariant=True)


class Expanded(Sequence[T_co], Generic[T_co]):
    """A sequence whose items are made when they are asked for; it equals the tuple of them."""

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
        return repr(tuple(self))


class PatternedOps(Expanded[Op]):
    """The operators of a run."""

    __slots__ = ("_begins", "_ends", "steps")

    def __init__(self, steps: Steps) -> None:
        steps.settle()
        self.steps = steps
        self._ends = array("q", accumulate(len(pattern.ops) for pattern in steps.patterns))
        self._begins = array("q", accumulate((pattern.arity for pattern in steps.patterns), initial=0))

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
        self.roles = roles
        """Name, role and trainability of the values that are not activations."""

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
