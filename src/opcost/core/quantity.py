"""The quantities of a whole model by name: unit, whether it comes from cost rules, and how it is read of a report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple, TypeAlias

from opcost.core.report import Report
from opcost.errors import UnknownName

CountedIn: TypeAlias = Literal["count", "bytes", "number", "time"]


class Quantity(NamedTuple):
    """Something that can be counted, compared, and limited."""

    name: str
    title: str
    unit: CountedIn
    needs_costs: bool = False  # a lower bound where an operator has no cost: behind it sizes may be unknown


_TITLES = {
    "params": "params", "trainable_params": "trainable params", "unused_params": "unused params", "buffers": "buffers",
    "param_bytes": "param bytes", "buffer_bytes": "buffer bytes", "macs": "MACs", "flops": "FLOPs",
    "bytes_read": "bytes read", "bytes_written": "bytes written", "activations": "activations",
    "activation_bytes": "activation bytes", "ops": "operators", "uncounted": "uncounted", "bytes": "bytes moved",
    "peak_bytes": "peak memory",
}  # fmt: skip
_NEEDS_COSTS = (
    "macs",
    "flops",
    "bytes_read",
    "bytes_written",
    "bytes",
    "activations",
    "activation_bytes",
    "peak_bytes",
)
_PLAIN = ("ops", "uncounted")

QUANTITIES: dict[str, Quantity] = {
    name: Quantity(
        name, title, "bytes" if "bytes" in name else "number" if name in _PLAIN else "count", name in _NEEDS_COSTS
    )
    for name, title in _TITLES.items()
}
"""What a report has of the whole model: the sums of `Stats`, the bytes that move, and the highest memory."""
LATENCY = Quantity("latency", "latency", "time", needs_costs=True)  # predicted of a device, in no report
LIMITED: dict[str, Quantity] = {**QUANTITIES, LATENCY.name: LATENCY}  # what can be limited
OTHER_NAMES = {"peak_memory": "peak_bytes", "peak": "peak_bytes", "memory": "peak_bytes", "parameters": "params"}


def find_quantity(name: str, known: Mapping[str, Quantity] = QUANTITIES) -> Quantity:
    """The quantity of this name, however it is spelt."""
    key = name.strip().lower().replace(" ", "_").replace("-", "_")
    key = OTHER_NAMES.get(key, key)
    if key not in known:
        raise UnknownName("quantity", name.strip(), known)
    return known[key]


def latency_on(device: str) -> Quantity:
    """The latency on one device, which is another quantity than that on another."""
    name = f"{LATENCY.name} on {device}"
    return LATENCY._replace(name=name, title=name)


def amounts_of(report: Report) -> dict[str, int]:
    """Every quantity of the whole model that is known."""
    totals = report.totals
    known = totals._asdict() | {"bytes": totals.bytes_read + totals.bytes_written, "peak_bytes": report.peak_bytes}
    return {name: int(known[name]) for name in QUANTITIES if known[name] is not None}
