"""`opcost analyze PROFILE`: where the time goes."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from opcost.cli.analyze_options import AnalyzeChoice, Profiles, ReadChoice
from opcost.cli.options import Quiet
from opcost.cli.question import question_of, split
from opcost.cli.reading import read_profiles, reduced
from opcost.cli.saying import put, warn
from opcost.core.graph import note_texts
from opcost.core.harmless import printable
from opcost.core.writing import check_writable, is_stream, write_bytes, write_text
from opcost.errors import OpcostError
from opcost.profiles import more_for
from opcost.wording import some

if TYPE_CHECKING:
    from opcost.analysis.query import Question
    from opcost.core.profile import Profile

SHORTEST = 3
"""Lines of MegEngine's own table when nobody says."""
USUAL = 10
"""Lines of ours."""
PAGE = 5_000
"""Lines of a page, which can be sorted and filtered; more make a browser slow."""

PARQUET = ".parquet"
"""The suffix of a file that is no answer, but all that can be asked."""

_OURS = (
    "kind", "module", "where", "group_by", "depth", "percentiles", "side", "device", "peak_flops", "peak_bandwidth", "columns",
    "exact", "width", "causal", "by",
)  # fmt: skip
"""Options that MegEngine's text has no place for."""
_OF_SHEETS = ("view", "format", "columns", "order_by", "top", "exact", "width", "output")
_THEIRS = ("copy_time", "dump_only_opr", "confluence")
"""Options whose answer is MegEngine's text, whatever the trace."""


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
    if choice.output is not None and choice.output.suffix == PARQUET:
        return _write_parquet([str(path) for path in profiles], read or ReadChoice(), choice, quiet=quiet)
    if choice.view != "operators":
        _check_sheet(choice)
    # The columns of the tables about the whole are only known when these are made.
    asked = choice if choice.view == "operators" else replace(choice, order_by=AnalyzeChoice().order_by)
    question = question_of(asked, top=PAGE if _wanted(choice) == "html" else USUAL)
    if choice.output is not None:
        check_writable(choice.output)
    _wanted(choice)
    wants_memory = choice.view == "memory"
    profile = read_profiles(
        [str(path) for path in profiles], read or ReadChoice(), quiet=quiet, memory=wants_memory,
        timeline=_wanted(choice) == "html", each=_asks_executions(choice),
    )  # fmt: skip
    text: str | bytes
    if choice.view != "operators":
        written = _wanted(choice) or "table"
        text = _sheet(profile, choice, written)
    else:
        written = _format(choice, profile)
        text = _theirs(profile, choice) if written == "megengine" else _ours(profile, question, choice, written)
    if choice.output is None:
        put(str(text), written)
    elif isinstance(text, bytes):
        write_bytes(choice.output, text)
    else:
        write_text(choice.output, text)
    return 0


def _write_parquet(paths: list[str], read: ReadChoice, choice: AnalyzeChoice, *, quiet: bool) -> int:
    """Everything that was read, of one file or many ranks, to be asked by others."""
    assert choice.output is not None
    if beyond := [name for name in _changed(choice) if name != "output"]:
        option = f"--{beyond[0].replace('_', '-')}"
        raise OpcostError(
            f"a {PARQUET} file holds all that was read, and has no place for {option}",
            hint="leave it out; DuckDB, Polars and others ask the file",
        )
    check_writable(choice.output)
    ranks = reduced(paths, read, quiet=quiet)
    write_bytes(choice.output, ranks.parquet())
    for note in ranks.notes:
        warn(note.text)
    return 0


def _asks_executions(choice: AnalyzeChoice) -> bool:
    """Whether sums of many executions would answer something else, or nothing."""
    in_time = choice.view in ("critical-path", "launches")
    return in_time or choice.by == "execution" or any((choice.min_time, choice.max_time, choice.where))


def _changed(choice: AnalyzeChoice) -> list[str]:
    """The options that are not as usual."""
    usual = AnalyzeChoice()
    return [field.name for field in fields(choice) if getattr(choice, field.name) != getattr(usual, field.name)]


def _check_sheet(choice: AnalyzeChoice) -> None:
    """Raise for options that ask about operators, where tables about the whole are wanted."""
    beyond = [name for name in _changed(choice) if name not in _OF_SHEETS]
    if beyond or choice.format == "megengine":
        option = f"--{beyond[0].replace('_', '-')}" if beyond else "--format megengine"
        raise OpcostError(f"--view {choice.view} has no place for {option}", hint="leave one of them out")


def _sheet(profile: Profile, choice: AnalyzeChoice, written: str) -> str:
    """Tables about the profile as a whole."""
    from opcost.core.plugin import COMPARISON_VIEWS, load
    from opcost.profiles import askable
    from opcost.views.view import option_names

    told = askable(profile)
    sheets = {
        "breakdown": told.breakdown,
        "communication": told.communication,
        "memory": told.allocations,
        "critical-path": told.critical_path,
        "launches": told.launches,
    }
    sheet = sheets[choice.view]()
    if choice.order_by != AnalyzeChoice().order_by:
        sheet = sheet.sort(choice.order_by)
    if choice.columns is not None:
        sheet = sheet.select(choice.columns.split(","))
    view = load(COMPARISON_VIEWS, written)
    # A path holds every operator; the other tables are as long as there are devices, sorts and steps.
    usual = USUAL if choice.view == "critical-path" and written == "table" else None
    wishes = {"exact": choice.exact, "width": choice.width, "top": usual if choice.top is None else choice.top or None}
    return str(view.render(sheet, **{name: wish for name, wish in wishes.items() if name in option_names(view)}))


def _format(choice: AnalyzeChoice, profile: Profile) -> str:
    """How the answer is written: as wished, else as MegEngine does where the profile and every option are its own."""
    changed = _changed(choice)
    ours = [name for name in changed if name in _OURS]
    beyond = [key for key in split(choice.aggregate_by) if key != "type"]
    if choice.aggregate not in (None, "sum", "mean", "max", "min"):
        beyond.append(choice.aggregate)
    wanted = _wanted(choice)
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


def _wanted(choice: AnalyzeChoice) -> str | None:
    """The format that is named, or that the suffix of the file says; None is the text that is usual for the profile."""
    from opcost.core.plugin import PROFILE_VIEWS, view_for_suffix

    if choice.format is not None or choice.output is None or is_stream(choice.output):
        return choice.format
    name = str(view_for_suffix(choice.output, PROFILE_VIEWS).name)
    return None if name == "table" else name


def _ours(profile: Profile, question: Question, choice: AnalyzeChoice, written: str) -> str | bytes:
    """The answer in one of our views, of which some are not text."""
    from opcost.analysis.query import ask
    from opcost.core.plugin import PROFILE_VIEWS, load
    from opcost.views.answer_page import summary_lines, verdict_lines
    from opcost.views.view import option_names

    if not question.aggregate_by and choice.by == "operator":
        question = replace(question, aggregate_by=profile.usual_keys)
    if choice.print_only == "summary":
        answer = ask(profile, question)
        return "\n".join(map(printable, (*verdict_lines(answer), *summary_lines(answer)))) + "\n"
    if choice.print_only is not None:
        question = replace(question, side=choice.print_only)
    answers = [ask(profile, question)]
    if choice.show_host and answers[0].side != "host":
        answers.append(ask(profile, replace(question, side="host")))
    view = load(PROFILE_VIEWS, written)
    known = option_names(view)
    wishes: dict[str, Any] = {name: getattr(choice, name) for name in ("columns", "exact", "width") if name in known}
    if "profile" in known:
        wishes |= more_for(view, profile) | ({"others": answers[1:]} if "others" in known else {})
        shown: str | bytes = (view.packed if hasattr(view, "packed") else view.render)(answers[0], **wishes)
        return shown
    texts = [view.render(answer, **wishes) for answer in answers]
    if written == "json" and len(texts) > 1:
        return "[\n" + ",\n".join(text.rstrip("\n") for text in texts) + "\n]\n"
    return "\n".join(texts)


def _theirs(profile: Profile, choice: AnalyzeChoice) -> str:
    """MegEngine's text."""
    from opcost.analysis.join import with_costs
    from opcost.compat.megengine.profile_analyze import Layout
    from opcost.compat.megengine.profile_analyze import analyze as analyze_as_megengine
    from opcost.rules import default_rules

    for text in some(note_texts(profile.notes)):  # It has no place for them.
        warn(text)
    if "megengine" not in profile.extra:
        profile = with_costs(profile, default_rules())
    layout = Layout(**{name: getattr(choice, name) for name in Layout._fields})
    return analyze_as_megengine(profile, question_of(choice, top=SHORTEST), layout) + "\n"
