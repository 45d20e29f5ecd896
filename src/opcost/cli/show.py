"""`opcost show REPORT`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from opcost.cli.options import MODEL, ShowChoice, parameter
from opcost.cli.showing import show as show_report
from opcost.errors import UnknownSource


def show(
    report: Annotated[Path, parameter(group=MODEL, help="A report saved as .json.")],
    /,
    *,
    shown: ShowChoice | None = None,
) -> int:
    """Print a saved report again, in any view, or convert it to other files."""
    from opcost.api import load_report
    from opcost.frontends.source import SavedReport, resolve

    found = resolve(str(report))
    if not isinstance(found, SavedReport):
        raise UnknownSource(f"{report} is not a saved report", hint="`opcost count SOURCE -o report.json` makes one")
    show_report(load_report(found.path), shown or ShowChoice())
    return 0
