"""Operators of a long run, stored as steps: each step refers to a pattern of operators and to the values that it reads.

A loop of a few operators with a hundred thousand iterations would make millions of objects otherwise. `Op` and `Value` objects
are made when they are looked at.
"""

from array import array
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Generic, NamedTuple, TypeVar

from opcost.core.graph import Attrs, Op, Role, TensorSpec, Value
from opcost.core.rendering import brief_sequence


class PatternOp(NamedTuple):
    """One operator of a pattern. Positions count the values that the pattern makes; `~n` is its n-th argument."""

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


@dataclass(slots=True, eq=False)
class Pattern:
    """The operators of one function call, with the values that they make; compared by identity."""

    arity: int  # how many values it reads that were there before
    ops: tuple[PatternOp, ...]
    specs: tuple[TensorSpec, ...]  # of the values that it makes
    new: tuple[int, ...]  # which of these have memory of their own, and not some other value's
    length: int = field(init=False)

    def __post_init__(self) -> None:
        self.length = len(self.ops)


class PatternRun(NamedTuple):
    """One run of a pattern."""

    pattern: Pattern
    arguments: Sequence[int]
    first: int  # the first value that it makes
    module: str


class Steps:
    """A run, step by step, in columns."""

    def __init__(self) -> None:
        self.kinds: list[tuple[Pattern, str]] = []  # every pattern with every module that ran it
        self._number_of: dict[tuple[Pattern, str], int] = {}
        self.numbers = array("i")  # of each step the position in `kinds`
        self.firsts = array("i")
        self.arguments = array("i")
        self.operators = 0

    def append(self, pattern: Pattern, arguments: Sequence[int], first: int, module: str) -> None:
        self.numbers.append(self.number(pattern, module))
        self.firsts.append(first)
        self.arguments.extend(arguments)
        self.operators += pattern.length

    def number(self, pattern: Pattern, module: str) -> int:
        """The position of a pattern and a module in `kinds`."""
        found = self._number_of.get((pattern, module))
        if found is None:
            found = self._number_of[pattern, module] = len(self.kinds)
            self.kinds.append((pattern, module))
        return found

    def replace(self, number: int, step: PatternRun) -> None:
        """Replace all steps from this one on by one step that does the same."""
        gone = [self.kinds[kind][0] for kind in self.numbers[number:]]
        self.operators -= sum([pattern.length for pattern in gone])
        del self.arguments[len(self.arguments) - sum([pattern.arity for pattern in gone]) :]
        del self.numbers[number:], self.firsts[number:]
        self.append(*step)

    def __len__(self) -> int:
        return len(self.numbers)

    def __iter__(self) -> Iterator[PatternRun]:
        return self.since(0)

    def since(self, number: int) -> Iterator[PatternRun]:
        """The steps from one on; cheap near the end."""
        kinds, numbers = self.kinds, self.numbers[number:]
        at = len(self.arguments) - sum([kinds[kind][0].arity for kind in numbers])
        for kind, first in zip(numbers, self.firsts[number:], strict=True):
            pattern, module = kinds[kind]
            end = at + pattern.arity
            yield PatternRun(pattern, self.arguments[at:end], first, module)
            at = end

    def latest_first(self) -> Iterator[Op]:
        """The operators from the last one back to the first."""
        index, end = self.operators, len(self.arguments)
        for kind, first in zip(reversed(self.numbers), reversed(self.firsts), strict=True):
            pattern, module = self.kinds[kind]
            begin = end - pattern.arity
            for op in reversed(pattern.ops):
                index -= 1
                yield op.run(index, self.arguments[begin:end], first, module)
            end = begin


T_co = TypeVar("T_co", covariant=True)


class Expanded(Sequence[T_co], Generic[T_co]):
    """A sequence whose items are made when they are looked at; it equals the tuple of them."""

    __slots__ = ()

    def _item(self, index: int) -> T_co:
        raise NotImplementedError

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return tuple([self._item(i) for i in range(*index.indices(len(self)))])
        at = index + len(self) if index < 0 else index
        if not 0 <= at < len(self):
            raise IndexError(f"there are {len(self)} items, and {index} is none of them")
        return self._item(at)

    def distinct(self) -> Iterable[T_co]:
        """The items, where some have a number of repetitions: equal ones once."""
        return iter(self)

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
        lengths = [pattern.length for pattern, _ in steps.kinds]
        arities = [pattern.arity for pattern, _ in steps.kinds]
        self._ends = array("i", accumulate(map(lengths.__getitem__, steps.numbers)))
        self._begins = array("i", accumulate(map(arities.__getitem__, steps.numbers), initial=0))

    def __len__(self) -> int:
        return self.steps.operators

    def place(self, index: int) -> tuple[int, int]:
        """The step of an operator, and its position in the step's pattern."""
        step = bisect_right(self._ends, index)
        return step, index - (self._ends[step - 1] if step else 0)

    def _item(self, index: int) -> Op:
        steps = self.steps
        number, place = self.place(index)
        (pattern, module), begin = steps.kinds[steps.numbers[number]], self._begins[number]
        given = steps.arguments[begin : begin + pattern.arity]
        return pattern.ops[place].run(index, given, steps.firsts[number], module)

    def __iter__(self) -> Iterator[Op]:
        index = 0
        for pattern, arguments, first, module in self.steps:
            for op in pattern.ops:
                yield op.run(index, arguments, first, module)
                index += 1


@dataclass(slots=True, eq=False, repr=False)
class PatternedValues(Expanded[Value]):
    """The tensors of a run."""

    specs: Sequence[TensorSpec]
    storages: Sequence[int]
    roles: Mapping[int, tuple[str, Role, bool]]  # name, role and trainability of the values that are not activations
    packed: Collection[int] = ()  # the values whose specs are not those of the stored tensors: parameters of few bits

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
