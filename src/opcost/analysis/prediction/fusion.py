"""The kernels of a compiled model as rows, whose times are predicted like those of operators."""

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple, TypeAlias

from opcost.analysis.compiled.groups import KernelGroup, groups
from opcost.analysis.compiled.partition import with_recomputation
from opcost.analysis.memory import CompiledMemory, DeviceMemory, Written, memory, storage_bytes
from opcost.analysis.prediction.work import LARGE
from opcost.core.graph import ZERO, Attr, Cost, Graph, Memory, Op
from opcost.core.names import matches
from opcost.core.report import Report, Row
from opcost.errors import InputError

_NAMED = 3  # operators of a group that are named
_COSTLY = frozenset({"gelu", "gelu_tanh", "silu", "mish", "sigmoid", "tanh", "exp", "softmax", "erf"})
"""Functions that take longer than their elements take to come and go."""


class PlacedKernel(NamedTuple):
    """A kernel of a compiled model, or an operator that is not compiled, and after which operator of the report it runs."""

    at: int
    row: Row
    made: bool  # by the compiler, which frees what it reads as soon as nothing else does


def compiled(report: Report, only: Sequence[str] = ()) -> list[PlacedKernel]:
    """The kernels of a report; with patterns of modules, these alone are compiled, each by itself.

    Modules that gather their parameters (FSDP) are compiled each by itself, too: a compiler stops where they do.
    """
    regions = _regions(report, _compiled_alone(report, only), alone=bool(only))
    fresh = 1 + max((value for row in report.rows for value in (*row.op.inputs, *row.op.outputs)), default=0)
    for key in [key for key in regions if key[1] == "backward"]:
        if (forward := regions.get((key[0], "forward", *key[2:]))) is not None:
            regions[key], fresh = with_recomputation(forward, regions[key], fresh)
    readers: dict[int, list[_Region]] = {}
    for key, rows in regions.items():
        for value in {value for row in rows for value in row.op.inputs}:
            readers.setdefault(value, []).append(key)
    found: list[PlacedKernel] = []
    for key, rows in regions.items():
        if key[1] not in ("forward", "backward"):
            found += [PlacedKernel(row.op.id, row, made=False) for row in rows]
            continue
        made = {value for row in rows for value in row.op.outputs}
        seen = {value for value in made if any(other != key for other in readers.get(value, ()))}
        last = -1
        for group in groups(rows, seen | (made & set(report.output_values))):
            last = max(last, group.rows[-1].op.id)  # a kernel runs after those before it
            found.append(PlacedKernel(last, group.rows[0] if group.library else _one(group), made=True))
    found.sort(key=lambda kernel: kernel.at)
    # An operator that two kernels calculate may be the last of both.
    return [
        kernel._replace(row=kernel.row._replace(op=kernel.row.op._replace(id=number)))
        for number, kernel in enumerate(found)
    ]


def memory_of_kernels(kernels: Sequence[PlacedKernel], graph: Graph, report: Report, on: DeviceMemory | None) -> Memory:
    """The memory of a compiled model: results have some where kernels write them, until the last of their readers has run."""
    values = graph.values

    def storage(value: int) -> int:
        return values[value].storage if 0 <= value < len(values) else ~abs(value)  # computed again, or a part of a sum

    last: dict[int, int] = {}
    for kernel in kernels:
        last.update((storage(value), kernel.at) for value in kernel.row.op.inputs)
    eager = {kernel.at for kernel in kernels if not kernel.made}
    written = [
        Written(value, spec.nbytes if spec.known else 0, kernel.at, max(kernel.at, last.get(storage(value), 0)))
        for kernel in kernels
        if kernel.made
        for value, spec in zip(kernel.row.op.outputs, kernel.row.outs, strict=False)
    ]
    ops = frozenset(row.op.id for row in report.rows if row.op.id not in eager)
    return memory(graph, storage_bytes(graph), on, report.rows, CompiledMemory(ops, written))


_Region: TypeAlias = "tuple[str, ...]"
"""A compiled module, the phase, and where it runs; of an operator that is not compiled, its number."""


def _regions(report: Report, paths: Collection[str], *, alone: bool) -> dict[_Region, list[Row]]:
    """The operators that are compiled together."""
    found: dict[_Region, list[Row]] = {}
    used: set[int] = set()  # by operators other than FSDP's, through views or not
    for row in reversed(report.rows):
        view = row.op.kind == "view"
        if not used.isdisjoint(row.op.outputs) if view else not _is_of_fsdp(row.op):
            used.update(row.op.inputs)
    place = ""  # the last of these modules that ran: what comes before it, and what after, is not compiled as one
    for row in report.rows:
        path = _outermost(row.op.module, paths)
        place = path or place
        key: _Region = (path, row.op.phase) if path else ("", row.op.phase, place)
        of_fsdp = _is_of_fsdp(row.op) or (row.op.kind == "view" and used.isdisjoint(row.op.outputs))
        if row.op.phase == "update" or (paths and of_fsdp) or (alone and not path):
            key = "", str(row.op.id)
        found.setdefault(key, []).append(row)
    return found


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
