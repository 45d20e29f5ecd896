"""From nested events to the rows of a profile: one per operator that the model's code called."""

from collections import Counter, defaultdict
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from opcost.core.graph import NO_ATTRS, ZERO, Cost, TensorSpec
from opcost.core.profile import ProfileRow
from opcost.core.report import Row
from opcost.recorders.torch.events import GRAPH_LAUNCH, EventNode, is_operator
from opcost.traces.kineto.operators import DTYPES


def rows_of(
    roots: Sequence[EventNode], matched: Mapping[int, tuple[Row, ...]], *, with_device: bool
) -> tuple[ProfileRow, ...]:
    """The rows of everything that ran within a step, numbered in order of execution."""
    rows: list[ProfileRow] = []
    waiting = [root for root in reversed(roots) if root.place.step is not None]
    while waiting:
        node = waiting.pop()
        event = node.event
        own: tuple[EventNode, ...] = (node,)  # the nodes whose time and kernels are those of the row
        counted: list[Row] = []  # in order of execution
        if event.runtime:
            if (
                not node.kernels
            ):  # a launch outside any operator (a CUDA graph) is a row; waiting for the device is none
                continue
        elif is_operator(event.name) or id(node) in matched:  # one row, whatever it calls inside
            own = tuple(node.walk())
            counted = sorted((row for inner in own for row in matched.get(id(inner), ())), key=lambda row: row.op.id)
        else:
            own += tuple(child for child in node.children if child.event.runtime)
            waiting += [child for child in reversed(node.children) if not child.event.runtime]
        rows.append(_row(node, own, counted, number=len(rows), with_device=with_device))
    return tuple(rows)


def _row(
    node: EventNode, own: Sequence[EventNode], counted: Sequence[Row], *, number: int, with_device: bool
) -> ProfileRow:
    event, place = node.event, node.place
    duration = event.end_ns - event.start_ns
    others = {id(child) for child in node.children} - {id(inner) for inner in own}
    inside = sum(c.event.end_ns - c.event.start_ns for c in node.children if id(c) in others)
    kernels = tuple(kernel for inner in own for kernel in inner.kernels)
    total = sum(kernel.duration_ns for inner in node.walk() for kernel in inner.kernels)
    costs = [row.cost or ZERO for row in counted]
    weights = [(cost.flops, cost.bytes_read + cost.bytes_written) for cost in costs]
    main = counted[weights.index(max(weights))] if counted else None
    modules = {row.op.module for row in counted}
    # An operator or a region in place of several modules belongs to the one that called it, and is of no one kind.
    module = modules.pop() if len(modules) == 1 else place.module
    one_kind = main is not None and (module == main.op.module or is_operator(event.name))
    base = event.name.rpartition("::")[2]
    own_ns = sum(kernel.duration_ns for kernel in kernels)
    cost: Cost | None = None
    if counted and all(row.cost is not None for row in counted):  # unknown if that of one is
        cost = sum(((row.cost or ZERO) * row.op.repeat for row in counted), ZERO)
    # A list of tensors does not have its element type, and none is guessed: such an input is left out.
    shapes = zip(event.shapes, event.dtypes, strict=False)
    given = tuple(TensorSpec(_flat(shape), DTYPES[dtype]) for shape, dtype in shapes if dtype in DTYPES)
    return ProfileRow(
        id=number, name=f"{module}.{base}" if module else base, type=event.name,
        kind=main.op.kind if main is not None and one_kind else "", module=module, phase=place.phase,
        device=kernels[0].device if kernels else "cpu", stream=kernels[0].stream if kernels else "",
        provider="runtime" if event.runtime else "cpu_op", step=place.step, host_start_ns=event.start_ns,
        host_ns=duration, host_self_ns=max(0, duration - inside), device_ns=own_ns if with_device else None,
        device_total_ns=total if with_device else None, kernels=kernels,
        ins=main.ins if main is not None and len(counted) == 1 else given,
        outs=counted[-1].outs if counted else (), attrs=main.op.attrs if main is not None else NO_ATTRS, cost=cost,
    )  # fmt: skip


# -- which counted operator is which recorded one: the same phase, module, family and shapes, in the same order
#
# The recorded run names more operators than the count (`aten::linear` around `aten::addmm`, `aten::expand` inside it), and a
# device may choose another of the same family (`aten::cudnn_batch_norm`). A family is what one translation serves.

_Where: TypeAlias = "tuple[int | None, str, str]"  # step, phase and module in which an operator ran
NOT_A_TENSOR = frozenset({"", "Scalar", "ScalarList", "GenericList"})
_REGIONS = ("Torch-Compiled Region", "## Call CompiledFxGraph", "CompiledFunction")
"""Inside these, operators of all modules below run without a call of the modules."""

_NO_ARITHMETIC = frozenset(
    f"aten::{name}"
    for name in "as_strided contiguous copy_ detach empty empty_like empty_strided expand item reshape resize_ select slice "
    "t to transpose view".split()
)
"""Operators that make or move tensors and cannot be what counted FLOPs were fused into."""
_SAME = {
    "aten::addmm": "aten::mm",
    "aten::baddbmm": "aten::bmm",
    "mkldnn::_convolution_pointwise": "aten::convolution",
    "mkldnn::_convolution_pointwise_": "aten::convolution",
    "mkldnn::_linear_pointwise": "aten::linear",
}
"""What a compiler puts in place of an operator when it fuses the next one into it, such as a sum into a product."""


class Matcher:
    """Hands out the rows of a report, each at most once per step."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows = rows
        self._families: dict[tuple[int | str, ...], list[Row]] = {}  # by phase and family, and in which module too
        for row in rows:
            key = row.op.phase, family_of(row.op.raw)
            self._families.setdefault(key, []).append(row)
            self._families.setdefault((*key, row.op.module), []).append(row)
        self._used: defaultdict[int | None, set[int]] = defaultdict(set)  # by step, the rows that are handed out

    def match(self, roots: Sequence[EventNode]) -> dict[int, tuple[Row, ...]]:
        """The counted rows of each recorded node, by the node's identity; below a matched node nothing is matched."""
        found: dict[int, tuple[Row, ...]] = {}
        outermost: list[EventNode] = []  # operators that no operator is around
        replayed: list[EventNode] = []  # compiled regions that replay a CUDA graph
        regions: set[_Where] = set()  # where compiled regions ran operators
        waiting = [(root, False, False) for root in reversed(roots)]  # is in a compiled region, is in an operator
        while waiting:
            node, compiled, inside = waiting.pop()
            if node.event.runtime:
                continue
            compiled = compiled or node.event.name.startswith(_REGIONS)
            if compiled and any(child.event.runtime and GRAPH_LAUNCH in child.event.name for child in node.children):
                replayed.append(node)
            if not inside and is_operator(node.event.name):
                inside = True
                outermost.append(node)
                if compiled:
                    regions.add(_where(node))
            row = self._take(node, compiled=compiled)
            if row is not None:
                found[id(node)] = (row,)
            else:
                waiting.extend((child, compiled, inside) for child in reversed(node.children))
        self._place_rest([node for node in outermost if _where(node) not in regions], found)
        # A compiled region that replays a CUDA graph calls no operators: where it is the only one, all of them are in it.
        alone = Counter(map(_where, replayed))
        for node in replayed:
            step, phase, module = place = _where(node)
            if alone[place] == 1:
                left = [row for row in self._rows if row.op.phase == phase and _is_below(row, module)]
                self._place(node, step, [row for row in left if row.op.id not in self._used[step]], found)
        return found

    def _place(self, node: EventNode, step: int | None, rows: list[Row], found: dict[int, tuple[Row, ...]]) -> None:
        found[id(node)] = tuple(rows)
        self._used[step].update(row.op.id for row in rows)

    def _place_rest(self, outermost: Sequence[EventNode], found: dict[int, tuple[Row, ...]]) -> None:
        """Give what a fused operator did in place of the counted ones to it, where only one can have done it.

        `nn.TransformerEncoderLayer` in inference is one operator and calls none of its modules.
        """
        there: dict[_Where, list[EventNode]] = {}
        for node in outermost:
            if not _holds_match(node, found):
                row = self._take(node, compiled=False, any_shape=True)
                if row is not None:
                    found[id(node)] = (row,)
            there.setdefault(_where(node), []).append(node)
        # The rows with arithmetic that no step's operators took, each at the nearest module above it that ran any
        left: dict[_Where, list[Row]] = {}
        for step in {step for step, _, _ in there}:
            for row in self._rows:
                if row.op.id in self._used[step] or row.cost is None or not row.cost.flops:
                    continue
                module = row.op.module
                while module and (step, row.op.phase, module) not in there:
                    module = module.rpartition(".")[0]
                left.setdefault((step, row.op.phase, module), []).append(row)
        for place, rows in left.items():
            able = [n for n in there.get(place, ()) if id(n) not in found and n.event.name not in _NO_ARITHMETIC]
            bare = [node for node in able if not _holds_match(node, found)]
            if len(bare or able) == 1:
                self._place((bare or able)[0], place[0], rows, found)

    def unmatched(self, steps: Sequence[int]) -> list[Row]:
        """Rows of forward and backward passes that some step did not show."""
        matched = set.intersection(*(self._used.get(step, set()) for step in steps)) if steps else set()
        return [row for row in self._rows if row.op.id not in matched and row.op.phase != "update"]

    def _take(self, node: EventNode, *, compiled: bool, any_shape: bool = False) -> Row | None:
        """The first row that is left for this node: given exactly what it reads, else more than that, or anything.

        Exactly is also that and where to write. Rows are of the node's family in its module; of a compiled one also in
        modules below, which are not called.
        """
        used, module = self._used[node.place.step], node.place.module
        key: tuple[int | str, ...] = node.place.phase, family_of(node.event.name)
        rows = self._families.get(key if compiled else (*key, module), ())
        left = [row for row in rows if row.op.id not in used and (not compiled or _is_below(row, module))]
        given: Counter[Any] = Counter(tensor_shapes(node)) if left else Counter()
        fitting: Row | None = None
        for row in left:
            read = Counter(spec.shape for spec in row.ins if spec.known)
            if given in (read, read + Counter(spec.shape for spec in row.outs if spec.known)):
                fitting = row
                break
            if fitting is None and (any_shape or all(given[shape] >= count for shape, count in read.items())):
                fitting = row
        if fitting is not None:
            used.add(fitting.op.id)
        return fitting


def _is_below(row: Row, module: str) -> bool:
    """Whether a row is of this module or of one inside it."""
    return not module or f"{row.op.module}.".startswith(f"{module}.")


def _where(node: EventNode) -> _Where:
    return node.place.step, node.place.phase, node.place.module


def _holds_match(node: EventNode, found: Container[int]) -> bool:
    """Whether a counted row was found for an operator or for one inside it."""
    return any(id(inner) in found for inner in node.walk())


def family_of(operator: str) -> int | str:
    """What is the same for operators that cost by the same formula: their translation, or else the name itself."""
    from opcost.frontends.aten.call import HANDLERS

    operator = _SAME.get(operator, operator)
    plain = operator.removesuffix("_")
    handler = HANDLERS.get(operator) or HANDLERS.get(plain)
    return id(handler) if handler is not None else plain.replace("::_unsafe_", "::")


def tensor_shapes(node: EventNode) -> Iterator[tuple[int, ...]]:
    """The shapes of an operator's tensor arguments, those in lists included."""
    for shape, dtype in zip(node.event.shapes, node.event.dtypes, strict=False):
        if dtype == "TensorList":
            yield from (tuple(part) for part in shape if isinstance(part, (list, tuple)))
        elif dtype not in NOT_A_TENSOR:
            yield _flat(shape)


def _flat(shape: Any) -> tuple[int, ...]:
    return tuple(extent for extent in shape if isinstance(extent, int))
