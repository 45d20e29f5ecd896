"""The stages of a pipeline: copies of a model that run its own forward, each with some of its blocks.

A block that another stage has is replaced by one without parameters. Those before the first block of a stage return what the
stage received; the first one after its last block ends its forward, with what that block made. What else comes before the blocks,
and nothing in the stage needs, is replaced too, or left out of the graph afterwards: an embedding is on the first stage, a table
of rotations on all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import nn

from opcost.core.graph import Graph, Op
from opcost.core.names import is_inside
from opcost.errors import InputError
from opcost.frontends.torch import private
from opcost.frontends.torch.ledger.tensors import Recorded
from opcost.frontends.torch.models.absent import Absent
from opcost.frontends.torch.models.unwrap import lists_of_blocks, type_name
from opcost.frontends.torch.recording.module_calls import Left
from opcost.frontends.torch.recording.training_step import loss_of
from opcost.frontends.torch.sharding.sequence_parallel import RECEIVES
from opcost.frontends.torch.sharding.sharded_copy import copy_on_meta
from opcost.frontends.torch.tree import map_tensors, tensors_in

Run = Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], Graph]
"""Records a forward pass of a model with these arguments."""


class StageBlocks(NamedTuple):
    """The list of blocks that the stages share."""

    path: str
    names: tuple[str, ...]


def blocks_of(model: nn.Module) -> StageBlocks:
    """The list that the model's own plan names, or the longest one."""
    named = dict(model.named_modules())
    plan = getattr(model, "pp_plan", None)
    found = [(path, named[path]) for path in plan or () if isinstance(named.get(path), nn.ModuleList)]
    found = found or list(lists_of_blocks(model))
    if not found:
        fault = f"{type_name(model)} has no list of equal blocks that stages of a pipeline could share"
        raise InputError(
            fault, hint="make the stages yourself, and count their schedule: opcost.count(schedule, inputs)"
        )
    path, blocks = max(found, key=lambda each: len(each[1]._modules))
    return StageBlocks(path, tuple(blocks._modules))


class Needed(NamedTuple):
    """The operators that are needed, and the memory of the tensors that they read or write."""

    ops: frozenset[int]
    storages: frozenset[int]


def needed(graph: Graph, always: Callable[[Op], bool] = lambda _: False) -> Needed:
    """What the outputs of a graph need, and operators that are needed anyway; all that writes to memory that is read is."""
    values = graph.values
    storages = {values[vid].storage for vid in graph.outputs}
    ops = set()
    for op in reversed(graph.ops):
        written = [values[vid].storage for vid in op.outputs]
        if always(op) or not storages.isdisjoint(written):
            ops.add(op.id)
            storages.update(written, (values[vid].storage for vid in op.inputs))
    return Needed(frozenset(ops), frozenset(storages))


# -- what one block hands to the next --------------------------------------------------------------------------------------


class Boundary(NamedTuple):
    """What a block returns, with tensors on the meta device, and which of its tensors the next one is given, where."""

    returned: Any
    passed: tuple[int, ...]
    places: tuple[int, ...]
    """Among all tensors of the next block's arguments."""

    @property
    def tensors(self) -> tuple[torch.Tensor, ...]:
        """The tensors that are passed on."""
        own = tensors_in(self.returned)
        return tuple([own[at] for at in self.passed])

    def passing(self, tensors: Sequence[torch.Tensor]) -> Boundary:
        """The same with others passed on, such as a rank's part of them."""
        instead = dict(zip(map(id, self.tensors), tensors, strict=True))
        returned = map_tensors(self.returned, lambda tensor: instead.get(id(tensor), tensor))
        return self._replace(returned=returned)

    def filled(self, received: Sequence[torch.Tensor]) -> Any:
        """What a block would return, with these in the place of the tensors that are passed on."""
        tensors = {id(tensor): _like(tensor) for tensor in tensors_in(self.returned)}
        own = tensors_in(self.returned)
        tensors.update({id(own[at]): tensor for at, tensor in zip(self.passed, received, strict=True)})
        return map_tensors(self.returned, lambda tensor: tensors[id(tensor)])


def _like(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of this form on the device of the others."""
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cpu")


def _local(tensor: torch.Tensor) -> torch.Tensor:
    """The part of a distributed tensor that this rank has, which is what it sends."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


class _Watched:
    """What passes from the first block to the second one."""

    def __init__(self, first: nn.Module, second: nn.Module) -> None:
        self._returned: Any = None
        self._made: list[int] = []
        self._given: list[int] = []
        self._calls = 0
        self._hooks = [
            first.register_forward_hook(self._after), second.register_forward_pre_hook(self._before, with_kwargs=True)
        ]  # fmt: skip

    def _after(self, _: nn.Module, __: Any, result: Any) -> None:
        self._calls += 1
        self._made = [_identity(tensor) for tensor in tensors_in(result)]
        self._returned = map_tensors(result, _on_meta)

    def _before(self, _: nn.Module, args: Any, kwargs: Any) -> None:
        self._given = [_identity(tensor) for tensor in tensors_in((args, kwargs))]

    def boundary(self) -> Boundary | None:
        """What passes, if the second block is given something that the first one returned."""
        for hook in self._hooks:
            hook.remove()
        passed = [at for at, made in enumerate(self._made) if made in self._given]
        if not passed or self._calls != 1:
            return None
        return Boundary(self._returned, tuple(passed), tuple(self._given.index(self._made[at]) for at in passed))


def _identity(tensor: torch.Tensor) -> int:
    return tensor.vid if type(tensor) is Recorded else ~id(tensor)


def _on_meta(tensor: torch.Tensor) -> torch.Tensor:
    with private.no_modes():  # which would record it
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")


# -- a stage ---------------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Stage:
    """One stage: the model that runs it, and what it is made of."""

    number: int
    first: bool
    last: bool
    blocks: range
    model: nn.Module = field(init=False)
    boundary: Boundary
    given: Any
    """The arguments of the model for one microbatch, positional and by name."""
    reads: tuple[int, ...] = ()
    """Which of the tensors among these it needs."""
    finish: Callable[[Any], Any] = field(default=lambda result: result)
    """What the last stage returns of what the model does."""
    handed: tuple[torch.Tensor, ...] = ()
    """What it handed on the last time, on the meta device."""
    _received: tuple[torch.Tensor, ...] = ()
    _forward: Callable[..., Any] = field(init=False)

    def take(self, copy: nn.Module) -> None:
        """Let a copy of the model with its blocks run this stage."""
        self.model, self._forward = copy, copy.forward
        copy.forward = self._run
        copy.__dict__[RECEIVES] = True

    def before(self, *_: Any, **__: Any) -> Any:
        """What a block before the first one returns."""
        return self.boundary.filled(self._received)

    def between(self, *args: Any, **kwargs: Any) -> Any:
        """What a block that is left out returns: what it was given."""
        return self.boundary.filled(self._given_on(args, kwargs))

    def _given_on(self, args: Any, kwargs: Any) -> tuple[torch.Tensor, ...]:
        given = tensors_in((args, kwargs))
        return tuple([given[place] for place in self.boundary.places])

    def after(self, *args: Any, **kwargs: Any) -> Any:
        """The first block after the last one is called."""
        handed = tuple(map(_local, self._given_on(args, kwargs)))
        self.handed = tuple(map(_on_meta, handed))
        raise Left(handed)

    def _run(self, *received: torch.Tensor, **given: torch.Tensor) -> Any:
        self._received = received
        here = {id(own): given.get(name_of_input(at), own) for at, own in enumerate(tensors_in(self.given))}
        args, kwargs = map_tensors(self.given, lambda tensor: here[id(tensor)])
        try:
            result = self._forward(*args, **kwargs)
        except Left as left:
            return left.handed[0] if len(left.handed) == 1 else left.handed
        finally:
            self._received = ()
        return self.finish(result)


def name_of_input(place: int) -> str:
    """How the stages call a tensor among the inputs of the model."""
    return f"given{place}"


# -- which stage has what --------------------------------------------------------------------------------------------------


class _Beside(NamedTuple):
    """What a stage has beside its blocks."""

    reads: tuple[int, ...]
    """Of the tensors among the model's inputs."""
    uses: frozenset[str]
    """The modules and parameters around the blocks that it needs."""
    runs: frozenset[str] = frozenset()
    """Of these the modules that it runs."""


class _Tried(NamedTuple):
    """A forward pass of a stage with all that is beside the blocks: what it needs, and what it does."""

    part: _Beside
    work: Mapping[int, Counter[Any]]
    early: Counter[Any]
    """Around the blocks and before them, where the stage is not the first one."""


class Split:
    """A model cut into stages, which together do what it does: of each stage copies can be made."""

    def __init__(self, model: nn.Module, given: Any, stages: Sequence[range], blocks: StageBlocks, run: Run) -> None:
        """`given` are the arguments for a microbatch, and `run` records a forward pass."""
        self.model, self.given, self.ranges = model, given, tuple(stages)
        self._run = run
        self._paths = [f"{blocks.path}.{name}".lstrip(".") for name in blocks.names]
        self._beside, self._around = _outside(model, blocks.path)
        self._answers: dict[str, Any] = {}
        self.outputs = 0  # Tensors that the last stage returns
        self.loss = False  # Whether one of them is a loss
        self.labelled = given[1].get("labels") is not None
        self.boundary, whole = self._followed()
        inner = range(1, len(stages) - 1)
        work = self._work(whole, whole.ops)
        self._differ = blocks_differ = len({frozenset(work[at].items()) for at in range(len(self._paths))}) > 1
        tried = {
            number: self._needed(number) for number in (0, *(inner if blocks_differ else inner[:1]), len(stages) - 1)
        }
        parts = [tried[number if number in tried else 1].part for number in range(len(stages))]
        unused = frozenset((*self._beside, *self._around)).difference(*(part.uses for part in parts))
        self.parts = [parts[0]._replace(uses=parts[0].uses | unused), *parts[1:]]
        self._check(work, tried)
        self._work_of = work

    def work_of(self, stage: int) -> Hashable:
        """What tells stages with other blocks apart."""
        return tuple(frozenset(self._work_of[block].items()) for block in self.ranges[stage]) if self._differ else ()

    def stage(self, number: int, blocks: range | None = None) -> Stage:
        """A new copy of a stage, or of only some of its blocks."""
        return self._made(number, self.parts[number], self.ranges[number] if blocks is None else blocks)

    def is_block(self, module: str) -> bool:
        """Whether a module is one of the blocks, or in one."""
        return any(is_inside(module, path) for path in self._paths)

    # -- making copies ------------------------------------------------------------------------------------------------------

    def _followed(self) -> tuple[Boundary, Graph]:
        """What passes from block to block, and the graph of the whole; what modules around the blocks return is noted."""
        whole = copy_on_meta(self.model)
        watched = _Watched(*(whole.get_submodule(path) for path in self._paths[:2]))
        hooks = [whole.get_submodule(path).register_forward_hook(partial(self._note, path)) for path in self._beside]
        graph = self._run(whole, *self.given)
        for hook in hooks:
            hook.remove()
        boundary = watched.boundary()
        if boundary is None:
            raise self._refused(f"{self._paths[1]} is not given what {self._paths[0]} returns")
        return boundary, graph

    def _note(self, path: str, _: nn.Module, __: Any, result: Any) -> None:
        self._answers.setdefault(path, map_tensors(result, _on_meta))

    def _made(self, number: int, part: _Beside, blocks: range) -> Stage:
        stage = Stage(
            number, number == 0, number == len(self.ranges) - 1, blocks, self.boundary, self.given, part.reads
        )
        answers: dict[str, Callable[..., Any]] = {
            path: stage.before if at < blocks.start else stage.between if at in self.ranges[number] else stage.after
            for at, path in enumerate(self._paths) if at not in blocks
        }  # fmt: skip
        answers |= {path: partial(self._answer, path) for path in self._beside if path not in part.uses}
        instead: dict[nn.Module, nn.Module] = {
            self.model.get_submodule(path): Absent(answer, partial(self._original, path)) for path, answer in answers.items()
        }  # fmt: skip
        copy = copy_on_meta(self.model, instead=instead)
        for name in self._around:
            if name not in part.uses:
                path, _, own = name.rpartition(".")
                module = copy.get_submodule(path)
                module.__dict__[own] = module._parameters.pop(own).detach()  # type: ignore[union-attr]
        stage.take(copy)
        return stage

    def _note_outputs(self, result: Any) -> Any:
        self.outputs = len(tensors_in(result))
        self.loss = loss_of(result, labelled=self.labelled, graded=False) is not None
        return result

    def _original(self, path: str) -> nn.Module:
        return self.model.get_submodule(path)

    def _answer(self, path: str, *_: Any, **__: Any) -> Any:
        return map_tensors(self._answers.get(path), _like)

    # -- what each needs ----------------------------------------------------------------------------------------------------

    def _needed(self, number: int) -> _Tried:
        """What a stage needs beside its blocks, and its work."""
        tensors = tensors_in(self.given)
        everything = _Beside(tuple(range(len(tensors))), frozenset((*self._beside, *self._around)))
        stage = self._made(number, everything, self.ranges[number])
        received = () if stage.first else self.boundary.tensors
        if stage.last:
            stage.finish = self._note_outputs
        graph = self._run(stage.model, received, {name_of_input(at): tensor for at, tensor in enumerate(tensors)})
        early = before_blocks(graph.ops, self.is_block) if number else frozenset[int]()
        found = needed(graph, lambda op: op.id not in early)
        ops = [op for op in graph.ops if op.id in found.ops]
        storages = {
            f"{module.path}.{name}".lstrip("."): graph.values[vid].storage
            for module in graph.modules for name, vid in (*module.parameters, *module.buffers)
        }  # fmt: skip
        running = {op.module for op in ops}
        runs = {path for path in self._beside if any(is_inside(module, path) for module in running)}
        inside = {storage for name, storage in storages.items() if any(is_inside(name, path) for path in runs)}
        # What is read of a module that does not run, and of no module that does: an embedding that is the head as well.
        read = {name for name, storage in storages.items() if storage in found.storages - inside}
        uses = runs | {path for path in self._beside if any(is_inside(name, path) for name in read)}
        uses |= {name for name in self._around if name in read}
        given = graph.inputs[len(received) :]
        reads = tuple(at for at, vid in enumerate(given) if graph.values[vid].storage in found.storages)
        sooner = self._work(graph, (op for op in ops if op.id in early))[-1]
        return _Tried(_Beside(reads, frozenset(uses), frozenset(runs)), self._work(graph, ops), sooner)

    # -- what they do together ----------------------------------------------------------------------------------------------

    def _work(self, graph: Graph, ops: Iterable[Op]) -> dict[int, Counter[Any]]:
        """How often equal operators run in each block, by its number, and around the blocks (-1)."""
        found: dict[int, Counter[Any]] = {number: Counter() for number in range(-1, len(self._paths))}
        inside = {path: number for number, path in enumerate(self._paths)}
        depth = self._paths[0].count(".") + 1
        for op in ops:
            number = inside.get(".".join(op.module.split(".", depth)[:depth]), -1)
            module = op.module[len(self._paths[number]) :] if number >= 0 else op.module
            specs = tuple([graph.values[vid].spec for vid in (*op.inputs, *op.outputs)])
            found[number][module, op.raw, repr(op.attrs), specs] += 1
        return found

    def _check(self, whole: Mapping[int, Counter[Any]], tried: Mapping[int, _Tried]) -> None:
        """Raise unless the stages do the work of the whole, with what has parameters on one of them alone."""
        for number, (_, work, _) in tried.items():
            for block in self.ranges[number]:
                if work[block] != whole[block]:
                    raise self._refused(f"{self._paths[block]} does not do in a stage what it does in the whole model")
        for path in self._beside:
            stages = sum(path in part.runs for part in self.parts)
            if stages > 1 and any(True for _ in self.model.get_submodule(path).parameters()):
                raise self._refused(f"{path} has parameters, and {stages} stages need what it computes")
        done, repeated = Counter[Any](), Counter[Any]()
        for _, work, early in tried.values():
            done, repeated = done + work[-1], repeated + early
        if done - repeated != whole[-1] or any(early - tried[0].work[-1] for _, _, early in tried.values()):
            module, raw, *_ = next(
                iter((done - repeated - whole[-1]) + (whole[-1] - (done - repeated))), ("", "an operator")
            )
            where = module or "the model itself"
            raise self._refused(f"{raw} in {where} is not once in the whole model and once in all stages")

    @property
    def shared(self) -> tuple[str, ...]:
        """The parameters around the blocks that several stages have: tied ones, by their first names."""
        names: dict[int, str] = {}
        holders: Counter[int] = Counter()
        for part in self.parts:
            own = {
                id(parameter): name for name, parameter in self.model.named_parameters(remove_duplicate=False)
                if any(is_inside(name, path) for path in part.uses)
            }  # fmt: skip
            names = own | names
            holders.update(own.keys())
        return tuple(names[one] for one, count in holders.items() if count > 1)

    def _refused(self, why: str) -> InputError:
        hint = "make the stages yourself, and count their schedule: opcost.count(schedule, inputs)"
        return InputError(f"{type_name(self.model)} cannot be split into stages of a pipeline: {why}", hint=hint)


def without_absent(graph: Graph) -> Graph:
    """The graph without the modules that other ranks have; what ran in their place did so in the one around."""
    absent = {module.path for module in graph.modules if module.type == Absent.__name__}

    def outside(path: str) -> str:
        while path in absent:
            path = path.rpartition(".")[0]
        return path

    return replace(
        graph, modules=tuple(module for module in graph.modules if module.path not in absent),
        calls=tuple(call for call in graph.calls if call.path not in absent),
        ops=tuple(op._replace(module=outside(op.module)) if op.module in absent else op for op in graph.ops),
    )  # fmt: skip


def before_blocks(ops: Iterable[Op], is_block: Callable[[str], bool]) -> frozenset[int]:
    """The operators up to the first one in a block."""
    found = []
    for op in ops:
        if is_block(op.module):
            break
        found.append(op.id)
    return frozenset(found)


def _outside(model: nn.Module, blocks: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The modules beside a list of blocks and beside those that it is in, and the own parameters of the latter."""
    beside, around = [], []
    names = blocks.split(".") if blocks else []
    for depth, name in enumerate(names):
        path = ".".join(names[:depth])
        parent = model.get_submodule(path)
        beside += [
            f"{path}.{child}".lstrip(".")
            for child in parent._modules
            if child != name and parent._modules[child] is not None
        ]
        around += [
            f"{path}.{own}".lstrip(".") for own, parameter in parent._parameters.items() if parameter is not None
        ]
    return tuple(beside), tuple(around)
