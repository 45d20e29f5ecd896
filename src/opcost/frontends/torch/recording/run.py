"""Run a model once without data (forward, and backward and update where requested), and hand over the graph."""

import sys
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from threading import current_thread
from traceback import clear_frames
from typing import Any

import torch
from torch import nn

from opcost.core.graph import UNSEEN, Graph, Module, ModuleCall, Note, Op, TensorSpec, Value
from opcost.core.interrupts import allow_signals, defer_signals, is_delivered, pending, raise_pending
from opcost.core.steps import PatternedOps, PatternedValues
from opcost.errors import ForwardError, InputError, OpcostError
from opcost.frontends.building import with_above
from opcost.frontends.torch import private
from opcost.frontends.torch.ledger.parameters import is_foreign, parts, parts_of_parameter, rebuilt
from opcost.frontends.torch.ledger.recorder_state import counting_thread, here
from opcost.frontends.torch.ledger.tensors import Recorded
from opcost.frontends.torch.models import is_schedule, weights
from opcost.frontends.torch.models.unwrap import type_name
from opcost.frontends.torch.operators.layers import STRIDED, whole_layers
from opcost.frontends.torch.recording.environment import as_jagged, reading_contents, settings_for_run
from opcost.frontends.torch.recording.failure import FailedCall, extra_of, forward_error, locate
from opcost.frontends.torch.recording.module_calls import (
    Checkpoints,
    Left,
    Paths,
    Threads,
    intercept_calls,
    marked,
    markers,
)
from opcost.frontends.torch.recording.pipelined import Messages, following_stages
from opcost.frontends.torch.recording.recorder import DatalessRecorder, RealRecorder
from opcost.frontends.torch.recording.repeated_calls import StepRecords
from opcost.frontends.torch.recording.sharded import (
    as_one_rank,
    axes_of,
    forget_gathered,
    is_fully_sharded,
    note_of,
    place_flat_shards,
    place_shards,
)
from opcost.frontends.torch.recording.training_step import RunOptions, TrainingPass
from opcost.frontends.torch.restore import restored
from opcost.frontends.torch.restore.leftovers import collect_garbage, empty_caches, remove_leftovers
from opcost.frontends.torch.restore.process import as_written, one_at_a_time, replaced
from opcost.frontends.torch.tree import map_tensors, tensors_in, tensors_passed

_Named = list[tuple[str, int]]  # Parameters or buffers of a module, by name


class ModelRun:
    """One recorded run of a model."""

    def __init__(self, model: nn.Module, recorder: DatalessRecorder, options: RunOptions) -> None:
        self.model = model
        self.recorder = recorder
        self.options = options
        self.paths = Paths(model)
        self.paths.adopted = self._register_late
        self.calls: list[list[Any]] = []
        self.failed: FailedCall | None = None
        self.again = False  # An assumed index ended the run early, and the recorder knows now which to avoid
        self.takes_gradients = False  # Forward takes gradients itself, and found none because they were off
        self._registered: dict[str, tuple[_Named, _Named, int]] = {}
        """Parameters and buffers of each module, and how many of its parameters had a shape."""
        self._packed: set[int] = set()  # Parameters of few bits, whose specs are not those of the stored tensors
        self._scripts: dict[int, Callable[..., Any]] = {}
        self._open: list[tuple[str, list[Any]]] = []
        """The calls inside scripted modules that have not ended, with the path around each."""
        self._owners: dict[int, str] = {}  # Of parameters by their identities the paths of their modules
        self._sequence: list[int] = []
        self._sequence_path: list[str] = []
        self._checkpoints: Checkpoints | None = None
        self._messages: Messages | None = None
        self._where_forward = partial(getattr, here, "path")
        recorder.where = self._where_forward
        self._training = TrainingPass(model, recorder, options, self._where_forward, self.where_backward)
        if options.backward or options.gradients or is_fully_sharded(model):
            recorder.replays_after = sys.maxsize  # every operator is needed by itself, with its gradient or its memory

    # -- where an operator runs ---------------------------------------------------------------------------------

    def where_graded(self) -> str:
        """As forward, noting which autograd nodes are made where."""
        number = private.sequence_number()  # type: ignore[attr-defined]
        if not self._sequence or number > self._sequence[-1]:
            self._sequence.append(number)
            self._sequence_path.append(here.path)
        return here.path

    def where_backward(self) -> str:
        """The module whose forward made the autograd node that runs now; a recomputed forward says itself where it is."""
        if here.path:
            return here.path
        node = private.autograd_node()
        if node is None or not self._sequence:
            return ""
        # A node takes its number just before its operator is dispatched, so the operator saw the next one.
        at = bisect_right(self._sequence, node._sequence_nr())
        if at < len(self._sequence_path):
            return self._sequence_path[at]
        return "" if self.options.schedule is None else self._owner(getattr(node, "variable", None))

    def _owner(self, weight: Any) -> str:
        """The module that has this parameter now: gathered ones take the place of shards for a time."""
        if id(weight) not in self._owners:
            self._owners |= {id(own): path for path, module in self.paths.all for own in module._parameters.values()}
        return self._owners.get(id(weight), "")

    def enter(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Called in place of every module call."""
        if pending:
            raise_pending()
        outer = here.path
        path = self.paths.path(module, outer)
        given = self._specs(args[0] if len(args) == 1 and not kwargs else (args, kwargs))
        call: list[Any] = [path, given, (), len(self.recorder.ops), 0]
        self.calls.append(call)
        here.path = path
        running = len(self._open)
        try:
            if weights.is_lazy(module):
                weights.initialize(module, args, kwargs)
                self._register_late(path, module)
            if isinstance(module, nn.RNNBase):
                with whole_layers(self.recorder, apart=self.options.backward):
                    result = module._call_impl(*args, **kwargs)
            elif isinstance(module, torch.jit.ScriptModule):
                if id(module) not in self._scripts:  # what runs it so that the calls of its submodules are reported
                    with private.no_modes():
                        self._scripts[id(module)] = marked(module) or module._call_impl
                    self.recorder.marker_calls = dict(zip(markers(), (self._begin, self._end), strict=False))
                result = self._scripts[id(module)](*args, **kwargs)
            else:
                result = module._call_impl(*args, **kwargs)
        except BaseException as exc:
            # A checkpoint that has recomputed enough raises too; to keep that would keep what it has computed.
            if not isinstance(exc, (private.StopRecomputation, Left)) and (
                self.failed is None or self.failed.exc is not exc
            ):
                self.failed = FailedCall(exc, path, module, call[1])
            raise
        finally:
            here.path = outer
            call[4] = len(self.recorder.ops)
            for _, unfinished in self._open[running:]:  # calls inside a scripted module that raised
                unfinished[4] = call[4]
            del self._open[running:]
        call[2] = self._specs(result)
        return result

    def _begin(self, below: str, given: list[torch.Tensor]) -> None:
        """A submodule of a scripted module is called."""
        outer = here.path
        here.path = f"{outer}.{below}" if outer else below
        call: list[Any] = [here.path, self._specs(given), (), len(self.recorder.ops), 0]
        self.calls.append(call)
        self._open.append((outer, call))

    def _end(self, made: list[torch.Tensor]) -> None:
        here.path, call = self._open.pop()
        call[2], call[4] = self._specs(made), len(self.recorder.ops)

    def _stand_in(self, tensor: torch.Tensor, name: str) -> torch.Tensor:
        if tensor.is_nested and tensor.layout is torch.strided:  # which compiled code takes apart
            self.recorder.note("nested", STRIDED)
            tensor = as_jagged(tensor, name)
        if not is_foreign(tensor) and tensor.numel() == 0:
            shape = "x".join(map(str, tensor.shape))
            self.recorder.note(
                "empty", f"the input {name or shape} has no elements ({shape}): what depends on it costs nothing"
            )
        return rebuilt(tensor, self.recorder.stand_in, name)

    def _specs(self, tree: Any) -> tuple[TensorSpec, ...]:
        if type(tree) is Recorded:
            return (tree.sig.spec,)
        return tuple([self.recorder.spec(tensor) for tensor in tensors_passed(tree, [])])

    def share(self) -> tuple[float, float] | None:
        """How much is done, by the modules that were called; of the backward pass by operators, twice those of forward."""
        modules, called = len(self.paths.all), len(self.calls)
        if called > modules:
            return None  # modules that are called again and again, an unknown number of times
        if not self.options.backward:
            return called, modules
        if not (forward := self._training.begins):
            return called / modules, 3
        return 1 + 2 * min((len(self.recorder.ops) - forward) / (2 * forward), 1.0), 3

    # -- the run ------------------------------------------------------------------------------------------------

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any], names: dict[int, str]) -> Graph:
        with defer_signals():
            try:
                graph = self._recorded(args, kwargs, names)
            except BaseException as exc:
                if self.options.tentative:  # let go of the tensors in the frames of the error and of those behind it
                    self.failed = None
                    behind: BaseException | None = exc
                    while behind is not None:
                        clear_frames(behind.__traceback__)
                        behind = behind.__cause__ or behind.__context__
                    collect_garbage(self.recorder)
                if not self.options.tentative or self.recorder.has_survivors():
                    empty_caches(self.recorder)  # what its traceback holds besides goes with it
                raise
            self.failed = None  # an exception that the model itself caught; its frames hold tensors
            remove_leftovers(self.recorder)
        return graph

    def _recorded(self, args: tuple[Any, ...], kwargs: dict[str, Any], names: dict[int, str]) -> Graph:
        """The graph of one run, with everything put back that the run has changed."""
        recorder = self.recorder
        with ExitStack() as undo:
            undo.enter_context(one_at_a_time())
            steps = getattr(self.options.schedule, "restores", self.options.schedule)
            undo.enter_context(restored(self.model, steps, args, kwargs))
            undo.enter_context(settings_for_run())
            undo.enter_context(as_one_rank(recorder))
            undo.enter_context(torch.inference_mode(mode=False))
            graded = self.options.backward or self.options.gradients
            undo.enter_context(torch.set_grad_enabled(graded))
            undo.enter_context(torch.autograd.set_multithreading_enabled(False))
            if not graded:
                undo.enter_context(replaced(torch.autograd, "_engine_run_backward", self._take_gradients))
            if self.options.step.checkpoint:
                self._checkpoints = Checkpoints(self.options.step, self.paths, self.enter)
            enter = self._checkpoints or self.enter
            undo.enter_context(intercept_calls(enter, elsewhere=self._unseen))
            forget_gathered(self.model)
            for path, module in self.paths.all:
                self._register(path, module)
            args, kwargs = map_tensors((args, kwargs), lambda t: self._stand_in(t, names.get(id(t), "")))
            if (ranks := note_of(self.model)) is not None:
                recorder.note("ranks", ranks)
            recorder.axes = axes_of(self.model, self.options.data_parallel)
            undo.callback(recorder.restore)
            if recorder.without_data and is_fully_sharded(self.model):
                place_shards(self.model, recorder)
                place_flat_shards(self.model, recorder)
            if recorder.without_data:
                undo.enter_context(reading_contents(recorder))
            following = following_stages(recorder, self.where_graded, self.where_backward)
            self._messages = undo.enter_context(following)
            threads = Threads(recorder, enter, backward=self.options.backward)
            undo.enter_context(threads.followed())
            recorder.thread = counting_thread()
            undo.callback(setattr, recorder, "thread", None)
            undo.enter_context(recorder)
            try:
                with allow_signals():
                    # What forward sets in context variables stays in a context of its own.
                    outputs = copy_context().run(self._forward_and_backward, args, kwargs)
            except ForwardError as exc:
                locate(exc, self.failed)
                raise
            except OpcostError:
                raise
            except Exception as exc:
                if is_delivered(exc):
                    raise
                raise threads.failure or recorder.stranger or forward_error(exc, self.failed, self.model) from exc
            threads.close()
            if (failure := threads.failure or recorder.stranger) is not None:
                raise failure
            self.again = recorder.check_choices()
            # The modules and parameters that forward made are the model's, as they are after any run.
            self.paths.take_in_made()
            for path, module in self.paths.all:
                if len(_with_shape(module)) > (self._registered[path][2] if path in self._registered else 0):
                    self._register_late(path, module)
            return self.graph_of(outputs)

    def _take_gradients(self, outputs: Sequence[torch.Tensor], *args: Any, **kwargs: Any) -> Any:
        """In place of what runs a backward pass: forward itself asks for one, of tensors for which gradients were off."""
        self.takes_gradients |= not any(tensor.requires_grad for tensor in tensors_in(outputs))
        return private.run_backward(outputs, *args, **kwargs)

    def _forward_and_backward(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[int, ...]:
        """Run the model, and say which values it returned."""
        if self.options.backward:
            self.recorder.where = self.where_graded
        if self.options.schedule is not None:
            return self._step(args, kwargs)
        shards = list(self.model.parameters()) if self.options.backward and is_fully_sharded(self.model) else None
        with self.options.autocast():
            result = self.model(*args, **kwargs)
        if self._checkpoints is not None:
            self._checkpoints.check()
        state = self.recorder.state
        outputs = tuple(dict.fromkeys(state(part).vid for t in tensors_in(result) for _, part in parts("", t)))
        if self.options.backward:
            roots = self._training.roots(result, labelled=kwargs.get("labels") is not None)
            if self._training.loss:
                del result  # logits and caches are freed, as after `loss = model(**batch).loss`
            self._training.run(roots, tensors_in((args, kwargs)), shards)
        return outputs

    def _step(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[int, ...]:
        """Run a step of a pipeline's schedule, and say which values it returned."""
        weights = [weight for weight in self.model.parameters() if weight.requires_grad]
        for weight in weights:
            weight.grad = None
        if self._messages is not None and is_schedule(self.options.schedule):
            self._messages.place(self.options.schedule)
        with self.options.autocast():
            result = self.options.schedule.step(*args, **kwargs)
        state = self.recorder.state
        outputs = tuple(dict.fromkeys(state(part).vid for t in tensors_in(result) for _, part in parts("", t)))
        if self.options.backward:
            pairs = [(weight, weight.grad) for weight in weights if weight.grad is not None]
            self._training.update(pairs, [grad for _, grad in pairs])
        return outputs

    def _unseen(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A module is called in a thread that forward did not start; of real values it is not known whose they are."""
        given = tensors_passed((args, kwargs), [])
        if any(type(tensor) is Recorded and tensor.mark is self.recorder.mark for tensor in given):
            raise self.recorder.refused(f"module {self.paths.path(module, '')!r}")
        if not self.recorder.without_data and self.paths.knows(module):
            thread = current_thread().name
            said = f"a module of the model was called in the thread {thread!r}, which forward did not start: what ran there is "
            self.recorder.notes[Note(UNSEEN, f"{said}not counted")] = None

    # -- the graph ----------------------------------------------------------------------------------------------

    def _register(self, path: str, module: nn.Module) -> None:
        """Make a value of every parameter and buffer of a module, used or not."""
        stem = f"{path}." if path else ""
        recorder = self.recorder
        params: _Named = []
        buffers: _Named = []
        shaped = _with_shape(module)
        for name, p in shaped.items():
            for part in parts_of_parameter(name, p):
                is_param = part.role == "param"
                trainable = is_param and p.requires_grad
                vid = recorder.leaf(part.tensor, stem + part.name, part.role, trainable=trainable).origin
                if part.spec is not None:
                    recorder.specs[vid] = part.spec
                    self._packed.add(vid)
                (params if is_param else buffers).append((part.name, vid))
        params += recorder.packages.register(path, module, recorder.leaf)
        buffers += [
            (part, recorder.leaf(tensor, stem + part, "buffer").origin)
            for name, b in module._buffers.items()
            if b is not None and not weights.is_uninitialized(b)
            for part, tensor in parts(name, b)
        ]
        if params or buffers:
            self._registered[path] = params, buffers, len(shaped)

    def _register_late(self, path: str, module: nn.Module) -> None:
        """The same while the run is on: looking at the tensors must not be recorded."""
        with private.no_modes():
            self._register(path, module)

    def graph_of(self, outputs: tuple[int, ...]) -> Graph:
        recorder, sent = self.recorder, self._messages
        roles = recorder.leaves
        values: Sequence[Value] = PatternedValues(recorder.specs, recorder.storages, roles, self._packed)
        ops: Sequence[Op]
        if isinstance(recorder.ops, StepRecords):
            ops = PatternedOps(recorder.ops.steps)
        else:
            values, ops = tuple(values), self._training.repeated(recorder.ops)
            ops = ops if sent is None else tuple(map(sent.in_phase, ops))
        calls = tuple([ModuleCall(*call) for call in self.calls])
        with private.no_modes():  # an `extra_repr` may run operators, which are not the model's
            modules = tuple(self._modules(calls))
        return Graph(
            source=type(self.model).__name__,
            framework="torch",
            values=values,
            ops=ops,
            modules=modules,
            calls=calls,
            inputs=tuple(vid for vid, (_, role, _) in roles.items() if role == "input"),
            outputs=outputs,
            lifetimes=self._training.lifetimes(*(() if sent is None else (sent.received, sent.gradients))),
            released=recorder.released(),
            notes=tuple(recorder.notes),
            meta={
                "version": torch.__version__,
                "device": str(recorder.device),
                "mode": "train" if getattr(self.model, "training", False) else "eval",
                **({"loss": loss} if (loss := self._training.loss) else {}),
                **({"optimizer": optimizer} if (optimizer := self._training.optimizer) else {}),
                **({"accumulate": str(passes)} if (passes := self.options.step.accumulate) > 1 else {}),
            },
        )

    def _modules(self, calls: tuple[ModuleCall, ...]) -> Iterator[Module]:
        first: dict[str, ModuleCall] = {}
        count: dict[str, int] = {}
        for call in calls:
            first.setdefault(call.path, call)
            count[call.path] = count.get(call.path, 0) + 1
        seen: dict[int, str] = {}
        modules = dict(self.paths.all)
        for path in with_above(modules):
            if (module := modules.get(path)) is None:  # a name with a dot in it, put into `_modules`
                yield Module(path=path, type="scope")
                continue
            params, buffers, _ = self._registered.get(path) or ((), (), 0)
            opening = first.get(path)
            yield Module(
                path=path,
                type=type_name(module),
                parameters=tuple(params),
                buffers=tuple(buffers),
                calls=count.get(path, 0) * self.options.step.accumulate,
                extra=extra_of(module),
                same_as=None if (known := seen.setdefault(id(module), path)) == path else known,
                inputs=opening.inputs if opening else (),
                outputs=opening.outputs if opening else (),
            )


def _with_shape(module: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters of a module itself that have a shape."""
    return {name: p for name, p in module._parameters.items() if p is not None and not weights.is_uninitialized(p)}


class RecordedBlock:
    """Records whatever runs inside a block of the user's code; modules that it calls go by `<Class>`, those below by name.

    Every operator runs as it would. Nothing is withheld or restored: what the block computes and changes is the user's doing.
    """

    def __init__(self) -> None:
        self.recorder = RealRecorder(torch.get_default_device(), restores=False)
        # Recurrent layers run as they do without us, which is how they are taken apart for a backward pass.
        self._run = ModelRun(nn.Module(), self.recorder, RunOptions(backward=True))
        self.recorder.where = self._where
        self._undo = ExitStack()

    def enter(self) -> None:
        """Begin to record."""
        if any(isinstance(mode, DatalessRecorder) for mode in private.dispatch_modes()):
            raise InputError("a recording runs inside another recording or count", hint="end the outer one first")
        self._undo.enter_context(as_written())  # a compiler would trace the recorder, as flex attention's does
        self._undo.enter_context(intercept_calls(self._run.enter, engine=True))
        self._undo.enter_context(self.recorder)

    def leave(self) -> None:
        """End the recording."""
        self._undo.close()
        self._run.failed = None  # what a module raised; its frames hold tensors

    def graph(self) -> Graph:
        """What ran so far."""
        root = self._run.model
        root.training = any(module.training for _, module in self._run.paths.all if module is not root)
        return replace(self._run.graph_of(()), source="recording")

    def _where(self) -> str:
        """The running module; inside the autograd engine, the one whose forward made the node that runs."""
        if private.autograd_node() is None:
            self.recorder.phase = "forward"
            return self._run.where_graded()
        self.recorder.phase = "backward"
        return self._run.where_backward()
