"""How fast a device runs operators of each family: a law fitted to what was timed, corrected by the nearest ones timed.

The law is t = start + max(FLOPs / (share * peak), bytes / (share * bandwidth)), with what the device reaches at its best. By how
much an operator misses it is taken from its nearest neighbours, weighted by their distance. Their ratios are averaged and not
the logarithms: what is wanted is a sum of times.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from heapq import nsmallest
from math import dist, log, sqrt
from statistics import median
from typing import NamedTuple

from opcost.analysis.prediction.work import Work, families, work_of
from opcost.analysis.price import apply_rule
from opcost.core.devices import HOST, TERA, Device, measured
from opcost.core.devices import device as find_device
from opcost.core.kinds import check_operator
from opcost.devices.calibration import Calibration, Measured
from opcost.errors import OpcostError, SourceError
from opcost.rules.registry import OpView, Rules

NEIGHBOURS = 3
CLOSE = 0.1
"""Neighbours nearer than this, in doublings of sizes, count alike."""
GUESS = 0.5
"""The spread of an operator of which nothing like it was timed."""


VIEW_NS = 1_000
"""What the host needs for a view, which is never timed: it runs nothing on the device."""
IN_A_MODEL = 2.1
"""By how much an operator takes more of the host in a model than called again and again: modules that are called, arguments
that are looked at, caches that are cold. The median of measured models, half of which lie within a quarter of it."""
USUAL_HOST_NS = 7_000
"""What the host needs for an operator where the calibration does not say: published are 4 to 10 microseconds."""


class Told(NamedTuple):
    """The time of one operator."""

    device_ns: float
    spread: float
    """About how far off it may be, as a share."""
    bound: str
    """What it waits for: compute, memory, or launch, if its start takes most of it."""
    ideal_ns: float
    """What the device would need at its printed peaks."""
    known: bool
    """Something of its family and element type was timed."""


_AS_FAST_AS = {"float16": "bfloat16"}
"""Types that are as large as another and run on the same units."""


class _Near(NamedTuple):
    place: tuple[float, ...]
    ratio: float


@dataclass(frozen=True, slots=True)
class _Law:
    """One family of operators on elements of one type."""

    start_ns: float
    compute: float
    """The share of the peak that it reaches."""
    memory: float
    spread: float
    near: tuple[_Near, ...]

    def base_ns(self, work: Work, device: Device, peak: float) -> tuple[float, str]:
        compute = work.flops / (self.compute * peak) * 1e9 if work.flops else 0.0
        memory = work.nbytes / (self.memory * device.bandwidth) * 1e9
        longer = max(compute, memory)
        bound = "launch" if longer < self.start_ns else "compute" if compute > memory else "memory"
        return self.start_ns + longer, bound

    def ratio(self, place: tuple[float, ...]) -> float:
        """By how much it misses the law here."""
        found = nsmallest(NEIGHBOURS, ((dist(near.place, place), near.ratio) for near in self.near))
        weights = [(distance + CLOSE) ** -2 for distance, _ in found]
        return sum(weight * ratio for weight, (_, ratio) in zip(weights, found, strict=True)) / sum(weights)


def _work(row: Measured, rules: Rules) -> Work:
    try:
        check_operator(row.kind, row.raw, row.attrs, len(row.ins), len(row.outs))
        cost, _, _ = apply_rule(rules, OpView(row.kind, row.raw, row.ins, row.outs, row.attrs))
        return work_of(row.kind, row.raw, row.attrs, row.ins, row.outs, cost)
    except (OpcostError, ArithmeticError, LookupError) as exc:
        raise SourceError(
            f"this calibration is damaged: {exc}", hint="make it again: opcost calibrate -o FILE"
        ) from exc


def _fastest(rows: list[tuple[Work, int]]) -> Device:
    """A processor, whose peaks nobody prints: the best that was seen of it."""
    flops = max((work.flops / taken for work, taken in rows), default=1.0) * 1e9
    bandwidth = max((work.nbytes / taken for work, taken in rows), default=1.0) * 1e9
    return replace(measured(round(flops), round(bandwidth)), name=HOST)


class Speeds:
    """The laws of a calibrated device, and by its shares of the peaks those of another `device`."""

    def __init__(self, calibration: Calibration, rules: Rules, device: Device | None) -> None:
        self.tf32 = {
            "conv": calibration.meta.get("tf32_convolutions") == "on",
            "product": calibration.meta.get("tf32_products") == "on",
        }
        rows = [(_work(row, rules), max(1, row.device_ns)) for row in calibration.rows]
        self._home = _fastest(rows) if calibration.device == HOST else find_device(calibration.device)
        self.device = device or self._home
        timed: dict[tuple[str, str], list[tuple[Work, int]]] = {}
        for work, taken in rows:
            timed.setdefault((work.family, work.dtype), []).append((work, taken))
        self._told: dict[Work, Told] = {}
        self.laws: dict[tuple[str, str], _Law] = {}
        for key in sorted(timed, key=lambda key: key[0].startswith("conv")):  # with a bias they ask for what adds it
            self.laws[key] = self._law([(work, self._without_bias(work, taken)) for work, taken in timed[key]])
        self._hosts = _host_times(calibration.rows)

    def _without_bias(self, work: Work, taken: int) -> int:
        """The convolution alone of what was timed with its bias; a kernel that has it within leaves at least a quarter."""
        added = 0.0 if work.bias is None else self._time(work.bias, self._home).device_ns
        return max(taken // 4, round(taken - added))

    def _peak(self, work: Work, device: Device) -> float:
        """FLOP/s at which a device multiplies elements of this type, with the switches of the calibration."""
        tf32 = self.tf32["conv" if work.family.startswith("conv") else "product"]
        return float(device.peak_flops(work.dtype, tf32=tf32) or device.peak_flops("float32") or TERA)

    def _law(self, rows: list[tuple[Work, int]]) -> _Law:
        home = self._home
        times = sorted(ns for _, ns in rows)
        start = 0.9 * times[len(times) // 50]
        compute = _high([w.flops / max(1.0, ns - start / 2) * 1e9 / self._peak(w, home) for w, ns in rows], 0.95)
        memory = _high([w.nbytes / max(1.0, ns - start / 2) * 1e9 / home.bandwidth for w, ns in rows], 0.9)
        bare = _Law(start, compute or 1.0, memory or 1.0, 0.0, ())
        near = tuple(_Near(work.place, ns / bare.base_ns(work, home, self._peak(work, home))[0]) for work, ns in rows)
        return replace(bare, spread=_spread(near), near=near)

    def time(self, work: Work) -> Told:
        """The time of one operator on its own, in the middle of others."""
        told = self._told.get(work)
        if told is None:
            told = self._time(work, self.device)
            if work.bias is not None:
                told = told._replace(device_ns=told.device_ns + self.time(work.bias).device_ns)
            self._told[work] = told
        return told

    def _time(self, work: Work, device: Device) -> Told:
        peak = self._peak(work, device)
        ideal = max(work.flops / peak, work.nbytes / device.bandwidth) * 1e9
        types = (work.dtype, _AS_FAST_AS.get(work.dtype, work.dtype))
        known = (self.laws.get((family, dtype)) for family in families(work) for dtype in types)
        law = next(filter(None, known), None)
        if law is not None:
            base, bound = law.base_ns(work, device, peak)
            return Told(base * law.ratio(work.place), law.spread, bound, ideal, known=True)
        alike = self._alike(work)
        if alike is None:
            return Told(ideal, GUESS, "memory", ideal, known=False)
        base, bound = alike.base_ns(work, device, peak)
        return Told(base, GUESS, bound, ideal, known=False)

    def host_ns(self, kind: str, raw: str) -> float:
        """What the host needs to run an operator in a model: what its call alone takes, and what is around it."""
        if kind == "view":
            return VIEW_NS
        return IN_A_MODEL * (self._hosts.get(raw) or self._hosts.get(kind) or self._hosts.get("") or USUAL_HOST_NS)

    def _alike(self, work: Work) -> _Law | None:
        """The nearest family: in the same type, the one with the most words in common; else what only moves memory."""
        words = work.family.split()
        best, most = None, 0
        for (family, dtype), law in self.laws.items():
            common = sum(a == b for a, b in zip(words, family.split(), strict=False))
            score = 2 * common + (dtype == work.dtype)
            if common and score > most:
                best, most = law, score
        return best or self.laws.get(("elementwise", work.dtype)) or self.laws.get(("elementwise", "float32"))


def _host_times(rows: Sequence[Measured]) -> dict[str, float]:
    """The usual time of the host for each operator, for each kind, and under the empty name for any."""
    found: dict[str, list[int]] = {}
    for row in rows:
        if row.host_ns:
            for name in (row.raw, row.kind, ""):
                found.setdefault(name, []).append(row.host_ns)
    return {name: float(median(times)) for name, times in found.items()}


def _high(values: list[float], share: float) -> float:
    return sorted(values)[int(share * (len(values) - 1))]


def _spread(near: tuple[_Near, ...]) -> float:
    """The usual miss of a prediction from the nearest neighbour but oneself, of a sample of them."""
    step = max(1, len(near) // 16)
    misses = []
    for one in near[::step]:
        others = (other for other in near if other is not one)
        found = min(others, key=lambda other: dist(other.place, one.place), default=None)
        if found is not None:
            misses.append(log(found.ratio / one.ratio) ** 2)
    return sqrt(median(misses)) * 1.5 if misses else GUESS
