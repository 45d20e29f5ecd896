"""`opcost count SOURCE`."""

from __future__ import annotations

from opcost.cli.counting import report_of
from opcost.cli.options import CountChoice, ShowChoice, SourceArgument
from opcost.cli.showing import check_choice, show


def count(source: SourceArgument, /, *, choice: CountChoice | None = None, shown: ShowChoice | None = None) -> int:
    """Count a model and print what it costs."""
    shown = shown or ShowChoice()
    check_choice(shown)
    show(report_of(source, choice or CountChoice(), quiet=shown.quiet), shown)
    return 0
