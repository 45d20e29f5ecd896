"""Experimental: what AMD's profilers write, `rocprofv3 --output-format json` and the Chrome trace of rocprof (`results.json`).

Both are read by their documentation; no recording of a real run was available to test against.

A kernel belongs to the innermost ROCTX range that was open on the thread of its launch when it was launched. The launch is found
by its correlation, in the Chrome trace by the arrow that is drawn from it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from opcost.core.profile import Profile
from opcost.errors import SourceError
from opcost.traces.file import NS_PER_US, TraceFile, args_of, as_dict, events_of, hashable, nanoseconds
from opcost.traces.launched import LaunchEvent, LaunchEvents, launched_profile
from opcost.traces.registry import Reader

ROOT = "rocprofiler-sdk-tool"
_PROCESS = re.compile(r"(?:^|\s)(CPU (?:HIP|HSA|KFD) API|Markers and Ranges|COPY|GPU ?(\d+))$")
"""Names of processes of the Chrome trace, with a number before it where there are several of a sort."""
_SIGN = re.compile(rb'"name"\s*:\s*"(?:\S+ )?(?:CPU (?:HIP|HSA) API|COPY|GPU ?\d+)"')
_LIST = re.compile(rb'"traceEvents"\s*:\s*\[')
_COPIES = {
    "HOST_TO_HOST": "HtoH", "HOST_TO_DEVICE": "HtoD", "DEVICE_TO_HOST": "DtoH", "DEVICE_TO_DEVICE": "DtoD",
}  # fmt: skip
_GPU = 2  # the type of an agent that is one
_COPY = re.compile(r"(?:hip|hsa_|hcMemcpy|Copy)\w*?(Host|Device)_?[Tt]o_?(Host|Device)\w*")


class RocprofReader:
    """Calls of HIP and ROCTX ranges on the host, kernels and copies on devices."""

    name = "rocprof"

    def sniff(self, head: bytes) -> bool:
        if b'"rocprofiler-sdk-tool"' in head[:1024]:
            return True
        return _LIST.search(head) is not None and _SIGN.search(head) is not None

    def read(self, file: TraceFile, *, partial: bool = False) -> Profile:
        make = LaunchEvents()
        meta = {"source": file.name, "format": "rocprof"}
        if b'"rocprofiler-sdk-tool"' in file.head[:1024]:
            found = _objects(as_dict(file.json()).get(ROOT))
            if not found:
                raise SourceError(f"{file.path}: no record of a run under {ROOT!r}")
            runs = [_RecordedProcess(run, number, make) for number, run in enumerate(found)]
            names = dict.fromkeys(name for run in runs for name in run.device_names)
            if names:
                meta["device"] = ", ".join(names)
            events = (event for run in runs for event in run.events())
            return launched_profile(file, events, make, meta=meta, ranges="roctx")
        drawn, notes = events_of(file, partial=partial)
        return launched_profile(file, _Chart(drawn).events(make), make, meta=meta, ranges="roctx", notes=notes)


READER: Reader = RocprofReader()


class _RecordedProcess:
    """One process that rocprofv3 recorded."""

    def __init__(self, run: dict[str, Any], number: int, make: LaunchEvents) -> None:
        self._make = make
        pid = as_dict(run.get("metadata")).get("pid")
        self._process = pid if type(pid) is int else number
        self._records = as_dict(run.get("buffer_records"))
        strings = as_dict(run.get("strings"))
        kinds = strings.get("buffer_records")
        self._words = [as_dict(kind).get("operations") for kind in (kinds if isinstance(kinds, list) else ())]
        self._messages = {_whole(entry.get("key")): entry.get("value") for entry in _objects(strings.get("marker_api"))}
        self._kernels = {
            _whole(kernel.get("kernel_id")): _kernel_name(kernel) for kernel in _objects(run.get("kernel_symbols"))
        }
        gpus = [agent for agent in _objects(run.get("agents")) if agent.get("type") == _GPU]
        self._devices = {_handle(agent, "id"): place for place, agent in enumerate(gpus)}
        self.device_names = [str(agent.get("product_name") or agent.get("name") or "") for agent in gpus]
        self._calls = {_correlation(call): call for call in _objects(self._records.get("hip_api"))}
        self._above = {
            _correlation(call): _correlation(call, "ancestor") for call in _objects(self._records.get("hsa_api"))
        }

    def events(self) -> Iterator[LaunchEvent]:
        make = self._make
        for marker in _objects(self._records.get("marker_api")):
            message = self._messages.get(_correlation(marker))
            if isinstance(message, str) and "Range" in self._word(marker):
                yield from make.range(message, self._thread(marker), *_times(marker))
        for name in ("hip_api", "rccl_api") if self._calls else ("hsa_api", "rccl_api"):
            for call in _objects(self._records.get(name)):
                yield from make.call(self._word(call), self._thread(call), *_times(call), self._number(call))
        for dispatch in _objects(self._records.get("kernel_dispatch")):
            work = as_dict(dispatch.get("dispatch_info"))
            name = self._kernels.get(_whole(work.get("kernel_id")), "")
            queue = self._devices.get(_handle(work, "agent_id"), 0), _stream(dispatch, work)
            yield from make.work(name, queue, *_times(dispatch), self._number(dispatch))
        for copy in _objects(self._records.get("memory_copy")):
            ends = [_handle(copy, end) for end in ("dst_agent_id", "src_agent_id")]
            device = next((self._devices[end] for end in ends if end in self._devices), 0)
            direction = _COPIES.get(self._word(copy).removeprefix("MEMORY_COPY_"), "of an unknown direction")
            queue = device, _stream(copy, copy)
            yield from make.work(f"Memcpy {direction}", queue, *_times(copy), self._number(copy), copy.get("bytes"))

    def _word(self, record: dict[str, Any]) -> str:
        """The called function: kind and function are places in lists."""
        try:
            return str(self._words[record["kind"]][record["operation"]])
        except (KeyError, IndexError, TypeError):
            return ""

    def _thread(self, record: dict[str, Any]) -> tuple[int, int]:
        thread = record.get("thread_id")
        return self._process, thread if type(thread) is int else 0

    def _number(self, record: dict[str, Any]) -> int:
        """What links work to the call that launched it: of a call of HSA inside one of HIP, the latter."""
        number = _correlation(record)
        above = _correlation(record, "ancestor")
        if self._calls and number not in self._calls:
            number = above if above in self._calls else self._above.get(number, number)
        return -1 if number < 0 else self._make.correlation(self._process, number)


class _Chart:
    """The Chrome trace of rocprof."""

    def __init__(self, events: list[dict[str, Any]]) -> None:
        self._events = events
        self._processes: dict[Any, tuple[str, int]] = {}  # by number what a process is, and of a GPU which
        for event in events:
            if event.get("ph") == "M" and event.get("name") == "process_name":
                found = _PROCESS.search(str(args_of(event).get("name", "")))
                if found:
                    self._processes[hashable(event.get("pid"))] = found[1].split()[0], int(found[2] or 0)
        self._hip = any(
            event.get("name", "").startswith("hip") for event in events if isinstance(event.get("name"), str)
        )
        self._arrows: dict[tuple[Any, ...], int] = {}
        """By place and time of its ends, the number of an arrow; of those that leave one call, that of the first."""
        first: dict[Any, int] = {}
        for number, event in enumerate(each for each in events if each.get("cat") == "DataFlow"):
            place = _place(event)
            arrow = hashable(event.get("id"))
            if event.get("ph") == "s":
                first[arrow] = self._arrows.setdefault(place, number)
            elif arrow in first:
                self._arrows[place] = first[arrow]

    def events(self, make: LaunchEvents) -> Iterator[LaunchEvent]:
        drawn = [event for event in self._events if event.get("ph") == "X"]
        exact = all("BeginNs" in args_of(event) for event in drawn)
        for event in drawn:
            sort, device = self._processes.get(hashable(event.get("pid")), ("", 0))
            name, args, thread = str(event.get("name", "")), args_of(event), hashable(event.get("tid"))
            start, end = _number_in(args.get("BeginNs")), _number_in(args.get("EndNs"))
            if not exact:
                try:
                    start = nanoseconds(event.get("ts"), NS_PER_US)
                    end = start + nanoseconds(event.get("dur"), NS_PER_US)
                except ValueError:
                    start = end = None
            arrow = self._arrows.get(_place(event), -1)
            if sort == "Markers":
                yield from make.range(name, (0, thread), start, end)
            elif sort == "CPU":
                if not self._hip or name.startswith("hip"):
                    yield from make.call(name, (0, thread), start, end, arrow)
            elif sort == "COPY" or sort.startswith("GPU"):
                number = _number_in(args.get("dev-id"))
                queue = device if number is None else number, hashable(args.get("queue-id", thread))
                # A copy under its common name: `CopyHostToDevice` is `Memcpy HtoD`
                copy = _COPY.fullmatch(name)
                name = f"Memcpy {copy[1][0]}to{copy[2][0]}" if copy else name
                yield from make.work(name, queue, start, end, arrow)


def _number_in(value: object) -> int | None:
    """A whole number, which is written as text."""
    if isinstance(value, str) and value.isdecimal() and len(value) < 20:
        return int(value)
    return value if type(value) is int else None


def _place(event: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(hashable(event.get(key)) for key in ("pid", "tid", "ts"))


def _kernel_name(kernel: dict[str, Any]) -> str:
    names = (kernel.get(key) for key in ("formatted_kernel_name", "demangled_kernel_name", "kernel_name"))
    return next((name for name in names if isinstance(name, str) and name), "")


def _times(record: dict[str, Any]) -> tuple[object, object]:
    return record.get("start_timestamp"), record.get("end_timestamp")


def _correlation(record: dict[str, Any], which: str = "internal") -> int:
    return _whole(as_dict(record.get("correlation_id")).get(which))


def _stream(record: dict[str, Any], work: dict[str, Any]) -> int:
    """The stream of HIP where that is given, else the queue."""
    stream = _handle(record, "stream_id")
    return stream if stream >= 0 else max(_handle(work, "queue_id"), 0)


def _handle(record: dict[str, Any], key: str) -> int:
    return _whole(as_dict(record.get(key)).get("handle"))


def _whole(value: object) -> int:
    """A number that names something; below zero where there is none."""
    return value if type(value) is int and 0 <= value < 1 << 63 else -1


def _objects(value: object) -> list[dict[str, Any]]:
    """The objects in a list; an object alone is one."""
    if isinstance(value, dict):
        return [value]
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []
