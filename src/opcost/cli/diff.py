"""`opcost diff BEFORE AFTER`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from opcost.cli.counting import report_of
from opcost.cli.options import MODEL, CountChoice, Quiet, parameter
from opcost.cli.saying import say
from opcost.errors import OpcostError

Limit = Annotated[int, parameter(name="--top", metavar="N", show_default=True, help="Show at most N changed modules.")]


def diff(
    before: Annotated[str, parameter(group=MODEL, help="A source, a report saved as .json, or a profile.")],
    after: Annotated[str, parameter(group=MODEL, help="Another one.")],
    /,
    *,
    choice: CountChoice | None = None,
    top: Limit = 20,
    quiet: Quiet = False,
) -> int:
    """Compare what two models cost, or where the time of two profiles goes. The exit code is 1 if anything differs."""
    from opcost.analysis.diff import diff as compare

    profiles = [path for path in (before, after) if is_profile(path)]
    if len(profiles) == 1:
        raise OpcostError(f"only {profiles[0]} is a profile", hint="compare two profiles, or two models or reports")
    if profiles:
        return _diff_profiles(before, after, top, quiet=quiet)

    found = compare(
        report_of(before, choice or CountChoice(), quiet=quiet), report_of(after, choice or CountChoice(), quiet=quiet)
    )
    if not found:
        say("no difference")
        return 0
    for change in found.totals:
        say(f"{change.quantity:<18}{change.before:>22,}{change.after:>22,}  {_relative(change.before, change.after)}")
    for module in found.modules[:top]:
        place = f"{module.path or '(root)'} [{module.type}]"
        if module.only_in:
            say(f"{place}: only in {before if module.only_in == 'before' else after}")
            continue
        say(f"{place}: {', '.join(f'{c.quantity} {c.before:,} -> {c.after:,}' for c in module.changes)}")
    if (more := len(found.modules) - top) > 0:
        say(f"... and {more} more modules")
    return 1


def _relative(before: int, after: int) -> str:
    return f"{(after - before) / before:+.2%}" if before else "new"


def is_profile(path: str) -> bool:
    """Whether this is a file that a reader of traces claims."""
    if not Path(path).exists() or Path(path).is_dir():
        return False
    from opcost.traces.file import TraceFile
    from opcost.traces.registry import readers

    head = TraceFile(path).head
    return any(reader.sniff(head) for reader in readers())


def _diff_profiles(before: str, after: str, top: int, *, quiet: bool) -> int:
    """One line per module, type and shapes whose time or number of executions is not the same."""
    from opcost.analysis.profile_diff import diff_profiles
    from opcost.cli.analyze_options import ReadChoice
    from opcost.cli.reading import read_profiles
    from opcost.core.units import format_time

    found = diff_profiles(
        read_profiles([before], ReadChoice(), quiet=quiet), read_profiles([after], ReadChoice(), quiet=quiet)
    )
    if not found:
        say("no difference")
        return 0
    total = f"{found.side} time"
    change = _relative(found.before_ns, found.after_ns)
    say(f"{total:<18}{format_time(found.before_ns):>14}{format_time(found.after_ns):>14}  {change}")
    for one in found.changes[:top]:
        place = " ".join(part for part in (one.key.module or "(root)", one.key.type, one.key.shape) if part)
        old, new = one.before, one.after
        if not old.count or not new.count:
            kept = new if new.count else old
            where = after if new.count else before
            say(f"{place}: {format_time(kept.time_ns)} in {kept.count:,} calls, only in {where}")
            continue
        calls = "" if old.count == new.count else f", calls {old.count:,} -> {new.count:,}"
        times = f"{format_time(old.time_ns)} -> {format_time(new.time_ns)}"
        say(f"{place}: {times} ({_relative(old.time_ns, new.time_ns)}){calls}")
    if (more := len(found.changes) - top) > 0:
        say(f"... and {more} more")
    return 1
