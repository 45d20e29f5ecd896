"""The graph of a step of many microbatches, from one of few.

A schedule of a pipeline does the same again and again: a stage runs one microbatch forward as it runs the next one. So a recorded
step of few microbatches has all pieces of one of many, if each event of that is in the same situation as one that was recorded:
the first or the last of its kind on its stage, after an event of the same kind, and so on. The graph has every piece once, with
how often it runs, and the order in which they run. What a piece frees is described by who made it: itself, another event of the
same microbatch or of one so much earlier, the latest event of some kind, or all. Where recorded events in the same situation
differ, `NotRepeating` is raised.
"""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, NamedTuple

from opcost.core.alignment import NotRepeating
from opcost.core.graph import Graph, Lifetimes, Module, ModuleCall, Value
from opcost.core.lifetimes import NEVER
from opcost.core.order import RECEIVED, PieceOrder, StageEvent, received_name
from opcost.frontends.torch.sharding.pieces import BEGIN, END, From, Name, Patterns, RecordedStep


class CarriedOver(NamedTuple):
    """What the code that runs events keeps from one to another, which may change what they do or free."""

    frees: bool
    """Stages free gathered parameters after each use, so it matters what they did before."""
    lingers: bool
    """What an event made is kept until the next one of its kind, so it matters which microbatches went back before it."""
    counts: bool = False
    """They do something else the first and the second time, and where weights got gradients meanwhile."""


def situations(events: Sequence[StageEvent], memory: CarriedOver) -> list[Hashable]:
    """In which situation each event is: those in the same one do the same."""
    total = Counter((event.kind, event.stage) for event in events)
    left = Counter(message[:3] for event in events for message in event.messages)
    ran: Counter[tuple[str, int]] = Counter()
    latest: dict[int, str] = {}
    seen: Counter[tuple[str, int]] = Counter()  # how many gradients of weights there were at the latest event of a kind
    done: set[tuple[str, int, int]] = set()
    found: list[Hashable] = []
    for at, (kind, stage, microbatch, messages) in enumerate(events):
        left.subtract(message[:3] for message in messages)
        key: Hashable = tuple((*message[:3], memory.lingers and not left[message[:3]]) for message in messages)
        if not messages:
            ran[kind, stage] += 1
            nth = ran[kind, stage] == 1, ran[kind, stage] == total[kind, stage]
            before: Hashable = latest.get(stage) if memory.frees else latest.get(stage) == "gather"
            if memory.counts:
                weights = ran["weight", stage]
                before = latest.get(stage), min(ran[kind, stage], 3), min(weights, 2), weights > seen[kind, stage]
                seen[kind, stage] = weights
            beside = ("forward", stage, microbatch + 1) in done, ("backward", stage, microbatch - 1) in done
            key = kind, stage, *nth, before, *(beside if memory.lingers else ())
            done.add((kind, stage, microbatch))
            latest[stage] = kind
        found.append((key, at == len(events) - 1))
    return found


def covers(few: Sequence[StageEvent], every: Sequence[StageEvent], memory: CarriedOver) -> bool:
    """Whether a step of few events has all situations of another, and each that occurs several times at least twice."""
    here, there = (Counter(situations(events, memory)) for events in (few, every))
    return all(here[situation] >= min(times, 2) for situation, times in there.items())


# -- all events -----------------------------------------------------------------------------------------------------------------


class Composition:
    """The graphs that follow from a recorded step whose events are marked."""

    def __init__(
        self, graph: Graph, events: Sequence[StageEvent], memory: CarriedOver | None, left_out: Collection[int] = ()
    ) -> None:
        """Without `memory`, which is of no use where the whole step was recorded, each event is listed by itself."""
        self._memory = memory
        self._recorded = RecordedStep(graph, (BEGIN, *events, END), self._situations(events), left_out)
        self._patterns = Patterns(self._recorded, merges=memory is not None)

    def graph(self, every: Sequence[StageEvent]) -> Graph:
        """The graph of a step of these events, with each piece once."""
        named = self._situations(every)
        if not self._patterns.piece_of.keys() >= {*named}:
            raise NotRepeating
        listing = _Listing(self._recorded, self._patterns, named)
        turns = _Turns(self._recorded, self._patterns, listing)
        try:
            for event, situation in zip((BEGIN, *every, END), named, strict=True):
                turns.run(event, situation)
        except (LookupError, StopIteration) as exc:  # what would have made a tensor that is freed did not run here
            raise NotRepeating from exc
        order = turns.order()
        return replace(listing.graph(), released=frozenset(order.released), order=order)

    def _situations(self, events: Sequence[StageEvent]) -> list[Hashable]:
        own: Sequence[Hashable] = events if self._memory is None else situations(events, self._memory)
        return [BEGIN, *own, END]


class _Listing:
    """The pieces that are needed, each once, with new numbers for operators and tensors."""

    def __init__(self, recorded: RecordedStep, patterns: Patterns, named: Sequence[Hashable]) -> None:
        self._recorded, self._patterns = recorded, patterns
        graph = recorded.graph
        self._runs = Counter(patterns.like[patterns.piece_of[situation]] for situation in named)
        self.parts: dict[int, tuple[int, int]] = {}
        """The operators of each piece that is listed."""
        at = 0
        for number in sorted(self._runs):
            self.parts[number] = at, at + len(recorded.pieces[number].ops)
            at = self.parts[number][1]
        self._maker = {vid: (op.id, place) for op in graph.ops for place, vid in enumerate(op.outputs)}
        self._listed = [graph.ops[number] for piece in self.parts for number in recorded.pieces[piece].ops]
        self._same = self._constants()
        read = {self._same.get(vid, vid) for op in self._listed for vid in op.inputs}
        kept = [
            value for value in graph.values
            if value.id not in self._maker and (value.id in read or value.role != "const" or RECEIVED.fullmatch(value.name))
        ]  # fmt: skip
        self._new = {value.id: number for number, value in enumerate(kept)}
        self._values: list[Value] = kept
        for op in self._listed:
            for vid in op.outputs:
                self._new[vid] = len(self._values)
                self._values.append(graph.values[vid])

    def _constants(self) -> dict[int, int]:
        """Of constants that a model makes anew for each microbatch that of the first one."""
        graph, readers, places = self._recorded.graph, defaultdict[int, set[int]](set), dict[int, Hashable]()
        for number, piece in enumerate(self._recorded.pieces):
            for offset, op in enumerate(piece.ops):
                for place, vid in enumerate(graph.ops[op].inputs):
                    value = graph.values[vid]
                    if vid not in self._maker and value.role == "const" and not RECEIVED.fullmatch(value.name):
                        readers[vid].add(number)
                        places.setdefault(vid, (*piece.event[:2], offset, place, graph.values[vid].spec))
        first: dict[Hashable, int] = {}
        return {vid: first.setdefault(places[vid], vid) for vid, own in readers.items() if len(own) == 1}

    def value(self, vid: int) -> int:
        """The number of a tensor, or of the one that is in its place in the piece that is listed."""
        vid = self._same.get(vid, vid)
        if vid not in self._new and vid in self._maker:
            op, place = self._maker[vid]
            piece, offset = self._recorded.place(op)
            like = self._recorded.pieces[self._patterns.like[piece]].ops[offset]
            return self._new[self._recorded.graph.ops[like].outputs[place]]
        return self._new[vid]

    def graph(self) -> Graph:
        """The graph of what is listed."""
        given = self._recorded.graph
        values = tuple(
            value._replace(id=number, storage=self.value(value.storage)) for number, value in enumerate(self._values)
        )
        times = {
            number: self._runs[piece] for piece, (first, end) in self.parts.items() for number in range(first, end)
        }
        ops = tuple(
            op._replace(
                id=number, inputs=tuple(map(self.value, op.inputs)), outputs=tuple(map(self.value, op.outputs)),
                repeat=op.repeat * times[number],
            )
            for number, op in enumerate(self._listed)
        )  # fmt: skip
        life = given.lifetimes or Lifetimes((), ())
        sets: Any = {
            each.name: frozenset(map(self.value, own))
            for each in fields(life) if isinstance(own := getattr(life, each.name), frozenset)
        }  # fmt: skip
        calls, called = self._calls()
        return replace(
            given, values=values, ops=ops, calls=calls, lifetimes=Lifetimes((), (), **sets),
            modules=tuple(self._module(module, called) for module in given.modules),
            inputs=tuple(map(self.value, given.inputs)), outputs=tuple(map(self.value, given.outputs)),
        )  # fmt: skip

    def _calls(self) -> tuple[tuple[ModuleCall, ...], Counter[str]]:
        """The calls in the pieces that are listed, and how often each module is called in all."""
        found: list[ModuleCall] = []
        called: Counter[str] = Counter()
        for call in self._recorded.graph.calls:
            piece = self._recorded.piece_at(call.first)
            if piece in self.parts:
                first = self.parts[piece][0]
                called[call.path] += self._runs[piece]
                within = self._recorded.kept_before
                begin, end = (
                    first + within(step) - within(self._recorded.begin(piece)) for step in (call.first, call.end)
                )
                found.append(call._replace(first=begin, end=end))
        return tuple(found), called

    def _module(self, module: Module, called: Mapping[str, int]) -> Module:
        parameters, buffers = (
            tuple((name, self.value(vid)) for name, vid in own) for own in (module.parameters, module.buffers)
        )
        return replace(module, parameters=parameters, buffers=buffers, calls=called.get(module.path, 0))


class _Turns:
    """All events in turn, with the tensors that they make and free."""

    def __init__(self, recorded: RecordedStep, patterns: Patterns, listing: _Listing) -> None:
        self._recorded, self._patterns, self._listing = recorded, patterns, listing
        self._parts = {number: at for at, number in enumerate(listing.parts)}
        self._received = {value.name: value.id for value in recorded.graph.values if RECEIVED.fullmatch(value.name)}
        self._events: list[StageEvent] = []
        self._runs = array("i")
        self._storages, self._born, self._gone = array("q"), array("q"), array("q")
        self._released: dict[int, int] = {}
        self._made: list[dict[Name, int]] = []  # the tensors of each event
        self._places: dict[tuple[str, int, int], int] = {}  # of events, by kind, stage and microbatch
        self._by_kind: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
        self._by_name: defaultdict[Hashable, list[int]] = defaultdict(list)  # the tensors of a name on each stage
        self._position = 0

    def run(self, event: StageEvent, situation: Hashable) -> None:
        """The next event."""
        number = self._patterns.piece_of[situation]
        piece, at = self._recorded.pieces[number], len(self._events)
        self._events.append(event)
        self._runs.append(self._parts[self._patterns.like[number]])
        self._places[event[:3]] = at
        self._by_kind[event[:2]].append(at)
        made: dict[Name, int] = {}
        for tensor in piece.made:
            made[tensor.name] = len(self._storages)
            self._storages.append(self._listing.value(tensor.storage))
            self._born.append(self._position + tensor.offset)
            self._gone.append(NEVER)
        self._made.append(made)
        for freed in self._patterns.freed[situation]:
            self._free(event, at, freed)
        for name, place in made.items():
            self._by_name[event.stage, name.last].append(place)
        self._position += len(piece.ops)

    def _free(self, event: StageEvent, at: int, freed: From) -> None:
        time, whose, which = self._position + freed.offset, freed.event, freed.number
        if freed.how == "before":
            if isinstance(whose, tuple):
                stage, phase, number = whose
                whose = self._received[received_name(stage, phase, event.microbatch + freed.delta, number)]
            self._released[self._listing.value(whose)] = time
        elif freed.how == "every":
            makers = self._by_kind[whose]
            for maker in makers[: len(makers) - freed.delta]:
                for name in which:
                    self._gone[self._made[maker][name]] = time
        elif freed.how == "latest":
            found = reversed(self._by_name[whose, which])
            self._gone[next(tensor for tensor in found if self._gone[tensor] == NEVER)] = time
        else:
            self._gone[self._made[self._maker(event, at, freed)][which]] = time

    def _maker(self, event: StageEvent, at: int, freed: From) -> int:
        """The event that made a tensor."""
        if freed.how == "microbatch":
            kind, stage, message = freed.event
            own = event.messages[message].microbatch if event.messages else event.microbatch
            return self._places[kind, stage, own + freed.delta]
        if freed.how == "first":
            return self._by_kind[freed.event][0]
        return int(freed.event) if freed.how == "piece" else at

    def order(self) -> PieceOrder:
        """The order of all events so far; what nothing has freed stays to the end."""
        deaths = array("q", (self._position if time == NEVER else time for time in self._gone))
        return PieceOrder(
            parts=tuple(self._listing.parts.values()), runs=self._runs, events=tuple(self._events),
            storages=self._storages, births=self._born, deaths=deaths, released=self._released,
        )  # fmt: skip
