"""Operators that a compiler makes one kernel of: chains of simple operators, with the sums and normalisations among them.

A merged group starts once and moves memory only at its edges: what it reads of others and what others read of it. Products,
convolutions, attention and lookups stay kernels of their own, as `torch.compile` leaves them to their libraries.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from opcost.core.graph import ZERO, Cost, TensorSpec
from opcost.core.report import Row

MERGED = frozenset({"elementwise", "copy", "norm", "softmax", "reduce", "create", "random"})
_SMALL = 64  # where no convolution has more channels than this, they are left as they are
_NAMED = 3  # operators of a group that are named


@dataclass(slots=True)
class _MergedGroup:
    number: int
    runs: tuple[str, int]  # in which phase, and how often
    open: bool  # others may still be merged into it
    extent: int  # elements of its largest tensor: what it loops over
    rows: list[Row] = field(default_factory=list)
    readers: set[int] = field(default_factory=set)  # the groups that read of it so far


def merged(rows: Iterable[Row], results: Collection[int]) -> list[Row]:
    """The rows with groups of them made one; views vanish. `results` are the values that the model hands back."""
    same: dict[int, int] = {}  # of a view, the value that it shows
    maker: dict[int, _MergedGroup] = {}
    groups: dict[int, _MergedGroup] = {}
    for number, row in enumerate(rows):
        op = row.op
        ins = [same.get(value, value) for value in op.inputs]
        if op.kind == "view":
            same.update(dict.fromkeys(op.outputs, ins[0]) if ins else {})
            continue
        # The update of an optimizer runs after the compiled model, as it is.
        simple = op.kind in MERGED and op.repeat > 0 and op.phase != "update"
        extent = max((spec.numel for spec in (*row.ins, *row.outs) if spec.known), default=0)
        makers = {maker[value].number: maker[value] for value in ins if value in maker}
        # It is merged into the last group that it reads of, if that loops over as many elements.
        group = max(makers.values(), key=lambda each: each.number, default=None) if simple else None
        if group is None or not group.open or group.runs != (op.phase, op.repeat) or extent > group.extent:
            group = groups[number] = _MergedGroup(number, (op.phase, op.repeat), simple, extent)
        group.rows.append(row)
        for other in makers.values():
            if other is not group and not other.readers and _fits(other, group):
                del groups[other.number]  # only this one reads of it, so that both run at once
                group.rows[:0] = other.rows
                maker.update(dict.fromkeys((value for each in other.rows for value in each.op.outputs), group))
            elif other is not group:
                other.readers.add(group.number)
        maker.update(dict.fromkeys(op.outputs, group))
    readers: dict[int, set[int]] = {}
    for group in groups.values():
        for row in group.rows:
            for value in row.op.inputs:
                readers.setdefault(same.get(value, value), set()).add(group.number)
    kept = {same.get(value, value) for value in results}
    found = []
    for group in groups.values():
        row = _one(group, same, readers, kept) if group.open else group.rows[0]
        # A convolution has no bias: what follows adds it.
        found.append(row._replace(ins=row.ins[:2]) if not group.open and _convolves(row) else row)
    # The compiler puts channels side by side in networks of convolutions, unless some are in groups.
    sizes = [(row.ins[0].dims, row.ins[1].dims) for row in found if _convolves(row)]
    grouped = any(1 < weight[1] < image[1] for image, weight in sizes)
    if grouped or not any(max(weight[:2]) > _SMALL for _, weight in sizes):
        return found
    return [
        row._replace(op=row.op._replace(attrs={**row.op.attrs, "channels_last": True})) if _convolves(row) else row
        for row in found
    ]


def _fits(one: _MergedGroup, other: _MergedGroup) -> bool:
    """Whether a group can be calculated within another."""
    return one.open and other.open and one.runs == other.runs and one.extent <= other.extent


def _convolves(row: Row) -> bool:
    """Whether it is the convolution of an image, and not its gradient or another way round."""
    plain = row.op.kind == "conv" and not any(row.op.attrs.get(name) for name in ("grads", "transposed"))
    return plain and len(row.ins) > 1 and all(spec.known and len(spec.dims) == 4 for spec in row.ins[:2])


def _one(group: _MergedGroup, same: dict[int, int], readers: dict[int, set[int]], kept: set[int]) -> Row:
    made: dict[int, TensorSpec] = {}
    read: dict[int, TensorSpec] = {}
    flops = 0
    for row in sorted(group.rows, key=lambda row: row.op.id):
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
        raw=last.op.raw if len(group.rows) == 1 else f"merged {', '.join(names[:_NAMED])}{more}",
        inputs=tuple(read),
        outputs=tuple(written),
        attrs={"fn": "merged"},
    )
    return Row(op, ins, outs, Cost(0, flops, *moved), "merged")
