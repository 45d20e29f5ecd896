"""Time beside cost: rows of a profile priced by the same rules as a model, named after a report's modules, held against peaks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from opcost.core.answer import AnswerLine
from opcost.core.cost import Cost
from opcost.core.devices import Device
from opcost.core.graph import Note, UnknownExtent
from opcost.core.kinds import CONTRACTIONS
from opcost.core.profile import Profile, ProfileRow
from opcost.core.report import Report, Row
from opcost.rules.registry import OpView, Rules


def with_costs(profile: Profile, rules: Rules) -> Profile:
    """The profile with a price on every row that has a kind and shapes; equal operators are priced once."""
    known: dict[object, Cost | None] = {}
    rows = []
    failed: dict[str, int] = {}
    changed = False
    for row in profile.rows:
        if row.cost is not None or not row.kind:
            rows.append(row)
            continue
        key = (row.kind, row.type, row.ins, row.outs, tuple(sorted(row.attrs.items(), key=str)))
        if key not in known:
            known[key] = _price(row, rules)
        cost = known[key]
        if cost is None:
            failed[row.type] = failed.get(row.type, 0) + 1
            rows.append(row)
        else:
            changed = True
            rows.append(row._replace(cost=cost))
    notes = profile.notes
    if failed:
        named = ", ".join(f"{name} ({count})" for name, count in failed.items())
        notes = (
            *notes,
            Note("unpriced", f"what the trace says of these operators is not enough for their rule: {named}"),
        )
    return replace(profile, rows=tuple(rows), notes=notes) if changed or failed else profile


def _price(row: ProfileRow, rules: Rules) -> Cost | None:
    found = rules.for_op(row.kind, row.type)
    if found is None:
        return None
    try:
        return found[1](OpView(row.kind, row.type, row.ins, row.outs, row.attrs))
    except UnknownExtent:
        return None
    except (ArithmeticError, IndexError, KeyError, TypeError, ValueError):
        # A trace may leave out an attribute or a tensor that a model always has.
        return None


# -- modules of a report -----------------------------------------------------------------------------------------------


def with_modules(profile: Profile, report: Report) -> Profile:
    """The profile with its rows joined to a report's modules: by path where a name holds one, else by order of execution.

    In order means: the n-th row of a kind, input and output shape is the n-th such operator of the report; what repeats
    (steps, iterations) begins again from the first.
    """
    paths = {module.path for module in report.modules}
    tails = _tails(paths)
    waiting = _by_signature(report.rows)
    seen: dict[object, int] = {}
    rows = []
    joined = 0
    for row in profile.rows:
        match = _next_match(row, waiting, seen)
        path = _path(row, paths, tails)
        if path is None and match is not None:
            path = match.op.module
        if path is None and match is None:
            rows.append(row)
            continue
        joined += 1
        cost = row.cost if row.cost is not None or match is None else match.cost
        rows.append(row._replace(module=row.module if path is None else path, cost=cost))
    note = Note(
        "joined", f"{joined} of {len(rows)} rows are joined to modules of {report.meta.get('source', 'the report')}"
    )
    return replace(profile, rows=tuple(rows), notes=(*profile.notes, note))


def _tails(paths: set[str]) -> dict[str, str]:
    """Module paths by their last part, where only one module ends so."""
    found: dict[str, list[str]] = {}
    for path in paths:
        if path:
            found.setdefault(path.rpartition(".")[2], []).append(path)
    return {tail: owners[0] for tail, owners in found.items() if len(owners) == 1}


def _path(row: ProfileRow, paths: set[str], tails: Mapping[str, str]) -> str | None:
    """The module that the row itself names: outright, in the parts of its name (`/layer1/layer1.0/conv1/Conv`), or by tail."""
    if row.module and row.module in paths:
        return row.module
    parts = [part for part in row.name.split("/") if part]
    for end in range(len(parts), 0, -1):
        for start in range(end):
            path = _without_repeats(parts[start:end])
            if path in paths:
                return path
    return tails.get(parts[0]) if len(parts) == 1 else None


def _without_repeats(parts: Sequence[str]) -> str:
    """Exporters repeat the parent in a part: `layer1`, `layer1.0`, `conv1` is layer1.0.conv1."""
    path = ""
    for part in parts:
        if path and (part == path or part.startswith(f"{path}.")):
            path = part
            continue
        last = path.rpartition(".")[2]
        new = part.removeprefix(f"{last}.") if last else part
        path = f"{path}.{new}" if path else new
    return path


def _by_signature(rows: Sequence[Row]) -> dict[object, list[Row]]:
    found: dict[object, list[Row]] = {}
    for row in rows:
        key = (row.op.kind, tuple(spec.shape for spec in row.ins[:1]), tuple(spec.shape for spec in row.outs[:1]))
        found.setdefault(key, []).append(row)
    return found


def _next_match(row: ProfileRow, waiting: Mapping[object, list[Row]], seen: dict[object, int]) -> Row | None:
    if not row.kind or not row.outs:
        return None
    key = (row.kind, tuple(spec.shape for spec in row.ins[:1]), tuple(spec.shape for spec in row.outs[:1]))
    found = waiting.get(key)
    if not found:
        return None
    place = (key, row.rank)
    number = seen.get(place, 0)
    seen[place] = number + 1
    return found[number % len(found)]


# -- peaks -------------------------------------------------------------------------------------------------------------


def against_peak(line: AnswerLine, device: Device, *, kind: str, dtype: str, tf32: bool) -> AnswerLine:
    """The line with its rates as parts of the device's peaks; only products run at the peak of matrix units."""
    flops, bandwidth = line.flops, line.bandwidth
    peak = device.peak_flops(dtype, tf32=tf32) if kind in CONTRACTIONS else None
    return replace(
        line,
        of_peak_flops=flops / peak if flops is not None and peak else None,
        of_peak_bandwidth=bandwidth / device.bandwidth if bandwidth is not None and device.bandwidth else None,
    )
