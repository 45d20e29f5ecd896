"""`opcost predict SOURCE --device NAME`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Group

from opcost.cli.counting import report_of
from opcost.cli.options import CountChoice, Quiet, SourceArgument, parameter
from opcost.cli.saying import say
from opcost.cli.showing import check_file
from opcost.core.plugin import PROFILE_VIEWS
from opcost.core.progress import working
from opcost.core.units import format_time
from opcost.predicting import Prediction
from opcost.predicting import predict as foretell

PREDICTING = Group("What is predicted", sort_key=2)
WRITING = Group("What is written", sort_key=4)


def predict(
    source: SourceArgument,
    /,
    *,
    device: Annotated[
        str, parameter(group=PREDICTING, metavar="NAME", show_default=True, help="The device: h200, h100, a100, ...")
    ] = "h200",
    calibration: Annotated[
        Path | None,
        parameter(
            group=PREDICTING,
            metavar="FILE",
            help="What opcost calibrate wrote on this device, in place of what comes with opcost.",
        ),
    ] = None,
    by: Annotated[
        str,
        parameter(group=WRITING, metavar="KEY", show_default=True, help="A line for each type, kind, module, or name."),
    ] = "type",
    top: Annotated[
        int, parameter(group=WRITING, metavar="N", show_default=True, help="So many lines; 0 shows all.")
    ] = 15,
    output: Annotated[
        Path | None,
        parameter(
            name=["--output", "-o"],
            group=WRITING,
            metavar="FILE",
            help="A file for it; .json keeps everything, for opcost analyze and opcost diff.",
        ),
    ] = None,
    choice: CountChoice | None = None,
    quiet: Quiet = False,
) -> int:
    """Tell how long a model would take on a device, operator by operator, without running it."""
    if output is not None:
        check_file(output, PROFILE_VIEWS)
    report = report_of(source, choice or CountChoice(), quiet=quiet)
    with working(f"predicting {source}", quiet=quiet):
        found = foretell(report, device=device, calibration=calibration)
    if output is not None:
        found.save(output)
    if not (quiet and output is not None):
        sys.stdout.write(f"{found.query(aggregate_by=by, order_by='time', top=top)}")
        for line in _told(found):
            say(line)
    return 0


def _told(found: Prediction) -> list[str]:
    low, high = map(format_time, found.band_ns)
    total = max(1, sum(found.bounds.values()))
    shares = ", ".join(f"{name} {100 * taken / total:.0f} %" for name, taken in found.bounds.items())
    return [
        "",
        f"latency      {format_time(found.latency_ns)}, four of five between {low} and {high}",
        f"             {found.meta['execution']}",
        f"kernels      {format_time(found.kernel_ns)}; at the printed peaks of the device {format_time(found.ideal_ns)}",
        f"waits for    {shares}",
        f"calibration  {found.meta['calibration']}",
    ]
