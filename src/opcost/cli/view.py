"""`opcost view SOURCE...`: the page of anything, opened in a browser, written to a file, or served while its source changes."""

from __future__ import annotations

import tempfile
import webbrowser
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Group

from opcost.cli.counting import report_of, sources_of
from opcost.cli.options import MODEL, CountChoice, Quiet, parameter
from opcost.cli.reading import trace_of
from opcost.cli.saying import say
from opcost.cli.showing import check_file
from opcost.core.plugin import COMPARISON_VIEWS, PROFILE_VIEWS, SCAN_VIEWS, VIEWS, load
from opcost.core.progress import working
from opcost.core.writing import write_text
from opcost.errors import InputError, OpcostError

if TYPE_CHECKING:
    from opcost.core.comparison import Comparison

VIEWING = Group("Where it is shown", sort_key=0)
PORT = 8765
LINES = 5_000
"""Lines of the table below the views of a profile."""


def view(
    *sources: Annotated[
        str,
        parameter(
            group=MODEL,
            help="A model or a report as for `opcost count`, a profile or a trace, a checkpoint; several are compared.",
        ),
    ],
    output: Annotated[
        Path | None,
        parameter(
            name=["--output", "-o"],
            group=VIEWING,
            metavar="FILE.html",
            help="Write the page to this file; without it, it is opened in a browser.",
        ),
    ] = None,
    serve: Annotated[
        bool, parameter(group=VIEWING, help="Serve the page to this machine, and anew when the source changes.")
    ] = False,
    port: Annotated[
        int,
        parameter(group=VIEWING, metavar="N", show_default=True, help="Where it is served; 0 takes any that is free."),
    ] = PORT,
    choice: CountChoice | None = None,
    quiet: Quiet = False,
) -> int:
    """Show as a page what a model costs, where the time of a profile goes, what a checkpoint holds, or how models differ."""
    if not sources:
        raise OpcostError("nothing is named that could be shown", hint="opcost view SOURCE; see `opcost view --help`")
    if serve:
        from opcost.cli.main import TYPED
        from opcost.cli.serving import serve_page

        if output is not None:
            raise InputError("--serve shows the page, and -o writes it", hint="leave one of them out")
        return serve_page(sources, [word for word in TYPED.get() if word != "--serve"], port)
    if output is not None:
        if output.suffix.lower() != ".html":
            raise InputError(f"{output} does not end in .html", hint="other formats are written by the other commands")
        check_file(output, VIEWS)
    text = page_of(sources, choice or CountChoice(), quiet=quiet)
    if output is not None:
        write_text(output, text)
        return 0
    with tempfile.NamedTemporaryFile("w", prefix="opcost-", suffix=".html", delete=False, encoding="utf-8") as file:
        path = Path(file.name)
    write_text(path, text)
    say(f"{path}")
    if not webbrowser.open(path.as_uri()):
        say(
            "no browser is here; -o FILE.html writes the page where you want it, --serve shows it to a browser elsewhere"
        )
    return 0


def page_of(sources: tuple[str, ...], choice: CountChoice, *, quiet: bool) -> str:
    """The page of one source, or of a comparison of several."""
    traces = [trace_of(source) for source in sources]
    if len(sources) > 1:
        if any(traces):
            if not all(traces) or len(traces) > 2:
                raise InputError("of profiles two are compared", hint="name two profiles, or models and reports alone")
            return _rendered(COMPARISON_VIEWS, _profiles(sources, traces, quiet=quiet))
        return _rendered(COMPARISON_VIEWS, _models(sources, choice, quiet=quiet))
    if traces[0] is not None:
        if choice != CountChoice():
            raise InputError(f"{sources[0]} is a profile; options about counting do not apply to it")
        return _profile(sources[0], quiet=quiet)
    from opcost.cli.settings import parse_settings
    from opcost.comparing import source_or_scan
    from opcost.core.scan import Scan

    found = source_or_scan(sources[0], parse_settings(choice.model.settings, "--set"))
    if isinstance(found, Scan):
        return _rendered(SCAN_VIEWS, found)
    return _rendered(VIEWS, report_of(found, choice, quiet=quiet))


def _rendered(group: str, subject: Any, **options: Any) -> str:
    return str(load(group, "html").render(subject, **options))


def _profile(path: str, *, quiet: bool) -> str:
    from opcost.api import read_profile
    from opcost.profiles import more_for

    with working(f"reading {path}", quiet=quiet):
        profile = read_profile(path, timeline=True)
    answer = profile.query(aggregate_by=profile.usual_keys, top=LINES)
    return _rendered(PROFILE_VIEWS, answer, **more_for(load(PROFILE_VIEWS, "html"), profile))


def _profiles(paths: tuple[str, ...], traces: list[Any], *, quiet: bool) -> Comparison:
    from opcost.analysis.profile_diff import diff_profiles

    with working(f"reading {' and '.join(paths)}", quiet=quiet):
        before, after = (trace.read() for trace in traces)
    return diff_profiles(before, after, (paths[0], paths[1]))


def _models(sources: tuple[str, ...], choice: CountChoice, *, quiet: bool) -> Comparison:
    """The totals, kinds and modules of all of them."""
    from opcost.comparing import compare

    found = sources_of(sources, choice, quiet=quiet)
    kinds, modules = (compare(*found, labels=sources, by=by, depth=None) for by in ("kind", "module"))
    return replace(kinds, entries=(*kinds.entries, *modules.of_part("module")))
