"""Traces of JAX and everything else that runs on XLA (`jax.profiler.trace`): `*.xplane.pb` and `*.trace.json.gz`.

Both forms are read into the same `XlaTrace`; `hlo` reads the compiled programs that the first one has, which give shapes and
work. An executed instruction of a compiled program is a row.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from opcost.core.graph import Note
from opcost.core.interrupts import garbage_collector_paused
from opcost.core.parsing import Bad
from opcost.core.profile import Kernel, Profile, ProfileRow
from opcost.errors import SourceError
from opcost.frontends.protobuf import Field, MessageFields, Piece, fields, piece, signed, text, varint, whole
from opcost.traces.file import LATEST_NS, NS_PER_US, TraceFile, args_of, events_of, hashable, nanoseconds, wall_of
from opcost.traces.kineto.device_use import collectives_of, extra_of
from opcost.traces.launched import LaunchColumns
from opcost.traces.registry import Reader
from opcost.traces.xla.hlo import Instruction, instructions, place_of

HOST = "cpu"
PS_PER_NS = 1000
METADATA = "/host:metadata"
BUFFER = "command_buffer"
"""The beginning of the name of a captured graph of many operators, whose kernels have the operators' names."""
_VERSIONS = ("jax_version", "jaxlib_version", "gpu_version", "cuda_version", "libtpu_version")
_PLANES = (b"/host:", b"/device:", b"Task Environment")
_LIST = re.compile(rb'"traceEvents"\s*:\s*\[')
_SIGN = re.compile(rb'"(?:hlo_op|hlo_module)"\s*:|"name"\s*:\s*"/(?:host:CPU|device:[A-Za-z]+:\d)')
_DEVICE = re.compile(r"/device:([A-Za-z]+):(\d{1,9})")
_COPY = re.compile(r"Memcpy([HDP])2([HDP])")
_SIZE = re.compile(r"\bsize:(\d{1,18})\b")
_NUMBER = re.compile(r"(?:\.\d+)+$")
_ODD = re.compile(r"\W")


class XlaReader:
    """Both forms."""

    name = "xla"

    def sniff(self, head: bytes) -> bool:
        return _is_xspace(head) or (_LIST.search(head) is not None and _SIGN.search(head) is not None)

    def read(self, file: TraceFile, *, partial: bool = False) -> Profile:
        with garbage_collector_paused():
            trace, notes = XlaTrace(), list[Note]()
            if _is_xspace(file.head):
                try:
                    for number, plane in fields(bytes(file.content())):
                        if number == 1:
                            _Plane(piece(plane)).read(trace)
                except (Bad, RecursionError) as exc:
                    fault = f"{file.path} is not a whole file of XLA's profiler: {exc}"
                    raise SourceError(fault, hint="record it again") from exc
            else:
                events, notes = events_of(file, partial=partial)
                _read_chart(events, trace)
            if trace.faulty:
                notes.append(Note("faulty", f"{trace.faulty} events without valid times are left out"))
            return _profile(file, trace, tuple(notes))


READER: Reader = XlaReader()


class Executed(NamedTuple):
    """One piece of work; on the host only that of compiled operators is."""

    name: str  # of the kernel; on the host, of the operator
    operator: str  # the instruction of the program that it belongs to; empty where that is not known
    program: int  # which of the programs, or below zero
    device: str
    line: str  # the stream or thread
    start_ns: int
    duration_ns: int
    moved: int | None
    scope: str  # the path in the author's code, if the event itself has it

    @property
    def end_ns(self) -> int:
        return self.start_ns + self.duration_ns


@dataclass(slots=True)
class XlaTrace:
    """All of a file."""

    executed: list[Executed] = field(default_factory=list)
    steps: list[tuple[int, int]] = field(default_factory=list)  # when each began, and its number
    programs: dict[int, dict[str, Instruction]] = field(default_factory=dict)
    """The instructions of each program, by name."""
    devices: list[str] = field(default_factory=list)  # names of devices
    versions: dict[str, str] = field(default_factory=dict)
    faulty: int = 0

    def add(self, name: str, device: str, line: str, times: tuple[int, int], stats: Mapping[str, Any]) -> None:
        """Add an event, given with its start and duration; of the host, operators and steps are kept."""
        step = stats.get("step_num")
        if device == HOST and isinstance(step, int):
            self.steps.append((times[0], step))
        operator = str(stats.get("hlo_op", ""))
        if device == HOST and not operator:
            return
        program = stats.get("program_id")
        size = _SIZE.search(str(stats.get("memcpy_details", "")))
        self.executed.append(
            Executed(
                name=_COPY.sub(r"Memcpy \1to\2", name or operator), operator=operator,
                program=program if isinstance(program, int) else -1,
                device=device, line=line, start_ns=times[0], duration_ns=times[1],
                moved=int(size[1]) if size else None, scope=str(stats.get("name", "")),
            )
        )  # fmt: skip


def _device_of(plane: str) -> str:
    """Our word for the device of a plane; empty for one that is none."""
    found = _DEVICE.match(plane)
    return f"{found[1].lower()}:{int(found[2])}" if found else ""


def _is_work(line: str, lines: set[str]) -> bool:
    """Whether a line of a device has what ran there, and not what a tool made of it: streams of a GPU, operators of a TPU."""
    if any(each.startswith("Stream") for each in lines):
        return line.startswith("Stream")
    return line == "XLA Ops" if "XLA Ops" in lines else True


# -- rows


def _profile(file: TraceFile, trace: XlaTrace, notes: tuple[Note, ...]) -> Profile:
    rows: list[ProfileRow] = []
    unattributed: list[Kernel] = []
    steps = sorted(trace.steps)
    starts = [start for start, _ in steps]
    # Of a captured graph, events name the instruction by its kernel.
    kernels = {
        number: {_ODD.sub("_", name): instruction for name, instruction in found.items()}
        for number, found in trace.programs.items()
    }
    for work, own_ns in sorted(_nested(trace.executed), key=lambda each: each[0].start_ns):
        if not work.operator:
            unattributed.append(Kernel(work.name, work.device, work.line, work.start_ns, own_ns))
            continue
        found = bisect_right(starts, work.start_ns) - 1
        in_graph = work.operator.startswith(BUFFER)
        name = work.name if in_graph else work.operator
        instruction = (kernels if in_graph else trace.programs).get(work.program, {}).get(name, Instruction(""))
        rows.append(_row(len(rows), name, work, own_ns, instruction, steps[found][1] if found >= 0 else None))
    launches = LaunchColumns()
    for work in trace.executed:
        if work.device != HOST:
            launches.add_work(work.name, (work.device, work.line), work.start_ns, work.end_ns, work.moved)
    linked = launches.trace()
    meta = {"source": file.name, "format": "xla", **trace.versions}
    if trace.devices:
        meta["device"] = ", ".join(dict.fromkeys(trace.devices))
    return Profile(
        meta=meta, rows=tuple(rows), unattributed=tuple(unattributed),
        wall_ns=wall_of((work.start_ns, work.duration_ns) for work in trace.executed),
        notes=notes, extra=extra_of(linked, collectives_of(linked)) if linked.has_device else {},
    )  # fmt: skip


def _nested(executed: Iterable[Executed]) -> Iterator[tuple[Executed, int]]:
    """Work, and its time without that of what is in it: a loop contains what it repeats."""
    lines: dict[tuple[str, str], list[Executed]] = {}
    for work in executed:
        lines.setdefault((work.device, work.line), []).append(work)
    for found in lines.values():
        found.sort(key=lambda work: (work.start_ns, -work.duration_ns))
        own = [work.duration_ns for work in found]
        around: list[int] = []
        for place, work in enumerate(found):
            while around and found[around[-1]].end_ns < work.end_ns:
                around.pop()
            if around:
                own[around[-1]] -= work.duration_ns
            around.append(place)
        yield from ((work, max(spent, 0)) for work, spent in zip(found, own, strict=True))


def _row(number: int, name: str, work: Executed, own_ns: int, known: Instruction, step: int | None) -> ProfileRow:
    on_host = work.device == HOST
    primitive, module, phase = place_of(known.scope or work.scope)
    kernel = Kernel(work.name, work.device, work.line, work.start_ns, own_ns)
    return ProfileRow(
        id=number, name=name, type=primitive or known.opcode or _NUMBER.sub("", name), kind=known.kind,
        module=module, phase=phase, device=work.device, stream=work.line, provider="xla", step=step,
        host_start_ns=work.start_ns, host_ns=work.duration_ns if on_host else None,
        host_self_ns=own_ns if on_host else None, device_ns=None if on_host else own_ns,
        device_total_ns=None if on_host else work.duration_ns, kernels=() if on_host else (kernel,),
        ins=known.ins, outs=known.outs, attrs=known.attrs,
    )  # fmt: skip


# -- `*.xplane.pb`: planes (the host, each device) of lines (threads, streams) of events, as protocol buffers


def _is_xspace(head: bytes) -> bool:
    """Whether a file begins with a plane that has a name of XLA's profiler."""
    if head[:1] != b"\n":
        return False
    try:
        _, at = varint(head, 1)
        if head[at : at + 1] == b"\x08":
            _, at = varint(head, at + 1)
        if head[at : at + 1] != b"\x12":
            return False
        length, at = varint(head, at + 1)
    except Bad:
        return False
    return head[at : at + length].startswith(_PLANES)


class _Plane:
    """One plane; its events and statistics have their names in tables."""

    def __init__(self, message: Piece) -> None:
        self._parts = MessageFields.of(message)
        self.name = self._parts.text(2)
        self._stat_names = {key: entry.text(2) for key, entry in self._table(5)}
        self._events = dict(self._table(4))

    def _table(self, number: int) -> Iterable[tuple[int, MessageFields]]:
        for entry in self._parts.messages(number):
            for value in entry.messages(2):
                yield entry.whole(1), value

    def read(self, trace: XlaTrace) -> None:
        stats = self._stats(self._parts.all(6))
        if self.name == METADATA:
            for number, event in self._events.items():
                for stat in event.messages(5):
                    for proto in stat.all(6) if self._stat_names.get(stat.whole(1)) == "Hlo Proto" else ():
                        program = self._stats(event.all(5)).get("program_id")
                        trace.programs[program if isinstance(program, int) else number] = instructions(piece(proto))
            trace.versions.update({name: str(stats[name]) for name in _VERSIONS if isinstance(stats.get(name), str)})
            return
        device = _device_of(self.name)
        lines = [(line.text(11) or line.text(2), line) for line in self._parts.messages(3)]
        if device:
            called = stats.get("gpu_device_name")
            if isinstance(called, str) and called:
                trace.devices.append(called)
            names = {name for name, _ in lines}
            lines = [(name, line) for name, line in lines if _is_work(name, names)]
        for name, line in lines:
            base = line.whole(3) * PS_PER_NS
            for message in line.all(4):
                self._read_event(trace, device or HOST, name, base, piece(message))

    def _read_event(self, trace: XlaTrace, device: str, line: str, base: int, message: Piece) -> None:
        numbers = {1: 0, 2: 0, 3: 0}
        stats: list[Field] = []
        for key, value in fields(message):
            if key in numbers:
                numbers[key] = whole(value)
            elif key == 4:
                stats.append(value)
        if not stats and device == HOST:
            return  # what the framework itself did
        found = self._stats(stats)
        metadata, start, duration = self._events.get(numbers[1]), base + numbers[2], numbers[3]
        if not 0 <= start <= LATEST_NS * PS_PER_NS or not 0 <= duration <= LATEST_NS * PS_PER_NS:
            trace.faulty += 1
            return
        start_ns = round(start / PS_PER_NS) if start < 1 << 53 else start // PS_PER_NS
        name = metadata.text(2) if metadata is not None else ""
        trace.add(name, device, line, (start_ns, round(duration / PS_PER_NS)), found)

    def _stats(self, stats: Iterable[Field]) -> dict[str, Any]:
        """Statistics by name: numbers and texts, which may be in the table of names."""
        found: dict[str, Any] = {}
        for stat in stats:
            name = ""
            value: int | str | None = None
            for key, content in fields(piece(stat)):
                if key in (1, 7):
                    named = self._stat_names.get(whole(content), "")
                    name, value = (named, value) if key == 1 else (name, named)
                elif key in (3, 4):
                    value = signed(whole(content))
                elif key == 5:
                    value = text(content)
            if name and value is not None:
                found[name] = value
        return found


# -- `*.trace.json.gz`: the same events as a Chrome trace, without programs and so without shapes


def _read_chart(events: list[dict[str, Any]], trace: XlaTrace) -> None:
    """Everything of a file."""
    planes: dict[Any, str] = {}
    lines: dict[tuple[Any, Any], str] = {}
    names: dict[Any, set[str]] = {}
    for event in events:
        if event.get("ph") == "M":
            called, plane = str(args_of(event).get("name", "")), hashable(event.get("pid"))
            if event.get("name") == "process_name":
                planes[plane] = called
            elif event.get("name") == "thread_name":
                lines[plane, hashable(event.get("tid"))] = called
    for (plane, _), line in lines.items():
        names.setdefault(plane, set()).add(line)
    for event in events:
        if event.get("ph") != "X":
            continue
        plane, thread = hashable(event.get("pid")), hashable(event.get("tid"))
        device = _device_of(planes.get(plane, ""))
        line = lines.get((plane, thread), str(thread))
        stats = {key: value for key, value in args_of(event).items() if key != "program_id"}  # there are no programs
        step = str(stats.pop("step_num", ""))
        if not stats.get("hlo_op") and step.isdecimal() and len(step) < 19:
            stats["step_num"] = int(step)
        if not (_is_work(line, names.get(plane, set())) if device else stats.get("hlo_op") or "step_num" in stats):
            continue
        try:
            times = nanoseconds(event.get("ts"), NS_PER_US), nanoseconds(event.get("dur"), NS_PER_US)
        except ValueError:
            times = -1, -1
        if min(times) < 0:
            trace.faulty += 1
        else:
            trace.add(str(event.get("name", "")), device or HOST, line, times, stats)
