"""The largest size that fits, estimated from what is counted at a few sizes: what seems to be the answer has to be counted.

Tensors grow as polynomials. What the allocator of a device loses does not, but that is simulated from their requests in a
fraction of the time of a count, so that many sizes can be tried. Workspaces do not either: they follow from the shapes of their
operator, which are on lines.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import accumulate
from typing import Any

from opcost.analysis.growth import FARTHEST, NEAREST, LargestSize, Sample, weights, within_all
from opcost.analysis.prediction.lengths import NoLine, row_between
from opcost.core.graph import Lives
from opcost.core.report import Row
from opcost.devices.allocator import allocated_blocks, reserved

FIRST = 200  # the first step down from the size at which the tensors alone reach the limit is this part of it
ISLANDS = (5, 3, 2, 1)  # how far above a size that fits others are tried, though one between does not
REFINEMENTS = 8  # how often workspaces are found at the estimate

Workspace = Callable[[Row], int]
"""The bytes that an operator takes for itself on a device."""


def estimated_largest(
    samples: Mapping[int, Sample], limit: int, low: int, high: int | None, workspace: Workspace | None = None
) -> LargestSize | None:
    """The largest size that fits from `low`, which does, to below `high`, and the next one; None where nothing is to go by."""
    likely = _estimated(samples, limit, low, high, about=workspace is not None)
    for again in range(REFINEMENTS if workspace is not None else 0):
        if likely is None or (again and likely.largest in samples):
            break
        if likely.largest not in samples and (there := sample_between(samples, likely.largest, workspace)) is not None:
            if again and there.lives == _requests(samples, likely.largest):
                break
            samples = {**samples, likely.largest: there}
            if there.lives is not None and reserved(there.lives, limit) is not None:
                low = likely.largest
        likely = _estimated(samples, limit, low, high)
    return likely


def _estimated(
    samples: Mapping[int, Sample], limit: int, low: int, high: int | None, *, about: bool = False
) -> LargestSize | None:
    """The same by workspaces between those counted, or only `about` that size."""
    sizes = _nearest(samples, low)
    if len(sizes) < 2:
        return None
    counted = [samples[size] for size in sizes]  # without what an allocator adds to tensors
    curves = [sample.curve if sample.lives is None else _bytes_live(sample.lives) for sample in counted]
    top = within_all(sizes, curves, limit, low, FARTHEST if high is None else high - 1)
    if top == FARTHEST or samples[low].lives is None:
        return None if top == FARTHEST else LargestSize(top, top + 1)

    @cache
    def fits(size: int) -> bool:
        return reserved(_requests(samples, size), limit) is not None

    # It does not rise with every size: what lies highest is looked for first, then what is a little above that
    first = max(1, top // FIRST)
    above, size, step = top + 1, top, first
    while size > low and not fits(size):
        above, size, step = size, max(low, size - step), 2 * step
    while above - size > (first if about else 1):
        middle = (size + above) // 2
        size, above = (middle, above) if fits(middle) else (size, middle)
    islands = () if about else ISLANDS
    while (
        higher := next((size + more for more in islands if size + more <= top and fits(size + more)), None)
    ) is not None:
        size = higher
    return LargestSize(size, size + 1)


def reached(sample: Sample, size: int, limit: int) -> int:
    """About the largest size within the limit, by one that was counted: all that is freed before an update grows with it."""
    lives = sample.lives
    if lives is None:
        return sample.reaches(size, limit)
    end = sample.update or max(lives.deaths, default=0)
    parts = [part if dead <= end else 0 for part, dead in zip(lives.sizes, lives.deaths, strict=True)]
    growing = _bytes_live(replace(lives, lasting=(), sizes=parts))
    least = min(
        (
            size * (limit - whole + part) // part
            for whole, part in zip(_bytes_live(lives), growing, strict=True)
            if part
        ),
        default=size,
    )
    return max(size + 1, least)


def follows_lines(samples: Mapping[int, Sample]) -> bool:
    """Whether the largest sizes have all tensors on lines, to the byte, that leave none below zero at no size.

    A square is on no line through three sizes, and on one through two that does.
    """
    sizes = _nearest(samples, max(samples, default=0))
    if len(sizes) < 2:
        return False
    numbers = [[number for some in _numbers(samples[size]) for number in some] for size in sizes]
    start, at = weights(sizes[:2], 0), weights(sizes[:2], sizes[-1])
    return all(
        (least := start.of(pair)) is not None and least >= 0 and at.of(pair) == last
        for *pair, last in zip(*numbers[:2], numbers[-1], strict=True)
    )


def sample_between(samples: Mapping[int, Sample], size: int, workspace: Workspace | None = None) -> Sample | None:
    """What would be counted at a size, from what was counted at the nearest; None where these are not alike."""
    sizes = _nearest(samples, size)
    if len(sizes) < 2:
        return None
    near = samples[sizes[0]]
    if near.lives is None:
        on = weights(sizes, size)
        curve = [on.near(bytes_there) for bytes_there in zip(*(samples[each].curve for each in sizes), strict=True)]
        return Sample(max(curve, default=0), curve, None, near.fixed_bytes)
    lives = _requests(samples, size)
    if workspace is not None:
        if (taken := _workspaces(samples, size, workspace)) is None:
            return None
        lives = replace(lives, workspaces=taken)
    blocks = allocated_blocks(lives)
    tensors = blocks.lasting[1:]  # without what libraries have
    curve = _bytes_live(
        replace(lives, lasting=tensors, inputs=blocks.inputs, sizes=blocks.sizes, workspaces=blocks.workspaces)
    )
    return Sample(max(curve, default=0), curve, lives, near.fixed_bytes)


def _workspaces(samples: Mapping[int, Sample], size: int, workspace: Workspace) -> list[int] | None:
    """The workspace of each operator at a size, by its shapes there; None where these are not on lines."""
    counted = _nearest({each: sample for each, sample in samples.items() if sample.rows}, size)
    if len(counted) < 2:
        return None
    low, high = counted[:2]
    on = weights((low, high), size)
    known: dict[tuple[int, ...], int] = {}
    found = []
    try:
        for a, b in zip(samples[low].rows, samples[high].rows, strict=True):
            if not a.op.repeat:
                found.append(0)
                continue
            # Equal operators share their attributes and specs
            key = (id(a.op.attrs), *map(id, a.ins), *map(id, a.outs), *map(id, b.ins), *map(id, b.outs))
            if key not in known:
                known[key] = workspace(row_between(a._replace(cost=None), b._replace(cost=None), on))
            found.append(known[key])
    except (NoLine, ValueError):
        return None
    return found


def _numbers(sample: Sample) -> tuple[Sequence[int], ...]:
    """What is on polynomials: the bytes of each tensor, or where these are not known, those live during each operator."""
    lives = sample.lives
    return (sample.curve,) if lives is None else (lives.lasting, lives.inputs, lives.sizes)


def _bytes_live(lives: Lives) -> list[int]:
    """Bytes in use during each operator."""
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

    def along(name: str, points: int, least: int) -> list[int]:
        on = weights(sizes[:points], size)
        columns = [*zip(*(getattr(each, name) for each in lives[:points]), strict=True)]
        known = {column: max(least, on.near(column)) for column in set(columns)}
        return [known[column] for column in columns]

    tensors: dict[str, Any] = {name: along(name, NEAREST, 1) for name in ("lasting", "inputs", "sizes")}
    return replace(lives[0], **tensors, workspaces=along("workspaces", 2, 0))
