"""Where in the run something belongs: its module (from the calls of modules), its phase (forward, backward, update), its step.

Modules and phases are found thread by thread while `link` walks through them. What the backward pass ran gets the module of the
forward operator with the same sequence number, once all threads are known.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from opcost.core.graph import Phase
from opcost.traces.kineto.columns import CALLS, INTS, LONGS, NONE, Columns, Lane, Numbers, TracedSignature
from opcost.traces.kineto.decoding import ANNOTATION, OPERATOR

NEVER = 2**64  # later than every time

# -- modules


def open_at(times: array[int], call_starts: array[int], parents: list[int], ends: list[int]) -> list[int]:
    """The innermost call that is open at each of these times, which only grow; NONE where none is."""
    found = []
    starts = iter(call_starts)
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


@dataclass(slots=True)
class ModuleTree:
    """The modules of a trace, numbered; a module is identified by the one around it and its own class and number."""

    paths: list[str] = field(default_factory=list)
    """By number: the classes and numbers from the outermost, as `ResNet_0.Conv2d_3`."""
    _numbers: Numbers[tuple[int, str]] = field(default_factory=Numbers)

    def at(self, times: Iterable[array[int]], calls: Lane, names: list[str]) -> list[int]:
        """The innermost module at each of these times, given its calls on a thread; `names` are those of all signatures.

        A call that seems to end after the one around it is inside it all the same.
        """
        calls.sort()
        parents: list[int] = []
        modules: list[int] = []
        ends = [start + duration for start, duration in zip(calls.start, calls.duration, strict=True)]
        row = NONE
        for call, (start, signature) in enumerate(zip(calls.start, calls.signature, strict=True)):
            while row != NONE and ends[row] <= start:
                row = parents[row]
            around, name = NONE if row == NONE else modules[row], names[signature]
            module = self._numbers[around, name]
            if module == len(self.paths):
                self.paths.append(name if around == NONE else f"{self.paths[around]}.{name}")
            parents.append(row)
            modules.append(module)
            row = call
        modules.append(NONE)  # where no call is open
        return [modules[row] for each in times for row in open_at(each, calls.start, parents, ends)]


# -- phases

PHASES: tuple[Phase, ...] = ("forward", "backward", "update", "recompute")
FORWARD, BACKWARD, UPDATE, RECOMPUTE = range(4)
ENGINE = "autograd::engine::evaluate_function"
OPTIMIZER = "Optimizer."


@dataclass(slots=True)
class TrainingPhases:
    """What is known of backward passes and updates, over all threads."""

    beginnings: dict[int, int]  # the phase that a signature begins
    forward: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By sequence number, start and module of the last forward operator that has it: the one that made the node."""
    nodes: array[int] = field(default_factory=LONGS)
    """The sequence number of each node that the backward engine ran, or NONE."""
    rows: array[int] = field(default_factory=INTS)
    """The rows that ran under a node, and in the column beside it which: they get their modules when all threads are known."""
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
        self.note(nodes[:-1], first)
        return phases, nodes

    def note(self, nodes: list[int], first: int) -> None:
        """Note which of the rows from `first` on ran under a node, given that of each."""
        under = [row for row, node in enumerate(nodes) if node != NONE]
        self.rows.extend([first + row for row in under])
        self.node_of_rows.extend([nodes[row] for row in under])

    def resolve(self, modules: array[int]) -> None:
        """Give what the backward engine ran the module of the forward operator with the same sequence number."""
        found = [self.forward.get(sequence, (0, NONE))[1] for sequence in self.nodes]
        for row, node in zip(self.rows, self.node_of_rows, strict=True):
            modules[row] = found[node]


def training_of(signatures: list[TracedSignature], threads: Iterable[Lane]) -> TrainingPhases | None:
    """The beginnings of backward passes and updates; None where a trace has neither."""
    found = {}
    for number, signature in enumerate(signatures):
        if signature.sort == ANNOTATION and signature.name.startswith(OPTIMIZER):
            found[number] = UPDATE
        elif signature.sort == OPERATOR and signature.name.startswith(ENGINE):
            found[number] = BACKWARD
    return TrainingPhases(found) if found or any(1 in calls.backward for calls in threads) else None


# -- steps: as the profiler's schedule marked them, else from update to update, else as annotations repeat

UPDATE_PREFIX = "Optimizer.step#"
LOADS = "enumerate(DataLoader)"  # what the framework itself annotates in every step, beside updates
LEAST_SHARE = 0.5
"""Annotations that repeat are steps where they cover this share of the time from the first to the last of them."""


class TraceStep(NamedTuple):
    """From when to when, and its number."""

    start: int
    end: int
    number: int


def steps_of(columns: Columns) -> list[TraceStep]:
    """The steps in order: where the profiler's schedule marked none, those between updates or of the author's annotations."""
    if columns.steps:
        steps: list[TraceStep] = []
        ends: dict[int, int] = {}
        for start, end, number in sorted(columns.steps):
            if start >= ends.get(number, start):  # several processes in one file each mark the same
                steps.append(TraceStep(start, end, number))
                ends[number] = end
        return steps
    # Start and end of annotations by their names but for numbers, on the thread that has most of them, in order
    names = {
        number: re.sub(r"\d+", "", signature.name)
        for number, signature in enumerate(columns.signatures)
        if signature.sort == ANNOTATION and signature.name
    }
    named: dict[str, list[tuple[int, int]]] = {}
    for lanes in columns.threads.values() if names else ():
        lane = lanes.get(CALLS, Lane())
        found: dict[str, list[tuple[int, int]]] = {}
        for start, duration, signature in zip(lane.start, lane.duration, lane.signature, strict=True):
            if signature in names:
                found.setdefault(names[signature], []).append((start, start + duration))
        for name, spans in found.items():
            if len(spans) > len(named.get(name, ())):
                named[name] = sorted(spans)
    updates = [spans for name, spans in named.items() if name.startswith(UPDATE_PREFIX)]
    if updates:  # a step ends with its update; the first began before the trace, or at an unmarked time
        ends_of_steps = [end for _, end in max(updates, key=len)]
        return [TraceStep(start, end, number) for number, (start, end) in enumerate(pairwise(ends_of_steps), 1)]
    covered = {
        name: sum(end - start for start, end in spans)
        for name, spans in named.items()
        if len(spans) > 1
        and not name.startswith(("Optimizer.", LOADS))
        and all(end <= start for (_, end), (start, _) in pairwise(spans))  # none is inside another
    }
    best = max(covered, key=covered.__getitem__, default="")
    if best and covered[best] >= LEAST_SHARE * (named[best][-1][1] - named[best][0][0]):
        return [TraceStep(start, end, number) for number, (start, end) in enumerate(named[best])]
    return []
