"""A training step of a given size made to fit: which modules to recompute in its backward pass, each choice counted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from opcost.api import count_graph
from opcost.core.graph import Graph
from opcost.core.names import is_inside, matches, patterns_for
from opcost.core.report import Report
from opcost.core.results import StepCost
from opcost.errors import ForwardError, InputError

MOST_COUNTS = 6  # choices that are counted


class CountedChoice(NamedTuple):
    """What was counted with some modules recomputed."""

    modules: tuple[str, ...]
    patterns: tuple[str, ...]  # that mean these modules
    report: Report
    cost: StepCost
    needed: int  # what is compared with the limit

    @property
    def work(self) -> int:
        """By which choices are compared: the predicted time, or else FLOPs."""
        return self.cost.flops if self.cost.latency_ns is None else self.cost.latency_ns


@dataclass(slots=True)
class Search:
    """The modules to recompute so that a step keeps to a memory limit."""

    model: Any
    arguments: Mapping[str, Any]  # of the count, at the given size
    limit: int
    device: str
    counted: Callable[[], None]  # called after each count
    notes: list[str] = field(default_factory=list)

    def plain(self) -> tuple[CountedChoice, Graph | None]:
        """The step as it is."""
        return self._count((), ())

    def best(self, plain: CountedChoice, graph: Graph) -> CountedChoice:
        """The choice of least cost that keeps to the limit; if none does, the one that needs the least memory.

        The plain run predicts each choice. What its count finds beyond that, such as an allocator's losses, is taken off the
        limit of the next choice.
        """
        from opcost.analysis.recomputation import PlainStep

        step = PlainStep.of(
            graph, plain.report.known_memory().curve, self._costs(plain.report), self._offered(plain.report)
        )
        every = {module.path: module.same_as or module.path for module in plain.report.modules}
        types = {module.path: module.type for module in plain.report.modules}
        beyond = plain.needed - step.peak(())
        tried: set[tuple[str, ...]] = {()}
        choices = [plain]
        for _ in range(MOST_COUNTS):
            chosen = step.cheapest(self.limit - beyond)
            if chosen is None:
                chosen = step.cheapest(step.least_peak()) or ()
            modules = tuple(each.path for each in chosen)
            if modules in tried:
                break
            tried.add(modules)
            try:
                found, _ = self._count(modules, patterns_for(modules, every))
            except ForwardError:
                fails = types[self._failing(modules, every)]
                step = step.without([path for path, name in types.items() if name == fails])
                self.notes.append(f"{fails} is not recomputed: called again, it fails")
                continue
            beyond = found.needed - step.peak(chosen)
            choices.append(found)
        fitting = [choice for choice in choices if choice.needed <= self.limit]
        best = (
            min(fitting, key=lambda choice: choice.work) if fitting else min(choices, key=lambda choice: choice.needed)
        )
        self.notes += _batch_norms(best)
        return best

    def _failing(self, modules: tuple[str, ...], every: Mapping[str, str]) -> str:
        """The module that fails when it is recomputed, of several of which one does."""
        while len(modules) > 1:
            half = modules[: len(modules) // 2]
            try:
                self._count(half, patterns_for(half, every))
                modules = modules[len(half) :]
            except ForwardError:
                modules = half
        return modules[0]

    def _count(self, modules: tuple[str, ...], patterns: tuple[str, ...]) -> tuple[CountedChoice, Graph | None]:
        from opcost.devices.allocator import needed_bytes

        report, graph = count_graph(self.model, **{**self.arguments, "checkpoint": (*self._given, *patterns)})
        self.counted()
        memory = report.known_memory()
        needed = needed_bytes(memory, self.limit)
        predicted = self._predicted(report)
        cost = StepCost(
            peak_bytes=memory.peak_bytes, reserved_bytes=None if memory.lives is None else needed, flops=report.totals.flops,
            latency_ns=predicted and predicted.latency_ns, band_ns=predicted and predicted.band_ns,
        )  # fmt: skip
        return CountedChoice(modules, (*self._given, *patterns), report, cost, needed), graph

    def _predicted(self, report: Report) -> Any:
        """The time on the device; None where none is named, or it cannot be predicted."""
        from opcost.predicting import predict

        if not self.device:
            return None
        try:
            return predict(report, device=self.device)
        except InputError as exc:
            self.notes.append(f"without a time: {exc.message}")
            self.device = ""
            return None

    def _costs(self, report: Report) -> Sequence[float]:
        """Of each operator its predicted time, or else its FLOPs."""
        if (predicted := self._predicted(report)) is not None:
            times = {row.id: row.device_ns or 0 for row in predicted.rows}
            return [times.get(row.op.id, 0) for row in report.rows]
        return [row.cost.flops * row.op.repeat if row.cost else 0 for row in report.rows]

    @property
    def _given(self) -> tuple[str, ...]:
        """The patterns of modules that are recomputed in any case."""
        given = self.arguments.get("checkpoint") or ()
        return (given,) if isinstance(given, str) else tuple(given)

    def _offered(self, report: Report) -> Callable[[str], bool]:
        """Whether a module is neither inside nor around one that is recomputed in any case."""
        taken = [
            each.path for each in report.modules if each.path and any(matches(each.path, own) for own in self._given)
        ]
        return lambda path: not any(_related(path, each) for each in taken)


def _related(path: str, other: str) -> bool:
    """Whether one is the other or inside of it."""
    return is_inside(path, other) or is_inside(other, path)


def _batch_norms(choice: CountedChoice) -> list[str]:
    norms = sum(
        "BatchNorm" in module.type and any(is_inside(module.path, path) for path in choice.modules)
        for module in choice.report.modules
    )
    if not norms or choice.report.meta.get("mode") != "train":
        return []
    return [f"{norms} batch norms are recomputed, so that each step updates their running statistics twice"]
