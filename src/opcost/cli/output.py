"""How a command shows its result: in a chosen view, and in files."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from opcost.cli.flags import depth_of
from opcost.cli.printing import put, use_color, warn
from opcost.core.escaping import printable
from opcost.core.files import check_writable
from opcost.core.option import declared
from opcost.core.plugin import faults_attributed, load_view, view_for_suffix
from opcost.core.report import Report
from opcost.errors import InputError, shortened, some
from opcost.options import Showing
from opcost.views.view import check_options, known_options, option_names

LISTS_UNCOUNTED = ("table", "text", "md")  # these list uncounted operators; with others, stderr does


def check_file(path: Path, kind: str) -> None:
    """Raise for a file that cannot be written, or whose suffix selects no view."""
    if "\0" in str(path):
        raise InputError(f"no file can be called {shortened(ascii(str(path)))}")
    view_for_suffix(str(path), kind)
    check_writable(path)


class Output:
    """How a command shows its result, checked before a long count, not after it."""

    def __init__(self, flags: Mapping[str, Any] | None, kind: str) -> None:
        given = {name: value for name, value in (flags or {}).items() if name in declared(Showing)}
        self.quiet: bool = given.pop("quiet", False)
        self._files: tuple[Path, ...] = given.pop("output", ())
        self._kind = kind
        view, form = given.pop("view", None), given.pop("format", None)
        if view is not None and form is not None and view != "table":
            message = f"--view {view} is printed as text, and --format {form} is another format"
            raise InputError(message, hint="give one of them")
        self._name = form or view or "table"
        if isinstance(given.get("depth"), str):
            given["depth"] = depth_of(given["depth"])
        self._options = given
        self._view = load_view(self._name, kind)
        if kind == "report":
            with faults_attributed(self._view, "choosing its options"):
                check_options(self._view, kind, given)
        for path in self._files:
            check_file(path, kind)

    @property
    def printed(self) -> bool:
        """Whether the result goes to stdout."""
        return not (self.quiet and self._files)

    def show(self, result: Any) -> None:
        """Write the files, then print the view; files of tables have all rows, whatever `--top` is."""
        for path in self._files:
            view = view_for_suffix(str(path), self._kind)
            options = self._known(view, self._options if self._kind == "report" else {**self._options, "top": None})
            with faults_attributed(view, "writing the result"):
                result.save(path, **options)
        if self.printed:
            options = self._known(self._view, self._options)
            options |= known_options(self._view, self._kind, {"color": use_color(sys.stdout) or None})
            with faults_attributed(self._view, "showing the result"):
                put(str(self._view.render(result, **options)), self._name)
        if isinstance(result, Report) and not (self.printed and self._name in LISTS_UNCOUNTED):
            lines = [
                f"{printable(missed.raw)}{f' ({missed.count} times)' if missed.count > 1 else ''}: {printable(missed.reason)}"
                for missed in result.coverage.uncounted
            ]
            for line in some(lines):
                warn(f"not counted: {line}")

    def _known(self, view: Any, options: Mapping[str, Any]) -> dict[str, Any]:
        """The options that a view has."""
        chosen = known_options(view, self._kind, options)
        if "depth" in options and "depth" in option_names(view, self._kind):
            chosen["depth"] = options["depth"]  # None is all the way down
        return chosen
