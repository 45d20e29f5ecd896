"""The kernels of a compiled model as rows, whose times are predicted like those of operators."""

from collections.abc import Collection, Iterable

from opcost.analysis.compiled.groups import KernelGroup, groups
from opcost.analysis.prediction.work import LARGE
from opcost.core.graph import ZERO, Attr, Cost
from opcost.core.report import Row

_NAMED = 3  # operators of a group that are named
_COSTLY = frozenset({"gelu", "gelu_tanh", "silu", "mish", "sigmoid", "tanh", "exp", "softmax", "erf"})
"""Functions that take longer than their elements take to come and go."""


def merged(rows: Iterable[Row], results: Collection[int]) -> list[Row]:
    """The rows with groups of them made one; views vanish. `results` are the values that the model hands back."""
    return [group.rows[0] if group.library else _one(group) for group in groups(rows, results)]


def _one(group: KernelGroup) -> Row:
    last = group.rows[-1]
    names = list(dict.fromkeys(row.op.raw.rpartition("::")[2] for row in group.rows))
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    op = last.op._replace(
        kind="elementwise",
        raw=last.op.raw if len(group.rows) == 1 else f"merged {', '.join(names[:_NAMED])}{more}",
        inputs=tuple(group.read),
        outputs=tuple(group.writes),
        attrs={"fn": "compiled", **_loop(group)},
    )
    flops = sum((row.cost or ZERO).flops for row in group.rows)
    ins, outs = tuple(group.read.values()), tuple(group.writes.values())
    return Row(op, ins, outs, Cost(0, flops, *group.moved), "merged")


def _loop(group: KernelGroup) -> dict[str, Attr]:
    """What decides how fast it runs, beside the bytes that it moves."""
    sizes = [read.spec.numel for read in group.reads.values() if read.spec.known]
    large = sum(LARGE * size >= group.extent[0] * group.extent[1] for size in sizes)
    return {
        "extent": group.extent,
        "large": large,
        "small": len(sizes) - large,
        "costly": any(row.op.attrs.get("fn") in _COSTLY for row in group.rows),
    }
