"""Operators that a compiler makes one kernel of: chains of simple operators, with the sums and normalisations among them.

A merged group starts once and moves memory only at its edges: what it reads of others and what others read of it. Products,
convolutions, attention and lookups stay kernels of their own, as `torch.compile` leaves them to their libraries.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from opcost.core.cost import ZERO, Cost
from opcost.core.graph import Op, TensorSpec
from opcost.core.report import Row

MERGED = frozenset({"elementwise", "copy", "norm", "softmax", "reduce", "create", "random"})
_NAMED = 3
"""So many operators of a group are named."""


@dataclass(slots=True)
class _Group:
    number: int
    runs: tuple[str, int]
    """In which phase, and how often."""
    open: bool
    """Others may still be merged into it."""
    extent: int
    """Elements of its largest tensor: what it loops over."""
    rows: list[Row] = field(default_factory=list)


def merged(rows: Iterable[Row], results: Collection[int]) -> list[Row]:
    """The rows with groups of them made one; views vanish. `results` are the values that the model hands back."""
    same: dict[int, int] = {}
    """Of a view, the value that it shows."""
    maker: dict[int, _Group] = {}
    groups: list[_Group] = []
    for row in rows:
        op = row.op
        ins = [same.get(value, value) for value in op.inputs]
        if op.kind == "view":
            same.update(dict.fromkeys(op.outputs, ins[0]) if ins else {})
            continue
        simple = op.kind in MERGED and op.repeat > 0
        extent = max((spec.numel for spec in (*row.ins, *row.outs) if spec.known), default=0)
        group = _home([maker[value] for value in ins if value in maker], op, extent) if simple else None
        if group is None:
            group = _Group(len(groups), (op.phase, op.repeat), simple, extent)
            groups.append(group)
        group.rows.append(row)
        maker.update(dict.fromkeys(op.outputs, group))
    readers: dict[int, set[int]] = {}
    for group in groups:
        for row in group.rows:
            for value in row.op.inputs:
                readers.setdefault(same.get(value, value), set()).add(group.number)
    kept = {same.get(value, value) for value in results}
    return [group.rows[0] if len(group.rows) == 1 else _one(group, same, readers, kept) for group in groups]


def _home(makers: Sequence[_Group], op: Op, extent: int) -> _Group | None:
    """The group that an operator is merged into: the last one that it reads of, if that loops over as many elements."""
    if not makers:
        return None
    last = max(makers, key=lambda group: group.number)
    return last if last.open and last.runs == (op.phase, op.repeat) and extent <= last.extent else None


def _one(group: _Group, same: dict[int, int], readers: dict[int, set[int]], kept: set[int]) -> Row:
    made: dict[int, TensorSpec] = {}
    read: dict[int, TensorSpec] = {}
    flops = 0
    for row in group.rows:
        for value, spec in zip(row.op.inputs, row.ins, strict=False):
            root = same.get(value, value)
            if root not in made:
                read.setdefault(root, spec)
        made.update(zip(row.op.outputs, row.outs, strict=False))
        flops += (row.cost or ZERO).flops
    written = {v: spec for v, spec in made.items() if v in kept or readers.get(v, set()) - {group.number}}
    ins, outs = tuple(read.values()), tuple(written.values())
    moved = [sum(spec.nbytes for spec in specs if spec.known) for specs in (ins, outs)]
    last = group.rows[-1]
    names = list(dict.fromkeys(row.op.raw.rpartition("::")[2] for row in group.rows))
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    op = last.op._replace(
        kind="elementwise",
        raw=f"merged {', '.join(names[:_NAMED])}{more}",
        inputs=tuple(read),
        outputs=tuple(written),
        attrs={"fn": "merged"},
    )
    return Row(op, ins, outs, Cost(0, flops, *moved), "merged")
