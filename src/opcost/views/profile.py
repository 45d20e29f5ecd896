"""Answers about profiles: their lines and columns, totals and verdicts around them, and the same for programs."""

from collections.abc import Callable, Mapping
from typing import Any

from opcost.core.alike import (
    SAME_STEP,
    alike_devices,
    late_rank,
    middle,
    ranks_text,
    shares_of_time,
    slow_device,
    wait_of_others,
)
from opcost.core.forecast import Forecast
from opcost.core.graph import note_texts
from opcost.core.profile import OWN_LABELS, Answer, AnswerLine, Busy
from opcost.core.sheet import LONG_LINE, Cell, Role, Section, Sheet, Table, Total
from opcost.core.units import format_bytes, format_time
from opcost.errors import counted, shortened, some
from opcost.views.savings import advice_on
from opcost.views.view import Column, Columns, ViewOptions, by_name, choose_columns, fields_data, keep_together, listing

_NAMES = ("name", "module", "kernel")
NUMBERS = (
    "id", "count", "time_ns", "host_ns", "device_ns", "wait_ns", "share", "cumulative_ns", "computation", "flops", "memory",
    "bandwidth", "intensity", "of_peak_flops", "of_peak_bandwidth", "costed_ns", "uncosted", "uncosted_share", "launches",
    "delay_ns", "delay_p90_ns", "ideal_ns", "predicted_ns", "occupancy", "blocks_per_sm",
)  # fmt: skip
"""What programs get of every line, nothing rounded."""
RANKED = (
    "time", "share", "count", "bound", "of_peak_flops", "predicted", "of_peak_bandwidth", "flops", "uncosted", "occupancy",
    "blocks_per_sm", "bandwidth", "cumulative",
    "note", "in_shapes", "computation", "memory", "out_shapes", "intensity", "host", "device_time", "wait", "launches",
    "per_call", "delay", "delay_p90", "top_kernel",
)  # fmt: skip
"""Columns after the labels, in the order in which they are given room."""
_CONDITIONS = {
    "inputs": "input",
    "execution": "run",
    "calibration": "timed",
    "host": "host",
}  # what the meta data has of them
_ROLES: dict[str, Role] = {"row": "row", "total": "total"}  # other lines are sums of some rows


# -- lines and columns --------------------------------------------------------------------------------------------------


def list_answer(answer: Answer, columns: Columns = None, *, every: bool = False) -> Table:
    """The lines of an answer; without chosen columns those that are of use, or every one."""
    known = answer_columns(answer)
    columns = list(known) if columns is None and every else columns
    ranked: tuple[str, ...] = ()
    if columns is not None:
        chosen = choose_columns(columns, known)
    else:
        if "name" in known and all(line.labels.get("type") == line.labels.get("name") for line in answer.rows):
            known.pop("type", None)  # Where every operator is called by its type, once is enough.
        if "shape" in answer.keys:
            known.pop("in_shapes")
        chosen = tuple(known.values())
        percentiles = [name for name in known if name[:1] == "p" and name[1:2].isdecimal()]
        labels = [name for name in known if name not in (*RANKED, *percentiles)]
        leading = len(answer.keys) + ("name" in known and "name" not in answer.keys)
        first, others = labels[:leading], labels[leading:]
        ranked = (*first, *RANKED[:3], *percentiles, *others[:1], *RANKED[3:], *others[1:])
    return _table(answer, chosen, ranked)


def answer_records(answer: Answer, options: ViewOptions) -> Table:
    """All that is known of every line for programs, times in nanoseconds; `role` distinguishes rows from sums."""
    if options.columns is not None:
        return list_answer(answer, options.columns)
    labels = dict.fromkeys(key for line in answer.lines for key in line.labels)
    columns = (
        Column("role", of=_of("role")),
        *(Column(key, of=lambda line, key=key: line.labels.get(key, "")) for key in labels),  # type: ignore[misc]
        *(Column(name, "number", of=_of(name)) for name in NUMBERS),
        *(Column(f"p{each:g}_ns", "number", of=_percentile(place)) for place, each in enumerate(answer.percentiles)),
        Column("in_shapes", "shapes", of=_of("ins")),
        Column("out_shapes", "shapes", of=_of("outs")),
        Column("kernel", of=_top_kernel),
        *((_BOUND,) if "bound" not in labels else ()),
    )
    return _table(answer, columns, ())


def _table(answer: Answer, columns: tuple[Column, ...], ranked: tuple[str, ...]) -> Table:
    return listing(columns, answer.lines, role=lambda line: _ROLES.get(line.role, "rest"), ranked=ranked, main=True)


def answer_columns(answer: Answer) -> dict[str, Column]:
    """Every column of an answer by name, the labels first."""
    # Where a line is one operator, it says what it is, also below the group that it is in.
    single = not answer.keys or any("name" in line.labels for line in answer.rows)
    labels = list(dict.fromkeys((*answer.keys, *(OWN_LABELS if single else ()))))
    found = [_label(name, first=place == 0, answer=answer) for place, name in enumerate(labels)]
    other, other_name = ("host", "host") if answer.side == "device" else ("device", "device_time")
    how = f"{answer.how} " if answer.how not in ("", "sum") else ""
    percentiles = [Column(f"p{each:g}", "time", of=_percentile(place)) for place, each in enumerate(answer.percentiles)]
    return by_name(
        *found,
        Column("count", "number", "calls", of=_of("count"), blank=(1,)),
        Column("time", "time", f"{how}{answer.side} time", of=_of("time_ns")),
        Column("share", "share", "%", of=_of("share")),
        Column("cumulative", "time", of=_of("cumulative_ns", ""), blank=("", None)),
        *percentiles,
        *((_BOUND,) if "bound" not in labels else ()),
        Column("predicted", "time", of=_of("predicted_ns"), blank=(None,)),
        Column("computation", "count", of=_of("computation"), blank=(None, ""), has_cost=True),
        Column("flops", "flop/s", "FLOP/s", of=_of("flops"), blank=(None, 0.0)),
        Column("of_peak_flops", "share", "% peak", of=_of("of_peak_flops", ""), blank=("", None)),
        Column("uncosted", "share", "% uncosted", of=_of("uncosted_share"), blank=(None, 0, 1)),
        Column("memory", "bytes", "bytes", of=_of("memory"), blank=(None, ""), has_cost=True),
        Column("bandwidth", "bytes/s", of=_of("bandwidth"), blank=(None, 0.0)),
        Column("of_peak_bandwidth", "share", "% bw", of=_of("of_peak_bandwidth", ""), blank=("", None)),
        Column("intensity", "ratio", "FLOP/B", of=_of("intensity"), blank=(None, 0.0)),
        Column(other_name, "time", f"{other} time", of=_of(f"{other}_ns"), blank=(None,)),
        Column("wait", "time", of=_of("wait_ns"), blank=(None,)),
        Column("occupancy", "share", "% occupancy", of=_of("occupancy"), blank=(None,)),
        Column("blocks_per_sm", "ratio", "blocks/SM", of=_of("blocks_per_sm"), blank=(None,)),
        Column("launches", "number", "kernels", of=_of("launches"), blank=(0, 1)),
        Column("per_call", "ratio", "kernels/call", of=_of("launches_per_call"), blank=(None, 1, "")),
        Column("delay", "time", "launch delay", of=_of("delay_ns"), blank=(None,)),
        Column("delay_p90", "time", "delay p90", of=_of("delay_p90_ns"), blank=(None,)),
        Column("top_kernel", "text", "longest kernel", of=_top_kernel, blank=("",)),
        Column("in_shapes", "shapes", "input", of=_of("ins"), blank=((),)),
        Column("out_shapes", "shapes", "output", of=_of("outs"), blank=((),)),
        Column("note", "text", "", of=lambda line: "above peak" if line.above_peak else "", blank=("",)),
    )


def _label(name: str, *, first: bool, answer: Answer) -> Column:
    def read(line: AnswerLine) -> Cell:
        if line.role == "group":
            return " · ".join(line.labels.values()) if first else ""
        if line.role != "row":
            return line.labels["name"] if first else ""
        return line.labels.get(name, "")

    blank: tuple[Cell, ...] = ("", "forward") if name == "phase" else ("", "0")
    chosen = first or name in answer.keys
    return Column(name, "name" if name in _NAMES or first else "text", of=read, blank=() if chosen else blank)


def _of(name: str, missing: Cell = None) -> Callable[[AnswerLine], Any]:
    return lambda line: missing if (value := getattr(line, name)) is None else _whole(value)


def _percentile(place: int) -> Callable[[AnswerLine], Any]:
    return lambda line: _whole(line.percentiles[place]) if place < len(line.percentiles) else ""


def _top_kernel(line: AnswerLine) -> str:
    return line.kernels[0].name if line.kernels else ""


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


_BOUND = Column("bound", of=lambda line: line.bound if line.role in ("row", "unattributed") else "", blank=("",))


def answer_data(answer: Answer, options: ViewOptions) -> dict[str, Any]:
    """All of it for JSON, or of the lines the chosen columns."""
    if options.columns is None:
        lines = [
            {
                "role": line.role,
                **line.labels,
                **{name: getattr(line, name) for name in NUMBERS},
                "percentiles_ns": list(line.percentiles),
                "above_peak": line.above_peak,
                "bound": line.bound,
                "in_shapes": [fields_data(spec.shape) for spec in line.ins],
                "in_dtypes": [spec.dtype for spec in line.ins],
                "out_shapes": [fields_data(spec.shape) for spec in line.outs],
                "kernels": fields_data(line.kernels),
            }
            for line in answer.lines
        ]
    else:
        columns = choose_columns(options.columns, answer_columns(answer))
        lines = [{"role": line.role} | {each.name: _plain(each.of(line)) for each in columns} for line in answer.lines]
    return {
        "schema": "opcost.answer/1",
        "meta": dict(answer.meta),
        "side": answer.side,
        "keys": list(answer.keys),
        "aggregate": answer.how,
        "percentiles": list(answer.percentiles),
        **{name: getattr(answer, name) for name in ("total_ns", "host_ns", "device_ns", "unattributed_ns", "wall_ns")},
        "runs": answer.runs,
        "is_per_run": answer.is_per_run,
        "devices": [{**use._asdict(), "idle_ns": use.idle_ns, "overlap_ns": use.overlap_ns} for use in answer.devices],
        "ranks": fields_data(answer.waited),
        "gains": [{**gain._asdict(), "advice": advice_on(gain).text} for gain in answer.gains],
        "peak": answer.peak,
        "predicted": None if answer.predicted is None else _predicted_data(answer.predicted),
        "notes": fields_data(answer.notes),
        "lines": lines,
    }


def _predicted_data(found: Forecast) -> dict[str, Any]:
    names = ("latency_ns", "band_ns", "kernel_ns", "ideal_ns", "bounds", "likened_ns", "fits")
    memory = found.memory
    sizes = ("peak_bytes", "base_bytes", "reserved_bytes", "fixed_bytes")
    return {
        **{name: fields_data(getattr(found, name)) for name in names},
        "memory": None if memory is None else {name: getattr(memory, name) for name in sizes},
        "text": None if found.text is None else fields_data(found.text),
        "step": None if found.step is None else fields_data(found.step),
    }


def _plain(value: Cell) -> Any:
    return list(map(str, value)) if isinstance(value, tuple) else value


# -- around the lines ---------------------------------------------------------------------------------------------------

SPEED = "tokens/s"  # the total of a text that has no value where memory is not enough
MANY_LINES = 64  # lines about devices, and notes: as many as eight machines of eight devices have
MANY_RANKS = 10  # lines about ranks: those that differ and those that are alike, so that a first screen holds them


def source_name(meta: Mapping[str, str]) -> str:
    """The file, or of many ranks the first and the last."""
    source = meta.get("source") or "profile"
    names = source.split(", ") if "ranks" in meta else []
    return f"{names[0]} to {names[-1]}" if len(names) > 2 else source


def answer_sheet(answer: Answer, options: ViewOptions) -> Sheet:
    """The lines, their source, and totals, devices, peaks and notes around them."""
    runs = f", {answer.runs} runs, {'per run' if answer.is_per_run else 'all of them'}" if answer.runs != 1 else ""
    source = source_name(answer.meta) + runs
    if answer.predicted is None:
        source += f" ({answer.meta.get('format', 'opcost')})"
    conditions = [("model" if answer.predicted else "trace", source)]
    conditions += ((word, answer.meta[name]) for name, word in _CONDITIONS.items() if name in answer.meta)
    return Sheet(
        meta=answer.meta,
        heading=(*(shortened(f"{word:<8}{text}", LONG_LINE) for word, text in conditions), *verdict_lines(answer)),
        tables=(list_answer(answer, options.columns),),
        totals=profile_totals(answer),
        facts=tuple(summary_lines(answer)),
        sections=(savings_of(answer),) if answer.gains else (),
    )


def savings_of(answer: Answer) -> Section:
    """The largest potential savings, the options that show them, and what to do about each."""
    whole = "per step" if any(use.steps for use in answer.devices) else "in the trace"
    lines = tuple(
        f"{number}. {time_text(gain.time_ns)} ({_percent(gain.share, 1)}) {gain.what}: {keep_together(gain.command)}"
        for number, gain in enumerate(answer.gains, 1)
    )
    advice = tuple(map(advice_on, answer.gains))
    return Section(
        f"potential savings {whole} (upper bounds), and the option that shows each",
        lines,
        hint=" ".join(f"{number}. {each.text}" for number, each in enumerate(advice, 1)),
        advice=advice,
    )


def profile_totals(answer: Answer) -> tuple[Total, ...]:
    """The times of the whole, how much of them a device was busy, and the work; of a prediction what it adds."""
    if answer.predicted is not None:
        return _predicted(answer.predicted)
    times = {name: getattr(answer, f"{name}_ns") for name in ("device", "host", "wall")}
    first = next((name for name, time in times.items() if time is not None), "")
    found = [
        Total(f"{name} time", time, "time", large=name == first) for name, time in times.items() if time is not None
    ]
    if answer.unattributed_ns:
        found.append(Total("unattributed", answer.unattributed_ns, "time", remark="device work without an operator"))
    if answer.devices and (use := middle(answer.devices)).rated_ns:
        remark = f"{'the median of all, ' * (len(answer.devices) > 1)}of {time_text(use.rated_ns)}"
        found.append(Total("busy", use.busy_ns / use.rated_ns, "share", remark=remark, large=True))
        if use.step_ns:
            found.append(Total("step", use.step_ns, "time", large=True))
    total = next((line for line in answer.lines if line.role == "total"), None)
    if total is not None and total.computation is not None and total.memory is not None:
        partial = bool(total.uncosted)
        found += [
            Total("FLOPs", total.computation, "count", partial),
            Total("bytes moved", total.memory, "bytes", partial, "without fusion"),
        ]
        if total.flops is not None:
            found.append(Total("FLOP/s", total.flops, "flop/s", remark="of what has a cost model", large=True))
        if total.uncosted_share:
            found.append(Total("without cost", total.uncosted_share, "share", remark=f"of the {answer.side} time"))
    return tuple(found)


def _predicted(found: Forecast) -> tuple[Total, ...]:
    """The latency with its interval, what bounds it, and the memory; of a text its speed and its cache."""
    interval = " – ".join(map(time_text, found.band_ns))
    whole = max(1, sum(found.bounds.values()))
    bounds = sorted(((time, bound) for bound, time in found.bounds.items() if time), reverse=True)
    memory = found.memory
    sizes: list[tuple[str, int | None, str]] = []
    if memory is not None:
        sizes.append(
            ("peak memory", memory.peak_bytes, f"{keep_together(format_bytes(memory.base_bytes))} of it before the run")
        )
        sizes.append(("reserved", memory.reserved_bytes, "by the allocator, with libraries' workspaces"))
    speeds = (*(found.text.totals if found.text else ()), *(found.step.totals if found.step else ()))
    return (
        Total("latency", found.latency_ns, "time", remark=f"80\u00a0% interval {interval}", large=True),
        Total("kernels", found.kernel_ns, "time", remark="without the gaps between them"),
        Total("at the peaks", found.ideal_ns, "time", remark="every operator as fast as the device can be"),
        *(
            Total(f"{bound}-bound", time / whole, "share", large=not place)
            for place, (time, bound) in enumerate(bounds)
        ),
        Total("most like it", found.likened_ns / whole, "share", remark="operators like which nothing was timed"),
        *(
            Total(name, size, "bytes", remark=remark, large=name == "peak memory")
            for name, size, remark in sizes
            if size is not None
        ),
        *(each for each in speeds if found.fits is not False or each.label != SPEED),  # what does not fit has none
    )


def summary_lines(answer: Answer) -> list[str]:
    """How devices were used, which peaks apply, and notes."""
    lines = []
    devices = []
    for alike in alike_devices(answer.devices, answer.waited):
        use = middle(alike)
        overlap = f", overlap {time_text(use.overlap_ns)}" if use.overlap_ns else ""
        launches = f", {launches_text(use)}" if use.launches else ""
        kernels = f"{counted(use.kernels, 'kernel')}, median {time_text(use.median_ns)}{overlap}{launches}"
        devices.append(f"{_whose(alike, answer)}: {kernels}")
    lines += some(devices, MANY_LINES, kind="lines about devices")
    if answer.peak:
        lines.append(f"peaks of {answer.peak}")
    lines += some([shortened(text, LONG_LINE) for text in note_texts(answer.notes)], MANY_LINES, kind="notes")
    return lines


def verdict_lines(answer: Answer) -> list[str]:
    """Of many ranks how they differ and who is late; then a line for each device, or for those that are alike."""
    most = MANY_LINES if len({use.rank for use in answer.devices}) < 2 else MANY_RANKS
    return some([text for text, _ in verdicts(answer)], most, kind="devices")


def verdicts(answer: Answer) -> list[tuple[str, Busy | None]]:
    """The same, each with the device that it is about."""
    found: list[tuple[str, Busy | None]] = [(text, None) for text in _of_ranks(answer)]
    return found + [(_verdict(alike, answer), middle(alike)) for alike in alike_devices(answer.devices, answer.waited)]


SAME_SHARE = 0.02  # ranks differ in shares of time that are further apart


def _of_ranks(answer: Answer) -> list[str]:
    """In what the ranks differ, and which of them the others wait for."""
    ranks = {use.rank for use in answer.devices}
    if len(ranks) < 2:
        return []
    shares = [shares_of_time(use) for use in answer.devices]
    ranges = []
    for name in dict.fromkeys(name for each in shares for name in each):
        own = [(each.get(name, 0.0), use.rank) for each, use in zip(shares, answer.devices, strict=True)]
        (low, first), (high, last) = min(own), max(own)
        if high - low > SAME_SHARE:
            ranges.append(f"{name} {_percent(low, 1)} (rank {first}) to {_percent(high, 1)} (rank {last})")
    steps = sorted((use.step_ns, use.rank) for use in answer.devices if use.step_ns)
    if steps and steps[-1][0] - steps[0][0] > SAME_STEP * steps[0][0]:
        (low, first), (high, last) = steps[0], steps[-1]
        ranges.append(f"step {time_text(low)} (rank {first}) to {time_text(high)} (rank {last})")
    differing = (
        f"{len(ranks)} ranks: they differ in {', '.join(ranges)}" if ranges else f"{len(ranks)} ranks: all alike"
    )
    if (worst := late_rank(answer.devices, answer.waited)) is not None:
        share = _percent(worst.waited_for_ns, sum(each.waited_for_ns for each in answer.waited))
        others, wait = wait_of_others(worst, answer.waited)
        each = f"{time_text(wait)}{' each' if others > 1 else ''}"
        late = f"late: rank {worst.rank}: {counted(others, 'rank')} waited {each} for it"
        late += f" in {counted(worst.last, 'collective')}, {share} of all waiting (--view communication)"
        return [late, differing]
    if answer.waited:
        return [differing, "no rank is late: in collectives they hardly wait for each other"]
    if (slowest := slow_device(answer.devices)) is not None:
        longest, usual = time_text(slowest.step_ns or 0), time_text(steps[len(steps) // 2][0])
        return [f"late: rank {slowest.rank}: its step takes {longest}, the median of all {usual}", differing]
    return [differing]


def _verdict(alike: list[Busy], answer: Answer) -> str:
    """How a device spent its time, and what it lost: shares of the time from its first kernel to its last, but for long gaps."""
    use = middle(alike)
    busy = _shares(use, use.alone_ns)
    causes = use.idle_causes
    rest = use.idle_ns - use.gap_ns
    idle = _shares(use, {**causes, "not known why": rest - sum(causes.values())} if any(causes.values()) else {})
    text = f"{_whose(alike, answer)}: busy {time_text(use.busy_ns)} of {time_text(use.rated_ns)}{busy}, idle "
    text += f"{_percent(rest, use.rated_ns)}{idle}"
    if use.gaps:  # which rates leave out, each of them an event
        cause = f" ({use.longest_gap_cause})" if use.longest_gap_cause else ""
        several = f"{use.gaps} gaps, {time_text(use.gap_ns)} together, the longest {time_text(use.longest_gap_ns)}"
        gaps = f"a gap of {time_text(use.gap_ns)}" if use.gaps == 1 else several
        text += f"; left out of the rates: {gaps}, {time_text(use.longest_gap_at_ns)} after the first kernel{cause}"
    if use.step_ns is not None and use.first_step_ns is not None:
        first = f", the first {time_text(use.first_step_ns)}" if use.steps > 1 else ""
        if use.steps > 2 and use.least_step_ns is not None and use.most_step_ns is not None:
            first = f", {time_text(use.least_step_ns)} to {time_text(use.most_step_ns)}{first}"
        text += f"; step {time_text(use.step_ns)} ({use.steps} step{'s' * (use.steps > 1)}{first})"
    if use.mfu is not None:
        text += f", MFU {_percent(use.mfu, 1)}"
    if use.of_predicted is not None:
        text += f"; kernels {use.of_predicted:.2f}\u00a0× their predicted time"
    return text


def _whose(alike: list[Busy], answer: Answer) -> str:
    devices = {use.device for use in alike}
    device = devices.pop() or "device" if len(devices) == 1 else "devices"
    if len(alike) == 1:
        rank = f"rank {alike[0].rank} " if any(other.rank != alike[0].rank for other in answer.devices) else ""
        return f"{rank}{device}"
    return f"ranks {ranks_text(use.rank for use in alike)} {device} (the median of {len(alike)} alike)"


def _shares(use: Busy, parts: dict[str, int]) -> str:
    """The parts that matter, the largest first, in brackets."""
    known = sorted(((time, name) for name, time in parts.items() if 1000 * time >= use.rated_ns > 0), reverse=True)
    named = ", ".join(f"{name} {_percent(time, use.rated_ns)}" for time, name in known)
    return f" ({named})" if named else ""


def launches_text(use: Busy) -> str:
    """How many, for how many operators, and how long kernels waited after them."""
    text = counted(use.launches, "launch", "launches")
    if use.operators:
        text += f" by {counted(use.operators, 'operator')} ({use.owned / use.operators:.2f} kernels each)"
    if use.delay_ns is not None and use.delay_p90_ns is not None:
        text += f", from launch to start {time_text(use.delay_ns)} median, {time_text(use.delay_p90_ns)} p90"
    return text


def time_text(ns: float) -> str:
    """The time, with a non-breaking space before its unit."""
    return keep_together(format_time(round(ns)))


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f}\u00a0%" if whole else "0\u00a0%"
