"""`opcost compare A B C`."""

from __future__ import annotations

from typing import Annotated

from opcost.cli.counting import sources_of
from opcost.cli.options import MODEL, SHOWING, CountChoice, parameter
from opcost.cli.question import split
from opcost.cli.showing import depth_of
from opcost.cli.tables import TableChoice, check_tables, show_tables
from opcost.errors import OpcostError

Sources = Annotated[str, parameter(group=MODEL, help="Models, files, reports as for `opcost count`, or checkpoints.")]


def compare(
    *sources: Sources,
    by: Annotated[
        str | None,
        parameter(group=SHOWING, metavar="kind|module", help="Also one line per kind of operator, or module."),
    ] = None,
    quantity: Annotated[
        tuple[str, ...],
        parameter(
            group=SHOWING,
            metavar="NAME",
            help="What is compared, such as macs or params,flops. Without it all of the whole, MACs of kinds, parameters and "
            "MACs of modules.",
        ),
    ] = (),
    depth: Annotated[
        str, parameter(group=SHOWING, metavar="N|all", show_default=True, help="Modules down to this depth.")
    ] = "1",
    top: Annotated[
        int | None, parameter(group=SHOWING, metavar="N", help="At most N lines of kinds or modules on the terminal.")
    ] = None,
    choice: CountChoice | None = None,
    shown: TableChoice | None = None,
) -> int:
    """Put what several models cost side by side, one column for each."""
    from opcost import comparing

    shown = shown or TableChoice()
    if len(sources) < 2:
        raise OpcostError(
            "there is nothing to compare", hint="name two or more: opcost compare A B; see `opcost compare --help`"
        )
    check_tables(shown)
    wanted = comparing.check_comparison(by, split(quantity))
    deep = depth_of(depth)
    found = sources_of(sources, choice or CountChoice(), quiet=shown.quiet)
    show_tables(
        comparing.compare(*found, labels=sources, by=wanted, quantities=split(quantity), depth=deep), shown, top=top
    )
    return 0
