"""The memory that operators take for themselves while they run, by the nearest operators of which that was measured.

Kernels for tensor cores read the channels of a pixel side by side, in whole vectors. A convolution whose tensors are laid out
otherwise is either run by another kernel, or cuDNN first brings its image, weights and result into that order, in memory as large
as all of them with their channels padded. Which of the two it does depends on sizes: it is what most neighbours do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log2, prod
from statistics import median_low

from opcost.analysis.prediction.work import Work, alignment, convolved, families, scaled, work_of
from opcost.core.graph import Attrs, TensorSpec, nbytes
from opcost.core.report import Row
from opcost.devices.allocator import BLOCK, SMALL
from opcost.devices.calibration import Measured
from opcost.devices.neighbours import Near, Neighbours

MEASURED = (
    "aten::convolution", "aten::convolution_backward", "aten::roll", "aten::_softmax_backward_data",
    "aten::embedding_dense_backward",
)  # fmt: skip
"""Operators that take memory beside what they hand back. Of others it is what a calibration does not ask back from them, as the
means of a normalisation, which a count has among the results."""

SAFE_SOFTMAX = "aten::_safe_softmax"
"""A softmax that checks of every element whether it is hidden, and keeps the answers, a byte each, while it runs."""

NEIGHBOURS = 5
FAR = 4.0
"""A distance from which nothing alike was measured. One over 128 samples of sound converts no more than its image."""
_VECTOR = 16  # bytes that a kernel reads at once
_COLOURS = 8  # an image of fewer channels is the model's input, for which there are kernels of their own
_SCALES = (0.3, 0.5, 0.4, 1.5, 1.4, 0.6, 0.8, 5.0, 2.0)
"""How much one step along each number of a place weighs: a calibration's convolutions are predicted best by the others of it."""


class Workspaces:
    """The memory beside their results that operators take on a calibrated device."""

    def __init__(self, near: Mapping[tuple[str, str], Neighbours]) -> None:
        self._near = near
        self._kinds = {family.split()[0] for family, _ in near}  # families of all but products begin with it
        self._known: dict[Work, int] = {}

    def of(self, row: Row) -> int:
        """What an operator takes while it runs."""
        if row.op.raw == SAFE_SOFTMAX:
            return sum(spec.numel for spec in row.ins[:1] if spec.known)
        if row.op.kind not in self._kinds:
            return 0
        work = work_of(row.op.kind, row.op.raw, row.op.attrs, row.ins, row.outs, row.cost)
        if row.op.kind == "conv":
            work = converted(work.dtype, row.op.attrs, row.ins, row.outs) or work
        found = self._known.get(work)
        if found is None:
            found = self._known[work] = self._of(work)
        return found

    def _of(self, work: Work) -> int:
        types = (work.dtype, "bfloat16") if work.dtype == "float16" else (work.dtype,)  # as large, on the same units
        known = (self._near.get((family, dtype)) for family in families(work) for dtype in types)
        near = next(filter(None, known), None)
        closest = near.closest(work.place, NEIGHBOURS) if near is not None else []
        if not closest or closest[0][0] > FAR:
            return 0
        return round(median_low(share for _, share in closest) * work.nbytes)


def shares(rows: Sequence[tuple[Work, Measured]]) -> dict[tuple[str, str], Neighbours]:
    """The workspaces of measured operators as shares, by family and element type."""
    found: dict[tuple[str, str], list[Near]] = {}
    for work, row in rows:
        if row.raw in MEASURED:
            whole = (converted(work.dtype, row.attrs, row.ins, row.outs) if row.kind == "conv" else None) or work
            found.setdefault((whole.family, whole.dtype), []).append(
                Near(whole.place, _share(row.workspace, whole.nbytes))
            )
    return {key: Neighbours(near) for key, near in found.items()}


def _share(workspace: int, whole: int) -> float:
    """The share without what the allocator adds: whole blocks, and up to 1 MiB that is not worth splitting."""
    added = workspace - whole
    return 1.0 if 0 <= added <= (SMALL if whole > SMALL else 0) + 3 * BLOCK else workspace / max(1, whole)


def converted(dtype: str, attrs: Attrs, ins: Sequence[TensorSpec], outs: Sequence[TensorSpec]) -> Work | None:
    """A convolution as the conversion of all its tensors, of which its workspace is a share; None of unknown shapes."""
    ins, outs = ([spec for spec in specs if spec.known] for specs in (ins, outs))
    if len(ins) < 2 or not outs:
        return None
    backward = bool(attrs.get("grads"))
    image, weight, result = (spec.dims for spec in convolved(ins, outs, backward=backward))
    if attrs.get("transposed"):
        image, result = result, image
    groups = max(1, image[1] // max(1, weight[1]))
    window, places = prod(weight[2:]), prod(result[2:])
    step = -(-image[-1] // max(1, result[-1]))

    def padded(channels: int) -> int:
        """In whole vectors; of each of many groups, in a power of two."""
        vector = _VECTOR // max(1, nbytes(1, dtype))
        return 1 << (channels - 1).bit_length() if groups > 1 else -(-channels // vector) * vector

    read, made = padded(weight[1]), padded(result[1] // groups)
    elements = groups * (read * prod(image) // image[1] + made * prod(result) // result[1])
    if window > 1:  # else both orders are the same
        elements += groups * made * read * window
    shape = (
        "depthwise" if groups == image[1] > 1 else "grouped" if groups > 1 else "colours" if image[1] < _COLOURS
        else "pointwise" if window == 1 else "window"
    )  # fmt: skip
    words = ("conv", shape, "backward" if backward else "", "channels-last" if attrs.get("channels_last") else "")
    whole_group = groups > 1 and read == weight[1]
    sizes = (result[0] * places, image[1], result[1], window, step, result[0])
    place = (
        *(log2(max(1, size)) for size in sizes),
        alignment(places),
        float(whole_group),
        float(step == weight[-1] > 1),
    )
    return Work(" ".join(filter(None, words)), dtype, 0, nbytes(elements, dtype), scaled(place, _SCALES))
