"""How fast a device runs operators of each family: a law fitted to what was timed, corrected by the nearest ones timed.

The law is t = start + max(FLOPs / (share * peak), bytes / (share * bandwidth)), with the best shares that the device reaches. By
how much an operator misses it is taken from its nearest neighbours: the median of their ratios, weighted by their distance.
"""

from copy import copy
from dataclasses import replace
from functools import cache
from itertools import accumulate
from math import dist, log, sqrt
from operator import attrgetter
from statistics import median
from typing import NamedTuple

from opcost.analysis.costing import apply_rule
from opcost.analysis.prediction.work import Work, families, place_in, work_of
from opcost.core.devices import HOST, TERA, Device, measured
from opcost.core.devices import device as find_device
from opcost.core.kinds import check_operator
from opcost.devices.calibration import SHIPPED, Calibration, Law, Laws, Measured, kernels, shipped
from opcost.devices.neighbours import Near, Neighbours
from opcost.errors import OpcostError, SourceError
from opcost.rules.registry import OpView, Rules

NEIGHBOURS = 5
CLOSE = 0.1  # neighbours nearer than this, in doublings of sizes, count alike
GUESS = 0.5  # the spread of an operator of which nothing like it was timed
FAR = 3.0  # doublings of sizes from which on a timed operator is not like another
FARTHER = 0.08
"""By how much the spread grows with each doubling. Of 2,500 operators of models that were left out of the fit half were off by
5 % where something within a quarter of a doubling was timed, 14 % at one, 19 % at two, and 60 % beyond three and a half."""


REACHED = 0.92
"""The share of its bandwidth that memory gives at most: simple kernels reach it on a calibrated H200, and 2.2 TB/s of the 2.4 of
HBM2e (torchao, testing/training/roofline_utils.py)."""
SHORT_NS = 2_000  # at the peaks of a device: an operator of so little takes about as long as its start
USUAL_START_NS = 5_000  # of operators of which only large ones were timed
USUAL_SHARE = 0.3  # of a peak, where only small ones were


class OperatorTime(NamedTuple):
    """The time of one operator."""

    device_ns: float
    spread: float  # about how far off it may be, as a share
    bound: str  # what bounds it: compute, memory, or launch, if its start takes most of it
    ideal_ns: float  # what the device would need at its printed peaks
    known: bool  # something of its family and element type, and of about its size, was timed
    kernels: float = 1.0  # less for a part of what one kernel does


_AS_FAST_AS = {"float16": "bfloat16"}  # types that are as large as another and run on the same units


def _base_ns(law: Law, work: Work, peak: float, bandwidth: float) -> tuple[float, str]:
    """The time by the law alone, and what bounds it."""
    compute = work.flops / (law.compute * peak) * 1e9 if work.flops else 0.0
    memory = work.nbytes * work.idle / (law.memory * bandwidth) * 1e9
    longer = max(compute, memory)
    bound = "launch" if longer < law.start_ns else "compute" if compute > memory else "memory"
    return law.start_ns + longer, bound


def _ratio(law: Law, place: tuple[float, ...]) -> tuple[float, float]:
    """By how much operators near this place miss the law, and how far the nearest of them is.

    The median by weight: one that is laid out otherwise than its neighbours counts for itself alone.
    """
    found = law.near.closest(place, NEIGHBOURS)
    weights = sorted((ratio, (distance + CLOSE) ** -2) for distance, ratio in found)
    sums = list(accumulate(weight for _, weight in weights))
    ratio = next(ratio for (ratio, _), reached in zip(weights, sums, strict=True) if 2 * reached >= sums[-1])
    return ratio, min(distance for distance, _ in found)


def measured_work(row: Measured, rules: Rules) -> Work:
    """What a timed operator is to a device."""
    try:
        check_operator(row.kind, row.raw, row.attrs, len(row.ins), len(row.outs))
        cost, _, _ = apply_rule(rules, OpView(row.kind, row.raw, row.ins, row.outs, row.attrs))
        return work_of(row.kind, row.raw, row.attrs, row.ins, row.outs, cost)
    except (OpcostError, ArithmeticError, LookupError) as exc:
        hint = "make it again: opcost calibrate -o FILE"
        raise SourceError(f"this calibration is damaged: {exc}", hint=hint) from exc


def fit_laws(calibration: Calibration, rules: Rules) -> Laws:
    """The laws of a calibrated device."""
    rows = [(measured_work(row, rules), row) for row in calibration.rows]
    times = [(work, max(1, row.device_ns)) for work, row in rows]
    if calibration.device == HOST:  # a processor, which has no printed peaks: its best timed rates
        flops = max((work.flops / taken for work, taken in times), default=1.0) * 1e9
        bandwidth = max((work.nbytes / taken for work, taken in times), default=1.0) * 1e9
        home = replace(measured(round(flops), round(bandwidth)), name=HOST)
    else:
        home = find_device(calibration.device)
    timed: dict[tuple[str, str], list[tuple[Work, int]]] = {}
    for work, taken in times:
        timed.setdefault((work.family, work.dtype), []).append((work, taken))
    # Times of the host for each operator, for each kind, and under the empty name for any
    hosts: dict[str, list[int]] = {}
    for row in calibration.rows:
        for name in (row.raw, row.kind, "") if row.host_ns else ():
            hosts.setdefault(name, []).append(row.host_ns)
    host_ns = {name: float(median(found)) for name, found in hosts.items()}
    laws = Laws(
        home=home,
        meta=calibration.meta,
        operators=len(rows),
        host_ns=host_ns,
        host=calibration.host,
    )
    speeds = Speeds(laws, home)
    for key in sorted(timed, key=lambda key: key[0].startswith("conv")):  # a convolution's bias is a law of its own
        laws.laws[key] = speeds.fit([(work, speeds.without_bias(work, taken)) for work, taken in timed[key]])
    return laws


class Speeds:
    """The times of operators on a device: the calibrated one, or another by its shares of the peaks."""

    def __init__(self, laws: Laws, device: Device | None = None) -> None:
        switches = {"conv": "tf32_convolutions", "product": "tf32_products"}
        self.tf32 = {name: laws.meta.get(switch) == "on" for name, switch in switches.items()}
        self.laws, self._home, self.starts, self.beside = laws.laws, laws.home, laws.host_ns, laws.host
        self.device = device or self._home
        self._times: dict[Work, OperatorTime] = {}

    def merging(self, added: Laws | None = None) -> "Speeds":
        """These with the speeds of kernels that a compiler writes, which are alike on all devices as shares of the bandwidth.

        Convolutions run beside them at other speeds than alone, as was measured on the shipped device.
        """
        found, added = copy(self), added or kernels()
        laws = {**self.laws, **added.laws} if added.home == self._home else {**added.laws, **self.laws}
        vars(found).update(laws=laws, _times={})
        return found

    def without_bias(self, work: Work, taken: int) -> int:
        """The time of a convolution without its bias; a kernel that fuses the bias leaves at least a quarter."""
        added = 0.0 if work.bias is None else self._time(work.bias, self._home).device_ns
        return max(taken // 4, round(taken - added))

    def _peak(self, work: Work, device: Device) -> float:
        """FLOP/s at which a device multiplies elements of this type, with the switches of the calibration."""
        tf32 = self.tf32["conv" if work.family.startswith("conv") else "product"]
        slowest = min(device.flops.values(), default=TERA)
        return float(device.peak_flops(work.dtype, tf32=tf32) or device.peak_flops("float32") or slowest)

    def _base(self, law: Law, work: Work, device: Device, ratio: float) -> tuple[float, str]:
        """The time of an operator on a device by the law of the calibrated one, which it misses by a ratio."""
        peak = self._peak(work, device)
        if device.products and self._home.products:
            peak *= device.products / self._home.products
        return _base_ns(law, work, peak, self.reached(law.memory / ratio, device) * ratio / law.memory)

    def reached(self, share: float, device: Device | None = None) -> float:
        """Bytes per second of what reaches a share of the bandwidth on the calibrated device.

        What reaches all that memory gives there does so everywhere. Other operators wait for their instructions too, which
        multiprocessors issue as fast as their number and clock say.
        """
        home, device = self._home, device or self.device
        if device is home or share >= REACHED or home.issue_rate is None or device.issue_rate is None:
            return share * device.bandwidth
        issued = _without(share, REACHED) * home.bandwidth * device.issue_rate / home.issue_rate
        return _both(issued, REACHED * device.bandwidth)

    def fit(self, rows: list[tuple[Work, int]]) -> Law:
        """The law of one family from its timed operators."""
        home = self._home
        peak = self._peak(rows[0][0], home)
        ideals = [(w.flops / peak * 1e9, w.idle * w.nbytes / home.bandwidth * 1e9, ns) for w, ns in rows]
        times = sorted(ns for *ideal, ns in ideals if max(ideal) < SHORT_NS)
        start = 0.9 * times[len(times) // 50] if times else USUAL_START_NS
        compute = _share([(ideal, ns) for ideal, _, ns in ideals], start, 0.95)
        memory = _share([(ideal, ns) for _, ideal, ns in ideals], start, 0.9)
        bare = Law(start, compute, memory, 0.0, Neighbours())
        near = tuple(Near(work.place, ns / _base_ns(bare, work, peak, home.bandwidth)[0]) for work, ns in rows)
        # Of those that are equally far the quickest counts.
        return bare._replace(spread=_spread(near), near=Neighbours(sorted(near, key=attrgetter("ratio"))))

    def time(self, work: Work) -> OperatorTime:
        """The time of one operator on its own, in the middle of others."""
        found = self._times.get(work)
        if found is None:
            found = self._time(work, self.device)
            if work.bias is not None:
                found = found._replace(device_ns=found.device_ns + self.time(work.bias).device_ns)
            self._times[work] = found
        return found

    def _time(self, work: Work, device: Device) -> OperatorTime:
        peak = self._peak(work, device)
        ideal = max(work.flops / peak, work.nbytes / device.bandwidth) * 1e9
        types = (work.dtype, _AS_FAST_AS.get(work.dtype, work.dtype))
        known = ((family, self.laws.get((family, dtype))) for family in families(work) for dtype in types)
        family, law = next((found for found in known if found[1] is not None), ("", None))
        if law is not None:
            ratio, distance = _ratio(law, place_in(work, family))
            base, bound = self._base(law, work, device, ratio)
            spread = law.spread + FARTHER * distance if distance <= FAR else GUESS
            return OperatorTime(base * ratio, spread, bound, ideal, known=distance <= FAR)
        # The nearest family: in the same type, the one with the most words in common; else what only moves memory
        words = work.family.split()
        alike, most = None, 0
        for (family, dtype), each in self.laws.items():
            common = sum(a == b for a, b in zip(words, family.split(), strict=False))
            score = 2 * common + (dtype == work.dtype)
            if common and score > most:
                alike, most = each, score
        alike = alike or self.laws.get(("elementwise", work.dtype)) or self.laws.get(("elementwise", "float32"))
        base, bound = (ideal, "memory") if alike is None else self._base(alike, work, device, 1.0)
        return OperatorTime(base, GUESS, bound, ideal, known=False)


SHARPNESS = 4
"""How sharply one of two limits takes over from the other: near to both an operator reaches neither."""


def _both(a: float, b: float) -> float:
    """The rate under two limits."""
    return float((a**-SHARPNESS + b**-SHARPNESS) ** (-1 / SHARPNESS))


def _without(rate: float, limit: float) -> float:
    """The other limit of what reaches a rate below this one."""
    return float((rate**-SHARPNESS - limit**-SHARPNESS) ** (-1 / SHARPNESS))


def _share(rows: list[tuple[float, int]], start: float, most: float) -> float:
    """The share of a peak that most rows reach at best, by their times at the peak and as they were.

    Rows that take little longer than their start say little of it, however many they are.
    """
    found = sorted(ideal / max(1.0, ns - start / 2) for ideal, ns in rows)[int(most * (len(rows) - 1))]
    trust = min(1.0, max(ideal for ideal, _ in rows) / start)
    return found**trust * USUAL_SHARE ** (1 - trust) if found else 1.0


def _spread(near: tuple[Near, ...]) -> float:
    """The usual miss of a prediction from the nearest neighbour but oneself, of a sample of them."""
    step = max(1, len(near) // 16)
    misses = []
    for one in near[::step]:
        others = (other for other in near if other is not one)
        found = min(others, key=lambda other: dist(other.place, one.place), default=None)
        if found is not None:
            misses.append(log(found.ratio / one.ratio) ** 2)
    return sqrt(median(misses)) * 1.5 if misses else GUESS


@cache
def shipped_speeds(name: str) -> Speeds:
    """The speeds of a device of the table: of a calibrated one, else by the shares of the peaks that this one reaches."""
    return Speeds(shipped(name if name in SHIPPED else SHIPPED[0]), find_device(name))
