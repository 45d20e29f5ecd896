"""The largest size that fits, estimated from what is counted at a few sizes: what seems to be the answer has to be counted.

Tensors grow as polynomials. What the allocator of a device loses does not, but that is simulated from their requests in a
fraction of the time of a count, so that many sizes can be tried.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

from opcost.analysis.growth import FARTHEST, NEAREST, LargestSize, Sample, weights, within_all
from opcost.core.graph import Lives
from opcost.devices.allocator import reserved

FIRST = 200  # the first step down from the size at which the tensors alone reach the limit is this part of it


def estimated_largest(samples: Mapping[int, Sample], limit: int, low: int, high: int | None) -> LargestSize | None:
    """The largest size that fits from `low`, which does, to below `high`, and the next one; None where nothing is to go by."""
    sizes = _nearest(samples, low)
    if len(sizes) < 2:
        return None
    curves = [_curve(samples[size]) for size in sizes]
    top = within_all(sizes, curves, limit, low, FARTHEST if high is None else high - 1)
    if top == FARTHEST or samples[low].lives is None:
        return None if top == FARTHEST else LargestSize(top, top + 1)

    def fits(size: int) -> bool:
        return reserved(_requests(samples, size), limit) is not None

    # It does not rise with every size: what lies highest is looked for first
    above, size, step = top + 1, top, max(1, top // FIRST)
    while size > low and not fits(size):
        above, size, step = size, max(low, size - step), 2 * step
    while above - size > 1:
        middle = (size + above) // 2
        size, above = (middle, above) if fits(middle) else (size, middle)
    return LargestSize(size, above)


def _curve(sample: Sample) -> Sequence[int]:
    """Bytes of tensors during each operator, without what an allocator adds to them."""
    lives = sample.lives
    if lives is None:
        return sample.curve
    changes = [0] * (len(lives.workspaces) + 1)
    for born, dead, size in zip(lives.births, lives.deaths, lives.sizes, strict=True):
        changes[born] += size
        changes[min(dead, len(lives.workspaces))] -= size
    there = [*accumulate(changes[:-1], initial=sum(lives.lasting) + sum(lives.inputs))][1:]
    return [size + workspace for size, workspace in zip(there, lives.workspaces, strict=True)]


def _nearest(samples: Mapping[int, Sample], size: int) -> list[int]:
    """The sizes nearest to one, of those at which the same operators ran and as many tensors were made and freed."""

    def run(each: int) -> object:
        lives = samples[each].lives
        tensors = lives and (len(lives.lasting), len(lives.inputs), lives.births, lives.deaths)
        return len(samples[each].curve), tensors

    order = sorted(samples, key=lambda each: abs(each - size))
    return [each for each in order if run(each) == run(order[0])][:NEAREST]


def _requests(samples: Mapping[int, Sample], size: int) -> Lives:
    """The requests to the allocator at a size; workspaces follow no polynomial, so those of the two nearest sizes count."""
    sizes = _nearest(samples, size)
    lives = [lives for each in sizes if (lives := samples[each].lives) is not None]

    def along(name: str, points: int) -> list[int]:
        on = weights(sizes[:points], size)
        columns = [*zip(*(getattr(each, name) for each in lives[:points]), strict=True)]
        known = {column: max(0, on.near(column)) for column in set(columns)}
        return [known[column] for column in columns]

    tensors: dict[str, Any] = {name: along(name, NEAREST) for name in ("lasting", "inputs", "sizes")}
    return replace(lives[0], **tensors, workspaces=along("workspaces", 2))
