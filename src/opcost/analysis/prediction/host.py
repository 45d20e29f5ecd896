"""What the host needs to run a model eagerly: it starts operators, makes views, calls modules, and records for autograd.

In a model each of these takes longer than called again and again on its own: caches are cold, and the model's Python is around
them. By how much was fitted to models measured on a host that was calibrated (`benchmarks/predict_host.py`): one number, the same
for inference, decoding and training steps.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import geometric_mean

from opcost.core.profile import ProfileRow
from opcost.core.report import Report, Row

IN_A_MODEL = 1.47
RECORDS = 3
"""What autograd takes for an operator, in times of its record: that in the forward pass, and its node in the backward pass, with
the views that the node makes."""
CALIBRATED, ELSEWHERE = 0.27, 0.8
"""The share of its time within which 80 % of the models are: of a host that was calibrated, and of another. The same host took
half as long again on a day when other programs ran on it."""
TRAINING = 0.3
"""How far off training steps are besides, whose backward passes run in a thread of their own."""
USUAL_START_NS = 12_000  # of an operator, where a calibration has none


class Host:
    """A host by the times of its parts (`parts`, as in a calibration).

    `starts` are the times to start operators on a host whose parts took `beside`; this one starts them by as much faster or
    slower as it calls operators on its own.
    """

    def __init__(
        self, starts: Mapping[str, float], beside: Mapping[str, int], parts: Mapping[str, int], *, spread: float
    ) -> None:
        both = [parts[name] / beside[name] for name in parts if "::" in name and beside.get(name)]
        self._slower = geometric_mean(both) if both else 1.0
        self._starts, self._parts = starts, parts
        self.spread = spread

    def part_ns(self, name: str) -> float:
        """What a part other than an operator takes in a model."""
        return IN_A_MODEL * self._parts.get(name, 0)

    def operator_ns(self, row: Row, *, recorded: bool) -> float:
        """What an operator takes in a model; `recorded` for a backward pass, which autograd then runs."""
        op = row.op
        if op.phase == "update":
            if op.kind in ("create", "view") and not op.raw.endswith("_"):
                return 0.0  # made in the first step, and there in others
            if "_foreach_" in op.raw or "_fused_" in op.raw:
                return self.part_ns("update") * max(1, len(row.outs))
        record = RECORDS * self.part_ns("record") if recorded and op.phase == "forward" else 0.0
        if op.kind == "view":
            return 0.0 if op.phase == "backward" else self.part_ns("view") + record
        start = next(filter(None, map(self._starts.get, (op.raw, op.kind, ""))), USUAL_START_NS)
        return IN_A_MODEL * self._slower * start + record


def started_ns(report: Report, host: Host) -> dict[int, tuple[float, float]]:
    """What the host needs for each operator of a report, and when it has started it."""
    entered = Counter(call.first for call in report.calls)
    recorded = any(row.op.phase == "backward" for row in report.rows)
    found: dict[int, tuple[float, float]] = {}
    reached = 0.0
    for place, row in enumerate(report.rows):
        reached += entered[place] * host.part_ns("module")
        needed = host.operator_ns(row, recorded=recorded) * row.op.repeat
        reached += needed
        found[row.op.id] = needed, reached
    return found


def hosted(rows: Sequence[ProfileRow], started: Mapping[int, tuple[float, float]]) -> tuple[list[ProfileRow], int]:
    """The rows with what the host needs for each, and when the last one ends: none begins before the host has started it.

    Views and calls of modules have no work on the device, and the host runs them all the same.
    """
    on_device = {row.id: row for row in rows}
    found: list[ProfileRow] = []
    device = reached = 0.0
    for number, (needed, reached) in started.items():
        known = on_device.get(number)
        if known is not None:
            device = max(device, reached) + (known.device_ns or 0)
            found.append(known._replace(host_ns=round(needed), host_self_ns=round(needed)))
    return found, round(max(reached, device))
