"""Commands that run something: profile, calibrate."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from opcost.calibrating import HOST_SECONDS, SECONDS
from opcost.calibrating import calibrate as time_operators
from opcost.cli.flags import SOURCE, group, keywords, parameter
from opcost.cli.flags import flags as flags_of
from opcost.cli.models import TEXT, counting
from opcost.cli.printing import FOR_PROGRAMS, put, say
from opcost.core.files import check_writable, is_stream, write_text
from opcost.core.plugin import load_view, view_for_suffix
from opcost.core.progress import working
from opcost.core.units import format_time
from opcost.errors import InputError
from opcost.options import SHOWING, Profiling, Showing
from opcost.profiles import Profile, more_for
from opcost.recorders.registry import recorders
from opcost.views.view import known_options

WRITING = group(SHOWING)
ProfileFlags: Any = flags_of(Profiling, Showing, only=("format", "quiet"), parts=recorders(), what="recorder")
ROWS = 10  # rows of the table, the longest first
COLUMNS = "name,count,time,share,computation,flops,memory"  # time and cost side by side


def profile(
    source: Annotated[str, parameter(
        group=SOURCE,
        help="path/to/file.py:Net, package.module:factory, timm:NAME, torchvision:NAME, or an .onnx file.")], /, *,
    output: Annotated[Path | None, parameter(
        name=["--output", "-o"], group=WRITING, metavar="FILE",
        help="Write the profile to this file; .json keeps everything, for `opcost analyze`.")] = None,
    layout: Annotated[Literal["opcost", "megengine", "chrome"], parameter(
        group=WRITING, show_default=True,
        help="opcost's own JSON, that of MegEngine's load_and_run --profile, or a Chrome trace.")] = "opcost",
    flags: ProfileFlags = None,
) -> int:  # fmt: skip
    """Run a model, measure every operator, and show where the time of a run goes."""
    from opcost.recorders.measure import percentile

    if output is None:
        if layout != "opcost":
            raise InputError(f"--layout {layout} is for a file, and none is named", hint="-o FILE.json")
    else:
        check_writable(output)
        if not is_stream(output):
            suffix = view_for_suffix(output, "profile").suffix
            if layout != "opcost" and suffix != ".json":
                hint = "name the file *.json"
                raise InputError(f"--layout {layout} writes JSON, and {output} does not end in .json", hint=hint)
    quiet, name = (flags or {}).get("quiet", False), (flags or {}).get("format", TEXT)
    view = load_view(name, "profile")
    found = _recorded(source, keywords(flags), quiet=quiet)
    if output is not None:
        if layout == "opcost":
            found.save(output)
        else:
            from opcost.recorders import layouts

            write_text(output, (layouts.megengine_json(found) if layout == "megengine" else layouts.chrome_json(found)))
    if output is None or not (quiet or is_stream(output)):
        answer = found.query(aggregate_by=found.usual_keys, top=ROWS)
        columns = {} if name in FOR_PROGRAMS else known_options(view, "profile", {"columns": COLUMNS})
        put(view.render(answer, **columns, **more_for(view, found)) + "\n" * (name == TEXT), name)
    if quiet or name != TEXT:
        return 0
    p10, p50, p90 = (format_time(percentile(found.timed_ns, percent)) for percent in (10, 50, 90))
    say(f"unprofiled  {p50} per run (p10 {p10}, p90 {p90}, {len(found.timed_ns)} runs)")
    operators = f"{found.runs} runs of {len(found.rows) / found.runs:g} operators"
    say(f"profiled    {operators}, overhead {found.meta['overhead']}")
    if output is None:
        say("written     nothing; -o FILE.json keeps the profile for opcost analyze")
    elif layout == "chrome" or output.suffix not in ("", ".json"):
        say(f"written     {output}")
    else:
        say(f"written     {output}; analyze it with: opcost analyze {output}")
    return 0


def _recorded(source: str, options: Mapping[str, Any], *, quiet: bool) -> Profile:
    from opcost.api import profile as record

    with counting(f"profiling {source}", quiet=quiet):
        return record(source, **options)


def calibrate(
    *,
    output: Annotated[Path, parameter(
        name=["--output", "-o"], metavar="FILE", help="The .json to write; an existing one is continued.")],
    device: Annotated[str | None, parameter(
        metavar="NAME", help="Where operators run: cuda, cuda:1, cpu. Without it: the GPU, if any.")] = None,
    name: Annotated[str | None, parameter(
        metavar="NAME", help="Its name in the table of devices, if the product name does not match.")] = None,
    seconds: Annotated[float, parameter(
        metavar="S", show_default=True, help="How long to time operators, about.")] = SECONDS,
    host: Annotated[bool, parameter(
        negative="", help=f"Only the host, in {HOST_SECONDS} seconds and without a GPU, for predict --host FILE.")] = False,
    merge: Annotated[list[Path] | None, parameter(
        metavar="FILE...", consume_multiple=True, negative="",
        help="Time nothing: merge these calibrations of one device.")] = None,
    force: Annotated[bool, parameter(
        negative="", help="Accept times of a machine on which something else runs.")] = False,
    quiet: Annotated[bool, parameter(name=["--quiet", "-q"], help="No progress.")] = False,
) -> int:  # fmt: skip
    """Time single operators on the device at hand, and its host, for opcost predict."""
    done = [(0, 0.0)]  # operators, and the share of the time that is over
    taken = min(seconds, HOST_SECONDS) if host else seconds

    def what() -> str:
        return "timing the host" if host else f"timing operators ({done[-1][0]:,} so far)"

    with working(what, share=lambda: (done[-1][1] * taken, taken), quiet=quiet or bool(merge)):
        found = time_operators(
            output, device=device, name=name, seconds=seconds, host=host, merge=merge or (), force=force,
            progress=lambda *at: done.append(at),
        )  # fmt: skip
    if not quiet:
        timed = "the host" if host else f"{len(found.rows):,} operators on {found.meta['product']}"
        say(f"merged   {len(merge)} files with {timed}" if merge else f"timed    {timed}")
        if found.left_out:
            names = ", ".join(f"{name} ({count}x)" for name, count in sorted(found.left_out.items()))
            say(f"failed   {sum(found.left_out.values()):,} operators, left out: {names}")
        use = f"; use it with: opcost predict SOURCE --device {found.device} --calibration {output}"
        if host:
            use = f"; use it with: opcost predict SOURCE --execution eager --host {output}"
        say(f"written  {output}{use}")
    return 0
