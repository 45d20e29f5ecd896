"""Which rows belong to the backward pass or to an update, and the modules of what the backward pass ran."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field

from opcost.core.graph import Phase
from opcost.traces.kineto.categories import ANNOTATION, OPERATOR
from opcost.traces.kineto.columns import Signature
from opcost.traces.kineto.lane import INTS, LONGS, NONE, Lane

PHASES: tuple[Phase, ...] = ("forward", "backward", "update", "recompute")
FORWARD, BACKWARD, UPDATE, RECOMPUTE = range(4)

ENGINE = "autograd::engine::evaluate_function"
OPTIMIZER = "Optimizer."


@dataclass(slots=True)
class Training:
    """What is known of backward passes and updates, over all threads."""

    beginnings: dict[int, int]
    """The phase that a signature begins."""
    forward: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By sequence number, start and module of the last forward operator that bears it: the one that made the node."""
    nodes: array[int] = field(default_factory=LONGS)
    """The sequence number of each node that the backward engine ran, or NONE."""
    rows: array[int] = field(default_factory=INTS)
    """The rows that ran under a node, and in the column beside it which: their modules wait until all threads are known."""
    node_of_rows: array[int] = field(default_factory=INTS)

    def sweep(self, calls: Lane, parents: list[int], modules: list[int], first: int) -> tuple[array[int], list[int]]:
        """Of each operator and annotation of a thread its phase, and the node of the backward engine that it ran under.

        Both columns have one more entry behind the last, for rows without a parent.
        """
        beginnings, forward = self.beginnings, self.forward
        phases = array("b", bytes(len(parents) + 1))
        nodes = [NONE] * (len(parents) + 1)
        for row, (parent, start, signature, link, backward) in enumerate(
            zip(parents, calls.start, calls.signature, calls.link, calls.backward, strict=True)
        ):
            phase, node = phases[parent], nodes[parent]
            if phase == BACKWARD and link >= 0 and not backward and signature not in beginnings:
                # The backward pass records nothing for a gradient, so it has no sequence numbers but those of its nodes.
                phase = RECOMPUTE
            elif phase == RECOMPUTE and (backward or beginnings.get(signature) == BACKWARD):
                phase = BACKWARD
            elif phase == FORWARD and (backward or signature in beginnings):
                phase = BACKWARD if backward else beginnings[signature]
                if phase == BACKWARD:
                    node = len(self.nodes)
                    self.nodes.append(link if backward else NONE)
            if node != NONE:
                nodes[row] = node
            elif link >= 0 and modules[row] != NONE:
                known = forward.get(link)
                if known is None or known[0] <= start:
                    forward[link] = start, modules[row]
            if phase:
                phases[row] = phase
        self.wait(nodes, range(len(parents)), first)
        return phases, nodes

    def wait(self, nodes: list[int], rows: Iterable[int], first: int) -> None:
        """Note the rows of a thread that ran under a node."""
        under = [row for row in rows if nodes[row] != NONE]
        self.rows.extend([first + row for row in under])
        self.node_of_rows.extend([nodes[row] for row in under])

    def resolve(self, modules: array[int]) -> None:
        """Give what the backward engine ran the module of the forward operator with the same sequence number."""
        found = [self.forward.get(sequence, (0, NONE))[1] for sequence in self.nodes]
        for row, node in zip(self.rows, self.node_of_rows, strict=True):
            modules[row] = found[node]


def training_of(signatures: list[Signature], threads: Iterable[Lane]) -> Training | None:
    """The beginnings of backward passes and updates; None where a trace has neither."""
    found = {}
    for number, signature in enumerate(signatures):
        if signature.sort == ANNOTATION and signature.name.startswith(OPTIMIZER):
            found[number] = UPDATE
        elif signature.sort == OPERATOR and signature.name.startswith(ENGINE):
            found[number] = BACKWARD
    return Training(found) if found or any(1 in calls.backward for calls in threads) else None
