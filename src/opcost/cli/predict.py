"""`opcost predict SOURCE --device NAME`."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Group

from opcost.cli.counting import mode_of, report_of
from opcost.cli.options import TEXT, CountChoice, Quiet, SourceArgument, parameter
from opcost.cli.saying import put, say
from opcost.cli.settings import parse_settings
from opcost.cli.showing import check_file
from opcost.core.devices import HOST
from opcost.core.plugin import PROFILE_VIEWS
from opcost.core.progress import working
from opcost.errors import OpcostError
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
    execution: Annotated[
        Literal["graph", "eager", "compiled"] | None,
        parameter(
            group=PREDICTING,
            help="Replayed as one graph (usual on a GPU), eagerly with the host's time, or with simple operators merged.",
        ),
    ] = None,
    generate: Annotated[
        int | None, parameter(group=TEXT, metavar="N", help="After --prefill, write N tokens, one after another.")
    ] = None,
    by: Annotated[
        str,
        parameter(
            group=WRITING, metavar="KEY", show_default=True, help="A line for each type, kind, module, name, or bound."
        ),
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
    choice = choice or CountChoice()
    asked: dict[str, Any] = {"device": device, "calibration": calibration, "execution": execution}
    if generate is None:
        report = report_of(source, choice, quiet=quiet, device=None if device == HOST else device, runs_on=device)
        with working(f"predicting {source}", quiet=quiet):
            found = foretell(report, **asked)
    else:
        with working(f"predicting {source}", quiet=quiet), redirect_stdout(sys.stderr):
            found = foretell(source, generate=generate, **asked, **_about(choice))
    if output is not None:
        found.save(output)
    if not (quiet and output is not None):
        put(found.query(aggregate_by=by, order_by="time", top=top).render("table"))
        for line in ("", *found.lines):
            say(line)
    return 0


def _about(choice: CountChoice) -> dict[str, Any]:
    """What was said of the model whose text is written."""
    if choice.model.inputs:
        raise OpcostError("--generate makes its own inputs", hint="leave --input out; --batch says how many texts")
    return {
        "set": parse_settings(choice.model.settings, "--set"),
        "kwargs": parse_settings(choice.model.arguments, "--arg"),
        "batch": choice.model.batch,
        "dtype": choice.model.dtype,
        "precision": choice.precision,
        "prefill": choice.prefill,
        "decode": choice.decode,
        "static": choice.static,
        "cache_dtype": choice.cache_dtype,
        "mode": mode_of(train=choice.train),
        "causal": choice.causal,
    }
