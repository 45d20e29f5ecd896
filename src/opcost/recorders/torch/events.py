"""What PyTorch's profiler saw, as plain data: its raw events, in every version that has them."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

PREFIX = "opcost::"
"""How the recorder's own annotations begin; they tell steps and modules and are no operators."""

_RUNTIME = re.compile(r"(?:cuda|cu|hip)[A-Z]\w*$")
_RUNTIME_ACTIVITIES = frozenset({"cuda_runtime", "cuda_driver", "xpu_runtime", "mtia_runtime", "privateuse1_runtime"})

_NO_WORK = frozenset(
    {
        "cpu_instant_event",
        "overhead",
        "python_function",
        "gpu_user_annotation",
        "cuda_sync",
        "cuda_event",
        "hardware_counters",
    }
)
"""Kinds of events that are neither operators nor work of the device."""
_OVERHEAD = frozenset(
    {
        "Activity Buffer Request",
        "Buffer Flush",
        "Instrumentation",
        "Resource",
        "Command Buffer Full",
        "Lazy Function Loading",
    }
)
"""The profiler's own work, by name, for versions that do not tell the kind."""


class HostEvent(NamedTuple):
    """An operator, an annotation, or a call of the device's driver, on a thread of the host."""

    start_ns: int
    end_ns: int
    name: str
    thread: int
    """The system's number of the thread."""
    torch_thread: int
    """PyTorch's own number, by which a backward pass names the thread of its forward pass."""
    forward_thread: int
    sequence: int
    """Number of the autograd node that is made or run; -1 without one."""
    backward: bool
    correlation: int
    runtime: bool
    shapes: tuple[Any, ...]
    dtypes: tuple[str, ...]


class DeviceEvent(NamedTuple):
    """A kernel, a copy or a fill, on a stream of the device."""

    start_ns: int
    duration_ns: int
    name: str
    device: str
    stream: str
    correlation: int
    """Shared with the call that launched it."""
    operator: int
    """The correlation of the operator that launched it, as the profiler linked it; 0 without one."""
    launched_ns: int | None = None
    """When the host began to launch it, as far as the launch was seen; of what a CUDA graph replays nobody did."""


def read_events(results: Any) -> tuple[list[HostEvent], list[DeviceEvent]]:
    """The events of `prof.profiler.kineto_results`, by start."""
    host: list[HostEvent] = []
    device: list[DeviceEvent] = []
    for event in results.events():
        if _asked(event, "is_hidden_event"):
            continue
        name = event.name()
        start, duration = _start_and_duration(event)
        activity = str(_asked(event, "activity_type", ""))
        if "CPU" in str(event.device_type()):
            if activity in _NO_WORK or name in _OVERHEAD:
                continue
            host.append(_host_event(event, name, start, duration, activity))
        elif activity not in _NO_WORK and not _asked(event, "is_user_annotation") and not name.startswith(PREFIX):
            device.append(
                DeviceEvent(
                    start,
                    duration,
                    name,
                    f"gpu:{event.device_index()}",
                    str(event.device_resource_id()),
                    event.correlation_id(),
                    event.linked_correlation_id(),
                )
            )
    # An operator that begins in the same nanosecond as one inside it is the longer of the two.
    host.sort(key=lambda event: (event.start_ns, -event.end_ns))
    device.sort(key=lambda event: event.start_ns)
    return host, device


def _host_event(event: Any, name: str, start: int, duration: int, activity: str) -> HostEvent:
    runtime = activity in _RUNTIME_ACTIVITIES if activity else bool(_RUNTIME.match(name))
    shapes = () if runtime else _asked(event, "structured_input_shapes", None) or event.shapes()
    return HostEvent(
        start,
        start + duration,
        name,
        event.device_resource_id(),
        event.start_thread_id(),
        event.fwd_thread_id(),
        event.sequence_nr(),
        event.scope() == 1,
        event.correlation_id(),
        runtime,
        tuple(shapes),
        tuple(() if runtime else event.dtypes()),
    )


def _start_and_duration(event: Any) -> tuple[int, int]:
    """In nanoseconds; before 2.4 the profiler counted in microseconds."""
    if hasattr(event, "start_ns"):
        return event.start_ns(), max(0, event.duration_ns())
    return event.start_us() * 1000, max(0, event.duration_us()) * 1000


def _asked(event: Any, question: str, otherwise: Any = False) -> Any:  # noqa: FBT002 - what an older version answers
    ask = getattr(event, question, None)
    return otherwise if ask is None else ask()
