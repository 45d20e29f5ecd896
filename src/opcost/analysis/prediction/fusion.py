"""The kernels of a compiled model as rows, whose times are predicted like those of operators."""

from collections.abc import Collection, Iterable, Sequence

from opcost.analysis.compiled.groups import KernelGroup, groups
from opcost.analysis.prediction.work import LARGE
from opcost.core.graph import ZERO, Attr, Cost, Op
from opcost.core.names import matches
from opcost.core.report import Report, Row
from opcost.errors import InputError

_NAMED = 3  # operators of a group that are named
_COSTLY = frozenset({"gelu", "gelu_tanh", "silu", "mish", "sigmoid", "tanh", "exp", "softmax", "erf"})
"""Functions that take longer than their elements take to come and go."""


def compiled(report: Report, only: Sequence[str] = ()) -> list[Row]:
    """The kernels of a report; with patterns of modules, these alone are compiled, each by itself.

    Modules that gather their parameters (FSDP) are compiled each by itself, too: a compiler stops where they do.
    """
    paths = _compiled_alone(report, only)
    if not paths:
        return merged(report.rows, report.output_values)
    regions: dict[tuple[object, ...], list[Row]] = {}
    place = ""  # the last of these modules that ran: what comes before it, and what after, is not compiled as one
    for row in report.rows:
        path = _outermost(row.op.module, paths)
        place = path or place
        key: tuple[object, ...] = (path, row.op.phase) if path else ("", row.op.phase, place)
        if _is_of_fsdp(row.op) or (only and not path):
            key = (row.op.id,)
        regions.setdefault(key, []).append(row)
    readers: dict[int, list[tuple[object, ...]]] = {}
    for key, rows in regions.items():
        for value in {value for row in rows for value in row.op.inputs}:
            readers.setdefault(value, []).append(key)
    found = []
    for key, rows in regions.items():
        if len(key) == 1:
            found += [(rows[0].op.id, rows)]
            continue
        made = [value for row in rows for value in row.op.outputs]
        seen = {value for value in made if any(other != key for other in readers.get(value, ()))}
        found.append((rows[-1].op.id, merged(rows, seen.union(report.output_values))))
    ordered = [row for _, rows in sorted(found, key=lambda each: each[0]) for row in rows]
    # An operator that two kernels calculate may be the last of both.
    return [row._replace(op=row.op._replace(id=number)) for number, row in enumerate(ordered)]


def _compiled_alone(report: Report, only: Sequence[str]) -> frozenset[str]:
    if only:
        found = frozenset(
            each.path for each in report.modules if each.path and any(matches(each.path, own) for own in only)
        )
        if not found:
            raise InputError(f"compile_only={', '.join(only)} matches no module", hint="a star is one name: 'layers.*'")
        return found
    return frozenset(row.op.module for row in report.rows if _is_of_fsdp(row.op) and row.op.module)


def _outermost(module: str, paths: Collection[str]) -> str:
    """The outermost of these modules in which a module is, if any."""
    names = module.split(".")
    return next((path for at in range(len(names)) if (path := ".".join(names[: at + 1])) in paths), "")


def _is_of_fsdp(op: Op) -> bool:
    """Whether FSDP calls it around a module, where no compiler sees it."""
    return op.raw.startswith("fsdp::") or op.raw == "aten::_foreach_copy_" or op.raw.endswith("_base_")


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
