"""`opcost count SOURCE`."""

from __future__ import annotations

from typing import Annotated

from opcost.cli.counting import report_of
from opcost.cli.options import COUNTING, CountChoice, ShowChoice, SourceArgument, parameter
from opcost.cli.showing import check_choice, show


def count(
    source: SourceArgument,
    /,
    *,
    choice: CountChoice | None = None,
    device: Annotated[
        str | None,
        parameter(group=COUNTING, metavar="NAME", help="Memory as this GPU would hold it: h200, a100, ..."),
    ] = None,
    shown: ShowChoice | None = None,
) -> int:
    """Count a model and print what it costs."""
    shown = shown or ShowChoice()
    check_choice(shown)
    show(report_of(source, choice or CountChoice(), quiet=shown.quiet, device=device), shown)
    return 0
