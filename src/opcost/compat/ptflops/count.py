"""What a model costs by the rules of ptflops, per module or per operator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from opcost.compat._layers.names import Names
from opcost.compat._operators.node import Node
from opcost.compat._operators.trace import Trace, trace
from opcost.compat.ptflops.rules import CELLS, contraction_macs, node_macs
from opcost.core.graph import TensorSpec

Hook = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class ModuleMacs:
    """Multiply-adds of every module with what is below it, by name."""

    names: Names
    by_module: Counter[str]
    called: frozenset[str]

    @property
    def total(self) -> int:
        return self.by_module[""]

    def of(self, name: str) -> int:
        """A name under which a shared module was never called shows what the module cost under its first."""
        return self.by_module[name if name in self.called else self.names.canonical(name)]


def count_modules(
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    ignored: Collection[type],
    hooks: Mapping[type, Hook],
    *,
    functional: bool = True,
) -> ModuleMacs:
    """Every operator counts for the module that runs it and all above; a hook's number takes the place of its module's own.

    `functional=False` leaves out what modules outside `torch.nn` run themselves.
    """
    names = Names(model)
    kinds = {name: type(module) for name, module in names.modules.items()}
    with _collecting(names, hooks) as own:
        found = trace(model, args, kwargs, mode="eval")
    left_out = {*ignored, *hooks}
    for node in found.nodes:
        name = names.registered(node.module)
        if not functional and not kinds[name].__module__.startswith("torch.nn."):
            continue
        if left_out.isdisjoint(kinds[above] for above in names.lineage(name)):
            own[name] += _products_only(node) if kinds[name] in CELLS else node_macs(node)
    for name, number in _cell_states(found, names, kinds, left_out):
        own[name] += number
    by_module: Counter[str] = Counter()
    for name, number in own.items():
        # A hook below a hooked or ignored module adds nothing more.
        if (
            left_out.isdisjoint(kinds[above] for above in names.lineage(name) if above != name)
            and kinds[name] not in ignored
        ):
            by_module.update(dict.fromkeys(names.lineage(name), number))
    called = frozenset(above for call in found.report.calls for above in names.lineage(names.registered(call.path)))
    return ModuleMacs(names, by_module, called)


def _products_only(node: Node) -> int:
    """Inside a cell the arithmetic of the state has a number of its own."""
    return node_macs(node) if node.macs else 0


def _cell_states(
    found: Trace, names: Names, kinds: Mapping[str, type], left_out: Collection[type]
) -> Iterator[tuple[str, int]]:
    for call in found.report.calls:
        name = names.registered(call.path)
        if kinds[name] in CELLS and set(left_out).isdisjoint(kinds[above] for above in names.lineage(name)):
            x = call.inputs[0]
            yield name, x.numel // x.dims[-1] * names.modules[name].hidden_size * CELLS[kinds[name]]  # type: ignore[operator]


@contextmanager
def _collecting(names: Names, hooks: Mapping[type, Hook]) -> Iterator[Counter[str]]:
    """Lets a user's hooks run after their modules, and gathers what they add to `module.__flops__`."""
    collected: Counter[str] = Counter()
    handles = []

    def listen(name: str, hook: Hook) -> Hook:
        def after(module: nn.Module, args: Any, output: Any) -> None:
            module.__flops__ = 0  # type: ignore[assignment]
            try:
                hook(module, args, output)
                collected[name] += int(module.__flops__)  # type: ignore[arg-type]
            finally:
                del module.__flops__

        return after

    try:
        for name in names.first:
            module = names.modules[name]
            if type(module) in hooks:
                handles.append(module.register_forward_hook(listen(name, hooks[type(module)])))
        yield collected
    finally:
        for handle in handles:
            handle.remove()


@dataclass(frozen=True, slots=True)
class OperatorMacs:
    """Multiply-adds by operator, for the whole model and for each of its children, and operators that count nothing."""

    by_module: dict[str, Counter[str]]
    ignored: tuple[str, ...]
    free: tuple[str, ...]

    @property
    def total(self) -> int:
        return sum(self.by_module[WHOLE].values())


WHOLE = "Global"


def count_operators(
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    ignored: Collection[Any],
    hooks: Mapping[Any, Hook],
) -> OperatorMacs:
    """Contractions by the operator that the dispatcher runs."""
    found = trace(model, args, kwargs, mode="eval")
    names = Names(model)
    by_name = {str(packet): hook for packet, hook in hooks.items()}
    left_out = {str(packet) for packet in ignored}
    counts: dict[str, Counter[str]] = {WHOLE: Counter()}
    skipped, free = [], []
    for row in found.report.rows:
        operator = row.op.raw.replace("::", ".")
        if operator in left_out:
            skipped.append(operator)
            continue
        if operator in by_name:
            number = by_name[operator](_without_data(row.ins), _without_data(row.outs))
        else:
            number = contraction_macs(row)
            if not number:
                free.append(operator)
                continue
        child = names.registered(row.op.module).partition(".")[0]
        for group in (WHOLE, child) if child else (WHOLE,):
            counts.setdefault(group, Counter())[operator] += number
    return OperatorMacs(counts, tuple(skipped), tuple(free))


def _without_data(specs: tuple[TensorSpec, ...]) -> tuple[torch.Tensor, ...]:
    return tuple(torch.empty(spec.dims, dtype=getattr(torch, spec.dtype), device="meta") for spec in specs)
