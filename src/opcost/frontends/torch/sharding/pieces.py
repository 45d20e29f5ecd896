"""A recorded step of a pipeline in pieces: what each event ran, which tensors it made, and which it freed.

What a piece frees is described by who made it: itself, another event of the same microbatch or of one so much earlier, the latest
event in some situation, or all events of a kind.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from opcost.core.alignment import NotRepeating
from opcost.core.graph import Graph, Lifetimes
from opcost.core.lifetimes import NEVER, births, deaths
from opcost.core.order import MARK, RECEIVED, StageEvent

_NOTES = "profiler::"
"""Begins the operators that tell a profiler what runs; those of some microbatches only."""
BEGIN, END = StageEvent("begin"), StageEvent("end")


class Name(NamedTuple):
    """What a piece calls a tensor that it makes, whatever else it does: its operator, or the memory of gathered parameters."""

    what: Any
    nth: int

    @property
    def is_gathered(self) -> bool:
        """Whether it is the memory of gathered parameters, of which there is one at a time."""
        return isinstance(self.what, int)

    @property
    def last(self) -> Hashable:
        """By what it is found among those of all pieces so far."""
        return self.what if self.is_gathered else self


class Made(NamedTuple):
    """A tensor that a piece makes: after how many of its operators, in which memory, and what it is called."""

    offset: int
    storage: int
    name: Name
    number: int


class From(NamedTuple):
    """Who made a tensor that is freed: how its event is found from this one, and which of that one's tensors it is."""

    offset: int
    how: str  # here, microbatch, latest, first, every, piece, before
    event: Any
    delta: int
    number: Any


@dataclass(slots=True)
class StepPiece:
    """What one event ran."""

    event: StageEvent
    situation: Hashable
    ops: list[int] = field(default_factory=list)
    made: list[Made] = field(default_factory=list)
    freed: list[tuple[int, int, Any]] = field(default_factory=list)
    """After how many operators, by which piece that tensor was made (-1: it was there before), and its name there."""


class RecordedStep:
    """A recorded step, cut at its marks."""

    def __init__(
        self, graph: Graph, events: Sequence[StageEvent], situations: Sequence[Hashable], left_out: Collection[int]
    ) -> None:
        self.graph = graph
        marks = [op.id for op in graph.ops if op.raw == MARK]
        self._begins = [0, *marks]
        if len(self._begins) != len(events):
            raise NotRepeating
        self.pieces = list(map(StepPiece, events, situations))
        notes = (op.id for op in graph.ops if op.raw.startswith(_NOTES))
        dropped = {*marks, *left_out, *notes}
        for op in graph.ops:
            if op.id not in dropped:
                self.pieces[self.piece_at(op.id)].ops.append(op.id)
        self._offset = [0] * len(graph.ops)
        for piece in self.pieces:
            for offset, number in enumerate(piece.ops):
                self._offset[number] = offset
        self._kept = [0]  # operators that are kept before each
        for op in graph.ops:
            self._kept.append(self._kept[-1] + (op.id not in dropped))
        self._ended: list[int] = []  # of each tensor the operator before which it is gone
        self._by_name: defaultdict[Hashable, list[tuple[int, int]]] = defaultdict(list)
        """The tensors of a name on each stage, and the pieces that make them."""
        self._follow_memory(dropped)

    def piece_at(self, op: int) -> int:
        """The piece of an operator."""
        return bisect_right(self._begins, op) - 1

    def place(self, op: int) -> tuple[int, int]:
        """The piece of an operator that is kept, and its place there."""
        return self.piece_at(op), self._offset[op]

    def begin(self, piece: int) -> int:
        """The first operator of a piece, its mark."""
        return self._begins[piece]

    def kept_before(self, op: int) -> int:
        """How many operators before one are kept."""
        return self._kept[op]

    def _moment(self, op: int) -> tuple[int, int]:
        """What happens before an operator runs belongs to the piece of the one before, after those of its operators that ran."""
        piece = self.piece_at(max(op - 1, 0))
        return piece, self._kept[op] - self._kept[self._begins[piece]]

    def _follow_memory(self, dropped: Collection[int]) -> None:
        """Note which tensors each piece makes, and which it frees."""
        graph, life = self.graph, self.graph.lifetimes
        if life is None:
            raise NotRepeating
        before = {value.storage for value in graph.values if value.role != "activation"}
        born, gone, end = births(graph, before), deaths(graph), len(graph.ops)
        ended = self._ended
        nth: Counter[Hashable] = Counter()

        def make(piece: int, offset: int, storage: int, name: Hashable, gone: int) -> None:
            nth[piece, name] += 1
            made = Made(offset, storage, Name(name, nth[piece, name]), len(ended))
            self.pieces[piece].made.append(made)
            self._by_name[self.pieces[piece].event.stage, made.name.last].append((piece, made.number))
            ended.append(gone)

        for storage, step in sorted(enumerate(born), key=lambda each: each[1]):
            if step != NEVER and step not in dropped:
                op, spans = graph.ops[step], [*life.away.get(storage, ())]
                ends = [*(freed for freed, _ in spans), gone[storage]]
                place = [graph.values[vid].storage for vid in op.outputs].index(storage)
                kind = self.pieces[self.piece_at(step)].event.kind
                name = storage if storage in life.gathered else (kind, op.module, op.raw, place)
                make(*self.place(step), storage, name, ends[0])
                for (_, begin), its in zip(spans, ends[1:], strict=True):
                    if begin < its:
                        make(*self._moment(begin), storage, name, its)
        for number, piece in enumerate(self.pieces):
            for tensor in piece.made:
                if ended[tensor.number] < end:
                    found, offset = self._moment(ended[tensor.number])
                    self.pieces[found].freed.append((offset, number, tensor.name))
        for storage in graph.released:
            found, offset = self._moment(gone[storage])
            self.pieces[found].freed.append((offset, -1, storage))

    # -- who made what is freed -----------------------------------------------------------------------------------------------

    def exactly(self, number: int) -> tuple[From, ...]:
        """What a piece frees, by the number of the piece that made it."""
        freed, event = self.pieces[number].freed, self.pieces[number].event
        return tuple(
            From(offset, "piece", maker, 0, name) if maker >= 0 else self._before(offset, event, name)
            for offset, maker, name in freed
        )

    def described(self, number: int, *, by_microbatch: bool) -> tuple[From, ...]:
        """What a piece frees, by who made it."""
        found: list[From] = []
        piece = self.pieces[number]
        of_all = self._of_all(piece)
        for offset, maker, at in piece.freed:
            if maker < 0:
                found.append(self._before(offset, piece.event, at))
            elif maker == number:
                found.append(From(offset, "here", None, 0, at))
            elif (offset, *self.pieces[maker].event[:2]) in of_all:
                continue
            else:
                found.append(self._elsewhere(offset, number, maker, at, by_microbatch=by_microbatch))
        found.sort(key=repr)
        for (offset, kind, stage), its in sorted(of_all.items()):
            found.append(From(offset, "every", (kind, stage), *its))
        return tuple(found)

    def _of_all(self, piece: StepPiece) -> dict[tuple[int, str, int], tuple[int, frozenset[Hashable]]]:
        """What all events of a kind made, or all but the last one, that is freed at once.

        By after how many operators, kind and stage; with how many events are left out.
        """
        tensors: defaultdict[tuple[int, str, int], defaultdict[int, set[Hashable]]] = defaultdict(
            lambda: defaultdict(set)
        )
        for offset, maker, name in piece.freed:
            if maker >= 0:
                event = self.pieces[maker].event
                tensors[offset, event.kind, event.stage][maker].add(name)
        found = {}
        for key, makers in tensors.items():
            every = [
                number for number, each in enumerate(self.pieces) if (each.event.kind, each.event.stage) == key[1:]
            ]
            if len(makers) > 2 and sorted(makers) in (every, every[:-1]):
                if len({*map(frozenset, makers.values())}) > 1:
                    raise NotRepeating
                found[key] = len(every) - len(makers), frozenset(next(iter(makers.values())))
        return found

    def _before(self, offset: int, event: StageEvent, storage: int) -> From:
        name = RECEIVED.fullmatch(self.graph.values[storage].name)
        if name is None or event.microbatch < 0:
            return From(offset, "before", storage, 0, 0)
        return From(offset, "before", (int(name[1]), name[2], int(name[4])), int(name[3]) - event.microbatch, 0)

    def _elsewhere(self, offset: int, number: int, maker: int, name: Name, *, by_microbatch: bool) -> From:
        event = self.pieces[number].event
        kind, stage, microbatch, _ = self.pieces[maker].event
        own = [message.microbatch for message in event.messages] or [event.microbatch]
        if by_microbatch and not name.is_gathered and microbatch >= 0 and own[0] >= 0:
            nearest = min(range(len(own)), key=lambda each: abs(microbatch - own[each]))
            return From(offset, "microbatch", (kind, stage, nearest), microbatch - own[nearest], name)
        others = self._by_name[stage, name.last]
        time = max(self._ended[tensor] for piece, tensor in others if piece == maker)
        if not any(maker < piece < number and self._ended[tensor] > time for piece, tensor in others):
            return From(offset, "latest", stage, 0, name.last)
        if any(each.event[:2] == (kind, stage) for each in self.pieces[:maker]):
            raise NotRepeating
        return From(offset, "first", (kind, stage), 0, name)


class Patterns:
    """What the pieces have in common: by situation what they make and free, and which run the same operators."""

    def __init__(self, recorded: RecordedStep, *, merges: bool) -> None:
        self.piece_of: dict[Hashable, int] = {}  # the first piece of each situation
        self.freed: dict[Hashable, tuple[From, ...]] = {}
        self.like: list[int] = []  # of each piece the first one with the same operators
        same: dict[Any, int] = {}
        by_situation: defaultdict[Hashable, list[int]] = defaultdict(list)
        for number, piece in enumerate(recorded.pieces):
            by_situation[piece.situation].append(number)
            key = (piece.event.stage, tuple(_operators(recorded, piece))) if merges else number
            self.like.append(same.setdefault(key, number))
        for situation, numbers in by_situation.items():
            self.piece_of[situation] = numbers[0]
            if len({self.like[number] for number in numbers}) > 1:
                raise NotRepeating
            made = {tuple([tensor.offset for tensor in recorded.pieces[number].made]) for number in numbers}
            if not merges:
                self.freed[situation] = recorded.exactly(numbers[0])
                continue
            freed = {recorded.described(number, by_microbatch=True) for number in numbers}
            if len(freed) > 1:
                freed = {recorded.described(number, by_microbatch=False) for number in numbers}
            if len(freed) > 1 or len(made) > 1:
                raise NotRepeating
            self.freed[situation] = freed.pop()


def _operators(recorded: RecordedStep, piece: StepPiece) -> Iterator[Any]:
    """What a piece runs, wherever its tensors are."""
    values, life = recorded.graph.values, recorded.graph.lifetimes or Lifetimes((), ())
    for number in piece.ops:
        op = recorded.graph.ops[number]
        ids = (*op.inputs, *op.outputs)
        storages = [values[vid].storage for vid in ids]
        specs = tuple([values[vid].spec for vid in ids])
        alike = tuple(map(storages.index, storages))
        parts = tuple([(storage in life.gradients, storage in life.state) for storage in storages])
        yield op.kind, op.raw, op.phase, op.repeat, op.module, len(op.inputs), repr(op.attrs), specs, alike, parts
