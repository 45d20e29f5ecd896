"""torch.utils.flop_counter: a block that counts the FLOPs of what runs inside it, by module and operator.

    from opcost.compat.flop_counter import FlopCounterMode

A multiply-add is two FLOPs, everything else is free; the differences are listed in docs/compat.md.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import nn
from torch.utils.flop_counter import flop_registry, register_flop_formula, shape_wrapper

from opcost.api import Recording, recording
from opcost.compat._modules import lineage
from opcost.compat._recording import current_recorder, warn_uncounted
from opcost.compat._tables import simple_table
from opcost.core.report import Report
from opcost.frontends.torch.private import DispatchMode

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["FlopCounterMode", "flop_registry", "register_flop_formula"]

WHOLE = "Global"
_TORCHS_OWN = "torch.utils.flop_counter"
"""The module of the formulas that PyTorch brings; opcost's rules take their place."""
_SUFFIXES = ("", "K", "M", "B", "T")
Formula = Callable[..., int]


class FlopCounterMode:
    """Counts inside `with FlopCounterMode() as counter:`; `counter.get_total_flops()` and the table come afterwards.

    `custom_mapping` has formulas of operators: {torch.ops.library.operator: function of the arguments' shapes and `out_shape`};
    a function whose `_get_raw` is true receives the tensors and `out_val`.
    """

    def __init__(
        self, mods: nn.Module | list[nn.Module] | None = None, depth: int = 2, display: bool = True,
        custom_mapping: Mapping[Any, Formula] | None = None,
    ) -> None:  # fmt: skip
        if mods is not None:
            warnings.warn("mods argument is not needed anymore, you can stop passing it", stacklevel=2)
        self.depth = depth
        self.display = display
        self._custom = {
            op: formula if getattr(formula, "_get_raw", False) else shape_wrapper(formula)
            for op, formula in (custom_mapping or {}).items()
        }
        self._recording: Recording | None = None
        self._by_formula: list[_FormulaCall] = []
        self._undo = ExitStack()

    def __enter__(self) -> Self:
        self._by_formula = []
        self._recording = self._undo.enter_context(recording())
        registered = {op: formula for op, formula in flop_registry.items() if formula.__module__ != _TORCHS_OWN}
        if formulas := {**registered, **self._custom}:
            self._undo.enter_context(_FormulaMode(formulas, self._by_formula))
        return self

    def __exit__(self, exception: type[BaseException] | None, *_: object) -> None:
        self._undo.close()
        if exception is None:
            covered = {str(call.operator).replace(".", "::", 1) for call in self._by_formula}
            warn_uncounted(self.report, covered)
        if self.display:
            print(self.get_table(self.depth))

    @property
    def report(self) -> Report:
        """The whole count, in opcost's own terms."""
        if self._recording is None:
            raise RuntimeError("nothing has been counted: use FlopCounterMode as `with FlopCounterMode() as counter:`")
        return self._recording.report

    @property
    def flop_counts(self) -> dict[str, dict[Any, int]]:
        """FLOPs by module, with everything that ran inside it, and by operator."""
        counts: dict[str, dict[Any, int]] = {}
        if self._recording is None:
            return counts
        report = self.report
        called = {call.path for call in report.calls}
        for module, operator, flops in self._flops(report):
            for path in lineage(module):
                if not path or path in called:
                    name = path.replace("<", "").replace(">", "") if path else WHOLE
                    here = counts.setdefault(name, {})
                    here[operator] = here.get(operator, 0) + flops
        return counts

    def get_total_flops(self) -> int:
        return sum(self.flop_counts.get(WHOLE, {}).values())

    def get_flop_counts(self) -> dict[str, dict[Any, int]]:
        """FLOPs by module and operator."""
        return self.flop_counts

    def get_table(self, depth: int | None = None) -> str:
        """Modules down to a depth, in the order of their names, each with its operators.

        The whole comes first, unless one module is all of it.
        """
        counts, depth = self.flop_counts, self.depth if depth is None else depth
        total = sum(counts.get(WHOLE, {}).values())
        shown = [name for name in sorted(counts) if name != WHOLE and name.count(".") < depth]
        rows: list[list[str]] = []
        indent = 0
        if not total:
            rows, shown = [[WHOLE, "0", "0%"]], []
        elif not any(sum(counts[name].values()) >= total for name in shown):
            rows += _table_rows(WHOLE, counts[WHOLE], total, 0)
            indent = 1
        for name in shown:
            rows += _table_rows(name, counts[name], total, name.count(".") + indent)
        return simple_table(["Module", "FLOP", "% Total"], rows, "<>>")

    def _flops(self, report: Report) -> Iterator[tuple[str, Any, int]]:
        """Module, operator and FLOPs of every operator that has any; a formula of the caller's replaces all its rows."""
        by_formula = {call.first: call for call in self._by_formula}
        covered = 0
        for index, row in enumerate(report.rows):
            if (call := by_formula.get(index)) is not None:
                covered = max(call.end, index + 1)
                yield row.op.module, call.operator, call.flops
            elif index >= covered and row.cost is not None and row.cost.macs:
                flops = row.cost.flops if row.op.kind == "custom" else 2 * row.cost.macs
                # The operator of torch behind a recorded name; the name itself where there is none
                library, _, name = row.op.raw.partition("::")
                packet = getattr(getattr(torch.ops, library, None), name, row.op.raw)
                yield row.op.module, packet, flops * row.op.repeat


class _FormulaCall(NamedTuple):
    """The result of a formula of the caller's, and the recorded operators that it replaces."""

    operator: Any
    flops: int
    first: int
    end: int


class _FormulaMode(DispatchMode):
    """Evaluates the caller's formulas for their operators."""

    def __init__(self, formulas: Mapping[Any, Formula], found: list[_FormulaCall]) -> None:
        super().__init__()
        self._formulas = formulas
        self._found = found

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        operator = getattr(func, "_overloadpacket", func)
        formula = self._formulas.get(operator)
        recorder = current_recorder()
        if formula is None or recorder is None:
            return func(*args, **kwargs)
        first = len(recorder.ops)
        result = func(*args, **kwargs)
        flops = formula(*args, **kwargs, out_val=result)
        self._found.append(_FormulaCall(operator, int(flops), first, len(recorder.ops)))
        return result


def _table_rows(name: str, operators: Mapping[Any, int], total: int, indent: int) -> list[list[str]]:
    """A module and its operators; numbers are in the unit that fits the total."""
    power = max(0, min(len(_SUFFIXES) - 1, (len(str(total)) - 2) // 3))
    rows = []
    for text, flops in ((name, sum(operators.values())), *((f" - {operator}", n) for operator, n in operators.items())):
        # A column of plain numbers is written without a fraction.
        number = f"{flops / 1000**power:.3f}{_SUFFIXES[power]}" if power else f"{flops:g}"
        rows.append([" " * indent + text, number, f"{flops / total:.2%}"])
    return rows
