"""The memory that operators take for themselves while they run, by the nearest operators of which that was measured.

Kernels for tensor cores read the channels of a pixel side by side, in whole vectors. A convolution whose tensors are laid out
otherwise is either run by another kernel, or cuDNN first brings its image, weights or result into that order, in memory as large
as these with their channels padded. One with few results is also divided along the channels that it sums up, and every slice
has results of its own. cuDNN chooses by sizes, by a rule that is not public: it is what most of the neighbours do.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from math import ceil, log2, prod
from statistics import median_low
from typing import NamedTuple

from opcost.analysis.prediction.speeds import measured_work
from opcost.analysis.prediction.work import Work, convolved, families, scaled, work_of
from opcost.core.graph import Attrs, TensorSpec, nbytes
from opcost.core.report import Row
from opcost.devices.allocator import BLOCK, SMALL
from opcost.devices.calibration import Measured, Taken
from opcost.devices.neighbours import Near, Neighbours
from opcost.rules.registry import Rules

MEASURED = (
    "aten::convolution", "aten::convolution_backward", "aten::roll", "aten::_softmax_backward_data",
    "aten::embedding_dense_backward",
)  # fmt: skip
"""Operators that take memory beside what they hand back. Of others it is what a calibration does not ask back from them, as the
means of a normalisation, which a count has among the results."""

SAFE_SOFTMAX = "aten::_safe_softmax"
"""A softmax that checks of every element whether it is hidden, and keeps the answers, a byte each, while it runs."""

NEIGHBOURS = 5
SURE = 0.01  # a neighbour counts by its nearness: one at this distance half as much as one of the same sizes
FAR = 4.0
"""A distance from which nothing alike was measured. One over 128 samples of sound converts no more than its image."""
POWERS = 8
"""What a convolution takes is a number: the sum of 1, 2 and 4 if image, weights and result are converted, and of this if groups
of channels are padded to powers of two; or, below zero, how many products each slice sums up."""
_VECTOR = 16  # bytes that a kernel reads at once
_COLOURS = 8  # an image of fewer channels is the model's input, for which there are kernels of their own
_SCALES = (0.18, 0.6, 0.4, 0.6, 1.4, 0.15, 1.0, 1.0, 2.1, 1.12, 0.1, 0.14)
"""How much one step along each number of a place weighs: convolutions of each family of models are predicted best by others."""


class Workspaces:
    """The memory beside their results that operators take on a calibrated device."""

    def __init__(self, near: Taken) -> None:
        self._near = near
        self._kinds = {family.split()[0] for family, _ in near}  # families of all but products begin with it
        self._known: dict[Work, int] = {}

    def of(self, row: Row) -> int:
        """What an operator takes while it runs."""
        if row.op.raw == SAFE_SOFTMAX:
            return sum(spec.numel for spec in row.ins[:1] if spec.known)
        if row.op.kind not in self._kinds:
            return 0
        return self._by_neighbours(row) + _copied(row)

    def _by_neighbours(self, row: Row) -> int:
        if row.op.kind == "conv" and (conversion := conversion_of(row.op.attrs, row.ins, row.outs)):
            work = conversion.work
        else:
            conversion = None
            work = work_of(row.op.kind, row.op.raw, row.op.attrs, row.ins, row.outs, row.cost)
        found = self._known.get(work)
        if found is None:
            closest = self._closest(work)
            if not closest or closest[0][0] > FAR:
                found = 0
            elif conversion:
                found = conversion.taken(_chosen_by_most(closest))
            else:
                found = round(median_low(share for _, share in closest) * work.nbytes)
            self._known[work] = found
        return found

    def _closest(self, work: Work) -> list[tuple[float, float]]:
        types = (work.dtype, "bfloat16") if work.dtype == "float16" else (work.dtype,)  # as large, on the same units
        known = (self._near.get((family, dtype)) for family in families(work) for dtype in types)
        near = next(filter(None, known), None)
        return near.closest(work.place, NEIGHBOURS) if near is not None else []


def _copied(row: Row) -> int:
    """The bytes of tensors that are copied because they lie otherwise than their kernel reads them."""
    names = row.op.attrs.get("copied")
    copied = names if isinstance(names, tuple) else ()
    return sum(
        spec.nbytes for name, spec in zip(("image", "weight"), row.ins, strict=False) if name in copied and spec.known
    )


def _chosen_by_most(closest: Sequence[tuple[float, float]]) -> float:
    """What most neighbours take; of several in slices the nearest."""
    votes: defaultdict[float, float] = defaultdict(float)
    for distance, taken in closest:
        votes[max(taken, -1.0)] += 1 / (distance + SURE)
    most = max(votes, key=votes.__getitem__)
    return next(taken for _, taken in closest if max(taken, -1.0) == most)


def fit_workspaces(rows: Iterable[Measured], rules: Rules) -> Taken:
    """What measured operators took."""
    found: dict[tuple[str, str], list[Near]] = {}
    for row in rows:
        if row.raw in MEASURED:
            conversion = conversion_of(row.attrs, row.ins, row.outs) if row.kind == "conv" else None
            work = conversion.work if conversion else measured_work(row, rules)
            taken = conversion.choice(row.workspace) if conversion else _share(row.workspace, work.nbytes)
            found.setdefault((work.family, work.dtype), []).append(Near(work.place, taken))
    return {key: Neighbours(near) for key, near in found.items()}


def _added(workspace: int, whole: int) -> tuple[bool, int]:
    """By how much a workspace differs, and first whether by more than an allocator adds: whole blocks, and unsplit rests."""
    more = workspace - whole
    return not 0 <= more <= (SMALL if whole > SMALL else 0) + 3 * BLOCK, abs(more)


def _share(workspace: int, whole: int) -> float:
    return workspace / max(1, whole) if _added(workspace, whole)[0] else 1.0


# -- convolutions ---------------------------------------------------------------------------------------------------------


class Conversion(NamedTuple):
    """A convolution as the tensors that may be converted for it."""

    work: Work
    vectors: tuple[int, int, int]
    """Bytes of image, weights and result with their channels in whole vectors."""
    powers: tuple[int, int, int]
    """The same with the channels of a group in powers of two."""
    result: int  # bytes
    depth: int  # products of a sum

    def taken(self, choice: float) -> int:
        """The bytes of what a neighbour takes."""
        if choice < 0:
            return ceil(self.depth / -choice - 1e-6) * self.result
        sizes = self.powers if int(choice) & POWERS else self.vectors
        return sum(size for bit, size in enumerate(sizes) if int(choice) >> bit & 1)

    def choice(self, workspace: int) -> float:
        """The number that comes nearest to measured bytes."""
        every = [float(each) for each in range(POWERS if self.powers == self.vectors else 2 * POWERS)]
        slices = round(workspace / self.result)
        if slices > 1:
            every.append(-self.depth / slices)
        return min(every, key=lambda choice: _added(workspace, self.taken(choice)))


def conversion_of(attrs: Attrs, ins: Sequence[TensorSpec], outs: Sequence[TensorSpec]) -> Conversion | None:
    """A convolution by its tensors; None of unknown shapes."""
    ins, outs = ([spec for spec in specs if spec.known] for specs in (ins, outs))
    if len(ins) < 2 or not outs:
        return None
    backward = bool(attrs.get("grads"))
    dtype = next((spec.dtype for spec in (*ins, *outs) if "float" in spec.dtype), "float32")
    image, weight, result = (spec.dims for spec in convolved(ins, outs, backward=backward))
    if attrs.get("transposed"):
        image, result = result, image
    groups = max(1, image[1] // max(1, weight[1]))
    read, made = weight[1], result[1] // groups
    window, places = prod(weight[2:]), prod(result[2:])
    step = -(-image[-1] // max(1, result[-1]))
    vector = _VECTOR // max(1, nbytes(1, dtype))

    def padded(*, powers: bool) -> tuple[int, int, int]:
        reads, makes = (
            1 << (channels - 1).bit_length() if powers else -(-channels // vector) * vector for channels in (read, made)
        )
        images, results = (groups * prod(dims) // max(1, dims[1]) for dims in (image, result))
        return (
            nbytes(reads * images, dtype),
            nbytes(groups * reads * makes * window, dtype),
            nbytes(makes * results, dtype),
        )

    shape = (
        "depthwise" if groups == image[1] > 1 else "grouped" if groups > 1 else "colours" if image[1] < _COLOURS
        else "pointwise" if window == 1 else "window"
    )  # fmt: skip
    words = ("conv", shape, "backward" if backward else "", "channels-last" if attrs.get("channels_last") else "")
    sizes = (result[0] * places, image[1], result[1], window, step, result[0])
    place = (
        *(log2(max(1, size)) for size in sizes),
        *(
            min(_halvings(size), vector.bit_length() - 1) / max(1, vector.bit_length() - 1)
            for size in (places, read, made)
        ),
        log2(max(1, read)),
        *(float(_halvings(channels)) for channels in (read, made)),
    )
    vectors = padded(powers=False)
    work = Work(" ".join(filter(None, words)), dtype, 0, sum(vectors), scaled(place, _SCALES))
    powers = padded(powers=True) if groups > 1 else vectors
    return Conversion(work, vectors, powers, nbytes(prod(result), dtype), read * window)


def _halvings(size: int) -> int:
    """How many times a size can be halved, up to a multiple of 128."""
    return min((size & -size).bit_length() - 1, 7) if size else 0
