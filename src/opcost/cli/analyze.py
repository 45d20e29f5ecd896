"""`opcost analyze PROFILE`: where the time of a profile or trace goes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict

from opcost.api import read_ranks
from opcost.cli.flags import SOURCE, flags, parameter, split
from opcost.cli.models import report_of
from opcost.cli.printing import put, warn
from opcost.core.devices import Device, device, measured
from opcost.core.files import check_writable, is_stream, write_bytes, write_text
from opcost.core.graph import note_texts
from opcost.core.option import Option, declared
from opcost.core.plugin import load_view, view_for_suffix
from opcost.core.profile import Answer, Profile
from opcost.core.progress import working
from opcost.core.units import parse_bytes, parse_count, parse_time
from opcost.errors import OpcostError, UnknownName, some
from opcost.options import ADDING, DEVICE, READING, SHOWING, Connecting, Querying, Reading, Showing
from opcost.profiles import more_for
from opcost.rules import default_rules
from opcost.views.view import known_options

if TYPE_CHECKING:
    from opcost.analysis.query import Question
    from opcost.traces.ranks import Ranks

ROWS = {"megengine": 3, "table": 10, "html": 5_000}
"""Rows without --top: of MegEngine's own table, of ours, and of a page, which a browser can sort and filter."""
PARQUET = ".parquet"  # the suffix of a file that holds all that was read, and no answer
FORMATS = Literal["table", "json", "csv", "md", "latex", "html", "megengine"]


# fmt: off
class Analyzing(TypedDict, total=False):
    """Flags that `opcost.query` has no keyword for: of MegEngine's profile_analyze, of the output, and of many ranks."""

    view: Annotated[Literal["operators", "breakdown", "communication", "memory", "critical-path", "launches"], Option(
        "operators; breakdown: where each device's time went, and copies; communication: collectives, rates and stragglers; "
        "memory: the peak, its owners, and over time; critical-path, and what halving a part of it would save; launches: "
        "queues and delays over time", ADDING, default="operators")]
    executions: Annotated[bool, Option("One line for each execution instead of one per operator.", ADDING)]
    top_end_key: Annotated[Literal["end", "kern"], Option(
        "end is the whole time, kern the wait before the kernel", ADDING, default="end")]
    peak_flops: Annotated[str, Option("Compare with a measured peak instead: 600T (FLOP/s).", DEVICE, "N")]
    peak_bandwidth: Annotated[str, Option("The same for the memory: 4.1TB (per second).", DEVICE, "N")]
    show_host: Annotated[bool, Option("Add a table of the times on the host.", SHOWING)]
    copy_time: Annotated[bool, Option("Add the time of copies to the summary.", SHOWING)]
    print_only: Annotated[Literal["summary", "device", "host"], Option("Print only this part.", SHOWING)]
    dump_only_opr: Annotated[bool, Option("Print only the operators: name, type, id.", SHOWING)]
    confluence: Annotated[bool, Option("MegEngine's tables for a wiki.", SHOWING, flags=("--confluence", "--wiki"))]
    format: Annotated[FORMATS, Option(
        "Format of the output. By default MegEngine's own text for its profiles, else a table.", SHOWING)]
    output: Annotated[Path, Option(
        "Write to this file; .json, .csv, .md, .tex, .html select the format, .parquet holds all that was read.",
        SHOWING, "FILE", flags=("--output", "-o"))]
    scheduler: Annotated[str, Option(
        "Read many ranks on a Dask cluster: local, or tcp://... Without it: in processes of this machine.", READING,
        "ADDRESS")]
    rank_cache: Annotated[str, Option(
        "Folder where parsed ranks are kept for the next time; none: nowhere. Without it: the user's cache folder.",
        READING, "FOLDER")]
    model: Annotated[str, Option(
        "Join the rows to the modules of this model, or of a saved report.", READING, "SOURCE")]
    shapes: Annotated[tuple[str, ...], Option(
        "An input of --model, as [name:]1x3x224x224[:type].", READING, "SHAPE", flags=("--input", "-i"))]
# fmt: on


AnalyzeFlags: Any = flags(
    Querying, Analyzing, Connecting, Reading, Showing, only=("columns", "exact", "width", "quiet")
)

_OURS = (
    "kind", "module", "where", "group_by", "depth", "percentiles", "side", "device", "peak_flops", "peak_bandwidth", "columns",
    "exact", "width", "causal", "executions",
)  # fmt: skip
"""Options that MegEngine's text has no place for."""
_THEIRS = ("copy_time", "dump_only_opr", "confluence")  # options whose answer is MegEngine's text, whatever the trace
_OF_SHEETS = ("view", "format", "columns", "sort", "top", "exact", "width", "output")
_OF_VIEWS = {"communication": "cluster"}  # an option that one view alone takes
_OF_READING = ("partial", "reader", "capture", "scheduler", "rank_cache", "model", "shapes", "quiet")


def analyze(
    *profiles: Annotated[Path, parameter(
        group=SOURCE,
        help="A trace of PyTorch, JAX, ONNX Runtime, MegEngine, MXNet, OpenVINO, TensorRT or Nsight Systems, "
        "or a profile of opcost, plain or gzipped; several files, or a folder, are ranks.")],
    flags: AnalyzeFlags = None,
) -> int:  # fmt: skip
    """Ask a profile or a trace where the time goes: which operators, modules, kinds, kernels or ranks."""
    given = flags or {}
    paths = [str(path) for path in profiles]
    if not paths:
        raise OpcostError("no profile is named", hint="opcost analyze PROFILE; see `opcost analyze --help`")
    output: Path | None = given.get("output")
    view = given.get("view", "operators")
    if output is not None and output.suffix == PARQUET:
        # All that was read, of one file or many ranks, for other tools
        if beyond := [name for name in given if name not in ("output", *_OF_READING)]:
            raise OpcostError(
                f"a {PARQUET} file holds all that was read, and has no place for {_flag(beyond[0])}",
                hint="leave it out; DuckDB, Polars and others query the file",
            )
        check_writable(output)
        ranks = _ranks(paths, given)
        write_bytes(output, ranks.parquet())
        for note in ranks.notes:
            warn(note.text)
        return 0
    if "cluster" in given and view != "communication":
        raise OpcostError("--cluster is for collectives", hint="add --view communication")
    if view != "operators":  # options that ask about operators do not apply to tables about the whole
        beyond = [name for name in given if name not in (*_OF_SHEETS, *_OF_READING, _OF_VIEWS.get(view))]
        if beyond or given.get("format") == "megengine":
            option = _flag(beyond[0]) if beyond else "--format megengine"
            raise OpcostError(f"--view {view} has no place for {option}", hint="leave one of them out")
    form = given.get("format")  # as it is named, or as the suffix of the file selects it; None: the profile's own text
    if form is None and output is not None and not is_stream(output):
        name = str(view_for_suffix(output, "profile").name)
        form = None if name == "table" else name
    # The columns of the tables about the whole are only known when these are made.
    chosen = given if view == "operators" else {name: value for name, value in given.items() if name != "sort"}
    question = question_of(chosen, top=ROWS["html" if form == "html" else "table"])
    if output is not None:
        check_writable(output)
    of_each = ("executions", "min_time", "max_time", "where")
    each = view in ("critical-path", "launches") or any(given.get(name) for name in of_each)
    profile = read_profiles(paths, given, memory=view == "memory" or None, timeline=form == "html", executions=each)
    if view != "operators":
        written = form or "table"
        text = _sheet(profile, given, view, written)
    else:
        written = _final_format(given, form, profile)
        text = _theirs(profile, given) if written == "megengine" else _ours(profile, question, given, written)
    if output is None:
        put(text, written)
    else:
        write_text(output, text)
    return 0


# -- reading -------------------------------------------------------------------------------------------------------------


def read_profiles(paths: list[str], given: Mapping[str, Any], **more: Any) -> Profile:
    """The profile of one file, or of many ranks, joined to a model if one is named."""
    from opcost.api import read_profile

    if len(paths) == 1 and not Path(paths[0]).is_dir():
        chosen = {name: given[name] for name in declared(Reading) if name in given}
        with working(f"reading {paths[0]}", quiet=given.get("quiet", False)):
            profile: Profile = read_profile(paths[0], **{**chosen, **more})
    elif given.get("capture") is not None:
        raise OpcostError("--capture is for one trace, and several are named", hint="analyze them one by one")
    else:
        profile = _ranks(paths, given).profile()
    if (source := given.get("model")) is None:
        return profile
    from opcost.analysis.join import with_costs, with_modules

    # Costs come from what was recorded of each operator; the model fills in where the trace has no shapes.
    profile = with_costs(profile, default_rules())
    options = {"shapes": list(given["shapes"])} if "shapes" in given else {}
    return with_modules(profile, report_of(source, options, quiet=given.get("quiet", False)))


def _ranks(paths: list[str], given: Mapping[str, Any]) -> Ranks:
    """Many files as ranks, each reduced on its own; also a single one."""
    with working("reading ranks", quiet=given.get("quiet", False)):
        return read_ranks(
            paths, scheduler=given.get("scheduler"), partial=given.get("partial", False), reader=given.get("reader"),
            cache=given.get("rank_cache"),
        )  # fmt: skip


def _flag(name: str) -> str:
    known = {**declared(Showing), **declared(Reading), **declared(Analyzing), **declared(Querying)}
    return next(iter(known[name][1].flags), f"--{name.replace('_', '-')}")


# -- asking ----------------------------------------------------------------------------------------------------------------


def question_of(given: Mapping[str, Any], *, top: int) -> Question:
    """The query that the flags ask; wrong names are found before a long file is read."""
    from opcost.analysis.part import fields as known_fields
    from opcost.analysis.query import Question
    from opcost.analysis.where import compile_where
    from opcost.traces.megengine.graph import dtype_of

    chosen = {name: value for name, value in given.items() if name in declared(Querying)}
    if "where" in chosen:
        compile_where(chosen["where"], known_fields(None))
    for name, missing in (("min_time", float("-inf")), ("max_time", float("inf"))):
        text = chosen.pop(name, None)
        try:  # a bare number is in seconds, as for MegEngine
            chosen[f"{name}_ns"] = missing if text is None else float(text) * 1e9
        except ValueError:
            chosen[f"{name}_ns"] = parse_time(text)
    for name in ("group_by", "aggregate_by"):
        chosen[name] = split(chosen.get(name, ()))
    if "input_dtype" in chosen:
        chosen["input_dtype"] = dtype_of(chosen["input_dtype"]) or chosen["input_dtype"]
    text = chosen.get("percentiles")
    try:
        words = [] if text is None else text.split(",")
        chosen["percentiles"] = tuple(float(word.strip().lstrip("p")) for word in words)
    except ValueError:
        raise OpcostError(f"{text!r} is not a list of percentiles", hint="write --percentiles 10,50,90") from None
    chosen["measure"] = "wait" if given.get("top_end_key") == "kern" else "time"
    chosen["device"] = _device(given)
    return Question(**{"top": top, **chosen})


def _device(given: Mapping[str, Any]) -> Device | None:
    name, flops, bandwidth = (given.get(each) for each in ("device", "peak_flops", "peak_bandwidth"))
    if flops is None and bandwidth is None:
        try:
            return device(name) if name else None
        except UnknownName as exc:
            exc.hint += "; measured peaks can be given instead: --peak-flops, --peak-bandwidth"
            raise
    if name:
        raise OpcostError("both --device and measured peaks are given", hint="name one of them")
    return measured(
        None if flops is None else parse_count(flops), None if bandwidth is None else parse_bytes(bandwidth)
    )


# -- showing -----------------------------------------------------------------------------------------------------------------


def _final_format(given: Mapping[str, Any], form: str | None, profile: Profile) -> str:
    """The format as requested, else MegEngine's text where the profile and every option are its own."""
    ours = [name for name in given if name in _OURS]
    beyond = [key for key in split(given.get("aggregate_by", ())) if key != "type"]
    if (how := given.get("aggregate")) not in (None, "sum", "mean", "max", "min"):
        beyond.append(how)
    if form is None:
        theirs = any(name in given for name in _THEIRS) or "megengine" in profile.extra
        return "megengine" if theirs and not (ours or beyond) else "table"
    if form == "megengine" and (ours or beyond):
        option = _flag(ours[0]) if ours else f"--aggregate-by or --aggregate {beyond[0]}"
        raise OpcostError(f"MegEngine's text has no place for {option}", hint="leave --format megengine out")
    return form


def _sheet(profile: Profile, given: Mapping[str, Any], view: str, written: str) -> str:
    """Tables about the profile as a whole."""
    from opcost.profiles import askable

    found = askable(profile)
    own = _OF_VIEWS.get(view, "")
    chosen = {own: given[own]} if own in given else {}
    sheet = getattr(found, "allocations" if view == "memory" else view.replace("-", "_"))(**chosen)
    if "sort" in given:
        sheet = sheet.sort(given["sort"])
    if "columns" in given:
        sheet = sheet.select(given["columns"].split(","))
    renderer = load_view(written, "tables")
    # A path holds every operator; the other tables are as long as there are devices, collectives and steps.
    usual = ROWS["table"] if view == "critical-path" and written == "table" else None
    options = {"exact": given.get("exact"), "width": given.get("width"), "top": given.get("top", usual) or None}
    return str(renderer.render(sheet, **known_options(renderer, "tables", options)))


def _ours(profile: Profile, question: Question, given: Mapping[str, Any], written: str) -> str:
    """The answer in one of our views."""
    from opcost.analysis.query import ask
    from opcost.profiles import Prediction

    def answer_to(question: Question) -> Answer:
        found = ask(profile, question)
        return replace(found, predicted=profile) if isinstance(profile, Prediction) else found

    if not question.aggregate_by and not given.get("executions"):
        question = replace(question, aggregate_by=profile.usual_keys)
    only = given.get("print_only")
    if only == "summary":
        summary = replace(answer_to(question).sheet(), tables=(), sections=())
        return str(summary.render("table", width=given.get("width")))
    if only is not None:
        question = replace(question, side=only)
    answers = [answer_to(question)]
    if given.get("show_host") and answers[0].side != "host":
        answers.append(answer_to(replace(question, side="host")))
    view = load_view(written, "profile")
    options = known_options(view, "profile", {name: given.get(name) for name in ("columns", "exact", "width")})
    if more := more_for(view, profile):
        return str(
            view.render(answers[0], **options, **more, **known_options(view, "profile", {"others": answers[1:]}))
        )
    texts = [view.render(answer, **options) for answer in answers]
    if written == "json" and len(texts) > 1:
        return "[\n" + ",\n".join(text.rstrip("\n") for text in texts) + "\n]\n"
    return "\n".join(texts)


def _theirs(profile: Profile, given: Mapping[str, Any]) -> str:
    """MegEngine's text."""
    from opcost.analysis.join import with_costs
    from opcost.compat.megengine.profile_analyze import PrintedColumns
    from opcost.compat.megengine.profile_analyze import analyze as analyze_as_megengine

    for text in some(note_texts(profile.notes)):  # it has no place for them
        warn(text)
    if "megengine" not in profile.extra:
        profile = with_costs(profile, default_rules())
    layout = PrintedColumns(**{name: given[name] for name in PrintedColumns._fields if name in given})
    return analyze_as_megengine(profile, question_of(given, top=ROWS["megengine"]), layout) + "\n"
