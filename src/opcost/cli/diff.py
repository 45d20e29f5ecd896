"""`opcost diff BEFORE AFTER`."""

from __future__ import annotations

from typing import Annotated

from opcost.cli.counting import report_of
from opcost.cli.options import MODEL, CountChoice, Quiet, parameter

Limit = Annotated[int, parameter(name="--top", metavar="N", show_default=True, help="Show at most N changed modules.")]


def diff(
    before: Annotated[str, parameter(group=MODEL, help="A source, or a report saved as .json.")],
    after: Annotated[str, parameter(group=MODEL, help="Another one.")],
    /,
    *,
    choice: CountChoice | None = None,
    top: Limit = 20,
    quiet: Quiet = False,
) -> int:
    """Compare what two models cost. The exit code is 1 if anything differs."""
    from opcost.analysis.diff import diff as compare

    found = compare(
        report_of(before, choice or CountChoice(), quiet=quiet), report_of(after, choice or CountChoice(), quiet=quiet)
    )
    if not found:
        print("no difference")
        return 0
    for change in found.totals:
        print(f"{change.quantity:<18}{change.before:>22,}{change.after:>22,}  {_relative(change.before, change.after)}")
    for module in found.modules[:top]:
        place = f"{module.path or '(root)'} [{module.type}]"
        if module.only_in:
            print(f"{place}: only in {before if module.only_in == 'before' else after}")
            continue
        print(f"{place}: {', '.join(f'{c.quantity} {c.before:,} -> {c.after:,}' for c in module.changes)}")
    if (more := len(found.modules) - top) > 0:
        print(f"... and {more} more modules")
    return 1


def _relative(before: int, after: int) -> str:
    return f"{(after - before) / before:+.2%}" if before else "new"
