"""`FlopCounterMode`: FLOPs by module and operator of what runs inside a block."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry, shape_wrapper

from opcost.api import Recording, recording
from opcost.compat._layers.names import lineage
from opcost.compat._recording import current_recorder, warn_uncounted
from opcost.compat.flop_counter.table import flop_table
from opcost.core.report import Report

if TYPE_CHECKING:
    from typing_extensions import Self

WHOLE = "Global"
_TORCHS_OWN = "torch.utils.flop_counter"
"""Where the formulas are from that PyTorch brings; opcost's rules stand for those."""
Price = Callable[..., int]


class FlopCounterMode:
    """Counts inside `with FlopCounterMode() as counter:`; `counter.get_total_flops()` and the table come afterwards.

    `custom_mapping` prices operators: {torch.ops.library.operator: function of the arguments' shapes and `out_shape`}; a function
    whose `_get_raw` is true receives the tensors and `out_val`.
    """

    def __init__(
        self,
        mods: nn.Module | list[nn.Module] | None = None,
        depth: int = 2,
        display: bool = True,
        custom_mapping: Mapping[Any, Price] | None = None,
    ) -> None:
        if mods is not None:
            warnings.warn("mods argument is not needed anymore, you can stop passing it", stacklevel=2)
        self.depth = depth
        self.display = display
        self._custom = {
            op: formula if getattr(formula, "_get_raw", False) else shape_wrapper(formula)
            for op, formula in (custom_mapping or {}).items()
        }
        self._recording: Recording | None = None
        self._told: list[_Told] = []
        self._undo = ExitStack()

    def __enter__(self) -> Self:
        self._told = []
        self._recording = self._undo.enter_context(recording())
        registered = {op: formula for op, formula in flop_registry.items() if formula.__module__ != _TORCHS_OWN}
        if formulas := {**registered, **self._custom}:
            self._undo.enter_context(_Prices(formulas, self._told))
        return self

    def __exit__(self, exception: type[BaseException] | None, *_: object) -> None:
        self._undo.close()
        if exception is None:
            covered = {str(call.operator).replace(".", "::", 1) for call in self._told}
            warn_uncounted(self.report, covered)
        if self.display:
            print(self.get_table(self.depth))

    @property
    def report(self) -> Report:
        """The whole of what ran, in opcost's own terms."""
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
        for module, operator, flops in self._priced(report):
            for path in lineage(module):
                if not path or path in called:
                    here = counts.setdefault(_name(path), {})
                    here[operator] = here.get(operator, 0) + flops
        return counts

    def get_total_flops(self) -> int:
        return sum(self.flop_counts.get(WHOLE, {}).values())

    def get_flop_counts(self) -> dict[str, dict[Any, int]]:
        """FLOPs by module and operator."""
        return self.flop_counts

    def get_table(self, depth: int | None = None) -> str:
        """Modules down to a depth, each with its operators."""
        return flop_table(self.flop_counts, self.depth if depth is None else depth)

    def _priced(self, report: Report) -> Iterator[tuple[str, Any, int]]:
        """Module, operator and FLOPs of everything that has any; a price of the caller's stands for what its operator became."""
        told = {call.first: call for call in self._told}
        covered = 0
        for index, row in enumerate(report.rows):
            if (call := told.get(index)) is not None:
                covered = max(call.end, index + 1)
                yield row.op.module, call.operator, call.flops
            elif index >= covered and row.cost is not None and row.cost.macs:
                flops = row.cost.flops if row.op.kind == "custom" else 2 * row.cost.macs
                yield row.op.module, _packet(row.op.raw), flops * row.op.repeat


class _Told(NamedTuple):
    """What a price of the caller's said, and the recorded operators that it stands for."""

    operator: Any
    flops: int
    first: int
    end: int


class _Prices(TorchDispatchMode):  # type: ignore[misc]
    """Asks the caller's prices for the operators that they name."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else the first operator imports the compiler

    def __init__(self, prices: Mapping[Any, Price], told: list[_Told]) -> None:
        super().__init__()
        self._prices = prices
        self._told = told

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        operator = getattr(func, "_overloadpacket", func)
        price = self._prices.get(operator)
        recorder = current_recorder()
        if price is None or recorder is None:
            return func(*args, **kwargs)
        first = len(recorder.ops)
        result = func(*args, **kwargs)
        flops = price(*args, **kwargs, out_val=result)
        self._told.append(_Told(operator, int(flops), first, len(recorder.ops)))
        return result


def _name(path: str) -> str:
    """A module by the class of the outermost one that was called, and the names below it."""
    return path.replace("<", "").replace(">", "") if path else WHOLE


def _packet(raw: str) -> Any:
    """The operator of torch behind a recorded name; the name itself where there is none."""
    library, _, name = raw.partition("::")
    return getattr(getattr(torch.ops, library), name, raw) if hasattr(torch.ops, library) else raw
