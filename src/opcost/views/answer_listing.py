"""An answer about a profile as lines and columns, ready for the same tables as a report's."""

from __future__ import annotations

from typing import Any, Literal

from opcost.core.answer import OWN_LABELS, Answer, AnswerLine
from opcost.views.listing import Column, Columns, Line, Listing, Role, Value, by_name, choose_columns

_NAMES = ("name", "module", "kernel")

NUMBERS = (
    "id", "count", "time_ns", "host_ns", "device_ns", "wait_ns", "share", "cumulative_ns", "computation", "flops", "memory",
    "bandwidth", "intensity", "of_peak_flops", "of_peak_bandwidth", "priced_ns", "unpriced", "unpriced_share", "launches",
    "delay_ns", "delay_p90_ns", "ideal_ns",
)  # fmt: skip
"""What programs are told of every line, nothing rounded."""
RANKED = (
    "time", "share", "count", "bound", "of_peak_flops", "of_peak_bandwidth", "flops", "unpriced", "bandwidth", "cumulative",
    "note", "in_shapes", "computation", "memory", "out_shapes", "intensity", "host", "device_time", "wait", "launches",
    "per_call", "delay", "delay_p90", "top_kernel",
)  # fmt: skip
"""Columns after the labels, in the order in which they are given room."""


def list_answer(answer: Answer, columns: Columns = None) -> Listing:
    """The lines of an answer."""
    known = answer_columns(answer)
    ranked: tuple[str, ...] = ()
    if columns is not None:
        chosen = choose_columns(columns, known)
    else:
        if "name" in known and all(line.labels.get("type") == line.labels.get("name") for line in answer.rows):
            known.pop("type", None)  # Where every operator is called by its type, once is enough.
        if "shape" in answer.keys:
            known.pop("in_shapes")
        chosen = tuple(known.values())
        labels = [name for name in known if name not in RANKED and not _is_percentile(name)]
        leading = len(answer.keys) + ("name" in known and "name" not in answer.keys)
        first, others = labels[:leading], labels[leading:]
        percentiles = [name for name in known if _is_percentile(name)]
        ranked = (*first, *RANKED[:3], *percentiles, *others[:1], *RANKED[3:], *others[1:])
    return Listing(columns=chosen, lines=_lines(answer, chosen), ranked=ranked)


def list_records(answer: Answer) -> Listing:
    """All that is known of every line for programs, times in nanoseconds; `role` tells rows from sums."""
    labels = dict.fromkeys(key for line in answer.lines for key in line.labels)
    columns = (
        Column(name="role", title="role", unit="text", of=_of("role")),
        *(Column(name=key, title=key, unit="text", of=_label_of(key)) for key in labels),
        *(Column(name=name, title=name, unit="number", of=_of(name)) for name in NUMBERS),
        *(
            Column(name=f"p{percent:g}_ns", title=f"p{percent:g}", unit="number", of=_percentile(place))
            for place, percent in enumerate(answer.percentiles)
        ),
        Column(name="in_shapes", title="input", unit="shapes", of=_of("ins")),
        Column(name="out_shapes", title="output", unit="shapes", of=_of("outs")),
        Column(name="kernel", title="kernel", unit="text", of=_top_kernel),
        *((_BOUND,) if "bound" not in labels else ()),
    )
    return Listing(columns=columns, lines=_lines(answer, columns))


def _lines(answer: Answer, columns: tuple[Column, ...]) -> tuple[Line, ...]:
    return tuple(Line(tuple(column.of(line) for column in columns), _ROLES[line.role]) for line in answer.lines)


def answer_columns(answer: Answer) -> dict[str, Column]:
    """Every column of an answer by name, the labels first."""
    # Where a line is one operator, it says what it is, also below the group that it is in.
    single = not answer.keys or any("name" in line.labels for line in answer.rows)
    labels = list(dict.fromkeys((*answer.keys, *(OWN_LABELS if single else ()))))
    found = [_label(name, first=place == 0, answer=answer) for place, name in enumerate(labels)]
    other: Literal["host", "device"] = "host" if answer.side == "device" else "device"
    how = f"{answer.how} " if answer.how not in ("", "sum") else ""
    return by_name(
        *found,
        Column(name="count", title="calls", unit="number", of=_of("count"), dull=(1,)),
        Column(name="time", title=f"{how}{answer.side} time", unit="time", of=_of("time_ns")),
        Column(name="share", title="%", unit="share", of=_of("share")),
        Column(name="cumulative", title="cumulative", unit="time", of=_or_empty("cumulative_ns"), dull=("", None)),
        *(
            Column(name=f"p{percent:g}", title=f"p{percent:g}", unit="time", of=_percentile(place))
            for place, percent in enumerate(answer.percentiles)
        ),
        *((_BOUND,) if "bound" not in labels else ()),
        Column(
            name="computation", title="computation", unit="count", of=_of("computation"), dull=(None, ""), priced=True
        ),
        Column(name="flops", title="FLOP/s", unit="flop/s", of=_of("flops"), dull=(None, 0.0)),
        Column(name="of_peak_flops", title="% peak", unit="share", of=_or_empty("of_peak_flops"), dull=("", None)),
        Column(name="unpriced", title="% unpriced", unit="share", of=_of("unpriced_share"), dull=(None, 0, 1)),
        Column(name="memory", title="bytes", unit="bytes", of=_of("memory"), dull=(None, ""), priced=True),
        Column(name="bandwidth", title="bandwidth", unit="bytes/s", of=_of("bandwidth"), dull=(None, 0.0)),
        Column(
            name="of_peak_bandwidth", title="% bw", unit="share", of=_or_empty("of_peak_bandwidth"), dull=("", None)
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
    )


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


def _label_of(name: str) -> Any:
    return lambda line: line.labels.get(name, "")


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


def _is_percentile(name: str) -> bool:
    return name[:1] == "p" and name[1:2].isdecimal()


_BOUND = Column(
    name="bound",
    title="bound",
    unit="text",
    of=lambda line: line.bound if line.role in ("row", "unattributed") else "",
    dull=("",),
)

_ROLES: dict[str, Role] = {
    "row": "row",
    "group": "rest",
    "rest": "rest",
    "unattributed": "rest",
    "total": "total",
}
