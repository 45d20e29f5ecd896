"""PyTorch's schedules of pipelines: what each rank does in which order, and runs of a few microbatches that have all of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch

from opcost.core.graph import Op
from opcost.core.order import MARK, EventKind, StageEvent, StageMessage
from opcost.distributed.pipelining import SCHEDULES, Pipelining
from opcost.errors import InputError
from opcost.frontends.torch import private
from opcost.frontends.torch.recording.recorder import DatalessRecorder
from opcost.frontends.torch.restore.process import replaced
from opcost.frontends.torch.sharding.microbatches import CarriedOver, covers

_KINDS: dict[str, EventKind] = {
    "F": "forward", "B": "backward", "I": "input", "W": "weight", "UNSHARD": "gather", "RESHARD": "free",
    "REDUCE_GRAD": "reduce",
}  # fmt: skip
"""What PyTorch calls what a stage does."""
_MESSAGES: dict[str, tuple[Any, Any]] = {
    "SEND_F": ("send", "forward"), "RECV_F": ("recv", "forward"), "SEND_B": ("send", "backward"), "RECV_B": ("recv", "backward"),
}  # fmt: skip
_FORWARD = frozenset({"F", "SEND_F", "RECV_F", "UNSHARD", "RESHARD"})
_RUNS: dict[str, EventKind] = {
    "forward_one_chunk": "forward", "backward_one_chunk": "backward", "perform_reduce_grad": "reduce",
}  # fmt: skip
_GIVES: dict[str, tuple[Any, Any]] = {
    "get_fwd_send_ops": ("send", "forward"), "get_fwd_recv_ops": ("recv", "forward"),
    "get_bwd_send_ops": ("send", "backward"), "get_bwd_recv_ops": ("recv", "backward"),
}  # fmt: skip
"""Methods of a stage, by what they do or hand to other stages."""


class SchedulePlan(NamedTuple):
    """What the ranks of a pipeline do."""

    pipelining: Pipelining
    trains: bool
    ranks: int
    microbatches: int
    events: tuple[tuple[StageEvent, ...], ...]
    """Of each rank."""
    actions: tuple[tuple[Any, ...], ...]
    """The same as PyTorch writes it; of schedules with one stage on each rank nothing."""


def plan_of(pipelining: Pipelining, ranks: int, microbatches: int, *, gathers: bool, trains: bool) -> SchedulePlan:
    """What PyTorch's schedule lets each rank do; parameters are gathered and freed only where they are sharded."""
    made = private.pipelining_schedules().get_schedule_class(SCHEDULES[pipelining.schedule].name)
    several = issubclass(made, private.pipelining_schedules().PipelineScheduleMulti)
    numbers = [pipelining.stages(rank, ranks) for rank in range(ranks)]
    try:
        if not several:
            events = tuple(_rehearsed(made(_alone(rank, ranks, trains), microbatches)) for rank in range(ranks))
            return SchedulePlan(pipelining, trains, ranks, microbatches, events, ())
        stages = [_stand_in(number, ranks * pipelining.per_rank, 0, ranks) for number in numbers[0]]
        schedule = made(stages, microbatches)
    except (ValueError, AssertionError) as exc:
        fault = f"the schedule {pipelining.schedule} does not run {microbatches} microbatches over pp={ranks}: {exc}"
        raise InputError(
            " ".join(fault.split()), hint=f"microbatches={2 * ranks}, and a batch that they divide"
        ) from exc
    every = [schedule.pipeline_order_with_comms[rank] for rank in range(ranks)]
    actions = tuple(
        tuple(action for action in own if trains or action.computation_type.value in _FORWARD) for own in every
    )
    events = tuple(tuple(filter(None, (event_of(action, gathers=gathers) for action in own))) for own in actions)
    return SchedulePlan(pipelining, trains, ranks, microbatches, events, actions)


def event_of(action: Any, *, gathers: bool) -> StageEvent | None:
    """An action of PyTorch's schedules as an event."""
    name, stage, microbatch = action.computation_type.value, action.stage_index, action.microbatch_index
    if name in _MESSAGES:
        return StageEvent("messages", messages=(StageMessage(*_MESSAGES[name], stage, microbatch),))
    kind = _KINDS[name]
    if kind in ("gather", "free") and not gathers:
        return None
    return StageEvent(kind, stage, -1 if microbatch is None else microbatch)


def _stand_in(number: int, stages: int, rank: int, ranks: int) -> Any:
    """What a schedule reads of a stage while it is made."""
    return SimpleNamespace(
        stage_index=number, num_stages=stages, group_rank=rank, group_size=ranks, submod=None, is_first=number == 0,
        is_last=number == stages - 1,
    )  # fmt: skip


# -- schedules with one stage on each rank: what they do is seen while they run ------------------------------------------------


@contextmanager
def noting(stage: Any, note: Callable[[StageEvent], None], *, runs: bool) -> Iterator[None]:
    """Note what a schedule lets a stage do; without `runs`, nothing is done."""
    named: dict[int, StageMessage] = {}
    schedules = private.pipelining_schedules()
    send = schedules._batch_p2p

    def run(kind: EventKind, method: Any, *args: Any, **kwargs: Any) -> Any:
        if kind == "forward" or stage.has_backward:
            note(StageEvent(kind, stage.stage_index, -1 if kind == "reduce" else args[0]))
        return method(*args, **kwargs) if runs else None

    def give(what: tuple[Any, Any], method: Any, microbatch: int) -> list[Any]:
        found = method(microbatch) if runs else _neighbours(stage, *what)
        named.update((id(one), StageMessage(*what, stage.stage_index, microbatch)) for one in found)
        return found

    def batch(messages: list[Any], desc: str | None = None) -> list[Any]:
        if messages:
            note(StageEvent("messages", messages=tuple([named[id(one)] for one in messages])))
        return send(messages, desc) if runs else []  # type: ignore[no-any-return]

    for name, kind in _RUNS.items():
        setattr(stage, name, partial(run, kind, getattr(stage, name, None)))
    for name, what in _GIVES.items():
        setattr(stage, name, partial(give, what, getattr(stage, name, None)))
    with replaced(schedules, "_batch_p2p", batch):
        yield


def _neighbours(stage: Any, what: str, phase: str) -> list[Any]:
    """A message, if there is a stage on that side."""
    to_next = (what == "send") == (phase == "forward")
    alone = (stage.is_last if to_next else stage.is_first) or (phase == "backward" and not stage.has_backward)
    return [] if alone else [SimpleNamespace(peer=0)]


def _alone(rank: int, ranks: int, trains: bool) -> Any:  # noqa: FBT001
    stage = _stand_in(rank, ranks, rank, ranks)
    stage.has_backward = trains
    return stage


def _rehearsed(schedule: Any, microbatches: int | None = None, depth: int | None = None) -> tuple[StageEvent, ...]:
    """What a schedule lets its stage do, without doing it; of other microbatches, or as if there were other stages."""
    events: list[StageEvent] = []
    schedule._initialize_stage = lambda *_, **__: None
    schedule._n_microbatches = microbatches or schedule._n_microbatches
    schedule._num_stages = depth or schedule._num_stages
    with noting(schedule._stage, events.append, runs=False):
        schedule._step_microbatches()
    return tuple(events)


# -- few microbatches ------------------------------------------------------------------------------------------------------------


class Excerpt(NamedTuple):
    """A step of few microbatches in which everything occurs that a rank does in a step of all."""

    events: tuple[StageEvent, ...]
    actions: tuple[Any, ...]
    microbatches: int
    depth: int
    """Of a schedule with one stage on each rank: the number of stages that it believes in."""


def excerpt(plan: SchedulePlan, rank: int, memory: CarriedOver) -> Excerpt:
    """The shortest such step."""
    every = plan.events[rank]
    if plan.actions:
        for number in range(2, plan.microbatches):
            found = _with_few(plan, rank, number)
            if covers(found.events, every, memory):
                return found
        return whole(plan, rank)
    made = private.pipelining_schedules().get_schedule_class(SCHEDULES[plan.pipelining.schedule].name)
    for number in range(2, plan.microbatches):
        for ahead in range(1, min(number, plan.ranks - rank) + 1):
            events = _rehearsed(made(_alone(rank, plan.ranks, plan.trains), plan.microbatches), number, rank + ahead)
            if covers(events, every, memory):
                return Excerpt(events, (), number, rank + ahead)
    return whole(plan, rank)


def whole(plan: SchedulePlan, rank: int) -> Excerpt:
    """The step itself."""
    return Excerpt(plan.events[rank], plan.actions[rank] if plan.actions else (), plan.microbatches, plan.ranks)


def _with_few(plan: SchedulePlan, rank: int, number: int) -> Excerpt:
    """As many microbatches, evenly among all, in the order in which they run."""
    kept = {round(at * (plan.microbatches - 1) / (number - 1)): at for at in range(number)}
    actions = tuple(
        action if action.microbatch_index is None else action._replace(microbatch_index=kept[action.microbatch_index])
        for action in plan.actions[rank]
        if action.microbatch_index is None or action.microbatch_index in kept
    )
    gathers = any(event.kind == "gather" for event in plan.events[rank])
    events = tuple(filter(None, (event_of(action, gathers=gathers) for action in actions)))
    return Excerpt(events, actions, number, 0)


# -- running it ------------------------------------------------------------------------------------------------------------------


class ExcerptStep:
    """A step of few microbatches, run by PyTorch's schedule, with a mark at each event."""

    def __init__(self, plan: SchedulePlan, rank: int, few: Excerpt, stages: Sequence[Any]) -> None:
        self._plan, self._few, self._stages = plan, few, stages
        schedules = private.pipelining_schedules()
        loss = (lambda output, _: output) if plan.trains else None
        if plan.actions:
            self._schedule = schedules._PipelineScheduleRuntime(list(stages), plan.microbatches, loss)
            self._schedule.pipeline_order_with_comms = {rank: list(few.actions)}
            self._schedule.stage_index_to_group_rank = {
                number: plan.pipelining.rank_of(number, plan.ranks) for number in range(plan.ranks * plan.pipelining.per_rank)
            }  # fmt: skip
            for stage in stages:
                stage.stage_index_to_group_rank = self._schedule.stage_index_to_group_rank
        else:
            made = schedules.get_schedule_class(SCHEDULES[plan.pipelining.schedule].name)
            self._schedule = made(stages[0], plan.microbatches, loss)
            self._schedule._num_stages = few.depth
        self.restores = self._schedule, *stages
        """What a run changes."""

    def step(self, **given: torch.Tensor) -> None:
        """Run it, as `step` of a schedule does, on what each of all microbatches is given."""
        schedule, few = self._schedule, self._few.microbatches
        for stage in self._stages:
            stage.has_backward = self._plan.trains
            stage.clear_runtime_states()
        parts = _split(given, self._plan.microbatches)
        initialize = getattr(schedule, "_initialize_stages", None) or schedule._initialize_stage
        initialize((), parts[0])  # with room for all
        schedule._n_microbatches = few
        recorder = next(mode for mode in private.dispatch_modes() if isinstance(mode, DatalessRecorder))
        expected = iter(self._few.events)

        def mark(event: StageEvent | None) -> None:
            if event is not None:
                assert event == next(expected)
                recorder.ops.append(Op(len(recorder.ops), "view", MARK, (), (), {}, "", 1, recorder.phase))

        with self._noted(mark):
            schedule._step_microbatches([()] * few, parts[:few], [None] * few, None, return_outputs=False)
        assert next(expected, None) is None
        recorder.ops.append(Op(len(recorder.ops), "view", MARK, (), (), {}, "", 1, recorder.phase))

    @contextmanager
    def _noted(self, mark: Callable[[StageEvent | None], None]) -> Iterator[None]:
        if not self._plan.actions:
            with noting(self._stages[0], mark, runs=True):
                yield
            return
        schedules = private.pipelining_schedules()
        name = schedules._get_profiler_function_name
        gathers = any(event.kind == "gather" for event in self._few.events)

        def begun(action: Any) -> Any:
            mark(event_of(action, gathers=gathers))
            return name(action)

        with replaced(schedules, "_get_profiler_function_name", begun):
            yield


def _split(given: dict[str, torch.Tensor], microbatches: int) -> list[dict[str, torch.Tensor]]:
    """What each microbatch is given: its part of tensors of the whole batch, and the others as they are."""
    batch = max((tensor.shape[0] for tensor in given.values() if tensor.dim()), default=0)
    parts = {
        name: tensor.tensor_split(microbatches) if tensor.dim() and tensor.shape[0] == batch else [tensor] * microbatches
        for name, tensor in given.items()
    }  # fmt: skip
    return [{name: part[number] for name, part in parts.items()} for number in range(microbatches)]
