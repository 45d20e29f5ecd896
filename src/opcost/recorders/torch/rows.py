"""From nested events to the rows of a profile: one per operator that the model's code called."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias, TypeVar

from opcost.core.graph import NO_ATTRS, ZERO, Cost, TensorSpec
from opcost.core.profile import Kernel, ProfileRow
from opcost.core.report import Row
from opcost.recorders.torch.events import GRAPH_LAUNCH, DeviceEvent, EventNode, is_operator
from opcost.traces.kineto.operators import DTYPES


class RowMaker:
    """Makes rows, numbered in order of execution."""

    def __init__(self, matched: Mapping[int, tuple[Row, ...]], *, with_device: bool) -> None:
        self._matched = matched
        self._with_device = with_device
        self._rows: list[ProfileRow] = []

    def rows(self, roots: Sequence[EventNode]) -> tuple[ProfileRow, ...]:
        """The rows of everything that ran within a step."""
        for root in roots:
            if root.place.step is not None:
                self._add(root)
        return tuple(self._rows)

    def _add(self, node: EventNode) -> None:
        event = node.event
        if event.runtime:
            # A launch outside any operator (a CUDA graph) is a row; waiting for the device is none.
            if node.kernels:
                self._append(node, "runtime", (node,), None)
        elif is_operator(event.name) or id(node) in self._matched:
            # What the model's code called is one row, whatever it calls inside.
            self._append(node, "cpu_op", tuple(node.walk()), self._found(node))
        else:
            inner = tuple(child for child in node.children if child.event.runtime)
            self._append(node, "cpu_op", (node, *inner), None)
            for child in node.children:
                if not child.event.runtime:
                    self._add(child)

    def _found(self, node: EventNode) -> list[Row]:
        """What was counted of this node and all inside it, in order of execution."""
        rows = [row for inner in node.walk() for row in self._matched.get(id(inner), ())]
        return sorted(rows, key=lambda row: row.op.id)

    def _append(self, node: EventNode, provider: str, own: Sequence[EventNode], counted: Sequence[Row] | None) -> None:
        """A row of this node; `own` are the nodes whose time and kernels are its own."""
        event, place = node.event, node.place
        duration = event.end_ns - event.start_ns
        others = {id(child) for child in node.children} - {id(inner) for inner in own}
        inside = sum(c.event.end_ns - c.event.start_ns for c in node.children if id(c) in others)
        kernels = tuple(kernel_of(kernel) for inner in own for kernel in inner.kernels)
        total = sum(kernel.duration_ns for inner in node.walk() for kernel in inner.kernels)
        main = max(counted, key=_weight) if counted else None
        modules = {row.op.module for row in counted or ()}
        # An operator or a region in place of several modules belongs to the one that called it, and is of no one kind.
        module = modules.pop() if len(modules) == 1 else place.module
        one_kind = main is not None and (module == main.op.module or is_operator(event.name))
        base = event.name.rpartition("::")[2]
        own_ns = sum(kernel.duration_ns for kernel in kernels)
        self._rows.append(
            ProfileRow(
                id=len(self._rows), name=f"{module}.{base}" if module else base, type=event.name,
                kind=main.op.kind if main is not None and one_kind else "",
                module=module, phase=place.phase, device=kernels[0].device if kernels else "cpu",
                stream=kernels[0].stream if kernels else "", provider=provider, step=place.step,
                host_start_ns=event.start_ns, host_ns=duration, host_self_ns=max(0, duration - inside),
                device_ns=own_ns if self._with_device else None,
                device_total_ns=total if self._with_device else None,
                kernels=kernels,
                ins=main.ins if main is not None and len(counted or ()) == 1 else tuple(_ins(node)),
                outs=counted[-1].outs if counted else (),
                attrs=main.op.attrs if main is not None else NO_ATTRS,
                cost=_sum(counted),
            )
        )  # fmt: skip


def kernel_of(event: DeviceEvent) -> Kernel:
    """The device's work as a profile holds it."""
    return Kernel(event.name, event.device, event.stream, event.start_ns, event.duration_ns, event.launched_ns)


def _weight(row: Row) -> tuple[int, int]:
    cost = row.cost or ZERO
    return cost.flops, cost.bytes_read + cost.bytes_written


def _sum(counted: Sequence[Row] | None) -> Cost | None:
    """The cost of an operator that consists of counted ones; unknown if one of them is."""
    if not counted:
        return None
    total = ZERO
    for row in counted:
        if row.cost is None:
            return None
        total += row.cost * row.op.repeat
    return total


def _ins(node: EventNode) -> Iterator[TensorSpec]:
    for shape, dtype in zip(node.event.shapes, node.event.dtypes, strict=False):
        if dtype == "TensorList":
            # The list does not say its element type, and none is guessed: such an input is left out.
            continue
        if dtype not in NOT_A_TENSOR and dtype in DTYPES:
            yield TensorSpec(tuple(extent for extent in shape if isinstance(extent, int)), DTYPES[dtype])


# -- which counted operator is which recorded one: the same phase, module, family and shapes, in the same order
#
# The recorded run names more operators than the count (`aten::linear` around `aten::addmm`, `aten::expand` inside it), and a
# device may choose another of the same family (`aten::cudnn_batch_norm`). A family is what one translation serves.

_Key = TypeVar("_Key")
_Where: TypeAlias = "tuple[int | None, str, str]"  # step, phase and module in which an operator ran
NOT_A_TENSOR = frozenset({"", "Scalar", "ScalarList", "GenericList"})
_REGIONS = ("Torch-Compiled Region", "## Call CompiledFxGraph", "CompiledFunction")
"""Inside these, operators of all modules below run without a call of the modules."""


_NO_ARITHMETIC = frozenset(
    f"aten::{name}"
    for name in (
        "as_strided", "contiguous", "copy_", "detach", "empty", "empty_like", "empty_strided", "expand", "item", "reshape",
        "resize_", "select", "slice", "t", "to", "transpose", "view",
    )
)  # fmt: skip
"""Operators that make or move tensors and cannot be what counted FLOPs were fused into."""


_SAME = {
    "aten::addmm": "aten::mm",
    "aten::baddbmm": "aten::bmm",
    "mkldnn::_convolution_pointwise": "aten::convolution",
    "mkldnn::_convolution_pointwise_": "aten::convolution",
    "mkldnn::_linear_pointwise": "aten::linear",
}
"""What a compiler puts in place of an operator when it fuses the next one into it, such as a sum into a product."""


class _Visit(NamedTuple):
    """A recorded node on the way down from a root: whether a compiled region is around it, and whether an operator is."""

    node: EventNode
    compiled: bool = False
    inside: bool = False


@dataclass(slots=True)
class _Seen:
    """What was met on the way down."""

    outermost: list[EventNode] = field(default_factory=list)  # operators that no operator is around
    replayed: list[EventNode] = field(default_factory=list)  # compiled regions that replay a CUDA graph
    regions: set[_Where] = field(default_factory=set)  # where compiled regions ran operators

    def enter(self, visit: _Visit) -> _Visit:
        """Note a node, and say what is around those inside it."""
        node = visit.node
        compiled = visit.compiled or node.event.name.startswith(_REGIONS)
        if compiled and any(child.event.runtime and GRAPH_LAUNCH in child.event.name for child in node.children):
            self.replayed.append(node)
        if visit.inside or not is_operator(node.event.name):
            return _Visit(node, compiled, visit.inside)
        self.outermost.append(node)
        if compiled:
            self.regions.add(_where(node))
        return _Visit(node, compiled, inside=True)


class Matcher:
    """Hands out the rows of a report, each at most once per step."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows = rows
        self._in_module = _grouped(rows, lambda row: (row.op.phase, row.op.module, family_of(row.op.raw)))
        self._anywhere = _grouped(rows, lambda row: (row.op.phase, family_of(row.op.raw)))
        self._used: defaultdict[int | None, set[int]] = defaultdict(set)  # by step, the rows that are handed out

    def match(self, roots: Sequence[EventNode]) -> dict[int, tuple[Row, ...]]:
        """The counted rows of each recorded node, by the node's identity; below a matched node nothing is matched."""
        found: dict[int, tuple[Row, ...]] = {}
        seen = _Seen()
        waiting = [_Visit(root) for root in reversed(roots)]
        while waiting:
            visit = waiting.pop()
            if visit.node.event.runtime:
                continue
            node, compiled, inside = seen.enter(visit)
            row = self._take(node, compiled=compiled)
            if row is not None:
                found[id(node)] = (row,)
            else:
                waiting.extend(_Visit(child, compiled, inside) for child in reversed(node.children))
        self._place_rest([node for node in seen.outermost if _where(node) not in seen.regions], found)
        self._place_replayed(seen.replayed, found)
        return found

    def _place_replayed(self, replayed: Sequence[EventNode], found: dict[int, tuple[Row, ...]]) -> None:
        """A compiled region that replays a CUDA graph calls no operators: where it is the only one, all of them are in it."""
        alone = Counter(_where(node) for node in replayed)
        for node in replayed:
            step, phase, module = place = _where(node)
            used = self._used[step]
            if alone[place] == 1:
                below = f"{module}." if module else ""
                rows = [
                    row
                    for row in self._rows
                    if row.op.phase == phase and row.op.id not in used and f"{row.op.module}.".startswith(below)
                ]
                found[id(node)] = tuple(rows)
                used.update(row.op.id for row in rows)

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
        for place, rows in self._left_at(there).items():
            able = [n for n in there.get(place, ()) if id(n) not in found and n.event.name not in _NO_ARITHMETIC]
            bare = [node for node in able if not _holds_match(node, found)]
            if len(bare or able) == 1:
                found[id((bare or able)[0])] = tuple(rows)
                self._used[place[0]].update(row.op.id for row in rows)

    def _left_at(self, there: Collection[_Where]) -> dict[_Where, list[Row]]:
        """The rows with arithmetic that no step's operators took, each at the nearest module above it that ran any."""
        left: dict[_Where, list[Row]] = {}
        for step in {step for step, _, _ in there}:
            used = self._used[step]
            for row in self._rows:
                if row.op.id in used or row.cost is None or not row.cost.flops:
                    continue
                module = row.op.module
                while module and (step, row.op.phase, module) not in there:
                    module = module.rpartition(".")[0]
                left.setdefault((step, row.op.phase, module), []).append(row)
        return left

    def unmatched(self, steps: Sequence[int]) -> list[Row]:
        """Rows of forward and backward passes that some step did not show."""
        matched = set.intersection(*(self._used.get(step, set()) for step in steps)) if steps else set()
        return [row for row in self._rows if row.op.id not in matched and row.op.phase != "update"]

    def _take(self, node: EventNode, *, compiled: bool, any_shape: bool = False) -> Row | None:
        """The first row that is left for this node: given exactly what it reads, else more than that, or anything."""
        used = self._used[node.place.step]
        left = [row for row in self._candidates(node, compiled=compiled) if row.op.id not in used]
        given = Counter(tensor_shapes(node)) if left else Counter()
        exact = (row for row in left if _is_given(row, given))
        row = next(exact, None) or next((row for row in left if any_shape or _fits(row, given)), None)
        if row is not None:
            used.add(row.op.id)
        return row

    def _candidates(self, node: EventNode, *, compiled: bool) -> Iterable[Row]:
        """The rows of a node's family in its module; of a compiled one also in modules below, which are not called."""
        phase, module, family = node.place.phase, node.place.module, family_of(node.event.name)
        if not compiled:
            return self._in_module.get((phase, module, family), ())
        below = f"{module}." if module else ""
        rows = self._anywhere.get((phase, family), ())
        return [row for row in rows if row.op.module == module or row.op.module.startswith(below)]


def _grouped(rows: Iterable[Row], key: Callable[[Row], _Key]) -> dict[_Key, list[Row]]:
    found: dict[_Key, list[Row]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return found


def _where(node: EventNode) -> _Where:
    return node.place.step, node.place.phase, node.place.module


def _holds_match(node: EventNode, found: Container[int]) -> bool:
    """Whether a counted row was found for an operator or for one inside it."""
    return any(id(inner) in found for inner in node.walk())


def family_of(operator: str) -> int | str:
    """What is the same for operators that cost by the same formula: their translation, or else the name itself."""
    from opcost.frontends.aten import HANDLERS

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


def _is_given(row: Row, given: Counter[tuple[int, ...]]) -> bool:
    """Whether the recorded operator was given exactly what the counted one reads, or that and where to write."""
    wanted = Counter(spec.shape for spec in row.ins if spec.known)
    return given == wanted or given == wanted + Counter(spec.shape for spec in row.outs if spec.known)


def _fits(row: Row, given: Counter[tuple[int, ...]]) -> bool:
    """Whether the recorded operator was given all that the counted one reads."""
    wanted = Counter(spec.shape for spec in row.ins if spec.known)
    return all(given[shape] >= count for shape, count in wanted.items())  # type: ignore[index]
