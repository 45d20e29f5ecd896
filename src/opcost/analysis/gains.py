"""Potential savings of time in a trace, by cause, as an upper bound that counts nothing twice.

A device's time in the marked steps, or from its first kernel to its last, falls into parts that do not overlap: idle by cause,
collectives alone, copies alone, and the time in which something computes. Of the first three all can be saved: of collectives as
much as there is computing to hide them behind, and what a rank waits in them for others is told apart; of copies those that
cross the device's border. Of the last it is what kernels take beyond the time at `bound.NEAR` of the peak that bounds
them, or all that they take where they recompute. That is scaled down twice: by the share of the time that kernels have to
themselves, and by the share of the work whose successor was launched before it began, for elsewhere a shorter kernel only
lets the device wait longer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from opcost.analysis.bounds import NEAR, computes
from opcost.analysis.part import Part
from opcost.core.answer import IDLE_IN_CALL, Busy, Gain
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


def gains_of(
    uses: Sequence[Busy], parts: Sequence[Part], waited: Sequence[Waited] = (), whole: Sequence[Busy] = ()
) -> tuple[Gain, ...]:
    """The largest of them, over all devices whose use is known in full; `whole` is their use outside of steps too."""
    waits = {each.rank: each.wait_ns or 0 for each in waited}
    last = max(waited, key=lambda each: each.held_up_ns, default=None)
    known = {(use.rank, use.device): use for use in uses if use.compute_ns is not None and use.rated_ns > 0}
    if not known:
        return ()
    all_of = {(use.rank, use.device): use for use in whole}
    found = _Savings(known)
    alone = len({rank for rank, _ in known}) == 1 and all(part.count == 1 for part in parts)
    shown = _OVER_TIME if alone else {}  # of many ranks, and of many executions as one, it is not known when each was
    for key, use in known.items():
        # What ranks waited is known of the whole trace: of that, the collectives in steps that nothing hides have their part.
        everywhere = all_of.get(key, use).all_communication_ns
        wait = min(float(use.communication_ns), waits.get(use.rank, 0) * use.communication_ns / (everywhere or 1))
        for what, spent in _outside_of_kernels(use, wait).items():
            command = shown.get(what, _BREAKDOWN)
            if use.idle_call and what.startswith(f"idle: {IDLE_IN_CALL}"):
                command = f"--side host --type {use.idle_call}"
            found.add(key, what, command, spent)
        if wait and last is not None:
            found.add(key, f"unbalanced ranks: {last.rank} comes last most", _RANKS, wait)
    _inside_of_kernels(found, all_of, parts)
    return found.largest()


class _Savings:
    """Times that could be saved, by what they are lost to and what shows them, over devices."""

    def __init__(self, uses: Mapping[tuple[int, str], Busy]) -> None:
        self.uses = uses
        self._found: dict[tuple[str, str], list[float]] = {}

    def add(self, device: tuple[int, str], what: str, command: str, time_ns: float) -> None:
        use = self.uses[device]
        shares, times = self._found.setdefault((what, command), [0.0, 0.0])
        self._found[what, command] = [shares + time_ns / use.rated_ns, times + time_ns / max(use.steps, 1)]

    def largest(self) -> tuple[Gain, ...]:
        each = len(self.uses)
        gains = [
            Gain(what=what, command=command, share=share / each, time_ns=time / each)
            for (what, command), (share, time) in self._found.items()
            if share / each >= LEAST_SHARE
        ]
        return tuple(sorted(gains, key=lambda gain: -gain.share)[:MOST])


def _outside_of_kernels(use: Busy, wait: float) -> dict[str, float]:
    """By what it is lost to; what a rank waits for others in collectives is not theirs."""
    hidden = use.all_communication_ns - use.communication_ns
    return {
        **{f"idle: {cause}": time for cause, time in use.idle_causes.items()},
        "communication that nothing hides": min(use.communication_ns - wait, max(0, (use.compute_ns or 0) - hidden)),
        "copies that could run beside kernels": use.transfers_ns,
    }


def _inside_of_kernels(found: _Savings, whole: Mapping[tuple[int, str], Busy], parts: Iterable[Part]) -> None:
    """Add what kernels could save, each with what shows it."""
    spent: dict[tuple[tuple[int, str], tuple[str, str]], float] = {}
    reached: dict[str, tuple[float, float]] = {}
    numbers = sorted({part.row.step for part in parts if part.row is not None and part.row.step is not None})
    later = {*(numbers[1:] or numbers)}
    for part in parts:
        row = part.row
        device = (row.rank, part.kernels[0].device) if row is not None and part.kernels else None
        use = found.uses.get(device) if device is not None else None
        if row is None or device is None or use is None or not computes(part) or not part.device_ns:
            continue
        if later and use.steps and row.step not in later:
            continue
        saved = float(part.device_ns)
        if row.phase == "recompute":
            key = ("recomputing what a checkpoint did not keep", """--where 'phase == "recompute"'""")
        elif part.ideal_ns is None or part.ideal_ns >= NEAR * part.device_ns:
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
        if not later and device in whole and whole[device].compute_work_ns:  # which rows are of steps is not known
            own *= use.compute_work_ns / whole[device].compute_work_ns
        spent[device, key] = spent.get((device, key), 0.0) + saved * own * fed
    for (device, (what, command)), time in spent.items():
        found.add(device, _told(what, reached), command, time)


def _told(what: str, reached: Mapping[str, tuple[float, float]]) -> str:
    if what not in reached:
        return what
    ideal, time = reached[what]
    return f"{what} at {100 * ideal / time:.0f} % of its bound"
