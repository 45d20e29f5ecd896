"""`opcost mfu SOURCE --step-time TIME --device NAME`."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from cyclopts import Group

from opcost.analysis.utilization import CONVENTIONS, step_flops
from opcost.cli.counting import report_of
from opcost.cli.options import CountChoice, Quiet, SourceArgument, parameter
from opcost.cli.saying import say
from opcost.core.devices import device as find_device
from opcost.core.units import format_count, format_time, parse_time
from opcost.errors import InputError

STEP = Group("The step", sort_key=0)


def mfu(
    source: SourceArgument,
    /,
    *,
    step_time: Annotated[
        str, parameter(group=STEP, metavar="TIME", help="What one step takes, on each of the devices: 312ms, 1.2s.")
    ],
    device: Annotated[str, parameter(group=STEP, metavar="NAME", help="The device that it runs on: h200, a100, ...")],
    devices: Annotated[
        int, parameter(group=STEP, metavar="N", show_default=True, help="So many of them share the step.")
    ] = 1,
    inference: Annotated[bool, parameter(group=STEP, help="The step is a forward pass, not a training step.")] = False,
    tf32: Annotated[bool, parameter(group=STEP, help="Products of float32 run in TF32.")] = False,
    choice: CountChoice | None = None,
    quiet: Quiet = False,
) -> int:
    """Tell how much of a device's peak a step uses, under each convention that applies."""
    seconds = parse_time(step_time) / 1e9
    if seconds <= 0 or devices < 1:
        raise InputError("the step takes some time on at least one device", hint="--step-time 312ms --devices 8")
    known = find_device(device)
    choice = choice or CountChoice()
    training = not (inference or choice.prefill or choice.decode)
    report = report_of(source, replace(choice, backward=True) if training else choice, quiet=quiet, runs_on=known.name)
    say(
        f"{report.meta['source']}, {'a training step' if training else 'a forward pass'} of {format_time(seconds * 1e9)}, "
        f"on {report.run_on}"
    )
    for name, meaning in CONVENTIONS.items():
        try:
            work = step_flops(report, known, name, tf32=tf32)
        except InputError:
            if name == "executed":
                raise
            continue  # a convention of other steps, or of models that read tokens
        used = work.used(seconds * devices)
        rate = format_count(work.flops / seconds / devices)
        say(
            f"{name:13}{used:7.1%}  {rate}FLOP/s of {format_count(work.peak)}FLOP/s, {format_count(work.flops)}FLOPs a step"
        )
        say(f"{'':22}{meaning}")
    say(known.told)
    return 0
