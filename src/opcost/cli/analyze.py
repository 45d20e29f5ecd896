"""`opcost analyze PROFILE`: where the time goes."""

from __future__ import annotations

import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opcost.cli.analyze_options import AnalyzeChoice, Profiles, ReadChoice
from opcost.cli.options import CountChoice, Quiet
from opcost.cli.saying import warn
from opcost.core.harmless import printable
from opcost.core.wording import some
from opcost.core.writing import check_writable, write_text
from opcost.errors import OpcostError, UnknownName

if TYPE_CHECKING:
    from opcost.analysis.query import Question
    from opcost.compat.megengine.profile_analyze import Wish
    from opcost.core.devices import Device
    from opcost.core.profile import Profile

SHORTEST = 3
"""Lines of MegEngine's own table when nobody says."""
USUAL = 10
"""Lines of ours."""
PAGE = 5_000
"""Lines of a page, which can be sorted and filtered; more make a browser slow."""
RANKS_TOLD = 8
"""Ranks that are told of one by one, the stragglers first."""
LARGE = 64 << 20
"""Bytes from which a trace is added up while it is read."""
_PACKING = 8
"""How much smaller gzip makes a trace, at the least."""

_OURS = (
    "kind", "module", "where", "group_by", "depth", "percentiles", "side", "device", "peak_flops", "peak_bandwidth", "columns",
    "exact", "width",
)  # fmt: skip
"""Options that MegEngine's text has no place for."""
_THEIRS = ("copy_time", "dump_only_opr", "confluence")
"""Options whose answer is MegEngine's text, whatever the trace."""
_WRITTEN = {".json": "json", ".csv": "csv", ".md": "md", ".html": "html", ".htm": "html"}


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
    if choice.output is not None:
        check_writable(choice.output)
    profile = read_profiles([str(path) for path in profiles], read or ReadChoice(), quiet=quiet)
    if not question.aggregate_by:
        question = replace(question, aggregate_by=profile.usual_keys)
    written = _format(choice, profile)
    if written == "megengine":
        for text in some([note.text for note in profile.notes]):  # MegEngine's text has no place for them.
            warn(text)
    text = _megengine(profile, choice) if written == "megengine" else _ours(profile, question, choice, written)
    if choice.output is not None:
        write_text(choice.output, text)
    else:
        sys.stdout.write(text)
    return 0


def read_profiles(paths: list[str], choice: ReadChoice, *, quiet: bool) -> Profile:
    """The profile of one file, or of many ranks, joined to a model if one is named."""
    from opcost.cli.progress import working

    if len(paths) == 1 and not Path(paths[0]).is_dir():
        with working(f"reading {paths[0]}", quiet=quiet):
            profile = _read_one(paths[0], partial=choice.partial)
    else:
        profile = _read_ranks(paths, choice, quiet=quiet)
    source = choice.report or choice.model
    if source is None:
        return profile
    if choice.report and choice.model:
        raise OpcostError("both --model and --report are given", hint="name one of them")
    from opcost.analysis.join import with_costs, with_modules
    from opcost.cli.counting import report_of
    from opcost.rules import default_rules

    # What ran is priced by what was recorded of it; the model tells where the trace does not.
    profile = with_costs(profile, default_rules())
    return with_modules(profile, report_of(source, CountChoice(inputs=choice.inputs), quiet=quiet))


def _read_one(path: str, *, partial: bool) -> Profile:
    """One file; a large trace is added up while it is read, one row for all executions that are alike."""
    from opcost.traces.file import TraceFile
    from opcost.traces.registry import read, reader_of

    file = TraceFile(path)
    size = file.size * (_PACKING if file.packed else 1)
    if size >= LARGE and reader_of(file).name == "kineto":
        from opcost.traces.kineto.table import read_table

        return read_table(path, partial=partial).profile()
    return read(path, partial=partial)


def _read_ranks(paths: list[str], choice: ReadChoice, *, quiet: bool) -> Profile:
    """Many files as ranks, with what is to say about each rank among the notes."""
    from rich.console import Console
    from rich.progress import Progress

    from opcost.core.graph import Note
    from opcost.traces.ranks import reduce_ranks

    with Progress(console=Console(stderr=True), transient=True, disable=quiet or not sys.stderr.isatty()) as bar:
        task = bar.add_task("reading ranks", total=None)
        ranks = reduce_ranks(
            paths,
            cluster=choice.cluster,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
            partial=choice.partial,
        )
    profile = ranks.profile()
    told = sorted(ranks.summary().to_dicts(), key=lambda rank: (-rank["held_up_ns"], -rank["idle_ns"], rank["rank"]))
    notes = [Note("rank", _rank_text(rank)) for rank in told[:RANKS_TOLD]]
    return replace(profile, notes=(*profile.notes, *notes))


def _rank_text(rank: dict[str, Any]) -> str:
    """Idle time, the wait in collectives, and how long others waited for this rank."""
    from opcost.core.units import format_time

    said = [f"rank {rank['rank']}: wall {format_time(rank['wall_ns'])}"]
    if rank["span_ns"]:
        said.append(f"device idle {format_time(rank['idle_ns'])} ({100 * rank['idle_ns'] / rank['span_ns']:.1f} %)")
    if rank["collective_ns"]:
        said.append(f"collectives {format_time(rank['collective_ns'])}, of it waiting {format_time(rank['wait_ns'])}")
    if rank["held_up_ns"]:
        said.append(f"others waited {format_time(rank['held_up_ns'])} for it")
    return ", ".join(said)


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


def _is_page(choice: AnalyzeChoice) -> bool:
    return (choice.format or _WRITTEN.get(choice.output.suffix.lower() if choice.output else "")) == "html"


def _question(choice: AnalyzeChoice) -> Question:
    """What the options ask; wrong names are found before a long file is read."""
    from opcost.analysis.part import fields as known_fields
    from opcost.analysis.query import Question
    from opcost.analysis.where import compile_where
    from opcost.traces.megengine.meaning import dtype_of

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
        top=(PAGE if _is_page(choice) else USUAL) if choice.top is None else choice.top,
        device=_device(choice),
    )


def _ours(profile: Profile, question: Question, choice: AnalyzeChoice, written: str) -> str:
    from opcost.analysis.query import ask
    from opcost.core.plugin import PROFILE_VIEWS, load
    from opcost.views.profile_listing import summary_lines

    if choice.print_only == "summary":
        return "\n".join(map(printable, summary_lines(ask(profile, question)))) + "\n"
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
    if written == "html":
        wishes = {"columns": choice.columns}
        return str(load(PROFILE_VIEWS, written).render(*answers, **wishes))
    view = load(PROFILE_VIEWS, written)
    texts = [view.render(answer, **wishes) for answer in answers]
    if written == "json" and len(texts) > 1:
        return "[\n" + ",\n".join(text.rstrip("\n") for text in texts) + "\n]\n"
    return "\n".join(texts)


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
