"""What both forms of a trace tell: executions of compiled operators, work on devices, and steps."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from opcost.traces.xla.hlo import Instruction

HOST = "cpu"
_DEVICE = re.compile(r"/device:([A-Za-z]+):(\d{1,9})")
_COPY = re.compile(r"Memcpy([HDP])2([HDP])")
_SIZE = re.compile(r"\bsize:(\d{1,18})\b")


class Executed(NamedTuple):
    """One piece of work; on the host only that of compiled operators is."""

    name: str
    """Of the kernel; on the host, of the operator."""
    operator: str
    """The instruction of the program that it belongs to; empty where that is not told."""
    program: int
    """Which of the programs, or below zero."""
    device: str
    line: str
    """The stream or thread."""
    start_ns: int
    duration_ns: int
    moved: int | None = None
    scope: str = ""
    """Where in the author's code it stands, if the event itself says so."""


@dataclass(slots=True)
class Told:
    """All of a file."""

    executed: list[Executed] = field(default_factory=list)
    steps: list[tuple[int, int]] = field(default_factory=list)
    """When each began, and its number."""
    programs: dict[int, dict[str, Instruction]] = field(default_factory=dict)
    """The instructions of each program, by name."""
    devices: list[str] = field(default_factory=list)
    """What devices are called."""
    versions: dict[str, str] = field(default_factory=dict)
    faulty: int = 0


def device_of(plane: str) -> str:
    """Our word for the device of a plane; empty for one that is none."""
    found = _DEVICE.match(plane)
    return f"{found[1].lower()}:{int(found[2])}" if found else ""


def is_work(line: str, lines: set[str]) -> bool:
    """Whether a line of a device holds what ran there, and not what a tool made of it: streams of a GPU, operators of a TPU."""
    if any(each.startswith("Stream") for each in lines):
        return line.startswith("Stream")
    return line == "XLA Ops" if "XLA Ops" in lines else True


def work_name(name: str) -> str:
    """A copy under the name that others give it."""
    return _COPY.sub(r"Memcpy \1to\2", name)


def moved_by(details: str) -> int | None:
    """Bytes, out of what is told of a copy."""
    found = _SIZE.search(details)
    return int(found[1]) if found else None
