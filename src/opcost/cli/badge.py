"""`opcost badge SOURCE`: params, MACs and FLOPs in one line, or as a small picture."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from opcost.cli.counting import report_of
from opcost.cli.options import SHOWING, CountChoice, Quiet, SourceArgument, parameter
from opcost.cli.saying import say
from opcost.core.writing import check_writable, write_text
from opcost.errors import InputError


def badge(
    source: SourceArgument,
    /,
    *,
    output: Annotated[
        Path | None,
        parameter(name=["--output", "-o"], group=SHOWING, metavar="FILE.svg", help="Write a picture to this file."),
    ] = None,
    choice: CountChoice | None = None,
    quiet: Quiet = False,
) -> int:
    """Tell what a model costs in one line for a README, or as a badge."""
    from opcost.views.svg.badge import badge as drawn
    from opcost.views.svg.badge import badge_numbers

    if output is not None:
        if output.suffix.lower() != ".svg":
            raise InputError(f"{output} does not end in .svg", hint="a badge is an SVG file")
        check_writable(output)
    report = report_of(source, choice or CountChoice(), quiet=quiet)
    if output is not None:
        write_text(output, str(drawn(report)))
    if not (quiet and output is not None):
        say(" · ".join(f"{number} {word}" for word, number in badge_numbers(report)))
    return 0
