"""What kernels take for themselves while they run, by the nearest operators of which that was measured.

A library of convolutions brings images and weights into another order first, in memory as large as all of them together, or
does not, depending on sizes; so the share of an operator's own tensors is what neighbours have in common.
"""

from __future__ import annotations

from math import dist

from opcost.analysis.prediction.work import Work, families, scaled, work_of
from opcost.analysis.price import apply_rule
from opcost.core.report import Row
from opcost.devices.calibration import Calibration
from opcost.rules.registry import OpView, Rules

MEASURED = frozenset(
    {
        "aten::convolution", "aten::convolution_backward", "aten::roll", "aten::_softmax_backward_data",
        "aten::embedding_dense_backward",
    }
)  # fmt: skip
"""Operators that take memory beside what they hand back. Of others it is what a calibration does not ask back from them, as the
means of a normalisation, which a count has among the results."""

SAFE_SOFTMAX = "aten::_safe_softmax"
"""A softmax that asks of every element whether it is hidden, and keeps the answers, a byte each, while it runs."""
CONVOLUTION = (2.0, 1.0, 2.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.4, 0.1)
"""How much more than for its time each number of the place of a convolution tells: a bias takes none, sizes more."""


class Workspaces:
    """The memory beside their results that operators take on a calibrated device."""

    def __init__(self, calibration: Calibration, rules: Rules) -> None:
        self._near: dict[tuple[str, str], list[tuple[tuple[float, ...], float]]] = {}
        self._known: dict[Work, float] = {}
        for row in calibration.rows:
            if row.raw in MEASURED:
                cost, _, _ = apply_rule(rules, OpView(row.kind, row.raw, row.ins, row.outs, row.attrs))
                work = work_of(row.kind, row.raw, row.attrs, row.ins, row.outs, cost)
                share = row.workspace / max(1, work.nbytes)
                self._near.setdefault((work.family, work.dtype), []).append((_place(work), share))

    def of(self, row: Row) -> int:
        """Bytes that an operator takes while it runs."""
        if row.op.raw == SAFE_SOFTMAX:
            return sum(spec.numel for spec in row.ins[:1] if spec.known)
        work = work_of(row.op.kind, row.op.raw, row.op.attrs, row.ins, row.outs, row.cost)
        known = (self._near.get((family, work.dtype)) for family in families(work))
        near = next(filter(None, known), None)
        if near is None or row.op.kind == "view":
            return 0
        share = self._known.get(work)
        if share is None:
            here = _place(work)
            share = self._known[work] = min(near, key=lambda one: dist(one[0], here))[1]
        return round(share * work.nbytes)


def _place(work: Work) -> tuple[float, ...]:
    if not work.family.startswith("conv"):
        return work.place
    return scaled(work.place, CONVOLUTION)
