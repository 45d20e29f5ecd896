"""`opcost fit SOURCE --memory SIZE | --device NAME`."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from typing import Annotated

from cyclopts import Group

from opcost.cli.counting import told_of
from opcost.cli.options import CountChoice, SourceArgument, parameter
from opcost.cli.tables import TableChoice, check_tables, show_tables
from opcost.core.progress import working

FITTING = Group("What must fit", sort_key=0)


def fit(
    source: SourceArgument,
    /,
    *,
    memory: Annotated[
        str | None, parameter(group=FITTING, metavar="SIZE", help="The memory that there is: 24GiB, 80GB.")
    ] = None,
    device: Annotated[
        str | None,
        parameter(
            group=FITTING,
            metavar="NAME",
            help="Memory as this GPU would hold it: h100, a100, ...; also the limit, unless --memory names another.",
        ),
    ] = None,
    vary: Annotated[
        str,
        parameter(
            group=FITTING,
            metavar="WHAT",
            show_default=True,
            help="What grows: batch, tokens, image, prefill, decode, cache, or NAME=DIMENSION of an input (input_ids=1), several "
            "with commas.",
        ),
    ] = "batch",
    advise: Annotated[
        bool,
        parameter(
            group=FITTING,
            negative="--no-advise",
            help="Also count under options that take less memory (usual), or not.",
        ),
    ] = True,
    choice: CountChoice | None = None,
    shown: TableChoice | None = None,
) -> int:
    """Tell the largest batch, or other size, with which a model keeps to so much memory."""
    from opcost import sizing

    choice, shown = choice or CountChoice(), shown or TableChoice()
    check_tables(shown)
    with working(f"fitting {source}", quiet=shown.quiet), redirect_stdout(sys.stderr):
        found = sizing.fit(source, memory=memory, device=device, vary=vary, advise=advise, **told_of(choice))
    show_tables(found, shown)
    return 0
