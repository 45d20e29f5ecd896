"""How the commands that compare show their tables: the options that they share, files, and what goes to the terminal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import cyclopts

from opcost.cli.options import SHOWING, Exact, Outputs, Quiet, Width, parameter
from opcost.cli.saying import put
from opcost.cli.showing import check_file
from opcost.core.plugin import COMPARISON_VIEWS, answering_for, load, view_for_suffix
from opcost.core.writing import write_text
from opcost.views.view import option_names

if TYPE_CHECKING:
    from opcost.views.view import Subject


@cyclopts.Parameter(name="*", group=SHOWING)
@dataclass(frozen=True, slots=True, kw_only=True)
class TableChoice:
    """In which form, and where it goes."""

    view: Annotated[
        str,
        parameter(name=["--view", "--format"], metavar="NAME", show_default=True, help="table, md, csv, json or html."),
    ] = "table"
    exact: Exact = False
    width: Width = None
    output: Outputs = ()
    quiet: Quiet = False


def check_tables(choice: TableChoice) -> None:
    """Raise for a view or a suffix that nobody knows or a file that cannot be written, before a long count, not after it."""
    load(COMPARISON_VIEWS, choice.view)
    for path in choice.output:
        check_file(path, COMPARISON_VIEWS)


def show_tables(subject: Subject, choice: TableChoice, *, top: int | None = None) -> None:
    """Write the files, then print the view unless all was wanted quietly in files; `top` lines, but all of them in files."""
    for path in choice.output:
        write_text(path, _rendered(view_for_suffix(str(path), COMPARISON_VIEWS), subject, choice, None))
    if not (choice.quiet and choice.output):
        put(_rendered(load(COMPARISON_VIEWS, choice.view), subject, choice, top), choice.view)


def _rendered(view: Any, subject: Subject, choice: TableChoice, top: int | None) -> str:
    known = option_names(view)
    wishes = {"exact": choice.exact or None, "width": choice.width, "top": top}
    with answering_for(view, "drawing a comparison"):
        return str(view.render(subject, **{k: v for k, v in wishes.items() if k in known and v is not None}))
