"""Which counted operator is which recorded one: the same phase, module, family and shapes, in the same order.

The recorded run names more operators than the count (`aten::linear` around `aten::addmm`, `aten::expand` inside it), and a
device may choose another of the same family (`aten::cudnn_batch_norm`). A family is what one translation serves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from opcost.core.report import Row
from opcost.recorders.torch.nesting import Node

NOT_A_TENSOR = frozenset({"", "Scalar", "ScalarList", "GenericList"})
_REGIONS = ("Torch-Compiled Region", "## Call CompiledFxGraph", "CompiledFunction")
"""Inside these, operators of all modules below run without a call of the modules."""


class Matcher:
    """Hands out the rows of a report, each at most once per step."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows = rows
        self._in_module: dict[tuple[str, str, int | str], list[Row]] = {}
        self._anywhere: dict[tuple[str, int | str], list[Row]] = {}
        for row in rows:
            phase, family = row.op.phase, family_of(row.op.raw)
            self._in_module.setdefault((phase, row.op.module, family), []).append(row)
            self._anywhere.setdefault((phase, family), []).append(row)
        self._used: dict[int | None, set[int]] = {}

    def match(self, roots: Sequence[Node]) -> dict[int, Row]:
        """The counted row of each recorded node, by the node's identity; below a matched node nothing is matched."""
        found: dict[int, Row] = {}
        waiting: list[tuple[Node, bool]] = [(root, False) for root in reversed(roots)]
        while waiting:
            node, compiled = waiting.pop()
            compiled = compiled or node.event.name.startswith(_REGIONS)
            row = None if node.event.runtime else self._take(node, compiled=compiled)
            if row is not None:
                found[id(node)] = row
            else:
                waiting.extend((child, compiled) for child in reversed(node.children))
        return found

    def unmatched(self, steps: Sequence[int]) -> list[Row]:
        """Rows of forward and backward passes that some step did not show."""
        shown = set.intersection(*(self._used.get(step, set()) for step in steps)) if steps else set()
        return [row for row in self._rows if row.op.id not in shown and row.op.phase != "update"]

    def _take(self, node: Node, *, compiled: bool) -> Row | None:
        place, family = node.place, family_of(node.event.name)
        if compiled:
            below = f"{place.module}." if place.module else ""
            asked: Iterator[Row] = (
                row
                for row in self._anywhere.get((place.phase, family), ())
                if row.op.module == place.module or row.op.module.startswith(below)
            )
        else:
            asked = iter(self._in_module.get((place.phase, place.module, family), ()))
        used = self._used.setdefault(place.step, set())
        given: Counter[tuple[int, ...]] | None = None
        for row in asked:
            if row.op.id in used:
                continue
            if given is None:
                given = Counter(tensor_shapes(node))
            if _fits(row, given):
                used.add(row.op.id)
                return row
        return None


def family_of(operator: str) -> int | str:
    """What is the same for operators that cost by the same formula: their translation, or else the name itself."""
    from opcost.frontends.torch.aten.call import HANDLERS

    plain = operator.removesuffix("_")
    handler = HANDLERS.get(operator) or HANDLERS.get(plain)
    return id(handler) if handler is not None else plain.replace("::_unsafe_", "::")


def tensor_shapes(node: Node) -> Iterator[tuple[int, ...]]:
    """The shapes of an operator's tensor arguments, those in lists included."""
    for shape, dtype in zip(node.event.shapes, node.event.dtypes, strict=False):
        if dtype == "TensorList":
            yield from (tuple(part) for part in shape if isinstance(part, (list, tuple)))
        elif dtype not in NOT_A_TENSOR:
            yield _flat(shape)


def _flat(shape: Any) -> tuple[int, ...]:
    return tuple(extent for extent in shape if isinstance(extent, int))


def _fits(row: Row, given: Counter[tuple[int, ...]]) -> bool:
    """Whether the recorded operator was given all that the counted one reads."""
    wanted = Counter(spec.shape for spec in row.ins if spec.known)
    return all(given[shape] >= count for shape, count in wanted.items())  # type: ignore[index]
