"""Printing a report in the chosen view, and writing it to files."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from opcost.cli.options import ShowChoice
from opcost.cli.saying import put, wants_color, warn
from opcost.core.harmless import printable
from opcost.core.plugin import VIEWS, answering_for, load, view_for_suffix
from opcost.core.report import Report
from opcost.core.writing import check_writable
from opcost.errors import InputError
from opcost.views.view import check_options, option_names
from opcost.wording import shortened, some

SAYS_WHAT_IS_MISSING = ("table", "text", "md")
"""Views that list the uncounted operators themselves; with any other, stderr does."""


def check_choice(choice: ShowChoice) -> None:
    """Raise for a view or a suffix that nobody knows or a file that cannot be written, before a long count, not after it."""
    view = load(VIEWS, _view(choice))
    with answering_for(view, "choosing its options"):
        check_options(view, _wanted(choice))
    for path in choice.output:
        check_file(path, VIEWS)
    if choice.picture is not None and not any("picture" in option_names(view) for view in _drawing(choice)):
        raise InputError("--picture is for an .svg or .png file, and none is named", hint="-o FILE.svg")


def check_file(path: Path, group: str) -> None:
    """Raise for a file that could not be written, or whose suffix chooses no view."""
    if "\0" in str(path):
        raise InputError(f"no file can be called {shortened(ascii(str(path)))}")
    view_for_suffix(str(path), group)
    check_writable(path)


def _drawing(choice: ShowChoice) -> list[Any]:
    """The views of the files, and the one that is printed."""
    return [load(VIEWS, _view(choice)), *(view_for_suffix(str(path)) for path in choice.output)]


def show(report: Report, choice: ShowChoice) -> None:
    """Write the files, then print the view unless all was wanted quietly in files."""
    wanted = _wanted(choice)
    drawn: dict[str, Any] = {} if choice.picture is None else {"picture": choice.picture}
    for path in choice.output:
        save(report, path, wanted | drawn)
    printed = not (choice.quiet and choice.output)
    if printed:
        view = load(VIEWS, _view(choice))
        if "color" in option_names(view) and wants_color(sys.stdout):
            wanted["color"] = True
        if "picture" in option_names(view):
            wanted |= drawn
        with answering_for(view, "drawing the report"):
            text = view.render(report, **wanted)
        put(text, _view(choice))
    if not (printed and _view(choice) in SAYS_WHAT_IS_MISSING):
        _warn_of_uncounted(report)


def save(report: Report, path: Path, wanted: dict[str, Any]) -> None:
    """Write the report to a file in the view of its suffix, under those options that this view has."""
    view = view_for_suffix(str(path))
    names = option_names(view)
    with answering_for(view, "writing the report"):
        report.save(path, **{name: value for name, value in wanted.items() if name in names})


def _view(choice: ShowChoice) -> str:
    """The name of the chosen view."""
    if not choice.memory:
        return choice.view
    if choice.view not in ("table", "memory"):
        raise InputError(f"--memory is a view, and so is --view {choice.view}", hint="leave one of them out")
    return "memory"


def _wanted(choice: ShowChoice) -> dict[str, Any]:
    """The options of a view that were given."""
    given: dict[str, Any] = {
        name: value
        for name in ("by", "merge", "sort", "top", "columns", "width")
        if (value := getattr(choice, name)) is not None
    }
    if choice.exact:
        given["exact"] = True
    if choice.depth is not None:
        given["depth"] = depth_of(choice.depth)
    return given


def depth_of(text: str) -> int | None:
    """A depth as it is typed; None is all the way down."""
    if text == "all":
        return None
    if not text.isdecimal() or len(text) > 9:
        raise InputError(f"--depth {shortened(repr(text))} is neither a number nor 'all'")
    return int(text)


def _warn_of_uncounted(report: Report) -> None:
    lines = [
        f"{printable(missed.raw)}{f' ({missed.count} times)' if missed.count > 1 else ''}: {printable(missed.reason)}"
        for missed in report.coverage.uncounted
    ]
    for line in some(lines):
        warn(f"not counted: {line}")
