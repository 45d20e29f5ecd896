"""Profiles that a command names: one file, or many ranks, joined to the modules of a model if one is named."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from opcost.cli.analyze_options import ReadChoice
from opcost.cli.options import CountChoice, InputChoice
from opcost.errors import OpcostError

if TYPE_CHECKING:
    from opcost.core.profile import Profile
    from opcost.traces.file import TraceFile
    from opcost.traces.ranks.reduce import Ranks
    from opcost.traces.registry import Reader


class Trace(NamedTuple):
    """A file that a reader of traces claims, and who that is."""

    file: TraceFile
    reader: Reader

    def read(self) -> Profile:
        return self.reader.read(self.file)


def trace_of(path: str) -> Trace | None:
    """The trace that a source is; None for any other source."""
    try:
        if not Path(path).is_file():
            return None
    except (OSError, ValueError):  # no file could have such a name
        return None
    from opcost.traces.file import TraceFile
    from opcost.traces.registry import claimant

    file = TraceFile(path)
    reader = claimant(file)
    return None if reader is None else Trace(file, reader)


def read_profiles(
    paths: list[str],
    choice: ReadChoice,
    *,
    quiet: bool,
    memory: bool = False,
    timeline: bool = False,
    each: bool = False,
) -> Profile:
    """The profile of one file, or of many ranks, joined to a model if one is named; with more than is usual of a large file.

    With `each`, executions are told apart where the file is not large.
    """
    from opcost.api import read_profile
    from opcost.core.progress import working

    if len(paths) == 1 and not Path(paths[0]).is_dir():
        with working(f"reading {paths[0]}", quiet=quiet):
            profile: Profile = read_profile(
                paths[0],
                partial=choice.partial,
                reader=choice.reader,
                memory=memory or None,
                timeline=timeline,
                executions=each,
                capture=choice.capture,
            )
    elif choice.capture is not None:
        raise OpcostError("--capture is of one trace, and several are named", hint="analyze them one by one")
    else:
        profile = _read_ranks(paths, choice, quiet=quiet)
    source = choice.report or choice.model
    if source is None:
        return profile
    if choice.report and choice.model:
        raise OpcostError("both --model and --report are given", hint="name one of them")
    from opcost.analysis.join import with_costs, with_modules
    from opcost.cli.counting import report_of
    from opcost.rules import default_rules

    # What ran is priced by what was recorded of it; the model tells where the trace does not.
    profile = with_costs(profile, default_rules())
    return with_modules(profile, report_of(source, CountChoice(model=InputChoice(inputs=choice.inputs)), quiet=quiet))


def reduced(paths: list[str], choice: ReadChoice, *, quiet: bool) -> Ranks:
    """Many files as ranks, each reduced on its own; also a single one."""
    from opcost.core.progress import working
    from opcost.traces.ranks import reduce_ranks

    read = (0, 0)

    def progress(done: int, total: int) -> None:
        nonlocal read
        read = (done, total)

    with working("reading ranks", share=lambda: read, quiet=quiet):
        return reduce_ranks(
            paths,
            scheduler=choice.scheduler,
            progress=progress,
            partial=choice.partial,
            reader=choice.reader,
            cache=choice.cache,
        )


def _read_ranks(paths: list[str], choice: ReadChoice, *, quiet: bool) -> Profile:
    """The profile of many ranks."""
    return reduced(paths, choice, quiet=quiet).profile()
