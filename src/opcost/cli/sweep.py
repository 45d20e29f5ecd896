"""`opcost sweep SOURCE --vary batch=1,2,4..256`."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from math import prod
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Group

from opcost.cli.counting import told_of
from opcost.cli.options import CountChoice, SourceArgument, parameter
from opcost.cli.saying import warn
from opcost.cli.tables import TableChoice, check_tables, show_tables
from opcost.core.progress import working
from opcost.core.sweep import Point, Sweep
from opcost.frontends.varying import parse_variables

SWEEPING = Group("What varies", sort_key=0)


def sweep(
    source: SourceArgument,
    /,
    *,
    vary: Annotated[
        tuple[str, ...],
        parameter(
            group=SWEEPING,
            metavar="WHAT=SIZES",
            help="batch, tokens, image, prefill, decode, cache, or NAME=DIMENSION of an input, and its sizes: batch=1,2,4..256 "
            "goes on as it began, tokens=128..8192 doubles, input_ids=1=10,20..100 adds 10. Twice for two of them.",
        ),
    ],
    device: Annotated[
        str | None,
        parameter(
            group=SWEEPING,
            metavar="NAME",
            help="Also the latency on this device, h200, h100, ..., and memory as it would hold it.",
        ),
    ] = None,
    calibration: Annotated[
        Path | None,
        parameter(
            group=SWEEPING, metavar="FILE", help="What opcost calibrate wrote on this device, as for opcost predict."
        ),
    ] = None,
    execution: Annotated[
        Literal["graph", "eager", "compiled"] | None,
        parameter(group=SWEEPING, help="How the model runs on the device, as for opcost predict."),
    ] = None,
    top: Annotated[
        int | None, parameter(group=SWEEPING, metavar="N", help="At most N lines on the terminal; files have all.")
    ] = None,
    choice: CountChoice | None = None,
    shown: TableChoice | None = None,
) -> int:
    """Tell cost, memory and latency as functions of one or two sizes."""
    from opcost import sizing
    from opcost.cli.main import INTERRUPTED

    choice, shown = choice or CountChoice(), shown or TableChoice()
    check_tables(shown)
    axes = parse_variables(vary)
    done: list[Point] = []
    points = prod(map(len, axes.values()))
    doing = f"sweeping {source}"
    try:
        said = working(
            lambda: f"{doing} ({len(done)} of {points})", share=lambda: (len(done), points), quiet=shown.quiet
        )
        with said, redirect_stdout(sys.stderr):
            found = sizing.sweep(
                source,
                vary=axes,
                device=device,
                calibration=calibration,
                execution=execution,
                progress=lambda point, total: done.append(point),
                **told_of(choice),
            )
    except KeyboardInterrupt:
        told = f"interrupted: {len(done):,} of {points:,} points were counted"
        if done:
            counted = tuple(sorted(done, key=lambda point: point.sizes))
            partial = Sweep(source=source, variables=tuple(axes), points=counted, device=device or "", notes=(told,))
            show_tables(partial, shown, top=top)
        warn(told)
        return INTERRUPTED
    show_tables(found, shown, top=top)
    return 0
