"""How much of a device's peak a step uses: computed, and measured by a meter around every step, with callbacks of trainers."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from statistics import median
from typing import TYPE_CHECKING, Any

from opcost.api import check_saved, count, load_report, resolve_source
from opcost.core.devices import Device, autocasts_like
from opcost.core.devices import device as find_device
from opcost.core.option import filled, takes
from opcost.core.rendering import brief
from opcost.core.report import Report
from opcost.core.sheet import Field, Line, Sheet, Table
from opcost.core.tracebacks import TrimsTracebacks
from opcost.core.units import format_count, format_time, parse_time
from opcost.errors import InputError, MissingFramework, UnknownName
from opcost.frontends.inputs import parse_precision
from opcost.frontends.source import SavedReport
from opcost.options import Costing
from opcost.views.view import format_cell

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from opcost.analysis.join import StepFlops
    from opcost.api import Recording


@takes(Costing)
def mfu(
    source: Any, inputs: Any = None, *, step_time: str | float, device: str | Device, devices: int = 1,
    inference: bool = False, tf32: bool = False, **options: Unpack[Costing],
) -> Sheet:  # fmt: skip
    """How much of a device's peak a step uses, under each convention: `opcost.mfu(model, x, step_time="312ms", device="h200")`.

    The model, its inputs and the other options are given as to `opcost.count`; a report that was counted before works as well.
    `step_time` is the time of one step on each of the `devices`, in seconds or with a unit. The step is a training step, or with
    `inference` a forward pass. `tf32` says that products of float32 run in TF32.
    """
    from opcost.analysis.join import CONVENTIONS, step_flops

    seconds = parse_time(step_time) / 1e9 if isinstance(step_time, str) else step_time
    if seconds <= 0 or devices < 1:
        hint = 'step_time="312ms", devices=8 (on the command line --step-time 312ms --devices 8)'
        raise InputError("a step takes some time on at least one device", hint=hint)
    known = find_device(device) if isinstance(device, str) else device
    given = filled(Costing, options)
    training = not (inference or given.prefill or given.decode)
    found = None if isinstance(source, Report) else resolve_source(source, given.set)
    if isinstance(source, Report):
        report = source
    elif isinstance(found, SavedReport):
        check_saved(found, options)
        report = load_report(found.path)
    else:
        counting: dict[str, Any] = {name: value for name, value in options.items() if name != "set"}
        counting["precision"] = parse_precision(given.precision, autocasts_like(known.name))
        counting["backward"] = training or given.backward
        report = count(source if found is None else found, inputs, **counting)
    lines, remarks, rates = [], [], []
    for name, meaning in CONVENTIONS.items():
        try:
            work = step_flops(report, known, name, tf32=tf32)
        except InputError:
            if name == "executed":
                raise
            continue  # a convention of other steps, or of models that read tokens
        rate = work.flops / seconds / devices
        lines.append(Line((name, work.used(seconds * devices), rate, work.peak, work.flops)))
        remarks.append(f"{name}: {meaning}")
        used = format_cell(work.used(seconds * devices), _FIELDS[1])
        rates.append(f"MFU {used} %, {format_count(rate)}FLOP/s of {format_count(work.peak)}FLOP/s")
    table = Table(fields=_FIELDS, lines=tuple(lines), remarks=tuple(remarks), main=True)
    where = f"{devices} × {known.name}" if devices > 1 else known.name
    return Sheet(
        name="mfu",
        meta=report.meta,
        answer=f"{report.subject} on {where}: {rates[0]} at {format_time(seconds * 1e9)} a step",
        heading=(f"input   {report.run_on}",),
        tables=(table,),
        facts=(known.description,),
    )


_FIELDS = (
    Field("convention", "name"), Field("mfu", "share", "MFU %"), Field("rate", "flop/s"), Field("peak", "flop/s"),
    Field("flops", "count", "FLOPs a step"),
)  # fmt: skip


# -- while training ------------------------------------------------------------------------------------------------------

WINDOW = 100  # the time of a step is the median of this many last ones, which a pause for an evaluation does not change


class StepMeter(TrimsTracebacks):
    """How much of its device's peak a loop uses: `with meter: step()` around every step, then `print(meter)`.

    The first step is recorded as it runs, so that what it multiplies is counted once and exactly: forward, backward, recomputed
    activations. From then on the time from the end of one step to the end of the next is taken, with all waiting for data.
    `device` is a name of the table of devices, or a device of your own. A step that was counted before can be given as a report.
    `convention`: "executed", or a name of `opcost.analysis.join.CONVENTIONS`, which need `step`.
    """

    def __init__(
        self, device: str | Device, *, step: Report | None = None, convention: str = "executed", tf32: bool = False,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:  # fmt: skip
        from opcost.analysis.join import CONVENTIONS

        if convention not in CONVENTIONS:
            raise UnknownName("convention", convention, CONVENTIONS)
        if convention != "executed" and step is None:
            raise InputError(
                f"{convention} needs the parameters and tokens of a step, which a recording does not know",
                hint="count a step: step=opcost.count(model, inputs, backward=True)",
            )
        self.device = find_device(device) if isinstance(device, str) else device
        self.convention = convention
        self.tf32 = tf32
        self.work: StepFlops | None = None  # what a step multiplies; None before the first one
        self._clock = clock
        self._times: deque[float] = deque(maxlen=WINDOW)
        self._ended: float | None = None
        self._recording: Recording | None = None
        if step is not None:
            self._take(step)

    def _take(self, report: Report) -> None:
        from opcost.analysis.join import step_flops

        self.work = step_flops(report, self.device, self.convention, tf32=self.tf32)

    def begin(self) -> None:
        """A step begins."""
        if self.work is None and self._recording is None:
            from opcost.api import recording

            self._recording = recording()
            self._recording.__enter__()

    def end(self) -> None:
        """A step has ended."""
        if self._recording is not None:
            done, self._recording = self._recording, None
            done.__exit__(None, None, None)
            self._take(done.report)
        now = self._clock()
        if self._ended is not None:
            self._times.append(now - self._ended)
        self._ended = now

    def __enter__(self) -> StepMeter:  # noqa: PYI034 - nothing derives from it
        self.begin()
        return self

    def __exit__(self, kind: type[BaseException] | None, *exception: object) -> None:
        if kind is None:
            self.end()
        elif self._recording is not None:  # half a step is no step
            self._recording.__exit__(kind, *exception)
            self._recording = None

    @property
    def step_seconds(self) -> float | None:
        """The usual time of a step; None before two have ended."""
        return median(self._times) if self._times else None

    @property
    def mfu(self) -> float | None:
        """The share of the peak that is used; None before two steps have ended."""
        seconds = self.step_seconds
        return None if self.work is None or not seconds else self.work.used(seconds)

    def __repr__(self) -> str:
        return brief(self, [str(self)])

    def __str__(self) -> str:
        if self.work is None or self.mfu is None or self.step_seconds is None:
            return "MFU is known when two steps have ended"
        rate, peak = (format_count(each) for each in (self.work.flops / self.step_seconds, self.work.peak))
        return (
            f"MFU {self.mfu:.1%}: {rate}FLOP/s of {peak}FLOP/s ({self.device.name}, {' and '.join(self.work.dtypes)}), "
            f"{format_time(self.step_seconds * 1e9)} a step, {format_count(self.work.flops)}FLOPs ({self.convention})"
        )

    def for_transformers(self) -> Any:
        """A callback for transformers' Trainer, which also logs `mfu`; each rank logs its own."""
        from transformers import TrainerCallback

        meter = self

        class MfuCallback(TrainerCallback):  # type: ignore[misc]  # transformers is not there for everybody
            def on_step_begin(self, *_: Any, **__: Any) -> None:
                meter.begin()

            def on_step_end(self, *_: Any, **__: Any) -> None:
                meter.end()

            def on_log(self, *_: Any, logs: dict[str, Any] | None = None, **__: Any) -> None:
                if logs is not None and meter.mfu is not None:
                    logs["mfu"] = round(meter.mfu, 4)

        return MfuCallback()

    def for_lightning(self) -> Any:
        """A callback for Lightning's Trainer, which also logs `mfu`; each rank logs its own."""
        from importlib import import_module
        from importlib.util import find_spec

        name = next((name for name in ("lightning", "pytorch_lightning") if find_spec(name)), None)
        if name is None:
            raise MissingFramework("Lightning is not installed", hint="pip install lightning")
        base: Any = import_module("lightning.pytorch" if name == "lightning" else name).Callback
        meter = self

        class MfuCallback(base):  # type: ignore[misc]  # found while running
            def on_train_batch_start(self, *_: Any, **__: Any) -> None:
                meter.begin()

            def on_train_batch_end(self, _: Any, module: Any, *__: Any, **___: Any) -> None:
                meter.end()
                if meter.mfu is not None:
                    module.log("mfu", meter.mfu, prog_bar=True)

        return MfuCallback()
