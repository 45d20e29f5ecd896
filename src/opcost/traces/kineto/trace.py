"""A linked Kineto trace: its columns with named accessors, and what they are as rows of a profile.

Rows are numbers of host intervals (`HostRows`), places are numbers of pieces of device work (`DeviceColumns`). The columns have
-1 where there is no value; read them through the accessors of `Trace`, which give None or an empty text instead.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, groupby, repeat
from typing import TypeAlias

from opcost.core.graph import Note
from opcost.core.names import is_copy
from opcost.core.profile import Kernel, ProfileRow
from opcost.core.units import format_time
from opcost.traces.kineto.columns import BYTES, INTS, LONGS, NONE, Columns, TracedSignature
from opcost.traces.kineto.decoding import OPERATOR
from opcost.traces.kineto.modules import NEVER, PHASES, TraceStep
from opcost.traces.kineto.operators import (
    MOVES,
    Hint,
    NestedCosts,
    TracedOperator,
    hint_of,
    nested_costs,
    traced_operator,
)


class Unowned:
    """Why no operator owns a piece of device work: what the column `owner` has instead of a row."""

    NO_OPERATOR = NONE
    GRAPH = -2  # A captured graph launched it
    OUTSIDE = -3  # its launch is not in the trace


REASONS = {Unowned.GRAPH: "graph", Unowned.OUTSIDE: "outside"}  # the same as `Kernel.why` names it


CapturedLaunch: TypeAlias = tuple[int, int, bool]
"""A call that launched something into a graph: the operator around it, the number of the kernel where the runtime wrote it (NONE
without), and whether it copies."""


@dataclass(slots=True)
class HostRows:
    """Every operator, annotation and runtime call, in columns.

    The rows of a thread are together: first operators and annotations by start, then runtime calls by start.
    """

    start: array[int] = field(default_factory=LONGS)
    duration: array[int] = field(default_factory=LONGS)
    self_time: array[int] = field(default_factory=LONGS)
    signature: array[int] = field(default_factory=INTS)
    external: array[int] = field(default_factory=LONGS)
    parent: array[int] = field(default_factory=INTS)
    module: array[int] = field(default_factory=INTS)
    phase: array[int] = field(default_factory=BYTES)
    device: array[int] = field(default_factory=LONGS)
    """Time of the device work that the row launched; and with the operators inside."""
    device_total: array[int] = field(default_factory=LONGS)


@dataclass
class Trace:
    """A trace whose parts are linked, as `link` makes it."""

    columns: Columns
    base_ns: int = 0
    rank: int = 0
    steps: Sequence[TraceStep] = ()
    """Rows have the numbers of those that the profiler's schedule marked; others are only used as a whole."""
    rows: HostRows = field(default_factory=HostRows)
    threads: list[tuple[str, int]] = field(default_factory=list)  # name and first row of each thread
    modules: list[str] = field(default_factory=list)
    joined: dict[int, int] = field(default_factory=dict)  # rows that are the same execution as another row, and which
    first: int = NEVER
    last: int = -NEVER  # the beginning of the first row and the end of the last
    owner: array[int] = field(default_factory=INTS)
    """Of each piece of device work, the row that launched it, or one of `Unowned`."""
    launches: dict[int, int] = field(default_factory=dict)
    """By correlation, the row of the call that launched something; empty where `skew` makes its times useless."""
    skew: int = 0  # nanoseconds that the clocks of host and device differ by at the least, where that shows
    captured: list[list[CapturedLaunch]] = field(default_factory=list)  # The launches into each graph that was captured
    agreed: int = 0
    disagreed: int = 0
    """Kernels whose `External id` names the operator that launched them, and those where it names another."""
    meta: Mapping[str, str] = field(default_factory=dict)
    written_rank: int | None = None  # as the file has it; without one it is not rank 0
    groups: Mapping[str, tuple[str, tuple[int, ...]]] = field(default_factory=dict)
    """Of each process group by its name, its description and ranks."""
    file_notes: Sequence[Note] = ()  # what was left out of the file

    def __post_init__(self) -> None:
        self.signatures: list[TracedSignature] = self.columns.signatures
        self.has_device = bool(self.columns.device.start)
        self.kernel_names = list(self.columns.kernel_names)
        self.queues = [
            # Readers of other formats may have our word for a device already.
            (device if isinstance(device, str) and ":" in device else f"gpu:{device}", str(stream))
            for device, stream in self.columns.queues
        ]
        """Device and stream of each queue, in our words."""
        self._hinted: dict[tuple[int, Hint], TracedOperator] = {}

    def __len__(self) -> int:
        return len(self.rows.start)

    # -- accessors: of rows

    def name_of(self, row: int) -> str:
        return self.signatures[self.rows.signature[row]].name

    def module_of(self, row: int) -> str:
        module = self.rows.module[row]
        return "" if module == NONE else self.modules[module]

    @cached_property
    def _first_rows(self) -> list[int]:
        return [first for _, first in self.threads]

    def thread_of_rows(self) -> Iterator[str]:
        """The thread of each row."""
        ends = [*self._first_rows[1:], len(self)]
        return chain.from_iterable(
            repeat(name, end - first) for (name, first), end in zip(self.threads, ends, strict=True)
        )

    def step_of_rows(self) -> Iterator[int | None]:
        """The step of the profiler's schedule that was under way when each row began."""
        marked = sorted(self.columns.steps)
        starts = [start for start, _, _ in marked]
        for time in self.rows.start:
            place = bisect_right(starts, time) - 1
            yield marked[place][2] if place >= 0 and time < marked[place][1] else None

    # -- accessors: of device work

    def owner_of(self, place: int) -> int | None:
        """The row that launched a piece of device work."""
        return owner if (owner := self.owner[place]) >= 0 else None

    def owned(self) -> Iterator[tuple[int, int]]:
        """Place and row of all device work that a row owns."""
        return ((place, owner) for place, owner in enumerate(self.owner) if owner >= 0)

    def unowned(self) -> Iterator[tuple[int, int]]:
        """Place and reason (of `Unowned`) of all other device work."""
        return ((place, owner) for place, owner in enumerate(self.owner) if owner < 0)

    def launched_at(self, place: int) -> int | None:
        """When the call that launched a piece of device work began."""
        row = self.launches.get(self.columns.device.correlation[place])
        return None if row is None else self.rows.start[row]

    @property
    def wall_ns(self) -> int | None:
        """From the beginning of the first row or kernel to the end of the last; None where they are on different clocks."""
        if self.skew:
            return None
        work = self.columns.device
        ends = [start + duration for start, duration in zip(work.start, work.duration, strict=True)]
        wall = max([self.last, *ends]) - min([self.first, *work.start])
        return wall if wall >= 0 else None

    # -- what operators are

    @cached_property
    def operators(self) -> list[TracedOperator]:
        """Of each signature its kind, tensors and attributes."""
        found = [
            traced_operator(*signature[1:]) if signature.sort == OPERATOR else TracedOperator("", ())
            for signature in self.signatures
        ]
        # Of an operator that is dispatched twice under one name, what is known of either dispatch.
        signature = self.rows.signature
        for inner, outer in {(signature[row], signature[around]) for row, around in self.joined.items()}:
            known, again = found[outer], found[inner]
            if again.outs:
                found[outer] = known._replace(is_whole=known.is_whole or again.is_whole) if known.outs else again
        return found

    @cached_property
    def nested(self) -> NestedCosts:
        """Which of nested operators have no cost of their own."""
        names, rows = [signature.name for signature in self.signatures], self.rows
        return nested_costs(names, self.operators, rows.signature, rows.parent, self.joined, on_device=self.has_device)

    def costed_operator(self, signature: int, *, covered: int, kernels: Iterable[str] = ()) -> TracedOperator:
        """What a signature is; of one that wraps another only its tensors, in one that has the cost only that one's kind.

        What the arguments lack, the names of its kernels may have.
        """
        found = self.operators[signature]
        if not found.outs and (hint := hint_of(self.signatures[signature].name, kernels)) is not None:
            if (signature, hint) not in self._hinted:
                self._hinted[signature, hint] = traced_operator(*self.signatures[signature][1:], hint)
            found = self._hinted[signature, hint]
        if signature in self.nested.wrappers:
            return TracedOperator("", found.ins, found.outs)
        if covered and found.kind and found.kind not in MOVES:
            return TracedOperator(self.nested.kinds[covered], ())
        return found

    # -- rows of a profile

    def kernel(self, place: int) -> Kernel:
        work, owner = self.columns.device, self.owner[place]
        launch = None if owner == Unowned.GRAPH else self.launched_at(place)
        occupancy, blocks = work.fill([place])
        return Kernel(
            self.kernel_names[work.name[place]],
            *self.queues[work.queue[place]],
            self.base_ns + work.start[place],
            work.duration[place],
            None if launch is None else self.base_ns + launch,
            REASONS.get(owner, ""),
            occupancy=occupancy,
            blocks_per_sm=blocks,
        )

    def executions(self) -> tuple[ProfileRow, ...]:
        """Every execution, by start."""
        launched: dict[int, list[Kernel]] = {}
        for place, owner in self.owned():
            launched.setdefault(owner, []).append(self.kernel(place))
        start, duration, steps = self.rows.start, self.rows.duration, [*self.step_of_rows()]
        order = sorted(
            (row for row in range(len(self)) if row not in self.joined),
            key=lambda row: (start[row], -duration[row], row),
        )
        return tuple(self.row(number, row, steps[row], launched.get(row, [])) for number, row in enumerate(order))

    def row(self, number: int, row: int, step: int | None, launched: Sequence[Kernel]) -> ProfileRow:
        """One execution with the kernels that it launched."""
        rows, signature_number = self.rows, self.rows.signature[row]
        signature = self.signatures[signature_number]
        kernels = tuple(sorted(launched, key=lambda kernel: kernel.start_ns))
        names = [kernel.name for kernel in kernels]
        operator = self.costed_operator(signature_number, covered=self.nested.covered[row], kernels=names)
        thread = self.threads[bisect_right(self._first_rows, row) - 1][0]
        return ProfileRow(
            id=number, name=signature.name, type=signature.name, kind=operator.kind, module=self.module_of(row),
            phase=PHASES[rows.phase[row]], device=kernels[0].device if kernels else "cpu",
            stream=kernels[0].stream if kernels else thread, provider=self.columns.providers[signature.sort],
            rank=self.rank, step=step, host_start_ns=self.base_ns + rows.start[row], host_ns=rows.duration[row],
            host_self_ns=rows.self_time[row], device_ns=rows.device[row] if self.has_device else None,
            device_total_ns=rows.device_total[row] if self.has_device else None,
            kernels=kernels, ins=operator.ins, outs=operator.outs, attrs=operator.attrs,
        )  # fmt: skip

    def notes(self, replayed: int = 0) -> tuple[Note, ...]:
        """What a reader of the profile must know; `replayed` kernels of graphs have an operator."""
        owners = Counter(reason for _, reason in self.unowned())
        owners[Unowned.GRAPH] -= replayed
        texts = {
            Unowned.GRAPH: "replayed by captured graphs, which do not say whose they are",
            Unowned.OUTSIDE: "launched before or after the trace",
            Unowned.NO_OPERATOR: "launched outside any operator",
        }
        whose = ", ".join(f"{owners[owner]:,} {text}" for owner, text in texts.items() if owners[owner])
        count = f"{owners.total():,} of {len(self.owner):,} pieces of device work"
        operators = [signature for signature in self.signatures if signature.sort == OPERATOR]
        shapeless = self.has_device and operators and not any(signature.dims for signature in operators)
        apart = f"the clocks of host and device are at least {format_time(self.skew)} apart"
        columns = self.columns
        external = "'External id' names another operator than the launch, which counts, for"
        kernels = f"{self.disagreed:,} of {self.agreed + self.disagreed:,} kernels"
        found = (
            (whose, "unattributed", f"{count} have no operator: {whose}"),
            (shapeless, "shapes", "the trace has no shapes, so no operator has a cost: record with record_shapes=True"),
            (self.skew, "clocks", f"{apart}: why devices were idle, launch delays and wall time are not known"),
            (
                columns.unread, "unread",
                f"{columns.unread:,} tasks on a device have no category and are left out: times are of the host",
            ),
            (columns.untimed, "untimed", f"{columns.untimed} events have no 'ts' or no 'dur' and are left out"),
            (
                columns.negative, "negative",
                f"{columns.negative} events have a duration below zero, which counts as none",
            ),
            (self.disagreed, "external-id", f"{external} {kernels}"),
        )  # fmt: skip
        return (*self.file_notes, *(Note(code, text) for applies, code, text in found if applies))


# -- captured graphs: their kernels belong to the operators that launched them while the graph was captured
#
# During a capture launches run nothing, so they have no device work. A replay has the kernels of one capture in the same order.
# Where the runtime wrote which kernel a launch is for (ROCm), all names must agree, and what the runtime left out of the graph
# may be missing; where it did not (CUDA), the number of launches must, and which are copies. What does not agree has no owner.


class Capture:
    """One graph as it was captured, in the trace that has its operators."""

    def __init__(self, trace: Trace, launches: Sequence[CapturedLaunch], source: str) -> None:
        names = trace.columns.launched_kernels
        self.source = source
        self._trace = trace
        self._launches = [
            # Row, kernel as the runtime wrote it (empty where it did not), and whether it is a copy
            (trace.joined.get(row, row), names[kernel] if kernel >= 0 else "", copies)
            for row, kernel, copies in launches
        ]
        self._is_named = all(kernel or copies for _, kernel, copies in self._launches)

    def matches(self, names: Sequence[str]) -> list[int] | None:
        """Of each kernel of a replay the operator that launched it; None if it is not a replay of this capture."""
        if not self._is_named and len(names) != len(self._launches):
            return None
        found: list[int] = []
        launches = iter(self._launches)
        for name in names:
            for row, kernel, copies in launches:
                if kernel == name if kernel else copies == is_copy(name):
                    found.append(row)
                    break
                if not self._is_named:
                    return None
            else:
                return None
        return found

    def rows(self, kernels: Sequence[Kernel], owners: Sequence[int], step: int | None) -> list[ProfileRow]:
        """One row for each operator of the capture, with the kernels of a replay; the host runs none of them again."""
        found = []
        for row, own in groupby(zip(owners, kernels, strict=True), key=lambda pair: pair[0]):
            if row >= 0:
                mine = tuple(kernel._replace(why="") for _, kernel in own)
                time = sum(kernel.duration_ns for kernel in mine)
                made = self._trace.row(0, row, step, ())._replace(
                    provider="graph", kernels=mine, host_start_ns=None, host_ns=None, host_self_ns=None,
                    device=mine[0].device, stream=mine[0].stream, device_ns=time, device_total_ns=time,
                )  # fmt: skip
                found.append(made)
        return found


def captures_of(trace: Trace, source: str = "") -> list[Capture]:
    """The graphs that were captured in a trace: what was launched from the beginning of a capture to its end."""
    return [Capture(trace, launches, source) for launches in trace.captured]


def replayed(
    trace: Trace, captures: Sequence[Capture]
) -> tuple[Sequence[ProfileRow], tuple[Kernel, ...], int, tuple[Note, ...]]:
    """The kernels of replays by the operators of their captures.

    Rows of those operators, device work that still has none, how many kernels of graphs now have an operator, and notes.
    """
    work = trace.columns.device
    places: dict[int, list[int]] = {}
    for place, reason in trace.unowned():
        if reason == Unowned.GRAPH:
            places.setdefault(work.correlation[place], []).append(place)
    if not places or not captures:
        return (), tuple(trace.kernel(place) for place, _ in trace.unowned()), 0, ()
    known: dict[tuple[str, ...], list[tuple[int, list[int]]]] = {}
    rows: list[ProfileRow] = []
    taken: set[int] = set()
    last = -1
    for correlation in sorted(places, key=lambda each: min(work.start[place] for place in places[each])):
        ordered = sorted(places[correlation], key=work.start.__getitem__)
        kernels = [trace.kernel(place) for place in ordered]
        names = tuple(kernel.name for kernel in kernels)
        if names not in known:
            fits = [(number, capture.matches(names)) for number, capture in enumerate(captures)]
            known[names] = [(number, found) for number, found in fits if found is not None]
        # Graphs of equal layers have equal kernels: they are replayed in the order in which they were captured.
        fitting = known[names]
        if not fitting:
            continue
        last, found = next((each for each in fitting if each[0] > last), fitting[0])
        launched = trace.launched_at(ordered[0])
        marked = trace.columns.steps if launched is not None else ()
        step = next((number for start, end, number in marked if start <= (launched or 0) < end), None)
        made = captures[last].rows(kernels, found, step)
        rows += made
        owned = {kernel.start_ns for row in made for kernel in row.kernels}
        taken.update(place for place, kernel in zip(ordered, kernels, strict=True) if kernel.start_ns in owned)
    count = sum(map(len, places.values()))
    sources = ", ".join(dict.fromkeys(capture.source for capture in captures if capture.source))
    whose = f"the capture in {sources}" if sources else "their capture"
    text = f"{len(taken):,} of {count:,} kernels of captured graphs belong to the operators of {whose}"
    left = [trace.kernel(place) for place, _ in trace.unowned() if place not in taken]
    return rows, tuple(left), len(taken), (Note("replayed", text),)
