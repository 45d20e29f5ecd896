"""What operators of a trace should take by the laws of their device, and how much of its peak the steps use.

By the shapes that were recorded. The time is that of an operator's kernels, without the gap to the next one. What has no cost has
no prediction.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from opcost.analysis.breakdown import computes, devices, in_steps
from opcost.analysis.join import INCOMPLETE, product_share, rounds_to_tf32, runs_tf32, with_costs
from opcost.analysis.part import LABELS, Part, parts_of
from opcost.analysis.prediction.predict import GAP_NS, timed
from opcost.analysis.prediction.speeds import shipped_speeds
from opcost.core.devices import DEVICES, Device, device_named_in
from opcost.core.graph import Op
from opcost.core.kinds import CONTRACTIONS
from opcost.core.profile import SECOND_NS, Busy, Profile, ProfileRow
from opcost.core.report import Row

ENOUGH = 0.5
"""The share of the time of computing kernels that must have a prediction, or a cost, for a statement about all of them."""


def compared(profile: Profile) -> tuple[Busy, ...]:
    """How the devices of a profile were used, with what their laws say of it where these are known."""
    from opcost.rules import default_rules

    device, uses = device_named_in(profile.meta), devices(profile)
    if device is None or not uses:
        return uses
    parts = with_expected(parts_of(with_costs(profile, default_rules()), "device", "time"), device)
    return tuple(with_use_of_peak(uses, in_steps(profile), parts, device, tf32=rounds_to_tf32(profile)))


def with_expected(parts: Sequence[Part], device: Device | None) -> list[Part]:
    """The parts with their predicted times, where they ran on a device that has laws."""
    if device is None or not device.flops or device.name not in DEVICES:
        return list(parts)
    speeds = shipped_speeds(device.name)
    known: dict[object, int | None] = {}

    def of_one(row: ProfileRow) -> int | None:
        key = row.type, row.kind, row.phase, row.ins, row.outs, tuple(sorted(row.attrs.items(), key=str))
        if key not in known:
            op = Op(0, row.kind, row.type, (), (), row.attrs, phase=row.phase)
            known[key] = None
            with suppress(*INCOMPLETE):
                for _, time in timed([Row(op, row.ins, row.outs, row.cost, "")], speeds):
                    known[key] = max(0, round(time.device_ns - GAP_NS * time.kernels))
        return known[key]

    expected = []
    for part in parts:
        row = part.row
        if row is not None and row.cost is not None and row.device_ns and part.device_ns and computes(part):
            each = of_one(row)
            if each is not None:
                share = (
                    1 if part.device_ns == row.device_ns else part.device_ns / row.device_ns
                )  # of one of its kernels
                part = part._replace(predicted_ns=each * row.count * share)  # noqa: PLW2901
        expected.append(part)
    return expected


def with_use_of_peak(
    uses: Iterable[Busy], steps: Iterable[Busy], parts: Iterable[Part], device: Device | None, *, tf32: bool
) -> Iterator[Busy]:
    """Each device with its model FLOPs utilization in the marked steps but the first, and how its kernels are to predictions."""
    of_device: defaultdict[tuple[int, str], list[Part]] = defaultdict(list)
    for part in parts:
        if part.row is not None and part.kernels and computes(part):
            of_device[part.row.rank, part.kernels[0].device].append(part)
    in_steps = {(use.rank, use.device): use for use in steps}
    for use in uses:
        own = of_device[use.rank, use.device]
        predicted = [part for part in own if part.predicted_ns]
        measured = sum(part.device_ns or 0 for part in predicted)
        ratio = None
        if measured >= ENOUGH * use.compute_work_ns and measured:
            ratio = measured / sum(part.predicted_ns or 0 for part in predicted)
        mfu = None if device is None else _mfu(in_steps.get((use.rank, use.device), use), own, device, tf32=tf32)
        yield use._replace(of_predicted=ratio, mfu=mfu)


def _mfu(use: Busy, parts: Sequence[Part], device: Device, *, tf32: bool) -> float | None:
    """The share of the peak that products of the steps use, without what is recomputed; None where few kernels have a cost."""
    if not use.steps or not use.step_ns:
        return None
    numbers = sorted({part.row.step for part in parts if part.row is not None and part.row.step is not None})
    later = {*(numbers[1:] or numbers)}
    inside = [part for part in parts if part.row is not None and (not later or part.row.step in later)]
    costed = sum(part.device_ns or 0 for part in inside if part.costed)
    if costed < ENOUGH * sum(part.device_ns or 0 for part in inside):
        return None
    peak_ns = 0.0
    for part in inside:
        if (
            part.row is None
            or part.row.kind not in CONTRACTIONS
            or not part.computation
            or part.row.phase == "recompute"
        ):
            continue
        peak = device.peak_flops(LABELS["dtype"](part), tf32=tf32 or runs_tf32(part.kernels))
        if not peak:
            return None
        peak_ns += part.computation * product_share([part]) * SECOND_NS / peak
    whole = use.step_ns * len(later) if later else use.span_ns
    return peak_ns / whole if peak_ns else None
