"""`*.xplane.pb`: planes (the host, each device) of lines (threads, streams) of events, as protocol buffers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from opcost.core.checked import Bad
from opcost.frontends.protobuf import Field, Parts, Piece, fields, piece, signed, text, varint, whole
from opcost.traces.values import LATEST_NS
from opcost.traces.xla.executed import HOST, Executed, Told, device_of, is_work, moved_by, work_name
from opcost.traces.xla.hlo import instructions

PS_PER_NS = 1000
NO_VALUE: Any = None
METADATA = "/host:metadata"
_PLANES = (b"/host:", b"/device:", b"Task Environment")
_VERSIONS = ("jax_version", "jaxlib_version", "gpu_version", "cuda_version", "libtpu_version")


def is_xspace(head: bytes) -> bool:
    """Whether a file begins with a plane that bears a name of XLA's profiler."""
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


def read_planes(content: bytes) -> Told:
    """Everything of a file; `Bad` where it is damaged."""
    told = Told()
    for number, plane in fields(content):
        if number == 1:
            _Plane(piece(plane)).read(told)
    return told


class _Plane:
    """One plane; its events and statistics have their names in tables."""

    def __init__(self, message: Piece) -> None:
        self._parts = Parts.of(message)
        self.name = self._parts.text(2)
        self._stat_names = {key: entry.text(2) for key, entry in self._table(5)}
        self._events = dict(self._table(4))

    def _table(self, number: int) -> Iterable[tuple[int, Parts]]:
        for entry in self._parts.messages(number):
            for value in entry.messages(2):
                yield entry.whole(1), value

    def read(self, told: Told) -> None:
        if self.name == METADATA:
            self._read_programs(told)
            stats = self._stats(self._parts.all(6))
            told.versions.update({name: str(stats[name]) for name in _VERSIONS if isinstance(stats.get(name), str)})
            return
        device = device_of(self.name)
        lines = [(self._line_name(line), line) for line in self._parts.messages(3)]
        if device:
            called = self._stats(self._parts.all(6)).get("gpu_device_name")
            if isinstance(called, str) and called:
                told.devices.append(called)
            names = {name for name, _ in lines}
            lines = [(name, line) for name, line in lines if is_work(name, names)]
        for name, line in lines:
            base = line.whole(3) * PS_PER_NS
            for event in line.all(4):
                self._read_event(told, device or HOST, name, base, piece(event))

    def _line_name(self, line: Parts) -> str:
        return line.text(11) or line.text(2)

    def _read_event(self, told: Told, device: str, line: str, base: int, message: Piece) -> None:
        number = offset = duration = 0
        stats: list[Field] = []
        for key, value in fields(message):
            if key == 1:
                number = whole(value)
            elif key == 2:
                offset = whole(value)
            elif key == 3:
                duration = whole(value)
            elif key == 4:
                stats.append(value)
        if not stats and device == HOST:
            return  # what the framework itself was at
        found = self._stats(stats)
        start = base + offset
        if not 0 <= start <= LATEST_NS * PS_PER_NS or not 0 <= duration <= LATEST_NS * PS_PER_NS:
            told.faulty += 1
            return
        start_ns = round(start / PS_PER_NS) if start < 1 << 53 else start // PS_PER_NS
        step = found.get("step_num")
        if device == HOST and isinstance(step, int):
            told.steps.append((start_ns, step))
        operator = str(found.get("hlo_op", ""))
        if device == HOST and not operator:
            return
        metadata = self._events.get(number)
        program = found.get("program_id")
        told.executed.append(
            Executed(
                name=work_name(metadata.text(2)) if metadata is not None else operator,
                operator=operator,
                program=program if isinstance(program, int) else -1,
                device=device,
                line=line,
                start_ns=start_ns,
                duration_ns=round(duration / PS_PER_NS),
                moved=moved_by(str(found.get("memcpy_details", ""))),
                scope=str(found.get("name", "")),
            )
        )

    def _stats(self, stats: Iterable[Field]) -> dict[str, Any]:
        """Statistics by name: numbers and texts, which may stand in the table of names."""
        found: dict[str, Any] = {}
        for stat in stats:
            name, value = "", NO_VALUE
            for key, field in fields(piece(stat)):
                if key == 1:
                    name = self._stat_names.get(whole(field), "")
                elif key in (3, 4):
                    value = signed(whole(field))
                elif key == 5:
                    value = text(field)
                elif key == 7:
                    value = self._stat_names.get(whole(field), "")
            if name and value is not NO_VALUE:
                found[name] = value
        return found

    def _read_programs(self, told: Told) -> None:
        for number, event in self._events.items():
            for stat in event.messages(5):
                for proto in stat.all(6) if self._stat_names.get(stat.whole(1)) == "Hlo Proto" else ():
                    told.programs[self._program(event, number)] = instructions(piece(proto))

    def _program(self, event: Parts, number: int) -> int:
        program = self._stats(event.all(5)).get("program_id")
        return program if isinstance(program, int) else number
