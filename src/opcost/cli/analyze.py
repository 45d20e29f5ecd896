"""`opcost analyze PROFILE`: where the time goes."""

from __future__ import annotations

import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import cyclopts
from cyclopts import Group

from opcost.cli.options import MODEL, SHOWING, CountChoice, Quiet, parameter
from opcost.errors import OpcostError, UnknownName

if TYPE_CHECKING:
    from opcost.analysis.query import Question
    from opcost.compat.megengine.profile_analyze import Wish
    from opcost.core.devices import Device
    from opcost.core.profile import Profile

CHOOSING = Group("Which operators", sort_key=2)
ADDING = Group("Grouping and order", sort_key=2.5)

SHORTEST = 3
"""Lines of MegEngine's own table when nobody says."""
USUAL = 10
"""Lines of ours."""

Profiles = Annotated[
    Path,
    parameter(
        group=MODEL,
        help="A trace of MegEngine, PyTorch, ONNX Runtime, MXNet, OpenVINO or TensorRT, or a profile of opcost, plain or "
        "gzipped; several files, or a directory, are ranks.",
    ),
]


@cyclopts.Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class AnalyzeChoice:
    """What is asked of a profile, and how the answer looks."""

    top: Annotated[
        int | None,
        parameter(
            name=["--top", "-t"],
            group=ADDING,
            metavar="N",
            help="Show the first N lines; 0 shows all, -N all but the last N.",
        ),
    ] = None
    type: Annotated[
        tuple[str, ...],
        parameter(name="--type", group=CHOOSING, metavar="T", help="Only operators of this type. May be repeated."),
    ] = ()
    kind: Annotated[
        tuple[str, ...],
        parameter(name="--kind", group=CHOOSING, metavar="K", help="Only operators of this kind. May be repeated."),
    ] = ()
    module: Annotated[
        str | None,
        parameter(group=CHOOSING, metavar="PATH", help="Only operators of this module and of those below it."),
    ] = None
    opr_name: Annotated[
        str | None,
        parameter(group=CHOOSING, metavar="REGEX", help="Only operators whose name begins with a match of this."),
    ] = None
    input_dtype: Annotated[
        str | None, parameter(group=CHOOSING, metavar="D", help="Only operators with an input of this element type.")
    ] = None
    min_time: Annotated[
        str | None,
        parameter(group=CHOOSING, metavar="T", help="Shortest time of an operator: seconds, or with a unit, 1ms."),
    ] = None
    max_time: Annotated[str | None, parameter(group=CHOOSING, metavar="T", help="Longest time of an operator.")] = None
    where: Annotated[
        str | None,
        parameter(
            group=CHOOSING,
            metavar="CONDITION",
            help="Only operators that fulfil it: 'time > 1ms and kind == \"conv\"'.",
        ),
    ] = None
    order_by: Annotated[
        str,
        parameter(
            group=ADDING,
            metavar="COL",
            show_default=True,
            help="Sort by a column, largest first; +COL for the smallest first. What is missing comes last.",
        ),
    ] = "time"
    aggregate_by: Annotated[
        tuple[str, ...],
        parameter(
            group=ADDING,
            metavar="KEY",
            help="One line for all operators with the same type, name, module, kind, shape, dtype, kernel, provider, rank, "
            "device, stream, step or phase; several keys with commas.",
        ),
    ] = ()
    aggregate: Annotated[
        str | None,
        parameter(
            group=ADDING, metavar="HOW", help="sum (usual), mean, max, min, median, or a percentile such as p90."
        ),
    ] = None
    group_by: Annotated[
        tuple[str, ...],
        parameter(group=ADDING, metavar="KEY", help="One line per group, and below it the lines of the group."),
    ] = ()
    depth: Annotated[int | None, parameter(group=ADDING, metavar="N", help="Cut modules to this many levels.")] = None
    percentiles: Annotated[
        str | None, parameter(group=ADDING, metavar="P,...", help="Columns with percentiles of the time: 10,50,90.")
    ] = None
    side: Annotated[
        Literal["device", "host"] | None,
        parameter(group=ADDING, help="Times of the device or of the host. Without it: of the device, if there is one."),
    ] = None
    top_end_key: Annotated[
        Literal["end", "kern"],
        parameter(
            group=ADDING, show_default=True, help="end is the whole time, kern the waiting time before the kernel."
        ),
    ] = "end"
    device: Annotated[
        str | None,
        parameter(group=ADDING, metavar="NAME", help="Compare rates with the peaks of this device: h200, a100, ..."),
    ] = None
    peak_flops: Annotated[
        str | None, parameter(group=ADDING, metavar="N", help="Compare with a measured peak instead: 600T (FLOP/s).")
    ] = None
    peak_bandwidth: Annotated[
        str | None, parameter(group=ADDING, metavar="N", help="The same for the memory: 4.1TB (per second).")
    ] = None
    show_host: Annotated[bool, parameter(group=SHOWING, help="Add the table of times on the host.")] = False
    copy_time: Annotated[bool, parameter(group=SHOWING, help="Add the time of copies to the summary.")] = False
    print_only: Annotated[
        Literal["summary", "device", "host"] | None, parameter(group=SHOWING, help="Print only this part.")
    ] = None
    dump_only_opr: Annotated[
        bool, parameter(group=SHOWING, help="Print only which operators they are: name, type, id.")
    ] = False
    confluence: Annotated[
        bool, parameter(name=["--confluence", "--wiki"], group=SHOWING, help="MegEngine's tables for a wiki.")
    ] = False
    format: Annotated[
        Literal["table", "json", "csv", "md", "megengine"] | None,
        parameter(
            group=SHOWING,
            help="How it is written. Without it, MegEngine's own text for its profiles, else a table.",
        ),
    ] = None
    columns: Annotated[
        str | None, parameter(group=SHOWING, metavar="A,B,...", help="The columns to show, in this order.")
    ] = None
    exact: Annotated[bool, parameter(group=SHOWING, help="Numbers with all their digits.")] = False
    width: Annotated[int | None, parameter(group=SHOWING, metavar="N", help="Width in characters.")] = None
    output: Annotated[
        Path | None,
        parameter(
            name=["--output", "-o"],
            group=SHOWING,
            metavar="FILE",
            help="Write to this file; .json, .csv and .md choose the format.",
        ),
    ] = None


@cyclopts.Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class ReadChoice:
    """How traces are read, and the model that they are joined to."""

    partial: Annotated[bool, parameter(group=MODEL, help="Of a damaged file, take what stands before the damage.")] = (
        False
    )
    cluster: Annotated[
        str | None,
        parameter(group=MODEL, metavar="WHERE", help="Read many ranks on a Dask cluster: local, or tcp://..."),
    ] = None
    model: Annotated[
        str | None,
        parameter(
            group=MODEL, metavar="SOURCE", help="Join the rows to the modules of this model, or of a saved report."
        ),
    ] = None
    report: Annotated[
        str | None, parameter(group=MODEL, metavar="FILE", help="The same with a report saved as .json.")
    ] = None
    inputs: Annotated[
        tuple[str, ...],
        parameter(name=["--input", "-i"], group=MODEL, metavar="SHAPE", help="An input of the model: 1x3x224x224."),
    ] = ()


_OURS = (
    "kind", "module", "where", "group_by", "depth", "percentiles", "side", "device", "peak_flops", "peak_bandwidth", "columns",
    "exact", "width",
)  # fmt: skip
"""Options that MegEngine's text has no place for."""
_THEIRS = ("copy_time", "dump_only_opr", "confluence")
"""Options whose answer is MegEngine's text, whatever the trace."""
_WRITTEN = {".json": "json", ".csv": "csv", ".md": "md"}


def analyze(
    *profiles: Profiles,
    read: ReadChoice | None = None,
    choice: AnalyzeChoice | None = None,
    quiet: Quiet = False,
) -> int:
    """Ask a profile or a trace where the time goes: which operators, modules, kinds, kernels or ranks."""
    choice = choice or AnalyzeChoice()
    if not profiles:
        raise OpcostError("no profile is named", hint="opcost analyze PROFILE; see `opcost analyze --help`")
    question = _question(choice)
    profile = read_profiles([str(path) for path in profiles], read or ReadChoice(), quiet=quiet)
    written = _format(choice, profile)
    text = _megengine(profile, choice) if written == "megengine" else _ours(profile, question, choice, written)
    if choice.output is not None:
        choice.output.write_text(text, encoding="utf-8", newline="\n")
    else:
        sys.stdout.write(text)
    return 0


def read_profiles(paths: list[str], choice: ReadChoice, *, quiet: bool) -> Profile:
    """The profile of one file, or of many ranks, joined to a model if one is named."""
    from opcost.cli.progress import working

    with working(f"reading {paths[0]}" if len(paths) == 1 else f"reading {len(paths)} files", quiet=quiet):
        if len(paths) == 1 and not Path(paths[0]).is_dir():
            from opcost.traces.registry import read

            profile = read(paths[0], partial=choice.partial)
        else:
            from opcost.traces.ranks import read_ranks

            profile = read_ranks(paths, cluster=choice.cluster)
    source = choice.report or choice.model
    if source is None:
        return profile
    if choice.report and choice.model:
        raise OpcostError("both --model and --report are given", hint="name one of them")
    from opcost.analysis.join import with_modules
    from opcost.cli.counting import report_of

    return with_modules(profile, report_of(source, CountChoice(inputs=choice.inputs), quiet=quiet))


def _format(choice: AnalyzeChoice, profile: Profile) -> str:
    usual = AnalyzeChoice()
    changed = [field.name for field in fields(choice) if getattr(choice, field.name) != getattr(usual, field.name)]
    ours = [name for name in changed if name in _OURS]
    beyond = [key for key in _split(choice.aggregate_by) if key != "type"]
    if choice.aggregate not in (None, "sum", "mean", "max", "min"):
        beyond.append(choice.aggregate)
    wanted = choice.format or _WRITTEN.get(choice.output.suffix.lower() if choice.output else "")
    theirs = [name for name in changed if name in _THEIRS]
    if wanted is None:
        if theirs and not (ours or beyond):
            return "megengine"
        plain = "megengine" in profile.extra and not (ours or beyond)
        return "megengine" if plain else "table"
    if wanted == "megengine" and (ours or beyond):
        option = f"--{ours[0].replace('_', '-')}" if ours else f"--aggregate-by or --aggregate {beyond[0]}"
        raise OpcostError(f"MegEngine's text has no place for {option}", hint="leave --format megengine out")
    return wanted


def _question(choice: AnalyzeChoice) -> Question:
    """What the options ask; wrong names are found before a long file is read."""
    from opcost.analysis.part import fields as known_fields
    from opcost.analysis.query import Question
    from opcost.analysis.where import compile_where
    from opcost.traces._megengine_meaning import dtype_of

    if choice.where is not None:
        compile_where(choice.where, known_fields(None))
    return Question(
        side=choice.side,
        top_end_key=choice.top_end_key,
        where=choice.where,
        type=choice.type,
        kind=_kinds(choice.kind),
        module=choice.module,
        opr_name=choice.opr_name,
        input_dtype=(dtype_of(choice.input_dtype) or choice.input_dtype) if choice.input_dtype else None,
        min_time_ns=_time(choice.min_time, float("-inf")),
        max_time_ns=_time(choice.max_time, float("inf")),
        group_by=_split(choice.group_by),
        aggregate_by=_split(choice.aggregate_by),
        aggregate=choice.aggregate,
        depth=choice.depth,
        percentiles=_percentiles(choice.percentiles),
        order_by=choice.order_by,
        top=USUAL if choice.top is None else choice.top,
        device=_device(choice),
    )


def _ours(profile: Profile, question: Question, choice: AnalyzeChoice, written: str) -> str:
    from dataclasses import replace

    from opcost.analysis.query import ask
    from opcost.core.plugin import PROFILE_VIEWS, load
    from opcost.views.profile_listing import summary_lines

    if choice.print_only == "summary":
        return "\n".join(summary_lines(ask(profile, question))) + "\n"
    if choice.print_only is not None:
        question = replace(question, side=choice.print_only)
    answers = [ask(profile, question)]
    if choice.show_host and answers[0].side != "host":
        answers.append(ask(profile, replace(question, side="host")))
    wishes: dict[str, Any] = {}
    if written in ("table", "md"):
        wishes = {"columns": choice.columns, "exact": choice.exact}
    if written == "table":
        wishes["width"] = choice.width
    view = load(PROFILE_VIEWS, written)
    return "\n".join(view.render(answer, **wishes) for answer in answers)


def _megengine(profile: Profile, choice: AnalyzeChoice) -> str:
    from opcost.analysis.join import with_costs
    from opcost.compat.megengine.profile_analyze import analyze as analyze_as_megengine
    from opcost.rules import default_rules

    if "megengine" not in profile.extra:
        profile = with_costs(profile, default_rules())
    return analyze_as_megengine(profile, _wish(choice)) + "\n"


def _wish(choice: AnalyzeChoice) -> Wish:
    from opcost.compat.megengine.profile_analyze import Wish

    by = _split(choice.aggregate_by)
    return Wish(
        top=SHORTEST if choice.top is None else choice.top,
        type=choice.type,
        aggregate_by=by[0] if by else None,
        aggregate=choice.aggregate,
        opr_name=choice.opr_name,
        input_dtype=choice.input_dtype,
        top_end_key=choice.top_end_key,
        order_by=choice.order_by,
        copy_time=choice.copy_time,
        min_time=_seconds(choice.min_time, float("-inf")),
        max_time=_seconds(choice.max_time, float("inf")),
        show_host=choice.show_host,
        dump_only_opr=choice.dump_only_opr,
        confluence=choice.confluence,
        print_only=choice.print_only,
    )


def _split(words: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(part.strip() for word in words for part in word.split(",") if part.strip())


def _kinds(words: tuple[str, ...]) -> tuple[str, ...]:
    from opcost.core.kinds import KINDS

    for word in words:
        if word not in KINDS:
            raise UnknownName("kind", word, KINDS)
    return words


def _seconds(text: str | None, missing: float) -> float:
    """A bare number is seconds, as MegEngine takes it."""
    from opcost.core.units import parse_time

    if text is None:
        return missing
    try:
        return float(text)
    except ValueError:
        return parse_time(text) / 1e9


def _time(text: str | None, missing: float) -> float:
    return _seconds(text, missing) * 1e9


def _percentiles(text: str | None) -> tuple[float, ...]:
    if text is None:
        return ()
    try:
        return tuple(float(word.strip().lstrip("p")) for word in text.split(","))
    except ValueError:
        raise OpcostError(f"{text!r} is no list of percentiles", hint="write --percentiles 10,50,90") from None


def _device(choice: AnalyzeChoice) -> Device | None:
    from opcost.core.devices import device, measured
    from opcost.core.units import parse_bytes, parse_count

    if choice.peak_flops is None and choice.peak_bandwidth is None:
        return device(choice.device) if choice.device else None
    if choice.device:
        raise OpcostError("both --device and measured peaks are given", hint="name one of them")
    flops = None if choice.peak_flops is None else parse_count(choice.peak_flops)
    bandwidth = None if choice.peak_bandwidth is None else parse_bytes(choice.peak_bandwidth)
    return measured(flops, bandwidth)
