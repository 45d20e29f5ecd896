"""An answer on a page: its lines, and what they must be seen against."""

from __future__ import annotations

from opcost.core.answer import Answer, Busy
from opcost.core.graph import note_texts
from opcost.core.told import Waited
from opcost.core.units import format_time
from opcost.views.answer_listing import list_answer
from opcost.views.options import AnswerOptions
from opcost.views.page import Page
from opcost.views.summary import LONG_LINE, Section, Summary, held
from opcost.wording import counted, shortened, some

MANY_SAID = 64
"""Lines about devices, and notes: as many as eight machines of eight devices have."""


MANY_RANKS = 10
"""Lines about ranks: those that differ and those that are alike, so that a first screen holds them."""


def answer_page(answer: Answer, options: AnswerOptions) -> Page:
    """The lines, where they are from, and what they must be seen against."""
    names = answer.meta.get("source", "profile").split(", ") if "ranks" in answer.meta else []
    source = f"{names[0]} to {names[-1]}" if len(names) > 2 else answer.meta.get("source", "profile")
    heading = f"{source} ({answer.meta.get('format', 'opcost')}){runs_text(answer)}"
    if "inputs" in answer.meta:
        heading += shortened(f" on {answer.meta['inputs']}", LONG_LINE)
    summary = Summary(
        heading=(heading, *verdict_lines(answer)),
        seen_against=tuple(summary_lines(answer)),
        sections=gain_sections(answer),
    )
    return Page(list_answer(answer, options.columns), summary)


def gain_sections(answer: Answer) -> tuple[Section, ...]:
    """Potential savings, the largest first, and how to see them."""
    if not answer.gains:
        return ()
    whole = "per step" if any(use.steps for use in answer.devices) else "in the trace"
    lines = tuple(
        f"{number}. {held_time(gain.time_ns)} ({held(_percent(gain.share, 1))}) {gain.what}: {held(gain.command)}"
        for number, gain in enumerate(answer.gains, 1)
    )
    return (Section(f"potential savings {whole}, upper bounds; opcost analyze TRACE shows them with", lines),)


def summary_lines(answer: Answer) -> list[str]:
    """What the lines must be seen against: totals, how devices were used, and where the peaks are from."""
    said = []
    totals = [("device", answer.device_ns), ("host", answer.host_ns), ("wall", answer.wall_ns)]
    known = [f"{name} time {held_time(value)}" for name, value in totals if value is not None]
    total = next((line for line in answer.lines if line.role == "total"), None)
    if answer.unattributed_ns:
        known.append(f"unattributed {held_time(answer.unattributed_ns)}")
    if total is not None and total.computation is not None and total.unpriced_share:
        known.append(f"{held(f'{100 * total.unpriced_share:.1f} %')} of the {answer.side} time without a price")
    if known:
        said.append(" · ".join(known))
    kernels = [_kernels_text(alike, answer) for alike in _alike(answer)]
    said += some(kernels, MANY_SAID, kind="lines about devices")
    if answer.peak:
        said.append(f"peaks of {answer.peak}")
    said += some([shortened(text, LONG_LINE) for text in note_texts(answer.notes)], MANY_SAID, kind="notes")
    return said


def _kernels_text(alike: list[Busy], answer: Answer) -> str:
    use = _middle(alike)
    kernels = f"{counted(use.kernels, 'kernel')}, median {held_time(use.median_ns)}"
    overlap = f", overlap {held_time(use.overlap_ns)}" if use.overlap_ns else ""
    launches = f", {launches_text(use)}" if use.launches else ""
    return f"{_whose(alike, answer)}: {kernels}{overlap}{launches}"


def runs_text(answer: Answer) -> str:
    """How many runs there are, and whether they are told of one by one or together."""
    if answer.runs == 1:
        return ""
    return f", {answer.runs} runs, {'per run' if answer.is_per_run else 'all of them'}"


def verdict_lines(answer: Answer) -> list[str]:
    """Of many ranks how they differ and who is late; then a line for each device, or for those that are alike."""
    most = MANY_SAID if len({use.rank for use in answer.devices}) < 2 else MANY_RANKS
    return some([said for said, _ in verdicts(answer)], most, kind="devices")


def verdicts(answer: Answer) -> list[tuple[str, Busy | None]]:
    """The same, each with the device that it is about."""
    found: list[tuple[str, Busy | None]] = [(said, None) for said in _of_ranks(answer)]
    return found + [(_verdict(alike, answer), _middle(alike)) for alike in _alike(answer)]


SAME_SHARE, SAME_STEP = 0.02, 0.02
"""Devices are alike whose shares of time, and whose steps, differ by no more."""
LATE_SHARE = 0.005
"""Of the time of all ranks; what they wait less for each other makes none of them late."""


def _of_ranks(answer: Answer) -> list[str]:
    """In what the ranks differ, and which of them the others wait for."""
    ranks = {use.rank for use in answer.devices}
    if len(ranks) < 2:
        return []
    shares = [_of_time(use) for use in answer.devices]
    ranges = []
    for name in dict.fromkeys(name for each in shares for name in each):
        own = [(each.get(name, 0.0), use.rank) for each, use in zip(shares, answer.devices, strict=True)]
        (low, first), (high, last) = min(own), max(own)
        if high - low > SAME_SHARE:
            ranges.append(
                f"{name} {held(f'{100 * low:.1f} %')} (rank {first}) to {held(f'{100 * high:.1f} %')} (rank {last})"
            )
    steps = sorted((use.step_ns, use.rank) for use in answer.devices if use.step_ns)
    if steps and steps[-1][0] - steps[0][0] > SAME_STEP * steps[0][0]:
        (low, first), (high, last) = steps[0], steps[-1]
        ranges.append(f"step {held_time(low)} (rank {first}) to {held_time(high)} (rank {last})")
    differ = f"they differ in {', '.join(ranges)}" if ranges else "all alike"
    return [f"{len(ranks)} ranks: {differ}", *_late(answer, steps)]


def _late(answer: Answer, steps: list[tuple[float, int]]) -> list[str]:
    worst = _worst(answer)
    if worst is not None:
        waiting = sum(each.held_up_ns for each in answer.waited)
        said = f"late: rank {worst.rank}: others waited {held_time(worst.held_up_ns)} for it in {worst.last:,} collectives, "
        return [f"{said}{held(_percent(worst.held_up_ns, waiting))} of all waiting (--view communication)"]
    if answer.waited:
        return ["no rank is late: in collectives they hardly wait for each other"]
    usual = steps[len(steps) // 2][0] if steps else 0
    if steps and steps[-1][0] > (1 + SAME_STEP) * usual:
        return [
            f"late: rank {steps[-1][1]}: its step takes {held_time(steps[-1][0])}, the median of all {held_time(usual)}"
        ]
    return []


def _worst(answer: Answer) -> Waited | None:
    """The rank that others wait for most, if they wait for each other at all."""
    waiting = sum(each.held_up_ns for each in answer.waited)
    if not waiting or waiting < LATE_SHARE * sum(use.rated_ns for use in answer.devices):
        return None
    return max(answer.waited, key=lambda each: each.held_up_ns)


def _of_time(use: Busy) -> dict[str, float]:
    """The parts of a device's time that a verdict names, as shares."""
    causes = {f"idle: {name}": time for name, time in use.idle_causes.items()}
    parts = {"busy": use.busy_ns, "communication alone": use.communication_ns, "copies alone": use.copies_ns, **causes}
    return {name: time / use.rated_ns for name, time in parts.items()} if use.rated_ns else {}


def _alike(answer: Answer) -> list[list[Busy]]:
    """The devices of ranks that spend their time alike, the most first; before them the one that is late."""
    worst = _worst(answer)
    late = None if worst is None else worst.rank
    found: list[list[Busy]] = []
    for use in answer.devices:
        home = next((each for each in found if late not in (use.rank, each[0].rank) and _is_alike(use, each[0])), None)
        if home is None:
            found.append(home := [])
        home.append(use)
    return sorted(found, key=lambda each: (each[0].rank != late, -len(each)))


def _is_alike(use: Busy, other: Busy) -> bool:
    mine, theirs = _of_time(use), _of_time(other)
    near = all(abs(mine.get(name, 0.0) - theirs.get(name, 0.0)) <= SAME_SHARE for name in mine | theirs)
    step, usual = use.step_ns or 0.0, other.step_ns or 0.0
    return near and use.rank != other.rank and use.gaps == other.gaps and abs(step - usual) <= SAME_STEP * usual


def _middle(alike: list[Busy]) -> Busy:
    """Of those that are alike, the one of the median time."""
    return sorted(alike, key=lambda use: use.busy_ns)[len(alike) // 2]


def _verdict(alike: list[Busy], answer: Answer) -> str:
    """How a device spent its time, and what it lost: shares of the time from its first kernel to its last, but for long gaps."""
    use = _middle(alike)
    busy = _shares(use, {"communication alone": use.communication_ns, "copies alone": use.copies_ns})
    causes = use.idle_causes
    rest = use.idle_ns - use.gap_ns
    idle = _shares(use, {**causes, "not known why": rest - sum(causes.values())} if any(causes.values()) else {})
    said = f"{_whose(alike, answer)}: busy {held_time(use.busy_ns)} of {held_time(use.rated_ns)}{busy}, idle "
    said += f"{held(_percent(rest, use.rated_ns))}{idle}{_gaps_text(use)}"
    if use.step_ns is not None and use.first_step_ns is not None:
        first = f", the first {held_time(use.first_step_ns)}" if use.steps > 1 else ""
        if use.steps > 2 and use.least_step_ns is not None and use.most_step_ns is not None:
            first = f", {held_time(use.least_step_ns)} to {held_time(use.most_step_ns)}{first}"
        said += f"; step {held_time(use.step_ns)} ({use.steps} step{'s' * (use.steps > 1)}{first})"
    return said


def _gaps_text(use: Busy) -> str:
    """The gaps that rates leave out, each of them an event."""
    if not use.gaps:
        return ""
    cause = f" ({use.longest_gap_cause})" if use.longest_gap_cause else ""
    at = f"{held_time(use.longest_gap_at_ns)} after the first kernel{cause}"
    if use.gaps == 1:
        return f"; left out of the rates: a gap of {held_time(use.gap_ns)}, {at}"
    longest = f"the longest {held_time(use.longest_gap_ns)}, {at}"
    return f"; left out of the rates: {use.gaps} gaps, {held_time(use.gap_ns)} together, {longest}"


def _whose(alike: list[Busy], answer: Answer) -> str:
    devices = {use.device for use in alike}
    device = devices.pop() or "device" if len(devices) == 1 else "devices"
    if len(alike) > 1:
        return f"ranks {ranges_text([use.rank for use in alike])} {device} (the median of {len(alike)} alike)"
    rank = f"rank {alike[0].rank} " if any(other.rank != alike[0].rank for other in answer.devices) else ""
    return f"{rank}{device}"


def ranges_text(numbers: list[int]) -> str:
    """`0-4, 6, 7`."""
    found: list[list[int]] = []
    for number in sorted(set(numbers)):
        if found and number == found[-1][-1] + 1:
            found[-1].append(number)
        else:
            found.append([number])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in found)


def _shares(use: Busy, parts: dict[str, int]) -> str:
    """The parts that matter, the largest first, in brackets."""
    known = sorted(((time, name) for name, time in parts.items() if 1000 * time >= use.rated_ns > 0), reverse=True)
    told = ", ".join(f"{name} {held(_percent(time, use.rated_ns))}" for time, name in known)
    return f" ({told})" if told else ""


def launches_text(use: Busy) -> str:
    """How many, for how many operators, and how long kernels waited after them."""
    said = counted(use.launches, "launch", "launches")
    if use.operators:
        said += f" by {counted(use.operators, 'operator')} ({use.owned / use.operators:.2f} kernels each)"
    if use.delay_ns is not None and use.delay_p90_ns is not None:
        said += f", from launch to start {held_time(use.delay_ns)} median, {held_time(use.delay_p90_ns)} p90"
    return said


def held_time(ns: float) -> str:
    """The time with its unit held to it, where lines are broken."""
    return held(format_time(round(ns)))


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "0 %"
