"""The reader of XLA's traces: an executed instruction of a compiled program is a row."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from opcost.core.checked import Bad
from opcost.core.graph import Note
from opcost.core.interrupts import garbage_collector_paused
from opcost.core.profile import Kernel, Profile, ProfileRow
from opcost.errors import SourceError
from opcost.traces.events import events_of
from opcost.traces.file import TraceFile
from opcost.traces.launched import Teller, device_extra
from opcost.traces.xla.chart import is_chart, read_chart
from opcost.traces.xla.executed import HOST, Executed, Told
from opcost.traces.xla.hlo import Instruction, place_of
from opcost.traces.xla.planes import is_xspace, read_planes

if TYPE_CHECKING:
    from opcost.traces.registry import Reader

_NUMBER = re.compile(r"(?:\.\d+)+$")
_ODD = re.compile(r"\W")
BUFFER = "command_buffer"
"""The beginning of an operator's name that stands for a captured graph of many; their kernels bear the names of theirs."""


class XlaReader:
    """Both forms."""

    name = "xla"

    def sniff(self, head: bytes) -> bool:
        return is_xspace(head) or is_chart(head)

    def read(self, file: TraceFile, *, partial: bool = False) -> Profile:
        with garbage_collector_paused():
            told, damage = _told(file, partial=partial)
            notes = [Note("partial", damage)] if damage else []
            if told.faulty:
                notes.append(Note("faulty", f"{told.faulty} events are left out, whose times are none"))
            return _profile(file, told, tuple(notes))


READER: Reader = XlaReader()


def _told(file: TraceFile, *, partial: bool) -> tuple[Told, str]:
    if not is_xspace(file.head):
        events, damage = events_of(file, partial=partial)
        return read_chart(events), damage
    try:
        return read_planes(bytes(file.content())), ""
    except (Bad, RecursionError) as exc:
        raise SourceError(f"{file.path} is not a whole file of XLA's profiler: {exc}", hint="record it again") from exc


def _profile(file: TraceFile, told: Told, notes: tuple[Note, ...]) -> Profile:
    rows: list[ProfileRow] = []
    lost: list[Kernel] = []
    steps = sorted(told.steps)
    starts = [start for start, _ in steps]
    programs = {number: _Names(found) for number, found in told.programs.items()}
    for spent in sorted(_nested(told.executed), key=lambda each: each.work.start_ns):
        work = spent.work
        if not work.operator:
            lost.append(_kernel(work, spent.own_ns))
            continue
        found = bisect_right(starts, work.start_ns) - 1
        instruction = programs[work.program].of(work) if work.program in programs else None
        rows.append(_row(len(rows), spent, instruction, steps[found][1] if found >= 0 else None))
    teller = Teller()
    work_events = (
        event
        for work in told.executed
        if work.device != HOST
        for event in teller.work(
            work.name, (work.device, work.line), work.start_ns, work.start_ns + work.duration_ns, -1, work.moved
        )
    )
    extra = device_extra(work_events)
    ends = [work.start_ns + work.duration_ns for work in told.executed]
    meta = {"source": file.name, "format": "xla", **told.versions}
    if told.devices:
        meta["device"] = ", ".join(dict.fromkeys(told.devices))
    return Profile(
        meta=meta,
        rows=tuple(rows),
        unattributed=tuple(lost),
        wall_ns=max(ends) - min(work.start_ns for work in told.executed) if ends else None,
        notes=notes,
        extra=extra,
    )


class _Names:
    """The instructions of a program by the names that events give them."""

    def __init__(self, instructions: dict[str, Instruction]) -> None:
        self._by_name = instructions
        self._by_kernel = {_ODD.sub("_", name): instruction for name, instruction in instructions.items()}

    def of(self, work: Executed) -> Instruction | None:
        """Of a captured graph, that of the kernel."""
        if work.operator.startswith(BUFFER):
            return self._by_kernel.get(work.name)
        return self._by_name.get(work.operator)


class _Spent(NamedTuple):
    """Work, and its time without that of what lies in it: a loop holds what it repeats."""

    work: Executed
    own_ns: int


def _nested(executed: Iterable[Executed]) -> Iterator[_Spent]:
    lines: dict[tuple[str, str], list[Executed]] = {}
    for work in executed:
        lines.setdefault((work.device, work.line), []).append(work)
    for found in lines.values():
        found.sort(key=lambda work: (work.start_ns, -work.duration_ns))
        own = [work.duration_ns for work in found]
        around: list[int] = []
        for place, work in enumerate(found):
            end = work.start_ns + work.duration_ns
            while around and found[around[-1]].start_ns + found[around[-1]].duration_ns < end:
                around.pop()
            if around:
                own[around[-1]] -= work.duration_ns
            around.append(place)
        yield from (_Spent(work, max(spent, 0)) for work, spent in zip(found, own, strict=True))


def _kernel(work: Executed, own_ns: int) -> Kernel:
    return Kernel(work.name, work.device, work.line, work.start_ns, own_ns)


def _row(number: int, spent: _Spent, instruction: Instruction | None, step: int | None) -> ProfileRow:
    work, own_ns = spent
    on_host = work.device == HOST
    told = instruction or Instruction("")
    place = place_of(told.scope or work.scope)
    name = work.name if work.operator.startswith(BUFFER) else work.operator
    return ProfileRow(
        id=number,
        name=name,
        type=place.primitive or told.opcode or _NUMBER.sub("", name),
        kind=told.kind,
        module=place.module,
        phase=place.phase,
        device=work.device,
        stream=work.line,
        provider="xla",
        step=step,
        host_start_ns=work.start_ns,
        host_ns=work.duration_ns if on_host else None,
        host_self_ns=own_ns if on_host else None,
        device_ns=None if on_host else own_ns,
        device_total_ns=None if on_host else work.duration_ns,
        kernels=() if on_host else (_kernel(work, own_ns),),
        ins=told.ins,
        outs=told.outs,
        attrs=told.attrs,
    )
