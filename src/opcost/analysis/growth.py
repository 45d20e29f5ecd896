"""Whole numbers that grow with a size: polynomials through a few counted ones, and the largest size that keeps to a limit.

What a model costs is made of products of its sizes, so what belongs to the same place of two runs (bytes live during one
operator, products of one row) is on a polynomial in the size that differs. The highest of many places does not, so a peak is
found from the whole curve: at another size it may be reached in another operator.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from math import isqrt, lcm, prod
from typing import NamedTuple

from opcost.core.graph import Lives
from opcost.core.report import Row

NEAREST = 3  # counted sizes that a polynomial goes through: no tensor has more than the square of one size
FARTHEST = 2**31  # no larger size is tried
PATIENCE = 3
"""How often polynomials may give a size that leaves more than half of those between, before these are halved instead."""
ROUNDS = 8  # of estimates, before the sizes between are searched by counts
HOP = 4  # how many times the largest known size is tried at most, where a run gets longer with the size


class SizeShares(NamedTuple):
    """How much each of some sizes has to say about another one, over a common denominator."""

    shares: tuple[int, ...]
    denominator: int

    def of(self, numbers: Sequence[int]) -> int | None:
        """The number there; None where the polynomial through these has no whole number there."""
        found, rest = divmod(sum(map(int.__mul__, self.shares, numbers)), self.denominator)
        return None if rest else found

    def near(self, numbers: Sequence[int]) -> int:
        """The number there, rounded down."""
        return sum(map(int.__mul__, self.shares, numbers)) // self.denominator


def weights(sizes: Sequence[int], size: int) -> SizeShares:
    """Of the polynomial through as many points as there are sizes, all of them different."""
    tops = [prod(size - other for other in sizes if other != each) for each in sizes]
    bottoms = [prod(each - other for other in sizes if other != each) for each in sizes]
    whole = lcm(*bottoms)
    return SizeShares(tuple(top * (whole // bottom) for top, bottom in zip(tops, bottoms, strict=True)), whole)


class Sample(NamedTuple):
    """What was counted at a size."""

    peak_bytes: int  # what is compared with the limit
    curve: Sequence[int]
    """Bytes live during each operator; its highest is the peak, or less than that by what an allocator loses."""
    lives: Lives | None = None  # the requests to the allocator of a device
    fixed_bytes: int = 0  # what is the same at every size: weights, gradients, an optimizer's state
    rows: Sequence[Row] = ()  # the operators, of which a device knows the workspaces
    update: int | None = None  # the place of an optimizer's first operator

    def reaches(self, size: int, limit: int) -> int:
        """About the largest size within the limit, if all but the fixed bytes grows with it, as from none at this size."""
        growing = max(self.curve, default=self.peak_bytes) - self.fixed_bytes
        return max(size + 1, size * (limit - self.fixed_bytes) // max(1, growing))


class LargestSize(NamedTuple):
    """The largest size that keeps to a limit."""

    largest: int
    following: int  # the next larger one, which was counted too and does not


Estimate = Callable[[Mapping[int, Sample], int, int, "int | None"], "LargestSize | None"]
"""The answer from samples, the limit, a size that fits and one above that does not; None where there is nothing to go by."""


def largest(
    counted: Callable[[int], Sample | None], limit: int, known: Mapping[int, Sample], lowest: int = 1,
    estimate: Estimate | None = None, *, both: bool = True,
) -> LargestSize | None:  # fmt: skip
    """The largest size whose peak is within the limit, such that the next one's is above; None where all sizes keep to it.

    `counted` counts a size, None where the model does not run at it; `known` are sizes that were counted before, and `lowest` is
    among them and within the limit. Where to count next follows from an estimate or from polynomials; where these are wrong,
    the sizes between are halved, so that the answer rests on counts alone. Unless `both` are wanted, the next size is not
    counted where the estimate is the same with the count of the largest.
    """
    samples: dict[int, Sample | None] = dict(known)

    def fits(size: int) -> bool:
        if size not in samples:
            samples[size] = counted(size)
        found = samples[size]
        return found is not None and found.peak_bytes <= limit

    def bounds() -> tuple[int, int | None]:
        low = max(size for size in samples if size >= lowest and fits(size))
        return low, min((size for size in samples if size > low), default=None)

    low, high = bounds()
    misses, stride, rounds = 0, 1, ROUNDS
    while high is None or high - low > 1:
        if estimate is not None and rounds:
            counts = {size: sample for size, sample in samples.items() if sample is not None}
            if (likely := estimate(counts, limit, low, high)) is not None:
                if not both and likely.largest in counts:
                    return likely
                rounds -= 1
                fits(likely.following if likely.largest in counts else likely.largest)
                low, high = bounds()
                continue
        refused = high is not None and samples[high] is None  # which no polynomial predicts
        guess = None if refused or misses > PATIENCE else _predicted(samples, limit, low, high)
        if guess is None:
            misses, guess = 0, min(2 * low, FARTHEST)
            if high is not None:  # of the same order as both, or halfway
                guess = isqrt(low * high) if high > 4 * low else (low + high) // 2
        size = guess if guess > low else low + stride
        if high is not None:
            size = max(low + 1, min(size, high - (stride if guess == high - 1 else 1)))
        before = FARTHEST if high is None else high - low
        fit = fits(size)
        if fit and size >= FARTHEST:
            return None
        # Where a bound that was predicted to be the answer is not, the answer is not just beside it.
        stride = HOP * stride if (fit and guess <= low) or (not fit and high is not None and guess == high - 1) else 1
        low, high = (size, high) if fit else (low, size)
        misses = 0 if high is not None and 2 * (high - low) <= before else misses + 1
    return LargestSize(low, high)


def _predicted(samples: Mapping[int, Sample | None], limit: int, low: int, high: int | None) -> int | None:
    """The largest size that keeps to the limit by polynomials; None where there is nothing to go by."""
    known = {size: sample for size, sample in samples.items() if sample is not None}
    alike = [size for size, sample in known.items() if len(sample.curve) == len(known[low].curve)]
    if len(known) < 2:
        return None
    end = FARTHEST if high is None else high - 1
    by_curve = len(alike) > 1
    sizes = sorted(alike if by_curve else known, key=lambda size: abs(size - low))[:NEAREST]
    if not by_curve:  # runs of other operators, which share no curve with these: only the peaks are left
        end = min(end, HOP * low, known[low].reaches(low, limit))
        return within_all(sizes, [(known[size].peak_bytes,) for size in sizes], limit, low, end)
    curves = [known[size].curve for size in sizes]
    found = within_all(sizes, curves, limit, low, end)
    near = min(alike, key=lambda size: max(size, found) / min(size, found))
    highest = max(known[near].curve, default=0)
    if highest == known[near].peak_bytes or max(near, found) > HOP * min(near, found):
        return found
    # What an allocator loses at a size, it loses at others nearby too.
    return within_all(sizes, curves, limit * highest // known[near].peak_bytes, low, end)


def within_all(sizes: Sequence[int], curves: Sequence[Sequence[int]], limit: int, low: int, end: int) -> int:
    """The largest size from `low` to `end` at which every place of the curves is within the limit."""
    places = set(zip(*curves, strict=True))
    while end > low:
        at = weights(sizes, end)
        heights = max(places, key=at.near)
        if at.near(heights) <= limit:
            break
        below = low
        while end - below > 1:  # the largest size at which this place is
            middle = (below + end) // 2
            below, end = (middle, end) if weights(sizes, middle).near(heights) <= limit else (below, middle)
        end = below
    return end


# -- many sizes ------------------------------------------------------------------------------------------------------------

Sizes = tuple[int, ...]


def over_grid(
    axes: Sequence[Sequence[int]], counted: Callable[[Sizes], Sequence[int] | None]
) -> Iterator[tuple[Sizes, Sequence[int] | None]]:
    """The numbers at each combination of sizes, None where the model does not run.

    Three sizes of each axis are counted, with all of the others', and one more of each to check the polynomials. Where
    these hold to the last number, they give the rest; else every combination is counted.
    """
    known: dict[Sizes, Sequence[int] | None] = {}

    def number(sizes: Sizes) -> Sequence[int] | None:
        if sizes not in known:
            known[sizes] = counted(sizes)
        return known[sizes]

    # Of an axis of four there is nothing to save: three and a check are all.
    ends = [axis if len(axis) <= NEAREST + 1 else (axis[0], axis[len(axis) // 2], axis[-1]) for axis in axes]
    between = [axis[len(axis) // 4] if len(axis) > NEAREST + 1 else axis[-1] for axis in axes]
    saves = any(len(end) < len(axis) for axis, end in zip(axes, ends, strict=True))
    polynomial = saves and _holds(ends, between, number)
    for sizes in product(*axes):
        found = _at(ends, sizes, known) if polynomial and sizes not in known else None
        yield sizes, number(sizes) if found is None else found


def _holds(
    ends: Sequence[Sequence[int]], between: Sequence[int], number: Callable[[Sizes], Sequence[int] | None]
) -> bool:
    """Whether polynomials through the ends give what is counted between them: on each axis alone, and on all."""
    lengths = set()
    for sizes in product(*ends):
        found = number(sizes)
        lengths.add(None if found is None else len(found))
        if len(lengths) > 1 or None in lengths:
            return False
    corner = [end[-1] for end in ends]
    checks = {tuple(between), *((*corner[:i], middle, *corner[i + 1 :]) for i, middle in enumerate(between))}
    known = {each: number(each) for each in product(*ends)}
    return all(_at(ends, sizes, known) == number(sizes) for sizes in checks)


def _at(ends: Sequence[Sequence[int]], sizes: Sizes, known: Mapping[Sizes, Sequence[int] | None]) -> list[int] | None:
    """The numbers by the polynomials through the ends; None where one is not whole."""
    each = [weights(end, size) for end, size in zip(ends, sizes, strict=True)]
    joint = SizeShares(tuple(map(prod, product(*(one.shares for one in each)))), prod(one.denominator for one in each))
    columns = [found for corner in product(*ends) if (found := known[corner]) is not None]
    whole = [number for numbers in zip(*columns, strict=True) if (number := joint.of(numbers)) is not None]
    return whole if not columns or len(whole) == len(columns[0]) else None
