"""An answer on a page: its lines, and what they must be seen against."""

from __future__ import annotations

from opcost.core.answer import Answer, Busy
from opcost.core.graph import note_texts
from opcost.core.units import format_time
from opcost.views.answer_listing import list_answer
from opcost.views.options import AnswerOptions
from opcost.views.page import Page
from opcost.views.summary import LONG_LINE, Section, Summary, held
from opcost.wording import counted, shortened, some

MANY_SAID = 64
"""Lines about devices, and notes: as many as eight machines of eight devices have."""


def answer_page(answer: Answer, options: AnswerOptions) -> Page:
    """The lines, where they are from, and what they must be seen against."""
    heading = f"{answer.meta.get('source', 'profile')} ({answer.meta.get('format', 'opcost')}){runs_text(answer)}"
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
    said += some([_kernels_text(use, answer) for use in answer.devices], MANY_SAID, kind="lines about devices")
    if answer.peak:
        said.append(f"peaks of {answer.peak}")
    said += some([shortened(text, LONG_LINE) for text in note_texts(answer.notes)], MANY_SAID, kind="notes")
    return said


def _kernels_text(use: Busy, answer: Answer) -> str:
    kernels = f"{counted(use.kernels, 'kernel')}, median {held_time(use.median_ns)}"
    overlap = f", overlap {held_time(use.overlap_ns)}" if use.overlap_ns else ""
    launches = f", {launches_text(use)}" if use.launches else ""
    return f"{_whose(use, answer)}: {kernels}{overlap}{launches}"


def runs_text(answer: Answer) -> str:
    """How many runs there are, and whether they are told of one by one or together."""
    if answer.runs == 1:
        return ""
    return f", {answer.runs} runs, {'per run' if answer.is_per_run else 'all of them'}"


def verdict_lines(answer: Answer) -> list[str]:
    """A line for each device."""
    return some([_verdict(use, answer) for use in answer.devices], MANY_SAID, kind="devices")


def _verdict(use: Busy, answer: Answer) -> str:
    """How a device spent its time, and what it lost: shares of the time from its first kernel to its last, but for long gaps."""
    busy = _shares(use, {"communication alone": use.communication_ns, "copies alone": use.copies_ns})
    causes = use.idle_causes
    rest = use.idle_ns - use.gap_ns
    idle = _shares(use, {**causes, "not known why": rest - sum(causes.values())} if any(causes.values()) else {})
    said = f"{_whose(use, answer)}: busy {held_time(use.busy_ns)} of {held_time(use.rated_ns)}{busy}, idle "
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


def _whose(use: Busy, answer: Answer) -> str:
    rank = f"rank {use.rank} " if any(other.rank != use.rank for other in answer.devices) else ""
    return f"{rank}{use.device or 'device'}"


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
