"""`opcost profile SOURCE`."""

from __future__ import annotations

import os
import sys
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import cyclopts
from cyclopts import Group

from opcost.cli.counting import mode_of
from opcost.cli.options import MODEL, InputChoice, Quiet, flags_of, given_of, parameter
from opcost.cli.saying import put, say
from opcost.cli.settings import parse_settings
from opcost.core.plugin import PROFILE_VIEWS, view_for_suffix
from opcost.core.progress import working
from opcost.core.units import format_time
from opcost.core.writing import check_writable, is_stream, write_text
from opcost.errors import InputError
from opcost.profiles import Profile
from opcost.recorders.registry import recorders

RecorderChoice: Any = flags_of(recorders(), "recorder")
"""The options that only one recorder has."""

RUNNING = Group("What is run", sort_key=2)
WRITING = Group("What is written", sort_key=3)
SHOWN = 10
"""Lines of the table, the longest first."""
COLUMNS = "name,count,time,share,computation,flops,memory"
"""The time beside the cost."""


@cyclopts.Parameter(name="*", group=RUNNING)
@dataclass(frozen=True, slots=True, kw_only=True)
class RunChoice:
    """Which model, on which inputs, and how it is run."""

    model: InputChoice = field(default_factory=InputChoice)
    recorder: RecorderChoice = field(default_factory=RecorderChoice)
    device: Annotated[
        str | None,
        parameter(metavar="NAME", help="Move the model there first: cpu, cuda, cuda:1."),
    ] = None
    train: Annotated[
        bool | None,
        parameter(
            negative="--eval",
            help="Run as in training or as in inference. Without either: as in training with --backward, else as in "
            "inference.",
        ),
    ] = None
    backward: Annotated[bool, parameter(help="Run the backward pass too.")] = False
    host_only: Annotated[
        bool,
        parameter(name=["--host-only", "--profile-host"], help="Record only the host, not the device."),
    ] = False
    warmup: Annotated[int, parameter(metavar="N", show_default=True, help="Runs before the first timed one.")] = 3
    repeat: Annotated[
        int,
        parameter(metavar="N", show_default=True, help="Timed runs without a profiler, and recorded runs with it."),
    ] = 10
    seconds: Annotated[
        float | None,
        parameter(metavar="S", help="Instead of --repeat: timed runs for this many seconds."),
    ] = None
    cold_l2: Annotated[bool, parameter(name="--cold-l2", help="Empty the device's last cache before every run.")] = (
        False
    )


def profile(
    source: Annotated[
        str,
        parameter(
            group=MODEL,
            help="path/to/file.py:Net, package.module:factory, timm:NAME, torchvision:NAME, or an .onnx file.",
        ),
    ],
    /,
    *,
    output: Annotated[
        Path | None,
        parameter(
            name=["--output", "-o"],
            group=WRITING,
            metavar="FILE",
            help="Write the profile to this file; .json keeps everything, for `opcost analyze`.",
        ),
    ] = None,
    layout: Annotated[
        Literal["opcost", "megengine", "chrome"],
        parameter(
            group=WRITING,
            show_default=True,
            help="opcost's own JSON, that of MegEngine's load_and_run --profile, or a Chrome trace.",
        ),
    ] = "opcost",
    choice: RunChoice | None = None,
    quiet: Quiet = False,
) -> int:
    """Run a model, measure every operator, and show where the time of a run goes."""
    if output is None:
        if layout != "opcost":
            raise InputError(f"--layout {layout} is for a file, and none is named", hint="-o FILE.json")
    else:
        check_writable(output)
        if not is_stream(output):
            suffix = view_for_suffix(output, PROFILE_VIEWS).suffix
            if layout != "opcost" and suffix != ".json":
                raise InputError(
                    f"--layout {layout} writes JSON, and {output} does not end in .json", hint="name the file *.json"
                )
    found = _recorded(source, choice or RunChoice(), quiet=quiet)
    if output is not None:
        if layout == "opcost":
            found.save(output)
        else:
            write_text(output, _text(found, layout))
    if output is None or not (quiet or is_stream(output)):
        answer = found.query(aggregate_by=found.usual_keys, top=SHOWN)
        put(answer.render("table", columns=COLUMNS) + "\n")
    if not quiet:
        _tell(found, output, layout)
    return 0


def _recorded(source: str, choice: RunChoice, *, quiet: bool) -> Profile:
    from opcost.api import profile as record

    # PyTorch's profiler would announce its start and stop on stderr; it reads this once, when torch is imported.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    with working(f"profiling {source}", quiet=quiet), redirect_stdout(sys.stderr):
        return record(
            source,
            kwargs=parse_settings(choice.model.arguments, "--arg"),
            batch=choice.model.batch,
            tokens=choice.model.tokens,
            image=choice.model.image,
            dtype=choice.model.dtype,
            set=parse_settings(choice.model.settings, "--set"),
            backward=choice.backward,
            mode=mode_of(train=choice.train),
            device=choice.device,
            host_only=choice.host_only,
            warmup=choice.warmup,
            repeat=choice.repeat,
            seconds=choice.seconds,
            cold_l2=choice.cold_l2,
            shapes=list(choice.model.inputs) or None,
            options=given_of(choice.recorder),
        )


def _text(profile: Profile, layout: str) -> str:
    if layout == "megengine":
        from opcost.recorders.layout_megengine import dumps
    else:
        from opcost.recorders.layout_chrome import dumps
    return dumps(profile)


def _tell(profile: Profile, output: Path | None, layout: str) -> None:
    from opcost.recorders.timing import percentile

    p10, p50, p90 = (format_time(percentile(profile.timed_ns, percent)) for percent in (10, 50, 90))
    say(f"unprofiled  {p50} per run (p10 {p10}, p90 {p90}, {len(profile.timed_ns)} runs)")
    say(
        f"profiled    {profile.runs} runs of {len(profile.rows) / profile.runs:g} operators, overhead {profile.meta['overhead']}"
    )
    if output is None:
        say("written     nothing; -o FILE.json keeps the profile for opcost analyze")
        return
    hint = "" if layout == "chrome" or output.suffix not in ("", ".json") else f"; ask it with: opcost analyze {output}"
    say(f"written     {output}{hint}")
