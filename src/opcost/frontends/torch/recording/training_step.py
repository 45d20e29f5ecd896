"""The backward pass and the update of a run: gradients, what they are added to, and what an optimizer keeps."""

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import cache, partial
from inspect import signature
from typing import Any

import torch
from torch import nn

from opcost.core.graph import Lifetimes, Op
from opcost.core.interrupts import is_delivered
from opcost.core.option import Step
from opcost.errors import ForwardError, InputError, OpcostError, UnknownName
from opcost.frontends.torch import private
from opcost.frontends.torch.ledger.parameters import parts, rebuilt
from opcost.frontends.torch.recording.data_parallel import GradientBuckets
from opcost.frontends.torch.recording.recorder import DatalessRecorder
from opcost.frontends.torch.recording.repeated_calls import StepRecords
from opcost.frontends.torch.recording.sharded import earlier_gradients, shared_gradients, summed_over_ranks
from opcost.frontends.torch.tree import tensors_in, vars_of

Where = Callable[[], str]  # Returns the path of the module that runs


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What to run besides the forward pass, and how."""

    backward: bool = False
    gradients: bool = False
    """Whether forward runs with gradients on although no backward pass follows, because it takes some itself."""
    optimizer: Callable[[list[torch.Tensor]], Any] | None = None
    autocast: Callable[[], AbstractContextManager[Any]] = nullcontext  # Makes the region in which forward runs
    step: Step = dataclasses.field(default_factory=Step)
    data_parallel: Any = None
    """The DistributedDataParallel around the model, which averages its gradients over ranks."""
    schedule: Any = None
    """The schedule of a pipeline, which runs the model's stages forward and backward in turns."""
    tentative: bool = False
    """Other inputs are tried where the run fails: the frames of its error are emptied, which spares a search for tensors."""


def loss_of(result: Any, *, labelled: bool, graded: bool = True) -> torch.Tensor | None:
    """The loss in what a model returns: called so, or the one number beside other tensors where it was given labels."""
    if isinstance(result, Mapping):
        loss = result.get("loss")
    else:
        loss = getattr(result, "loss", None) if hasattr(result, "_fields") else vars_of(result).get("loss")
    if loss is None and labelled:
        numbers = [tensor for tensor in tensors_in(result) if tensor.dim() == 0]
        loss = numbers[0] if len(numbers) == 1 else None
    is_loss = isinstance(loss, torch.Tensor) and loss.numel() == 1 and (loss.requires_grad or not graded)
    return loss if is_loss else None


def words_of_loss(*, labelled: bool) -> str:
    """What a report says of the loss that a model computes."""
    return "its own, from labels" if labelled else "its own"


class TrainingPass:
    """What follows the forward pass of one run.

    Of a step that accumulates gradients one pass is run: a later one, which finds gradients there and adds to them in place. Its
    operators count as often as they would run.
    """

    def __init__(
        self, model: nn.Module, recorder: DatalessRecorder, options: RunOptions, forward: Where, backward: Where
    ) -> None:
        self._model = model
        self._recorder = recorder
        self._options = options
        self._where_forward, self._where_backward = forward, backward
        self.loss = ""  # What the model itself computed as a loss, in words
        self.optimizer = ""  # The class of the optimizer
        self.begins = 0  # Operators of the forward pass, once that is over
        self._seeds: frozenset[int] = frozenset()  # Storages of the substitutes for the gradient of a loss
        self._gradients: frozenset[int] = frozenset()
        self._state: frozenset[int] = frozenset()  # Storages of what the optimizer remembers
        self._additions: set[int] = set()  # The operators that add to gradients that are there

    def roots(self, result: Any, *, labelled: bool) -> list[torch.Tensor]:
        """The tensors at which gradients begin: the loss where the model computes one, else every output."""
        if (loss := loss_of(result, labelled=labelled)) is not None:
            self.loss = words_of_loss(labelled=labelled)
            return [loss]
        return [t for t in tensors_in(result) if t.requires_grad]

    def run(self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], shards: list[nn.Parameter] | None) -> None:
        """Gradients of all parameters and inputs that require one, without touching any `.grad`; then the update.

        They begin at these outputs. `shards` are the parameters of a fully sharded model before it gathered them.
        """
        recorder = self._recorder
        named = self._model.named_parameters() if shards is None else ((str(at), p) for at, p in enumerate(shards))
        weights = {name: parameter for name, parameter in named if parameter.requires_grad}
        leaves = [*weights.values(), *(t for t in inputs if t.requires_grad)]
        if not outputs or not leaves:
            fault = f"there is nothing to differentiate: no {'output' if leaves else 'parameter'} requires a gradient"
            raise ForwardError(fault, hint="count without backward, or unfreeze a parameter")
        self.begins = len(recorder.ops)
        recorder.phase, recorder.where = "backward", self._where_forward
        given = [torch.ones_like(t) for t in outputs]
        recorder.where = self._where_backward
        with self._adding(weights, sharded=shards is not None), self._averaging(weights):
            if shards is None:
                with summed_over_ranks(weights):
                    grads: Any = torch.autograd.grad(outputs, leaves, grad_outputs=given, allow_unused=True)
            else:
                grads = shared_gradients(outputs, leaves, given)
        self._seeds = self._storages([seed for seed in given if seed.numel() > 1])
        del given
        self.update([(w, g) for w, g in zip(weights.values(), grads, strict=False) if g is not None], grads)

    def update(self, pairs: list[tuple[torch.Tensor, torch.Tensor]], gradients: Any) -> None:
        """What follows the backward pass, on these parameters with their gradients; others may be of the inputs."""
        recorder, optimizer = self._recorder, self._options.optimizer
        self._gradients |= self._storages(gradients)
        recorder.phase, recorder.where = "update", self._where_forward
        with torch.no_grad():
            if optimizer is not None:
                self._update(optimizer, pairs)
            elif self._options.step.zero_grad == "zero":
                for _, grad in pairs:
                    grad.zero_()

    @contextmanager
    def _averaging(self, weights: Mapping[str, torch.Tensor]) -> Iterator[None]:
        """Let gradients be averaged over the ranks of DistributedDataParallel, in buckets that are gradients as well."""
        wrapper = self._options.data_parallel
        if wrapper is None or not wrapper.require_backward_grad_sync:
            yield
            return
        ranks = wrapper.process_group.size()
        if not self._recorder.without_data:
            said = f"the averages of gradients over {ranks} ranks are not counted in a run on real values"
            self._recorder.note("ranks", said)
            yield
            return
        self._recorder.note(
            "ranks", f"gradients are averaged over {ranks} ranks, in buckets as from the second step on"
        )
        buckets = GradientBuckets(wrapper, self._recorder)
        with buckets.filled(weights):
            yield
        self._gradients |= buckets.storages

    @contextmanager
    def _adding(self, weights: Mapping[str, torch.Tensor], *, sharded: bool) -> Iterator[None]:
        """Let gradients be added to those that are there, as soon as they are made, if the step finds any."""
        step, recorder = self._options.step, self._recorder
        if step.accumulate == 1 and step.zero_grad == "none":
            yield
            return
        if sharded and next(private.flat_handles(self._model), None) is not None:
            raise ForwardError(
                "of FullyShardedDataParallel neither accumulated gradients nor zeros in their place are counted",
                hint="count one pass forward and backward, without accumulate and zero_grad, or use fully_shard",
            )
        if sharded:
            first = len(recorder.ops)
            with earlier_gradients(recorder) as there:
                yield
            of_added = (op for op in recorder.ops[first:] if any(recorder.storages[vid] in there for vid in op.outputs))
            self._additions.update(op.id for op in of_added)
            return
        with ExitStack() as undo:
            for name, weight in weights.items():
                undo.callback(weight.register_hook(partial(self._add, name, weight)).remove)
            yield

    def _add(self, name: str, weight: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        """The gradient that was there, with the new one in it; the new one is let go."""
        if gradient.layout is not torch.strided:
            raise ForwardError(
                f"the gradient of {name} is sparse, and only dense ones are accumulated or kept as zeros here",
                hint="count one pass forward and backward, without accumulate and zero_grad",
            )
        recorder = self._recorder
        there = rebuilt(weight, lambda part, _: recorder.before_run(part, f"{name}.grad"))
        before, first = recorder.where, len(recorder.ops)
        recorder.where = lambda: name.rpartition(".")[0]
        try:
            with torch.no_grad():
                there.add_(gradient)
        finally:
            recorder.where = before
        self._additions.update(range(first, len(recorder.ops)))
        return there

    def _update(self, make: Callable[..., Any], pairs: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
        """One step of the optimizer, on stand-ins of the parameters."""
        stand_ins = []
        for weight, grad in pairs:
            twin = rebuilt(weight, lambda part, _: self._recorder.twin(part))
            twin.grad = grad
            stand_ins.append(twin)
        try:
            optimizer = make(stand_ins)
            self.optimizer = optimizer.name if isinstance(optimizer, EightBit) else type(optimizer).__name__
            optimizer.step()
            if self._options.step.zero_grad == "zero":
                optimizer.zero_grad(set_to_none=False)
        except OpcostError as exc:
            exc.of_update = True
            raise
        except Exception as exc:
            if is_delivered(exc):
                raise
            hint = "name another one, or give a function that makes one of those parameters that it can take"
            fault = ForwardError(f"the optimizer raised {type(exc).__name__}: {exc}", hint=hint)
            fault.of_update = True
            raise fault from exc
        self._state = self._storages(list(getattr(optimizer, "state", {}).values()))

    def _storages(self, tree: Any) -> frozenset[int]:
        """The memory of the tensors that the run made."""
        recorder = self._recorder
        found = [part for tensor in tensors_in(tree) for _, part in parts("", tensor)]
        return frozenset([recorder.storages[recorder.state(part).vid] for part in found])

    def lifetimes(self, received: Collection[int] = (), gradients: Collection[int] = ()) -> Lifetimes | None:
        """When memory was let go; of a long run, whose tensors come and go without operators, that is not known.

        With the storages that other stages write to, and those of gradients before they are shared out.
        """
        recorder, step = self._recorder, self._options.step
        if isinstance(recorder.ops, StepRecords):
            return None
        lives, storages = recorder.lives, recorder.storages
        gone = {storages[vid]: time for vid, time in lives.ended().items()}
        # A loss begins with one number. Its substitute here is as large as the output, and is kept until the end.
        for op in recorder.ops if self._seeds else ():
            for vid in op.inputs:
                if (storage := recorder.storages[vid]) in self._seeds:
                    gone[storage] = op.id + 1
        carried = self._gradients if step.accumulate > 1 and step.zero_grad == "none" else frozenset[int]()
        away = {storages[vid]: tuple(intervals) for vid, intervals in lives.away.items()}
        return Lifetimes(
            tuple(gone), tuple(gone.values()), self._gradients.union(gradients), self._state, carried, frozenset(away),
            frozenset(received), away,
        )  # fmt: skip

    def repeated(self, ops: list[Op]) -> tuple[Op, ...]:
        """The operators as often as they run in a step; where gradients begin as none, the first pass adds to nothing."""
        step = self._options.step
        if step.accumulate == 1:
            return tuple(ops)
        additions = step.accumulate - (step.zero_grad == "none")
        return tuple(
            op._replace(
                repeat=1 if op.phase == "update" else additions if op.id in self._additions else step.accumulate
            )
            for op in ops
        )


# -- optimizers by name: those of `torch.optim`, and those that keep their state in eight bits as bitsandbytes does

Make = Callable[[list[torch.Tensor]], Any]  # Makes an optimizer of some parameters


EIGHT_BIT = {
    "Adam8bit": ("adam", 2, 0.0), "AdamW8bit": ("adam", 2, 0.01), "Lion8bit": ("lion", 1, 0.0),
    "SGD8bit": ("momentum", 1, 0.0), "RMSprop8bit": ("rmsprop", 1, 0.0), "Adagrad8bit": ("adagrad", 1, 0.0),
}  # fmt: skip
"""The rule as bitsandbytes calls it, the numbers that are remembered for each parameter, and the weight decay."""
BLOCK = 256  # Elements that share a scale
FEWEST = 4096  # Parameters of fewer elements are remembered in float32
LEVELS = 256  # The values of eight bits, in float32: one table for the first number and one for the second


@cache
def _kernels() -> tuple[Any, ...]:
    """The two operators of an update, and their library."""
    both = "str optimizer_name, Tensor g, Tensor(a!) p, Tensor(b!) state1, Tensor(c!)? state2"
    scales = "Tensor qmap1, Tensor? qmap2, Tensor(d!) absmax1, Tensor(e!)? absmax2"
    return private.own_operators(
        optimizer_update_32bit=f"{both}, float weight_decay",
        optimizer_update_8bit_blockwise=f"{both}, {scales}, float weight_decay",
    )


class EightBit(torch.optim.Optimizer):
    """The state and the operators of bitsandbytes, without it: one operator for each parameter, and no temporary memory."""

    def __init__(self, params: list[torch.Tensor], name: str) -> None:
        super().__init__(params, {})
        self.name = name

    def step(self) -> None:  # type: ignore[override]
        """Update every parameter once; what is remembered is made in this first step."""
        in_float32, in_eight_bits, _ = _kernels()
        rule, states, decay = EIGHT_BIT[self.name]
        levels: list[torch.Tensor] = []
        for parameter in self.param_groups[0]["params"]:
            small = parameter.numel() < FEWEST
            dtype = torch.float32 if small else torch.uint8
            numbers = [torch.zeros_like(parameter, dtype=dtype) for _ in range(states)]
            both = (rule, parameter.grad, parameter, *_pair(numbers))
            if small:
                in_float32(*both, decay)
                self.state[parameter] = {"states": numbers}
                continue
            blocks = -(-parameter.numel() // BLOCK)
            scales = [torch.zeros(blocks, device=parameter.device) for _ in range(states)]
            levels = levels or [torch.zeros(LEVELS, device=parameter.device) for _ in range(states)]
            in_eight_bits(*both, *_pair(levels), *_pair(scales), decay)
            self.state[parameter] = {"states": numbers, "levels": levels, "scales": scales}


def _pair(tensors: list[torch.Tensor]) -> tuple[torch.Tensor | None, ...]:
    return (tensors[0], tensors[1] if len(tensors) > 1 else None)


def optimizer_of(wanted: Any, *, together: bool) -> Make | None:
    """What makes the requested optimizer; `together` all its parameters are updated at once, where it can do that."""
    if wanted is None or wanted is False:
        return None
    if callable(wanted):
        return wanted  # type: ignore[no-any-return]
    name, _, fused = ("SGD" if wanted is True else str(wanted)).partition("_")
    known = {cls.lower(): cls for cls in torch.optim.__dict__ if isinstance(torch.optim.__dict__[cls], type)}
    known.pop("optimizer", None)
    known |= {cls.lower(): cls for cls in EIGHT_BIT}
    found = known.get(name.lower())
    if found is None or fused.lower() not in ("", "fused"):
        raise UnknownName("optimizer", str(wanted), known.values())
    if found == "LBFGS":
        fault = "LBFGS runs the model again and again in one step, as often as the loss demands"
        raise InputError(fault, hint="record a step of your own: with opcost.recording() as r: optimizer.step(closure)")
    if found in EIGHT_BIT:
        return partial(EightBit, name=found)
    made: Callable[..., Any] = getattr(torch.optim, found)
    if fused:
        if "fused" not in signature(made).parameters:
            raise InputError(f"{found} has no fused kernel", hint="AdamW, Adam, SGD and Adagrad have: adamw_fused")
        return partial(made, fused=True)
    if together and "foreach" in signature(made).parameters:
        return partial(made, foreach=True)
    return made
