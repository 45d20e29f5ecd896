"""`*.trace.json.gz`: the same events as a Chrome trace, without programs and so without shapes."""

from __future__ import annotations

import re
from typing import Any

from opcost.traces.events import NS_PER_US
from opcost.traces.values import nanoseconds
from opcost.traces.xla.executed import HOST, Executed, Told, device_of, is_work, moved_by, work_name

_LIST = re.compile(rb'"traceEvents"\s*:\s*\[')
_SIGN = re.compile(rb'"(?:hlo_op|hlo_module)"\s*:|"name"\s*:\s*"/(?:host:CPU|device:[A-Za-z]+:\d)')


def is_chart(head: bytes) -> bool:
    """Whether a Chrome trace names operators of XLA, or processes as its profiler does."""
    return _LIST.search(head) is not None and _SIGN.search(head) is not None


def read_chart(events: list[dict[str, Any]]) -> Told:
    """Everything of a file."""
    planes: dict[Any, str] = {}
    lines: dict[tuple[Any, Any], str] = {}
    for event in events:
        if event.get("ph") == "M":
            called = str(_args(event).get("name", ""))
            if event.get("name") == "process_name":
                planes[_key(event, "pid")] = called
            elif event.get("name") == "thread_name":
                lines[_key(event, "pid"), _key(event, "tid")] = called
    names: dict[Any, set[str]] = {}
    for (plane, _), line in lines.items():
        names.setdefault(plane, set()).add(line)
    told = Told()
    for event in events:
        if event.get("ph") == "X":
            plane, thread = _key(event, "pid"), _key(event, "tid")
            device = device_of(planes.get(plane, ""))
            line = lines.get((plane, thread), str(thread))
            if not device or is_work(line, names.get(plane, set())):
                _read_event(told, event, device or HOST, line)
    return told


def _read_event(told: Told, event: dict[str, Any], device: str, line: str) -> None:
    args = _args(event)
    operator = str(args.get("hlo_op", ""))
    step = str(args.get("step_num", ""))
    is_step = device == HOST and step.isdecimal() and len(step) < 19
    if device == HOST and not operator and not is_step:
        return
    try:
        start, duration = nanoseconds(event.get("ts"), NS_PER_US), nanoseconds(event.get("dur"), NS_PER_US)
    except ValueError:
        told.faulty += 1
        return
    if start < 0 or duration < 0:
        told.faulty += 1
    elif operator or device != HOST:
        name = work_name(str(event.get("name", "")))
        moved = moved_by(str(args.get("memcpy_details", "")))
        told.executed.append(
            Executed(name, operator, -1, device, line, start, duration, moved, str(args.get("name", "")))
        )
    elif is_step:
        told.steps.append((start, int(step)))


def _args(event: dict[str, Any]) -> dict[str, Any]:
    args = event.get("args")
    return args if isinstance(args, dict) else {}


def _key(event: dict[str, Any], key: str) -> int | float | str:
    value = event.get(key)
    return value if isinstance(value, (int, float, str)) else str(value)[:80]
