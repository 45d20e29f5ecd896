"""The operators of a long run, written down as patterns: in the place of the ledger's list once a run is long."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import overload

from opcost.core.graph import Op
from opcost.core.steps import Pattern, PatternedOps, PatternOp, Single, Steps
from opcost.frontends.torch.ledger.tensors import Entry, OpRecord


class Journal(Sequence[OpRecord]):
    """As a list of records, for those who look back; what it holds is the steps. All of them run forward."""

    def __init__(self, records: Iterable[OpRecord]) -> None:
        self.steps = Steps()
        self.ahead: Callable[[], int] = int
        """How many operators ran that are written down only when the turn is over to which they belong (see `turns`)."""
        self._of_entry: dict[int, tuple[Entry, Pattern]] = {}
        for record in records:
            self.append(record)

    def append(self, record: OpRecord) -> None:
        """Write down an operator that ran by itself."""
        entry, inputs, outputs, module, _ = record
        found = self._of_entry.get(id(entry))
        if found is None:
            found = self._of_entry[id(entry)] = entry, self._alone(entry, len(inputs))
        self.steps.append(found[1], inputs, outputs[0] if outputs else 0, module)

    def _alone(self, entry: Entry, arity: int) -> Pattern:
        op = PatternOp(
            entry.kind, entry.raw, entry.attrs, tuple([~at for at in range(arity)]), tuple(range(len(entry.outs)))
        )
        new = tuple([at for at, out in enumerate(entry.outs) if out.base < 0])
        return Single(arity, (op,), tuple([out.sig.spec for out in entry.outs]), new)

    def __len__(self) -> int:
        return self.steps.operators + self.ahead()

    @overload
    def __getitem__(self, index: int) -> OpRecord: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[OpRecord]: ...
    def __getitem__(self, index: int | slice) -> OpRecord | Sequence[OpRecord]:
        if index == -1:
            return next(reversed(self))
        ops = PatternedOps(self.steps)[index]
        return _record(ops) if isinstance(ops, Op) else [_record(op) for op in ops]

    def __reversed__(self) -> Iterator[OpRecord]:
        steps = self.steps
        index, end = steps.operators, len(steps.arguments)
        for pattern, first, module in zip(
            reversed(steps.patterns), reversed(steps.firsts), reversed(steps.modules), strict=True
        ):
            begin = end - pattern.arity
            for op in reversed(pattern.ops):
                index -= 1
                yield _record(op.run(index, steps.arguments[begin:end], first, module))
            end = begin


def _record(op: Op) -> OpRecord:
    return OpRecord(Entry(op.kind, op.raw, op.attrs, None, (), None), op.inputs, op.outputs, op.module, op.phase)
