"""The graphs of the ranks of a pipeline: stages are run for a few microbatches by PyTorch's schedule, and continued to all."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import nn

from opcost.core.alignment import NotRepeating
from opcost.core.graph import Graph, Note
from opcost.core.order import MARK, StageEvent
from opcost.core.repeating import repeated
from opcost.distributed.pipelining import blocks_of_stages
from opcost.distributed.sharding import Sharding
from opcost.errors import InputError, some
from opcost.frontends.options import CountOptions
from opcost.frontends.torch.recording.training_step import loss_of, words_of_loss
from opcost.frontends.torch.sharding.microbatches import CarriedOver, Composition
from opcost.frontends.torch.sharding.one_rank import FEWEST, MANY
from opcost.frontends.torch.sharding.pieces import BEGIN, END
from opcost.frontends.torch.sharding.schedules import Excerpt, ExcerptStep, excerpt, plan_of, whole
from opcost.frontends.torch.sharding.sharded_copy import spread_all
from opcost.frontends.torch.sharding.stages import (
    Split,
    Stage,
    before_blocks,
    blocks_of,
    name_of_input,
    needed,
    without_absent,
)
from opcost.frontends.torch.tree import map_tensors, tensors_in


def for_pipeline(options: CountOptions) -> CountOptions:
    """The options of a count, over a pipeline with a default batch of one sample for each microbatch."""
    sharding = options.sharding
    if sharding is None or sharding.mesh.pp == 1:
        return options
    if any(options.text):
        raise InputError("prefill and decode are not counted over a pipeline", hint="use tp or fsdp, or leave them out")
    if options.step.accumulate > 1 or options.step.zero_grad != "none":
        hint = "leave accumulate and zero_grad out, and give microbatches"
        raise InputError("the microbatches of a pipeline accumulate gradients, once in a step", hint=hint)
    made = options.inputs is options.shapes is None and not tensors_in(dict(options.kwargs))
    if not made or options.sizes.batch is not None:
        return options
    batch = sharding.pipelining.microbatches or 2 * sharding.mesh.pp
    return replace(options, sizes=options.sizes._replace(batch=batch))


class Runs(NamedTuple):
    """How a model is recorded."""

    forward: Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], Graph]
    """A forward pass on these arguments."""
    step: Callable[[nn.Module, Any, dict[str, Any]], Graph]
    """A step of a schedule, whose stages are those of the model, on what it is given by name."""
    trains: bool


class Pipeline:
    """A model over the ranks of a pipeline."""

    def __init__(
        self, model: nn.Module, args: Any, kwargs: Any, sharding: Sharding, dtype: torch.dtype | None, runs: Runs
    ) -> None:
        self._given, self._sharding, self._dtype, self._runs = (args, kwargs), sharding, dtype, runs
        pipelining, self._ranks = sharding.pipelining, sharding.mesh.pp
        self._tensors = tensors_in(self._given)
        batch = next((tensor.shape[0] for tensor in self._tensors if tensor.dim()), 0)
        if not batch:
            raise InputError("the inputs have no batch that a pipeline could split", hint="give inputs with one")
        self.microbatches = pipelining.split(batch, self._ranks)
        self._memory = CarriedOver(frees=sharding.gathers and sharding.reshard, lingers=pipelining.per_rank == 1)
        self._plan = plan_of(
            pipelining, self._ranks, self.microbatches, gathers=sharding.gathers, trains=runs.trains
        )  # fmt: skip
        size = batch // self.microbatches

        def part(tensor: torch.Tensor) -> torch.Tensor:
            return tensor.narrow(0, 0, size) if tensor.dim() and tensor.shape[0] == batch else tensor

        self._blocks = blocks_of(model)
        ranges = blocks_of_stages(len(self._blocks.names), self._ranks * pipelining.per_rank)
        self._split = Split(model, map_tensors(self._given, part), ranges, self._blocks, runs.forward)
        self._measure()
        self._compositions: dict[Hashable, list[tuple[int, Composition]]] = {}

    def _measure(self) -> None:
        """Find out what stages pass on here: a rank's part of it, maybe in another type."""
        stage = self._split.stage(0, range(1))
        with spread_all([(stage.model, self._spread(stage))], self._dtype) as ((model,), _):
            given = {name_of_input(at): tensor for at, tensor in enumerate(tensors_in(self._split.given))}
            self._runs.forward(model, (), given)
        ranks = self._sharding.mesh.tp
        for passed, part in zip(self._split.boundary.tensors, stage.handed, strict=True):
            if part.numel() not in (passed.numel(), passed.numel() / ranks):
                fault = f"{ranks} ranks of tp have unequal parts of what stages of a pipeline send"
                raise InputError(fault, hint="a sequence that they divide, or no sequence parallelism")
        self._split.boundary = self._split.boundary.passing(stage.handed)

    def graph(self) -> Graph:
        """The graph of the rank that was chosen, with those of all ranks that differ from it in their stage."""
        chosen = self._sharding.mesh.coordinates(self._sharding.rank)["pp"]
        own = self._recorded(chosen)
        ranks = [own if number == chosen else self._like_another(number) for number in range(self._ranks)]
        notes = tuple(note for note in own.notes if note.code != "ranks")
        return replace(own, pipeline=tuple(ranks), notes=(*notes, *self._notes(own)))

    def _notes(self, graph: Graph) -> Iterator[Note]:
        """What is counted, and what PyTorch leaves to its user."""
        mesh, per_rank = self._sharding.mesh, self._sharding.pipelining.per_rank
        stages = f"stage{'s' if per_rank > 1 else ''} {graph.meta['stages']} of {self._ranks * per_rank}"
        split = f"the batch is run in {self.microbatches} microbatches by the schedule {graph.meta['schedule']}"
        yield Note("ranks", f"rank {self._sharding.rank} of {mesh} has {stages}, {graph.meta['blocks']}; {split}")
        if shared := self._split.shared:
            names = ", ".join(some(list(shared)))
            said = f"several stages have {names}, whose gradients would have to be added up: schedules of PyTorch do not do that"
            yield Note("shared", said)

    # -- ranks --------------------------------------------------------------------------------------------------------------

    def _stages(self, number: int) -> tuple[int, ...]:
        return self._sharding.pipelining.stages(number, self._ranks)

    def _rank(self, number: int) -> int:
        """Of all ranks the one that differs from the chosen one on the axis of the pipeline alone."""
        return self._sharding.mesh.group(self._sharding.rank, "pp")[number]

    def _spread(self, stage: Stage) -> Sharding:
        """How a stage is spread, on its rank; only the last one has a loss."""
        number = self._sharding.pipelining.rank_of(stage.number, self._ranks)
        return replace(self._sharding, rank=self._rank(number), loss=self._sharding.loss and stage.last)

    def _kind(self, number: int) -> Hashable:
        """Ranks of one kind run the same operators: they have equal stages, of equal blocks."""
        last, stages = len(self._split.ranges) - 1, self._stages(number)
        return tuple(
            (stage == 0, stage == last, stage + 1 in stages, len(self._split.ranges[stage]), self._split.work_of(stage))
            for stage in stages
        )

    def _like_another(self, number: int) -> Graph:
        """The graph of a rank, from what was recorded of another one of its kind, if that is enough."""
        for other, composition in self._compositions.get(self._kind(number), ()):
            stages = dict(zip(self._stages(number), self._stages(other), strict=True))
            with suppress(NotRepeating):
                events = self._plan.events[number]
                found = composition.graph([_renumbered(event, stages) for event in events])
                if found.order is not None:
                    found = replace(found, order=replace(found.order, events=(BEGIN, *events, END)))
                return self._described(found, number)
        return self._recorded(number)

    def _recorded(self, number: int) -> Graph:
        """The graph of a rank: each piece once, or where they differ, as it runs."""
        for memory in (self._memory, self._memory._replace(counts=True), None):
            with suppress(NotRepeating):
                few = whole(self._plan, number) if memory is None else excerpt(self._plan, number, memory)
                graph = self._with_all_blocks(number, few)
                composition = Composition(graph, few.events, memory, self._unneeded(graph, few))
                found = composition.graph(self._plan.events[number])
                if memory is not None:
                    self._compositions.setdefault(self._kind(number), []).append((number, composition))
                return self._described(found, number)
        raise AssertionError("a step that is recorded in full is what it is")

    def _described(self, graph: Graph, number: int) -> Graph:
        """The graph with the stages of its rank, and the blocks that these have."""
        stages = self._stages(number)
        blocks = [self._split.ranges[stage] for stage in stages]
        ends = [f"{own.start}" if len(own) == 1 else f"{own.start}-{own.stop - 1}" for own in blocks]
        facts = {
            "stages": ", ".join(map(str, stages)), "blocks": f"{self._blocks.path or 'blocks'} {', '.join(ends)}",
            "schedule": self._sharding.pipelining.schedule, "microbatches": str(self.microbatches),
        }  # fmt: skip
        loss = {"loss": words_of_loss(labelled=self._split.labelled)} if self._runs.trains and self._split.loss else {}
        return replace(graph, meta={**graph.meta, **facts, **loss})

    # -- recording ----------------------------------------------------------------------------------------------------------

    def _with_all_blocks(self, number: int, few: Excerpt) -> Graph:
        """A step of a rank; of a stage with many blocks, from two with few of them."""
        blocks = self._split.ranges[self._stages(number)[0]]
        if len(self._stages(number)) == 1 and self._blocks.path and len(blocks) >= MANY:
            with suppress(NotRepeating):
                fewer, more = (
                    self._stepped(number, few, range(blocks.start, blocks.start + count)) for count in FEWEST[:2]
                )
                return repeated(fewer, more, self._blocks.path, len(blocks) - FEWEST[1])
        return self._stepped(number, few)

    def _stepped(self, number: int, few: Excerpt, blocks: range | None = None) -> Graph:
        """A step of a rank, of its stage maybe with some of its blocks alone."""
        from torch.distributed.pipelining import PipelineStage

        total, trains = self._ranks * self._sharding.pipelining.per_rank, self._runs.trains
        stages = [self._split.stage(stage, blocks) for stage in self._stages(number)]
        with spread_all([(stage.model, self._spread(stage)) for stage in stages], self._dtype) as (models, ranks):
            made = []
            for stage, model in zip(stages, models, strict=True):
                passed = tuple(_asking(tensor, gradients=trains) for tensor in self._split.boundary.tensors)
                outputs = tuple(torch.empty(0) for _ in range(1 if trains else self._split.outputs))
                ends = () if stage.first else passed, outputs if stage.last else passed
                stage.finish = self._loss_of if trains else _tensors_of
                group = ranks.along("pp").get_group()
                made.append(PipelineStage(model, stage.number, total, torch.device("cpu"), *ends, group=group))
            model = models[0]
            if len(stages) > 1:
                model = nn.ModuleDict({f"stage{stage.number}": own for stage, own in zip(stages, models, strict=True)})
            reads = sorted({at for stage in stages for at in stage.reads})
            given = {name_of_input(at): self._tensors[at] for at in reads}
            return without_absent(self._runs.step(model, ExcerptStep(self._plan, number, few, made), given))

    def _loss_of(self, result: Any) -> torch.Tensor:
        """The loss that the model computes, else one from which gradients begin at every output."""
        loss = loss_of(result, labelled=self._split.labelled)
        if loss is not None:
            return loss
        roots = [tensor for tensor in tensors_in(result) if tensor.requires_grad]
        return _Begin.apply(*roots)  # type: ignore[no-any-return, no-untyped-call]

    def _unneeded(self, graph: Graph, few: Excerpt) -> frozenset[int]:
        """What runs before the blocks of a stage that is not the first, and nothing needs."""
        marks = [op.id for op in graph.ops if op.raw == MARK]
        early: set[int] = set()
        for event, begin, end in zip(few.events, marks[:-1], marks[1:], strict=True):
            if event.kind == "forward" and event.stage:
                within = f"stage{event.stage}." if self._sharding.pipelining.per_rank > 1 else ""
                early |= before_blocks(graph.ops[begin:end], partial(self._is_block, within))
        found = needed(graph, lambda op: op.id not in early or op.kind == "collective")
        return frozenset(op.id for op in graph.ops if op.id not in found.ops)

    def _is_block(self, within: str, module: str) -> bool:
        return self._split.is_block(module.removeprefix(within))


def _renumbered(event: StageEvent, stages: dict[int, int]) -> StageEvent:
    messages = tuple(message._replace(stage=stages[message.stage]) for message in event.messages)
    return event._replace(stage=stages.get(event.stage, event.stage), messages=messages)


class _Begin(torch.autograd.Function):
    """A loss that costs nothing: its gradient of every output is one."""

    @staticmethod
    def forward(ctx: Any, *outputs: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        ctx.forms = [(tensor.shape, tensor.dtype, tensor.device) for tensor in outputs]
        return outputs[0].new_empty(())

    @staticmethod
    def backward(ctx: Any, _: torch.Tensor) -> tuple[torch.Tensor, ...]:  # type: ignore[override]
        return tuple([torch.ones(shape, dtype=dtype, device=device) for shape, dtype, device in ctx.forms])


def _tensors_of(result: Any) -> tuple[torch.Tensor, ...]:
    return tuple(tensors_in(result))


def _asking(tensor: torch.Tensor, *, gradients: bool) -> torch.Tensor:
    """A tensor like this one that asks for gradients, where it can have any."""
    return torch.empty_like(tensor).requires_grad_(gradients and tensor.is_floating_point())
