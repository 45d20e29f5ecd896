"""What time of a trace could be won back, by cause, as an upper bound that counts nothing twice.

A device's time from its first kernel to its last falls into parts that do not overlap: idle by cause, collectives
alone, copies alone, and the time in which something computes. Of the first three all can be won: of collectives as much
as there is computing to hide them behind, and what a rank waits in them for others is told apart; of copies those that
cross the device's border. Of the last it is what kernels take beyond the time at `bound.NEAR` of the peak that bounds
them, or all that they take where they recompute. That is scaled down twice: by the share of the time that kernels have to
themselves, and by the share of the work whose successor was launched before it began, for elsewhere a shorter kernel only
lets the device wait longer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from opcost.analysis.bound import NEAR, computes
from opcost.analysis.part import Part
from opcost.core.answer import Busy, Gain
from opcost.core.told import Waited

MOST = 3
LEAST_SHARE = 0.005
"""Less of the time is not worth a line."""

_BREAKDOWN, _RANKS = "--view breakdown", "--view communication"
_OVER_TIME = {
    "idle: host-bound": "--view launches",
    "idle: launch latency": "--view launches",
    "idle: after synchronisation": "--view critical-path",
}
"""What shows better than the breakdown where a loss is, if it is known when everything ran."""


def gains_of(uses: Sequence[Busy], parts: Iterable[Part], waited: Sequence[Waited] = ()) -> tuple[Gain, ...]:
    """The largest of them, over all devices whose use is known in full."""
    waits = {each.rank: each.wait_ns or 0 for each in waited}
    last = max(waited, key=lambda each: each.held_up_ns, default=None)
    known = {(use.rank, use.device): use for use in uses if use.compute_ns is not None and use.span_ns > 0}
    if not known:
        return ()
    found: dict[tuple[str, str], float] = {}
    shown = _OVER_TIME if all(part.count == 1 for part in parts) else {}
    for use in known.values():
        alone = use.communication_ns / use.all_communication_ns if use.all_communication_ns else 0.0
        wait = min(float(use.communication_ns), waits.get(use.rank, 0) * alone)
        for what, spent in _outside_of_kernels(use, wait).items():
            _add(found, (what, shown.get(what, _BREAKDOWN)), spent / use.span_ns)
        if wait and last is not None:
            _add(found, (f"unbalanced ranks: {last.rank} comes last most", _RANKS), wait / use.span_ns)
    for what, command, share in _inside_of_kernels(known, parts):
        _add(found, (what, command), share)
    each = len(known)
    step = _step(list(known.values()))
    gains = [
        Gain(what=what, command=command, share=total / each, time_ns=total / each * step)
        for (what, command), total in found.items()
        if total / each >= LEAST_SHARE
    ]
    return tuple(sorted(gains, key=lambda gain: -gain.share)[:MOST])


def _step(uses: Sequence[Busy]) -> float:
    """The time of a device in one step, or in the whole trace where no steps are marked: what shares are taken of."""
    spans = [min(use.span_ns / max(use.steps, 1), use.step_ns or use.span_ns) for use in uses]
    return sum(spans) / len(spans)


def _add(found: dict[tuple[str, str], float], key: tuple[str, str], share: float) -> None:
    found[key] = found.get(key, 0.0) + share


def _outside_of_kernels(use: Busy, wait: float) -> dict[str, float]:
    """By what it is lost to; what a rank waits for others in collectives is not theirs."""
    hidden = use.all_communication_ns - use.communication_ns
    return {
        **{f"idle: {cause}": time for cause, time in use.idle_causes.items()},
        "communication that nothing hides": min(use.communication_ns - wait, max(0, (use.compute_ns or 0) - hidden)),
        "copies that could run beside kernels": use.transfers_ns,
    }


def _inside_of_kernels(uses: Mapping[tuple[int, str], Busy], parts: Iterable[Part]) -> list[tuple[str, str, float]]:
    """Each with what shows it and its share of the time of its device."""
    spent: dict[tuple[str, str], float] = {}
    reached: dict[str, tuple[float, float]] = {}
    for part in parts:
        row = part.row
        use = uses.get((row.rank, part.kernels[0].device)) if row is not None and part.kernels else None
        if row is None or use is None or not computes(part) or not part.device_ns:
            continue
        saved = float(part.device_ns)
        if row.phase == "recompute":
            key = ("recomputing what a checkpoint did not keep", """--where 'phase == "recompute"'""")
        elif part.ideal_ns is None or part.bound not in ("launch", "latency"):
            continue
        else:
            saved -= part.ideal_ns / NEAR
            if part.bound == "launch":
                key = ("kernels shorter than a launch", """--where 'bound == "launch"'""")
            else:
                key = (row.type, f"--type {row.type} --aggregate-by shape")
                ideal, time = reached.get(row.type, (0.0, 0.0))
                reached[row.type] = ideal + part.ideal_ns, time + part.device_ns
        own = use.compute_ns / use.compute_work_ns if use.compute_ns and use.compute_work_ns else 0.0
        fed = min(1.0, use.fed_ns / use.work_ns) if use.work_ns else 0.0
        spent[key] = spent.get(key, 0.0) + saved * own * fed / use.span_ns
    return [(_told(what, reached), command, share) for (what, command), share in spent.items()]


def _told(what: str, reached: Mapping[str, tuple[float, float]]) -> str:
    if what not in reached:
        return what
    ideal, time = reached[what]
    return f"{what} at {100 * ideal / time:.0f} % of its bound"
