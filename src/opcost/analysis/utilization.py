"""How much of a device's peak a step of some duration uses, under the conventions that people compare by."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from opcost.core.devices import Device
from opcost.core.graph import FLOPS_PER_MAC
from opcost.core.report import Report
from opcost.errors import InputError, UnknownName

CONVENTIONS = {
    "executed": "every product that runs, recomputed ones too; 2 FLOPs for each multiply-accumulate",
    "6N": "6 FLOPs for each parameter and token",
    "6N+attention": "6 FLOPs for each parameter and token, and 12 for each layer, head, feature and key (PaLM)",
    "2N": "2 FLOPs for each parameter and token, of a forward pass",
    "2N+attention": "2 FLOPs for each parameter and token, and 4 for each layer, head, feature and key, of a forward pass",
}
"""What counts as the work of a step."""


class StepFlops(NamedTuple):
    """The work of a step, and what a device needs for it at its peaks."""

    convention: str
    flops: int
    peak: float  # FLOP/s: of one element type its peak, of several such that the step would take the sum of their times
    dtypes: tuple[str, ...]

    def used(self, seconds: float) -> float:
        """The share of the peak that a step of this duration uses."""
        return self.flops / (self.peak * seconds)


def step_flops(report: Report, device: Device, convention: str = "executed", *, tf32: bool = False) -> StepFlops:
    """The work of the step that a report counted."""
    if convention not in CONVENTIONS:
        raise UnknownName("convention", convention, CONVENTIONS)
    # FLOPs of products by the type of what is multiplied
    by_type: Counter[str] = Counter()
    attention = 0
    for row in report.rows:
        if row.cost is not None and row.cost.macs:
            flops = FLOPS_PER_MAC * row.cost.macs * row.op.repeat
            by_type[row.ins[0].dtype if row.ins else "float32"] += flops
            attention += flops if row.op.kind == "attention" and row.op.phase == "forward" else 0
    if not by_type:
        raise InputError("nothing is multiplied in this step, so it uses nothing of a peak")
    seconds = 0.0
    for dtype, flops in by_type.items():
        peak = device.peak_flops(dtype, tf32=tf32)
        if peak is None:
            hint = "give one: opcost.core.devices.measured(flops, bandwidth)"
            raise InputError(f"of {device.name} no peak for products of {dtype} is known", hint=hint)
        seconds += flops / peak
    flops = by_type.total()
    if convention != "executed":
        trains = any(phase == "backward" for phase in report.phases)
        if trains != convention.startswith("6"):
            is_, right = ("a training step", "6N") if trains else ("a forward pass", "2N")
            raise InputError(f"{convention} is not the convention of {is_}", hint=f"say {right}")
        passes = 3 if trains else 1
        flops = 2 * passes * sum(p.spec.numel for p in report.parameters if not p.buffer) * tokens_of(report)
        if convention.endswith("attention"):
            flops += passes * attention
    dtypes = tuple(sorted(by_type, key=lambda dtype: -by_type[dtype]))
    return StepFlops(convention, flops, by_type.total() / seconds, dtypes)


def tokens_of(report: Report) -> int:
    """Tokens that a step reads: the elements of the first input of whole numbers, in each of its passes."""
    for name, spec in report.inputs:
        if spec.known and "int" in spec.dtype and name != "past_key_values":
            return spec.numel * int(report.meta.get("accumulate", 1))
    hint = "use the convention 'executed'"
    raise InputError("6N and 2N count tokens, and the model was given none: no input holds whole numbers", hint=hint)
