"""`opcost diff BEFORE AFTER`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

from opcost.cli.counting import report_of
from opcost.cli.options import MODEL, CountChoice, Quiet, parameter
from opcost.cli.saying import say
from opcost.core.progress import working
from opcost.errors import OpcostError

if TYPE_CHECKING:
    from opcost.core.profile import Profile
    from opcost.traces.file import TraceFile
    from opcost.traces.registry import Reader

Limit = Annotated[int, parameter(name="--top", metavar="N", show_default=True, help="Show at most N changed modules.")]


def diff(
    before: Annotated[str, parameter(group=MODEL, help="A source, a report saved as .json, or a profile.")],
    after: Annotated[str, parameter(group=MODEL, help="What to compare it with.")],
    /,
    *,
    choice: CountChoice | None = None,
    top: Limit = 20,
    quiet: Quiet = False,
) -> int:
    """Compare what two models cost, or where the time of two profiles goes. The exit code is 1 if anything differs."""
    from opcost.analysis.diff import diff as compare

    old, new = _trace(before), _trace(after)
    if old is not None and new is not None:
        with working(f"reading {before} and {after}", quiet=quiet):
            old_profile, new_profile = old.read(), new.read()
        return _diff_profiles(before, after, old_profile, new_profile, top)
    if old is not None or new is not None:
        only = before if new is None else after
        raise OpcostError(f"only {only} is a profile", hint="compare two profiles, or two models or reports")

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


class _Trace(NamedTuple):
    file: TraceFile
    reader: Reader

    def read(self) -> Profile:
        return self.reader.read(self.file)


def _trace(path: str) -> _Trace | None:
    """A file that a reader of traces claims, and who it is; None for any other source."""
    if not Path(path).exists() or Path(path).is_dir():
        return None
    from opcost.traces.file import TraceFile
    from opcost.traces.registry import claimant

    file = TraceFile(path)
    reader = claimant(file)
    return None if reader is None else _Trace(file, reader)


def _diff_profiles(before: str, after: str, old: Profile, new: Profile, top: int) -> int:
    """One line per module, type and shapes whose time or number of executions is not the same."""
    from opcost.analysis.profile_diff import diff_profiles
    from opcost.core.units import format_time

    found = diff_profiles(old, new)
    if not found:
        say("no difference")
        return 0
    total = f"{found.side} time"
    change = _relative(found.before_ns, found.after_ns)
    say(f"{total:<18}{format_time(found.before_ns):>14}{format_time(found.after_ns):>14}  {change}")
    for one in found.changes[:top]:
        place = " ".join(part for part in (one.key.module or "(root)", one.key.type, one.key.shape) if part)
        was, now = one.before, one.after
        if not was.count or not now.count:
            kept = now if now.count else was
            where = after if now.count else before
            say(f"{place}: {format_time(kept.time_ns)} in {kept.count:,} calls, only in {where}")
            continue
        calls = "" if was.count == now.count else f", calls {was.count:,} -> {now.count:,}"
        times = f"{format_time(was.time_ns)} -> {format_time(now.time_ns)}"
        say(f"{place}: {times} ({_relative(was.time_ns, now.time_ns)}){calls}")
    if (more := len(found.changes) - top) > 0:
        say(f"... and {more} more")
    return 1
