"""Commands about one model or checkpoint: count, predict, advise, fit, sweep, plan, mfu, scan, visualize."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Group

from opcost.advising import advise as advise_on
from opcost.api import scan as scan_checkpoint
from opcost.cli.flags import SOURCE, SourceArgument, frontend_flags, group, keywords, parameter
from opcost.cli.flags import flags as flags_of
from opcost.cli.output import Output, check_file
from opcost.cli.printing import put, say, warn
from opcost.comparing import autocast_on
from opcost.compiling import compiled as compiled_kernels
from opcost.core.option import declared
from opcost.core.plugin import load_view
from opcost.core.progress import working
from opcost.core.report import Report
from opcost.core.results import LayoutPlan, Point, Sweep
from opcost.errors import InputError, OpcostError
from opcost.frontends.source import Source
from opcost.frontends.varying import parse_variables
from opcost.options import SHOWING, Advising, Costing, Counting, Fitting, Planning, Predicting, Showing, Sweeping
from opcost.planning import plan as plan_layouts
from opcost.predicting import predict as predict_model
from opcost.profiles import more_for
from opcost.sizing import fit as fit_model
from opcost.sizing import sweep as sweep_model
from opcost.utilizing import mfu as step_of

TEXT = "table"  # the format that further lines follow
TABLE = ("format", "top", "exact", "width", "output", "quiet")  # what can be chosen of a table that is not a report's
CountFlags: Any = frontend_flags(Counting, Showing)
PredictFlags: Any = frontend_flags(Predicting, Showing, only=("format", "output", "quiet"))
AdviseFlags: Any = frontend_flags(Advising, Showing, only=TABLE)
FitFlags: Any = frontend_flags(Fitting, Showing, only=TABLE)
SweepFlags: Any = frontend_flags(Sweeping, Showing, only=TABLE)
PlanFlags: Any = frontend_flags(Planning, Showing, only=TABLE)
MfuFlags: Any = frontend_flags(Costing, Showing, only=TABLE)
CostFlags: Any = frontend_flags(Costing, Showing, only=("quiet",))


@contextmanager
def counting(what: str, *, quiet: bool, **more: Any) -> Iterator[None]:
    """Show progress; what the user's code prints goes to stderr."""
    with working(what, quiet=quiet, **more), redirect_stdout(sys.stderr):
        yield


def count(
    source: SourceArgument, /, *,
    compiled: Annotated[bool, parameter(
        group=group(SHOWING),
        help="Show the kernels that torch.compile would make, and the bytes that they move before and after.")] = False,
    flags: CountFlags = None,
) -> int:  # fmt: skip
    """Count a model, or read a saved report, and print what it costs."""
    if compiled:
        if others := [name for name in flags or {} if name in declared(Showing) and name not in TABLE]:
            raise InputError(
                f"--{others[0]} is not of the kernels of a compiler", hint=f"these take --{', --'.join(TABLE)}"
            )
        output = Output(flags, "tables")
        output.show(compiled_kernels(report_of(source, keywords(flags), quiet=output.quiet)))
        return 0
    output = Output(flags, "report")
    output.show(report_of(source, keywords(flags), quiet=output.quiet))
    return 0


def report_of(source: str | Source, options: Mapping[str, Any], *, quiet: bool, runs_on: str | None = None) -> Report:
    """The report of a source: read if it was saved, else counted; autocast as on the device where it `runs_on`."""
    from opcost.api import count

    with counting(f"counting {source if isinstance(source, str) else source.label}", quiet=quiet):
        return count(source, **autocast_on(options, runs_on))


def predict(
    source: SourceArgument, /, *,
    by: Annotated[str, parameter(
        group=group(SHOWING), metavar="KEY", show_default=True,
        help="One row per type, kind or name of operator, per module, or per bound.")] = "type",
    top: Annotated[int, parameter(
        group=group(SHOWING), metavar="N", show_default=True, help="Show at most N rows; 0 shows all.")] = 15,
    flags: PredictFlags = None,
) -> int:  # fmt: skip
    """Predict how long a model takes on a device, operator by operator, without running it."""
    flags = flags or {}
    files, quiet, name = flags.get("output", ()), flags.get("quiet", False), flags.get("format", TEXT)
    view = load_view(name, "profile")
    for path in files:
        check_file(path, "profile")
    with counting(f"predicting {source}", quiet=quiet):
        found = predict_model(source, **keywords(flags))
    for path in files:
        found.save(path)
    if not (quiet and files):
        answer = found.query(aggregate_by=by, sort="time", top=top)
        put(view.render(answer, **more_for(view, found)), name)
    return 0


def advise(source: SourceArgument, /, *, flags: AdviseFlags = None) -> int:
    """What would make a model faster or smaller: options one by one, and those that gain together."""
    output = Output(flags, "tables")
    with counting(f"advising on {source}", quiet=output.quiet):
        found = advise_on(source, **keywords(flags))
    output.show(found)
    return 0


def fit(source: SourceArgument, /, *, flags: FitFlags = None) -> int:
    """Find the largest batch, or other size, that fits into memory."""
    output = Output(flags, "tables")
    with counting(f"fitting {source}", quiet=output.quiet):
        found = fit_model(source, **keywords(flags))
    output.show(found)
    return 0


def sweep(source: SourceArgument, /, *, flags: SweepFlags = None) -> int:
    """Cost, memory and latency as functions of one or two sizes."""
    from opcost.cli.main import INTERRUPTED

    output = Output(flags, "tables")
    options = keywords(flags)
    axes = parse_variables(options.get("vary", ()))
    done: list[Point] = []
    points = prod(map(len, axes.values()))
    try:
        with counting(
            lambda: f"sweeping {source} ({len(done)} of {points})",  # type: ignore[arg-type]
            share=lambda: (len(done), points),
            quiet=output.quiet,
        ):
            found = sweep_model(source, progress=lambda point, total: done.append(point), **options)
    except KeyboardInterrupt:
        note = f"interrupted: {len(done):,} of {points:,} points were counted"
        if done:
            counted = tuple(sorted(done, key=lambda point: point.sizes))
            device = options.get("device") or ""
            output.show(Sweep(source=source, variables=tuple(axes), points=counted, device=device, notes=(note,)))
        warn(note)
        return INTERRUPTED
    output.show(found)
    return 0


def plan(source: SourceArgument, /, *, flags: PlanFlags = None) -> int:
    """Find the fastest layout of many GPUs, with memory, waiting and what limits each."""
    from opcost.cli.main import INTERRUPTED

    output = Output(flags, "tables")
    done: list[tuple[LayoutPlan, int, int]] = []
    try:
        with counting(f"planning {source}", share=lambda: done[-1][1:] if done else None, quiet=output.quiet):
            found = plan_layouts(source, progress=lambda *state: done.append(state), **keywords(flags))
    except KeyboardInterrupt:
        if done:
            so_far, layouts, total = done[-1]
            note = f"interrupted: {layouts:,} of {total:,} layouts were found"
            output.show(replace(so_far, notes=(note, *so_far.notes)))
            warn(note)
            return INTERRUPTED
        raise
    output.show(found)
    return 0


# -- model FLOPs utilization ---------------------------------------------------------------------------------------------

STEP = Group("The step", sort_key=0)


def mfu(
    source: SourceArgument, /, *,
    step_time: Annotated[str, parameter(
        group=STEP, metavar="TIME", help="Time of one step on each of the devices: 312ms, 1.2s.")],
    device: Annotated[str, parameter(group=STEP, metavar="NAME", help="The device that it runs on: h200, a100, ...")],
    devices: Annotated[int, parameter(
        group=STEP, metavar="N", show_default=True, help="Number of devices that share the step.")] = 1,
    inference: Annotated[bool, parameter(group=STEP, help="The step is a forward pass, not a training step.")] = False,
    tf32: Annotated[bool, parameter(group=STEP, help="Products of float32 run in TF32.")] = False,
    flags: MfuFlags = None,
) -> int:  # fmt: skip
    """Show how much of a device's peak a step uses, under each convention that applies."""
    output = Output(flags, "tables")
    with counting(f"counting {source}", quiet=output.quiet):
        found = step_of(
            source, step_time=step_time, device=device, devices=devices, inference=inference, tf32=tf32,
            **keywords(flags),
        )  # fmt: skip
    output.show(found)
    return 0


# -- checkpoints ---------------------------------------------------------------------------------------------------------

ScanFlags: Any = flags_of(Showing, only=("sort", "top", "columns", "exact", "width", "format", "output", "quiet"))


def scan(
    *paths: Annotated[Path, parameter(
        group=SOURCE,
        help="A file, the index of a sharded checkpoint, or a folder; several are files of one checkpoint.")],
    by: Annotated[Literal["layer", "module", "type", "tensor"] | None, parameter(
        group=SOURCE,
        help="One row per layer pattern (model.layers.{0..79}.mlp.*), module, element type, or tensor.")] = None,
    depth: Annotated[int | None, parameter(
        group=SOURCE, metavar="N",
        help="Words of a name: after the number of a layer (1), or of the path of a module (2).")] = None,
    flags: ScanFlags = None,
) -> int:  # fmt: skip
    """List what a checkpoint holds, from its headers alone: tensors, logical parameters, stored bytes, bits per parameter."""
    if not paths:
        raise OpcostError("no checkpoint is named", hint="opcost scan PATH; see `opcost scan --help`")
    chosen = {name: value for name, value in (("by", by), ("depth", depth)) if value is not None}
    output = Output({**(flags or {}), **chosen}, "scan")
    with working(f"scanning {paths[0]}", quiet=output.quiet):
        found = scan_checkpoint(*paths)
    output.show(found)
    return 0


# -- the flags of MegEngine's network_visualize ----------------------------------------------------------------------------

STATISTICS = Group("The statistics", sort_key=0)
DEFAULT_LOG = "./log"  # where `--all` writes where no folder is named


def _theirs(name: str, **words: Any) -> Any:
    """A flag of MegEngine's tool, with underscores as there, or with hyphens."""
    return parameter(name=[f"--{name}", f"--{name.replace('_', '-')}"], group=STATISTICS, **words)


def visualize(
    model: SourceArgument, /, *,
    log_path: Annotated[str | None, _theirs(
        "log_path", metavar="DIR", help="Write the graph and the report for TensorBoard into this folder.")] = None,
    load_input_data: Annotated[Path | None, _theirs(
        "load_input_data", metavar="FILE",
        help="Count with inputs shaped as the arrays in this file: .npy, .npz, or a pickle of a numpy array or of a "
        "dict of them by name.")] = None,
    cal_params: Annotated[bool, _theirs("cal_params", help="Parameters.")] = False,
    cal_flops: Annotated[bool, _theirs("cal_flops", help="FLOPs.")] = False,
    cal_activations: Annotated[bool, _theirs(
        "cal_activations", help="Activations. Without any of the three, all of them.")] = False,
    logging_to_stdout: Annotated[bool, _theirs(
        "logging_to_stdout", help="Print every line, not only the summary.")] = False,
    everything: Annotated[bool, parameter(
        name="--all", group=STATISTICS,
        help=f"All statistics, every line, and the log (in {DEFAULT_LOG} without --log_path).")] = False,
    bar_length_max: Annotated[int, _theirs(
        "bar_length_max", metavar="N", show_default=True, help="Characters of the longest bar.")] = 20,
    convention: Annotated[Literal["opcost", "megengine"], parameter(
        group=STATISTICS, show_default=True,
        help="opcost: every operator, the batch as it is, weights once, receptive fields that know pooling; or the rules "
        "of MegEngine's own tool.")] = "opcost",
    flags: CostFlags = None,
) -> int:  # fmt: skip
    """Print the statistics of a model and write its graph for TensorBoard, with the flags of MegEngine's network_visualize."""
    from opcost.compat.megengine.tables import StatsOptions
    from opcost.compat.visualizing import records_of, write
    from opcost.frontends.input_data import read_input_data

    every = everything or not (cal_params or cal_flops or cal_activations)
    wanted = StatsOptions(
        cal_params=cal_params or every, cal_flops=cal_flops or every, fields=True,
        cal_activations=cal_activations or every, logging_to_stdout=logging_to_stdout or everything,
        bar_length_max=bar_length_max,
    )  # fmt: skip
    folder = log_path or (DEFAULT_LOG if everything else None)
    data = None if load_input_data is None else read_input_data(load_input_data)
    with counting(f"counting {model}", quiet=(flags or {}).get("quiet", False)):
        found = records_of(model, data, keywords(flags), convention=convention, with_values=wanted.cal_params)
    log = write(*found, wanted, folder).log
    if folder is not None:
        say(f"log: {log}")
        say(f"look at it with: tensorboard --logdir {folder}")
    return 0
