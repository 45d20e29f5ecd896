"""A report and the speeds of a device, put together: a profile of what was never run, with a band around its sum."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import sqrt
from typing import NamedTuple

from opcost.analysis.prediction.speeds import Speeds, Told
from opcost.analysis.prediction.work import work_of
from opcost.core.graph import Note
from opcost.core.profile import Profile, ProfileRow
from opcost.core.report import Report, Row

GAP_NS = 700
"""Between the end of one kernel and the start of the next in a replayed graph: what was timed has it, a sum of kernels not."""
WHOLE = {"inference": 0.115, "training": 0.16}
"""How far whole models are off beyond what their operators' spreads add up to; held against measured ones, so that four of
five lie inside the band."""
ELSEWHERE = 0.25
"""The same for a device that was not calibrated: the printed peaks with the shares that another device reaches of its own."""


TOGETHER = 0.1
"""The spread of an operator over many tensors at once, which only moves memory."""


class Foretold(NamedTuple):
    """What a model would take."""

    profile: Profile
    latency_ns: int
    """Kernels and the gaps between them."""
    kernel_ns: int
    band_ns: tuple[int, int]
    """Four of five measured models lie inside such a band."""
    ideal_ns: int
    """At the printed peaks of the device, every operator at its roofline."""
    bounds: Mapping[str, int]
    """The time of what waits for each: compute, memory, launch."""


def foretell(report: Report, speeds: Speeds, meta: Mapping[str, str], *, calibrated: bool) -> Foretold:
    """What the operators of a report would take, one after another, without waiting for the host."""
    training = any(row.op.phase != "forward" for row in report.rows)
    rows: list[ProfileRow] = []
    guessed: dict[str, list[int]] = {}
    bounds = {"compute": 0, "memory": 0, "launch": 0}
    variance, ideal, ran = 0.0, 0.0, 0
    for row, told in _timed(report.rows, speeds):
        times = row.op.repeat
        taken = round(told.device_ns * times)
        variance += (told.spread * told.device_ns) ** 2 * times
        bounds[told.bound] += taken
        ideal += told.ideal_ns * times
        ran += times
        if not told.known:
            guessed.setdefault(row.op.raw, []).append(taken)
        rows.append(_row(row, taken, meta["device"]))
    latency = sum(row.device_ns or 0 for row in rows)
    whole = WHOLE["training" if training else "inference"] + (0 if calibrated else ELSEWHERE)
    unsure = sqrt((whole * latency) ** 2 + 1.6 * variance)
    notes = (*report.notes, *_notes(report, guessed))
    return Foretold(
        Profile(meta={**report.meta, **meta, "format": "prediction"}, rows=tuple(rows), notes=notes),
        latency,
        max(0, latency - GAP_NS * ran),
        (round(max(ideal, latency - unsure)), round(latency + unsure)),
        round(ideal),
        bounds,
    )


def _timed(rows: Iterable[Row], speeds: Speeds) -> Iterable[tuple[Row, Told]]:
    """Every operator that runs, with its time; an optimizer's are started once for all parameters, not once for each."""
    update: dict[tuple[str, str], list[tuple[Row, int]]] = {}
    for row in rows:
        op = row.op
        if op.kind == "view" or not op.repeat:
            continue
        work = work_of(op.kind, op.raw, op.attrs, row.ins, row.outs, row.cost)
        if op.phase != "update":
            yield row, speeds.time(work)
        elif op.kind != "create":  # the state of an optimizer is made in the first step and there in all others
            update.setdefault((op.raw, work.dtype), []).append((row, work.nbytes))
    for (_, dtype), found in update.items():
        moved = sum(nbytes for _, nbytes in found)
        taken = speeds.together(dtype, moved)
        for row, nbytes in found:
            share = nbytes / moved if moved else 1 / len(found)
            ideal = nbytes / speeds.device.bandwidth * 1e9
            yield row, Told(taken * share, TOGETHER, "memory", ideal, known=True)


def _row(row: Row, taken: int, device: str) -> ProfileRow:
    op = row.op
    return ProfileRow(
        id=op.id,
        name=op.module or op.raw,
        type=op.raw,
        kind=op.kind,
        module=op.module,
        phase=op.phase,
        device=device,
        device_ns=taken,
        device_total_ns=taken,
        ins=row.ins,
        outs=row.outs,
        attrs=op.attrs,
        cost=row.cost,
        count=op.repeat,
    )


def _notes(report: Report, guessed: Mapping[str, list[int]]) -> Iterable[Note]:
    for raw, taken in sorted(guessed.items(), key=lambda item: -sum(item[1])):
        yield Note(
            "guessed-time",
            f"{raw} ({len(taken)}x) was not timed on this device; its time is that of what is most like it",
        )
    for missed in report.coverage.uncounted:
        yield Note(
            "unpriced", f"{missed.raw} ({missed.count}x) has no price: its time is a guess from the memory it moves"
        )
