"""Measure a model: warm up, time it alone, then record it with PyTorch's profiler, whose kernel records give device time."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from contextvars import copy_context
from typing import Any, NamedTuple

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from opcost.core.graph import Note
from opcost.core.interrupts import allow_signals, defer_signals
from opcost.core.profile import Profile
from opcost.core.report import Report
from opcost.errors import InputError
from opcost.frontends.torch.recording.quiet import no_surrounding_modes
from opcost.recorders.options import ProfileOptions
from opcost.recorders.synchronise import wait_for
from opcost.recorders.timing import overhead, timed_runs, warmed_up
from opcost.recorders.torch.clocks import gpu_state
from opcost.recorders.torch.events import DeviceEvent, HostEvent, read_events
from opcost.recorders.torch.machine import conditions
from opcost.recorders.torch.matching import Matcher
from opcost.recorders.torch.nesting import ASIDE, STEP, Nesting, nest
from opcost.recorders.torch.outline import laid_over, outline_of
from opcost.recorders.torch.rows import RowMaker, kernel_of
from opcost.recorders.torch.run import Runner, Scope

CACHE_BYTES = 256 * 2**20
"""More than the last cache of any device there is; writing so much leaves nothing else in it."""


def record(source: Any, options: ProfileOptions, report: Report | None) -> Profile:
    """The profile of a model. `report` is its count on the same inputs, which gives each row its kind, shapes and cost."""
    if torch.autograd._profiler_enabled():
        raise InputError(
            "PyTorch's profiler is running already, and a second one would end it",
            hint="leave the block of the first one before calling opcost.profile",
        )
    with defer_signals(), no_surrounding_modes():
        # What the model sets in context variables stays in a context of its own.
        return copy_context().run(_measured, Runner(source, options), options, report)


def _measured(runner: Runner, options: ProfileOptions, report: Report | None) -> Profile:
    with_device = runner.device.type == "cuda" and not options.host_only
    with runner.prepared():
        flush = _flush(runner.device) if options.cold_l2 else _nothing
        with allow_signals():
            warmed_up(lambda: wait_for(runner.run()), options.warmup)
            timed = timed_runs(runner.run, wait_for, repeat=options.repeat, seconds=options.seconds, prepare=flush)
            state = _state_at_work(runner)
        recorded, nesting, annotated = _record(runner, len(timed), flush, with_device=with_device)
    matcher = Matcher(report.rows if report is not None else ())
    rows = RowMaker(matcher.match(nesting.roots), with_device=with_device).rows(nesting.roots)
    notes = [] if report is None else _missing(matcher, tuple(nesting.step_ns))
    return Profile(
        meta={
            "source": runner.label,
            "format": "opcost",
            "framework": "torch",
            "device": "gpu" if runner.device.type == "cuda" else runner.device.type,
            "mode": options.mode or ("train" if getattr(runner.inner, "training", False) else "eval"),
            "backward": str(options.backward),
            "host_only": str(options.host_only),
            "cold_l2": str(options.cold_l2),
            "warmup": str(options.warmup),
            "steps": str(len(recorded)),
            "annotated": str(annotated),
            "overhead": overhead(timed, recorded),
            **conditions(runner.device),
            **state,
        },
        rows=rows,
        unattributed=tuple(kernel_of(event) for event in nesting.unattributed),
        wall_ns=sum(recorded),
        timed_ns=timed,
        notes=tuple(notes),
        extra={"recorded_ns": list(recorded)},
    )


def _state_at_work(runner: Runner) -> dict[str, str]:
    """Clocks and temperature while the device works: an idle one turns them down."""
    if runner.device.type != "cuda":
        return {}
    result = runner.run()
    state = gpu_state(runner.device)
    wait_for(result)
    return state


class _Recording(NamedTuple):
    durations_ns: tuple[int, ...]
    host: list[HostEvent]
    device: list[DeviceEvent]


def _record(
    runner: Runner, steps: int, flush: Callable[[], Any], *, with_device: bool
) -> tuple[tuple[int, ...], Nesting, bool]:
    """So many steps under the profiler: their durations, what ran in them, and whether annotations slowed them.

    Modules and shapes are learnt in two runs before, and the steps themselves run bare. A model whose runs differ, or that
    launches device work outside any operator (where only the annotation tells the module), is recorded with annotations.
    """
    outline = outline_of(_session(runner, 2, flush, with_device=False, annotated=True).host)
    if outline is not None:
        bare = _session(runner, steps, flush, with_device=with_device, annotated=False)
        host = laid_over(bare.host, outline)
        if host is not None:
            nesting = nest(host, bare.device, runner.paths)
            if not any(node.event.runtime and node.kernels for root in nesting.roots for node in root.walk()):
                return bare.durations_ns, nesting, False
    full = _session(runner, steps, flush, with_device=with_device, annotated=True)
    return full.durations_ns, nest(full.host, full.device, runner.paths), True


def _session(runner: Runner, steps: int, flush: Callable[[], Any], *, with_device: bool, annotated: bool) -> _Recording:
    """One session of the profiler; `annotated` with the shapes of all arguments and a mark around every module call."""
    scope = _scope()
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if with_device else [])]
    durations = []
    with profile(activities=activities, record_shapes=annotated) as profiler, allow_signals():
        for step in range(-1, steps):
            # The first step under a profiler pays for its start; it runs aside and is not kept.
            with ExitStack() as around:
                around.enter_context(scope(ASIDE))
                flush()
                wait_for(None)
                if step < 0:
                    wait_for(runner.run(scope, modules=annotated))
            if step < 0:
                continue
            start = time.perf_counter_ns()
            with scope(f"{STEP}{step}"):
                wait_for(runner.run(scope, modules=annotated))
            durations.append(time.perf_counter_ns() - start)
    return _Recording(tuple(durations), *read_events(profiler.profiler.kineto_results))


def _scope() -> Scope:
    """How to annotate: the quick way, which is young, or the one that every version has."""
    quick: Scope | None = getattr(torch._C._profiler, "_RecordFunctionFast", None)
    slow: Scope = record_function
    return slow if quick is None else quick


def _flush(device: torch.device) -> Callable[[], Any]:
    buffer = torch.empty(CACHE_BYTES, dtype=torch.uint8, device=device)
    flush: Callable[[], Any] = buffer.zero_
    return flush


def _nothing() -> None:
    pass


def _missing(matcher: Matcher, steps: tuple[int, ...]) -> list[Note]:
    """Say what was counted and not found in the recording, so that no cost is lost in silence."""
    rows = [row for row in matcher.unmatched(steps) if row.cost is not None and row.cost.flops]
    if not rows:
        return []
    flops = sum(row.cost.flops * row.op.repeat for row in rows if row.cost is not None)
    kinds = ", ".join(sorted({row.op.raw for row in rows})[:8])
    return [
        Note(
            "cost-not-placed",
            f"{len(rows)} counted operators ({flops:,} FLOPs: {kinds}) ran under other names or fused with others, so their "
            "cost stands beside no row",
        )
    ]
