"""The rows of a profile as parts that can be filtered, grouped and added up: an operator, or one of its kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from opcost.analysis.where import Field
from opcost.core.answer import SECOND_NS, AnswerLine
from opcost.core.graph import TensorSpec
from opcost.core.names import is_copy
from opcost.core.profile import Kernel, Profile, ProfileRow
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
    """Time, host and device time of each execution, of a part that stands for several and knows them."""
    waiting: tuple[int, int] | None = None
    """From when to when it waited, where one clock tells: waits of several operators overlap, and are no sum."""
    ideal_ns: float | None = None
    """The least time that it can take at the device's peaks; unknown without a price or a peak."""
    bound: str = ""  # what bounds it, as far as it was judged or foretold

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
    """Everything that ran on this side; split into kernels where a key asks about them."""
    split = side == "device" and any(key in _BY_KERNEL for key in keys)
    launching = bool(profile.unattributed) or any(row.kernels for row in profile.rows)
    found: list[Part] = []
    one_clock = all(note.code != "clocks" for note in profile.notes)
    for row in profile.rows:
        part = _part(row, side, measure, one_clock=one_clock)
        if part is None:
            continue
        if side == "device" and launching and not row.kernels and not row.device_ns:
            continue  # Where kernels are recorded, an operator without one was never on the device.
        if split and measure == "time" and len(row.kernels) > 1 and _adds_up(row):
            found += _kernels(part)
        else:
            found.append(part)
    return found


def unattributed_parts(profile: Profile) -> list[Part]:
    """Device work without an operator, one part per kernel."""
    return [
        Part(
            None, kernel.duration_ns, None, kernel.duration_ns, None, kernel.count, None, None, (kernel,),
            (kernel.spread, (), kernel.spread),
        )
        for kernel in profile.unattributed
    ]  # fmt: skip


def self_host_ns(row: ProfileRow) -> int | None:
    """Time on the host without what was called inside."""
    return row.host_ns if row.host_self_ns is None else row.host_self_ns


def _wait(row: ProfileRow) -> tuple[int | None, tuple[int, int] | None]:
    """From the operator's beginning to its first kernel: how long, as the trace says or as its one clock tells, and then when."""
    told = row.attrs.get("wait_ns")
    if isinstance(told, int):
        return told, None
    if row.host_start_ns is None or not row.kernels:
        return None, None
    first = min(kernel.start_ns for kernel in row.kernels)
    return (first - row.host_start_ns, (row.host_start_ns, first)) if first >= row.host_start_ns else (None, None)


def _part(row: ProfileRow, side: Side, measure: Measure, *, one_clock: bool) -> Part | None:
    host, (wait, waiting) = self_host_ns(row), _wait(row) if one_clock else (None, None)
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


def _adds_up(row: ProfileRow) -> bool:
    """Whether the kernels ran one after the other; side by side on several devices they do not make the row's time."""
    return sum(kernel.duration_ns for kernel in row.kernels) == row.device_ns


def _kernels(part: Part) -> list[Part]:
    """One part per kernel; the first stands for the execution, and the price goes with those that do the work."""
    shares = _shares(part.kernels)
    computation, memory = (_shared_out(cost, shares) for cost in (part.computation, part.memory))
    return [
        part._replace(
            time_ns=kernel.duration_ns, device_ns=kernel.duration_ns, host_ns=part.host_ns if place == 0 else 0,
            wait_ns=part.wait_ns if place == 0 else None, waiting=part.waiting if place == 0 else None,
            count=part.count if place == 0 else 0, computation=computation[place], memory=memory[place],
            kernels=(kernel,), singles=(kernel.spread, (), kernel.spread),
        )
        for place, kernel in enumerate(part.kernels)
    ]  # fmt: skip


def _shares(kernels: Sequence[Kernel]) -> list[int]:
    """How much of an operator's work each of its kernels does: as much as it takes of their time, and nothing to prepare it."""
    works = [not is_copy(kernel.name) for kernel in kernels]
    if not any(works):
        works = [True] * len(kernels)
    shares = [kernel.duration_ns if works[place] else 0 for place, kernel in enumerate(kernels)]
    return shares if any(shares) else [int(place == works.index(True)) for place in range(len(kernels))]


def _shared_out(amount: int | None, shares: Sequence[int]) -> list[int | None]:
    """An amount in whole numbers that are as the shares are, and add up to it."""
    if amount is None:
        return [None] * len(shares)
    whole = sum(shares)
    reached = [amount * up_to // whole for up_to in accumulate(shares, initial=0)]
    return [end - start for start, end in pairwise(reached)]


# -- labels ------------------------------------------------------------------------------------------------------------


def _of_row(read: Callable[[ProfileRow], str]) -> Callable[[Part], str]:
    return lambda part: _loose(part) if part.row is None else read(part.row)


def _loose(part: Part) -> str:
    return _REASONS.get(part.kernels[0].why, UNATTRIBUTED)


def _kernel(part: Part) -> str:
    if len(part.kernels) == 1:
        return part.kernels[0].name
    return "(several kernels)" if part.kernels else "(no kernel)"


def _place(name: str) -> Callable[[Part], str]:
    def read(part: Part) -> str:
        if part.kernels:
            return str(getattr(part.kernels[0], name))
        return str(getattr(part.row, name)) if part.row else ""

    return read


def shapes_text(specs: Sequence[TensorSpec]) -> str:
    """`1x3x224x224, 64x3x7x7`."""
    return ", ".join(map(str, specs))


def _dtype(row: ProfileRow) -> str:
    spec = next(iter((*row.ins, *row.outs)), None)
    return spec.dtype if spec else ""


def _rank(part: Part) -> str:
    if part.row is not None:
        return str(part.row.rank)
    rank = part.kernels[0].rank
    return _loose(part) if rank is None else str(rank)


LABELS: dict[str, Callable[[Part], str]] = {
    "name": _of_row(lambda row: row.name),
    "type": _of_row(lambda row: row.type),
    "kind": _of_row(lambda row: row.kind),
    "module": _of_row(lambda row: row.module),
    "phase": _of_row(lambda row: row.phase),
    "bound": lambda part: part.bound or ("" if part.row else _loose(part)),
    "shape": _of_row(lambda row: shapes_text(row.ins)),
    "out_shape": _of_row(lambda row: shapes_text(row.outs)),
    "dtype": _of_row(_dtype),
    "provider": _of_row(lambda row: row.provider),
    "rank": _rank,
    "step": _of_row(lambda row: "" if row.step is None else str(row.step)),
    "kernel": _kernel,
    "device": _place("device"),
    "stream": _place("stream"),
}
"""Keys to aggregate by."""


def label(part: Part, key: str, depth: int | None = None) -> str:
    """What a part is called under a key; modules are cut to a depth."""
    text = LABELS[key](part)
    if key == "module" and depth is not None and part.row is not None:
        text = ".".join(text.split(".")[:depth])
    return text


# -- fields ------------------------------------------------------------------------------------------------------------


def _rate(amount: int | None, time_ns: int | None) -> float | None:
    return amount * SECOND_NS / time_ns if amount is not None and time_ns else None


def _delay(part: Part) -> int | None:
    """The longest wait of its kernels after their launch."""
    found = [kernel.start_ns - kernel.launched_ns for kernel in part.kernels if kernel.launched_ns is not None]
    return max(found, default=None)


def _no_line(part: Part) -> AnswerLine:
    return AnswerLine(labels={}, time_ns=part.time_ns)


def fields(total_ns: float | None, line_of: Callable[[Part], AnswerLine] = _no_line) -> dict[str, Field]:
    """What a condition may ask of a part; shares are of this total, and those of peaks as its line by itself has them."""
    texts: dict[str, Field] = {
        name: Field("text", read) for name, read in LABELS.items() if name not in ("rank", "step", "kernel")
    }
    numbers = {
        "time": Field("time", lambda part: part.time_ns),
        "host": Field("time", lambda part: part.host_ns),
        "device_time": Field("time", lambda part: part.device_ns),
        "wait": Field("time", lambda part: part.wait_ns),
        "count": Field("count", lambda part: part.count),
        "launches": Field("count", lambda part: part.launches),
        "delay": Field("time", _delay),
        "computation": Field("count", lambda part: part.computation),
        "flops": Field("count", lambda part: _rate(part.computation, part.work_ns)),
        "memory": Field("bytes", lambda part: part.memory),
        "bandwidth": Field("bytes", lambda part: _rate(part.memory, part.work_ns)),
        "intensity": Field(
            "count", lambda part: part.computation / part.memory if part.priced and part.memory else None
        ),
        "share": Field("ratio", lambda part: part.time_ns / total_ns if total_ns else None),
        "of_peak_flops": Field("ratio", lambda part: line_of(part).of_peak_flops),
        "of_peak_bandwidth": Field("ratio", lambda part: line_of(part).of_peak_bandwidth),
        "unpriced": Field("ratio", lambda part: line_of(part).unpriced_share),
        "per_call": Field("count", lambda part: part.launches / part.count if part.count and part.launches else None),
        "rank": Field("count", lambda part: part.row.rank if part.row else part.kernels[0].rank),
        "step": Field("count", lambda part: part.row.step if part.row else None),
        "id": Field("count", lambda part: part.row.id if part.row else None),
        "kernel": Field("text", lambda part: tuple(kernel.name for kernel in part.kernels)),
        "input_dtype": Field("text", lambda part: tuple(spec.dtype for spec in part.row.ins) if part.row else ()),
    }
    named = {**texts, **numbers}
    return {**named, **{header: named[name] for header, name in _HEADERS.items()}}


_HEADERS = {
    "calls": "count", "kernels": "launches", "bytes": "memory", "host_time": "host", "launch_delay": "delay",
    "input": "shape", "in_shapes": "shape", "output": "out_shape", "out_shapes": "out_shape",
    "top_kernel": "kernel", "longest_kernel": "kernel",
}  # fmt: skip
"""What tables call some of them."""
