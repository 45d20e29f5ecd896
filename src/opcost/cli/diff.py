"""`opcost diff BEFORE AFTER`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Group

from opcost.cli.counting import sources_of
from opcost.cli.options import MODEL, SHOWING, CountChoice, parameter
from opcost.cli.reading import Trace, trace_of
from opcost.cli.saying import warn
from opcost.cli.tables import TableChoice, check_tables, show_tables
from opcost.core.progress import working
from opcost.errors import OpcostError

if TYPE_CHECKING:
    from opcost.analysis.compare import Costs
    from opcost.analysis.profile_diff import By
    from opcost.core.comparison import Comparison
    from opcost.core.limit import Limit

Top = Annotated[
    int,
    parameter(
        name="--top",
        group=SHOWING,
        metavar="N",
        show_default=True,
        help="At most N lines of each table on the terminal.",
    ),
]
FAILING = Group("When it fails", sort_key=0)
FailIf = Annotated[
    tuple[str, ...],
    parameter(
        group=FAILING,
        metavar="CONDITION",
        help="The exit code is 1 only if this is so: 'macs>+1%', 'params>+10M', 'peak_bytes>512MiB'; of profiles 'time>+5%'. "
        "May be repeated.",
    ),
]


def diff(
    before: Annotated[str, parameter(group=MODEL, help="A source, a report saved as .json, or a profile.")],
    after: Annotated[str, parameter(group=MODEL, help="What to compare it with.")],
    /,
    *,
    by: Annotated[
        Literal["operator", "kind", "module", "kernel", "shape"] | None,
        parameter(
            group=SHOWING,
            help="Only by kind of operator, or only by module; of profiles also by operator (usual), by kernel, or by module, "
            "operator and shapes.",
        ),
    ] = None,
    fail_if: FailIf = (),
    allow_uncounted: Annotated[
        bool, parameter(group=FAILING, help="Judge by lower bounds where some operators have no price.")
    ] = False,
    choice: CountChoice | None = None,
    top: Top = 20,
    shown: TableChoice | None = None,
) -> int:
    """Tell what differs between two models, or where the time of two profiles goes.

    The exit code is 1 if models differ or, with --fail-if, if one of the conditions holds; of profiles only then.
    """
    shown = shown or TableChoice()
    check_tables(shown)
    old, new = trace_of(before), trace_of(after)
    if (old is None) != (new is None):
        only = before if new is None else after
        raise OpcostError(f"only {only} is a profile", hint="compare two profiles, or two models or reports")
    if old is not None and new is not None:
        return _profiles(before, after, (old, new), by, fail_if, shown, top)
    if by not in (None, "kind", "module"):
        raise OpcostError(f"--by {by} is of profiles", hint="models are compared by kind or by module")

    from opcost.analysis.compare import costs_of
    from opcost.analysis.compare import diff as difference
    from opcost.core.limit import parse_condition

    conditions = [parse_condition(text) for text in fail_if]
    old_one, new_one = sources_of((before, after), choice or CountChoice(), quiet=shown.quiet)
    was, now = costs_of(old_one, before), costs_of(new_one, after)
    found = difference(was, now, by=by)
    show_tables(found, shown, top=top)
    if not conditions:
        return 1 if found else 0
    return 1 if _offend(conditions, was, now, allow_uncounted=allow_uncounted) else 0


def _offend(conditions: list[Limit], was: Costs, now: Costs, *, allow_uncounted: bool) -> bool:
    """Say which conditions hold; where a total is a lower bound, nobody knows, which is told and does not pass."""
    failed = False
    for condition in conditions:
        name = condition.quantity.name
        old, new = was.totals.get(name), now.totals.get(name)
        if old is None or new is None:
            raise OpcostError(f"{condition}: a checkpoint does not tell it", hint="name params or param_bytes")
        if condition.holds(new, old):
            warn(f"{condition}: {old:,} → {new:,} ({_percent(old, new)})")
            failed = True
        elif condition.quantity.priced and (was.missed or now.missed) and not allow_uncounted:
            warn(
                f"{condition}: not known, because some operators have no price (--allow-uncounted judges without them)"
            )
            failed = True
    return failed


def _percent(before: int, after: int) -> str:
    return f"{(after - before) / before:+.2%}" if before else "new"


def _profiles(
    before: str,
    after: str,
    both: tuple[Trace, Trace],
    by: By | None,
    fail_if: tuple[str, ...],
    shown: TableChoice,
    top: int,
) -> int:
    """One line for each operator, kind, module or kernel whose time or number of executions is not the same."""
    from opcost.analysis.profile_diff import TIME, diff_profiles
    from opcost.core.limit import parse_condition

    conditions = [parse_condition(text, {"time": TIME}) for text in fail_if]
    with working(f"reading {before} and {after}", quiet=shown.quiet):
        old, new = (trace.read() for trace in both)
    found = diff_profiles(old, new, (before, after), by)
    show_tables(found, shown, top=top)
    held = [condition for condition in conditions if _holds(condition, found)]
    return 1 if held else 0


def _holds(condition: Limit, found: Comparison) -> bool:
    from opcost.core.units import format_time

    total = found.total("time")
    old, new = (0, 0) if total is None else (total.amounts[0] or 0, total.amounts[-1] or 0)
    if condition.holds(new, old):
        warn(f"{condition}: {format_time(old)} → {format_time(new)} ({_percent(old, new)})")
        return True
    return False
