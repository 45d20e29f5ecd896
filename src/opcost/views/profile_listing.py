"""An answer about a profile as lines and columns, ready for the same layout as a report's listing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from opcost.core.answer import OWN_LABELS, Answer, AnswerLine, Busy
from opcost.core.units import format_time
from opcost.errors import UnknownName
from opcost.views.columns import Column, Value
from opcost.views.listing import Line, Listing
from opcost.wording import shortened, some

_NAMES = ("name", "module", "kernel")

MANY_SAID = 64
"""Lines about devices, and notes: as many as eight machines of eight devices have."""

RANKED = (
    "time", "share", "count", "flops", "of_peak_flops", "bandwidth", "of_peak_bandwidth", "cumulative", "note", "in_shapes",
    "computation", "memory", "out_shapes", "intensity", "host", "device_time", "wait", "launches", "per_call", "delay",
    "delay_p90", "top_kernel",
)  # fmt: skip
"""Columns after the labels, in the order in which they are given room."""


def list_answer(answer: Answer, columns: str | Sequence[str] | None = None) -> Listing:
    """The lines of an answer; `columns` names those wanted, in this order."""
    known = answer_columns(answer)
    if columns is not None:
        names = columns.split(",") if isinstance(columns, str) else columns
        chosen = tuple(_find(name, known) for name in names)
        ranked: tuple[str, ...] = ()
    else:
        if all(line.labels.get("type") == line.labels.get("name") for line in answer.rows):
            known.pop("type", None)  # Where every operator is called by its type, once is enough.
        if "shape" in answer.keys:
            known.pop("in_shapes")
        chosen = tuple(known.values())
        labels = [name for name in known if name not in RANKED and not _is_percentile(name)]
        leading = len(answer.keys) + ("name" in known and "name" not in answer.keys)
        first, others = labels[:leading], labels[leading:]
        percentiles = [name for name in known if _is_percentile(name)]
        ranked = (*first, *RANKED[:3], *percentiles, *others[:1], *RANKED[3:], *others[1:])
    lines = tuple(Line(tuple(column.of(line) for column in chosen), _ROLES[line.role]) for line in answer.lines)
    return Listing(by="op", columns=chosen, lines=lines, ranked=ranked)


def answer_columns(answer: Answer) -> dict[str, Column]:
    """Every column of an answer by name, the labels first."""
    # Where a line is one operator, it says what it is, also below the group that it is in.
    single = not answer.keys or any("name" in line.labels for line in answer.rows)
    labels = list(dict.fromkeys((*answer.keys, *(OWN_LABELS if single else ()))))
    found = [_label(name, first=place == 0, answer=answer) for place, name in enumerate(labels)]
    other: Literal["host", "device"] = "host" if answer.side == "device" else "device"
    how = f"{answer.how} " if answer.how not in ("", "sum") else ""
    found += [
        Column(name="count", title="calls", unit="number", of=_of("count"), dull=(1,)),
        Column(name="time", title=f"{how}{answer.side} time", unit="time", of=_of("time_ns")),
        Column(name="share", title="%", unit="share", of=_of("share")),
        Column(name="cumulative", title="cumulative", unit="time", of=_or_empty("cumulative_ns"), dull=("", None)),
        *(
            Column(name=f"p{percent:g}", title=f"p{percent:g}", unit="time", of=_percentile(place))
            for place, percent in enumerate(answer.percentiles)
        ),
        Column(name="computation", title="FLOPs", unit="count", of=_of("computation"), dull=(None, ""), priced=True),
        Column(name="flops", title="FLOP/s", unit="flop/s", of=_of("flops"), dull=(None, 0.0)),
        Column(name="of_peak_flops", title="% of peak", unit="share", of=_or_empty("of_peak_flops"), dull=("", None)),
        Column(name="memory", title="bytes", unit="bytes", of=_of("memory"), dull=(None, ""), priced=True),
        Column(name="bandwidth", title="bandwidth", unit="bytes/s", of=_of("bandwidth"), dull=(None, 0.0)),
        Column(
            name="of_peak_bandwidth", title="% of bw", unit="share", of=_or_empty("of_peak_bandwidth"), dull=("", None)
        ),
        Column(name="intensity", title="FLOP/B", unit="ratio", of=_of("intensity"), dull=(None, 0.0)),
        Column(
            name="host" if other == "host" else "device_time",
            title=f"{other} time",
            unit="time",
            of=_of(f"{other}_ns"),
            dull=(None,),
        ),
        Column(name="wait", title="wait", unit="time", of=_of("wait_ns"), dull=(None,)),
        Column(name="launches", title="kernels", unit="number", of=_of("launches"), dull=(0, 1)),
        Column(name="per_call", title="kernels/call", unit="ratio", of=_of("launches_per_call"), dull=(None, 1, "")),
        Column(name="delay", title="launch delay", unit="time", of=_of("delay_ns"), dull=(None,)),
        Column(name="delay_p90", title="delay p90", unit="time", of=_of("delay_p90_ns"), dull=(None,)),
        Column(name="top_kernel", title="longest kernel", unit="text", of=_top_kernel, dull=("",)),
        Column(name="in_shapes", title="input", unit="shapes", of=_of("ins"), dull=((),)),
        Column(name="out_shapes", title="output", unit="shapes", of=_of("outs"), dull=((),)),
        Column(name="note", title="", unit="text", of=lambda line: "above peak" if line.above_peak else "", dull=("",)),
    ]
    return {column.name: column for column in found}


def summary_lines(answer: Answer) -> list[str]:
    """What the lines must be seen against: totals, how devices were used, and where the peaks are from."""
    said = []
    totals = [("device", answer.device_ns), ("host", answer.host_ns), ("wall", answer.wall_ns)]
    known = [f"{name} time {_time(value)}" for name, value in totals if value is not None]
    if known:
        said.append(" · ".join(known))
    if answer.unattributed_ns:
        said.append(f"unattributed device time {_time(answer.unattributed_ns)}")
    uses: list[str] = []
    for use in answer.devices:
        rank = f"rank {use.rank} " if any(other.rank != use.rank for other in answer.devices) else ""
        uses.append(
            f"{rank}{use.device or 'device'}: busy {_time(use.busy_ns)} of {_time(use.span_ns)}, idle "
            f"{_percent(use.idle_ns, use.span_ns)}, overlap {_time(use.overlap_ns)}"
            + (f", {use.kernels:,} kernels, median {_time(use.median_ns)}" if use.kernels else "")
        )
        if use.launches:
            uses.append(f"{rank}{use.device or 'device'}: {launches_text(use)}")
    said += some(uses, MANY_SAID, kind="lines about devices")
    if answer.peak:
        said.append(f"peaks of {answer.peak}")
    said += some([shortened(note.text, 1000) for note in answer.notes], MANY_SAID, kind="notes")
    return said


def launches_text(use: Busy) -> str:
    """How many, for how many operators, and how long kernels waited after them."""
    said = f"{use.launches:,} launches"
    if use.operators:
        said += f" by {use.operators:,} operators ({use.owned / use.operators:.2f} kernels each)"
    if use.delay_ns is not None and use.delay_p90_ns is not None:
        said += f", from launch to start {_time(use.delay_ns)} median, {_time(use.delay_p90_ns)} p90"
    return said


def _time(ns: float) -> str:
    """The time with its unit held to it, where lines are broken."""
    return format_time(round(ns)).replace(" ", "\u00a0")


def _label(name: str, *, first: bool, answer: Answer) -> Column:
    def read(line: AnswerLine) -> Value:
        if line.role == "group":
            return " · ".join(line.labels.values()) if first else ""
        if line.role != "row":
            return line.labels["name"] if first else ""
        return line.labels.get(name, "")

    asked = first or name in answer.keys
    dull: tuple[Value, ...] = () if asked else ("", "forward") if name == "phase" else ("", "0")
    return Column(name=name, title=name, unit="name" if name in _NAMES or first else "text", of=read, dull=dull)


def _of(name: str) -> Any:
    return lambda line: _whole(getattr(line, name))


def _or_empty(name: str) -> Any:
    def read(line: AnswerLine) -> Value:
        value = getattr(line, name)
        return "" if value is None else _whole(value)

    return read


def _percentile(place: int) -> Any:
    return lambda line: _whole(line.percentiles[place]) if place < len(line.percentiles) else ""


def _top_kernel(line: AnswerLine) -> str:
    return line.kernels[0].name if line.kernels else ""


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "0 %"


def _is_percentile(name: str) -> bool:
    return name[:1] == "p" and name[1:2].isdecimal()


def _find(name: str, known: dict[str, Column]) -> Column:
    key = name.strip().lower().replace(" ", "_").replace("-", "_")
    if key not in known:
        raise UnknownName("column", name.strip(), known)
    return known[key]


_ROLES: dict[str, Literal["row", "rest", "total"]] = {
    "row": "row",
    "group": "rest",
    "rest": "rest",
    "unattributed": "rest",
    "total": "total",
}
