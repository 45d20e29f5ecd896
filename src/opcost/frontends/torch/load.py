"""From a live model and the options of a count to a graph; on real values where the model needs one that only they have."""

import dataclasses
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from functools import partial
from typing import Any

import torch
from torch import nn

from opcost.core.graph import ASSUMED, Graph, Note, TensorSpec
from opcost.core.interrupts import defer_signals
from opcost.core.option import Precision, Step
from opcost.core.progress import sharing, working
from opcost.core.several import kept
from opcost.core.shapes import text
from opcost.core.units import format_bytes
from opcost.distributed.sharding import Sharding
from opcost.errors import DataDependent, ForwardError, InputError, OpcostError, shortened
from opcost.frontends.options import CountOptions
from opcost.frontends.torch import private
from opcost.frontends.torch.default_inputs.engine import Inputs, features_in, signature, takes_any
from opcost.frontends.torch.ledger.parameters import has_data
from opcost.frontends.torch.ledger.recorder_state import ASSUMPTIONS, NOT_KNOWN, READ_UNKNOWN
from opcost.frontends.torch.ledger.tensors import KnownOperators, Recorded
from opcost.frontends.torch.models import is_exported, is_schedule
from opcost.frontends.torch.models.float8 import note_of_training, training_in_float8
from opcost.frontends.torch.models.inputs import (
    argument_names,
    as_dtype,
    attempts_of,
    each_float,
    from_defaults,
    in_type,
    input_names,
    make_inputs,
    note_of_defaults,
)
from opcost.frontends.torch.models.quantizing import note_of_quantized, quantized
from opcost.frontends.torch.models.text import CachedText, with_cache
from opcost.frontends.torch.models.tuning import note_of_adapters, tuned
from opcost.frontends.torch.models.unwrap import by_position, data_parallel_around, type_name, unwrap
from opcost.frontends.torch.models.weights import (
    channels_last,
    countable_model,
    is_uninitialized,
    retyped,
    with_channels_last,
)
from opcost.frontends.torch.recording.device_rules import as_on_a_gpu, autocast_as
from opcost.frontends.torch.recording.environment import no_surrounding_modes
from opcost.frontends.torch.recording.recorder import DatalessRecorder, RealRecorder
from opcost.frontends.torch.recording.run import ModelRun
from opcost.frontends.torch.recording.training_step import RunOptions, optimizer_of
from opcost.frontends.torch.restore.process import one_at_a_time
from opcost.frontends.torch.sharding.context_parallel import in_parts, inputs_of_rank, notes_of_parts
from opcost.frontends.torch.sharding.expert_parallel import experts_of, notes_of_experts, routing_is_forced
from opcost.frontends.torch.sharding.one_rank import graph_of_rank
from opcost.frontends.torch.sharding.pipeline import Pipeline, Runs, for_pipeline
from opcost.frontends.torch.tree import map_tensors, tensors_in

AFFORDABLE = 2 << 30
"""A model that was made without its weights is made again with them if they take at most this many bytes."""


def obstacle(model: nn.Module, options: CountOptions) -> str:
    """Why a model cannot be run on real values, as a hint of what to do; empty where it can."""
    if options.sharding is not None:
        return "one rank of a mesh has no data: give inputs for which the model does not ask, or count it without mesh"
    if options.real is False:
        return "leave out real=False (on the command line --no-real): then the model is run on its own weights"
    stored = [(name, t) for name, t in (*model.named_parameters(), *model.named_buffers()) if not is_uninitialized(t)]
    if options.remake is not None:
        size = sum(tensor.nbytes for _, tensor in stored)
        hint = (
            f"count with real=True (on the command line --real) to make the model with its weights, {format_bytes(size)}, "
            "and run it, or give inputs for which the model does not ask"
        )
        return hint if size > AFFORDABLE else ""
    hint = "has no data: give the model with its weights, and it is run on them, or inputs for which the model does not ask"
    return next((f"{name} {hint}" for name, tensor in stored if not has_data(tensor)), "")


def products(graph: Graph) -> int:
    """What the products of a graph come to, roughly: enough to see that two graphs do not do the same work."""
    total, values = 0, graph.values
    for op in graph.ops:
        if op.kind in _PRODUCTS and op.outputs:
            depth = op.attrs.get("depth")
            if not isinstance(depth, int):
                depth = values[op.inputs[1]].spec.numel if len(op.inputs) > 1 else 1
            total += values[op.outputs[0]].spec.numel * depth * op.repeat
    return total


_PRODUCTS = frozenset({"matmul", "conv", "attention", "einsum", "recurrent", "bilinear"})


def load(source: Any, options: CountOptions) -> Graph:
    """Record one run of a model: without data, or on its own weights where it needs values that only they have."""
    with defer_signals(), no_surrounding_modes():
        if options.real:
            return _record(source, options, real=True)
        try:
            graph = _record(source, options, real=False)
        except DataDependent as exc:
            if hint := obstacle(unwrap(source), options):
                exc.hint = hint
                raise
            question, module = exc.message, exc.module  # the error itself keeps tensors without data
        else:
            # A model may catch the error and continue, on a path that a real run would not take.
            caught = next((note for note in graph.notes if note.code == READ_UNKNOWN), None)
            if caught is None or obstacle(unwrap(source), options):
                return graph
            question, module = caught.text.partition("; ")[0], caught.where
        with_weights = source if options.remake is None else options.remake()
        remade = ", with which it was made again" if with_weights is not source else ""
        why = f"the model was run on its own weights{remade}, because {question}"
        try:
            graph = _record(with_weights, options, real=True)
        except ForwardError as exc:
            exc.message = f"{exc.message}; {why}"
            raise
        return dataclasses.replace(graph, notes=(*graph.notes, Note("real-values", why, module)))


_OF_INPUTS = ("check the", "the element types", "pass inputs")
"""How hints begin that other inputs may make superfluous."""


def _tensors(inputs: Inputs) -> list[torch.Tensor]:
    return tensors_in((inputs.args, inputs.kwargs))


class _Count:
    """The count of one model: what was given, what that is in another element type, and how it runs."""

    def __init__(self, given: nn.Module, options: CountOptions, *, real: bool, data_parallel: Any = None) -> None:
        self.given, self.options, self.real = given, options, real
        self.data_parallel = data_parallel  # The wrapper around it that averages gradients over ranks
        self.schedule: Any = None  # Of a pipeline, of which it is the stages
        self.names: dict[int, str] = {}  # Of inputs whose names the model does not know
        self.device = device_of(given)
        if real:
            self.model = self._changed()
        else:  # a copy without data is as it was made after each run, so that one is enough for several counts
            how = options.dtype, options.channels_last, options.quantize, options.in_float8, repr(options.tuning)
            _, self.model = kept((id(given), *how), lambda: (given, self._changed()))

    def _changed(self) -> nn.Module:
        """What the model is under the options: itself, or a copy."""
        model, options, real = self.given, self.options, self.real
        model = model if options.dtype is None else retyped(model, as_dtype(options.dtype), real=real)
        model = with_channels_last(model) if options.channels_last else model
        if options.quantize is not None and options.in_float8:
            model = training_in_float8(model, options.quantize)
        elif options.quantize is not None:
            model = quantized(model, options.quantize, real=real)
        return tuned(model, options.tuning, real=real)

    def with_first_that_fits(self, inputs: Inputs) -> Graph:
        """The graph of a run on these inputs or, where they were generated, on the first form that the model takes."""
        model, options, real = self.model, self.options, self.real
        attempts = attempts_of(model, inputs, training=options.trains)
        fault: tuple[str, str, str] | None = None  # of the first attempt; the error itself holds tensors without data
        no_loss = ""
        label = type_name(model)
        notes: tuple[Note, ...] = ()
        # The attempts that follow change once, where the layer is found that reads the inputs.
        for place, attempt in enumerate(attempts):
            try:
                graph = self.ran(attempt, tentative=attempt is not attempts[-1])
                if attempt.on_trial and "loss" not in graph.meta:
                    no_loss = no_loss or "it makes no loss of them"
                    continue
                guessed = attempt.source
                if fault is not None and attempt.note:
                    guessed = f"{guessed}, {attempt.note} ({shortened(fault[0])})"
                notes = graph.notes
                if guessed:
                    takes_more = len(attempt.args) + len(attempt.kwargs) < len(signature(model)) or takes_any(model)
                    notes = (*notes, note_of_defaults(graph, guessed, label, takes_more=takes_more))
                break
            except (ForwardError, InputError) as exc:
                if exc.of_update:
                    raise
                if attempt.on_trial:
                    no_loss = no_loss or shortened(exc.message)
                    continue
                if isinstance(exc, DataDependent) and (real or not obstacle(self.given, options)):
                    raise
                if inputs.hint and exc.hint and not exc.hint.startswith(_OF_INPUTS):
                    raise
                received, module = (exc.received, exc.module) if isinstance(exc, ForwardError) else ((), "")
                if inputs.read_by is not None and any(tuple(t.shape) in received for t in _tensors(attempt)):
                    better = inputs.read_by(module)  # the module received an input as it was given
                    inputs = inputs._replace(read_by=None)
                    if better is not None:
                        again = in_type(from_defaults(model, better, options.kwargs), options.precision.dtype)
                        attempts[place + 1 :] = attempts_of(model, again, training=options.trains)
                fault = fault or (exc.message, exc.hint, module)
                if attempt is not attempts[-1]:
                    continue
                if inputs.hint:
                    names = input_names(model, attempts[0].args, attempts[0].kwargs)
                    first = ", ".join(f"{names.get(id(t), 'input')} {text(t.shape)}" for t in _tensors(attempts[0]))
                    more = f" and {len(attempts) - 1} other forms" if len(attempts) > 1 else ""
                    said = f"{label} fails with those generated from {attempts[0].source} ({first}{more})"
                    raise InputError(
                        f"no inputs were given, and {said}: {shortened(fault[0], 300)}", hint=inputs.hint
                    ) from None
                exc.message, exc.hint = fault[:2]
                if isinstance(exc, ForwardError):
                    exc.module = fault[2]
                raise
        if no_loss and "loss" not in graph.meta:
            notes = (*notes, Note("no-loss", f"no loss is counted: with labels as they could be made, {no_loss}"))
        return dataclasses.replace(graph, notes=notes)

    def ran(self, inputs: Inputs, *, tentative: bool = False) -> Graph:
        """One run of the model on these inputs, written down."""
        model, options, device, real = self.model, self.options, self.device, self.real
        lower, like = as_dtype(options.precision.autocast), options.precision.like or device.type
        wanted = RunOptions(
            backward=options.trains,
            optimizer=optimizer_of(options.optimizer, together=options.as_on_gpu),
            autocast=nullcontext if lower is None else partial(torch.autocast, device.type, lower),
            step=options.step,
            data_parallel=self.data_parallel,
            schedule=self.schedule,
            tentative=tentative,
        )
        # A run on real values by the rules of its own device is left to PyTorch, which has them.
        otherwise = lower is not None and device.type == "cpu" and not (real and like == "cpu")
        names = input_names(model, inputs.args, inputs.kwargs) | self.names
        args, kwargs = map_tensors((inputs.args, inputs.kwargs), _outside)
        on_gpu = options.as_on_gpu and not real and device.type == "cpu"
        with ExitStack() as around:
            around.enter_context(one_at_a_time())
            around.enter_context(in_mode(model, options.mode))
            if on_gpu:
                around.enter_context(as_on_a_gpu())
            if otherwise:
                around.enter_context(autocast_as(like))
            around.enter_context(in_parts(options.sharding, on_gpu=on_gpu))
            doing = f"running {type_name(model)} on real values"
            place = device, torch.get_default_device(), torch.get_default_dtype(), on_gpu
            operators = kept((KnownOperators, place), KnownOperators)
            operators.limit()

            def recorded(
                before: DatalessRecorder | None = None, *, together: bool = False
            ) -> tuple[Graph, DatalessRecorder, bool]:
                """The graph of a run, what recorded it, and whether to do so again; with gradients where forward takes some."""
                for attempt in (wanted, dataclasses.replace(wanted, gradients=True)):
                    recorder = RealRecorder(device) if real else DatalessRecorder(device, operators)
                    if before is None:
                        recorder.can_run_real = lambda: not real and not obstacle(self.given, options)
                    else:
                        recorder.avoided, recorder.together = before.avoided, together
                    run = ModelRun(countable_model(model, real=real), recorder, attempt)
                    said = working(lambda: f"{doing} ({len(recorder.ops):,} operators)") if real else nullcontext()  # noqa: B023
                    try:
                        with said, sharing(run.share):
                            graph = run(args, kwargs, names)
                    except ForwardError:
                        if attempt.gradients or not (run.takes_gradients and torch.is_grad_enabled()):
                            raise
                        continue
                    if not (run.takes_gradients and torch.is_grad_enabled()):
                        break
                return graph, recorder, run.again

            graph, recorder, again = recorded()
            if again:
                graph, recorder, _ = recorded(recorder)
            if any(note.code == "balanced" for note in graph.notes) and not routing_is_forced(options.sharding):
                total = found = products(graph)
                with suppress(OpcostError):  # a model that cannot run so has no other total
                    total = products(recorded(recorder, together=True)[0])
                if total != found:  # the totals depend on which elements win: this is no routing among equal experts
                    if not obstacle(self.given, options):
                        where = next(note.where for note in graph.notes if note.code == "balanced")
                        raise DataDependent(f"which elements win a topk, sort or argmax{NOT_KNOWN}", module=where)
                    known = ASSUMPTIONS[ASSUMED]
                    notes = [Note(ASSUMED, known, n.where) if n.code == "balanced" else n for n in graph.notes]
                    graph = dataclasses.replace(graph, notes=tuple(notes))
            return graph


def _count_of_changed(model: nn.Module, options: CountOptions) -> _Count:
    """The count of a model that is already what it is under the options."""
    count = _Count(model, CountOptions(), real=False)
    count.options = options
    return count


class _PipelinedCount(_Count):
    """The count of one rank of a pipeline."""

    def __init__(
        self, given: nn.Module, options: CountOptions, sharding: Sharding, param_dtype: torch.dtype | None
    ) -> None:
        """The model is what it is under the options."""
        super().__init__(given, CountOptions(), real=False)
        self.options, self._sharding, self._param_dtype = options, sharding, param_dtype

    def ran(self, inputs: Inputs, *, tentative: bool = False) -> Graph:
        options = self.options
        names = input_names(self.model, inputs.args, inputs.kwargs)
        forward_only = dataclasses.replace(options, backward=False, optimizer=None, step=Step(), quantize=None)

        def forward(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Graph:
            return _count_of_changed(model, forward_only).ran(Inputs(args, kwargs), tentative=tentative)

        def step(model: nn.Module, schedule: Any, kwargs: dict[str, Any]) -> Graph:
            count = _count_of_changed(model, options)
            count.schedule, count.names = schedule, names
            return count.ran(Inputs((), kwargs))

        runs = Runs(forward, step, trains=options.trains)
        graph = Pipeline(self.model, inputs.args, inputs.kwargs, self._sharding, self._param_dtype, runs).graph()
        given = tuple(
            (names.get(id(tensor), ""), TensorSpec(tuple(tensor.shape), str(tensor.dtype).removeprefix("torch.")))
            for tensor in _tensors(inputs)
        )
        ranks = tuple(dataclasses.replace(rank, given=given) for rank in graph.pipeline)
        return dataclasses.replace(graph, given=given, pipeline=ranks)


def _record_schedule(schedule: Any, options: CountOptions) -> Graph:
    """A step of a pipeline that its user has put together, of which only the inputs are given."""
    plain = CountOptions(inputs=options.inputs, kwargs=options.kwargs, mode=options.mode, real=options.real)
    given = dataclasses.replace(
        plain, backward=options.backward, optimizer=options.optimizer, step=options.step, precision=options.precision,
        as_on_gpu=options.as_on_gpu,
    )  # fmt: skip
    if given != options:
        hint = "give a tuple of what its step takes, and kwargs={'target': ...}; change the stages themselves"
        raise InputError("a pipeline's schedule is counted as it is, with inputs that are given", hint=hint)
    if options.trains and not schedule._has_backward:
        raise InputError("the schedule has no loss, so it runs no backward pass", hint="give it a loss_fn")
    count = _Count(unwrap(schedule), dataclasses.replace(options, backward=schedule._has_backward), real=False)
    count.schedule = schedule
    args = (
        options.inputs if isinstance(options.inputs, tuple) else (() if options.inputs is None else (options.inputs,))
    )
    graph = count.ran(Inputs(args, dict(options.kwargs)))
    return dataclasses.replace(graph, source=type(schedule).__name__)


def _record(source: Any, options: CountOptions, *, real: bool) -> Graph:
    if is_schedule(source):
        return _record_schedule(source, options)
    none_given = options.inputs is options.shapes is None and not options.kwargs
    if none_given and is_exported(source) and source.example_inputs:
        args, kwargs = source.example_inputs  # with which the program was exported
        options = dataclasses.replace(options, inputs=tuple(args), kwargs=dict(kwargs))
    if options.dtype is not None and is_exported(source):
        raise InputError("an exported program has its own element types", hint="export the model in that type")
    count = _Count(unwrap(source), options, real=real, data_parallel=data_parallel_around(source))
    model, device = count.model, count.device
    mixed = as_dtype(options.precision.autocast) if options.sharding is not None and options.sharding.gathers else None
    # FSDP gathers the parameters in that type, and forward runs in it.
    of_rank = options if mixed is None else dataclasses.replace(options, precision=Precision())

    def run_once(given: dict[str, Any]) -> None:  # for what the model does to its arguments
        def run(rank: nn.Module) -> Graph:
            alone = CountOptions(precision=of_rank.precision, real=False)
            return _Count(unwrap(rank), alone, real=False).ran(Inputs((), given))

        graph_of_rank(model, run, options.sharding, mixed)

    options = for_pipeline(options)
    passes = CachedText(model, count.given, options, run_once) if any(options.text) else None
    if passes is None:
        inputs = make_inputs(model, options, partial(shapes_returned, real=options.real))
    else:
        inputs = passes.inputs(options.text, options.kwargs)
    if is_exported(source):
        args, kwargs = by_position(source, inputs.args, inputs.kwargs)
        inputs = inputs._replace(args=args, kwargs=kwargs)
    inputs = in_type(inputs, options.precision.dtype)
    if options.channels_last:
        inputs = each_float(inputs, channels_last)
    if options.sharding is not None and options.sharding.mesh.cp > 1:
        inputs = inputs_of_rank(inputs, argument_names(model), options.sharding)
    of_forward = dataclasses.replace(of_rank, backward=False, optimizer=None, step=Step(), quantize=None)

    def recorded(chosen: CountOptions, model: nn.Module) -> Graph:
        count.model, count.options = unwrap(model), chosen
        count.data_parallel = data_parallel_around(model) or data_parallel_around(source)
        return count.with_first_that_fits(inputs)

    if options.sharding is not None and options.sharding.mesh.pp > 1:
        graph = _PipelinedCount(model, of_rank, options.sharding, mixed).with_first_that_fits(inputs)
    else:
        # A cache notes what each run does to it, so that is one run.
        forward = partial(recorded, of_forward) if passes is None else None
        graph = graph_of_rank(model, partial(recorded, of_rank), options.sharding, mixed, forward)
    if passes is not None:
        graph = with_cache(graph, options.text, passes)
    return _described(graph, model, options, device)


def _described(graph: Graph, model: nn.Module, options: CountOptions, device: torch.device) -> Graph:
    """The graph with what the options changed, and what to know about them."""
    notes, meta = graph.notes, graph.meta
    if options.sharding is not None:
        meta = {**meta, "mesh": str(options.sharding.mesh), "rank": str(options.sharding.rank)}
        notes = (*notes, *notes_of_parts(options.sharding), *notes_of_experts(model, options.sharding))
        if routing_is_forced(options.sharding):
            meta["expert_parallel"] = "sums" if experts_of(model, options.sharding).sums else "sends tokens"
    if options.precision.autocast is not None and options.sharding is not None and options.sharding.gathers:
        meta = {**meta, "mixed_precision": options.precision.autocast}
    elif options.precision.autocast is not None:
        meta = {**meta, "autocast": options.precision.autocast}
        like = options.precision.like or device.type
        said = f"forward runs under autocast to {options.precision.autocast} by the rules that PyTorch has for {like}"
        if options.precision.like is None:
            said += ", where the model lies; device= (`opcost count --device`) tells it as on a GPU"
        notes = (*notes, Note("autocast", f"{said}; gradients are not scaled"))
    if options.step.accumulate > 1:
        said = (
            f"totals are those of a step of {options.step.accumulate} passes forward and backward and one update; memory is "
            "that of its later passes, which find gradients there, and of the update"
        )
        notes = (*notes, Note("accumulate", said))
    notes = (*notes, *note_of_adapters(model, options.tuning))
    meta = {**meta, **options.tuning.described}
    if options.quantize is not None:
        note = note_of_training(model) if options.in_float8 else note_of_quantized(model, options.quantize)
        notes, meta = (*notes, note), {**meta, "quantize": options.quantize}
    return dataclasses.replace(graph, source=type_name(model), notes=notes, meta=meta | _routing_in(model))


def _routing_in(model: Any) -> dict[str, str]:
    """How many experts a mixture of transformers has, and how many of them a token uses."""
    from opcost.frontends.checkpoint.quantization import routing_of

    config: Any = getattr(model, "config", None)
    facts = config.to_dict() if type(config).__module__.startswith("transformers.") else {}
    routing = routing_of(facts)
    return {} if routing is None else dict(zip(("experts", "experts_per_token"), map(str, routing), strict=True))


def shapes_returned(method: Any, given: dict[str, Any], *, real: bool | None = None) -> list[tuple[int, ...]]:
    """The shapes of the tensors that a method hands back as features, found without data where it does not ask for any."""
    found: list[tuple[int, ...]] = []

    def features_of(**arguments: Any) -> Any:
        features = features_in(method(**arguments))
        found.extend(tuple(tensor.shape) for tensor in features)
        return features

    load(features_of, CountOptions(kwargs=given, real=real))
    return found


def _outside(tensor: torch.Tensor) -> torch.Tensor:
    """An input as it is outside of what is at work around: another count, or a transform such as vmap."""
    if type(tensor) is Recorded:
        return tensor.sig.meta() if tensor.content is None else tensor.content
    if private.is_transformed(tensor):
        fault = "an input belongs to a transform of torch.func (vmap, grad) that is running, and exists only inside it"
        raise InputError(fault, hint="count outside the transform, or give shapes= instead of the input")
    return tensor


def device_of(model: nn.Module) -> torch.device:
    """Where the model is: its first tensor's device; a model without data counts as one on the CPU."""
    for tensor in (*model.parameters(), *model.buffers()):
        if tensor.device.type != "meta":
            return tensor.device
    return torch.device("cpu")


@contextmanager
def in_mode(model: nn.Module, mode: str | None) -> Iterator[None]:
    """Train or eval for the time of the count; every module's own flag comes back."""
    modules = model.modules() if mode is not None else ()
    flags = [(module, module.training) for module in modules if hasattr(module, "training")]
    try:
        for module, _ in flags:
            module.training = mode == "train"
        yield
    finally:
        for module, training in flags:
            module.training = training
