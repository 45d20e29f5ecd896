"""The rows of a profile as parts that can be filtered, grouped and added up: an operator, or one of its kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from operator import attrgetter
from typing import Any, NamedTuple

from opcost.analysis.where import Dimension, QueryField
from opcost.core.graph import TensorSpec
from opcost.core.names import is_copy
from opcost.core.profile import SECOND_NS, AnswerLine, Kernel, Profile, ProfileRow
from opcost.options import Measure, Side

UNATTRIBUTED = "(unattributed)"
_REASONS = {"graph": "(unattributed: captured graph)", "outside": "(unattributed: launch not in the trace)"}
NOWHERE = "(none)"  # the label of parts that have nothing to say for a key

_BY_KERNEL = ("kernel", "stream", "device")  # keys that a kernel answers better than the operator that launched it


class Part(NamedTuple):
    """Something that took time; `row` is None for device work that no operator launched."""

    row: ProfileRow | None
    time_ns: int
    host_ns: int | None
    device_ns: int | None
    wait_ns: int | None
    count: int  # type: ignore[assignment]  # a tuple has a method of this name
    computation: int | None
    memory: int | None
    kernels: tuple[Kernel, ...]
    singles: tuple[Sequence[int], Sequence[int], Sequence[int]] = ((), (), ())
    """Time, host and device time of each execution, of a part of several executions that has them."""
    waiting: tuple[int, int] | None = None
    """From when to when it waited, where there is one clock: waits of several operators overlap, and are no sum."""
    ideal_ns: float | None = None
    """The least time that it can take at the device's peaks; unknown without a cost or a peak."""
    bound: str = ""  # what bounds it, as far as it was judged or predicted

    @property
    def priced(self) -> bool:
        return self.computation is not None

    @property
    def launches(self) -> int:
        """Kernels launched."""
        return sum(kernel.count for kernel in self.kernels)

    @property
    def work_ns(self) -> int | None:
        """The time in which the work was done: on the device where there is one, else on the host."""
        return self.host_ns if self.device_ns is None else self.device_ns


def usual_side(profile: Profile) -> Side:
    """The device where the trace has times of it, else the host."""
    on_device = profile.unattributed or any(row.device_ns is not None for row in profile.rows)
    return "device" if on_device else "host"


def parts_of(profile: Profile, side: Side, measure: Measure, *, keys: Iterable[str] = ()) -> list[Part]:
    """Everything that ran on this side; split into kernels where a key is about them."""
    split = side == "device" and measure == "time" and any(key in _BY_KERNEL for key in keys)
    launching = bool(profile.unattributed) or any(row.kernels for row in profile.rows)
    found: list[Part] = []
    one_clock = all(note.code != "clocks" for note in profile.notes)
    for row in profile.rows:
        part = _part(row, side, measure, one_clock=one_clock)
        # Where kernels are recorded, an operator without one was never on the device.
        if part is None or (side == "device" and launching and not row.kernels and not row.device_ns):
            continue
        # Kernels side by side on several devices do not add up to the row's time.
        adds_up = sum(kernel.duration_ns for kernel in row.kernels) == row.device_ns
        found += _kernels(part) if split and len(row.kernels) > 1 and adds_up else [part]
    return found


def unattributed_parts(profile: Profile) -> list[Part]:
    """Device work without an operator, one part per kernel."""
    found = []
    for kernel in profile.unattributed:
        time, spread = kernel.duration_ns, kernel.spread
        found.append(Part(None, time, None, time, None, kernel.count, None, None, (kernel,), (spread, (), spread)))
    return found


def self_host_ns(row: ProfileRow) -> int | None:
    """Time on the host without what was called inside."""
    return row.host_ns if row.host_self_ns is None else row.host_self_ns


def _part(row: ProfileRow, side: Side, measure: Measure, *, one_clock: bool) -> Part | None:
    # From the operator's beginning to its first kernel: how long, as the trace has it or by its one clock, and then when
    host, wait, waiting, given = self_host_ns(row), None, None, row.attrs.get("wait_ns")
    if one_clock and isinstance(given, int):
        wait = given
    elif one_clock and row.host_start_ns is not None and row.kernels:
        first = min(kernel.start_ns for kernel in row.kernels)
        if first >= row.host_start_ns:
            wait, waiting = first - row.host_start_ns, (row.host_start_ns, first)
    time = wait if measure == "wait" else row.device_ns if side == "device" else host
    if time is None:
        return None
    cost = row.cost
    computation = memory = None
    if cost is not None:
        computation = cost.flops * row.count
        memory = (cost.bytes_read + cost.bytes_written) * row.count
    part = Part(row, time, host, row.device_ns, wait, row.count, computation, memory, row.kernels, waiting=waiting)
    if "bound" in row.attrs:
        part = part._replace(bound=str(row.attrs["bound"]))
    if row.spread is None:
        return part
    spread = row.spread.host_self_ns, row.spread.device_ns
    return part._replace(singles=(() if measure == "wait" else spread[side == "device"], *spread))


def _kernels(part: Part) -> Iterator[Part]:
    """One part per kernel; the first represents the execution, and the cost goes with those that do the work.

    A kernel does as much of an operator's work as it takes of their time, and none where it only prepares it.
    """
    kernels = part.kernels
    works = [not is_copy(kernel.name) for kernel in kernels]
    if not any(works):
        works = [True] * len(kernels)
    shares = [kernel.duration_ns if works[place] else 0 for place, kernel in enumerate(kernels)]
    if not any(shares):
        shares = [int(place == works.index(True)) for place in range(len(kernels))]
    reached = [*accumulate(shares, initial=0)]

    def shared_out(amount: int | None, place: int) -> int | None:
        """Whole numbers that are as the shares are, and add up to the amount."""
        if amount is None:
            return None
        return amount * reached[place + 1] // reached[-1] - amount * reached[place] // reached[-1]

    for place, kernel in enumerate(kernels):
        time, spread = kernel.duration_ns, kernel.spread
        own = part if place == 0 else part._replace(host_ns=0, wait_ns=None, waiting=None, count=0)
        yield own._replace(
            time_ns=time, device_ns=time, kernels=(kernel,), singles=(spread, (), spread),
            computation=shared_out(part.computation, place), memory=shared_out(part.memory, place),
        )  # fmt: skip


# -- labels


def _of_row(read: Callable[[ProfileRow], str]) -> Callable[[Part], str]:
    return lambda part: _loose(part) if part.row is None else read(part.row)


def _rank(part: Part) -> int | None:
    return part.row.rank if part.row else part.kernels[0].rank


def _loose(part: Part) -> str:
    return _REASONS.get(part.kernels[0].why, UNATTRIBUTED)


def _by_kernel(name: str) -> Callable[[Part], str]:
    return lambda part: str(getattr(part.kernels[0] if part.kernels else part.row, name, ""))


LABELS: dict[str, Callable[[Part], str]] = {
    "name": _of_row(lambda row: row.name),
    "type": _of_row(lambda row: row.type),
    "kind": _of_row(lambda row: row.kind),
    "module": _of_row(lambda row: row.module),
    "phase": _of_row(lambda row: row.phase),
    "bound": lambda part: part.bound or ("" if part.row else _loose(part)),
    "shape": _of_row(lambda row: shapes_text(row.ins)),
    "out_shape": _of_row(lambda row: shapes_text(row.outs)),
    "dtype": _of_row(lambda row: next((spec.dtype for spec in (*row.ins, *row.outs)), "")),
    "provider": _of_row(lambda row: row.provider),
    "rank": lambda part: _loose(part) if (rank := _rank(part)) is None else str(rank),
    "step": _of_row(lambda row: "" if row.step is None else str(row.step)),
    "kernel": lambda part: (
        part.kernels[0].name if len(part.kernels) == 1 else "(several kernels)" if part.kernels else "(no kernel)"
    ),
    "device": _by_kernel("device"),
    "stream": _by_kernel("stream"),
}
"""Keys to aggregate by."""


def shapes_text(specs: Sequence[TensorSpec]) -> str:
    """`1x3x224x224, 64x3x7x7`."""
    return ", ".join(map(str, specs))


def label(part: Part, key: str, depth: int | None = None) -> str:
    """What a part is called under a key; modules are cut to a depth."""
    text = LABELS[key](part)
    if key == "module" and depth is not None and part.row is not None:
        text = ".".join(text.split(".")[:depth])
    return text


# -- fields


_QUANTITIES: dict[str, tuple[Dimension, str]] = {
    "time": ("time", "time_ns"), "host": ("time", "host_ns"), "device_time": ("time", "device_ns"),
    "wait": ("time", "wait_ns"), "count": ("count", "count"), "launches": ("count", "launches"),
    "computation": ("count", "computation"), "memory": ("bytes", "memory"),
}  # fmt: skip
"""Dimension and attribute of what a part has itself."""
_HEADERS = {
    "calls": "count", "kernels": "launches", "bytes": "memory", "host_time": "host", "launch_delay": "delay",
    "input": "shape", "in_shapes": "shape", "output": "out_shape", "out_shapes": "out_shape",
    "top_kernel": "kernel", "longest_kernel": "kernel",
}  # fmt: skip
"""What tables call some of them."""


def fields(total_ns: float | None, line_of: Callable[[Part], AnswerLine] | None = None) -> dict[str, QueryField]:
    """What a condition may compare of a part; shares are of this total, and those of peaks as its line by itself has them."""

    def of_line(name: str) -> Callable[[Part], Any]:
        return lambda part: None if line_of is None else getattr(line_of(part), name)

    def rate(amount: int | None, by: float | None, scale: int = 1) -> float | None:
        return amount * scale / by if amount is not None and by else None

    def delay(part: Part) -> int | None:
        """The longest wait of its kernels after their launch."""
        found = [kernel.start_ns - kernel.launched_ns for kernel in part.kernels if kernel.launched_ns is not None]
        return max(found, default=None)

    found = {name: QueryField("text", read) for name, read in LABELS.items() if name not in ("rank", "step", "kernel")}
    found |= {name: QueryField(dimension, attrgetter(read)) for name, (dimension, read) in _QUANTITIES.items()}
    found |= {
        "delay": QueryField("time", delay),
        "flops": QueryField("count", lambda part: rate(part.computation, part.work_ns, SECOND_NS)),
        "bandwidth": QueryField("bytes", lambda part: rate(part.memory, part.work_ns, SECOND_NS)),
        "intensity": QueryField("count", lambda part: rate(part.computation, part.memory)),
        "share": QueryField("ratio", lambda part: rate(part.time_ns, total_ns)),
        "of_peak_flops": QueryField("ratio", of_line("of_peak_flops")),
        "of_peak_bandwidth": QueryField("ratio", of_line("of_peak_bandwidth")),
        "unpriced": QueryField("ratio", of_line("unpriced_share")),
        "per_call": QueryField("count", lambda part: rate(part.launches or None, part.count)),
        "rank": QueryField("count", _rank),
        "step": QueryField("count", lambda part: part.row.step if part.row else None),
        "id": QueryField("count", lambda part: part.row.id if part.row else None),
        "kernel": QueryField("text", lambda part: tuple(kernel.name for kernel in part.kernels)),
        "input_dtype": QueryField("text", lambda part: tuple(spec.dtype for spec in part.row.ins) if part.row else ()),
    }
    return found | {header: found[name] for header, name in _HEADERS.items()}
