"""Which operator launched which piece of device work: the launch is found by its correlation, the operator by time.

A kernel belongs to the innermost operator that was running on the thread of its launch when it was launched. The field
`External id` is only a check: in old traces it is the correlation under another name, and would give wrong owners.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field

from opcost.traces.kineto.categories import ANNOTATION
from opcost.traces.kineto.columns import Signature
from opcost.traces.kineto.lane import NONE, Lane
from opcost.traces.kineto.modules import NEVER

GRAPH = -2
"""Owner of a kernel that a captured graph launched."""
OUTSIDE = -3
"""Owner of a kernel whose launch is not in the trace."""
_COPIES = re.compile(r"Mem(?:cpy|set)\w*Async")
_LAUNCHES = re.compile(r"Launch\w*Kernel")


@dataclass(slots=True)
class Launches:
    """Runtime calls by the correlation that they bear."""

    owner: dict[int, int] = field(default_factory=dict)
    """The row that launched something: of calls inside each other the outer one's, or NONE, or GRAPH."""
    calls: dict[int, int] = field(default_factory=dict)
    """The row of the call itself; of calls inside each other, the outer one."""
    captured: list[list[tuple[int, int, bool]]] = field(default_factory=list)
    """Of each captured graph what was launched: the row, the number of the kernel if it is told, and whether it copies."""

    def capture(self, leaves: Lane, around: list[int], first: int, sorts: Sorts, ran: Container[int]) -> None:
        """Find the launches of a thread that ran nothing, and so went into a graph, each in the row of `around`."""
        into: list[tuple[int, int, bool]] | None = None
        columns = zip(leaves.signature, leaves.link, leaves.external, around, strict=True)
        for signature, correlation, kernel, row in columns:
            if signature in sorts.begins:
                self.captured.append(into := [])
            elif signature in sorts.ends:
                into = None
            elif into is not None and correlation not in ran and (kernel >= 0 or signature in sorts.launches):
                into.append((row if row == NONE else first + row, kernel, signature in sorts.copies))

    def sweep(self, leaves: Lane, around: list[int], calls: Lane, parents: list[int], first: int, sorts: Sorts) -> None:
        """Tie the runtime calls of a thread, each in the row of `around`, to the innermost operator that holds it."""
        signature_of = calls.signature
        leaf = first + len(parents)  # runtime calls come behind what holds others
        for number, (signature, correlation, row) in enumerate(
            zip(leaves.signature, leaves.link, around, strict=True), leaf
        ):
            if correlation < 0:
                continue
            while row != NONE and not sorts.is_owner[signature_of[row]]:
                row = parents[row]  # noqa: PLW2901 - up to the next operator
            is_graph = signature in sorts.graphs and (row == NONE or not sorts.own_graphs)
            owner = GRAPH if is_graph else NONE if row == NONE else first + row
            if self.owner.setdefault(correlation, owner) == NONE:
                self.owner[correlation] = owner
            self.calls.setdefault(correlation, number)  # calls are sorted, so the outer one is met first


class Sorts:
    """What the signatures of a trace are to a launch."""

    __slots__ = ("begins", "copies", "ends", "graphs", "is_owner", "launches", "own_graphs")

    def __init__(self, signatures: list[Signature], owners: Sequence[int]) -> None:
        self.graphs = {number for number, signature in enumerate(signatures) if "GraphLaunch" in signature.name}
        self.own_graphs = ANNOTATION in owners
        """A graph replays what many operators launched once; what an author marked owns it whole."""
        names = [(number, signature.name) for number, signature in enumerate(signatures)]
        self.begins = {number for number, name in names if "BeginCapture" in name}
        self.ends = {number for number, name in names if "EndCapture" in name}
        self.copies = {number for number, name in names if _COPIES.search(name)}
        self.launches = self.copies | {number for number, name in names if _LAUNCHES.search(name)}
        self.is_owner = [signature.sort in owners for signature in signatures]


def open_at(times: Iterator[int], calls: Lane, ends: list[int], parents: list[int]) -> list[int]:
    """The innermost call that is open at each of these times, which only grow."""
    found = []
    starts = iter(calls.start)
    call, next_start = NONE, next(starts, NEVER)
    for time in times:
        while next_start <= time:
            call += 1
            next_start = next(starts, NEVER)
        row = call
        while row != NONE and ends[row] <= time:
            row = parents[row]
        found.append(row)
    return found
