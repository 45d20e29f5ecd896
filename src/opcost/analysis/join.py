"""Time beside cost: rows of a profile with the costs of the same rules as a model, a report's modules, and shares of peaks."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from opcost.analysis.part import Part
from opcost.core.devices import Device
from opcost.core.graph import FLOPS_PER_MAC, Cost, Note, UnknownExtent
from opcost.core.kinds import CONTRACTIONS, KINDS, check_operator
from opcost.core.names import path_of_scopes
from opcost.core.parsing import LARGEST
from opcost.core.profile import AnswerLine, Kernel, Profile, ProfileRow
from opcost.core.report import Report, Row
from opcost.errors import InputError, OpcostError, UnknownName, some
from opcost.rules.registry import DEFAULT, Convention, OpView, Rules

MOST_NAMED = 5  # operators that a note names


INCOMPLETE = (UnknownExtent, OpcostError, ArithmeticError, IndexError, KeyError, TypeError, ValueError)
"""What a formula may raise of a row of a trace, which may leave out an attribute or a tensor that a model always has."""


def with_costs(profile: Profile, rules: Rules, convention: Convention = DEFAULT) -> Profile:
    """The profile with a cost on every row that has a kind and shapes; that of equal operators is found once.

    A row that has a cost keeps it, unless the convention is another than that of the cost.
    """
    known: dict[object, Cost | None] = {}
    rows = []
    failed: Counter[str] = Counter()
    for row in profile.rows:
        kept = row.cost is not None and (
            convention == DEFAULT or not is_causal(row) or row.cost != _cost_of(row, rules)
        )
        cost = None
        if not kept and row.kind:
            key = (row.kind, row.type, row.ins, row.outs, tuple(sorted(row.attrs.items(), key=str)))
            if key not in known:
                known[key] = _cost_of(row, rules, convention)
            cost = known[key]
            if cost is None and (row.ins or row.outs):
                failed[row.type] += row.count
        rows.append(row if cost is None else row._replace(cost=cost))
    notes = profile.notes
    if failed:
        ordered = sorted(failed.items(), key=lambda item: -item[1])
        named = ", ".join(some([f"{name} ({count})" for name, count in ordered], MOST_NAMED))
        notes = (*notes, Note("uncosted", f"the trace does not say enough for the cost of {named}"))
    changed = failed or any(cost is not None for cost in known.values())
    return replace(profile, rows=tuple(rows), notes=notes) if changed else profile


def is_causal(row: ProfileRow) -> bool:
    """Whether its cost depends on the convention."""
    return row.kind == "attention" and bool(row.attrs.get("causal"))


def _cost_of(row: ProfileRow, rules: Rules, convention: Convention = DEFAULT) -> Cost | None:
    found = rules.for_op(row.kind, row.type)
    if found is None or not (row.outs or row.kind == "view"):
        return None  # a rule would find nothing to count where only the kind is known
    try:
        name, rule = found
        attrs = row.attrs
        if name == row.kind:  # beside our attributes is what only the trace's format has
            attrs = {word: attrs[word] for word in KINDS[row.kind].attributes if word in attrs}
            check_operator(row.kind, row.type, attrs, len(row.ins), len(row.outs))
        cost = rule(OpView(row.kind, row.type, row.ins, row.outs, attrs, convention))
    except INCOMPLETE:
        return None
    # Beyond is damage, and no rate can be made of it.
    if cost is None or max(cost.macs, cost.flops, cost.bytes_read, cost.bytes_written) > LARGEST:
        return None
    return cost


# -- modules of a report -----------------------------------------------------------------------------------------------


def with_modules(profile: Profile, report: Report) -> Profile:
    """The profile with its rows joined to a report's modules: by path where a name has one, else by order of execution.

    In order means: the n-th row of a kind, phase, input and output shape is the n-th such operator of the report, and where
    a trace has no shapes, the n-th of a type; what repeats (steps, iterations) begins again from the first. A module under
    another name, as in traces that number classes, takes all its rows along with those that were found.
    """
    paths = {module.path for module in report.modules}
    count = Counter(path.rpartition(".")[2] for path in paths if path)
    tails = {tail: path for path in paths if path and count[tail := path.rpartition(".")[2]] == 1}
    order = _Order(profile.rows, report.rows)
    found: list[str | None] = []
    costs: list[Cost | None] = []
    for row in profile.rows:
        match = order.next_match(row)
        path = _path(row, paths, tails)
        found.append(match.op.module if path is None and match is not None else path)
        costs.append(row.cost if row.cost is not None or match is None else match.cost)
    _spread(profile.rows, found)
    # What modules of the trace are called in the report, and those around them, where all that was found agrees
    names: dict[str, set[str]] = {}
    for row, path in zip(profile.rows, found, strict=True):
        if path is not None and row.module:
            theirs, ours = row.module, path
            names.setdefault(theirs, set()).add(ours)
            # The trace names the outermost module too; the report calls it nothing.
            while theirs.count(".") == ours.count(".") + 1 and ours:
                theirs, ours = theirs.rpartition(".")[0], ours.rpartition(".")[0]
                names.setdefault(theirs, set()).add(ours)
    aliases = {theirs: ours.pop() for theirs, ours in names.items() if len(ours) == 1}
    found = [aliases.get(row.module) if path is None else path for row, path in zip(profile.rows, found, strict=True)]
    rows = tuple(
        row._replace(module=row.module if path is None else path, cost=cost)
        for row, path, cost in zip(profile.rows, found, costs, strict=True)
    )
    joined = f"{sum(path is not None for path in found)} of {len(rows)} rows are joined to modules of"
    note = Note("joined", f"{joined} {report.meta.get('source', 'the report')}")
    return replace(profile, rows=rows, notes=(*profile.notes, note))


def _spread(rows: Sequence[ProfileRow], found: list[str | None]) -> None:
    """Give what ran inside an operator its module, and what ran around operators of one module theirs."""
    threads: dict[object, list[tuple[int, int, int]]] = {}
    for place, row in enumerate(rows):
        if row.host_start_ns is not None and row.host_ns is not None:
            end = row.host_start_ns + row.host_ns
            thread = row.stream if row.device == "cpu" else ""
            threads.setdefault((row.rank, thread), []).append((row.host_start_ns, -end, place))
    for spans in threads.values():
        around: list[tuple[int, int]] = []  # end and place of what is open
        inside: dict[int, set[str]] = {}
        for start, minus_end, place in sorted(spans):
            while around and around[-1][0] <= start:
                around.pop()
            outer = [other for end, other in around if end >= -minus_end]
            if found[place] is None and outer:
                found[place] = next((found[other] for other in reversed(outer) if found[other] is not None), None)
            path = found[place]
            if path is not None:
                for other in outer:
                    inside.setdefault(other, set()).add(path)
            around.append((-minus_end, place))
        for place, paths in inside.items():
            if found[place] is None and len(paths) == 1:
                found[place] = next(iter(paths))


def _path(row: ProfileRow, paths: set[str], tails: Mapping[str, str]) -> str | None:
    """The module that the row itself names: outright, in the parts of its name (`/layer1/layer1.0/conv1/Conv`), or by tail."""
    if row.module and row.module in paths:
        return row.module
    parts = [part for part in row.name.split("/") if part]
    for end in range(len(parts), 0, -1):
        for start in range(end):
            path = path_of_scopes(parts[start:end])
            if path in paths:
                return path
    return tails.get(parts[0]) if len(parts) == 1 else None


_EVERYWHERE = ("create", "view", "copy", "unknown")
"""Kinds that a framework runs inside its other operators too, so that their number means nothing."""


class _Order:
    """The operators of a report in the order in which rows of a profile meet them, for each rank from the beginning."""

    def __init__(self, rows: Sequence[ProfileRow], wanted: Sequence[Row]) -> None:
        self._found: dict[object, list[Row]] = {}
        self._seen: Counter[object] = Counter()
        has_shapes = any(row.ins or row.outs for row in rows)
        for counted in wanted:
            op = counted.op
            self._found.setdefault((op.kind, op.phase, *_shapes(counted)), []).append(counted)
            if op.kind not in _EVERYWHERE and not has_shapes:
                self._found.setdefault((op.raw, op.phase), []).append(counted)
        # By type alone only where the numbers fit: then the trace has whole runs of the model.
        for (name, phase, _), count in Counter((row.type, row.phase, row.rank) for row in rows).items():
            if count % len(self._found.get((name, phase), (0,))):
                del self._found[name, phase]

    def next_match(self, row: ProfileRow) -> Row | None:
        """The operator that this row is an execution of."""
        key = (row.kind, row.phase, *_shapes(row)) if row.kind and row.outs else (row.type, row.phase)
        found = self._found.get(key)
        self._seen[key, row.rank] += 1
        return found[(self._seen[key, row.rank] - 1) % len(found)] if found else None


def _shapes(row: ProfileRow | Row) -> tuple[object, object]:
    """Those of the first input and output."""
    return tuple(spec.shape for spec in row.ins[:1]), tuple(spec.shape for spec in row.outs[:1])


# -- peaks -------------------------------------------------------------------------------------------------------------


_TF32 = re.compile(r"tf32|(?<![a-z0-9])s1688(?!\d)", re.IGNORECASE)
"""How libraries name kernels that round 32-bit elements to 19 bits: outright, or by the instruction's 16x8x8 tile."""


def rounds_to_tf32(profile: Profile) -> bool:
    """Whether the profile says that products of float32 elements ran in TF32."""
    return profile.meta.get("tf32", "").casefold() in ("1", "on", "true", "yes")


def runs_tf32(kernels: Iterable[Kernel]) -> bool:
    """Whether products of float32 elements ran on matrix units; a trace says so in the names of kernels only."""
    return any(_TF32.search(kernel.name) for kernel in kernels)


def product_share(parts: Iterable[Part]) -> float:
    """Of the FLOPs of operators those of products: the rest, as the softmax of attention, runs beside matrix units."""
    costs = [(part.row.cost, part.row.count) for part in parts if part.row is not None and part.row.cost is not None]
    flops = sum(cost.flops * count for cost, count in costs)
    products = sum((FLOPS_PER_MAC * cost.macs or cost.flops) * count for cost, count in costs)
    return min(1.0, products / flops) if flops else 0.0


def against_peak(line: AnswerLine, device: Device, *, kind: str, dtype: str, tf32: bool, products: float) -> AnswerLine:
    """The line with its rates as parts of the device's peaks; only products, a part of its FLOPs, run on matrix units."""
    flops, bandwidth = line.flops, line.bandwidth
    peak = device.peak_flops(dtype, tf32=tf32) if kind in CONTRACTIONS else None
    return replace(
        line,
        of_peak_flops=flops * products / peak if flops is not None and peak else None,
        of_peak_bandwidth=bandwidth / device.bandwidth if bandwidth is not None and device.bandwidth else None,
    )


# -- how much of a peak a step uses -------------------------------------------------------------------------------------

CONVENTIONS = {
    "executed": "every product that runs, recomputed ones too; 2 FLOPs for each multiply-accumulate",
    "6N": "6 FLOPs for each parameter and token, 4 for a frozen one",
    "6N+attention": "6 FLOPs for each parameter and token (frozen: 4), and 12 for each layer, head, feature and key (PaLM)",
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
        parameters = [(p.spec.numel, p.trainable) for p in report.parameters if not p.buffer]
        # A frozen weight has no gradient of its own, which is one of the three products of a training step.
        products = sum(numel * (passes if trainable or not trains else passes - 1) for numel, trainable in parameters)
        flops = FLOPS_PER_MAC * products * tokens_of(report)
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
