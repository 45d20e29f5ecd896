"""From nested events to the rows of a profile: one per operator that the model's code called."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from opcost.core.graph import NO_ATTRS, ZERO, Cost, TensorSpec
from opcost.core.profile import Kernel, ProfileRow
from opcost.core.report import Row
from opcost.recorders.torch.events import DeviceEvent
from opcost.recorders.torch.matching import NOT_A_TENSOR
from opcost.recorders.torch.nesting import Node, is_operator
from opcost.traces.kineto.arguments import DTYPES


class RowMaker:
    """Makes rows, numbered in order of execution."""

    def __init__(self, matched: Mapping[int, tuple[Row, ...]], *, with_device: bool) -> None:
        self._matched = matched
        self._with_device = with_device
        self._rows: list[ProfileRow] = []

    def rows(self, roots: Sequence[Node]) -> tuple[ProfileRow, ...]:
        """The rows of everything that ran within a step."""
        for root in roots:
            if root.place.step is not None:
                self._add(root)
        return tuple(self._rows)

    def _add(self, node: Node) -> None:
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

    def _found(self, node: Node) -> list[Row]:
        """What was counted of this node and all inside it, in order of execution."""
        rows = [row for inner in node.walk() for row in self._matched.get(id(inner), ())]
        return sorted(rows, key=lambda row: row.op.id)

    def _append(self, node: Node, provider: str, own: Sequence[Node], counted: Sequence[Row] | None) -> None:
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
                id=len(self._rows),
                name=f"{module}.{base}" if module else base,
                type=event.name,
                kind=main.op.kind if main is not None and one_kind else "",
                module=module,
                phase=place.phase,
                device=kernels[0].device if kernels else "cpu",
                stream=kernels[0].stream if kernels else "",
                provider=provider,
                step=place.step,
                host_start_ns=event.start_ns,
                host_ns=duration,
                host_self_ns=max(0, duration - inside),
                device_ns=own_ns if self._with_device else None,
                device_total_ns=total if self._with_device else None,
                kernels=kernels,
                ins=main.ins if main is not None and len(counted or ()) == 1 else tuple(_ins(node)),
                outs=counted[-1].outs if counted else (),
                attrs=main.op.attrs if main is not None else NO_ATTRS,
                cost=_sum(counted),
            )
        )


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


def _ins(node: Node) -> Iterator[TensorSpec]:
    for shape, dtype in zip(node.event.shapes, node.event.dtypes, strict=False):
        if dtype == "TensorList":
            # The list does not say its element type, and none is guessed: such an input is left out.
            continue
        if dtype not in NOT_A_TENSOR and dtype in DTYPES:
            yield TensorSpec(tuple(extent for extent in shape if isinstance(extent, int)), DTYPES[dtype])
