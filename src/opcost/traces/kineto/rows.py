"""The rows of a Kineto trace as a profile, one for every execution."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain, repeat

from opcost.core.graph import Note
from opcost.core.profile import Kernel, ProfileRow
from opcost.core.units import format_time
from opcost.traces.kineto.bearing import MOVES, Bearing, bearing
from opcost.traces.kineto.by_kernel import Hint, hint_of
from opcost.traces.kineto.categories import OPERATOR
from opcost.traces.kineto.lane import NONE
from opcost.traces.kineto.launches import GRAPH, OUTSIDE
from opcost.traces.kineto.link import Linked
from opcost.traces.kineto.meaning import Meaning, meaning
from opcost.traces.kineto.steps import Step
from opcost.traces.kineto.training import PHASES


def _device_name(device: object) -> str:
    """Our word for a device; readers of other formats may have one already."""
    return device if isinstance(device, str) and ":" in device else f"gpu:{device}"


UNTOLD = Meaning("", ())

REASONS = {GRAPH: "graph", OUTSIDE: "outside"}
"""Why no operator has a piece of device work."""


class Translated:
    """A linked trace with every signature in our words; which of nested operators bear their meaning, `bearing` tells."""

    def __init__(self, linked: Linked, base_ns: int = 0, rank: int = 0, steps: Sequence[Step] = ()) -> None:
        self.linked = linked
        self.steps = steps
        """From those of the profiler's schedule rows have their numbers; others are only told of as a whole."""
        self.base_ns = base_ns
        self.rank = rank
        self.queues = [(_device_name(device), str(stream)) for device, stream in linked.columns.queues]
        self.kernel_names = list(linked.columns.kernel_names)
        self.has_device = bool(linked.columns.device.start)
        self.meanings = [
            meaning(signature.name, signature.dims, signature.types, signature.concrete, signature.strides)
            if signature.sort == OPERATOR
            else UNTOLD
            for signature in linked.signatures
        ]
        self._hinted: dict[tuple[int, Hint], Meaning] = {}
        self._first_rows = [first for _, first in linked.threads]
        self._merge_joined()

    def _merge_joined(self) -> None:
        """Of an operator that is dispatched twice under one name, what either dispatch tells."""
        signature = self.linked.rows.signature
        for inner, outer in {(signature[row], signature[around]) for row, around in self.linked.joined.items()}:
            told, again = self.meanings[outer], self.meanings[inner]
            if again.outs:
                self.meanings[outer] = told._replace(is_own=told.is_own or again.is_own) if told.outs else again

    @cached_property
    def bearing(self) -> Bearing:
        return bearing(self.linked, self.meanings)

    def bare(self, signature: int, *, covered: int, kernels: Iterable[str] = ()) -> Meaning:
        """What a signature means; of one that wraps another only its tensors, in one that has the price only that one's kind.

        What the arguments do not tell, the names of its kernels may.
        """
        told = self.meanings[signature]
        if not told.outs and (hint := hint_of(self.linked.signatures[signature].name, kernels)) is not None:
            if (signature, hint) not in self._hinted:
                spelled = self.linked.signatures[signature][1:]
                self._hinted[signature, hint] = meaning(*spelled, hint)
            told = self._hinted[signature, hint]
        if signature in self.bearing.wrappers:
            return Meaning("", told.ins, told.outs)
        if covered and told.kind and told.kind not in MOVES:
            return Meaning(self.bearing.kinds[covered], ())
        return told

    def thread(self, row: int) -> str:
        return self.linked.threads[bisect_right(self._first_rows, row) - 1][0]

    def thread_of_rows(self) -> Iterator[str]:
        """The thread of each row."""
        ends = [*self._first_rows[1:], len(self.linked)]
        return chain.from_iterable(
            repeat(name, end - first) for (name, first), end in zip(self.linked.threads, ends, strict=True)
        )

    def kernel(self, place: int) -> Kernel:
        work = self.linked.columns.device
        device, stream = self.queues[work.queue[place]]
        name = self.kernel_names[work.name[place]]
        start = self.base_ns + work.start[place]
        owner = self.linked.owner[place]
        launch = None if owner == GRAPH else self.linked.launched(work.correlation[place])
        launched = None if launch is None else self.base_ns + launch
        return Kernel(name, device, stream, start, work.duration[place], launched, REASONS.get(owner, ""))

    def rows(self) -> tuple[ProfileRow, ...]:
        """Every execution, by start."""
        linked = self.linked
        launched: dict[int, list[Kernel]] = {}
        for place, owner in enumerate(linked.owner):
            if owner >= 0:
                launched.setdefault(owner, []).append(self.kernel(place))
        start, duration, steps = linked.rows.start, linked.rows.duration, [*linked.steps()]
        order = sorted(
            (row for row in range(len(linked)) if row not in linked.joined),
            key=lambda row: (start[row], -duration[row], row),
        )
        return tuple(self._row(number, row, steps[row], launched.get(row, [])) for number, row in enumerate(order))

    def row_of(self, row: int) -> ProfileRow:
        """A row by itself, without kernels, step and number."""
        return self._row(0, row, None, [])

    def step_at(self, time: int | None) -> int | None:
        """The step of the profiler's schedule that was under way."""
        marked = self.linked.columns.steps
        return None if time is None else next((number for start, end, number in marked if start <= time < end), None)

    def _row(self, number: int, row: int, step: int | None, launched: list[Kernel]) -> ProfileRow:
        linked, rows = self.linked, self.linked.rows
        signature_number = rows.signature[row]
        signature = linked.signatures[signature_number]
        kernels = tuple(sorted(launched, key=lambda kernel: kernel.start_ns))
        names = [kernel.name for kernel in kernels]
        told = self.bare(signature_number, covered=self.bearing.covered[row], kernels=names)
        module = rows.module[row]
        return ProfileRow(
            id=number,
            name=signature.name,
            type=signature.name,
            kind=told.kind,
            module="" if module == NONE else linked.modules[module],
            phase=PHASES[rows.phase[row]],
            device=kernels[0].device if kernels else "cpu",
            stream=kernels[0].stream if kernels else self.thread(row),
            provider=linked.columns.providers[signature.sort],
            rank=self.rank,
            step=step,
            host_start_ns=self.base_ns + rows.start[row],
            host_ns=rows.duration[row],
            host_self_ns=rows.self_time[row],
            device_ns=linked.device[row] if self.has_device else None,
            device_total_ns=linked.device_total[row] if self.has_device else None,
            kernels=kernels,
            ins=told.ins,
            outs=told.outs,
            attrs=told.attrs,
        )

    def unattributed(self) -> tuple[Kernel, ...]:
        """Device work that belongs to no operator, in the order of the file."""
        return tuple(self.kernel(place) for place, owner in enumerate(self.linked.owner) if owner < 0)

    def notes(self, replayed: int = 0) -> tuple[Note, ...]:
        """What a reader of the profile must know about where kernels belong; of graphs, so many have an operator."""
        linked = self.linked
        owners = Counter(owner for owner in linked.owner if owner < 0)
        owners[GRAPH] -= replayed
        found = []
        texts = {
            GRAPH: "replayed by captured graphs, which do not say whose they are",
            OUTSIDE: "launched before or after the trace",
            NONE: "launched outside any operator",
        }
        whose = ", ".join(f"{owners[owner]:,} {text}" for owner, text in texts.items() if owners[owner])
        if whose:
            count = f"{owners.total():,} of {len(linked.owner):,} pieces of device work"
            found.append(Note("unattributed", f"{count} have no operator: {whose}"))
        operators = [signature for signature in linked.signatures if signature.sort == OPERATOR]
        if self.has_device and operators and not any(signature.dims for signature in operators):
            found.append(
                Note("shapes", "the trace has no shapes, so nothing has a price: record with record_shapes=True")
            )
        if linked.skew:
            apart = f"the clocks of host and device are at least {format_time(linked.skew)} apart"
            found.append(Note("clocks", f"{apart}: why devices were idle, launch delays and wall time are not known"))
        if unread := linked.columns.unread:
            found.append(
                Note("unread", f"{unread:,} tasks on a device have no category and are left out: times are of the host")
            )
        if untimed := linked.columns.untimed:
            found.append(Note("untimed", f"{untimed} events have no 'ts' or no 'dur' and are left out"))
        if negative := linked.columns.negative:
            found.append(Note("negative", f"{negative} events have a duration below zero, which counts as none"))
        if linked.disagreed:
            found.append(
                Note(
                    "external-id",
                    f"'External id' names another operator than the launch, which counts, for {linked.disagreed:,} of "
                    f"{linked.agreed + linked.disagreed:,} kernels",
                )
            )
        return tuple(found)
