"""Measure a model: warm up, time it alone, then record it with PyTorch's profiler, whose kernel records give device time."""

from __future__ import annotations

import ctypes
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from contextvars import copy_context
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from opcost.core.graph import Note
from opcost.core.interrupts import allow_signals, defer_signals
from opcost.core.profile import Profile
from opcost.core.report import Report
from opcost.errors import ForwardError, InputError, OpcostError
from opcost.frontends.torch import private
from opcost.frontends.torch.ledger.parameters import has_data
from opcost.frontends.torch.load import device_of, in_mode, shapes_returned
from opcost.frontends.torch.models import is_exported
from opcost.frontends.torch.models.inputs import as_dtype, attempts_of, make_inputs
from opcost.frontends.torch.models.unwrap import type_name, unwrap
from opcost.frontends.torch.models.weights import copy_with_lazy_parts, has_lazy_parts, retyped
from opcost.frontends.torch.recording.environment import checkpoints_for_grad, no_surrounding_modes
from opcost.frontends.torch.recording.failure import forward_error
from opcost.frontends.torch.recording.module_calls import Paths, intercept_calls
from opcost.frontends.torch.recording.training_step import loss_of
from opcost.frontends.torch.restore import real_runs
from opcost.frontends.torch.tree import map_tensors, tensors_in
from opcost.recorders.measure import host_conditions, overhead, readable_conditions, timed_runs, wait_for, warmed_up
from opcost.recorders.registry import ProfileOptions
from opcost.recorders.torch import events
from opcost.recorders.torch.rows import Matcher, rows_of

CACHE_BYTES = 256 * 2**20
"""More than the last cache of any device there is; writing this much leaves nothing else in it."""


def record(source: Any, options: ProfileOptions, report: Report | None) -> Profile:
    """The profile of a model. `report` is its count on the same inputs, which gives each row its kind, shapes and cost."""
    if private.profiler_runs():
        hint = "leave the block of the first one before calling opcost.profile"
        raise InputError("PyTorch's profiler is running already, and a second one would end it", hint=hint)
    with defer_signals(), no_surrounding_modes():
        # What the model sets in context variables stays in a context of its own.
        return copy_context().run(_measured, Runner(source, options), options, report)


def _measured(runner: Runner, options: ProfileOptions, report: Report | None) -> Profile:
    on_gpu = runner.device.type == "cuda"
    with_device = on_gpu and not options.host_only
    state: dict[str, str] = {}
    with runner.prepared():
        flush: Callable[[], Any] = lambda: None  # noqa: E731 - nothing to write
        if options.cold_l2:
            flush = torch.empty(CACHE_BYTES, dtype=torch.uint8, device=runner.device).zero_
        with allow_signals():
            warmed_up(lambda: wait_for(runner.run()), options.warmup)
            timed = timed_runs(runner.run, wait_for, repeat=options.repeat, seconds=options.seconds, prepare=flush)
            if on_gpu:  # clocks and temperature while the device works: an idle one turns them down
                result = runner.run()
                state = gpu_state(runner.device)
                wait_for(result)
        recorded, nesting, annotated = _record(runner, len(timed), flush, with_device=with_device)
    matcher = Matcher(report.rows if report is not None else ())
    rows = rows_of(nesting.roots, matcher.match(nesting.roots), with_device=with_device)
    # What was counted and not found in the recording, so that no cost is lost in silence
    missing = [row for row in matcher.unmatched(tuple(nesting.step_ns)) if row.cost is not None and row.cost.flops]
    notes = []
    if report is not None and missing:
        flops = sum(row.cost.flops * row.op.repeat for row in missing if row.cost is not None)
        kinds = ", ".join(sorted({row.op.raw for row in missing})[:8])
        why = "ran under other names or fused with others, so their cost is beside no row"
        notes = [Note("cost-not-placed", f"{len(missing)} counted operators ({flops:,} FLOPs: {kinds}) {why}")]
    return Profile(
        meta={
            "source": runner.label, "format": "opcost", "framework": "torch",
            "device": "gpu" if on_gpu else runner.device.type,
            "mode": options.mode or ("train" if getattr(runner.inner, "training", False) else "eval"),
            "backward": str(options.backward), "host_only": str(options.host_only),
            "cold_l2": str(options.cold_l2), "warmup": str(options.warmup), "steps": str(len(recorded)),
            "annotated": str(annotated), "overhead": overhead(timed, recorded), **conditions(runner.device), **state,
        },
        rows=rows,
        unattributed=tuple(nesting.unattributed),
        wall_ns=sum(recorded),
        timed_ns=timed,
        notes=tuple(notes),
        extra={"recorded_ns": list(recorded)},
    )  # fmt: skip


def _record(
    runner: Runner, steps: int, flush: Callable[[], Any], *, with_device: bool
) -> tuple[tuple[int, ...], events.Nesting, bool]:
    """Steps under the profiler: their durations, what ran in them, and whether annotations slowed them.

    Modules and shapes are learnt in two runs before, and the steps themselves run bare. A model whose runs differ, or that
    launches device work outside any operator (where only the annotation has the module), is recorded with annotations.
    """
    outline = events.outline_of(_session(runner, 2, flush, with_device=False, annotated=True)[1])
    if outline is not None:
        durations, nesting = _session(runner, steps, flush, with_device=with_device, annotated=False)
        launches = (node for root in nesting.roots for node in root.walk() if node.event.runtime)
        if events.describe(nesting, outline) and not any(node.kernels for node in launches):
            return durations, nesting, False
    return *_session(runner, steps, flush, with_device=with_device, annotated=True), True


def _session(
    runner: Runner, steps: int, flush: Callable[[], Any], *, with_device: bool, annotated: bool
) -> tuple[tuple[int, ...], events.Nesting]:
    """One session of the profiler; `annotated` with the shapes of all arguments and a mark around every module call."""
    scope = private.Annotation
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if with_device else [])]
    durations = []
    profiler = profile(activities=activities, record_shapes=annotated)
    with _profiled(profiler), allow_signals():
        for step in range(-1, steps):
            # The first step under a profiler pays for its start; it runs aside and is not kept.
            with scope(events.ASIDE):
                flush()
                wait_for(None)
                if step < 0:
                    wait_for(runner.run(scope, modules=annotated))
            if step >= 0:
                start = time.perf_counter_ns()
                with scope(f"{events.STEP}{step}"):
                    wait_for(runner.run(scope, modules=annotated))
                durations.append(time.perf_counter_ns() - start)
    host, device = events.read_events(profiler.profiler.kineto_results)
    return tuple(durations), events.Nesting(host, device, runner.paths)


@contextmanager
def _profiled(profiler: profile) -> Iterator[None]:
    """The block runs under the profiler, whose start and stop write nothing."""
    profiler.prepare_trace()
    with private.quiet_profiler():
        profiler.start_trace()
    try:
        yield
    finally:
        with private.quiet_profiler():
            profiler.stop_trace()


# -- one run of the user's model, repeatable, with everything of the user's restored

Scope = Callable[[str], Any]  # makes the context manager of an annotation


class Runner:
    """A model with its inputs, ready to run."""

    def __init__(self, source: Any, options: ProfileOptions) -> None:
        inner = unwrap(source)
        if options.dtype is not None:
            # The model in another floating type, beside the user's own
            if source is not inner:
                hint = "make the model in that type before it is wrapped"
                raise InputError(f"a {type(source).__name__} has its own element types", hint=hint)
            source = inner = retyped(inner, as_dtype(options.dtype), real=True)
        if has_lazy_parts(inner):
            # The first run gives the lazy ones a shape: the user's stay lazy.
            source = copy_with_lazy_parts(source, inner)
            inner = unwrap(source)
        self.model = inner if is_exported(source) else source
        """What is called: with its wrapper, if it has one (a compiled model runs compiled)."""
        self.inner = inner
        self.device = device_of(inner)
        self.label = type_name(inner)
        self._options = options
        self._paths = Paths(inner)
        self._places = Counter(id(module) for _, module in self._paths.all)
        """How many paths each module of the model has."""
        self._known: dict[int, tuple[str, str]] = {}
        self._numbers: dict[str, int] = {}
        self.paths: list[str] = []  # module paths by the number that annotations carry
        self._running = ""
        for name, tensor in (*inner.named_parameters(), *inner.named_buffers()):
            if not has_data(tensor):
                raise InputError(
                    f"{name} has no data (it is on the meta device or fake), so the model cannot run",
                    hint="make the model with its weights; the time on other data would be the same",
                )
        made = make_inputs(inner, options, shapes_returned)
        generator = torch.Generator().manual_seed(0)
        attempts = attempts_of(inner, made, training=options.backward)
        given = (made.args, [attempt.kwargs for attempt in attempts])
        self.args, kwargs = map_tensors(given, lambda tensor: self._own(tensor, generator))
        self._attempts = [attempt._replace(kwargs=own) for attempt, own in zip(attempts, kwargs, strict=True)]
        """What the model is called with: the first of these that it takes."""

    def _own(self, tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        """A copy of the user's tensor, or, where only a shape was given, reproducible noise on the model's device."""
        if not has_data(tensor):
            noise = torch.randn(tensor.shape, dtype=torch.float32, generator=generator)
            return noise.to(device=self.device, dtype=tensor.dtype)
        own = tensor.detach().clone()
        if self._options.inputs is None:  # made from shapes, on the CPU
            own = own.to(self.device)
        return own.requires_grad_() if tensor.requires_grad else own

    @contextmanager
    def prepared(self) -> Iterator[None]:
        """The model in the wanted mode, after a first run; on leaving, it and the process are as they were."""
        with real_runs(self.inner, self.model) as first_run, ExitStack() as undo:
            undo.enter_context(in_mode(self.inner, self._options.mode))
            undo.enter_context(torch.set_grad_enabled(self._options.backward))
            if self._options.backward:
                undo.enter_context(checkpoints_for_grad())
            with first_run(), allow_signals():
                self._first()
            yield

    def _first(self) -> None:
        """The run that finds out whether the model takes these inputs: of those that were guessed there may be others."""
        while True:
            try:
                self._forward_and_backward(nullcontext, self.inner)
                return
            except ForwardError:
                if len(self._attempts) == 1:
                    raise
                self._attempts.pop(0)

    def run(self, scope: Scope | None = None, *, modules: bool = False) -> Any:
        """One forward pass, and the backward pass where it is wanted; with `modules`, each module call is annotated."""
        if scope is None or not modules:
            return self._forward_and_backward(scope or nullcontext, self.model)
        self._running = ""
        with defer_signals(), intercept_calls(partial(self._enter, scope), engine=True), allow_signals():
            return self._forward_and_backward(scope, self.model)

    def _forward_and_backward(self, scope: Scope, model: Any) -> Any:
        """What the user's model raises is reported as such."""
        try:
            result = model(*self.args, **self._attempts[0].kwargs)
            return self._gradients(scope, result) if self._options.backward else result
        except OpcostError:
            raise
        except Exception as exc:
            raise forward_error(exc, None, self.inner) from exc

    def _gradients(self, scope: Scope, result: Any) -> Any:
        outputs = [tensor for tensor in tensors_in(result) if tensor.requires_grad]
        inputs = self._attempts[0]
        loss = loss_of(result, labelled=inputs.kwargs.get("labels") is not None)
        if loss is None and inputs.on_trial:  # the labels must give one
            raise ForwardError("the model makes no loss of the labels")
        outputs = outputs if loss is None else [loss]
        leaves = [p for p in self.inner.parameters() if p.requires_grad]
        leaves += [tensor for tensor in tensors_in((self.args, inputs.kwargs)) if tensor.requires_grad]
        if not outputs or not leaves:
            fault = f"there is nothing to differentiate: no {'output' if leaves else 'parameter'} requires a gradient"
            raise ForwardError(fault, hint="profile without backward, or unfreeze a parameter")
        with scope(events.BACKWARD):
            ones = [torch.ones_like(output) for output in outputs]
            return torch.autograd.grad(outputs, leaves, grad_outputs=ones, allow_unused=True)

    def _enter(self, scope: Scope, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Called in place of every module call; what it costs is added to every call, so the usual case is looked up."""
        outer = self._running
        known = self._known.get(id(module))
        path, name = known if known is not None else self._named(module, outer)
        self._running = path
        try:
            with scope(name):
                return module._wrapped_call_impl(*args, **kwargs)
        finally:
            self._running = outer

    def _named(self, module: nn.Module, outer: str) -> tuple[str, str]:
        """The path of a module that is called from inside `outer`, and the name of its annotation."""
        is_unknown = isinstance(module, torch.fx.GraphModule) and not self._places[id(module)]
        # No module of the model's but what a compiler or another wrapper put around it has the path of what is around it.
        is_shell = module is not self.inner if module is self.model else is_unknown
        path = outer if is_shell else self._paths.path(module, outer)
        if path not in self._numbers:
            self._numbers[path] = len(self.paths)
            self.paths.append(path)
        named = path, f"{events.MODULE}{self._numbers[path]}"
        if self._places[id(module)] == 1:  # it is in the model, and under no other path
            self._known[id(module)] = named
        return named


# -- what a measurement depends on besides the model: versions, threads, precision switches, clocks


def conditions(device: torch.device) -> dict[str, str]:
    """Everything about this machine and process that a second measurement must share to be comparable."""
    wanted: dict[str, Callable[[], Any]] = {
        "torch": lambda: torch.__version__,
        "threads": torch.get_num_threads,
        "interop_threads": torch.get_num_interop_threads,
        "float32_matmul_precision": torch.get_float32_matmul_precision,
        "deterministic": torch.are_deterministic_algorithms_enabled,
        "mkldnn": lambda: torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled,
    }
    if device.type == "cuda":
        cuda, cudnn = torch.backends.cuda, torch.backends.cudnn
        switches = {"flash": "flash", "efficient": "mem_efficient", "cudnn": "cudnn", "math": "math"}
        wanted |= {
            "gpu": lambda: torch.cuda.get_device_name(device),
            "gpu_memory_bytes": lambda: torch.cuda.get_device_properties(device).total_memory,
            "gpu_multiprocessors": lambda: torch.cuda.get_device_properties(device).multi_processor_count,
            "cuda": lambda: torch.version.cuda or torch.version.hip,
            "cudnn": cudnn.version,
            "cudnn_benchmark": lambda: cudnn.benchmark,
            "cudnn_tf32": lambda: cudnn.allow_tf32,
            "matmul_tf32": lambda: cuda.matmul.allow_tf32,
            "gpu_compute_capability": lambda: ".".join(map(str, torch.cuda.get_device_capability(device))),
            "sdp_backends": lambda: ", ".join(
                name for name, word in switches.items() if getattr(cuda, f"{word}_sdp_enabled")()
            ),
        }
    return host_conditions() | readable_conditions(wanted)


# -- clocks, temperature and power of a GPU, from its driver: PyTorch itself needs a package that few have

_SM, _MEMORY = 1, 2  # what NVML calls its clock domains
_TEMPERATURE = 0


def gpu_state(device: torch.device) -> dict[str, str]:
    """Clocks, temperature and power of the device at this moment; empty where they are unknown."""
    try:
        return _by_nvml(device)
    except (OSError, AttributeError, LookupError):
        # The devices of AMD, and NVIDIA's where the driver's library is elsewhere
        found = {}
        for name, ask in (("gpu_clock_mhz", torch.cuda.clock_rate), ("gpu_temperature_c", torch.cuda.temperature)):
            with suppress(Exception):  # it needs a further package, which is seldom there
                found[name] = str(ask(device))
        return found


def _processes(library: ctypes.CDLL, handle: ctypes.c_void_p) -> int | None:
    """How many processes, this one included, compute on the device."""
    ask = getattr(library, "nvmlDeviceGetComputeRunningProcesses_v3", None)  # not in old drivers
    count = ctypes.c_uint()
    too_few = 7  # the number is given all the same where there is no room for what each process is
    return count.value if ask is not None and ask(handle, ctypes.byref(count), None) in (0, too_few) else None


def _by_nvml(device: torch.device) -> dict[str, str]:
    library = ctypes.CDLL("libnvidia-ml.so.1")
    if library.nvmlInit_v2() != 0:
        raise LookupError("the driver does not answer")
    try:
        handle = ctypes.c_void_p()
        # By its own number, because what torch calls the first device may be another one for the driver.
        name = f"GPU-{torch.cuda.get_device_properties(device).uuid}".encode("ascii")
        if library.nvmlDeviceGetHandleByUUID(name, ctypes.byref(handle)) != 0:
            raise LookupError("the driver does not know this device")

        def ask(function: Callable[..., int], *which: int) -> int | None:
            value = ctypes.c_uint()
            return value.value if function(handle, *which, ctypes.byref(value)) == 0 else None

        milliwatts = ask(library.nvmlDeviceGetPowerUsage)
        driver = ctypes.create_string_buffer(96)
        found: dict[str, int | str | None] = {
            "gpu_clock_mhz": ask(library.nvmlDeviceGetClockInfo, _SM),
            "gpu_clock_max_mhz": ask(library.nvmlDeviceGetMaxClockInfo, _SM),
            "gpu_memory_clock_mhz": ask(library.nvmlDeviceGetClockInfo, _MEMORY),
            "gpu_temperature_c": ask(library.nvmlDeviceGetTemperature, _TEMPERATURE),
            "gpu_power_w": None if milliwatts is None else round(milliwatts / 1000),
            "gpu_processes": _processes(library, handle),
        }
        if library.nvmlSystemGetDriverVersion(driver, len(driver)) == 0:
            found["driver"] = driver.value.decode("ascii", "replace")
    finally:
        library.nvmlShutdown()
    return {name: str(value) for name, value in found.items() if value is not None}
